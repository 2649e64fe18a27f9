"""Displays of several seeds side by side: a row for each in a panel on a terminal, else lines."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import click
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rllib.cli.display import line_of
from rllib.cli.seeds.processes import ENDED, SeedRun, State
from rllib.progress import elapsed, number

_COLOURS = {
    State.WAITING: "dim",
    State.RUNNING: "cyan",
    State.DONE: "green",
    State.INTERRUPTED: "yellow",
    State.FAILED: "bold red",
}
# Time between two lines of a seed: at least this, and this share of the time since its first.
_LINE_INTERVAL_S, _LINE_FRACTION = 5.0, 0.05


class SeedsDisplay(Protocol):
    """Display of several seeds."""

    def show(self) -> None:
        """Shows what has changed."""

    def note(self, text: str) -> None:
        """Shows a notice."""

    def close(self) -> None:
        """Called after the last change."""


def display_of(
    runs: Sequence[SeedRun], title: str, directory: str, progress: Callable[[SeedRun], float], quiet: bool
) -> SeedsDisplay:
    """A panel on a terminal, else lines; with `quiet` notices alone.

    Args:
        runs: of the seeds.
        title: of the panel.
        directory: of all runs.
        progress: share of the way to its goal that a run has come, in [0, 1].
        quiet: whether to show notices alone.
    """
    if quiet:
        return QuietSeeds()
    return SeedPanel(runs, title, directory, progress) if sys.stdout.isatty() else SeedLines(runs, title, directory)


class QuietSeeds:
    """Shows notices alone."""

    def show(self) -> None:
        pass

    def note(self, text: str) -> None:
        click.echo(text, err=True)

    def close(self) -> None:
        pass


class SeedLines(QuietSeeds):
    """A line of each seed when it starts and ends, and its results at growing intervals."""

    def __init__(self, runs: Sequence[SeedRun], title: str, directory: str):
        self._runs, self._began = runs, time.monotonic()
        # Seed -> state and iteration of its last line, and when that was printed.
        self._shown: dict[int, tuple[State, int, float]] = {}
        click.echo(title)
        click.echo(f"results in {directory}")

    def show(self) -> None:
        now = time.monotonic()
        interval = max(_LINE_INTERVAL_S, _LINE_FRACTION * (now - self._began))
        for run in self._runs:
            state, iteration, printed_at = self._shown.get(run.seed, (State.WAITING, 0, now))
            newest = run.result.get("training_iteration", 0)
            if run.state is state and (newest == iteration or now - printed_at < interval):
                continue
            self._shown[run.seed] = run.state, newest, now
            result = f"  {line_of(run.result)}" if run.result else ""
            why = f"  {run.error}" if run.error else ""
            click.echo(f"seed {run.seed:<3} {run.state:<11}{result}{why}".rstrip())


class SeedPanel:
    """A row of each seed: its stage, iteration, steps, return and progress, redrawn four times a second."""

    def __init__(
        self,
        runs: Sequence[SeedRun],
        title: str,
        directory: str,
        progress: Callable[[SeedRun], float],
        console: Console | None = None,
    ):
        self._runs, self._title, self._directory, self._progress = runs, title, directory, progress
        self._notes: list[str] = []
        self._live = Live(console=console or Console(highlight=False), get_renderable=self.render)
        self._live.start()

    def show(self) -> None:
        pass  # it is redrawn by itself

    def note(self, text: str) -> None:
        self._notes.append(text)

    def close(self) -> None:
        self._live.stop()

    def render(self) -> Panel:
        rows = Table(box=None, header_style="dim", padding=(0, 1))
        for heading, side in (("seed", "right"), ("", "left"), ("iter", "right"), ("time", "right"), ("steps", "right"),
                              ("steps/s", "right"), ("return", "right"), ("goal", "left")):  # fmt: skip
            rows.add_column(heading, justify=side, no_wrap=True)
        for run in self._runs:
            rows.add_row(*self._row(run))
        ended = sum(run.state in ENDED for run in self._runs)
        title = Text(f"{self._title}: {ended} of {len(self._runs)} ended")
        content = Group(rows, *(Text(text, "yellow") for text in self._notes))
        return Panel(content, title=title, subtitle=Text(self._directory), title_align="left", subtitle_align="left",
                     border_style="cyan", expand=False)  # fmt: skip

    def _row(self, run: SeedRun) -> list:
        result = run.result
        return [
            str(run.seed),
            Text(run.state, _COLOURS[run.state]),
            number(result.get("training_iteration"), 0),
            elapsed(result["time_total_s"]) if result else "-",
            number(result.get("timesteps_total"), 0),
            number(result.get("num_env_steps_sampled_throughput_per_sec"), 0),
            number(result.get("episode_reward_mean")),
            Text(run.error, "red") if run.error else ProgressBar(1.0, self._progress(run), width=16),
        ]
