"""Replay of IMPALA: old fragments mixed with new ones (arXiv:1802.01561), and repeated use of train batches."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")


class FragmentReplay(Generic[T]):
    """Keeps the newest fragments and replays some with each new one, in a fixed proportion.

    Args:
        proportion: replayed fragments per new one, spread as evenly as possible; 0 replays none.
        num_slots: number of fragments kept.
        rng: chooses among them, each equally likely.
    """

    def __init__(self, proportion: float, num_slots: int, rng: np.random.Generator):
        self._proportion = proportion
        self._slots: deque[T] = deque(maxlen=num_slots)
        self._rng = rng
        self._owed = 0.0

    def __len__(self):
        return len(self._slots)

    def mixed(self, fragment: T) -> list[T]:
        """The new fragment, then the replayed ones. The new one can be replayed from the next call on."""
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


class BatchRing(Generic[T]):
    """A ring of train batches, each used several times in turn with the others.

    With one slot, a batch is used as often as it may be, then the next one comes. With more, the uses of a batch are
    as many updates apart as there are slots. The first batches are used less often, one time more each, so that later
    on they are not all replaced at once (as in RLlib's learner thread).

    Args:
        num_slots: batches in the ring.
        num_uses: how often each of them is used.
    """

    def __init__(self, num_slots: int = 1, num_uses: int = 1):
        self._num_uses = num_uses
        self._batches: list[T | None] = [None] * num_slots
        self._uses_left = [0] * num_slots
        self._uses_of_next = num_uses if num_slots == 1 else 1
        self._slot = 0

    @property
    def is_used_up(self) -> bool:
        """Whether the next call fetches a batch."""
        return not self._uses_left[self._slot]

    def next(self, fetch: Callable[[], T]) -> tuple[T, int]:
        """The next batch to learn from, and the number of times to use it before the next call.

        Args:
            fetch: returns a new batch; called if the next slot is used up.
        """
        slot = self._slot
        if not self._uses_left[slot]:
            self._batches[slot] = None  # its memory is free for the one that is fetched
            self._batches[slot], self._uses_left[slot] = fetch(), self._uses_of_next
            self._uses_of_next = min(self._uses_of_next + 1, self._num_uses)
        uses = self._uses_left[slot] if len(self._batches) == 1 else 1
        self._uses_left[slot] -= uses
        self._slot = (slot + 1) % len(self._batches)
        return self._batches[slot], uses

    def clear(self) -> None:
        """Forgets all batches; the next ones are new."""
        self.__init__(len(self._batches), self._num_uses)
