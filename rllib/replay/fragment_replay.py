"""Fragments that are learned from again beside new ones, in a fixed proportion (IMPALA's replay, arXiv:1802.01561)."""

from collections import deque

import numpy as np

from rllib.sample_batch import SampleBatch


class FragmentReplay:
    """The newest fragments, of which some come again beside each new one.

    Args:
        proportion: replayed fragments per new one, on average and as evenly as can be; 0 replays none.
        num_slots: fragments that are kept.
        rng: chooses among them, each equally likely.
    """

    def __init__(self, proportion: float, num_slots: int, rng: np.random.Generator):
        self._proportion = proportion
        self._slots: deque[SampleBatch] = deque(maxlen=num_slots)
        self._rng = rng
        self._owed = 0.0

    def __len__(self):
        return len(self._slots)

    def mixed(self, fragment: SampleBatch) -> list[SampleBatch]:
        """The new fragment, then those to learn from again. It is among those that may come again from the next on."""
        if not self._proportion:
            return [fragment]
        mixed = [fragment]
        if self._slots:
            self._owed += self._proportion
            while self._owed >= 1:
                self._owed -= 1
                mixed.append(self._slots[self._rng.integers(len(self._slots))])
        self._slots.append(fragment)
        return mixed

    def clear(self) -> None:
        """Forgets all fragments."""
        self._slots.clear()
        self._owed = 0.0
