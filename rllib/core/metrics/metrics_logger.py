"""Named values that a program logs while it runs, reduced to one number each for a result.

    def on_episode_end(self, *, episode, metrics_logger, **kwargs):
        metrics_logger.log_value("pole_angle", angle, reduce="mean", window=100)

The logger of a worker records the calls, which travel with the samples; that of the driver repeats them in their order.
So a mean is of single values, whatever the number of workers.
"""

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rllib.core.metrics.stats import EMA_COEFF, KINDS, OF_ALL_TIMES, PERCENTILES, Reduction, Stats
from rllib.did_you_mean import refuse_slips

Key = str | tuple[str, ...]
# (key, value, reduction) of one call of `log_value`.
Call = tuple[tuple[str, ...], Any, Reduction]

_DEFAULT: Any = object()


_KEYWORDS = ("reduce", "window", "ema_coeff", "percentiles", "clear_on_reduce", "with_throughput")
# Of some version of RLlib.
_OF_RAY = frozenset({"throughput_ema_coeff", "reduce_per_index_on_aggregate"})


class MetricsLogger:
    """Logged values by key; a key is a name, or a tuple of names for a nested dict.

    Args:
        records: whether calls are kept for `pop_calls`, as in a worker.
        root: without effect; RLlib's constructor has it.
    """

    def __init__(self, root: bool = False, *, records: bool = False):
        self._stats: dict[tuple[str, ...], Stats] = {}
        self._records, self._calls = records, []

    def __contains__(self, key: Key) -> bool:
        path = _path(key)
        return any(each[: len(path)] == path for each in self._stats)

    # ------------------------------------------------------------------ logging

    def log_value(
        self,
        key: Key,
        value: Any,
        *,
        reduce: str | None = _DEFAULT,
        window: float | None = None,
        ema_coeff: float | None = None,
        percentiles: Any = None,
        clear_on_reduce: bool | None = None,
        with_throughput: bool | None = None,
        **without_effect: Any,
    ) -> None:
        """Logs one value; how a key is reduced is decided by the first call.

        Args:
            key: a name, or a tuple of names.
            value: a number, or a tensor or array of one; anything for "item" and "item_series".
            reduce: "mean", "sum", "min" or "max" of the values since the last result, or of the newest `window`;
                "ema", their exponential mean (the default); "lifetime_sum", "lifetime_min", "lifetime_max" or
                "lifetime_mean" of all times; "item", the newest; "item_series", a list; "percentiles", a dict.
                None with `clear_on_reduce` or `window`: a list.
            window: number of values, those of earlier results included; float("inf"): all, a mean, sum, minimum or
                maximum of all times, unless `clear_on_reduce`.
            ema_coeff: weight of a new value in the exponential mean, 0.01 by default.
            percentiles: percentages for "percentiles".
            clear_on_reduce: False makes a sum, minimum or maximum one of all times, and a mean without window an
                exponential one.
            with_throughput: also report the sum by second, as KEY_throughput.
            without_effect: arguments of other versions of RLlib.

        Raises:
            ValueError: for another `reduce`, or a window that is no positive integer.
            TypeError: for a keyword that is almost one of these.
        """
        path = _path(key)
        if path not in self._stats:
            refuse_slips("log_value", without_effect.keys() - _OF_RAY, _KEYWORDS)
            how = _reduction(reduce, window, ema_coeff, percentiles, clear_on_reduce, bool(with_throughput))
            self._stats[path] = Stats(how)
        stats = self._stats[path]
        value = _plain(value, path, stats.how.kind)
        stats.add(value)
        if self._records:
            self._calls.append((path, value, stats.how))

    def log_dict(self, value_dict: Mapping[str, Any], *, key: Key = (), **how: Any) -> None:
        """Logs every value of a dict, which may hold dicts, below a key; keywords as for `log_value`."""
        for name, value in value_dict.items():
            path = (*_path(key), name)
            if isinstance(value, Mapping):
                self.log_dict(value, key=path, **how)
            else:
                self.log_value(path, value, **how)

    @contextlib.contextmanager
    def log_time(self, key: Key, **how: Any) -> Iterator[None]:
        """A context whose seconds are logged; keywords as for `log_value`."""
        began = time.perf_counter()
        yield
        self.log_value(key, time.perf_counter() - began, **how)

    def set_value(self, key: Key, value: Any, **how: Any) -> None:
        """Replaces all values of a key by this one; keywords as for `log_value`, for a key that is new."""
        if _path(key) in self._stats:
            self._stats[_path(key)].replace(_plain(value, _path(key), self._stats[_path(key)].how.kind))
        else:
            self.log_value(key, value, **how)

    # ------------------------------------------------------------------ reading

    def peek(self, key: Key | None = None, default: Any = _DEFAULT, **without_effect: Any) -> Any:
        """The present reduced value of a key, a dict for a key above others; nothing is cleared.

        Raises:
            KeyError: if nothing was logged under the key and there is no default.
        """
        path = () if key is None else _path(key)
        if path in self._stats:
            return self._stats[path].peek()
        below = {each[len(path) :]: stats.peek() for each, stats in self._stats.items() if each[: len(path)] == path}
        if below or not path:
            return _nested(below)
        if default is _DEFAULT:
            known = ", ".join("/".join(each) for each in self._stats) or "none"
            raise KeyError(f"nothing was logged under {'/'.join(path)!r}; the keys are: {known}")
        return default

    def reduce(self, key: Key = (), *, but: Collection[str] = (), **without_effect: Any) -> dict[str, Any]:
        """The reduced values below a key as nested dicts, for a result; then starts the next period.

        Args:
            key: below which; () for all.
            but: first names of keys whose values stay as they are.
        """
        path, found = _path(key), {}
        for each, stats in self._stats.items():
            if each[: len(path)] != path or each[0] in but:
                continue
            if stats.has_news:
                found[each[len(path) :]] = stats.peek()
                if stats.how.with_throughput:
                    found[(*each[len(path) : -1], f"{each[-1]}_throughput")] = stats.throughput()
            stats.close()
        return _nested(found)

    # ------------------------------------------------------------------ between processes, and checkpoints

    def pop_calls(self) -> list[Call]:
        """The calls since the last one of this method, for `repeat` in another process; starts the next period."""
        calls, self._calls = self._calls, []
        for stats in self._stats.values():
            stats.close()
        return calls

    def repeat(self, calls: list[Call], key: Key = ()) -> None:
        """Repeats calls of another process, below a key."""
        for path, value, how in calls:
            self._stats.setdefault((*_path(key), *path), Stats(how)).add(value)

    def get_state(self) -> list[dict[str, Any]]:
        """The values for a checkpoint, JSON-able."""
        return [{"key": list(path), **stats.get_state()} for path, stats in self._stats.items()]

    def set_state(self, state: list[dict[str, Any]]) -> None:
        """Restores the result of `get_state`."""
        self._stats = {tuple(each["key"]): Stats.from_state(each) for each in state}


def _path(key: Key) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(map(str, key))


def _nested(values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Nested dicts of values by path; a value at a path above others is kept under its own name, next to them."""
    found: dict[str, Any] = {}
    for path, value in values.items():
        path = path or ("",)  # a value at the place of a section
        inner = found
        for name in path[:-1]:
            below = inner.get(name)
            if not isinstance(below, dict):
                below = inner[name] = {} if below is None else {"": below}
            inner = below
        if isinstance(inner.get(path[-1]), dict):
            inner[path[-1]][""] = value
        else:
            inner[path[-1]] = value
    return found


def _reduction(reduce, window, ema_coeff, percentiles, clear_on_reduce, with_throughput) -> Reduction:
    """The reduction that the arguments of `log_value` ask for."""
    if window is not None and window != float("inf") and not (isinstance(window, int) and window > 0):
        raise ValueError(f"window={window!r} must be a positive number of values, or None: all since the last result")
    if ema_coeff is not None and not 0 < ema_coeff <= 1:
        raise ValueError(f"ema_coeff={ema_coeff!r} must be above 0 and at most 1, the weight of a new value")
    if reduce is _DEFAULT or (reduce is None and not clear_on_reduce and window is None):
        kind = "mean" if window is not None else "ema"
    elif reduce is None:
        kind = "item_series"
    else:
        kind = reduce
    if kind not in KINDS:
        raise ValueError(f"reduce={reduce!r} must be one of {', '.join(KINDS)}")
    if kind == "mean" and (ema_coeff is not None or (window is None and clear_on_reduce is False)):
        kind = "ema"
    if (window is None and clear_on_reduce is False) or (window == float("inf") and not clear_on_reduce):
        kind = OF_ALL_TIMES.get(kind, kind)
    bound = None if window is None or window == float("inf") else window
    given = PERCENTILES if percentiles in (None, True, False) else tuple(percentiles)
    return Reduction(kind, bound, EMA_COEFF if ema_coeff is None else ema_coeff, given, with_throughput)


def _plain(value: Any, path: tuple[str, ...], kind: str) -> Any:
    """The value without a tensor or array around a single number.

    Raises:
        TypeError: for what is no number, where numbers are reduced.
    """
    if hasattr(value, "detach"):  # of torch, which this file does not import
        value = value.detach().cpu().numpy()
    if getattr(value, "size", None) == 1 and hasattr(value, "item"):
        value = value.item()
    if kind not in ("item", "item_series") and not isinstance(value, int | float):
        raise TypeError(
            f"log_value({'/'.join(path)!r}, {value!r:.80}): values that are reduced by {kind!r} must be numbers. Use "
            'reduce="item", or log its mean.'
        )
    return value
