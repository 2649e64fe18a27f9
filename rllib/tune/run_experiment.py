"""`tune.run` and `tune.run_experiments`."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from rllib.errors import TuneError
from rllib.tune.analysis import ExperimentAnalysis
from rllib.tune.build_experiment import prepare
from rllib.tune.experiment_callbacks import Callback
from rllib.tune.experiment_spec import (
    EXPERIMENT_KEYS,
    OF_OTHER_ERAS,
    Experiment,
    ExperimentSpec,
    check_other_eras,
    experiments_of,
    refuse_unknown,
)
from rllib.tune.old_loggers import callbacks_of
from rllib.tune.trial import ERROR, Trial

logger = logging.getLogger(__name__)


def run(
    run_or_experiment,
    *,
    name: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    stop=None,
    time_budget_s: float | timedelta | None = None,
    config: dict[str, Any] | None = None,
    resources_per_trial=None,
    num_samples: int = 1,
    storage_path: str | Path | None = None,
    local_dir: str | Path | None = None,
    search_alg=None,
    scheduler=None,
    checkpoint_config=None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    verbose: int | None = None,
    progress_reporter=None,
    log_to_file=False,
    trial_name_creator: Callable[[Trial], str] | None = None,
    trial_dirname_creator: Callable[[Trial], str] | None = None,
    max_failures: int = 0,
    fail_fast: bool | str = False,
    restore: str | Path | None = None,
    resume=False,
    reuse_actors: bool | None = None,
    raise_on_failed_trial: bool = True,
    callbacks: Sequence[Callback] | None = None,
    max_concurrent_trials: int | None = None,
    return_trials: bool = False,
    tensorboard: bool = True,
    loggers=None,
    export_formats: Sequence[str] | None = None,
    chdir_to_trial_dir: bool = True,
    **other_eras,
) -> ExperimentAnalysis:
    """Runs an experiment: trials of a trainable, with configurations from a search space.

    Args:
        run_or_experiment: name of an algorithm, Algorithm class or config, class Trainable, function, or Experiment.
        name: of the experiment's directory; made of trainable and date by default. If it is taken, the new one gets a
            number, unless `resume` is given.
        metric, mode: by what trials are compared, and whether "max" or "min" is better.
        stop: {"result/key": threshold}, function(trial_id, result) -> bool, or a Stopper. {"time_total_s": seconds}
            ends a trial that hangs, too: its process is killed soon after, and its results stay.
        time_budget_s: seconds, or a timedelta, for the whole experiment; then all unfinished trials are ended, by force
            if they do not answer within 5 s.
        config: settings and search space.
        resources_per_trial: {"cpu": 1, "gpu": 0, "extra_cpu": 2}; by default what the trainable asks for.
        num_samples: how often the space is sampled (each time the whole grid); -1: without end.
        storage_path, local_dir: the experiment's directory is made in it; ./results by default.
        search_alg, scheduler: names or objects.
        checkpoint_config: a CheckpointConfig instead of the next four.
        checkpoint_freq: iterations between checkpoints; 0: none.
        checkpoint_at_end: a checkpoint when a trial ends.
        keep_checkpoints_num: how many of a trial's checkpoints stay; None: all.
        checkpoint_score_attr: which stay: the best by this result key ("min-loss": the lowest).
        verbose: 0 silent, 1 status, 2 and a line for each trial that ends.
        progress_reporter: shows how it goes; by default a live table on terminals, else lines.
        log_to_file: True: trials print to files stdout and stderr in their directories; or one name, or two.
        trial_name_creator, trial_dirname_creator: functions of the Trial.
        max_failures: how often a trial may fail and start again from its last checkpoint; -1: always.
        fail_fast: the first failed trial ends the experiment; "raise": with its own exception.
        restore: checkpoint directory that every trial starts from.
        resume: True or "LOCAL": go on with the experiment of this name; "AUTO": if there is one; "ERRORED_ONLY": only
            with its failed trials.
        reuse_actors: trials take over processes of ended ones, where the trainable has `reset_config`.
        raise_on_failed_trial: raise TuneError at the end if a trial has failed.
        callbacks: Callback objects.
        max_concurrent_trials: at once; as many as fit by default.
        return_trials: return the trials instead of the analysis.
        tensorboard: write event files.
        loggers: classes of old, made for each trial as Class(config, logdir), with on_result(result) and close().
        export_formats: what a trial that ends well leaves in its directory: of algorithms "model" (the policy) and
            "checkpoint"; of classes what their export_model(formats, directory) knows.
        chdir_to_trial_dir: each trial's process works in the trial's directory, so that trials do not overwrite one
            another's files; False: it stays where the session was started.
        other_eras: arguments of other versions that have no effect here; unknown ones are a TypeError.

    Returns:
        ExperimentAnalysis.

    Raises:
        TuneError: if a trial has failed; ends with its traceback.
        ValueError, TypeError: for arguments that cannot be; before anything starts, where that is possible.
        UnschedulableError: if a trial can never fit.
        KeyboardInterrupt: after Ctrl-C; the experiment can be resumed.
    """
    check_other_eras(other_eras)
    if isinstance(run_or_experiment, Experiment):
        spec = run_or_experiment.spec
    else:
        spec = ExperimentSpec(
            run_or_experiment, name, metric, mode, stop, time_budget_s, config, resources_per_trial, num_samples,
            storage_path or local_dir, search_alg, scheduler, checkpoint_freq, checkpoint_at_end, keep_checkpoints_num,
            checkpoint_score_attr, "max", verbose, progress_reporter, log_to_file, trial_name_creator,
            trial_dirname_creator, max_failures, fail_fast, restore, resume, bool(reuse_actors), raise_on_failed_trial,
            [*(callbacks or []), *callbacks_of(loggers)], max_concurrent_trials, tensorboard,
            export_formats or (), chdir_to_trial_dir,
        )  # fmt: skip
        if checkpoint_config is not None:
            spec = checkpoint_config.applied(spec)
    analysis = run_spec(spec)
    return analysis.trials if return_trials else analysis


def run_experiments(experiments, **settings) -> list[Trial]:
    """Runs experiments one after the other; returns all their trials.

    Args:
        experiments: {"name": {"run": ..., "env": ..., "stop": ..., "config": ...}}, an Experiment, or a list of them.
        settings: further arguments of `tune.run`, for all of them.

    Raises:
        as `tune.run`, after all experiments are through: the first one's error.
    """
    return_trials = settings.pop("return_trials", True)
    check_other_eras({key: settings.pop(key) for key in list(settings) if key in OF_OTHER_ERAS})
    specs = []
    for one in experiments_of(experiments):
        known = {EXPERIMENT_KEYS.get(key, key): value for key, value in settings.items()}
        refuse_unknown(known, "run_experiments")
        specs.append(replace(one.spec, **known))
    trials: list[Trial] = []
    failure: Exception | None = None
    analyses = []
    for spec in specs:
        try:
            analyses.append(run_spec(spec))
            trials += analyses[-1].trials
        except TuneError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return trials if return_trials else analyses


def run_spec(spec: ExperimentSpec) -> ExperimentAnalysis:
    """Runs, or goes on with, an experiment."""
    runner, spec = prepare(spec)
    try:
        runner.run()
    except KeyboardInterrupt:
        if runner.interrupted:
            logger.warning(
                "interrupted; go on with tune.run(..., name=%r, resume=True), or look at it with "
                "tune.ExperimentAnalysis(%r)", runner.directory.path.name, str(runner.directory.path)
            )  # fmt: skip
        raise
    analysis = ExperimentAnalysis(runner.directory.path, runner.trials, spec.metric, spec.mode)
    if spec.raise_on_failed_trial:
        raise_for_failures(analysis)
    return analysis


def raise_for_failures(analysis: ExperimentAnalysis) -> None:
    """Raises TuneError if a trial has failed; it ends with the first one's traceback."""
    failed = [trial for trial in analysis.trials if trial.status == ERROR]
    if not failed:
        return
    names = ", ".join(trial.name for trial in failed[:5]) + (", ..." if len(failed) > 5 else "")
    first = failed[0]
    raise TuneError(
        f"{len(failed)} of {len(analysis.trials)} trials failed: {names}. The others' results are in "
        f"{analysis.experiment_path}; raise_on_failed_trial=False returns them. The first failure, also in "
        f"{first.error_file}:\n\n{first.error}"
    ) from first.exception
