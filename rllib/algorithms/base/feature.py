"""Optional parts of a run that are neither a policy's nor a worker's, such as a limit on costs."""

from collections.abc import Mapping
from typing import Any, ClassVar

from rllib.evaluation.sampling_worker import SampleReport
from rllib.sample_batch import MultiAgentBatch, SampleBatch


class Feature:
    """An optional part of a run, which an algorithm names in `make_features`. This one does nothing.

    It sees fragments that are finished. What changes rewards or adds columns is a postprocess
    (`Algorithm.make_postprocess`), and what changes the loss an auxiliary loss (`auxiliary_losses`).

    No name of a feature is that of a number of trainees, and none of its statistics that of one of the policies'.
    """

    # As `Trainee.first_values`.
    first_values: ClassVar[tuple[str, ...]] = ()

    def take_in(self, report: SampleReport, batch: SampleBatch | MultiAgentBatch | None) -> None:
        """Called with the report of each fragment, as it arrives.

        Args:
            report: what the worker counts, with the episodes that have ended.
            batch: the fragment's rows; None where the worker learns from them itself (A3C).
        """

    def on_sample(self, acts_by_policy: bool) -> None:
        """Called after `Algorithm.sample`, before the updates that follow; asynchronous algorithms do not call it.

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

    def begin_again(self, changed: Mapping[str, Any]) -> None:
        """As `Trainee.begin_again`."""
