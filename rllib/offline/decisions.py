"""Choices (units, flags) made on the first chunk of a data set, and reused for later ones."""

import dataclasses

import numpy as np
from gymnasium import Space, spaces

from rllib import sample_batch as sb
from rllib.offline import values
from rllib.offline.assembly import assembled
from rllib.offline.dataset import Dataset
from rllib.offline.options import ReadOptions
from rllib.offline.records import DONES, UNSAID, Records
from rllib.offline.writing.metadata import ACTIONS_NORMALIZED

_ROUNDING = 1e-6


class Decisions:
    """Datasets of pieces, of which the first decides what a dataset in memory decides by all of its rows.

    Args:
        options: options of reading.
        given: observation_space and action_space, if they are known.

    Attributes:
        options, given: of reading the next piece.
        is_first: whether there was no piece yet.
    """

    def __init__(self, options: ReadOptions, given: dict[str, Space | None]):
        self.options, self.given, self.is_first = options, given, True
        # Whether actions of which nothing is said are normalized; None: no piece had such actions.
        self._unsaid: bool | None = None

    def dataset(self, records: Records) -> Dataset:
        """The dataset of a piece, whose columns have our names.

        Raises:
            ValueError: as `Dataset.from_records`; and if its actions cannot be in the units of the first piece.
        """
        if self._unsaid is not None:
            records = self._with_units(records)
        dataset = Dataset.from_records(records, self.options, **self.given)
        if self._unsaid is None:
            self._unsaid = self._decided_units(records, dataset.action_space)
        if not self.is_first:
            return dataset
        self.is_first = False
        needs_limit = DONES in records.columns and self.options.dones == "auto"
        if needs_limit and self.options.max_episode_steps is None:
            limit = assembled(records, self.options).time_limit
            self.options = dataclasses.replace(self.options, max_episode_steps=limit)
        return dataset

    def _decided_units(self, records: Records, space: Space) -> bool | None:
        """The units of the piece, where nothing says them; None where something does, or there are no units."""
        if not isinstance(space, spaces.Box) or sb.ACTIONS not in records.columns:
            return None
        if (values.said_units(records, self.options) != UNSAID).any():
            return None
        actions = records.columns[sb.ACTIONS].reshape(len(records), *space.shape)
        return values.seem_normalized(records, actions, space)

    def _with_units(self, records: Records) -> Records:
        """The records with the units of earlier ones where nothing is said."""
        said = values.said_units(records, self.options)
        is_unsaid = said == UNSAID
        if not is_unsaid.any():
            return records
        largest = np.abs(records.columns[sb.ACTIONS][is_unsaid]).max(initial=0)
        if self._unsaid and largest > 1 + _ROUNDING:
            raise ValueError(
                f"{records.source}: earlier rows had all actions within [-1, 1], and were taken as normalized, but "
                f"there is {largest:.4g}. Set actions_in_input_normalized to say what they are."
            )
        units = {ACTIONS_NORMALIZED: np.where(is_unsaid, self._unsaid, said == 1)}
        return dataclasses.replace(records, columns=records.columns | units)
