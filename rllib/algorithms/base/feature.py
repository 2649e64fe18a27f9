"""Optional parts of a run that are neither a policy's nor a worker's, such as a limit on costs."""

from typing import Any

from rllib.evaluation.rollout_worker import SampleReport


class Feature:
    """An optional part of a run, which an algorithm names in `make_features`. This one does nothing."""

    def take_in(self, report: SampleReport) -> None:
        """Called with the report of each fragment, as it arrives."""

    def on_sample(self, acts_by_policy: bool) -> None:
        """Called after `Algorithm.sample`, before the updates that follow.

        Args:
            acts_by_policy: whether the policy has acted, and no random actions before learning started.
        """

    def stats(self) -> dict[str, float]:
        """Statistics that join those of each policy in training."""
        return {}

    def get_state(self) -> dict[str, Any]:
        """JSON-able state, for checkpoints."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes `get_state` back."""
