"""A ring of train batches that are each learned from several times, in turn with the others."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BatchRing(Generic[T]):
    """Hands out the batch to learn from next, and fetches a new one in the place of one that is used up.

    With one place, a batch is used as often as it may be, then the next one comes. With more, the uses of a batch are
    as many updates apart as there are places. The first batches are used less often, one time more each, so that later
    on they are not all replaced at once (as in RLlib's learner thread).

    Args:
        num_places: batches in the ring.
        num_uses: how often each of them is used.
    """

    def __init__(self, num_places: int = 1, num_uses: int = 1):
        self._num_uses = num_uses
        self._batches: list[T | None] = [None] * num_places
        self._uses_left = [0] * num_places
        self._uses_of_next = num_uses if num_places == 1 else 1
        self._place = 0

    def next(self, fetch: Callable[[], T]) -> tuple[T, int]:
        """The batch whose turn it is, and how many times to use it before asking again.

        Args:
            fetch: returns a new batch; called where one is needed.
        """
        place = self._place
        if not self._uses_left[place]:
            self._batches[place] = None  # its memory is free for the one that is fetched
            self._batches[place], self._uses_left[place] = fetch(), self._uses_of_next
            self._uses_of_next = min(self._uses_of_next + 1, self._num_uses)
        uses = self._uses_left[place] if len(self._batches) == 1 else 1
        self._uses_left[place] -= uses
        self._place = (place + 1) % len(self._batches)
        return self._batches[place], uses

    def clear(self) -> None:
        """Forgets all batches; the next ones are new."""
        self.__init__(len(self._batches), self._num_uses)
