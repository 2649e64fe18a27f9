"""The evaluations of a run: by this process, or by workers that do nothing else."""

from rllib.algorithms.algorithm_config import AlgorithmConfig
from rllib.algorithms.worker_settings import actor_options, fault_tolerance
from rllib.env.episodes import Episode
from rllib.evaluation.evaluation_worker import EvaluationWorker
from rllib.evaluation.evaluator import play_episodes
from rllib.evaluation.settings import RolloutSettings
from rllib.evaluation.worker_set import WorkerSet
from rllib.policy import Policy


class Evaluations:
    """Plays whole episodes in fresh environments, on seeds that neither training nor another evaluation uses.

    Args:
        config: of the algorithm.
        settings: which environments.
        policy: what is evaluated.

    Attributes:
        count: evaluations so far.
        workers: who plays, from the first evaluation on; None where this process does.
    """

    def __init__(self, config: AlgorithmConfig, settings: RolloutSettings, policy: Policy):
        self._config, self._settings, self._policy = config, settings, policy
        self.count = 0
        self.workers: WorkerSet | None = None
        self._stopped = False

    def play(self, num_episodes: int, explore: bool, exploration: dict[str, float]) -> list[Episode]:
        """One evaluation.

        Args:
            num_episodes: how many to play.
            explore: sample actions instead of taking the most likely ones.
            exploration: as workers get it with a request to sample.
        """
        self.count += 1
        if not self._config.evaluation_num_workers or self._stopped:
            return play_episodes(self._policy, self._settings, num_episodes, self.count, explore=explore)
        if self.workers is None:
            self.workers = WorkerSet(
                self._settings,
                self._config.evaluation_num_workers,
                actor_options(self._config),
                fault_tolerance(self._config),
                worker_class=EvaluationWorker,
            )
        filter_state = self._policy.filter.get_state() if self._policy.filters_observations else None
        return self.workers.play_episodes(
            self._policy.weights, filter_state, num_episodes, self.count, explore, exploration
        )

    @property
    def num_healthy_workers(self) -> int:
        """Of its own."""
        return self.workers.num_healthy_workers if self.workers is not None else 0

    def stop(self) -> None:
        """Ends its workers; what is evaluated afterwards, this process plays."""
        self._stopped = True
        if self.workers is not None:
            self.workers.stop()
