"""The progress bar of `Algorithm.learn`."""

import math
from collections.abc import Mapping
from typing import Self

# Columns of a terminal from which on all fields have room.
_WIDTH = 80


class StepsProgress:
    """A line with a bar, the steps, their number a second and the mean return; on a terminal or in a notebook.

    Use it as a context manager.

    Args:
        total: environment steps at which the bar is full.
    """

    def __init__(self, total: float):
        # Not at the top: it would double the time that `import rllib` takes.
        from rich import get_console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        narrow = get_console().width < _WIDTH
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
        return self

    def __exit__(self, *_) -> None:
        self._progress.stop()

    def update(self, steps: int, result: Mapping) -> None:
        """Shows the number of steps that are done, and an iteration's result."""
        mean = result["episode_reward_mean"]
        self._progress.update(
            self._task,
            completed=steps,
            rate=f"{result['num_env_steps_sampled_throughput_per_sec']:,.0f}",
            mean="-" if math.isnan(mean) else f"{mean:,.1f}",
        )
