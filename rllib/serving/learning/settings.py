"""Settings of a policy server that learns."""

from pathlib import Path
from typing import Any

import msgspec


class LearningSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the learner behind a policy server.

    Attributes:
        directory: directory of the checkpoints: checkpoint_N is the N-th promoted policy, `candidate` is on trial.
        overrides: settings of the checkpoint's algorithm to change.
        canary_share: share of the episodes that a candidate acts in, above 0 and at most 0.5.
        trial_episodes: least number of episodes of each policy before a candidate is evaluated.
        margin: how much worse a candidate may be, in standard deviations of the served policy's earlier returns.
        offer_every: steps learned from before the next candidate is offered.
        block_episodes: episodes of the served policy that vouch for the rewards of a period.
        reward_limit: rewards are clipped to [-limit, limit]; None: they are not clipped.
        reward_timeout_s: seconds after which a decision without a reward, or an episode without a decision, is over.
        max_episode_steps: number of decisions after which an episode is cut, and its return bootstrapped.
        key: key of the hash that chooses the episodes of a candidate.
        whole_from: time on the machine's monotonic clock (seconds) before which a newly seen episode may have begun
            with an earlier server, so that its return is not known.
    """

    directory: str
    overrides: dict[str, Any] = {}
    canary_share: float = 0.1
    trial_episodes: int = 20
    margin: float = 0.25
    offer_every: int = 1000
    block_episodes: int = 20
    reward_limit: float | None = None
    reward_timeout_s: float = 600.0
    max_episode_steps: int = 1000
    key: bytes = b""
    whole_from: float = 0.0

    @property
    def path(self) -> Path:
        return Path(self.directory)

    @property
    def candidate(self) -> Path:
        """Path of the checkpoint that is on trial."""
        return self.path / "candidate"
