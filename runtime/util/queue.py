"""A queue that tasks, actors and the driver share, with the methods of `queue.Queue`."""

from __future__ import annotations

import asyncio
import math
import queue
import time
from collections import deque

from ..api import check_timeout, get, kill, remote, wait
from ..remote.actors import ActorHandle

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.05


class Empty(queue.Empty):
    """There are not as many items as were asked for."""


class Full(queue.Full):
    """There is no room for the items."""


class Queue:
    """First in, first out, held by an actor; it can be passed to tasks and actors.

    An actor runs one call at a time, so none waits inside of it: `put` and `get` ask again, after pauses that grow from
    1 to 50 ms. Of several that wait for items, any may be first.

    Args:
        maxsize: largest number of items; 0 or less: no limit.
        actor_options: of its actor, which by default holds no CPU and needs none to start.
    """

    def __init__(self, maxsize: int = 0, actor_options: dict | None = None):
        self.maxsize = maxsize
        self._actor = remote(_Items).options(**{"num_cpus": 0, **(actor_options or {})}).remote(maxsize)

        self._is_shut = False

    @property
    def actor(self) -> ActorHandle | None:
        """The actor that holds the items; None after `shutdown`, when all else raises ActorDiedError."""
        return None if self._is_shut else self._actor

    def __len__(self):
        return self.size()

    def size(self) -> int:
        """Number of items."""
        return get(self._actor.size.remote())

    qsize = size

    def empty(self) -> bool:
        """Whether there is no item."""
        return self.size() == 0

    def full(self) -> bool:
        """Whether there is room for no item."""
        return 0 < self.maxsize <= self.size()

    def put(self, item, block: bool = True, timeout: float | None = None) -> None:
        """Adds an item.

        Args:
            item: can be pickled.
            block: wait for room.
            timeout: seconds to wait at most; None: as long as it takes.

        Raises:
            Full: there is no room, at once or in time.
        """
        _repeat(lambda: get(self._actor.put.remote([item])), _pauses(self._full(1), block, timeout))

    def get(self, block: bool = True, timeout: float | None = None):
        """Takes the oldest item.

        Args:
            block: wait for one.
            timeout: seconds to wait at most; None: as long as it takes.

        Raises:
            Empty: there is none, at once or in time.
        """
        return _repeat(lambda: self._take(1), _pauses(_empty(1), block, timeout))[0]

    def put_nowait(self, item) -> None:
        """`put` without waiting."""
        self.put(item, block=False)

    def get_nowait(self):
        """`get` without waiting."""
        return self.get(block=False)

    def put_nowait_batch(self, items) -> None:
        """Adds all of the items, or none if there is no room for all (Full)."""
        items = list(items)
        _repeat(lambda: get(self._actor.put.remote(items)), _pauses(self._full(len(items)), False, None))

    def get_nowait_batch(self, num_items: int) -> list:
        """Takes this many items, or none if there are fewer (Empty)."""
        return _repeat(lambda: self._take(num_items), _pauses(_empty(num_items), False, None))

    def _take(self, count):
        taken = self._actor.get.remote(count)
        try:
            return get(taken)
        except KeyboardInterrupt:
            self._actor.give_back.remote(taken)
            raise

    def _full(self, count):
        return Full(f"no room for {count} more in a queue of at most {self.maxsize} items")

    async def put_async(self, item, block: bool = True, timeout: float | None = None) -> None:
        """`put` for coroutines."""
        pauses = _pauses(self._full(1), block, timeout)
        while await self._actor.put.remote([item]) is None:
            await asyncio.sleep(next(pauses))

    async def get_async(self, block: bool = True, timeout: float | None = None):
        """`get` for coroutines. One that is cancelled takes no item."""
        pauses = _pauses(_empty(1), block, timeout)
        while True:
            taken = self._actor.get.remote(1)
            try:
                items = await taken
            except asyncio.CancelledError:
                self._actor.give_back.remote(taken)
                raise
            if items is not None:
                return items[0]
            await asyncio.sleep(next(pauses))

    def shutdown(self, force: bool = False, grace_period_s: float = 5) -> None:
        """Ends the actor, with the items in it.

        Args:
            force: now, instead of after the calls it has.
            grace_period_s: how long these may take.
        """
        if not force:
            wait([self._actor.__ray_terminate__.remote()], timeout=grace_period_s)
        kill(self._actor)
        self._is_shut = True


class _Items:
    """The actor. `put` and `get` return None where it cannot be done now."""

    def __init__(self, maxsize):
        self._items, self._maxsize = deque(), maxsize

    def size(self):
        return len(self._items)

    def put(self, items):
        if 0 < self._maxsize < len(self._items) + len(items):
            return None
        self._items.extend(items)
        return True

    def get(self, count):
        return [self._items.popleft() for _ in range(count)] if count <= len(self._items) else None

    def give_back(self, items):
        # Of a `get` whose caller was interrupted: they would be lost.
        self._items.extendleft(reversed(items or ()))


def _repeat(attempt, pauses):
    """The first result of `attempt` that is not None."""
    while (result := attempt()) is None:
        time.sleep(next(pauses))
    return result


def _empty(count):
    return Empty("the queue is empty" if count == 1 else f"the queue has fewer than {count} items")


def _pauses(error, block, timeout):
    """Lengths of the pauses between attempts; `next` raises the error when there is no time for another one."""
    if timeout is not None:
        check_timeout(timeout)
    return _lengths(error, block, math.inf if timeout is None else time.monotonic() + timeout)


def _lengths(error, block, deadline):
    pause = SHORTEST_PAUSE_S
    while block and (left := deadline - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(2 * pause, LONGEST_PAUSE_S)
    raise error
