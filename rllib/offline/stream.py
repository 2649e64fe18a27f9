"""Recorded steps from a reader that has no end: they are taken batch by batch."""

from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import Space

from rllib.offline.dataset import Dataset
from rllib.sample_batch import DEFAULT_POLICY


class RecordedStream:
    """The batches of a reader, each as a dataset of episodes or parts of them.

    Args:
        make_reader: makes the reader; called again where it says by StopIteration that it has ended.
        options: of reading, as for `Dataset.from_columns`.
        observation_space, action_space: of the steps; None: those of the first batch, which is read for it.

    Attributes:
        rows: steps that were read so far.

    Raises:
        ValueError: if a batch cannot be right; see `Dataset.from_records`.
    """

    def __init__(
        self,
        make_reader: Callable[[], Any],
        options: Mapping[str, Any],
        observation_space: Space | None,
        action_space: Space | None,
    ):
        self.rows = 0
        self._make_reader, self._options = make_reader, options
        self._reader = make_reader()
        self._first: Dataset | None = None
        self.observation_space, self.action_space = observation_space, action_space
        if observation_space is None or action_space is None:
            self._first = self.next()
            self.rows = 0
            self.observation_space, self.action_space = self._first.observation_space, self._first.action_space

    def next(self) -> Dataset:
        """The next batch.

        Raises:
            ValueError: if the reader has nothing at all, or a batch cannot be right.
        """
        dataset, self._first = self._first, None
        if dataset is None:
            dataset = _dataset(self._next_batch(), self._options, self.observation_space, self.action_space)
        self.rows += len(dataset)
        return dataset

    def _next_batch(self) -> Any:
        try:
            return self._reader.next()
        except StopIteration:
            self._reader = self._make_reader()
        try:
            return self._reader.next()
        except StopIteration:
            raise ValueError(f"the reader {type(self._reader).__name__} of input_ has no batch") from None


def _dataset(batch: Any, options: Mapping[str, Any], observation_space, action_space) -> Dataset:
    if isinstance(batch, Dataset):
        return batch
    policies = getattr(batch, "policy_batches", None)
    if policies is not None:
        name = options.get("policy") or DEFAULT_POLICY
        if name not in policies and len(policies) > 1:
            raise ValueError(
                f"a batch of the reader has the policies {', '.join(map(repr, sorted(policies)))}. input_config="
                "{'policy': ...} chooses."
            )
        batch = policies.get(name) or next(iter(policies.values()))
    spaces = {"observation_space": observation_space, "action_space": action_space}
    return Dataset.from_columns(batch, source="a batch of the reader", **options, **spaces)
