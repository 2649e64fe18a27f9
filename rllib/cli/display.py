"""Displays of a training run: lines where there is no terminal, a panel where there is one, or nothing."""

import contextlib
import itertools
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

import click
from rich.console import Console
from rich.control import Control
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.segment import ControlType
from rich.table import Table
from rich.text import Text

from rllib.cli.failures import as_typed
from rllib.progress import counted, elapsed, number
from rllib.runs.entries import lookup
from rllib.sample_batch import DEFAULT_POLICY

try:
    import termios
except ImportError:  # Windows
    termios = None  # type: ignore[assignment]

_FIRST_LINES = 10
_LINE_INTERVAL_S = 1.0
# Time between two later lines, as a share of the elapsed time: a day of training prints some 400 lines.
_LINE_FRACTION = 0.02
_REFRESH_INTERVAL_S = 0.25
_WIDEST = 120
# Columns next to the values: two of the border, two of its padding, the labels and two between.
_FRAME_WIDTH = 4 + 7 + 2
# Least width of a number; longer ones widen the column that all three share.
_NUMBER_WIDTH = 9
_SHORTEST_LINE, _LONGEST_LINE = 8, 36
_BLOCKS, _ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-~=+*#"


class QuietDisplay:
    """Shows notices only; base of the other displays."""

    def start(self, title: str, goal: str, directory: str) -> None:
        """Called when training of `title` begins; it ends when `goal` is reached, or never if `goal` is empty."""

    def on_result(self, result: Mapping, progress: float) -> None:
        """Called when an iteration has ended; `progress` towards the goal is in [0, 1]."""

    def note(self, text: str) -> None:
        """Shows a notice about a rare event."""
        click.echo(text, err=True)

    def close(self) -> None:
        """Called after the last result."""


class LineDisplay(QuietDisplay):
    """A line for each of the first iterations, then at most one a second, at growing intervals."""

    def __init__(self):
        self._began = self._printed_at = time.monotonic()
        self._lines = 0
        self._unprinted: Mapping | None = None

    def start(self, title: str, goal: str, directory: str) -> None:
        click.echo(f"{title}, until {goal or 'Ctrl-C'}")
        click.echo(f"results in {directory}")

    def on_result(self, result: Mapping, progress: float) -> None:
        now = time.monotonic()
        interval = max(_LINE_INTERVAL_S, _LINE_FRACTION * (now - self._began))
        if self._lines < _FIRST_LINES or now - self._printed_at >= interval:
            self._print(result)
            self._printed_at = now
        else:
            self._unprinted = result

    def close(self) -> None:
        if self._unprinted is not None:
            self._print(self._unprinted)

    def _print(self, result: Mapping) -> None:
        self._lines += 1
        self._unprinted = None
        click.echo(line_of(result))


class _ResizableLive(Live):
    """A Live that also erases the rows into which a narrower window has broken its last drawing."""

    _drawn_width = 0

    def process_renderables(self, renderables):
        width = self.console.width
        rows_a_line = math.ceil(self._drawn_width / width) or 1
        # Live itself goes up by the lines that it has drawn.
        _, height = self._live_render._shape or (0, 0)  # in every rich; its `last_render_height` is of 2025
        broken = height * (rows_a_line - 1)
        up = Control(*[(ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1)] * broken)
        self._drawn_width = min(_WIDEST, width)
        return [up, *super().process_renderables(renderables)]


class PanelDisplay(QuietDisplay):
    """Return, length, steps, time per phase, workers and progress, redrawn at most four times a second.

    Between results it is redrawn once a second, so that the clock of a long iteration moves. The clock is that of the
    results, time_total_s, plus the time since the last of them.

    Args:
        console: where it is drawn; None: standard output.
    """

    def __init__(self, console: Console | None = None):
        self._console = console or Console(highlight=False)
        self._live: Live | None = None
        self._clock_s, self._counts_from = 0.0, time.monotonic()
        self._drawn_at = self._counts_from
        self._title = self._goal = self._directory = ""
        self._result: Mapping = {}
        self._progress = 0.0
        self._returns: list[float] = []
        self._evaluated: float | None = None  # return of the newest evaluation
        self._notes: list[threading.Thread] = []
        self._open_terminal = contextlib.ExitStack()

    def start(self, title: str, goal: str, directory: str) -> None:
        self._title, self._goal, self._directory = title, goal, directory
        self._counts_from = time.monotonic()
        self._open_terminal.enter_context(_without_echo())
        self._live = _ResizableLive(console=self._console, get_renderable=self.render, refresh_per_second=1)
        self._live.start()

    def on_result(self, result: Mapping, progress: float) -> None:
        self._result, self._progress = result, progress
        value = result.get("episode_reward_mean")
        if value is not None and value == value:
            self._returns.append(value)
        self._evaluated = _evaluated(result, self._evaluated)
        now = time.monotonic()
        self._clock_s, self._counts_from = result["time_total_s"], now
        if now - self._drawn_at >= _REFRESH_INTERVAL_S:
            self._drawn_at = now
            self._live.refresh()

    def note(self, text: str) -> None:
        # A signal handler may call this while this thread draws. Another thread waits until the drawing is done.
        how = {"style": "yellow", "markup": False}
        printing = threading.Thread(target=self._console.print, args=(text,), kwargs=how)
        printing.start()
        self._notes.append(printing)

    def close(self) -> None:
        for printing in self._notes:
            printing.join()
        if self._live is not None:
            self._counts_from = None
            self._live.stop()  # draws once more
        self._open_terminal.close()

    def render(self) -> Panel:
        width = min(_WIDEST, self._console.width)
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="dim")
        rows.add_column()
        for row in self._rows(width - _FRAME_WIDTH):
            rows.add_row(*row)
        since = 0.0 if self._counts_from is None else time.monotonic() - self._counts_from
        clock = elapsed(self._clock_s + since)
        title = f"{_shortened(self._title, width - len(clock) - 8)}  {clock}"
        directory = Text(_end_of(self._directory, width - 6))
        return Panel(rows, title=Text(title), subtitle=directory, width=width, title_align="left",
                     subtitle_align="left", border_style="cyan")  # fmt: skip

    def _rows(self, width: int):
        """(label, values) of each row; the values have this many columns."""
        result = self._result
        mean, length = number(result.get("episode_reward_mean")), number(result.get("episode_len_mean"))
        rate = number(result.get("num_env_steps_sampled_throughput_per_sec"), 0)
        steps, iteration = number(result.get("timesteps_total"), 0), number(result.get("training_iteration", 0), 0)
        cost = number(result.get("episode_cost_mean"))
        digits = max(_NUMBER_WIDTH, len(mean), len(length), len(steps), len(cost))
        yield from self._return_rows(mean.rjust(digits), width)
        if "episode_cost_mean" in result:
            yield "cost", cost.rjust(digits)
        if self._evaluated is not None:
            yield "", f"{number(self._evaluated).rjust(digits)}  in the newest evaluation"
        yield "length", length.rjust(digits)
        pace = f"{rate} /s in iteration {iteration}"
        fits = digits + 2 + len(pace) <= width
        yield "steps", steps.rjust(digits) + (f"  {pace}" if fits else "")
        if not fits:
            yield "", pace
        shares = [f"{phase} {share:.0%}" for phase, share in phase_shares(result).items()]
        yield "time", _broken(shares, width) or "-"
        yield "learner", _broken(_learner(result), width) or "-"
        yield "workers", _workers(result)
        if clients := _clients(result):
            yield "clients", _broken(clients, width)
        if self._goal:
            yield from self._goal_rows(width)

    def _return_rows(self, mean: str, width: int):
        """Mean return, sparkline, and lowest and highest return, these in another row if the panel is narrow."""
        result = self._result
        low, high = number(result.get("episode_reward_min")), number(result.get("episode_reward_max"))
        spread = f"{low} to {high}" if self._returns else "no episode has ended yet"
        room = width - len(mean) - 4 - len(spread)
        fits = room >= (_SHORTEST_LINE if self._returns else 0)
        blocks = _ASCII_BLOCKS if self._console.options.ascii_only else _BLOCKS
        line = sparkline(self._returns, min(_LONGEST_LINE, room if fits else width - len(mean) - 2), blocks)
        yield "return", f"[bold]{mean}[/]  [green]{line}[/]" + (f"  {spread}" if fits else "")
        if not fits:
            yield "", spread

    def _goal_rows(self, width: int):
        """The goal and a bar, below it if they do not fit side by side."""
        percent = f"{self._progress:.0%}"
        room = width - len(self._goal) - 2 - len("  100%")
        fits = room >= _SHORTEST_LINE
        bar = Table.grid(padding=(0, 2))
        bar_width = min(24, room) if fits else min(24, width - len("  100%"))
        drawn = ProgressBar(total=1.0, completed=self._progress, width=bar_width)
        bar.add_row(*([self._goal] if fits else []), drawn, percent)
        if not fits:
            yield "goal", _broken(self._goal.split(" or "), width, " or ")
        yield "goal" if fits else "", bar


@contextlib.contextmanager
def _without_echo():
    """Switches the terminal's echo off inside: ^C or a line break would tear the panel apart."""
    if termios is None:
        yield
        return
    try:
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
        in_foreground = os.tcgetpgrp(terminal) == os.getpgrp()  # a background job would be stopped
    except (AttributeError, OSError, ValueError, termios.error):  # no terminal
        in_foreground = False
    if not in_foreground:
        yield
        return
    silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(terminal, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"


def _end_of(path: str, width: int) -> str:
    """Shortens a path at its beginning, since its end names the run."""
    return path if len(path) <= width else f"…{path[len(path) - width + 1 :]}"


def _broken(parts: Sequence[str], width: int, between: str = ", ") -> str:
    """Joins the parts in lines of at most `width` columns, broken between parts only."""
    lines: list[str] = []
    for number_left, part in zip(reversed(range(len(parts))), parts):
        room = width - (len(between.rstrip()) if number_left else 0)
        if lines and len(lines[-1]) + len(between) + len(part) <= room:
            lines[-1] += between + part
        else:
            lines.append(part)
    return f"{between.rstrip()}\n".join(lines)


def _learner(result: Mapping) -> list[str]:
    """Share of the time in which the learner is idle, its cores if they are measured, and use of its GPUs.

    With several learners the numbers are means.
    """
    perf = result.get("perf", {})
    learning = perf.get("learner_util_percent", phase_shares(result).get("learn"))
    parts = [] if learning is None else [f"idle {1 - learning:.0%}"]
    for policy_id, chosen in result.get("info", {}).get("learner_cores", {}).items():
        whose = "" if policy_id == DEFAULT_POLICY else f"{policy_id} "
        parts.append(f"{whose}on {counted(chosen['cores'], 'core')}: {chosen['reason']}")
    for name in sorted(perf):
        if name.startswith("vram_util_percent"):
            gpu = name.removeprefix("vram_util_percent")
            busy = perf.get(f"gpu_util_percent{gpu}")
            parts.append(f"GPU {gpu}{'' if busy is None else f' {busy:.0%} busy,'} memory {perf[name]:.0%}")
    return parts


def _clients(result: Mapping) -> list[str]:
    """Traffic of a policy server, or of a loop in a worker, which has no clients."""
    external = result.get("external")
    if not external:
        return []
    lag = counted(external["weights_lag"], "update")
    parts = [f"{counted(external['open_episodes'], 'episode')} open", f"lag {lag}"]
    if external["clients"] or external["requests_per_s"]:
        waits = f"{number(external['act_ms_p50'])} / {number(external['act_ms_p99'])} ms"
        parts = [
            counted(external["clients"], "client"),
            *parts,
            f"{external['episodes_lost']:,} lost",
            f"{number(external['requests_per_s'], 0)} requests/s",
            f"wait p50 / p99 {waits}",
            f"{counted(external['rows_waiting'], 'row')} waiting",
        ]
    return parts


def _workers(result: Mapping) -> str:
    if not result:
        return "-"
    healthy, restarts = result.get("num_healthy_workers"), result.get("num_remote_worker_restarts")
    wanted = lookup(result, "config/num_rollout_workers")
    if healthy is None or not wanted:
        return "in this process"
    return f"{healthy}/{wanted} healthy" + (f", {counted(restarts, 'restart')}" if restarts else "")


def sparkline(values: Sequence[float], width: int, blocks: str = _BLOCKS) -> str:
    """Draws the finite values in at most `width` characters, each the mean of an equal number of consecutive values."""
    values = [value for value in values if math.isfinite(value)]
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    means = [sum(values[start:end]) / (end - start) for start, end in itertools.pairwise(edges)]
    low, span = min(means), (max(means) - min(means)) or 1.0
    return "".join(blocks[min(int((mean - low) / span * len(blocks)), len(blocks) - 1)] for mean in means)


class LogToDisplay(logging.Handler):
    """Shows log messages as notices."""

    def __init__(self, display: QuietDisplay):
        super().__init__()
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        self._display.note(as_typed(self.format(record)))


@contextlib.contextmanager
def shown_logs(display: QuietDisplay, verbose: bool, quiet: bool = False) -> Iterator[None]:
    """Shows the library's log messages inside: from INFO on, with `verbose` from DEBUG, with `quiet` from WARNING."""
    handler = LogToDisplay(display)
    loggers = [logging.getLogger(package) for package in ("rllib", "runtime")]
    for logger in loggers:
        logger.setLevel(logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO)
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger in loggers:
            logger.setLevel(logging.NOTSET)
            logger.removeHandler(handler)
            logger.propagate = True


def line_of(result: Mapping) -> str:
    """One result as a line of fixed columns."""
    external = result.get("external")
    cost = f"  cost {number(result['episode_cost_mean'], 2):>9}" if "episode_cost_mean" in result else ""
    clients = f"  clients {external['clients']:>4}  lost {external['episodes_lost']:>4}" if external else ""
    value = _evaluated(result)
    evaluated = "" if value is None else f"  evaluation {number(value, 2):>9}"
    return (
        f"iter {result['training_iteration']:>5}  {elapsed(result['time_total_s']):>7}"
        f"  {number(result.get('timesteps_total'), 0):>11} steps"
        f"  {number(result.get('num_env_steps_sampled_throughput_per_sec'), 0):>8} /s"
        f"  return {number(result.get('episode_reward_mean'), 2):>9}"
        f"  length {number(result.get('episode_len_mean')):>7}{cost}{clients}{evaluated}"
    )


def _evaluated(result: Mapping, before: float | None = None) -> float | None:
    """The return of the evaluation in a result; `before` if it has none."""
    return result.get("evaluation", {}).get("episode_reward_mean", before)


def phase_shares(result: Mapping) -> dict[str, float]:
    """The share of each phase in the time of an iteration, from its timers; the rest is `other`."""
    timers = result.get("timers", {})
    whole = timers.get("training_iteration_time_ms")
    if not whole:
        return {}
    shares = {
        name.removesuffix("_time_ms"): milliseconds / whole
        for name, milliseconds in timers.items()
        if name.endswith("_time_ms") and name != "training_iteration_time_ms"
    }
    return {**shares, "other": max(0.0, 1.0 - sum(shares.values()))}
