"""Progress of `Algorithm.learn` on a terminal or in a notebook, and results as HTML tables."""

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

# Width of a line without the numbers of steps: a short bar and the other fields.
_BESIDE_STEPS = 60
# Shortest time between two drawings in a notebook: each is sent to the browser and kept in the file's history.
_INTERVAL_S = 0.25
_TICK_S = 1.0
# Columns of a table of results: heading -> (key, digits).
_SHOWN = {
    "iteration": ("training_iteration", 0),
    "steps": ("timesteps_total", 0),
    "steps/s": ("num_env_steps_sampled_throughput_per_sec", 0),
    "episodes": ("episodes_total", 0),
    "return": ("episode_reward_mean", 2),
    "lowest": ("episode_reward_min", 2),
    "highest": ("episode_reward_max", 2),
    "cost": ("episode_cost_mean", 2),
    "length": ("episode_len_mean", 1),
}


def steps_progress(total: float, steps: Callable[[], int]) -> "StepsProgress":
    """A display for the progress of a run, for a notebook or a terminal: a context manager with a method `update`.

    Args:
        total: environment steps at which the run is complete.
        steps: returns the number of steps so far; called in any thread.
    """
    return (NotebookProgress if in_notebook() else TerminalProgress)(total, steps)


def in_notebook() -> bool:
    """Whether this runs in the kernel of a notebook. Colab's shell class derives from Jupyter's."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__)


def can_redraw() -> bool:
    """Whether standard output is a terminal that can redraw its lines; Emacs' shell, TERM=dumb, cannot."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class StepsProgress:
    """Base of the displays, which are drawn with every result and, since iterations may take long, every second.

    Use it as a context manager.

    Args:
        total: environment steps at which the bar is full.
        steps: returns the number of steps so far.
    """

    def __init__(self, total: float, steps: Callable[[], int]):
        self._total, self._steps, self._result = total, steps, {}
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._ticking = threading.Thread(target=self._tick, daemon=True, name="progress")

    def __enter__(self) -> Self:
        self._show()
        self._ticking.start()
        return self

    def __exit__(self, *_) -> None:
        self._ended.set()
        self._ticking.join()
        self._show()

    def update(self, result: Mapping) -> None:
        """Shows an iteration's result."""
        self._result = result
        self._show()

    def _tick(self) -> None:
        while not self._ended.wait(_TICK_S):
            self._show()

    def _show(self) -> None:
        with self._lock:
            self._draw()

    def _draw(self) -> None:
        raise NotImplementedError


class TerminalProgress(StepsProgress):
    """A line with a bar, the steps, the steps per second in the last iteration and the mean return."""

    def __init__(self, total: float, steps: Callable[[], int]):
        super().__init__(total, steps)
        # Not at the top: it would double the time that `import rllib` takes.
        from rich import get_console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        narrow = get_console().width < _BESIDE_STEPS + 2 * len(f"{total:,.0f}")
        columns = (
            BarColumn(),
            TextColumn("{task.percentage:.0f}%" if narrow else "{task.completed:,.0f}/{task.total:,.0f} steps"),
            TextColumn("{task.fields[rate]} /s"),
            TextColumn("return {task.fields[mean]}"),
            *([] if narrow else [TimeElapsedColumn()]),
            TimeRemainingColumn(),
            TextColumn("left"),
        )
        self._progress = Progress(*columns)
        self._task = self._progress.add_task("", total=total, rate="-", mean="-")

    def __enter__(self) -> Self:
        self._progress.start()
        return super().__enter__()

    def __exit__(self, *exc_info) -> None:
        super().__exit__(*exc_info)
        self._progress.stop()

    def _draw(self) -> None:
        self._progress.update(
            self._task,
            completed=self._steps(),
            rate=number(self._result.get("num_env_steps_sampled_throughput_per_sec"), 0),
            mean=_outcome(self._result),
        )


class NotebookProgress(StepsProgress):
    """A bar and a table of the newest result, drawn in place; other output of the cell stays.

    It needs only IPython, no widgets.
    """

    def __init__(self, total: float, steps: Callable[[], int]):
        super().__init__(total, steps)
        self._began, self._drawn_at, self._end = time.monotonic(), -math.inf, ""
        self._shown: Any = None

    def __exit__(self, kind: type[BaseException] | None, *exc_info) -> None:
        if kind is not None:
            self._end = ", interrupted" if issubclass(kind, KeyboardInterrupt) else f", ended by {kind.__name__}"
        super().__exit__(kind, *exc_info)

    def _draw(self) -> None:
        from IPython.display import display

        if not self._ended.is_set() and time.monotonic() - self._drawn_at < _INTERVAL_S:
            return
        self._drawn_at, steps = time.monotonic(), self._steps()
        line = self._line(steps)
        bar = f'<progress value="{min(steps, self._total)}" max="{self._total}" style="width:16em"></progress>'
        page = {"text/plain": line, "text/html": f"<div>{bar} {line}</div>{result_table(self._result)}"}
        if self._shown is None:
            self._shown = display(page, raw=True, display_id=True)
        else:
            self._shown.update(page, raw=True)

    def _line(self, steps: int) -> str:
        spent = time.monotonic() - self._began
        left = spent * (self._total - steps) / steps if steps else math.nan
        mean = _outcome(self._result)
        times = elapsed(spent) + (f", {elapsed(left)} left" if left > 0 and not self._end else "")
        return f"{steps:,}/{self._total:,.0f} steps, return {mean}, {times}{self._end}"


def _outcome(result: Mapping) -> str:
    """The mean return of a result, with the mean cost of its episodes where they have one."""
    mean = number(result.get("episode_reward_mean"))
    return f"{mean}, cost {number(result['episode_cost_mean'])}" if "episode_cost_mean" in result else mean


def result_table(result: Mapping) -> str:
    """The main numbers of a result as an HTML table; "" if it has none of them."""
    cells = {heading: number(result[key], digits) for heading, (key, digits) in _SHOWN.items()
             if isinstance(result.get(key), int | float)}  # fmt: skip
    if isinstance(seconds := result.get("time_total_s"), int | float):
        cells["time"] = elapsed(seconds)
    if not cells:
        return ""
    rows = (("th", cells), ("td", cells.values()))
    style = 'style="text-align:right"'
    lines = ("".join(f"<{tag} {style}>{cell}</{tag}>" for cell in row) for tag, row in rows)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def number(value: float | None, digits: int = 1) -> str:
    """A number with thousands separators; a dash for None or NaN."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:,.{digits}f}"


def counted(count: int, noun: str) -> str:
    """A number with its noun: "1 step", "2,000 steps"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def mean_rate(result: Mapping) -> float | None:
    """Environment steps per second since the run was started or last resumed, evaluations included.

    An imported model has steps of another library, whose time is unknown: its totals give no rate. They are taken for
    results of other programs, which have them alone. None if the rate is not known yet.
    """
    ours = ("timesteps_since_restore", "time_since_restore")
    steps, seconds = map(result.get, ours if ours[0] in result else ("timesteps_total", "time_total_s"))
    known = all(isinstance(each, int | float) and math.isfinite(each) and each > 0 for each in (steps, seconds))
    return steps / seconds if known else None


def elapsed(seconds: float) -> str:
    """A duration as "4.2 s", "3:05" or "1:03:05"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
