"""Results of an experiment, also from its directory alone: ExperimentAnalysis (tune.run), ResultGrid (Tuner.fit)."""

import math
import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rllib.compat.names import absent
from rllib.did_you_mean import did_you_mean, explains
from rllib.errors import NoBestTrialError
from rllib.extras import install_hint
from rllib.progress import counted
from rllib.result import as_result
from rllib.runs.entries import flatten, is_number, lookup, settings_by_path
from rllib.runs.files import read_results
from rllib.storage.local_path import local_path
from rllib.tune.checks import no_number
from rllib.tune.experiment.directory import journal_file, read_journal
from rllib.tune.experiment.trial import Trial
from rllib.tune.objectives import Metric, Mode, checked_objective, described, is_several, pairs, pareto_front
from rllib.tune.reporting.plots import plot
from rllib.tune.reporting.runs import read_runs
from rllib.tune.states import ERROR, TERMINATED
from rllib.tune.trainables.checkpoint import Checkpoint

_SCOPES = ("last", "all", "avg", "last-5-avg", "last-10-avg")


@explains(absent.ANALYSIS)
class ExperimentAnalysis:
    """The trials of an experiment, to be compared.

    Args:
        experiment_path: its directory (or its journal), which is read without running code. None: `trials` are given.
        trials: trials of an experiment that was just run.
        default_metric, default_mode: for methods that are called without them; the mode is "max" by default. Lists of
            both, where trials were compared by several metrics.

    Raises:
        ValueError: if there is no experiment in the directory.
    """

    def __init__(
        self,
        experiment_path: str | Path | None = None,
        trials: Sequence[Trial] | None = None,
        default_metric: Metric | None = None,
        default_mode: Mode | None = None,
    ):
        path = local_path(experiment_path) if experiment_path is not None or trials is None else None
        if trials is None:
            file = path if path.is_file() else journal_file(path)
            path = file.parent
            header, trials = read_journal(file)
            own, own_mode = header.get("metric"), header.get("mode")
            if default_metric in (None, own) or not (is_several(default_metric) or is_several(own)):
                default_metric, default_mode = default_metric or own, default_mode or own_mode
        self.trials: list[Trial] = list(trials)
        self.default_metric, self.default_mode = checked_objective(default_metric, default_mode)
        self._path = path

    @property
    def experiment_path(self) -> str | None:
        """The experiment's directory."""
        return str(self._path) if self._path else None

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """Trial id -> last result."""
        return {trial.trial_id: trial.last_result for trial in self.trials}

    def stats(self) -> dict[str, Any]:
        """Directory, number of trials, and number of trials by status."""
        counts = dict(Counter(trial.status for trial in self.trials))
        return {"experiment_path": self.experiment_path, "num_trials": len(self.trials), "status": counts}

    # ------------------------------------------------------------------ the best

    @property
    def best_trial(self) -> Trial:
        """The best trial by its last result."""
        return self.get_best_trial()

    @property
    def best_trials(self) -> list[Trial]:
        """The trials on the Pareto front by their last results; see `get_best_trials`."""
        return self.get_best_trials()

    @property
    def best_config(self) -> dict[str, Any]:
        return self.get_best_config()

    @property
    def best_result(self) -> dict[str, Any]:
        """The last result of the best trial."""
        return self.get_best_trial().last_result

    @property
    def best_logdir(self) -> str:
        return self.get_best_logdir()

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The best checkpoint of the best trial; None without checkpoints."""
        return self.get_best_checkpoint(self.get_best_trial())

    @property
    def best_dataframe(self):
        """All results of the best trial."""
        return _frame_of(self.get_best_trial().logdir)

    @property
    def best_result_df(self):
        """The best trial's row of `dataframe`."""
        return _pandas().DataFrame([_row(self.get_best_trial())])

    def get_best_trial(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Trial:
        """The trial that is best by this metric.

        An experiment's only trial is the best even without a metric, or without a result.

        Args:
            metric: "a/b" path; the experiment's own by default.
            mode: "max" or "min"; the experiment's own by default, else "max".
            scope: compare the "last" values, the best of "all", or "avg", "last-5-avg", "last-10-avg".
            filter_nan_and_inf: leave out trials whose value is NaN or infinite. False: infinite values are compared,
                and a trial with NaN is chosen only if all have NaN.

        Raises:
            ValueError: if no metric is known, or mode or scope is invalid.
            NoBestTrialError: if the experiment has several metrics, and none of them is given; if no trial has the
                metric (the message lists the existing ones), or a finite value of it, or if it is no number; also a
                ValueError and a RuntimeError.
        """
        _check_scope(scope)
        if len(self.trials) == 1 and not ((metric or self.default_metric) and self.trials[0].last_result):
            return self.trials[0]
        metric, mode = self._objective(metric, mode)
        statistic = mode if scope == "all" else scope
        values = [(trial.metric_analysis[metric][statistic], trial) for trial in self._trials_with(metric)]
        numbers = [pair for pair in values if is_number(pair[0])]
        if filter_nan_and_inf:
            numbers = [pair for pair in numbers if math.isfinite(pair[0])]
        if not numbers and filter_nan_and_inf:
            raise NoBestTrialError(
                f"{metric} is NaN or infinite in the {scope} results of every trial that has it, so none is the best. "
                "filter_nan_and_inf=False compares infinite values, too."
            )
        return (max if mode == "max" else min)(numbers or values[:1], key=lambda pair: pair[0])[1]

    def get_best_trials(
        self, metric: Metric | None = None, mode: Mode | None = None, scope: str = "last"
    ) -> list[Trial]:
        """The Pareto front: trials of which no other is as good by all metrics and better by one.

        With a single metric, these are the trials that share its best value.

        Args:
            metric, mode: as for `tune.run`; the experiment's own by default.
            scope: as for `get_best_trial`.

        Returns:
            the best by the first metric first. Trials in which a metric is missing, NaN or infinite are left out.

        Raises:
            ValueError: as `get_best_trial`.
            NoBestTrialError: if no trial has finite values of all metrics.
        """
        _check_scope(scope)
        if metric is None and is_several(self.default_metric):
            metric, mode = self.default_metric, mode or self.default_mode
        elif not is_several(metric):
            metric, mode = self._objective(metric, mode)
        objectives = pairs(*checked_objective(metric, mode))
        for name, _ in objectives:
            self._trials_with(name)  # raises
        having = [(trial, [_statistic(trial, *one, scope) for one in objectives]) for trial in self.trials]
        having = [(trial, values) for trial, values in having if all(map(_is_finite, values))]
        if not having:
            names = " and ".join(name for name, _ in objectives)
            raise NoBestTrialError(f"no trial has finite {scope} values of {names}, so none is the best.")
        modes = [each for _, each in objectives]
        front = [having[index] for index in pareto_front([values for _, values in having], modes)]
        front.sort(key=lambda pair: pair[1][0], reverse=modes[0] == "max")
        return [trial for trial, _ in front]

    def get_best_config(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> dict:
        """Configuration of the best trial; see `get_best_trial`."""
        return self.get_best_trial(metric, mode, scope).config

    def get_best_logdir(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> str:
        """Directory of the best trial; see `get_best_trial`."""
        return self.get_best_trial(metric, mode, scope).logdir

    def get_best_checkpoint(
        self, trial: Trial | str | None = None, metric: str | None = None, mode: str | None = None
    ) -> Checkpoint | None:
        """The checkpoint of a trial at which the metric was best; the newest, if no checkpoint has the metric.

        Args:
            trial: the trial, its directory, id or name; the best one by default.
        """
        trial = self._trial(trial) if trial is not None else self.get_best_trial(metric, mode)
        if not trial.checkpoints:
            return None
        best = trial.checkpoints[-1]
        if metric or (self.default_metric and not is_several(self.default_metric)):
            metric, mode = self._objective(metric, mode)
            known = [c for c in trial.checkpoints if is_number(c.metrics.get(metric))]
            if known:
                best = (max if mode == "max" else min)(known, key=lambda c: c.metrics[metric])
        return Checkpoint(trial.checkpoint_path(best))

    def get_last_checkpoint(self, trial: Trial | str | None = None) -> Checkpoint | None:
        """The newest checkpoint of a trial."""
        trial = self._trial(trial) if trial is not None else self.get_best_trial()
        return Checkpoint(trial.checkpoint_path(trial.checkpoint)) if trial.checkpoint else None

    def get_trial_checkpoints_paths(self, trial: Trial | str, metric: str | None = None) -> list[tuple[str, Any]]:
        """(path, metric at that time) of every checkpoint; the training_iteration if no metric is known."""
        trial, metric = self._trial(trial), metric or self._only_metric or "training_iteration"
        return [
            (trial.checkpoint_path(c), lookup({"training_iteration": c.iteration, **c.metrics}, metric))
            for c in trial.checkpoints
        ]

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """Directory -> configuration; with `prefix` its keys begin with "config/"."""
        configs = {trial.logdir: trial.config for trial in self.trials}
        if prefix:
            configs = {path: {f"config/{k}": v for k, v in config.items()} for path, config in configs.items()}
        return configs

    # ------------------------------------------------------------------ data frames

    def dataframe(self, metric: str | None = None, mode: str | None = None):
        """A pandas data frame: a row for each trial, its result and its configuration as "config/..." columns.

        Nested results and settings are columns by their "a/b" path; a trial without a result has its settings alone.

        Args:
            metric, mode: take the trial's best result by them instead of the last.

        Raises:
            ImportError: if pandas is not installed.
            ValueError: if one of metric and mode is given without the other, or no trial has the metric.
        """
        _pandas()
        if metric is None and mode is not None:
            raise ValueError(f"dataframe(mode={mode!r}) needs the metric by which a trial's best result is taken")
        if metric is not None:
            if mode not in ("max", "min"):
                raise ValueError(f'dataframe(metric={metric!r}) needs mode="max" or "min" as well, but got {mode!r}')
            self._trials_with(metric)
        return _pandas().DataFrame([_row(trial, metric, mode) for trial in self.trials])

    @property
    def results_df(self):
        """`dataframe()` with the trial's id as index, as in Ray."""
        return self.dataframe().set_index("trial_id")

    @property
    def trial_dataframes(self) -> dict[str, Any]:
        """Directory -> pandas data frame of all results of the trial."""
        return {trial.logdir: _frame_of(trial.logdir) for trial in self.trials}

    def fetch_trial_dataframes(self) -> dict[str, Any]:
        """`trial_dataframes` under its name before Ray 2.0."""
        return self.trial_dataframes

    def plot(
        self, path: str | Path | None = None, metric: Metric | None = None, mode: Mode | None = None, **more
    ) -> Path:
        """Draws learning curves, parallel coordinates, and the best value over trials or the Pareto front.

        Args:
            path: .png, .svg, .pdf or .html; experiment.html in the experiment's directory by default.
            metric, mode: the experiment's own by default.
            more: see plots.plot.

        Returns:
            the path of the file.
        """
        if metric is None and is_several(self.default_metric):
            metric, mode = self.default_metric, self.default_mode
        elif not is_several(metric):
            metric, mode = self._objective(metric, mode)
        return plot(read_runs(self.experiment_path), path or self._path / "experiment.html", metric, mode, **more)

    # ------------------------------------------------------------------ pieces

    @property
    def _only_metric(self) -> str | None:
        """The experiment's metric; None if it has several or none."""
        return None if is_several(self.default_metric) else self.default_metric

    def _objective(self, metric: str | None, mode: str | None) -> tuple[str, str]:
        if is_several(self.default_metric):
            if metric is None:
                raise NoBestTrialError(
                    f"trials were compared by several metrics, {described(self.default_metric, self.default_mode)}, so "
                    "no single one is the best. get_best_trials() returns the Pareto front (of a Tuner's results: "
                    f"get_best_results()); metric={self.default_metric[0]!r} compares by one of them."
                )
            mode = mode or dict(pairs(self.default_metric, self.default_mode)).get(metric)
        else:
            metric, mode = metric or self.default_metric, mode or self.default_mode
        if metric is None and mode is not None and any("_metric" in trial.metric_analysis for trial in self.trials):
            metric = "_metric"  # a bare number that trials report
        if metric is None:
            raise ValueError(
                "trials are compared by a metric, but none is given: use tune.run(..., metric='loss', mode='min'), or "
                "give metric here"
            )
        metric, mode = checked_objective(metric, mode)
        return metric, mode or "max"

    def _trials_with(self, metric: str) -> list[Trial]:
        having = [trial for trial in self.trials if metric in trial.metric_analysis]
        if not having:
            known = sorted({key for trial in self.trials for key in trial.metric_analysis})
            if not known:
                raise NoBestTrialError(f"no trial has reported anything, so none is the best by {metric}")
            for trial in self.trials:
                if (problem := no_number(trial.last_result, metric)) is not None:
                    raise NoBestTrialError(problem)
            hint = did_you_mean(metric, known)
            raise NoBestTrialError(f"no result has the metric {metric!r}.{hint} They have: {', '.join(known)}.")
        return having

    def _trial(self, given: Trial | str) -> Trial:
        if isinstance(given, Trial):
            return given
        for trial in self.trials:
            if given in (trial.logdir, trial.trial_id, trial.name):
                return trial
        raise ValueError(f"there is no trial {given!r}")

    def __len__(self) -> int:
        return len(self.trials)

    def __repr__(self):
        return f"ExperimentAnalysis({self.experiment_path}, {counted(len(self.trials), 'trial')})"


@explains(absent.ANALYSIS)
@dataclass(frozen=True)
class TrialResult:
    """Result of one trial in a ResultGrid.

    Attributes:
        metrics: the last result; None without results.
        config: the trial's configuration.
        checkpoint: the newest checkpoint; None without checkpoints.
        path: the trial's directory.
        error: the exception that ended it; None if it ended well.
        best_checkpoints: (checkpoint, its metrics), the oldest first.
    """

    metrics: dict[str, Any] | None
    config: dict[str, Any]
    checkpoint: Checkpoint | None
    path: str
    error: Exception | None
    best_checkpoints: list[tuple[Checkpoint, dict]]
    trial: Trial

    @classmethod
    def from_path(cls, path: str | Path) -> "TrialResult":
        """The result of a trial from its directory, whose experiment's journal is read without running code.

        Args:
            path: the trial's directory, in that of its experiment.

        Raises:
            RuntimeError: if there is no such directory.
            ValueError: if no experiment has a trial there.
        """
        place = local_path(path).resolve()
        if not place.is_dir():
            raise RuntimeError(f"there is no trial's directory {place}")
        for trial in ExperimentAnalysis(place.parent).trials:
            if Path(trial.logdir).resolve() == place:
                return _result_of(trial)
        raise ValueError(f"the experiment in {place.parent} has no trial in {place.name}")

    @property
    def log_dir(self) -> Path:
        """The trial's directory."""
        return Path(self.path)

    @property
    def metrics_dataframe(self):
        """All results of the trial, as a pandas data frame."""
        return _frame_of(self.path)

    def get_best_checkpoint(self, metric: str, mode: Mode) -> Checkpoint:
        """The checkpoint whose metrics are the best.

        Args:
            metric: result key, or an "a/b" path.
            mode: "max" or "min".

        Raises:
            RuntimeError: if no checkpoint has a number under this key.
            ValueError: for another mode.
        """
        if mode not in ("max", "min"):
            raise ValueError(f"mode={mode!r} must be 'max' or 'min'")
        values = [(as_result(metrics).get(metric), checkpoint) for checkpoint, metrics in self.best_checkpoints]
        found = [each for each in values if isinstance(each[0], int | float) and not math.isnan(each[0])]
        if not found:
            raise RuntimeError(f"no checkpoint of {self.path} has a number {metric!r} in its metrics")
        return (max if mode == "max" else min)(found, key=operator.itemgetter(0))[1]


# Ray's name.
Result = TrialResult


@explains(absent.ANALYSIS)
class ResultGrid:
    """The results of a Tuner, one for each trial.

    Args:
        analysis: of the experiment.
    """

    def __init__(self, analysis: ExperimentAnalysis):
        self._analysis = analysis

    @property
    def experiment_path(self) -> str | None:
        """The experiment's directory."""
        return self._analysis.experiment_path

    def get_best_result(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last", filter_nan_and_inf: bool = True
    ) -> TrialResult:
        """The result of the best trial; see ExperimentAnalysis.get_best_trial for arguments and errors."""
        return _result_of(self._analysis.get_best_trial(metric, mode, scope, filter_nan_and_inf))

    def get_best_results(
        self, metric: Metric | None = None, mode: Mode | None = None, scope: str = "last"
    ) -> list[TrialResult]:
        """Results of the trials on the Pareto front; arguments and errors as ExperimentAnalysis.get_best_trials."""
        return list(map(_result_of, self._analysis.get_best_trials(metric, mode, scope)))

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: str | None = None):
        """The data frame of `ExperimentAnalysis.dataframe`."""
        return self._analysis.dataframe(filter_metric, filter_mode)

    @property
    def errors(self) -> list[Exception]:
        """Exceptions of the trials that failed."""
        return [result.error for result in self if result.error is not None]

    @property
    def num_errors(self) -> int:
        """Number of trials that failed."""
        return sum(trial.status == ERROR for trial in self._analysis.trials)

    @property
    def num_terminated(self) -> int:
        """Number of trials that ended well."""
        return sum(trial.status == TERMINATED for trial in self._analysis.trials)

    def __len__(self) -> int:
        return len(self._analysis.trials)

    def __getitem__(self, index: int) -> TrialResult:
        return _result_of(self._analysis.trials[index])

    def __iter__(self) -> Iterator[TrialResult]:
        return map(_result_of, self._analysis.trials)

    def __repr__(self):
        return f"ResultGrid({self.experiment_path}, {counted(len(self), 'trial')}, {self.num_errors} failed)"


def _check_scope(scope: str) -> None:
    if scope not in _SCOPES:
        raise ValueError(f"scope must be one of {', '.join(_SCOPES)}, but got {scope!r}")


def _statistic(trial: Trial, metric: str, mode: str, scope: str):
    """The value of a metric by which a trial is compared; None if it is missing."""
    return trial.metric_analysis.get(metric, {}).get(mode if scope == "all" else scope)


def _is_finite(value) -> bool:
    return is_number(value) and math.isfinite(value)


def _result_of(trial: Trial) -> TrialResult:
    checkpoints = [(Checkpoint(trial.checkpoint_path(c)), c.metrics) for c in trial.checkpoints]
    newest = checkpoints[-1][0] if checkpoints else None
    error = None
    if trial.status == ERROR:  # without an exception in experiments that were read from files
        error = trial.exception if isinstance(trial.exception, Exception) else RuntimeError(trial.error)
    return TrialResult(trial.last_result or None, trial.config, newest, trial.logdir, error, checkpoints, trial)


def _row(trial: Trial, metric: str | None = None, mode: str | None = None) -> dict[str, Any]:
    result = trial.last_result
    if metric is not None:
        with_metric = [r for r in read_results(Path(trial.logdir)) if is_number(lookup(r, metric))]
        if with_metric:
            result = (max if mode == "max" else min)(with_metric, key=lambda r: lookup(r, metric))
    config = {f"config/{key}": value for key, value in settings_by_path(trial.config)}
    return {**_columns(result), "trial_id": trial.trial_id, **config, "logdir": trial.logdir}


def _frame_of(logdir: str):
    """All results of a trial."""
    return _pandas().DataFrame([_columns(result) for result in read_results(Path(logdir))])


def _columns(result: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a result in a data frame: "a/b" path -> value, with the names of later versions."""
    return dict(flatten(dict(as_result(result).by_all_names())))


def _pandas():
    try:
        import pandas
    except ImportError:
        raise ImportError(f"data frames need pandas: pip install pandas, or {install_hint('tune')}") from None
    return pandas
