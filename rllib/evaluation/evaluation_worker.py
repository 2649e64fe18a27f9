"""Plays whole episodes for evaluation; it makes no environments but those that it plays in."""

from collections.abc import Callable

import numpy as np

from rllib.env.episodes import Episode
from rllib.evaluation.evaluator import Duration, play_episodes
from rllib.evaluation.settings import RolloutSettings
from rllib.evaluation.worker import Worker
from rllib.metrics import DEFAULT_POLICY
from rllib.policy import Policy, Snapshot


class EvaluationWorker(Worker):
    """A policy that plays, for a WorkerSet that only evaluates. The environments live as long as one evaluation.

    Args:
        settings: which environments and policy.
        worker_index: 0 for the local worker, 1... for the remote ones.
        incarnation: as for RolloutWorker; evaluations have seeds of their own, whoever plays them.
        allocate: not needed here, what comes back is small.
    """

    kind = "evaluation worker"
    if_silent = (
        "its episodes are played to their end; a smaller evaluation_duration or a time limit (max_episode_steps) makes "
        "an evaluation shorter"
    )

    def __init__(
        self,
        settings: RolloutSettings,
        worker_index: int = 0,
        incarnation: int = 0,
        allocate: Callable[..., np.ndarray] = np.empty,
    ):
        super().__init__(settings, worker_index, Policy(settings.policy))
        self.callbacks = settings.callbacks()
        self.callbacks.on_create_policy(policy_id=DEFAULT_POLICY, policy=self.policy)

    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Plays as the snapshot's policy from now on."""
        self.policy.load_snapshot(snapshot)
        self.policy.exploration = self.settings.exploration.numbers(snapshot.timesteps)

    def play_episodes(self, duration: Duration, round_index: int, explore: bool = False) -> list[Episode]:
        """Whole episodes in fresh environments.

        Args:
            duration: how long.
            round_index: which evaluation this is; each has its own seeds.
            explore: sample the actions instead of taking the most likely ones.
        """
        return play_episodes(
            self.policy,
            self.settings,
            duration,
            round_index,
            worker_index=self.worker_index,
            explore=explore,
            callbacks=self.callbacks,
        )

    def close(self) -> None:
        """Nothing is open between evaluations."""
