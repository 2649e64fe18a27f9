"""The evaluations of a run: by this process, or by workers that do nothing else."""

from collections.abc import Callable

from rllib.algorithms.algorithm_config import AlgorithmConfig
from rllib.algorithms.from_config import actor_options, fault_tolerance
from rllib.env.episodes import Episode
from rllib.evaluation.evaluator import Duration, EvaluationWorker
from rllib.evaluation.settings import RolloutSettings
from rllib.evaluation.worker_set import WorkerSet
from rllib.policy import Policy, Snapshot


class Evaluations:
    """Plays whole episodes in fresh environments, on seeds that neither training nor another evaluation uses.

    Args:
        config: of the evaluation: that of the algorithm with evaluation_config applied.
        settings: which environments.
        policy: what is evaluated; it acts itself where no evaluation workers do.

    Attributes:
        count: evaluations so far.
        workers: the processes that play, from the first evaluation on; None where this process does.
    """

    def __init__(self, config: AlgorithmConfig, settings: RolloutSettings, policy: Policy):
        self._config, self._settings = config, settings
        self.count = 0
        self.workers: WorkerSet | None = None
        self._stopped = False
        self._local = EvaluationWorker(settings, policy=policy)

    def start(self, snapshot: Snapshot, duration: Duration, explore: bool) -> Callable[[], list[Episode]]:
        """Begins one evaluation of the policy. Without evaluation workers it is played here and now.

        Args:
            snapshot: of the policy, as it is now.
            duration: how long to play.
            explore: sample actions instead of taking the most likely ones.

        Returns:
            a function that waits for the end and returns the episodes.

        Raises:
            RuntimeError: if there is no environment.
        """
        if self._settings.env is None:
            raise RuntimeError(
                'this algorithm has no environment to evaluate in. Build it with .environment("CartPole-v1"), or '
                'with .evaluation(evaluation_config={"env": "CartPole-v1"}).'
            )
        self.count += 1
        if not self._config.evaluation_num_workers or self._stopped:
            self._local.policy.exploration = self._settings.exploration.numbers(snapshot.timesteps)
            episodes = self._local.play_episodes(duration, self.count, explore)
            return lambda: episodes
        if self.workers is None:
            self.workers = WorkerSet(
                self._settings,
                self._config.evaluation_num_workers,
                actor_options(self._config),
                fault_tolerance(self._config),
                worker_class=EvaluationWorker,
            )
        return self.workers.start_episodes(snapshot, duration, self.count, explore)

    @property
    def num_environments(self) -> int:
        """Environments that play at the same time, where the duration does not say otherwise."""
        return max(self._config.evaluation_num_workers, 1) * self._config.num_envs_per_worker

    @property
    def num_healthy_workers(self) -> int:
        """Evaluation workers that are there."""
        return self.workers.num_healthy_workers if self.workers is not None else 0

    def stop(self) -> None:
        """Ends its workers; what is evaluated afterwards, this process plays."""
        self._stopped = True
        if self.workers is not None:
            self.workers.stop()
