"""Batches from single steps, for programs that write recorded data themselves."""

from typing import Any

import numpy as np

from rllib.sample_batch import SampleBatch


class SampleBatchBuilder:
    """Builder of batches from the values of single steps.

    For example:

        builder, writer = SampleBatchBuilder(), JsonWriter("demo-out")
        ...
        builder.add_values(obs=obs, actions=action, rewards=reward, eps_id=episode, t=t, ...)
        ...
        writer.write(builder.build_and_reset())

    Attributes:
        count: number of steps since the last batch.
    """

    def __init__(self):
        self.count = 0
        self._values: dict[str, list] = {}

    def add_values(self, **values: Any) -> None:
        """Adds the values of one step, by the names of their columns.

        Raises:
            ValueError: if the names differ from those of the steps before.
        """
        if self.count and values.keys() != self._values.keys():
            raise ValueError(
                f"all steps of a batch need the same columns: {sorted(self._values)} until now, but {sorted(values)} "
                f"in step {self.count}"
            )
        for name, value in values.items():
            self._values.setdefault(name, []).append(value)
        self.count += 1

    def add_batch(self, batch: SampleBatch) -> None:
        """Adds the steps of a batch."""
        for row in zip(*batch.values()):
            self.add_values(**dict(zip(batch, row)))

    def build_and_reset(self) -> SampleBatch:
        """The batch of the steps since the last one; values that are no numbers, such as infos, become objects.

        Raises:
            ValueError: if values of a column have different shapes.
        """
        columns = {name: _column(name, values) for name, values in self._values.items()}
        self._values, self.count = {}, 0
        return SampleBatch(columns)


def _column(name: str, values: list) -> np.ndarray:
    if any(isinstance(value, dict) for value in values):
        column = np.empty(len(values), object)
        column[:] = values
        return column
    try:
        column = np.asarray(values)
    except ValueError:
        raise ValueError(f"the values of {name!r} have different shapes") from None
    return column.astype(np.float32) if column.dtype == np.float64 else column
