"""`as_completed` and `map_unordered` of ray.util: values of tasks in the order in which they are done."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import runtime


def as_completed(
    refs: Iterable[Any],
    *,
    chunk_size: int = 10,
    yield_obj_refs: bool = False,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> Iterator[Any]:
    """Yields the values of references as they are done.

    Args:
        refs: different references.
        chunk_size: without effect beyond its check; each value is yielded when it is there.
        yield_obj_refs: yield the references instead.
        timeout, fetch_local: arguments of `wait`, which Ray repeats until all are done; without effect.

    Raises:
        ValueError: if chunk_size is below 1.
    """
    _check(chunk_size)
    done = runtime.as_completed(refs)
    return iter(done) if yield_obj_refs else map(runtime.get, done)


def map_unordered(
    fn: Any,
    items: Iterable[Any],
    *,
    backpressure_size: int | None = 100,
    chunk_size: int = 10,
    yield_obj_refs: bool = False,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> Iterator[Any]:
    """Yields the values of a remote function for each item, as they are done.

    Args:
        fn: the remote function.
        items: its arguments.
        backpressure_size: tasks that run or wait at a time; None: all.
        chunk_size, yield_obj_refs, timeout, fetch_local: see `as_completed`.

    Raises:
        ValueError: if chunk_size is below 1, or backpressure_size below chunk_size.
    """
    _check(chunk_size)
    if backpressure_size is not None and backpressure_size < chunk_size:
        raise ValueError(f"backpressure_size={backpressure_size} must be at least chunk_size={chunk_size}, or None")
    return _mapped(fn, iter(items), backpressure_size, runtime.get if not yield_obj_refs else lambda ref: ref)


def _mapped(fn: Any, items: Iterator[Any], at_a_time: int | None, given: Any) -> Iterator[Any]:
    pending = [fn.remote(item) for item in itertools.islice(items, at_a_time)]
    while pending:
        (done,), pending = runtime.wait(pending)
        pending += [fn.remote(item) for item in itertools.islice(items, 1)]
        yield given(done)


def _check(chunk_size: int) -> None:
    if chunk_size < 1:
        raise ValueError(f"chunk_size={chunk_size} must be a number of tasks >= 1")
