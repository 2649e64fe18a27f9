"""Reports of an experiment: a live table on a terminal, plain lines elsewhere, an HTML table in Jupyter.

Plain text looks like Ray's in 2018 (`== Status ==`, a line for each trial) while there are few trials; with many
trials it shows the running ones and the best. Reporters look at trials only when they report, at most every few
seconds. The intervals of plain text grow, so that a day's log stays readable.
"""

import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from rllib.notices import log_unused_arguments, why_raised
from rllib.progress import can_redraw, in_notebook
from rllib.runs.entries import is_number, lookup, numbers_of_seeds
from rllib.tune.experiment.callbacks import Callback
from rllib.tune.experiment.trial import Trial
from rllib.tune.objectives import Metric, Mode, checked_objective, is_several, names, pairs, pareto_front
from rllib.tune.states import ERROR, PAUSED, PENDING, RUNNING, TERMINATED

_ORDER = (PENDING, RUNNING, PAUSED, TERMINATED, ERROR)
_DEFAULT_COLUMNS = {
    "mean_accuracy": "acc",
    "mean_loss": "loss",
    "training_iteration": "iter",
    "time_total_s": "total time (s)",
    "timesteps_total": "ts",
    "episode_reward_mean": "reward",
}
# Keys of every result, which do not say how good a trial is.
AUTOMATIC_KEYS = frozenset((
    "training_iteration", "time_this_iter_s", "time_total_s", "time_since_restore", "iterations_since_restore",
    "timesteps_since_restore", "timesteps_total", "timesteps_this_iter", "episodes_total", "episodes_this_iter", "done",
    "timestamp", "date", "pid", "hostname", "node_ip", "trial_id", "experiment_tag", "config", "should_checkpoint",
))  # fmt: skip
_QUALITIES = ("mean_accuracy", "mean_loss", "episode_reward_mean")
_MOST_OWN_METRICS = 3
# Largest number of trials of the Pareto front that are named.
_MOST_ON_FRONT = 10
_FEW = 20
_LONGEST_INTERVAL_S = 60.0
# Largest ratio of numbers that are written with the same number of decimals.
_WIDEST_RATIO = 1e4
# Columns that a narrow terminal leaves out first; then parameters, from the right.
_DISPENSABLE = ("loc", "ts", "total time (s)", "iter")
_COLOURS = {RUNNING: "cyan", TERMINATED: "green", ERROR: "bold red", PAUSED: "yellow", PENDING: "dim"}


class ProgressReporter:
    """Base of reporters: a subclass defines `should_report` and `report`."""

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """Whether a report is due; `done`: the experiment has ended."""
        return True

    def report(self, trials: Sequence[Trial], done: bool, *system: Any) -> None:
        """Shows the trials; `system` is a dict with scheduler, used, total, directory and elapsed_s."""
        raise NotImplementedError


class TuneReporterBase(ProgressReporter):
    """Columns and rows of a table of trials, and the time between two reports.

    Args:
        metric_columns: result keys to show, or {key: heading}.
        parameter_columns: parameters to show, or {path: heading}; all by default.
        max_progress_rows: largest number of rows of the table.
        max_error_rows: largest number of failures that are named.
        max_report_frequency: seconds between reports.
        sort_by_metric: whether the best trials come first.
        metric, mode: by which trials are compared; lists for several metrics, whose Pareto front is shown.
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
        metric: Metric | None = None,
        mode: Mode | None = None,
        print_intermediate_tables: bool | None = None,
    ):
        reason = "max_report_frequency says how often tables are printed"
        log_unused_arguments(type(self).__name__, reason, print_intermediate_tables=print_intermediate_tables)
        self._metric_columns = _headings(metric_columns) if metric_columns else dict(_DEFAULT_COLUMNS)
        self._metrics_given = bool(metric_columns)
        self._parameter_columns = _headings(parameter_columns) if parameter_columns else None
        self._max_rows, self._max_errors = max_progress_rows, max_error_rows
        self._interval_s, self._sort = max_report_frequency, sort_by_metric
        self._given = self._metric, self._mode = checked_objective(metric, mode)
        self._reported_at, self._began, self._growth = -math.inf, None, 0.0

    def set_objective(self, metric: Metric | None, mode: Mode | None) -> None:
        """Begins an experiment: sets its metric and mode, unless the reporter has been made with its own."""
        self._metric, self._mode = self._given
        self._reported_at, self._began = -math.inf, None
        if self._metric is None or not (is_several(self._metric) or is_several(metric)):
            self._metric, self._mode = self._metric or metric, self._mode or mode or "max"
        else:
            self._mode = self._mode or "max"

    def slow_down(self, growth: float = 0.1) -> None:
        """Makes the time between two reports grow: to this share of the elapsed time, at most a minute."""
        self._growth = growth

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Shows one more result key."""
        self._metric_columns[metric] = representation or metric

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Shows one more parameter."""
        self._parameter_columns = {**(self._parameter_columns or {}), parameter: representation or parameter}

    def should_report(self, trials, done=False) -> bool:
        now = time.monotonic()
        self._began = now if self._began is None else self._began
        interval = max(self._interval_s, min(_LONGEST_INTERVAL_S, self._growth * (now - self._began)))
        if not done and now - self._reported_at < interval:
            return False
        self._reported_at = now
        return True

    def rows(self, trials: Sequence[Trial], most: int | None = None) -> tuple[list[str], list[list[str]], int]:
        """Headings, rows of the most interesting trials (at most `most`), and the number of other trials."""
        shown = self._chosen(trials, min(self._max_rows, most or self._max_rows))
        parameters = self._parameter_columns or {key: key for trial in shown for key in trial.evaluated_params}
        metrics = {**{name: name for name in names(self._metric)}, **self._metric_columns}
        metrics |= {key: key for key in self._own_metrics(shown)}
        metrics = {key: heading for key, heading in metrics.items() if any(_has(t, key) for t in shown)}
        named = all(key in parameters for trial in shown for key in trial.evaluated_params)
        columns = [
            ("Trial name", [_short_name(trial) if named else trial.name for trial in shown]),
            ("status", [trial.status for trial in shown]),
        ]
        if any(trial.pid for trial in shown):
            columns.append(("loc", [f"{trial.pid}" if trial.pid else "" for trial in shown]))
        for key, heading in parameters.items():
            values = [trial.evaluated_params.get(key, lookup(trial.config, key)) for trial in shown]
            columns.append((heading, [text(value) for value in values]))
        for key, heading in metrics.items():
            columns.append((heading, _aligned([lookup(trial.last_result, key) for trial in shown])))
            if key in names(self._metric) and any(spreads := [_spread(trial, key) for trial in shown]):
                columns.append(("of seeds", spreads))
        if is_several(self._metric):
            front = self._front(trials)
            columns.append(("front", ["*" if trial in front else "" for trial in shown]))
        headings, cells = zip(*columns)
        return list(headings), list(map(list, zip(*cells))), len(trials) - len(shown)

    def _own_metrics(self, trials: Sequence[Trial]) -> list[str]:
        """Keys of other numbers that trials report, if none of the usual ones says how well they do."""
        shown = (*names(self._metric), *_QUALITIES)
        if self._metrics_given or any(key and _has(trial, key) for key in shown for trial in trials):
            return []
        own = {key: None for trial in trials for key, value in trial.last_result.items()
               if key not in AUTOMATIC_KEYS and is_number(value)}  # fmt: skip
        return list(own)[:_MOST_OWN_METRICS]

    def _chosen(self, trials: Sequence[Trial], most: int) -> list[Trial]:
        """Running trials first, then by metric or newest first."""
        if len(trials) <= most and not self._sort:
            return list(trials)
        running = [trial for trial in trials if trial.status == RUNNING]
        others = [trial for trial in trials if trial.status != RUNNING]
        if is_several(self._metric):
            front = self._front(trials)
            others.sort(key=lambda trial: (trial not in front, self._rank(trial)))
        elif self._metric:
            others.sort(key=self._rank)
        else:
            others.reverse()
        return [*running, *others][:most]

    def _rank(self, trial: Trial) -> float:
        """Lowest for the best trial by the metric, or by the first of several; infinite without a result."""
        metric, mode = pairs(self._metric, self._mode)[0]
        value = lookup(trial.last_result, metric)
        if not is_number(value):
            return math.inf
        return -value if mode == "max" else value

    def _front(self, trials: Sequence[Trial]) -> list[Trial]:
        """The trials on the Pareto front of several metrics, the best by the first one first."""
        values = [(trial, [lookup(trial.last_result, name) for name in self._metric]) for trial in trials]
        having = [(trial, each) for trial, each in values if all(is_number(v) and math.isfinite(v) for v in each)]
        front = [having[index][0] for index in pareto_front([each for _, each in having], self._mode)]
        return sorted(front, key=self._rank)

    def summary(self, trials: Sequence[Trial], status: Mapping[str, Any]) -> list[str]:
        """The lines above the trials."""
        requested = f"Resources requested: {_used(status, 'CPU')} CPUs, {_used(status, 'GPU')} GPUs"
        return [
            "== Status ==",
            f"Using {'FIFO scheduling algorithm.' if status['scheduler'] == 'FIFOScheduler' else status['scheduler']}",
            *([] if all(trial.is_finished for trial in trials) else [requested]),
            f"Result logdir: {_home(status['directory'])}",
            *([f"Number of trials: {len(trials)} ({_states(trials)})"] if len(trials) > _FEW else []),
        ]

    def best(self, trials: Sequence[Trial], label: str = "Current best trial") -> list[str]:
        """Lines that name the best trial, or the Pareto front, with parameters; [] without a metric or a result."""
        if not self._metric:
            return []
        if not is_several(self._metric):
            having = [trial for trial in trials if math.isfinite(self._rank(trial))]
            return [f"{label}: {self._described(min(having, key=self._rank))}"] if having else []
        front = self._front(trials)
        more = [f"... {len(front) - _MOST_ON_FRONT} more"] if len(front) > _MOST_ON_FRONT else []
        lines = [f"- {self._described(trial)}" for trial in front[:_MOST_ON_FRONT]]
        return [f"Pareto front, {len(front)} of {len(trials)} trials:", *lines, *more] if front else []

    def _described(self, trial: Trial) -> str:
        """Name, metrics and parameters of a trial."""
        reached = ", ".join(f"{name}={text(lookup(trial.last_result, name))}" for name in names(self._metric))
        chosen = ", ".join(f"{key}={text(value)}" for key, value in trial.evaluated_params.items())
        return f"{_short_name(trial)} with {reached}" + (f" and {chosen}" if chosen else "")

    def errors(self, trials: Sequence[Trial], most: int | None = None) -> list[str]:
        """A line for each failure: name, exception, error.txt."""
        most = min(self._max_errors, most or self._max_errors)
        failed = [trial for trial in trials if trial.status == ERROR]
        lines = [f"- {trial.name}: {why_raised(trial.error)} ({trial.error_file})" for trial in failed]
        more = [f"... {len(failed) - most} more failed"] if len(failed) > most else []
        return ["Failed trials:", *lines[:most], *more] if failed else []


class CLIReporter(TuneReporterBase):
    """Plain text: a line for each of few trials, a table of many."""

    def report(self, trials, done, *system) -> None:
        print(self.text(trials, system[0]), flush=True)

    def text(self, trials: Sequence[Trial], status: Mapping[str, Any]) -> str:
        lines = self.summary(trials, status)
        if len(trials) <= _FEW and self._parameter_columns is None:
            width = max((len(trial.name) for trial in trials), default=0) + 1
            own = self._own_metrics(trials)
            for state in _ORDER:
                of_state = [trial for trial in trials if trial.status == state]
                lines += [f"{state} trials:"] if of_state else []
                lines += [f"- {trial.name + ':':<{width}}    {self._state(trial, own)}" for trial in of_state]
        else:
            headings, rows, left_out = self.rows(trials)
            lines += _plain_table(headings, rows)
            lines += [f"... {left_out} more trials not shown"] if left_out else []
        lines += self.best(trials) if len(trials) > 1 else []
        return "\n".join([*lines, *self.errors(trials), ""])

    def _state(self, trial: Trial, own: Sequence[str]) -> str:
        """ "RUNNING [pid=21940], 16 s, 4013 ts, 22 rew"."""
        parts = [f"{trial.status} [pid={trial.pid}]" if trial.pid else trial.status]
        result = trial.last_result
        for key, unit in (("time_total_s", "s"), ("training_iteration", "iter"), ("timesteps_total", "ts"),
                          ("episode_reward_mean", "rew"), ("mean_loss", "loss"), ("mean_accuracy", "acc")):  # fmt: skip
            value = result.get(key)
            if is_number(value):
                is_short = key != "time_total_s" and isinstance(value, float) and abs(value) < 1000
                parts.append(f"{value:.3g} {unit}" if is_short else f"{value:.0f} {unit}")
        own = [name for name in names(self._metric) if name not in _DEFAULT_COLUMNS and _has(trial, name)] or own
        parts += [f"{key}={text(lookup(result, key))}" for key in own if _has(trial, key)]
        spreads = [spread for name in names(self._metric) if (spread := _spread(trial, name))]
        parts += [f"seeds {' and '.join(spreads)}"] if spreads else []
        return ", ".join(parts)


def _spread(trial: Trial, metric: str) -> str:
    """The lowest and highest value of a metric over the seeds of a trial; "" if it has one seed."""
    values = [lookup(numbers, metric) for numbers in numbers_of_seeds(trial.last_result).values()]
    values = [value for value in values if is_number(value) and math.isfinite(value)]
    return f"{text(min(values))} to {text(max(values))}" if len(values) > 1 else ""


class LiveReporter(TuneReporterBase):
    """A table on the terminal that is redrawn, and stays when the experiment ends.

    Args:
        console: rich's; the terminal by default.
    """

    def __init__(self, console=None, **more):
        super().__init__(**{"max_report_frequency": 0.5, **more})
        self._live, self._console = None, console

    def report(self, trials, done, *system) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
            self._console = self._live.console
            self._live.start()
        self._live.update(self.render(trials, system[0], done), refresh=True)
        if done:
            self._live.stop()
            self._live = None

    def render(self, trials: Sequence[Trial], status: Mapping[str, Any], done: bool = False):
        """Content of the screen: a line about the experiment, the table, the best trial, failures."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        width, height = self._console.size
        failures = self.errors(trials, None if done else max(1, height // 8))
        headings, rows, left_out = self.rows(trials, max(1, height - 2 * len(failures) - 7))
        shown, lost = _fitting(headings, rows, width)
        table = Table(box=None, header_style="bold", pad_edge=False)
        for index in shown:
            is_number = _is_column_of_numbers([row[index] for row in rows])
            table.add_column(Text(_folded(headings[index])), justify="right" if is_number else "left",
                             no_wrap=True, overflow="ellipsis")  # fmt: skip
        for row in rows:
            table.add_row(*(Text(row[index], _COLOURS.get(row[index], "") if index == 1 else "") for index in shown))
        best = self.best(trials, "Best" if done else "Best so far")
        return Group(
            Text(self._headline(trials, status, done)),
            Text(f"Results in {_home(status['directory'])}", "dim"),
            table,
            *([Text(f"... {left_out} more trials not shown", "dim")] if left_out else []),
            *([Text(f"a wider terminal also shows: {', '.join(lost)}", "dim")] if lost else []),
            *(Text(line, "bold") for line in best[: None if done else 1]),
            *(Text(line, "red") for line in failures),
        )

    def _headline(self, trials: Sequence[Trial], status: Mapping[str, Any], done: bool) -> str:
        """ "Tune: 3 TERMINATED, 1 RUNNING of 4 trials, 2/2 CPUs, 0:01:22"."""
        states = _states(trials) or "no trials yet"
        gpus = "" if not status["total"].get("GPU") else f", {_used(status, 'GPU')} GPUs"
        scheduler = "" if status["scheduler"] == "FIFOScheduler" else f", {status['scheduler']}"
        used = "" if done else f", {_used(status, 'CPU')} CPUs{gpus}"
        return f"Tune: {states}{used}, {timedelta(seconds=int(status['elapsed_s']))}{scheduler}"


class JupyterNotebookReporter(TuneReporterBase):
    """An HTML table that replaces the previous one; other output of the cell stays.

    Args:
        overwrite: False: each table is added below the others.
    """

    def __init__(self, overwrite: bool = True, **more):
        super().__init__(**{"max_report_frequency": 1.0, **more})
        self._overwrite, self._shown = overwrite, None

    def report(self, trials, done, *system) -> None:
        from IPython.display import HTML, display

        page = HTML(self.html(trials, system[0]))
        if self._overwrite and self._shown is not None:
            self._shown.update(page)
        else:
            self._shown = display(page, display_id=True)
        if done:
            self._shown = None

    def html(self, trials: Sequence[Trial], status: Mapping[str, Any]) -> str:
        import html

        def paragraph(lines: Sequence[str], style: str = "") -> str:
            return f"<div{style}>{'<br>'.join(map(html.escape, lines))}</div>" if lines else ""

        headings, rows, left_out = self.rows(trials)
        sides = ["right" if _is_column_of_numbers(cells) else "left" for cells in zip(*rows)] or ["left"] * 3
        head, *body = (
            "<tr>" + "".join(f'<{tag} style="text-align:{side}">{html.escape(cell)}</{tag}>'
                             for cell, side in zip(row, sides)) + "</tr>"
            for tag, row in [("th", headings), *(("td", row) for row in rows)]
        )  # fmt: skip
        below = [f"... {left_out} more trials not shown"] if left_out else []
        below += self.best(trials)
        return (
            paragraph(self.summary(trials, status)[1:])
            + f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>"
            + paragraph(below)
            + paragraph(self.errors(trials), ' style="color:#b00020"')
        )


class TrialEndLines(Callback):
    """A line for each trial that ends, for verbose=2."""

    def on_trial_complete(self, iteration, trials, trial, **info) -> None:
        self._print(trial, trial.stopped_by or "done")

    def on_trial_error(self, iteration, trials, trial, **info) -> None:
        self._print(trial, why_raised(trial.error))

    @staticmethod
    def _print(trial: Trial, why: str) -> None:
        result = trial.last_result
        numbers = {key: result[key] for key in result if is_number(result[key])
                   and key not in AUTOMATIC_KEYS - {"training_iteration"}}  # fmt: skip
        shown = {key: numbers[key] for key in (*_QUALITIES, *numbers) if key in numbers}
        listed = ", ".join(f"{key}={text(value)}" for key, value in list(shown.items())[: _MOST_OWN_METRICS + 1])
        print(f"{trial.name}: {trial.status} ({why})" + (f", {listed}" if listed else ""), flush=True)


def make_reporter(given, verbose: int | None, metric: Metric | None, mode: Mode | None) -> ProgressReporter | None:
    """The given reporter, or one for notebook, terminal or file; None for verbose=0."""
    if verbose == 0:
        return None
    if given is None:
        if in_notebook():
            given = JupyterNotebookReporter()
        elif can_redraw():
            given = LiveReporter()
        else:
            given = CLIReporter()
            given.slow_down()
    if hasattr(given, "set_objective"):
        given.set_objective(metric, mode)
    return given


def text(value) -> str:
    """A value as a cell."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.6g}"
    return getattr(value, "__name__", None) or str(value)


def _aligned(values: Sequence) -> list[str]:
    """A column's values as cells, floats with the same number of decimals if their sizes allow it."""
    floats = [abs(v) for v in values if isinstance(v, float) and math.isfinite(v) and v]
    if not floats or max(floats) / min(floats) > _WIDEST_RATIO or not 1e-2 < max(floats) < 1e9:
        return [text(value) for value in values]
    decimals = min(4, max(1, 3 - math.floor(math.log10(max(floats)))))
    return [f"{v:.{decimals}f}" if isinstance(v, float) else text(v) for v in values]


def _is_column_of_numbers(cells: Sequence[str]) -> bool:
    """Whether all cells with content are numbers."""
    try:
        return bool([float(cell) for cell in cells if cell])
    except ValueError:
        return False


def _plain_table(headings: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    right = [_is_column_of_numbers([row[i] for row in rows]) for i in range(len(headings))]
    lines = [
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right)).rstrip()
        for row in [headings, *rows]
    ]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def _fitting(headings: list[str], rows: list[list[str]], width: int) -> tuple[list[int], list[str]]:
    """Indices of the columns that fit side by side, and the headings of the other ones."""
    widths = [max(len(part) for cell in column for part in _folded(cell).split("\n"))
              for column in zip(headings, *rows)]  # fmt: skip
    shown, lost = list(range(len(headings))), []
    at_need = [headings.index(name) for name in _DISPENSABLE if name in headings]
    at_need += [i for i in reversed(range(2, len(headings))) if i not in at_need]
    while sum(widths[i] + 2 for i in shown) - 2 > width and at_need:  # two spaces between columns
        shown.remove(at_need[0])
        lost.append(headings[at_need.pop(0)])
    return shown, lost


def _folded(heading: str) -> str:
    """A long heading in two lines, above narrow numbers."""
    return heading.replace("total time (s)", "total\ntime (s)")


def _short_name(trial: Trial) -> str:
    """A trial's name without the chosen parameters, which have their own columns."""
    return trial.custom_name or f"{trial.identifier}_{trial.index}"


def _states(trials: Sequence[Trial]) -> str:
    """ "1 RUNNING, 2 TERMINATED"."""
    counts = Counter(trial.status for trial in trials)
    return ", ".join(f"{counts[state]} {state}" for state in _ORDER if counts[state])


def _headings(given) -> dict[str, str]:
    return dict(given) if isinstance(given, Mapping) else {key: key for key in given}


def _has(trial: Trial, key: str) -> bool:
    return lookup(trial.last_result, key) is not None


def _used(status: Mapping[str, Any], name: str) -> str:
    return f"{status['used'].get(name, 0):g}/{status['total'].get(name, 0):g}"


def _home(path: str) -> str:
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if home != "/" and path.startswith(home + os.sep) else path
