"""Recorded steps from a reader that has no end: they are taken batch by batch."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn

from gymnasium import Space

from rllib.offline.dataset import Dataset, records_of_columns
from rllib.offline.decisions import Decisions
from rllib.offline.formats import is_table
from rllib.offline.options import ReadOptions
from rllib.offline.records import renamed
from rllib.sample_batch import DEFAULT_POLICY


@dataclasses.dataclass(frozen=True)
class Unread:
    """Instead of recorded data, for an algorithm that acts and does not learn: nothing is read.

    Attributes:
        observation_space, action_space: spaces of the data.
        rows: steps that were read, 0.
    """

    observation_space: Space
    action_space: Space
    rows: ClassVar[int] = 0

    def next(self) -> NoReturn:
        """Raises a RuntimeError."""
        raise RuntimeError("this algorithm was restored to act, without its recorded data, and cannot learn")


class RecordedStream:
    """The batches of a reader, each as a dataset of episodes or parts of them.

    Args:
        make_reader: makes the reader; called again where it says by StopIteration that it has ended.
        options: options of reading, as for `Dataset.from_columns`.
        observation_space, action_space: spaces of the steps; None: those of the first batch, which is read for it.

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
        self._make_reader, self._policy = make_reader, options.get("policy")
        chosen = ReadOptions(**options)
        given = {"observation_space": observation_space, "action_space": action_space}
        self._schema = chosen.schema
        self._decisions = Decisions(dataclasses.replace(chosen, schema=None), given)
        self._reader = make_reader()
        self._first: Dataset | None = None
        self.observation_space, self.action_space = observation_space, action_space
        if observation_space is None or action_space is None:
            self._first = self.next()
            self.rows = 0
            self.observation_space, self.action_space = self._first.observation_space, self._first.action_space
            self._decisions.given = {"observation_space": self.observation_space, "action_space": self.action_space}

    def next(self) -> Dataset:
        """The next batch.

        Raises:
            ValueError: if the reader has nothing at all, or a batch cannot be right.
        """
        dataset, self._first = self._first, None
        if dataset is None:
            dataset = self._dataset(self._next_batch())
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

    def _dataset(self, batch: Any) -> Dataset:
        """A batch; the first one that is no Dataset decides what its rows do not say, such as the units of actions."""
        if isinstance(batch, Dataset):
            batch = batch.with_bounds_of(self.observation_space)
            for name in ("observation_space", "action_space"):
                expected, found = getattr(self, name), getattr(batch, name)
                if expected is not None and found != expected:
                    raise ValueError(f"a Dataset of the reader has the {name} {found}, but it is to be {expected}")
            return batch
        columns = _of_policy(batch, self._policy)
        if not (isinstance(columns, Mapping) or is_table(columns)):
            raise TypeError(
                f"next() of the reader returned {batch!r:.60}, but it is to return a batch: arrays by name, a table or "
                "a Dataset"
            )
        return self._decisions.dataset(renamed(records_of_columns(columns, "a batch of the reader"), self._schema))


def _of_policy(batch: Any, policy: str | None) -> Any:
    """The columns of a batch; of one with several policies, those of the policy."""
    policies = getattr(batch, "policy_batches", None)
    if policies is None:
        return batch
    name = policy or DEFAULT_POLICY
    if name not in policies and len(policies) > 1:
        raise ValueError(
            f"a batch of the reader has the policies {', '.join(map(repr, sorted(policies)))}. input_config="
            "{'policy': ...} chooses."
        )
    return policies.get(name) or next(iter(policies.values()))
