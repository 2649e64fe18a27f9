"""Experiments as users run them: `tune.run`, `tune.run_experiments` and `Tuner(...).fit()`."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.places import refuse_places
from rllib.errors import DamagedFileError, TuneError
from rllib.progress import counted
from rllib.remote.download import folder_at, holds, working_copy
from rllib.remote.url import is_url, joined, parent_and_name, place_of
from rllib.storage.local_path import local_path
from rllib.tune.experiment.directory import JOURNALS, described, journal_file, path_to_resume, read_records
from rllib.tune.experiment.journal_values import ValueReader
from rllib.tune.experiment.spec import (
    PARTS_OF_CONFIGS,
    SAVED,
    WATCHING,
    Experiment,
    ExperimentSpec,
    RunConfig,
    TuneConfig,
    experiments_of,
    given_in,
    make_spec,
    saved_settings,
    space_of,
    takes_settings,
)
from rllib.tune.experiment.trial import Trial
from rllib.tune.reporting.analysis import ExperimentAnalysis, ResultGrid
from rllib.tune.running.build import check_spec, prepare
from rllib.tune.running.places import possible_with, working_directory
from rllib.tune.states import ERROR
from rllib.tune.trainables.resolve import merged_config, possible_settings, resolve_trainable
from rllib.tune.trainables.trainable import AlgorithmTrainable

logger = logging.getLogger(__name__)

# Settings that add to what a search space draws -> what they are called in messages.
_PARTS = {"scheduler": "scheduler", "search_alg": "searcher"}


class Tuner:
    """An experiment, to be run by `fit`.

    Args:
        trainable: as for `tune.run`.
        param_space: settings and search space.
        tune_config: metric, search and scheduling.
        run_config: directory, stop criteria, checkpoints, output.

    Raises:
        TypeError: for arguments of other kinds.
    """

    def __init__(
        self,
        trainable,
        *,
        param_space: Mapping[str, Any] | AlgorithmConfig | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ):
        for name, given, kinds, rule in (
            ("param_space", param_space, Mapping | AlgorithmConfig, "a dict of settings and search space, or a config"),
            ("tune_config", tune_config, TuneConfig, "a tune.TuneConfig"),
            ("run_config", run_config, RunConfig, "a tune.RunConfig"),
        ):
            if given is not None and not isinstance(given, kinds):
                raise TypeError(f"{name} must be {rule}, but got {given!r:.80}")
        # Of a restored experiment: its path, and the settings that replace its own.
        self._path: Path | None = None
        self._given: ExperimentSpec | None = None
        self._spec = ExperimentSpec(
            **given_in(tune_config or TuneConfig()),
            **given_in(run_config or RunConfig()),
            trainable=trainable,
            config=dict(space_of(param_space) or {}),
            raise_on_failed_trial=False,
        )

    def fit(self) -> ResultGrid:
        """Runs the experiment; failed trials are in the result's `errors`.

        Raises:
            CheckpointError: if a restored experiment names a place to write to outside of its directory, an address or
                a program, which neither this program gives nor `load_user_code` allows; as `tune.run` otherwise.
        """
        spec = self._spec
        if self._given is not None and not self._given.load_user_code:
            with_saved_settings(self._given, self._path)
        # The experiment that a restored Tuner continues may have the settings of `tune.run`.
        checkpoints = spec.checkpoint_config or replace(spec.checkpoints, checkpoint_at_end=None)
        # Ray's Tuner saves at the end unless told otherwise, its tune.run does not.
        if checkpoints.checkpoint_at_end is None and issubclass(
            resolve_trainable(spec.trainable).cls, AlgorithmTrainable
        ):
            spec = replace(spec, checkpoint_config=replace(checkpoints, checkpoint_at_end=True))
        return ResultGrid(run_spec(spec, self._path))

    @classmethod
    def restore(
        cls,
        path: str | Path,
        trainable,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: Mapping[str, Any] | AlgorithmConfig | None = None,
        load_user_code: bool = False,
        **more,
    ) -> "Tuner":
        """Restores the experiment in a directory; `fit` continues its unfinished trials with its own settings.

        Args:
            path: path of the experiment's directory; or its URL in remote storage, which is copied to `local_dir`/NAME,
                unless that is there, and gets the results of `fit`, too.
            trainable: the experiment's trainable.
            resume_unfinished: False, together with resume_errored: only the failed trials continue.
            resume_errored: failed trials continue from their last checkpoint.
            restart_errored: failed trials start over.
            param_space: the same as before; by default the one that the experiment saved.
            load_user_code: import and unpickle functions, classes and objects of yours that the experiment holds. That
                runs code: only for experiments whose origin you trust. Without it, give these settings again.
            more: tune_config and run_config, whose settings replace the experiment's own.

        Raises:
            ValueError: if there is no experiment, it is damaged, its search space could not be saved, it holds code
                that is neither loaded nor given again, or no trial would continue.
        """
        if not resume_unfinished and (restart_errored or not resume_errored):
            raise ValueError(
                "resume_unfinished=False leaves only failed trials to continue, so it needs resume_errored=True. To "
                "look at the results, use Tuner.restore(path, trainable).get_results()"
            )
        tuner = cls(trainable, param_space=param_space, **more)
        given, storage = tuner._spec, place_of(path)
        if is_url(storage):
            storage, name = parent_and_name(storage)
            path = working_copy(joined(storage, name), replace(given, storage_path=storage).results_dir, JOURNALS)
        else:
            path = local_path(storage)
            storage = path.parent
        given = replace(given, config=None if param_space is None else given.config, load_user_code=load_user_code)
        tuner._path, tuner._given = path, given
        tuner._spec = replace(
            with_saved_settings(given, path, runs=False),
            name=path.name,
            storage_path=storage,
            resume="ERRORED_ONLY"
            if not resume_unfinished
            else "RESTART_ERRORED"
            if restart_errored
            else "AUTO+ERRORED"
            if resume_errored
            else True,
        )
        return tuner

    @classmethod
    def can_restore(cls, path: str | Path) -> bool:
        """Whether there is an experiment in the directory, or at the URL."""
        place = place_of(path)
        return holds(folder_at(place), JOURNALS) if is_url(place) else any(place.glob(JOURNALS))

    def get_results(self) -> ResultGrid:
        """Results of a restored experiment, without running it."""
        return ResultGrid(ExperimentAnalysis(self._spec.results_dir / self._spec.name))


def with_saved_settings(
    given: ExperimentSpec,
    path: Path,
    again: Mapping[str, Any] = MappingProxyType({}),
    optional: Collection[str] = (),
    runs: bool = True,
) -> ExperimentSpec:
    """The spec with the settings of the experiment in a directory, unless it has others; a config of None is none.

    Args:
        given: settings that replace the experiment's own.
        path: path of the experiment's directory.
        again: settings in the experiment's config that the user has confirmed; they may name places elsewhere.
        optional: names of settings without which it continues, if they hold code that is not loaded.
        runs: whether trials may run: only they write to the places that settings name.

    Raises:
        ValueError: if the experiment is damaged, its search space could not be saved, or holds code that is not loaded.
        CheckpointError: if its trials may run, and `refuse_places` refuses its settings.
    """
    file, resolved = journal_file(path), resolve_trainable(given.trainable)
    resources, of_file = resolved.resources, given.config is None
    header, read = read_records(file)[0], ValueReader(given.load_user_code)
    try:
        if given.config is None:
            if not header.get("space"):
                raise ValueError(f"the search space of {path} could not be saved; give it again (param_space, config)")
            given = replace(given, config=read(header["space"]))
        own = saved_settings(replace(given, resources_per_trial=given.resources_per_trial or resources))
        settings = _put_into_configs({**_settings_of(header, own, read, optional), **own}, own)
    except (AttributeError, LookupError, TypeError, DamagedFileError) as error:
        raise DamagedFileError(f"{file} is damaged: its first record: {error!r}") from error
    parts = {name: settings[name] for name in _PARTS if settings.get(name) is not None}
    of_program = [part for name, part in parts.items() if name in own]
    if runs and not given.load_user_code and (of_file or len(parts) > len(of_program)):
        confirmed = merged_config(resolved, again if of_file else given.config)
        meant = possible_with(resolved, confirmed, *of_program)
        # Of a trial to come. From a deeper directory the same ".." leads less far.
        works_in = working_directory(path / "trial", settings.get("chdir_to_trial_dir", True))
        if of_file:
            found = possible_settings(resolved, given.config)
            refuse_places(found, path, meant, f"the search space of {path}", works_in)
        for name, part in parts.items():
            if name not in own:
                found = possible_with(resolved, given.config, part)
                refuse_places(found, path, meant, f"the {_PARTS[name]} of {path}", works_in)
    if resources is not None:
        settings.pop("resources_per_trial", None)
    if "num_samples" not in given_in(given):
        settings["num_samples"] = header["num_samples"]
    return make_spec(settings, "Tuner", given)


def saved_experiment(given: ExperimentSpec, again: Mapping[str, Any]) -> ExperimentSpec:
    """The spec of the experiment that `name` and `resume` continue, by the name of its trainable and its own settings.

    Args:
        given: without trainable and config; other settings than the defaults replace the experiment's own.
        again: as in `with_saved_settings`.

    Raises:
        ValueError: if there is no such experiment, or its trainable is known by no name; as `Tuner.restore`.
    """
    path = path_to_resume(given, given.name)
    if path is None:
        places = f"{given.results_dir} or {given.storage_url}" if given.storage_url else given.results_dir
        raise ValueError(f"there is no experiment {given.name!r} in {places} to resume")
    name = read_records(journal_file(path))[0].get("trainable")
    if not isinstance(name, str):
        raise DamagedFileError(f"{journal_file(path)} is damaged: its first record names no trainable")
    try:
        resolve_trainable(name)
    except ValueError as error:
        raise ValueError(
            f"the experiment in {path} runs {name!r}, which is no known name here. Repeat its command or its program "
            "with resume, which says what that is."
        ) from error
    return with_saved_settings(replace(given, trainable=name), path, again)


def continued(spec: ExperimentSpec, at: Path | None = None) -> ExperimentSpec:
    """The spec with the settings of the experiment that it continues, if it does, where it has no others.

    Without its stop criteria a trial would never end. With a config, functions and classes that watch the experiment
    may be left out.

    Raises:
        ValueError: as `with_saved_settings`.
    """
    if not spec.resume:
        return spec
    resolved = resolve_trainable(spec.trainable)
    found = at or path_to_resume(spec, resolved.name)
    if not found:
        return spec
    if spec.config is None and not _has_saved(merged_config(resolved, None), found):
        return with_saved_settings(spec, found)
    saved = with_saved_settings(replace(spec, config=spec.config or {}), found, optional=WATCHING)
    return replace(saved, config=spec.config)


def _has_saved(space: Mapping[str, Any], path: Path) -> bool:
    """Whether the experiment in a directory has this search space."""
    header = read_records(journal_file(path))[0]
    return header.get("described", described(space)) == described(space)


def _put_into_configs(settings: dict[str, Any], own: Collection[str]) -> dict[str, Any]:
    """Settings in which separate ones that are given again, such as max_failures, are part of the saved config.

    Args:
        settings: settings of the experiment, from now on.
        own: names of those that are given again.
    """
    for config, fields in PARTS_OF_CONFIGS.items():
        if config in settings and config not in own:
            given = {field: settings.pop(name) for name, field in fields.items() if name in own}
            settings[config] = replace(settings[config], **given)
    return settings


def _settings_of(
    header: Mapping[str, Any], given: Mapping[str, Any], read: ValueReader, optional: Collection[str]
) -> dict[str, Any]:
    """Settings that an experiment has saved and that are not given again; warns of settings that it could not save."""
    if "settings" not in header:  # of an earlier version
        return {"metric": header["metric"], "mode": header["mode"]}
    if others := sorted(header["settings"].keys() - SAVED):
        raise DamagedFileError(f"its settings have {', '.join(others):.200}, which no experiment saves")
    lost = [name for name, value in header["settings"].items() if value is None]
    if lost:
        logger.warning(
            "%s could not be pickled when the experiment began, so it continues without: give it again in tune_config "
            "or run_config", ", ".join(lost)
        )  # fmt: skip
    saved = {name: value for name, value in header["settings"].items() if name not in given and value is not None}
    settings = {}
    for name, value in saved.items():
        try:
            settings[name] = read(value)
        except ValueError as error:
            if name not in optional:
                raise type(error)(f"{name}: {error}") from error
    return settings


@takes_settings(ExperimentSpec)
def run(run_or_experiment, **settings) -> ExperimentAnalysis:
    """Runs an experiment: trials of a trainable, with configurations from a search space.

    Args:
        run_or_experiment: name of an algorithm, Algorithm class or config, class Trainable, function, or Experiment; or
            a list of Experiments, which run in sequence and whose trials the analysis has together.
        settings: by name, as listed under TuneConfig, RunConfig and ExperimentSpec; they go before those of an
            Experiment. Arguments of other versions that have no effect here are accepted; unknown ones are a TypeError.

    Returns:
        ExperimentAnalysis, or the list of trials with `return_trials=True`.

    Raises:
        TuneError: if a trial has failed; ends with its traceback.
        ValueError, TypeError: for invalid arguments; before anything starts, where that is possible.
        UnschedulableError: if no trial can ever fit. One of several whose configuration asks for more than there is
            fails alone.
        KeyboardInterrupt: after Ctrl-C; the experiment can be resumed.
    """
    if isinstance(run_or_experiment, list | tuple):
        trials = run_experiments(run_or_experiment, **{**settings, "return_trials": True})
        if settings.get("return_trials"):
            return trials
        return ExperimentAnalysis(None, trials, settings.get("metric"), settings.get("mode"))
    if isinstance(run_or_experiment, Experiment):
        spec = make_spec(settings, "tune.run", run_or_experiment.spec)
    else:
        spec = make_spec({"trainable": run_or_experiment, **settings}, "tune.run")
    analysis = run_spec(spec)
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


def run_spec(spec: ExperimentSpec, at: Path | None = None) -> ExperimentAnalysis:
    """Runs an experiment, or continues it (`continued`).

    Args:
        spec: its settings.
        at: directory of the experiment to continue; None: the spec says which.
    """
    runner, spec = prepare(continued(spec, at), at)
    try:
        runner.run()
    except KeyboardInterrupt:
        if runner.interrupted:
            logger.warning(
                "interrupted; continue with tune.run(..., name=%r, resume=True), or look at it with "
                "tune.ExperimentAnalysis(%r)", spec.name_of(runner.directory.path), str(runner.directory.path)
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
