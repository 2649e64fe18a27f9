"""How an experiment shows itself: a live table on a terminal, plain lines elsewhere, a page in Jupyter.

The plain text is that of 2018 (`== Status ==`, a line for each trial) as long as there are few trials; of many, the
running ones and the best. Reporters look at trials only when they report, at most every few seconds.
"""

import math
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rllib.tune.stopping import lookup
from rllib.tune.trial import ERROR, PAUSED, PENDING, RUNNING, TERMINATED, Trial

_ORDER = (PENDING, RUNNING, PAUSED, TERMINATED, ERROR)
_DEFAULT_COLUMNS = {
    "mean_accuracy": "acc",
    "mean_loss": "loss",
    "training_iteration": "iter",
    "time_total_s": "total time (s)",
    "timesteps_total": "ts",
    "episode_reward_mean": "reward",
}
_FEW = 20


class ProgressReporter:
    """Base of reporters: write `should_report` and `report`."""

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """Whether it is time; `done`: the experiment has ended."""
        return True

    def report(self, trials: Sequence[Trial], done: bool, *system: Any) -> None:
        """Shows the trials; `system` is a dict with scheduler, used, total, directory and elapsed_s."""
        raise NotImplementedError


class TuneReporterBase(ProgressReporter):
    """What all tables need.

    Args:
        metric_columns: result keys to show, or {key: heading}.
        parameter_columns: parameters to show, or {path: heading}; all by default.
        max_progress_rows: of the table.
        max_error_rows: how many failures are named.
        max_report_frequency: seconds between reports.
        sort_by_metric: the best trials first.
        metric, mode: by which they are the best.
    """

    def __init__(
        self,
        *,
        metric_columns=None,
        parameter_columns=None,
        max_progress_rows: int = 20,
        max_error_rows: int = 20,
        max_report_frequency: float = 5.0,
        sort_by_metric: bool = False,
        metric: str | None = None,
        mode: str | None = None,
        print_intermediate_tables: bool | None = None,
    ):
        self._metric_columns = _headings(metric_columns) if metric_columns else dict(_DEFAULT_COLUMNS)
        self._parameter_columns = _headings(parameter_columns) if parameter_columns else None
        self._max_rows, self._max_errors = max_progress_rows, max_error_rows
        self._interval_s, self._sort = max_report_frequency, sort_by_metric
        self._metric, self._mode = metric, mode
        self._reported_at = -math.inf

    def set_objective(self, metric: str | None, mode: str | None) -> None:
        """What the experiment compares trials by, unless the reporter was told something else."""
        self._metric, self._mode = self._metric or metric, self._mode or mode or "max"

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Shows one more result key."""
        self._metric_columns[metric] = representation or metric

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Shows one more parameter."""
        self._parameter_columns = {**(self._parameter_columns or {}), parameter: representation or parameter}

    def should_report(self, trials, done=False) -> bool:
        now = time.monotonic()
        if not done and now - self._reported_at < self._interval_s:
            return False
        self._reported_at = now
        return True

    def rows(self, trials: Sequence[Trial]) -> tuple[list[str], list[list[str]], int]:
        """Headings, rows of the most interesting trials, and how many are left out."""
        shown = self._chosen(trials)
        chosen = {key: key for trial in shown for key in trial.evaluated_params}
        parameters = self._parameter_columns or chosen
        columns = {**({self._metric: self._metric} if self._metric else {}), **self._metric_columns}
        columns = {key: heading for key, heading in columns.items() if any(_has(t, key) for t in shown)}
        headings = ["Trial name", "status", "loc", *parameters.values(), *columns.values()]
        rows = [
            [
                trial.name,
                trial.status,
                f"{trial.pid}" if trial.pid else "",
                *(text(trial.evaluated_params.get(key, lookup(trial.config, key))) for key in parameters),
                *(text(lookup(trial.last_result, key)) for key in columns),
            ]
            for trial in shown
        ]
        return headings, rows, len(trials) - len(shown)

    def _chosen(self, trials: Sequence[Trial]) -> list[Trial]:
        """Running ones first, then by metric or newest first; at most so many rows."""
        if len(trials) <= self._max_rows and not self._sort:
            return list(trials)
        running = [trial for trial in trials if trial.status == RUNNING]
        others = [trial for trial in trials if trial.status != RUNNING]
        if self._metric:
            sign = -1 if self._mode == "max" else 1
            others.sort(key=lambda trial: _sortable(trial, self._metric, sign))
        else:
            others.reverse()
        return [*running, *others][: self._max_rows]

    def summary(self, trials: Sequence[Trial], status: Mapping[str, Any]) -> list[str]:
        """The lines above the trials."""
        counts = Counter(trial.status for trial in trials)
        states = ", ".join(f"{counts[state]} {state}" for state in _ORDER if counts[state])
        return [
            "== Status ==",
            f"Using {_scheduler_words(status['scheduler'])}",
            f"Resources requested: {_used(status, 'CPU')} CPUs, {_used(status, 'GPU')} GPUs",
            f"Result logdir: {_home(status['directory'])}",
            f"Number of trials: {len(trials)} ({states})" if len(trials) > _FEW else "",
        ]

    def errors(self, trials: Sequence[Trial]) -> list[str]:
        """A line for each failure: name, last line of the traceback, error.txt."""
        failed = [trial for trial in trials if trial.status == ERROR]
        lines = [f"- {trial.name}: {trial.error.strip().splitlines()[-1]} ({trial.error_file})" for trial in failed]
        return ["Failed trials:", *lines[: self._max_errors]] if failed else []


class CLIReporter(TuneReporterBase):
    """Plain text: the lines of 2018 for few trials, a table for many."""

    def report(self, trials, done, *system) -> None:
        print(self.text(trials, system[0]), flush=True)

    def text(self, trials: Sequence[Trial], status: Mapping[str, Any]) -> str:
        """The report."""
        lines = [line for line in self.summary(trials, status) if line]
        if len(trials) <= _FEW and self._parameter_columns is None:
            for state in _ORDER:
                of_state = [trial for trial in trials if trial.status == state]
                if of_state:
                    lines.append(f"{state} trials:")
                    width = max(len(trial.name) for trial in of_state) + 1
                    lines += [f"- {trial.name + ':':<{width}}    {self._state(trial)}" for trial in of_state]
        else:
            headings, rows, left_out = self.rows(trials)
            lines += _plain_table(headings, rows)
            lines += [f"... {left_out} more trials not shown"] if left_out else []
        return "\n".join([*lines, *self.errors(trials), ""])

    def _state(self, trial: Trial) -> str:
        """ "RUNNING [pid=21940], 16 s, 4013 ts, 22 rew"."""
        parts = [f"{trial.status} [pid={trial.pid}]" if trial.pid else trial.status]
        result = trial.last_result
        for key, unit in (("time_total_s", "s"), ("training_iteration", "iter"), ("timesteps_total", "ts"),
                          ("episode_reward_mean", "rew"), ("mean_loss", "loss"), ("mean_accuracy", "acc")):  # fmt: skip
            value = result.get(key)
            if _is_number(value):
                parts.append(f"{value:.0f} {unit}" if key == "time_total_s" else f"{value:.3g} {unit}"
                             if isinstance(value, float) else f"{value} {unit}")  # fmt: skip
        if self._metric and self._metric not in _DEFAULT_COLUMNS and _has(trial, self._metric):
            parts.append(f"{self._metric}={text(lookup(result, self._metric))}")
        return ", ".join(parts)


class LiveReporter(TuneReporterBase):
    """A table on the terminal that is drawn anew, and stays when the experiment ends."""

    def __init__(self, **more):
        super().__init__(**{"max_report_frequency": 0.5, **more})
        self._live = None

    def report(self, trials, done, *system) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(auto_refresh=False, vertical_overflow="crop")
            self._live.start()
        self._live.update(self.render(trials, system[0]), refresh=True)
        if done:
            self._live.stop()
            self._live = None

    def render(self, trials: Sequence[Trial], status: Mapping[str, Any]):
        """What is on the screen."""
        from rich.console import Group
        from rich.markup import escape
        from rich.table import Table

        headings, rows, left_out = self.rows(trials)
        table = Table(*map(escape, headings), box=None, header_style="bold", pad_edge=False)
        for row in rows:
            table.add_row(*map(escape, row))
        lines = [line for line in self.summary(trials, status)[1:] if line]
        lines += [f"... {left_out} more trials not shown"] if left_out else []
        return Group(table, *map(escape, lines), *map(escape, self.errors(trials)))


class JupyterNotebookReporter(TuneReporterBase):
    """An HTML table that takes the place of the one before.

    Args:
        overwrite: replace the cell's output; False: add below.
    """

    def __init__(self, overwrite: bool = True, **more):
        super().__init__(**more)
        self._overwrite = overwrite

    def report(self, trials, done, *system) -> None:
        from IPython.display import HTML, clear_output, display

        if self._overwrite:
            clear_output(wait=True)
        display(HTML(self.html(trials, system[0])))

    def html(self, trials: Sequence[Trial], status: Mapping[str, Any]) -> str:
        """The page."""
        import html

        headings, rows, left_out = self.rows(trials)
        head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        above = "<br>".join(html.escape(line) for line in self.summary(trials, status)[1:] if line)
        more = f"<p>... {left_out} more trials not shown</p>" if left_out else ""
        below = "<br>".join(map(html.escape, self.errors(trials)))
        return f"<div>{above}</div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}{below}"


def make_reporter(given, verbose: int | None, metric: str | None, mode: str | None) -> ProgressReporter | None:
    """The reporter that was given, or the right one for where this runs; None for verbose=0."""
    if verbose == 0:
        return None
    if given is None:
        given = JupyterNotebookReporter() if _in_notebook() else LiveReporter() if _on_terminal() else CLIReporter(
            max_report_frequency=30.0 if verbose in (None, 1) else 5.0)  # fmt: skip
    if hasattr(given, "set_objective"):
        given.set_objective(metric, mode)
    return given


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _on_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def text(value) -> str:
    """A value as a cell."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return getattr(value, "__name__", None) or str(value)


def _plain_table(headings: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [headings, *rows]]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def _headings(given) -> dict[str, str]:
    return dict(given) if isinstance(given, Mapping) else {key: key for key in given}


def _has(trial: Trial, key: str) -> bool:
    return lookup(trial.last_result, key) is not None


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _sortable(trial: Trial, metric: str, sign: int) -> float:
    value = lookup(trial.last_result, metric)
    return sign * value if _is_number(value) else math.inf


def _scheduler_words(name: str) -> str:
    return "FIFO scheduling algorithm." if name == "FIFOScheduler" else name


def _used(status: Mapping[str, Any], name: str) -> str:
    return f"{status['used'].get(name, 0):g}/{status['total'].get(name, 0):g}"


def _home(path: str) -> str:
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if home != "/" and path.startswith(home + os.sep) else path
