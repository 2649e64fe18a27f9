"""The live panel on a terminal."""

import itertools
import time
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from rllib.cli.display import QuietDisplay, elapsed, number, phase_shares
from rllib.tune.result_keys import lookup

_REFRESH_INTERVAL_S = 0.25
_WIDTH = 84
_SPARKLINE_WIDTH = 36
_BLOCKS, _ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-~=+*#"


class PanelDisplay(QuietDisplay):
    """Return, length, steps, time per phase, workers and progress, redrawn at most four times a second.

    Between results it is redrawn once a second, so that the clock of a long iteration moves.
    """

    def __init__(self):
        self._console = Console(highlight=False)
        self._live: Live | None = None
        self._began = self._drawn_at = time.monotonic()
        self._title = self._goal = self._directory = ""
        self._result: Mapping = {}
        self._progress = 0.0
        self._returns: list[float] = []

    def start(self, title: str, goal: str, directory: str) -> None:
        self._title, self._goal, self._directory = title, goal, directory
        self._live = Live(console=self._console, get_renderable=self.render, refresh_per_second=1)
        self._live.start()

    def on_result(self, result: Mapping, progress: float) -> None:
        self._result, self._progress = result, progress
        value = result.get("episode_reward_mean")
        if value is not None and value == value:
            self._returns.append(value)
        now = time.monotonic()
        if now - self._drawn_at >= _REFRESH_INTERVAL_S:
            self._drawn_at = now
            self._live.refresh()

    def note(self, text: str) -> None:
        self._console.print(text, style="yellow", markup=False)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()  # draws once more

    def render(self) -> Panel:
        """The panel as it is now."""
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="dim")
        rows.add_column()
        for row in self._rows():
            rows.add_row(*row)
        clock = elapsed(time.monotonic() - self._began)
        width = min(_WIDTH, self._console.width)
        return Panel(rows, title=f"{self._title}  {clock}", subtitle=self._directory, width=width, title_align="left",
                     subtitle_align="left", border_style="cyan")  # fmt: skip

    def _rows(self):
        result = self._result
        low, high = number(result.get("episode_reward_min")), number(result.get("episode_reward_max"))
        spread = f"{low} to {high}" if self._returns else "no episode has ended yet"
        blocks = _ASCII_BLOCKS if self._console.options.ascii_only else _BLOCKS
        line = sparkline(self._returns, _SPARKLINE_WIDTH, blocks)
        yield "return", f"[bold]{number(result.get('episode_reward_mean')):>9}[/]  [green]{line}[/]  {spread}"
        yield "length", f"{number(result.get('episode_len_mean')):>9}"
        rate = number(result.get("num_env_steps_sampled_throughput_per_sec"), 0)
        steps = number(result.get("timesteps_total"), 0)
        yield "steps", f"{steps:>9}  {rate} /s, iteration {result.get('training_iteration', 0)}"
        shares = phase_shares(result)
        yield "time", ", ".join(f"{phase} {share:.0%}" for phase, share in shares.items()) or "-"
        yield "workers", _workers(result)
        if self._goal:
            yield "goal", self._goal_row()

    def _goal_row(self):
        row = Table.grid(padding=(0, 2))
        row.add_row(self._goal, ProgressBar(total=1.0, completed=self._progress, width=24), f"{self._progress:.0%}")
        return row


def _workers(result: Mapping) -> str:
    healthy, restarts = result.get("num_healthy_workers"), result.get("num_remote_worker_restarts")
    wanted = lookup(result, "config/num_rollout_workers")
    if healthy is None or not wanted:
        return "in this process"
    return f"{healthy}/{wanted} healthy" + (f", {restarts} restarts" if restarts else "")


def sparkline(values: Sequence[float], width: int, blocks: str = _BLOCKS) -> str:
    """The course of the values in at most `width` characters, lowest to highest; each is the mean of its stretch."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    means = [sum(values[start:end]) / (end - start) for start, end in itertools.pairwise(edges)]
    low, span = min(means), (max(means) - min(means)) or 1.0
    return "".join(blocks[min(int((mean - low) / span * len(blocks)), len(blocks) - 1)] for mean in means)
