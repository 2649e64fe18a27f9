"""Generators as tasks and methods: what their callers iterate over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, NoReturn, TypeVar

from ..calls.options import DYNAMIC, STREAMING
from ..engines.base import Stream
from ..errors import GetTimeoutError
from .refs import ObjectRef, until_done

T = TypeVar("T")


class ObjectRefGenerator(Iterator[ObjectRef[T]], AsyncIterator[ObjectRef[T]]):
    """The results of a generator, as references, in the order in which it yields them; what `.remote()` gives for it.

    `next` and `for` wait until the next value is there; `async for` does the same in a coroutine. Several threads or
    coroutines may share it: each value goes to one of them. An error of the generator is the value of the last
    reference. `wait` and `cancel` take it, too. It stays in the process that made the call; its references can be
    passed on. When it is dropped, the generator is closed at its next `yield`.
    """

    def __init__(self, stream: Stream):
        self._stream = stream

    def __iter__(self) -> ObjectRefGenerator[T]:
        return self

    def __next__(self) -> ObjectRef[T]:
        return self.next(None)

    def next(self, timeout: float | None = None) -> ObjectRef[T]:
        """The same as `next(generator)`, for at most `timeout` seconds.

        Raises:
            StopIteration: the generator has ended.
            GetTimeoutError: its next value was not there in time.
        """
        while True:
            ref = self._stream.next_reference()
            if not ref.engine.wait([ref], 1, timeout)[0]:
                raise GetTimeoutError(f"the next value of the generator was not there in {timeout:g} s")
            taken = self._stream.take()
            if taken is not None:
                return taken
            if self._stream.is_finished:  # else another thread has taken the value
                raise StopIteration

    def __aiter__(self) -> ObjectRefGenerator[T]:
        return self

    async def __anext__(self) -> ObjectRef[T]:
        while True:
            ref = self._stream.next_reference()
            await until_done(ref, ref.engine)
            taken = self._stream.take()
            if taken is not None:
                return taken
            if self._stream.is_finished:  # else another coroutine has taken the value
                raise StopAsyncIteration

    def completed(self) -> ObjectRef[None]:
        """A reference that is done when the generator has ended: its value is None, or the error."""
        return self._stream.completed

    def next_ready(self) -> bool:
        """Whether `next` would return at once."""
        ref = self._stream.next_reference()
        return bool(ref.engine.wait([ref], 1, 0)[0]) and not self.is_finished()

    def is_finished(self) -> bool:
        """Whether the generator has ended and all its references were taken."""
        return self._stream.is_finished

    def close(self) -> None:
        """Closes the generator at its next `yield`; harmless when it has ended."""
        self._stream.close()

    def __del__(self):
        if hasattr(self, "_stream"):
            self._stream.close()

    def __repr__(self):
        return f"ObjectRefGenerator({self._stream.completed.hex()})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} stays in the process that made the call; pass its references on, as list(generator)")


class DynamicObjectRefGenerator(Generic[T]):
    """The value of a task with num_returns="dynamic": the references of what its generator has yielded, all there."""

    def __init__(self, refs: list[ObjectRef[T]]):
        self._refs = refs

    def __iter__(self) -> Iterator[ObjectRef[T]]:
        return iter(self._refs)

    def __len__(self):
        return len(self._refs)

    def __repr__(self):
        return f"DynamicObjectRefGenerator({len(self._refs)} references)"


def returned(results: list, returns: int) -> Any:
    """Result of `.remote()` where it is not one reference.

    Args:
        results: of the engine.
        returns: see options.return_code.
    """
    if returns >= STREAMING:
        return ObjectRefGenerator(results[0])
    if returns == DYNAMIC:
        return results[0]
    return results or None
