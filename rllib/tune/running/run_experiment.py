"""`tune.run` and `tune.run_experiments`."""

import logging

from rllib.errors import TuneError
from rllib.progress import counted
from rllib.tune.experiment.spec import Experiment, ExperimentSpec, experiments_of, make_spec, takes_settings
from rllib.tune.experiment.trial import Trial
from rllib.tune.reporting.analysis import ExperimentAnalysis
from rllib.tune.running.build import check_spec, prepare
from rllib.tune.states import ERROR
from rllib.tune.trainables.resolve import resolve_trainable

logger = logging.getLogger(__name__)


@takes_settings(ExperimentSpec)
def run(run_or_experiment, **settings) -> ExperimentAnalysis:
    """Runs an experiment: trials of a trainable, with configurations from a search space.

    Args:
        run_or_experiment: name of an algorithm, Algorithm class or config, class Trainable, function, or Experiment.
        settings: by name, as listed under TuneConfig, RunConfig and ExperimentSpec. Arguments of other versions that
            have no effect here are accepted; unknown ones are a TypeError.

    Returns:
        ExperimentAnalysis, or the list of trials with `return_trials=True`.

    Raises:
        TuneError: if a trial has failed; ends with its traceback.
        ValueError, TypeError: for invalid arguments; before anything starts, where that is possible.
        UnschedulableError: if a trial can never fit.
        KeyboardInterrupt: after Ctrl-C; the experiment can be resumed.
    """
    spec = make_spec({"trainable": run_or_experiment, **settings}, "tune.run")
    analysis = run_spec(run_or_experiment.spec if isinstance(run_or_experiment, Experiment) else spec)
    return analysis.trials if spec.return_trials else analysis


def run_experiments(experiments, **settings) -> list[Trial]:
    """Runs experiments in sequence; returns all their trials.

    Args:
        experiments: {"name": {"run": ..., "env": ..., "stop": ..., "config": ...}}, an Experiment, or a list of them.
        settings: further arguments of `tune.run`, for all of them. With return_trials=False the analyses are returned.

    Raises:
        as `tune.run`, after all experiments are through: the first one's error.
    """
    return_trials = settings.pop("return_trials", True)
    specs = [make_spec(settings, "run_experiments", one.spec) for one in experiments_of(experiments)]
    for spec in specs:  # before the first one runs
        check_spec(spec, resolve_trainable(spec.trainable))
    analyses, failures = [], []
    for spec in specs:
        try:
            analyses.append(run_spec(spec))
        except TuneError as error:
            failures.append(error)
    if failures:
        raise failures[0]
    return [trial for analysis in analyses for trial in analysis.trials] if return_trials else analyses


def run_spec(spec: ExperimentSpec) -> ExperimentAnalysis:
    """Runs an experiment, or continues it."""
    runner, spec = prepare(spec)
    try:
        runner.run()
    except KeyboardInterrupt:
        if runner.interrupted:
            logger.warning(
                "interrupted; continue with tune.run(..., name=%r, resume=True), or look at it with "
                "tune.ExperimentAnalysis(%r)", runner.directory.path.name, str(runner.directory.path)
            )  # fmt: skip
        raise
    analysis = ExperimentAnalysis(runner.directory.path, runner.trials, spec.metric, spec.mode)
    if spec.raise_on_failed_trial:
        raise_for_failures(analysis)
    return analysis


def raise_for_failures(analysis: ExperimentAnalysis, with_traceback: bool = True) -> None:
    """Raises TuneError if a trial has failed; it ends with the first one's traceback, or its last words."""
    failed = [trial for trial in analysis.trials if trial.status == ERROR]
    if not failed:
        return
    names = ", ".join(trial.name for trial in failed[:5]) + (", ..." if len(failed) > 5 else "")
    first = failed[0]
    what = f"{len(failed)} of {counted(len(analysis.trials), 'trial')} failed: {names}."
    if not with_traceback:
        said = f"{type(first.exception).__name__}: {first.exception}" if first.exception else first.error
        raise TuneError(f"{what} The first failure, with its traceback in {first.error_file}: {said}")
    raise TuneError(
        f"{what} The others' results are in {analysis.experiment_path}; raise_on_failed_trial=False returns them. The "
        f"first failure, also in {first.error_file}:\n\n{first.error}"
    ) from first.exception
