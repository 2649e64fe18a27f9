"""`tune.run` and `tune.run_experiments`: everything that an experiment is, put together."""

import logging
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import runtime
from rllib.errors import TuneError
from rllib.evaluation.preload import PRELOAD
from rllib.tune import experiment as experiments
from rllib.tune.analysis import ExperimentAnalysis
from rllib.tune.callbacks import Callback
from rllib.tune.checkpoint_keeper import CheckpointKeeper
from rllib.tune.experiment import ExperimentDirectory
from rllib.tune.experiment_sidecar import TensorBoardCallback
from rllib.tune.experiment_spec import (
    EXPERIMENT_KEYS,
    OF_OTHER_ERAS,
    Experiment,
    ExperimentSpec,
    callbacks_of,
    check_other_eras,
    experiments_of,
    refuse_unknown,
)
from rllib.tune.hangs import time_limit_s
from rllib.tune.reporters import make_reporter
from rllib.tune.run_settings import RunSettings
from rllib.tune.schedulers import create_scheduler
from rllib.tune.search_space import evaluated_params
from rllib.tune.searchers import create_searcher
from rllib.tune.stoppers import make_stopper
from rllib.tune.trainable import AlgorithmTrainable
from rllib.tune.trainables import Resolved, merged_config, resolve_trainable
from rllib.tune.trial import ERROR, TERMINATED, Trial
from rllib.tune.trial_pool import TrialPool
from rllib.tune.trial_runner import TrialRunner

logger = logging.getLogger(__name__)

_RESUMES = (False, True, "LOCAL", "AUTO", "ERRORED_ONLY", "AUTO+ERRORED", "RESTART_ERRORED")


def run(
    run_or_experiment,
    *,
    name: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    stop=None,
    time_budget_s: float | None = None,
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
    **other_eras,
):
    """Runs an experiment: trials of a trainable, with configurations from a search space.

    Args:
        run_or_experiment: name of an algorithm, Algorithm class or config, class Trainable, function, or Experiment.
        name: of the experiment's directory; made of trainable and date by default. If it is taken, the new one gets a
            number, unless `resume` is given.
        metric, mode: by what trials are compared, and whether "max" or "min" is better.
        stop: {"result/key": threshold}, function(trial_id, result) -> bool, or a Stopper. {"time_total_s": seconds}
            ends a trial that hangs, too: its process is killed soon after, and its results stay.
        time_budget_s: for the whole experiment; what runs then is ended, by force if it does not answer within 5 s.
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


# ---------------------------------------------------------------------- putting it together


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


def prepare(spec: ExperimentSpec) -> tuple[TrialRunner, ExperimentSpec]:
    """Checks everything, and makes the runner with its directory, new or old."""
    resolved = resolve_trainable(spec.trainable)
    if spec.resources_per_trial is not None:
        resolved = replace(resolved, resources=spec.resources_per_trial)
    _check(spec, resolved)
    space = merged_config(resolved, spec.config)
    searcher, scheduler = create_searcher(spec.search_alg), create_scheduler(spec.scheduler)
    if searcher.set_search_properties(spec.metric, spec.mode, space, num_samples=spec.num_samples) is False:
        raise ValueError(f"{type(searcher).__name__} cannot search this space")
    scheduler.set_search_properties(spec.metric, spec.mode)
    metric = spec.metric or getattr(scheduler, "metric", None) or getattr(searcher, "metric", None)
    mode = spec.mode or getattr(scheduler, "mode", None) or getattr(searcher, "mode", None)
    spec = replace(spec, metric=metric, mode=mode)
    stopper = make_stopper(spec.stop)
    if not runtime.is_initialized():
        runtime.init(preload=(*PRELOAD, "rllib.tune.trial_actor") if _is_algorithm(resolved) else _LIGHT_PRELOAD)
    directory = _directory(spec, resolved, space)
    try:
        reporter = make_reporter(spec.progress_reporter, spec.verbose, spec.metric, spec.mode)
        runner = TrialRunner(
            directory,
            resolved,
            TrialPool(resolved, directory.path.name, spec.log_to_file, spec.reuse_actors),
            searcher,
            scheduler,
            RunSettings(
                metric=metric,
                mode=mode,
                stop=stopper.reached,
                trial_time_s=time_limit_s(spec.stop),
                stop_all=lambda: str(stopper) if stopper.stop_all() else None,
                num_samples=spec.num_samples,
                checkpoint_freq=spec.checkpoint_freq,
                checkpoint_at_end=spec.checkpoint_at_end,
                max_failures=spec.max_failures,
                fail_fast=spec.fail_fast,
                time_budget_s=spec.time_budget_s,
                max_concurrent=spec.max_concurrent_trials or getattr(searcher, "max_concurrent", 0) or 0,
                restore=str(Path(spec.restore).absolute()) if spec.restore else None,
            ),
            CheckpointKeeper(spec.keep_checkpoints_num, spec.checkpoint_score_attr, spec.checkpoint_score_order),
            _trial_maker(spec, resolved, space, directory.path),
            [*spec.callbacks, *([TensorBoardCallback(directory.path)] if spec.tensorboard else [])],
            reporter,
        )
        _take_up(runner, directory, spec.resume)
    except BaseException:
        directory.close()
        raise
    return runner, spec


_LIGHT_PRELOAD = ("numpy", "rllib.tune.trial_actor")


def _is_algorithm(resolved: Resolved) -> bool:
    return issubclass(resolved.cls, AlgorithmTrainable)


def _check(spec: ExperimentSpec, resolved: Resolved) -> None:
    if spec.resume not in _RESUMES:
        raise ValueError(f"resume must be one of {', '.join(map(repr, _RESUMES))}, but got {spec.resume!r}")
    if spec.mode not in (None, "max", "min"):
        raise ValueError(f'mode must be "max" or "min", but got {spec.mode!r}')
    if spec.fail_fast not in (False, True, "raise"):
        raise ValueError(f'fail_fast must be True, False or "raise", but got {spec.fail_fast!r}')
    for name in ("checkpoint_freq", "num_samples", "max_failures"):
        value = getattr(spec, name)
        lowest = {"checkpoint_freq": 0}.get(name, -1)
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or value < lowest or (name, value) == ("num_samples", 0):
            raise ValueError(f"{name} must be a whole number {'> 0, or -1' if lowest else '>= 0'}, but got {value!r}")
    budget = spec.time_budget_s
    if budget is not None and not (isinstance(budget, (int, float)) and budget > 0 and math.isfinite(budget)):
        raise ValueError(f"time_budget_s must be a number of seconds > 0, but got {budget!r}")
    if spec.config is not None and not isinstance(spec.config, Mapping):
        raise TypeError(f"config must be a dict of settings and search space, but got {spec.config!r:.80}")
    if resolved.is_function and (spec.checkpoint_freq or spec.checkpoint_at_end):
        raise ValueError(
            f"{resolved.name} is a function, which saves its own checkpoints: tune.report({{...}}, checkpoint=...). "
            "checkpoint_freq and checkpoint_at_end are for classes and algorithms"
        )


def _directory(spec: ExperimentSpec, resolved: Resolved, space: dict) -> ExperimentDirectory:
    """The experiment's directory, opened: a new one, or the one to go on with.

    Raises:
        ValueError: if there is nothing to resume, or it is of another experiment.
    """
    results = Path(spec.results_dir).expanduser().absolute() if spec.results_dir else (
        experiments.default_results_directory())  # fmt: skip
    if spec.resume:
        found = experiments.latest_path(results, spec.name) if spec.name else _only_path(results, resolved.name)
        if found:
            return _reopened(found, resolved, space)
        if "AUTO" not in str(spec.resume):
            raise ValueError(
                f"there is no experiment {spec.name or resolved.name!r} in {results} to resume. Give its name and "
                'storage_path, or resume="AUTO" to start it where there is none'
            )
    name = spec.name or f"{resolved.name}_{datetime.now():%Y-%m-%d_%H-%M-%S}"
    path = experiments.new_path(results, name)
    if spec.name and path.name != name:
        logger.warning("%s exists already, so this experiment goes to %s; resume=True would continue the old one",
                       results / name, path)  # fmt: skip
    header = {
        "id": secrets.token_hex(3)[:5],
        "name": path.name,
        "trainable": resolved.name,
        "space": experiments.as_text(space),
        "config_keys": sorted(map(str, space)),
        "metric": spec.metric,
        "mode": spec.mode,
        "num_samples": spec.num_samples,
    }
    return ExperimentDirectory.create(path, header)


def _only_path(results: Path, trainable: str) -> Path | None:
    """The newest experiment with this trainable's default name."""
    paths = [p for p in results.glob(f"{experiments.glob_escaped(trainable)}_*") if any(p.glob("experiment_state-*"))]
    return max(paths, key=lambda path: path.stat().st_mtime) if paths else None


def _reopened(path: Path, resolved: Resolved, space: dict) -> ExperimentDirectory:
    directory = ExperimentDirectory.reopen(path)
    header = directory.header
    keys = sorted(map(str, space))
    differs = (
        f"it ran {header['trainable']}, not {resolved.name}" if header["trainable"] != resolved.name
        else f"its configuration has {', '.join(header['config_keys'])}, not {', '.join(keys)}"
        if header["config_keys"] != keys
        else None
    )  # fmt: skip
    if differs:
        directory.close()
        raise ValueError(f"{path} is the directory of another experiment: {differs}. Give this one another name")
    return directory


def _take_up(runner: TrialRunner, directory: ExperimentDirectory, resume) -> None:
    """Puts the trials of the journal, and what searcher and scheduler knew, into the runner."""
    if not directory.trials:
        return
    snapshot = directory.read_snapshot()
    if snapshot:
        runner.searcher.set_state(snapshot["searcher"])
        runner.scheduler.set_state(snapshot["scheduler"])
    again = {"ERRORED_ONLY", "AUTO+ERRORED", "RESTART_ERRORED"}
    only_errored = resume == "ERRORED_ONLY"

    def runs_again(trial: Trial) -> bool:
        if trial.status == ERROR:
            return resume in again
        return trial.status != TERMINATED and not only_errored

    runner.resume(directory.trials, runs_again)
    for trial in directory.trials[snapshot.get("num_trials", 0) :]:
        _replay(runner, trial)


def _replay(runner: TrialRunner, trial: Trial) -> None:
    """The searcher catches up with a trial that it suggested after its state was last written."""
    suggested = runner.searcher.suggest(trial.trial_id)
    if suggested != trial.config:
        runner.searcher.on_trial_complete(trial.trial_id, error=True)
    elif trial.is_finished:
        runner.searcher.on_trial_complete(trial.trial_id, trial.last_result, error=trial.status == ERROR)


def _trial_maker(spec: ExperimentSpec, resolved: Resolved, space: dict, path: Path):
    def make(trial_id: str, index: int, config: dict[str, Any]) -> Trial:
        params = evaluated_params(space, config)
        trial = Trial(trial_id, index, resolved.name, config, params, path, resolved.request(config))
        if spec.trial_name_creator:
            trial.custom_name = str(spec.trial_name_creator(trial))
        if spec.trial_dirname_creator:
            trial.dirname = str(spec.trial_dirname_creator(trial))
        return trial

    return make


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

