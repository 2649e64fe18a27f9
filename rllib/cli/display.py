"""Displays of a training run: lines where there is no terminal, a panel (panel.py) where there is one, or nothing."""

import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click

_FIRST_LINES = 10
_LINE_INTERVAL_S = 1.0
# Time between two later lines, as a share of the elapsed time: a day of training prints some 400 lines.
_LINE_FRACTION = 0.02


class QuietDisplay:
    """Shows notices only; base of the other displays."""

    def start(self, title: str, goal: str, directory: str) -> None:
        """Training of `title` begins; it ends when `goal` is reached, or never if that is empty."""

    def on_result(self, result: Mapping, progress: float) -> None:
        """An iteration has ended, at `progress` of 1 towards the goal."""

    def note(self, text: str) -> None:
        """Shows a notice about a rare event."""
        click.echo(text, err=True)

    def close(self) -> None:
        """No more results will come."""


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


class LogToDisplay(logging.Handler):
    """Shows what the library logs as notices."""

    def __init__(self, display: QuietDisplay):
        super().__init__()
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        self._display.note(self.format(record))


@contextmanager
def shown_logs(display: QuietDisplay, verbose: bool) -> Iterator[None]:
    """Inside it the display shows what the library logs at INFO, and with `verbose` at DEBUG."""
    handler = LogToDisplay(display)
    loggers = [logging.getLogger(package) for package in ("rllib", "runtime")]
    for logger in loggers:
        logger.setLevel(logging.DEBUG if verbose else logging.INFO)
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger in loggers:
            logger.setLevel(logging.NOTSET)
            logger.removeHandler(handler)
            logger.propagate = True


def number(value: float | None, digits: int = 1) -> str:
    """A number with thousands separators; a dash if it is not known yet."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:,.{digits}f}"


def line_of(result: Mapping) -> str:
    """One result as a line of fixed columns."""
    return (
        f"iter {result['training_iteration']:>5}  {elapsed(result['time_total_s']):>7}"
        f"  {number(result.get('timesteps_total'), 0):>11} steps"
        f"  {number(result.get('num_env_steps_sampled_throughput_per_sec'), 0):>8} /s"
        f"  return {number(result.get('episode_reward_mean'), 2):>9}"
        f"  length {number(result.get('episode_len_mean')):>7}"
    )


def elapsed(seconds: float) -> str:
    """4.2 s, 3:05 or 1:03:05."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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
