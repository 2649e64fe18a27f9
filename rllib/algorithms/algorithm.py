"""What all algorithms share: build, train, evaluate, save, restore, act.

An algorithm adds a config, a loss and a `training_step` (see ppo.py). This file moves its data: sampling with the
newest weights, counting, timing, evaluation and checkpoints.
"""

import json
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rllib.algorithms.algorithm_config import AlgorithmConfig
from rllib.algorithms.exploration import exploration_settings
from rllib.algorithms.exploration_of import make_exploration
from rllib.checkpoint import read_checkpoint, write_checkpoint
from rllib.env.actions import ActionMapper
from rllib.env.atari import AtariFactory, is_atari
from rllib.env.checks import check_environment
from rllib.env.observations import observation_column
from rllib.env.registry import EnvFactory, resolve
from rllib.env.spaces import mismatch
from rllib.evaluation import seeding
from rllib.evaluation.callbacks import DefaultCallbacks
from rllib.evaluation.evaluation_worker import EvaluationWorker
from rllib.evaluation.evaluator import play_episodes
from rllib.evaluation.exploration import Exploration
from rllib.evaluation.rollout_worker import Gradient, SampleReport
from rllib.evaluation.settings import NO_POSTPROCESS, Postprocess, RolloutSettings
from rllib.evaluation.worker_set import FaultTolerance, WorkerSet
from rllib.learners.learner import Learner, make_learner
from rllib.metrics import DEFAULT_POLICY, Metrics, Result, episode_statistics
from rllib.models.catalog import MODEL_DEFAULTS, PolicySpec, policy_spec
from rllib.policy import Policy
from rllib.sample_batch import SampleBatch
from rllib.system_usage import SystemUsage

logger = logging.getLogger(__name__)


class Algorithm(ABC):
    """One training run: a policy, its learner and the workers that sample for it.

    Use it as a context manager, or call `stop()` at the end.

    Args:
        config: settings; a plain dict of them is taken as well. It is validated and frozen here if it is not yet.
        env: environment, where the config names none.

    Raises:
        ValueError: with every mistake in the settings.
        the environment's own exception, if it cannot be made or stepped.
    """

    config_class: ClassVar[type[AlgorithmConfig]]
    # Whether batches come as sequences with the observations to bootstrap from, for values computed by the learner.
    samples_sequences: ClassVar[bool] = False
    # Weights to start from (models/initializers.py), where the model's settings do not say.
    initializer: ClassVar[str] = "orthogonal"

    def __init__(self, config: AlgorithmConfig | dict | None = None, env: Any = None):
        self.config = _frozen(self.config_class, config, env)
        self.callbacks = _callbacks_class(self.config)()
        _set_log_level(self.config.log_level)
        self.seed = seeding.fresh_seed() if self.config.seed is None else self.config.seed
        factory = _preprocessed(resolve(self.config.env), self.config)
        observation_space, action_space = _spaces(factory, self.config)
        self.observation_space, self.action_space = observation_space, action_space
        self.metrics = Metrics(self.config.metrics_num_episodes_for_smoothing)
        rng = seeding.generator(self.seed, seeding.INITIAL_WEIGHTS)
        spec = self.make_policy_spec(observation_space, action_space)
        self.policy = Policy(spec, rng=rng)
        self.learner = self.make_learner()
        self._learner_rng = seeding.generator(self.seed, seeding.LEARNER)
        self._rollout_settings = self._make_rollout_settings(factory, spec)
        self._observation_column = observation_column(observation_space)
        self._to_env = ActionMapper(action_space, self.config.normalize_actions, self.config.clip_actions).to_env
        self._inference_rng = seeding.generator(self.seed, seeding.INFERENCE)
        self._evaluations = 0
        self._evaluation_workers: WorkerSet | None = None
        self._restores = 0
        self.setup()
        self._usage = SystemUsage() if self.config.log_sys_usage else None
        self._default_directory = Path("results", f"{type(self).__name__}_{datetime.now():%Y-%m-%d_%H-%M-%S}")
        self._told_no_episode = False
        self._stopped = False
        self.workers = self.make_workers()
        try:
            self.callbacks.on_algorithm_init(algorithm=self)
        except BaseException:
            self.stop()
            raise

    # ------------------------------------------------------------------ what an algorithm fills in

    def setup(self) -> None:
        """What the algorithm needs beside policy and learner, before any worker starts."""

    @abstractmethod
    def training_step(self) -> dict[str, float]:
        """Samples, updates, and returns the learner's statistics."""

    @abstractmethod
    def make_learner(self) -> Learner:
        """What changes the weights of `self.policy`; checkpoints ask it for get_state and set_state."""

    def make_postprocess(self) -> Postprocess:
        """What the workers add to each fragment."""
        return NO_POSTPROCESS

    def make_workers(self, **more) -> WorkerSet:
        """Who plays for it; `more` are further arguments of WorkerSet."""
        return WorkerSet(
            self._rollout_settings,
            self.config.num_rollout_workers,
            _actor_options(self.config),
            fault_tolerance(self.config),
            [self.config.get_rollout_fragment_length(i + 1) for i in range(self.config.num_rollout_workers)],
            **more,
        )

    def result_info(self) -> dict[str, Any]:
        """What the results' `info` holds besides counters and the learner's statistics."""
        return {}

    def make_worker_learner(self) -> Callable[[Policy], Learner] | None:
        """What makes the learner of each worker's own policy, where workers compute gradients; it has to be pickled."""
        return None

    def make_policy_spec(self, observation_space, action_space) -> PolicySpec:
        """The network for these spaces."""
        return policy_spec(
            observation_space,
            action_space,
            self.config.model,
            observation_filter=self.config.observation_filter,
            initializer=self.initializer,
        )

    def exploration(self) -> dict[str, float]:
        """What workers need to know in order to explore: how far the run is."""
        return {"timesteps": self.timesteps}

    def make_exploration(self) -> Exploration:
        """How workers try out new behaviour."""
        settings = exploration_settings(self.config.exploration_config, self.config.default_exploration)
        return make_exploration(settings, self.action_space)

    def explored_by(self) -> dict[str, Any]:
        """How much is explored at this moment, as the action distribution's `noise` takes it (epsilon, ...)."""
        return self._rollout_settings.exploration.numbers(self.timesteps)

    def exploration_stats(self) -> dict[str, float]:
        """The same as `cur_epsilon`, ..., for the learner's statistics."""
        return {f"cur_{name}": float(number) for name, number in self.explored_by().items()}

    def algorithm_state(self) -> dict[str, Any]:
        """JSON-able state of the algorithm itself (coefficients that adapt, ...), for checkpoints."""
        return {}

    def set_algorithm_state(self, state: dict[str, Any]) -> None:
        """Takes `algorithm_state` back."""

    # ------------------------------------------------------------------ building blocks of a training step

    def sample(self, num_steps: int) -> SampleBatch:
        """At least so many steps of the environments, all of them acted by the newest weights.

        The workers get the weights with the request; a round brings one fragment of each. Steps that are no transitions
        (of vector environments that reset in a step of their own) count here, and are not in the batch.
        """
        batches, steps = [], 0
        with self.metrics.timer("sample"):
            while steps < num_steps:
                filter_state = self.policy.filter.get_state() if self.policy.filters_observations else None
                for batch, report in self.workers.sample(
                    self.policy.weights, self.num_updates, filter_state, self.exploration()
                ):
                    self.take_in(report)
                    batches.append(batch)
                    steps += report.rows
            return SampleBatch.concat(batches)

    def take_in(self, report: SampleReport) -> None:
        """Counts what a worker reported beside its batch, and merges what its observation filter has seen."""
        self.metrics.add_sample(report)
        if report.filter_delta is not None:
            self.policy.filter.merge(report.filter_delta)

    def learn(self, batch: SampleBatch, **settings) -> dict[str, float]:
        """One `Learner.update` on the batch, counted and timed; see there for the settings."""
        lag = self.num_updates - batch.policy_version
        told: dict[str, float] = {}
        if type(self.callbacks).on_learn_on_batch is not DefaultCallbacks.on_learn_on_batch:
            batch = _writable(batch)
        self.callbacks.on_learn_on_batch(policy=self.policy, train_batch=batch, result=told)
        with self.metrics.timer("learn"):
            stats = self.learner.update(batch, rng=self._learner_rng, **settings)
        counters = self.metrics.counters
        counters["num_env_steps_trained"] += batch.env_steps
        counters["num_updates"] += 1
        counters["num_grad_updates"] += int(stats.pop("num_minibatches", 1))
        return {**stats, **told, "policy_lag_updates": float(lag)}

    def apply_gradient(self, gradient: Gradient, lr: float) -> dict[str, float]:
        """One `Learner.apply_gradient`, counted and timed like `learn`, for a gradient that was computed elsewhere."""
        lag = self.num_updates - gradient.policy_version
        with self.metrics.timer("learn"):
            norm = self.learner.apply_gradient(gradient.flat, lr=lr)
        counters = self.metrics.counters
        counters["num_env_steps_trained"] += gradient.env_steps
        counters["num_updates"] += 1
        counters["num_grad_updates"] += 1
        return {**gradient.stats, "grad_gnorm": norm, "policy_lag_updates": float(lag)}

    def make_default_learner(self, loss) -> Learner:
        """A learner with the settings that all algorithms have in common."""
        config = self.config
        return make_learner(
            self.policy,
            loss,
            kind=config.learner,
            device="cuda" if config.num_gpus else "cpu",
            optimizer=config.opt_type,
            adam_epsilon=config.adam_epsilon,
            decay=config.decay,
            momentum=config.momentum,
            rmsprop_epsilon=config.rmsprop_epsilon,
            grad_clip=config.grad_clip,
            grad_clip_by=config.grad_clip_by,
        )

    @property
    def num_updates(self) -> int:
        """Learner updates so far: the version of the weights."""
        return self.metrics.counters["num_updates"]

    @property
    def num_requests_in_flight(self) -> int:
        """Requests to workers that are not answered yet; asynchronous algorithms have some between training steps."""
        return 0

    @property
    def timesteps(self) -> int:
        """Environment steps sampled so far, what schedules run over."""
        return self.metrics.counters["num_env_steps_sampled"]

    # ------------------------------------------------------------------ training

    def train(self) -> Result:
        """One iteration: training steps until the `reporting` minima are reached.

        Returns:
            the result dict; `episode_reward_mean` is NaN until an episode has finished.
        """
        if self._stopped:
            raise RuntimeError("this algorithm has been stopped; build a new one, or restore it from a checkpoint")
        self.metrics.start_iteration()
        stats = self.training_step()
        while not self._iteration_is_full():
            stats = self.training_step()
        evaluation = self._evaluation_of_iteration()
        result = self.metrics.result(stats)
        result.update(evaluation)
        self._add_surroundings(result)
        self._tell_no_episode_yet(result)
        self._tell_recreated_workers(self.workers, is_evaluation=False)
        self.callbacks.on_train_result(algorithm=self, result=result)
        return result

    def _evaluation_of_iteration(self) -> dict:
        interval = self.config.evaluation_interval
        if not interval or (self.metrics.iteration + 1) % interval:
            return {}
        with self.metrics.timer("evaluation"):
            return {"evaluation": self.evaluate()}

    def _iteration_is_full(self) -> bool:
        config, metrics = self.config, self.metrics
        return (
            metrics.elapsed_s() >= (config.min_time_s_per_iteration or 0)
            and metrics.sampled_this_iteration() >= (config.min_sample_timesteps_per_iteration or 0)
            and metrics.trained_this_iteration() >= (config.min_train_timesteps_per_iteration or 0)
        )

    def _add_surroundings(self, result: Result) -> None:
        result["num_healthy_workers"] = self.workers.num_healthy_workers
        result["num_remote_worker_restarts"] = self.workers.num_restarts
        result["num_in_flight_async_reqs"] = self.num_requests_in_flight
        result["fault_tolerance"] = {
            "num_healthy_workers": self.workers.num_healthy_workers,
            "num_remote_worker_restarts": self.workers.num_restarts,
        }
        result["perf"] = self._usage.read() if self._usage else {}
        result["config"] = self.config.to_dict()
        result["info"].update(self.result_info())

    def _tell_no_episode_yet(self, result: Result) -> None:
        if not self._told_no_episode and math.isnan(result["episode_reward_mean"]):
            self._told_no_episode = True
            logger.info(
                "no episode has finished yet, so the reward keys are NaN; the longest running one has %d steps",
                result["longest_running_episode"],
            )

    # ------------------------------------------------------------------ evaluation and inference

    def evaluate(self, num_episodes: int | None = None, explore: bool | None = None) -> dict:
        """Plays whole episodes in fresh environments, on seeds that training never uses.

        Args:
            num_episodes: `evaluation_duration` if not given.
            explore: sample actions; by default the most likely ones are taken, unless `evaluation_config` says
                `explore: True`.

        Returns:
            the episode statistics of `train()`, of these episodes alone.
        """
        self.callbacks.on_evaluate_start(algorithm=self)
        count = self.config.evaluation_duration if num_episodes is None else num_episodes
        if explore is None:
            explore = bool((self.config.evaluation_config or {}).get("explore", False))
        self._evaluations += 1
        if self.config.evaluation_num_workers and not self._stopped:
            episodes = self._remote_evaluation(count, explore)
        else:
            self.policy.exploration = self.explored_by()
            episodes = play_episodes(self.policy, self._rollout_settings, count, self._evaluations, explore=explore)
        statistics = episode_statistics(episodes)
        statistics["episodes_this_iter"] = len(episodes)
        statistics["timesteps_this_iter"] = sum(statistics["hist_stats"]["episode_lengths"])
        statistics["num_healthy_workers"] = (
            self._evaluation_workers.num_healthy_workers if self._evaluation_workers else 0
        )
        evaluation = Result(statistics)
        self.callbacks.on_evaluate_end(algorithm=self, evaluation_metrics={"evaluation": evaluation})
        return evaluation

    def _tell_recreated_workers(self, workers: WorkerSet, is_evaluation: bool) -> None:
        recreated = workers.pop_recreated()
        if recreated:
            self.callbacks.on_workers_recreated(
                algorithm=self, worker_set=workers, worker_ids=recreated, is_evaluation=is_evaluation
            )

    def _remote_evaluation(self, num_episodes: int, explore: bool) -> list:
        if self._evaluation_workers is None:
            self._evaluation_workers = WorkerSet(
                self._rollout_settings,
                self.config.evaluation_num_workers,
                _actor_options(self.config),
                fault_tolerance(self.config),
                worker_class=EvaluationWorker,
            )
        filter_state = self.policy.filter.get_state() if self.policy.filters_observations else None
        episodes = self._evaluation_workers.play_episodes(
            self.policy.weights, filter_state, num_episodes, self._evaluations, explore, self.exploration()
        )
        self._tell_recreated_workers(self._evaluation_workers, is_evaluation=True)
        return episodes

    def compute_single_action(self, observation, explore: bool | None = None):
        """The action for one observation, in the environment's own units.

        Args:
            observation: as the environment gives it.
            explore: sample it; False takes the most likely one. By default the config's `explore`.
        """
        return self.compute_actions([observation], explore)[0]

    def compute_actions(self, observations, explore: bool | None = None) -> np.ndarray:
        """Actions for a sequence of observations; see `compute_single_action`."""
        explore = self.config.explore if explore is None else explore
        for observation in observations:
            self._refuse_odd(observation)
        self.policy.exploration = self.explored_by()
        rows = np.stack([self._observation_column.row(observation) for observation in observations])
        return self._to_env(self.policy.compute_actions(rows, explore, self._inference_rng))

    def _refuse_odd(self, observation) -> None:
        problem = mismatch(self.observation_space, observation)
        if problem is None:
            return
        if isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], dict):
            problem = "this is the pair (observation, info) that reset() returns; give its first part alone"
        raise ValueError(f"no action can be computed: {problem}")

    def get_policy(self, policy_id: str = DEFAULT_POLICY) -> Policy:
        """The policy that is trained."""
        if policy_id != DEFAULT_POLICY:
            raise ValueError(f"there is no policy {policy_id!r}; this algorithm has {DEFAULT_POLICY!r} alone")
        return self.policy

    def get_weights(self) -> dict[str, np.ndarray]:
        """A copy of the flat parameter vector, by policy."""
        return {DEFAULT_POLICY: self.policy.weights.copy()}

    def set_weights(self, weights: dict[str, np.ndarray]) -> None:
        """Takes over what `get_weights` gave; the workers get it with their next request."""
        self.policy.set_weights(weights[DEFAULT_POLICY])

    # ------------------------------------------------------------------ checkpoints

    def save(self, checkpoint_dir: str | Path | None = None) -> Path:
        """Writes a checkpoint directory: JSON and safetensors, all that is needed to act or to go on exactly.

        Args:
            checkpoint_dir: the directory to write; an existing checkpoint there is replaced in one step. By default
                results/ALGORITHM_DATE/checkpoint_ITERATION, with the date at which this algorithm was built.

        Returns:
            its path.
        """
        if checkpoint_dir is None:
            checkpoint_dir = self._default_directory / f"checkpoint_{self.metrics.iteration:06d}"
        return write_checkpoint(checkpoint_dir, self.get_state())

    def export_policy_model(self, export_dir: str | Path, policy_id: str = DEFAULT_POLICY) -> Path:
        """Writes the policy alone, as read_checkpoint reads it: policy.json says what to build, and the spaces;
        weights.safetensors is what Policy.set_state takes.

        Returns:
            the directory.
        """
        state = self.get_policy(policy_id).get_state()
        return write_checkpoint(export_dir, {"policy.json": self._policy_file(), "weights.safetensors": state})

    def get_state(self) -> dict[str, Any]:
        """The files of a checkpoint: name -> dict of plain values, or of arrays."""
        return {
            "algorithm.json": {
                "algorithm": type(self).__name__,
                "class": type(self),
                "seed": self.seed,
                "metrics": self.metrics.get_state(),
                "state": self.algorithm_state(),
                "evaluations": self._evaluations,
                "restores": self._restores,
            },
            "config.json": self.config.to_dict(),
            "rng.json": {
                "learner": self._learner_rng.bit_generator.state,
                "inference": self._inference_rng.bit_generator.state,
                # Those of workers that have been stopped are gone; whoever goes on from there draws new actions.
                "workers": [] if self._stopped else self.workers.foreach_worker(_worker_state),
            },
            f"policies/{DEFAULT_POLICY}/policy.json": self._policy_file(),
            f"policies/{DEFAULT_POLICY}/weights.safetensors": self.policy.get_state(),
            "learner.safetensors": self.learner.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes over `get_state`; spaces and network must be the same.

        Environments cannot be saved: they start new episodes, with seeds that the run has not used.

        Raises:
            ValueError: if the network differs.
        """
        algorithm, rng = state["algorithm.json"], state["rng.json"]
        saved_spec, own_spec = state[f"policies/{DEFAULT_POLICY}/policy.json"]["spec"], self.policy.spec.to_json()
        if saved_spec != own_spec:
            differing = [name for name in own_spec if own_spec[name] != saved_spec.get(name)]
            raise ValueError(
                f"the checkpoint's policy differs from this one in {', '.join(differing)}: "
                f"{[saved_spec.get(name) for name in differing]} there, {[own_spec[name] for name in differing]} here. "
                "Use Algorithm.from_checkpoint, or the same settings."
            )
        self.policy.set_state(state[f"policies/{DEFAULT_POLICY}/weights.safetensors"])
        self.learner.set_state(state["learner.safetensors"])
        self.metrics.set_state(algorithm["metrics"])
        self.set_algorithm_state(algorithm["state"])
        self._evaluations = algorithm["evaluations"]
        self._restores = algorithm["restores"] + 1
        self._learner_rng.bit_generator.state = rng["learner"]
        self._inference_rng.bit_generator.state = rng["inference"]
        self.workers.foreach_worker(_restore_worker, json.dumps(rng["workers"]), self._restores)

    def restore(self, checkpoint_path: str | Path) -> None:
        """Goes on from a checkpoint of the same algorithm, spaces and network.

        Raises:
            ValueError: if it is not a whole checkpoint, or of something else.
        """
        state = read_checkpoint(checkpoint_path)
        name = state["algorithm.json"]["algorithm"]
        if name != type(self).__name__:
            raise ValueError(
                f"the checkpoint {checkpoint_path} is of {name}, but this algorithm is {type(self).__name__}; use "
                f"Algorithm.from_checkpoint, or build a {name}Config"
            )
        self.set_state(state)

    def _policy_file(self) -> dict[str, Any]:
        """What acting needs beside the weights."""
        return {
            "spec": self.policy.spec.to_json(),
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "normalize_actions": self.config.normalize_actions,
            "clip_actions": self.config.clip_actions,
        }

    @staticmethod
    def from_checkpoint(checkpoint_path: str | Path, overrides: dict[str, Any] | None = None) -> "Algorithm":
        """Builds the algorithm of a checkpoint and goes on from there; the directory is all it needs.

        Args:
            checkpoint_path: what `save` returned.
            overrides: settings to change, such as {"num_rollout_workers": 0} to only act or evaluate.

        The environment's class or function is imported, or unpickled where it has no name to import: that runs code, so
        give it only checkpoints whose origin you trust. A name that was given to `register_env` must be registered.

        Raises:
            CheckpointError: (a ValueError) if it is missing, cut off, or of something else.
        """
        state = read_checkpoint(checkpoint_path, load_user_code=True)
        saved = state["algorithm.json"]
        config = saved["class"].config_class.from_dict(state["config.json"]).debugging(seed=saved["seed"])
        algorithm = saved["class"](config.update_from_dict(overrides or {}))
        try:
            algorithm.set_state(state)
        except BaseException:
            algorithm.stop()
            raise
        return algorithm

    # ------------------------------------------------------------------ the end

    def stop(self) -> None:
        """Ends the workers. The policy still acts; calling it again does nothing."""
        if not self._stopped:
            self._stopped = True
            self.workers.stop()
            if self._evaluation_workers is not None:
                self._evaluation_workers.stop()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info) -> None:
        self.stop()

    def _make_rollout_settings(self, factory: EnvFactory, spec: PolicySpec) -> RolloutSettings:
        config = self.config
        return RolloutSettings(
            env=factory,
            env_config=dict(config.env_config),
            policy=spec,
            postprocess=self.make_postprocess(),
            num_envs=config.num_envs_per_worker,
            fragment_length=config.get_rollout_fragment_length(),
            seed=self.seed,
            num_workers=config.num_rollout_workers,
            complete_episodes=config.batch_mode == "complete_episodes",
            explore=config.explore,
            exploration=self.make_exploration(),
            normalize_actions=config.normalize_actions,
            clip_actions=config.clip_actions,
            clip_rewards=factory.clips_rewards if config.clip_rewards is None else config.clip_rewards,
            callbacks=_callbacks_class(config),
            sample_timeout_s=config.sample_timeout_s,
            sequences=self.samples_sequences,
            learner=self.make_worker_learner(),
            check_env=not config.disable_env_checking,
        )


def _callbacks_class(config: AlgorithmConfig) -> type[DefaultCallbacks]:
    return config.callbacks_class or DefaultCallbacks


def _set_log_level(name: str) -> None:
    """The default leaves alone what the program has set for the library's loggers."""
    library = logging.getLogger("rllib")
    if name not in ("WARN", "WARNING") or library.level == logging.NOTSET:
        library.setLevel(name)


def _frozen(config_class: type[AlgorithmConfig], config, env) -> AlgorithmConfig:
    """A validated, frozen config of the algorithm's own class."""
    if config is None:
        config = config_class()
    elif not isinstance(config, dict | config_class):
        algorithm = config_class.__name__.removesuffix("Config")
        raise TypeError(
            f"{algorithm} takes a {config_class.__name__} or a dict of settings, but got {config!r:.80}. Use "
            f'{algorithm}(env="CartPole-v1"), or {config_class.__name__}().environment("CartPole-v1").build().'
        )
    elif isinstance(config, dict):
        config = config_class().update_from_dict(config)
    elif env is not None or not config.is_frozen:
        config = config.copy(copy_frozen=False)
    if env is not None:
        config.environment(env)
    if not config.is_frozen:
        config.validate()
        config.freeze()
    return config


def _preprocessed(factory: EnvFactory, config: AlgorithmConfig) -> EnvFactory:
    """What makes the environments that are learned in, where an Atari game's own are not wanted."""
    if config.preprocessor_pref != "deepmind" or not is_atari(factory):
        return factory
    model = {**MODEL_DEFAULTS, **config.model}
    return AtariFactory(
        factory.spec,
        native=config.batch_mode == "truncate_episodes",
        size=model["dim"],
        stack=4 if model["framestack"] else 1,
    )


def _spaces(factory: EnvFactory, config: AlgorithmConfig):
    """Observation and action space, from an environment that is made, stepped and closed here in the driver."""
    if config.disable_env_checking and config.observation_space is not None and config.action_space is not None:
        return config.observation_space, config.action_space
    observation_space, action_space = check_environment(
        factory, config.env_config, num_envs=config.num_envs_per_worker, check=not config.disable_env_checking
    )
    for kind, own in (("observation_space", observation_space), ("action_space", action_space)):
        given = config[kind]
        if given is not None and given != own:
            raise ValueError(
                f"{kind}={given} is not that of the environment, which has {own}. Leave it out of .environment(), or "
                "wrap the environment so that it has the space you want."
            )
    return observation_space, action_space


def _actor_options(config: AlgorithmConfig) -> dict:
    return {
        "num_cpus": config.num_cpus_per_worker,
        "num_gpus": config.num_gpus_per_worker,
        "resources": config.custom_resources_per_worker,
    }


def fault_tolerance(config: AlgorithmConfig) -> FaultTolerance:
    """What the config says about processes that die."""
    return FaultTolerance(
        restart=config.recreate_failed_workers,
        ignore=config.ignore_worker_failures,
        max_restarts=config.max_num_worker_restarts,
        delay_s=config.delay_between_worker_restarts_s,
        max_consecutive_failures=config.num_consecutive_worker_failures_tolerance,
        sample_timeout_s=config.sample_timeout_s,
    )


def _writable(batch: SampleBatch) -> SampleBatch:
    """The batch with copies of those columns that lie read-only in shared memory."""
    columns = {name: column if column.flags.writeable else column.copy() for name, column in batch.items()}
    return SampleBatch(columns, policy_version=batch.policy_version)


def _worker_state(worker) -> list[dict]:
    return worker.get_state()


def _restore_worker(worker, states: str, restores: int) -> None:
    """Each worker picks its own from the states of all, where there are as many environments as there were."""
    worker.start_over(incarnation=restores)
    saved = json.loads(states)
    own = saved[max(worker.worker_index - 1, 0)] if len(saved) == max(worker.settings.num_workers, 1) else []
    if len(own) == worker.settings.num_envs:
        worker.set_state(own)
