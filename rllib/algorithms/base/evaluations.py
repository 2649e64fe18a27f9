"""The evaluations of a run: in this process, or by dedicated evaluation workers."""

import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rllib.algorithms.base import wiring
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.recorded.evaluation import RecordedEvaluation
from rllib.algorithms.base.settings.evaluation import DATA_OF_EVALUATION
from rllib.compat.names import foreign_program
from rllib.config.conflicts import Mistake, SettingsError, Unfit
from rllib.env.episodes import Episode
from rllib.evaluation.callbacks import DefaultCallbacks, call_recreated_hooks
from rllib.evaluation.evaluator import EPISODES_AT_ONCE, Duration, EvaluationWorker
from rllib.evaluation.settings import PolicySettings, RolloutSettings
from rllib.evaluation.teacher_evaluation import TeacherEvaluationWorker
from rllib.evaluation.worker_set import WorkerSet
from rllib.metrics import episode_statistics
from rllib.notices import log_once
from rllib.result import ENV_RUNNERS, LOGGED, Result
from rllib.sample_batch import DEFAULT_POLICY

if TYPE_CHECKING:
    from rllib.env.multi_agent.examine import ExaminedAgents
    from rllib.evaluation.multi_agent.settings import AgentSettings


_NOTHING_TO_EVALUATE_IN = (
    'this algorithm has no environment to evaluate in. Build it with .environment("CartPole-v1"), or with '
    '.evaluation(evaluation_config={"env": "CartPole-v1"}).'
)
_NO_EVALUATION = (
    "an environment that drives its own loop cannot be evaluated by the library. Play episodes with "
    "start_episode(training_enabled=False), or name an environment to evaluate in: "
    ".evaluation(evaluation_config={'env': ...})"
)


class Evaluations:
    """Plays whole episodes in fresh environments, on seeds that neither training nor another evaluation uses.

    Args:
        algorithm: the Algorithm whose policy is evaluated; without evaluation workers, the policy object itself acts.
        training: settings of the algorithm's rollout workers.

    Attributes:
        count: number of evaluations so far.
        episodes: episodes of the newest evaluation.
        settings: of the workers that evaluate.
        settings_of_training: of environments like training's, without teachers and disturbances.
        workers: the evaluation workers, from the first evaluation on; None if this process plays.

    Raises:
        ValueError: if evaluation_config describes an environment with other spaces.
    """

    def __init__(self, algorithm, training: RolloutSettings):
        self._algorithm = algorithm
        self._config = algorithm.config.get_evaluation_config_object()
        self.settings_of_training = self._undisturbed(training)
        self.settings = self._own_settings()
        if self.settings.num_envs == 1 and "num_envs_per_worker" not in algorithm.config.evaluation_changes():
            self.settings = replace(self.settings, num_envs_of_episodes=EPISODES_AT_ONCE)
        if self.settings.is_external and algorithm.config.evaluation_interval:
            raise algorithm.config.error(
                Mistake(
                    f"evaluation_interval={algorithm.config.evaluation_interval}: an environment that drives its own "
                    "loop cannot be evaluated by the library.",
                    ("evaluation_interval", "evaluation_config"),
                    ({"evaluation_interval": None},),
                    examples=({"evaluation_config": {"env": "ENV"}},),
                    note="Or play episodes with start_episode(training_enabled=False).",
                )
            )
        self._recorded = RecordedEvaluation(algorithm, wiring.time_limit_of(training.env))
        if algorithm.config.evaluation_interval and algorithm.config.is_offline and not self._can_evaluate:
            raise algorithm.config.error(
                Mistake(
                    f"evaluation_interval={algorithm.config.evaluation_interval}: there is no environment to evaluate "
                    "in, and there are no estimates from the data.",
                    ("evaluation_interval", "env", "evaluation_config", "off_policy_estimation_methods"),
                    ({"evaluation_interval": None}, {"off_policy_estimation_methods": {"dm": {"type": "dm"}}}),
                    examples=({"env": "CartPole-v1"}, {"evaluation_config": {"env": "CartPole-v1"}}),
                )
            )
        self.count = 0
        self.episodes: list[Episode] = []
        self.workers: WorkerSet | None = None
        self._stopped = False

    @property
    def _can_evaluate(self) -> bool:
        """Whether there is an environment to play in, or there are estimators for recorded data."""
        return self.settings.env is not None or self._recorded.gives_estimates

    @property
    def _worker_class(self) -> type:
        if self.settings.agents is None:
            return EvaluationWorker
        from rllib.evaluation.multi_agent.evaluator import MultiAgentEvaluationWorker

        return MultiAgentEvaluationWorker

    @functools.cached_property
    def _local(self):
        """The worker in this process. With one agent, the algorithm's policy object itself acts."""
        if self.settings.agents is None:
            return self._worker_class(self.settings, policy=self._algorithm.policy)
        return self._worker_class(self.settings)

    def _undisturbed(self, training: RolloutSettings) -> RolloutSettings:
        """The settings of training, without disturbances."""
        if training.env is None or not self._algorithm.config.disturbances:
            return training
        config = self._algorithm.config.copy(copy_frozen=False)
        config.disturbances = {}
        return replace(training, env=wiring.learned_environment(config))

    def _own_settings(self) -> RolloutSettings:
        """Settings of the training environments, or of the environment that evaluation_config describes."""
        algorithm, config = self._algorithm, self._config
        if not algorithm.config.evaluation_changes().keys() - {"explore", *DATA_OF_EVALUATION}:
            return self.settings_of_training
        try:
            factory = wiring.learned_environment(config)
            observation_space, action_space, _, examined, is_external, _ = wiring.checked_spaces(factory, config)
        except (SettingsError, Unfit) as error:
            found = error.mistakes if isinstance(error, SettingsError) else [config.placed(error.mistake)]
            raise algorithm.config.error(*map(algorithm.config.in_evaluation, found)) from error
        agents = self._agents_in(examined)
        if (observation_space, action_space) != (algorithm.observation_space, algorithm.action_space):
            raise self._refusal(
                f"observations {observation_space} and actions {action_space}, but the policy is trained with "
                f"{algorithm.observation_space} and {algorithm.action_space}.",
                "Evaluate in an environment with the same spaces.",
            )
        return wiring.rollout_settings(
            config,
            factory,
            policies={
                policy_id: PolicySettings(
                    policy.spec,
                    exploration=algorithm.make_exploration(
                        algorithm.config_of(policy_id).get_evaluation_config_object(), policy_id
                    ),
                    explore=config.explore,
                )
                for policy_id, policy in algorithm.policies.items()
            },
            seed=algorithm.seed if config.seed is None else config.seed,
            agents=agents,
            is_external=is_external,
        )

    def _agents_in(self, examined: "ExaminedAgents | None") -> "AgentSettings | None":
        """The policies of training for the agents of the environment that evaluation_config describes."""
        agents = self._algorithm.agents
        if (agents is None) != (examined is None):
            here, there = ("one agent", "several") if examined is None else ("several agents", "one")
            raise self._refusal(f"{here}, but the policy is trained with {there}.", "Evaluate in one of the same kind.")
        if agents is None:
            return None
        from rllib.algorithms.base.agents import in_other_environment

        try:
            return in_other_environment(agents, examined)
        except ValueError as error:
            raise self._refusal(f"other agents than training's: {error}", None) from error

    def _refusal(self, problem: str, advice: str | None) -> SettingsError:
        """The error for an environment that the policies cannot act in."""
        problem = f"evaluation_config describes an environment with {problem}"
        mistake = Mistake(problem, ("evaluation_config", "env"), ({"evaluation_config": None},), advice=advice)
        return self._algorithm.config.error(mistake)

    def change_agents(self, policies: Mapping[str, PolicySettings], agents: "AgentSettings") -> None:
        """Evaluates with these policies of several agents from now on, using the mapping of training."""
        changed = replace(self.settings, policies=policies, agents=agents)
        self.settings = changed.without_teachers(changed.env)
        self.__dict__.pop("_local", None)
        if self.workers is not None:
            self.workers.change_settings(self.settings)

    def is_due(self, iteration: int) -> bool:
        """Whether this iteration, counted from 1, ends with an evaluation."""
        interval = self._config.evaluation_interval
        return bool(interval) and iteration % interval == 0

    def on_held_out(self, iteration: int) -> dict[str, dict]:
        """Losses on recorded episodes that are not learned from, under "offline"; {} if none are due.

        Args:
            iteration: counted from 1.
        """
        interval = self._config.offline_evaluation_interval
        return {"offline": self._recorded.losses()} if interval and iteration % interval == 0 else {}

    def begin(self, iteration: int, training_s: float) -> Callable[[], Result] | None:
        """Begins the evaluation of an iteration in parallel to its training, if one is due and configured as parallel.

        Args:
            iteration: counted from 1.
            training_s: duration of the training in the previous iteration; 0 in the first one.
        """
        if not (self._config.evaluation_parallel_to_training and self.is_due(iteration)):
            return None
        return self.start(self.duration(training_s))

    def duration(self, training_s: float | None = None) -> Duration:
        """The configured length of an evaluation.

        Args:
            training_s: duration for "auto", which is that of the parallel training; 0 if it is not known yet, None if
                no training runs in parallel.
        """
        amount, unit = self._config.evaluation_duration, self._config.evaluation_duration_unit
        if amount != "auto":
            return Duration(amount, unit)
        if training_s:
            return Duration(training_s, "seconds")
        at_once = max(self._config.evaluation_num_workers, 1) * self._config.num_envs_per_worker
        return Duration(AlgorithmConfig.settings["evaluation_duration"].default if training_s is None else at_once)

    def start(self, duration: Duration, explore: bool | None = None) -> Callable[[], Result]:
        """Begins one evaluation of the present weights. Without evaluation workers, this call plays it to its end.

        Estimates from recorded data are also computed in this call.

        Args:
            duration: number of episodes or steps, or time, to play.
            explore: whether to sample actions instead of taking the most likely ones; None: as in evaluation_config.

        Returns:
            a function that waits for the end and returns the statistics of the episodes.

        Raises:
            RuntimeError: if there is no environment, or it drives its own loop.
        """
        if self.settings.is_external:
            raise RuntimeError(_NO_EVALUATION)
        algorithm = self._algorithm
        if algorithm.config.output is not None:
            log_once(
                "output of evaluations",
                "output has the steps of training; those of an evaluation are not written. `rllib evaluate CHECKPOINT "
                "--out FILE` writes them.",
                logging.WARNING if foreign_program.is_running() else logging.INFO,
            )
        algorithm.callbacks.on_evaluate_start(algorithm=algorithm)
        plays = self.settings.env is not None
        if not self._can_evaluate:
            raise RuntimeError(_NOTHING_TO_EVALUATE_IN)
        if explore is None:
            explore = algorithm.config.explores_in_evaluation
        self.count += 1
        play = self._play_here if self._stopped or not self._config.evaluation_num_workers else self._play_remotely
        estimates = self._recorded.estimates()
        collect = play(duration, explore) if plays else list

        def finish() -> Result:
            episodes = self.episodes = collect()
            call_recreated_hooks(algorithm, self.workers, is_evaluation=True)
            result = Result(episode_statistics(episodes))
            result["episodes_this_iter"] = len(episodes)
            result.update(estimates)
            result["timesteps_this_iter"] = sum(result["hist_stats"]["episode_lengths"])
            result["num_env_steps_sampled_this_iter"] = result["timesteps_this_iter"]
            result["num_healthy_workers"] = self.workers.num_healthy_workers if self.workers is not None else 0
            if logged := [episode.logged for episode in episodes if episode.logged]:
                result[LOGGED] = {ENV_RUNNERS: _reduced(logged)}
            _call_end_hook(algorithm, result)
            result.list_parts()
            return result

        return finish

    def play_teacher(self, own: PolicySettings) -> list[Episode]:
        """Plays the number of episodes of an evaluation with a policy's teacher.

        They are played in this process, with seeds that no evaluation uses, and without hooks, which are for the
        policy's episodes.

        Args:
            own: the policy's settings in workers, with its teacher.
        """
        env = wiring.taught_environment(self._config, self.settings.env, gives_keys=True)
        settings = replace(self.settings, env=env, policies={DEFAULT_POLICY: own}, callbacks=DefaultCallbacks)
        worker = TeacherEvaluationWorker(settings, policy=self._algorithm.policy)
        return worker.play_episodes(self.duration(), 0)

    def _play_here(self, duration: Duration, explore: bool) -> Callable[[], list]:
        if self.settings.agents is not None:
            self._local.load_snapshots(self._algorithm.snapshots())
        else:
            exploration = self.settings.only_policy.exploration
            self._local.policy.exploration = exploration.numbers_alone(self._algorithm.timesteps)
        episodes = self._local.play_episodes(duration, self.count, explore)
        return lambda: episodes

    def _play_remotely(self, duration: Duration, explore: bool) -> Callable[[], list]:
        if self.workers is None:
            self.workers = WorkerSet(
                self.settings,
                self._config.evaluation_num_workers,
                wiring.actor_options(self._config),
                wiring.fault_tolerance(self._config),
                worker_class=self._worker_class,
            )
        return self.workers.start_episodes(self._algorithm.snapshots(), duration, self.count, explore)

    def stop(self) -> None:
        """Stops the evaluation workers; later evaluations are played in this process."""
        self._stopped = True
        if self.workers is not None:
            self.workers.stop()


def _call_end_hook(algorithm: Any, result: Result) -> None:
    """Calls on_evaluate_end; entries that it writes into its `evaluation_metrics` are added to the result.

    `evaluation_metrics` has the forms of all versions of Ray: {"evaluation": result} as in Ray 2.6, and the keys of the
    result itself as in later versions.
    """
    before, missing = dict(result), object()
    metrics = Result({**result, "evaluation": result})
    algorithm.callbacks.on_evaluate_end(algorithm=algorithm, evaluation_metrics=metrics)
    written = {key: value for key, value in metrics.items() if value is not before.get(key, missing)}
    written.pop("evaluation", None)
    result.update(written)


def _reduced(logged: list[list]) -> dict[str, Any]:
    """The values that the hooks of an evaluation have logged, one list of calls from each worker."""
    from rllib.core.metrics.metrics_logger import MetricsLogger

    metrics_logger = MetricsLogger()
    for calls in logged:
        metrics_logger.repeat(calls)
    return metrics_logger.reduce()
