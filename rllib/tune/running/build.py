"""Checks an ExperimentSpec and builds the experiment's runner from it."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import runtime
from rllib.config.config_object import ConfigObject
from rllib.config.conflicts import surrounded
from rllib.env.factories.registry import resolve
from rllib.processes import PRELOAD
from rllib.remote.download import refuse_hub
from rllib.remote.filesystem import RemoteFolder
from rllib.remote.url import is_url, place_of
from rllib.result import check_result_key
from rllib.runs.entries import scalar, settings_by_path
from rllib.runs.trackers import TRACKERS, check_package
from rllib.storage.foreign_files import inside
from rllib.storage.local_path import local_path
from rllib.tune.checks import check, seconds
from rllib.tune.experiment.callbacks import Callbacks, check_callbacks
from rllib.tune.experiment.directory import ExperimentDirectory, for_header, open_directory
from rllib.tune.experiment.journal_values import ValueReader
from rllib.tune.experiment.loggers import FileLoggerCallback, TBXLoggerCallback, callbacks_of
from rllib.tune.experiment.spec import CheckpointConfig, ExperimentSpec, FailureConfig, saved_settings
from rllib.tune.experiment.stoppers import make_stopper
from rllib.tune.experiment.trial import Trial
from rllib.tune.objectives import Metric, Mode, checked_objective, is_several
from rllib.tune.reporting.reporters import TrialEndLines, make_reporter
from rllib.tune.running.fresh import begin_anew, belong_to
from rllib.tune.running.pool import TrialPool
from rllib.tune.running.resume import take_up
from rllib.tune.running.runner import TrialRunner, first_writes
from rllib.tune.running.seeds import SeveralSeeds
from rllib.tune.running.trial_events import TensorBoardCallback
from rllib.tune.running.trials import Trials
from rllib.tune.schedulers import OF_CHECKPOINTS, create_scheduler
from rllib.tune.schedulers.base import TrialScheduler
from rllib.tune.search import create_searcher
from rllib.tune.search.base import announce_search
from rllib.tune.search.domains import Choice, Domain
from rllib.tune.search.space import evaluated_params, holds_domains, is_grid, options_of
from rllib.tune.search.wrappers import TRIAL_INDEX
from rllib.tune.trainables.checkpoint import checkpoint_of, refuse_foreign_pickle
from rllib.tune.trainables.resolve import Resolved, merged_config, resolve_trainable
from rllib.tune.trainables.resources import Resources
from rllib.tune.trainables.trainable import AlgorithmTrainable

logger = logging.getLogger(__name__)

_RESUMES = (False, True, "LOCAL", "AUTO", "ERRORED_ONLY", "AUTO+ERRORED", "RESTART_ERRORED")
_LIGHT_PRELOAD = ("numpy", "rllib.tune.running.actor", "rllib.tune.trainables.resolve")
# Settings that wrappers of searchers add to each configuration.
_ADDED = {"seed", TRIAL_INDEX}
# Metrics by which trials are compared where none is given: the return of algorithms, and the bare number that a
# function reports or returns.
_METRIC_OF_ALGORITHMS, _METRIC_OF_BARE_NUMBERS = "episode_reward_mean", "_metric"


def prepare(spec: ExperimentSpec, at: Path | None = None, reporter=None) -> tuple[TrialRunner, ExperimentSpec]:
    """Builds the runner of an experiment, with a new directory or an old one; returns it with the completed spec.

    Args:
        spec: its settings.
        at: directory of the experiment to continue; None: the spec says which.
        reporter: shows the progress in place of the spec's, and is not saved with the experiment.

    Raises:
        ValueError, TypeError: for invalid settings; nothing has been started or written then.
        UnschedulableError: if resources that all trials need can never be had.
        TuneError: if the experiment cannot write its files since the disk is full.
    """
    resolved = resolve_trainable(spec.trainable)
    if spec.resources_per_trial is not None:
        resolved = replace(resolved, resources=spec.resources_per_trial)
    check_spec(spec, resolved)
    given = spec
    begin_anew(given)
    metric, mode = checked_objective(spec.metric, spec.mode)
    spec = replace(spec, metric=metric, mode=mode)
    space = merged_config(resolved, spec.config)
    # Written before searcher and scheduler take over the experiment's metric and space.
    saved = saved_settings(replace(spec, resources_per_trial=resolved.resources))
    pickled = {name: for_header(value) for name, value in saved.items()}
    is_algorithm = issubclass(resolved.cls, AlgorithmTrainable)
    searcher, scheduler, spec = _search(spec, space, is_algorithm)
    spec = _completed(spec, searcher)
    if not runtime.is_initialized():
        preload = (*PRELOAD, "rllib.tune.running.actor") if is_algorithm else _LIGHT_PRELOAD
        runtime.init(preload=preload, ignore_reinit_error=True)  # another thread may have begun one meanwhile
    # Memory is not counted, so it has no bound.
    total = {name: quantity for name, quantity in runtime.cluster_resources().items() if name != "memory"}
    trainable_class, request = resolved.cls, resolved.request
    if spec.num_seeds > 1:
        several = SeveralSeeds(trainable_class, spec.num_seeds, request, spec.chdir_to_trial_dir, spec.log_to_file)
        trainable_class, request = several.trainable(), several.resources
    if resolved.resources is not None and not callable(resolved.resources):  # the same for all trials
        request(space).within(total, f"a trial of {resolved.name}")
    with first_writes(at or spec.results_dir / (spec.name or resolved.name), is_resumed=bool(at)):
        directory = open_directory(spec, resolved.name, space, pickled, at)
    try:
        with first_writes(directory.path, is_resumed=True):
            _refuse_other_seeds(directory, spec)
            make_trial = _trial_maker(spec, resolved.name, request, space, directory.path)
            decided = Trials(spec, searcher, scheduler, make_trial, total, directory.header["id"], resolved.is_function)
            reader = ValueReader(spec.load_user_code, space)
            states = take_up(decided, directory, spec.resume, resolved, reader, spec.chdir_to_trial_dir)
            directory.note_settings(spec, pickled)
            pool = TrialPool(trainable_class, spec.name_of(directory.path), spec, total)
            callbacks = _callbacks(spec, directory, decided.trials, reporter)
            callbacks.set_state(states)
            runner = TrialRunner(directory, pool, decided, callbacks, spec)
            belong_to(given, runner)
    except BaseException:
        directory.close()
        raise
    return runner, spec


def _search(spec: ExperimentSpec, space: dict, is_algorithm: bool) -> tuple[Any, Any, ExperimentSpec]:
    """Searcher and scheduler, and the spec with the metric and mode by which they compare trials."""
    searcher, scheduler = create_searcher(spec.search_alg), create_scheduler(spec.scheduler, space=space)
    given, spec = spec, _with_objective(spec, (scheduler, searcher), is_algorithm)
    accepted = announce_search(searcher, *_objective_for(searcher, given, spec), space, num_samples=spec.num_samples)
    if accepted is False and holds_domains(space):
        raise ValueError(
            f"{type(searcher).__name__} does not search the space given as config (set_search_properties returned "
            "False). Give the space to the searcher, and only fixed settings as config."
        )
    scheduler.set_search_properties(*_objective_for(scheduler, given, spec))
    return searcher, scheduler, spec


def _objective_for(part, given: ExperimentSpec, spec: ExperimentSpec) -> tuple[Metric | None, Mode | None]:
    """(metric, mode) for a scheduler or searcher: its own take precedence over the other's."""
    if is_several(spec.metric):
        return spec.metric, spec.mode  # a part that takes one metric keeps its own
    return tuple(
        getattr(given, name) or getattr(part, name, None) or getattr(spec, name) for name in ("metric", "mode")
    )


def _with_objective(spec: ExperimentSpec, parts, is_algorithm: bool) -> ExperimentSpec:
    """The spec with the metric and mode of scheduler or searcher, or the default ones."""
    several = [part for part in parts if is_several(getattr(part, "metric", None)) and part.mode]
    if several and spec.metric is None:
        return replace(spec, metric=several[0].metric, mode=several[0].mode)
    metric, mode = (
        next(filter(None, [getattr(spec, name), *(getattr(part, name, None) for part in parts)]), None)
        for name in ("metric", "mode")
    )
    if metric is None and any(getattr(part, "needs_metric", False) for part in parts):
        if is_algorithm:
            metric, mode = _METRIC_OF_ALGORITHMS, mode or "max"
        elif mode is not None:
            metric = _METRIC_OF_BARE_NUMBERS
    return replace(spec, metric=metric, mode=mode)


def _completed(spec: ExperimentSpec, searcher) -> ExperimentSpec:
    """The spec in the form that running trials needs: a Stopper, seconds, an absolute path."""
    return replace(
        spec,
        stop=make_stopper(spec.stop),
        time_budget_s=None if spec.time_budget_s is None else seconds(spec.time_budget_s, "time_budget_s"),
        max_concurrent_trials=spec.max_concurrent_trials or getattr(searcher, "max_concurrent", 0) or 0,
        restore=str(checkpoint_of(spec.restore)) if spec.restore else None,
    )


def _callbacks(spec: ExperimentSpec, directory: ExperimentDirectory, trials: list[Trial], reporter) -> Callbacks:
    writers = [callback for callback in spec.all_callbacks if isinstance(callback, FileLoggerCallback)]
    for writer in writers:
        writer.experiment_writes = True
    with_events = spec.tensorboard or any(isinstance(writer, TBXLoggerCallback) for writer in writers)
    callbacks = [
        *spec.all_callbacks,
        *([TrialEndLines()] if (spec.verbose or 0) >= 2 else []),
        *([TensorBoardCallback(directory.path, is_awaited=bool(spec.storage_url))] if with_events else []),
    ]
    reporter = make_reporter(reporter or spec.progress_reporter, spec.verbose, spec.metric, spec.mode)
    return Callbacks(callbacks, reporter, trials)


def _refuse_other_seeds(directory: ExperimentDirectory, spec: ExperimentSpec) -> None:
    """Raises ValueError if the experiment that is resumed has another number of seeds."""
    if not directory.past:
        return
    saved = (directory.header.get("settings") or {}).get("num_seeds")
    before = saved.get("config") if isinstance(saved, Mapping) else 1
    if before != spec.num_seeds:
        raise ValueError(
            f"the experiment in {directory.path} has num_seeds={before}, and cannot continue with {spec.num_seeds}"
        )


def _trial_maker(spec: ExperimentSpec, name: str, request: Callable[[dict], Resources], space: dict, path: Path):
    def make(trial_id: str, index: int, config: dict[str, Any]) -> Trial:
        params = _chosen(space, config)
        trial = Trial(trial_id, index, name, config, params, path)
        try:
            trial.resources = request(config)
        except Exception as error:  # any error of a user's function, or settings that are invalid together
            trial.exception = error
        if spec.trial_name_creator:
            trial.custom_name = str(spec.trial_name_creator(trial))
        if spec.trial_dirname_creator:
            directory = inside(path, str(spec.trial_dirname_creator(trial)), "a trial's directory")
            trial.dirname = str(directory.relative_to(path))
        return trial

    return make


def _chosen(space: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """{"a/b": value} of what the search has chosen: draws from the space, and settings of a searcher's own space."""
    fixed = {path for path, _ in settings_by_path(space)} | _ADDED
    own = {path: value for path, value in settings_by_path(config) if path not in fixed}
    return {**evaluated_params(space, config), **own}


# ---------------------------------------------------------------------- checks

# Settings of one kind -> (what is accepted in addition to None, the same in words).
_KINDS: dict[tuple[str, ...], tuple[Callable[[Any], bool], str]] = {
    ("reuse_actors", "chdir_to_trial_dir", "checkpoint_at_end", "load_user_code", "raise_on_failed_trial",
     "return_trials", "tensorboard"): (lambda given: scalar(given) in (True, False), "True or False"),
    ("trial_name_creator", "trial_dirname_creator"): (
        lambda given: callable(given) and not isinstance(given, type), "a function of the trial",
    ),
    ("name", "checkpoint_score_attr"): (lambda given: isinstance(given, str), "a name"),
    ("restore",): (lambda given: isinstance(given, str | PathLike), "a path"),
    ("checkpoint_config",): (lambda given: isinstance(given, CheckpointConfig), "a tune.CheckpointConfig"),
    ("failure_config",): (lambda given: isinstance(given, FailureConfig), "a tune.FailureConfig"),
    ("loggers", "export_formats"): (lambda given: isinstance(given, list | tuple), "a list"),
    ("resources_per_trial",): (
        lambda given: not isinstance(given, type), 'resources like {"cpu": 2, "gpu": 1}, or a function with them',
    ),
}  # fmt: skip


def _check_kinds(spec: ExperimentSpec) -> None:
    """Raises TypeError for a setting of a wrong kind."""
    for names, (is_accepted, rule) in _KINDS.items():
        for name in names:
            given = getattr(spec, name)
            if given is not None and not is_accepted(given):
                raise TypeError(f"{name} must be {rule}, but got {given!r:.80}")
    callbacks_of(spec.loggers)  # raises


def check_spec(spec: ExperimentSpec, resolved: Resolved) -> None:
    """Refuses invalid settings.

    Raises:
        ValueError, TypeError: with the given value and the rule.
    """
    _check_kinds(spec)
    check("resume", spec.resume, spec.resume in _RESUMES, f"one of {', '.join(map(repr, _RESUMES))}")
    checked_objective(spec.metric, spec.mode)
    check_callbacks(spec.callbacks)
    check("restore", spec.restore, not spec.restore or local_path(spec.restore).exists(), "a path that exists")
    is_remote = spec.local_dir is not None and is_url(place_of(spec.local_dir))
    check("local_dir", spec.local_dir, not is_remote, "a directory of this machine; storage_path takes URLs")
    if spec.storage_url:
        refuse_hub(spec.storage_url)
        RemoteFolder(spec.storage_url)  # names what is not installed
    if spec.restore and not spec.load_user_code:
        refuse_foreign_pickle(checkpoint_of(spec.restore))
    fail_fast = spec.failures.fail_fast
    check("fail_fast", fail_fast, fail_fast in (False, True, "raise"), 'True, False or "raise"')
    for name, value, lowest in (
        ("checkpoint_freq", spec.checkpoints.checkpoint_frequency, 0),
        ("num_samples", spec.num_samples, -1),
        ("max_failures", spec.failures.max_failures, -1),
        ("num_seeds", spec.num_seeds, 1),
        ("max_concurrent_trials", 0 if spec.max_concurrent_trials is None else spec.max_concurrent_trials, 0),
    ):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        holds = is_whole and value >= lowest and (name, value) != ("num_samples", 0)
        rule = "> 0, or -1" if name == "num_samples" else f">= {lowest}"
        check(name, value, holds, f"a whole number {rule}")
    if spec.config is not None and not isinstance(spec.config, Mapping):
        raise TypeError(f"config must be a dict of settings and search space, but got {spec.config!r:.80}")
    if spec.num_seeds > 1:
        _check_first_seed(merged_config(resolved, spec.config).get("seed"), spec.num_seeds)
    if issubclass(resolved.cls, AlgorithmTrainable):
        _check_algorithm(spec, resolved.cls, merged_config(resolved, spec.config))
    resolved.cls.check_export(spec.export_formats or ())
    _check_log_files(spec.log_to_file)
    if resolved.is_function and (spec.checkpoints.checkpoint_frequency or spec.checkpoints.checkpoint_at_end):
        raise ValueError(
            f"{resolved.name} is a function, which saves its own checkpoints: tune.report({{...}}, checkpoint=...). "
            "checkpoint_freq and checkpoint_at_end are for classes and algorithms"
        )


def _check_log_files(given: Any) -> None:
    """Raises ValueError unless log_to_file names files of a trial's directory: an experiment's header may have it."""
    names = given if isinstance(given, tuple | list) and len(given) == 2 else [given]
    is_switch = isinstance(given, bool | None) or given == ""
    are_names = all(isinstance(each, str) and each == Path(each).name and each not in ("", "..") for each in names)
    if not (is_switch or are_names):
        raise ValueError(
            "log_to_file must be True, False, a file's name, or two for stdout and stderr, without a directory, since "
            f"the files are in each trial's directory, but got {given!r:.200}"
        )


def _check_first_seed(seed: Any, num_seeds: int) -> None:
    """Raises ValueError unless the seed is one from which each trial can count."""
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise ValueError(
            f"num_seeds={num_seeds} runs each trial with the seed of its configuration and the following, so seed must "
            f"be a whole number, but got {seed!r:.80}. Leave it out, or leave num_seeds out to search over seeds."
        )


def _check_options(
    config: ConfigObject, drawn: Mapping[str, Any], undecided: Mapping[str, set[str]], what: str = "the search space"
) -> None:
    """Refuses options, and ends of ranges, that are invalid by themselves, or with the settings that do not vary.

    Args:
        config: settings of all trials.
        drawn: names of settings, or sections -> what is drawn.
        undecided: all names that vary -> settings that they decide.
        what: where the values are, for messages.

    Raises:
        ValueError, TypeError: naming the setting and the value.
    """
    for name, value in drawn.items():
        others = set().union(*undecided.values()) - undecided[name]
        for option in options_of(value):
            trial = config.copy(copy_frozen=False)
            try:
                trial.update_from_dict({name: option})
                ConfigObject.validate(trial, others)
            except (TypeError, ValueError) as error:
                raise surrounded(error, f"{what} has {name}={option!r:.200}: ") from None


def _decided(config: ConfigObject, drawn: Mapping[str, Any]) -> dict[str, set[str]]:
    """Names of settings, or sections, whose values are drawn -> settings that they decide.

    Raises:
        TypeError: for an unknown name, with the nearest.
    """
    decided: dict[str, set[str]] = {}
    for name in drawn:
        if name in config:
            decided[name] = set(config.overrides(**{name: config[name]}))  # its own name
        elif name in config.sections or name in config.section_aliases:
            decided[name] = set(config.keys())
        else:
            config.update_from_dict({name: None})  # raises, with the nearest name
    return decided


def _changed_by(scheduler, space: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """(values that a scheduler may give to trials, as a search space; its argument that says so)."""
    if not isinstance(scheduler, TrialScheduler):  # by its name it changes what is searched
        return {}, ""
    return scheduler.changes(space), scheduler.changing_argument


def _bounds(config: ConfigObject, changed: Mapping[str, Any], of: str = "") -> dict[str, Any]:
    """[the least, the largest number] of each setting, by any of its names; None: without a bound.

    Settings in sections and of policies are nested as they are in `changed`. Other dicts, such as env_config, may have
    keys that are called like a setting: they are without bounds.
    """
    found: dict[str, Any] = {}
    for name, value in changed.items():
        if isinstance(value, Mapping):
            if "policies" in (name, of) or name in config.sections or name in config.section_aliases:
                found[name] = _bounds(config, value, name)
            continue
        setting = config.settings.get(next(iter(config.places({name: None}))))
        if setting is not None and setting.range is not None:
            ends = (setting.range.low, setting.range.high)
            found[name] = [bound if math.isfinite(bound) else None for bound in ends]
    return found


def _given_others(changed: Mapping[str, Any], space: Mapping[str, Any], of: str = "") -> set[str]:
    """Those of these settings, in sections and of policies too, that a scheduler gives other values.

    Args:
        changed: what it gives, as `_changed_by` returns it, or a part of that.
        space: the same part of the search space; what is not there begins with the first value that is given.
        of: the key of this part.
    """
    found: set[str] = set()
    for key, node in changed.items():
        options = node.values if isinstance(node, Choice) else [node]
        before = space.get(key, options[0])
        if key in OF_CHECKPOINTS and of != "policies":  # where it would be an id
            if any(isinstance(option, Domain) or (option is not before and option != before) for option in options):
                found.add(key)
            continue
        before = options[0] if is_grid(before) or isinstance(before, Domain) else before
        parts = [getattr(each, "config", each) for each in (before, *options)]  # of a PolicySpec
        own, *given = (each if isinstance(each, Mapping) else {} for each in parts)
        for each in given:
            found |= _given_others(each, own, key)
    return found


def _check_algorithm(spec: ExperimentSpec, trainable: type[AlgorithmTrainable], space: Mapping[str, Any]) -> None:
    """Refuses settings that are invalid in every trial, what is not installed, and keys that no result will have."""
    trainable.check_settings(space)
    if isinstance(space.get("env"), str):
        resolve(space["env"])
    for tracker in TRACKERS:
        if space.get(tracker):
            check_package(tracker)
    config = trainable.algorithm_class.get_default_config()
    drawn = {name: value for name, value in space.items() if holds_domains(value)}
    config.update_from_dict({name: value for name, value in space.items() if name not in drawn})
    undecided = _decided(config, drawn)
    changed, what = _changed_by(spec.scheduler, space)
    try:
        changing = _decided(config, changed)
    except TypeError as error:
        raise surrounded(error, f"{what}: ") from None
    if kept := sorted(_given_others(changed, space)):
        raise ValueError(
            f"{what} would change {' and '.join(kept)}, but a checkpoint continues with the teacher that its policy "
            "has learned from. Search it in the configuration, tune.grid_search([...]): a trial that takes over a "
            "checkpoint takes its teacher, too."
        )
    if changed:
        spec.scheduler.keep_within(_bounds(config, changed))
    if drawn or changed:
        given = set(config.overrides(**{name: config[name] for name in space if name in config and name not in drawn}))
        first = {name: decides - given for name, decides in changing.items()}  # which the scheduler draws
        ConfigObject.validate(config, set().union(*undecided.values(), *first.values()))
        _check_options(config, drawn, undecided | first)
        _check_options(config, changed, undecided | changing, what)
    else:
        config.validate()
    is_searched = holds_domains(space, or_grids=False) or spec.search_alg not in (None, "random") or spec.scheduler
    seed = space.get("seed")
    if spec.num_samples != 1 and not is_searched and (seed is not None or spec.num_seeds > 1):
        seeds, advice = f"the seed is {seed}", "seed=tune.grid_search([1, 2, ...]), or no seed"
        if spec.num_seeds > 1:
            seeds, advice = f"the seeds are {seed or 0} to {(seed or 0) + spec.num_seeds - 1}", "a larger num_seeds"
        logger.warning("num_samples=%d runs the same trials again: nothing is drawn, and %s in all of them. Use %s.",
                       spec.num_samples, seeds, advice)  # fmt: skip
    is_ours = trainable.algorithm_class.__module__.startswith("rllib.")
    has_callbacks = any(space.get(name) for name in ("callbacks", "callbacks_class", "callback_functions"))
    if is_ours and not has_callbacks:
        for what, key in replace(spec, stop=make_stopper(spec.stop)).result_keys():
            check_result_key(key, what)
