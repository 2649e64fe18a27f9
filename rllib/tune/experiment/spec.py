"""The settings of an experiment, declared once for `tune.run`, the Tuner's configs and experiment dicts.

TuneConfig and RunConfig are parts of an ExperimentSpec, and `tune.run` takes the fields of an ExperimentSpec by name.
"""

import functools
import inspect
import itertools
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, InitVar, dataclass, field, fields, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.did_you_mean import did_you_mean
from rllib.notices import shortened
from rllib.remote.url import place_of
from rllib.storage.local_path import local_path
from rllib.tune.checks import check, check_number
from rllib.tune.experiment.callbacks import Callback
from rllib.tune.experiment.loggers import callbacks_of
from rllib.tune.experiment.trial import Trial, TrialCheckpoint
from rllib.tune.objectives import Metric, Mode, names

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

# Arguments of other versions that are accepted without effect, and why.
OF_OTHER_ERAS = {
    "sync_config": "storage_path takes a URL of remote storage",
    "queue_trials": "what can never fit is refused at once, all else waits",
    "ray_auto_init": "the runtime is started when it is needed",
    "trial_executor": "there is one",
    "server_port": "there is no server",
    "with_server": "there is no server",
    "global_checkpoint_period": "the journal is written at every change",
    "max_retries": "uploads are tried again until the experiment has ended",
}
# Users who give this expect an effect.
_MISSED = ("sync_config",)


@dataclass
class CheckpointConfig:
    """Settings of checkpoints: when trials are saved, and which checkpoints are kept.

    Attributes:
        num_to_keep: number of checkpoints that a trial keeps; None: all. The newest is kept next to the best, since the
            trial continues from it.
        checkpoint_score_attribute: the best by this result key are kept ("min-loss": the lowest); None: the newest.
        checkpoint_score_order: "max" or "min".
        checkpoint_frequency: iterations between checkpoints; 0: none.
        checkpoint_at_end: a checkpoint when the trial ends, also with the experiment, unless its process is ended by
            force or has failed. None: as Ray has it, for algorithms in a Tuner only.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str = "max"
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool | None = None

    def __post_init__(self):
        kept, order = self.num_to_keep, self.checkpoint_score_order
        if kept is not None:
            check_number("num_to_keep", kept, "at least 1, or None for all", least=1, whole=True)
        attribute = self.checkpoint_score_attribute
        check("checkpoint_score_attribute", attribute, attribute is None or isinstance(attribute, str), "a result key")
        check("checkpoint_score_order", order, order in ("max", "min"), "'max' or 'min'")

    def is_due(self, result: Mapping[str, Any], checkpoints: Sequence[TrialCheckpoint]) -> bool:
        """Whether a trial with these checkpoints, the oldest first, is to be saved after this result."""
        return bool(self.checkpoint_frequency) and result["training_iteration"] % self.checkpoint_frequency == 0

    @property
    def score_key(self) -> str | None:
        """The result key by which checkpoints are compared."""
        key = self.checkpoint_score_attribute
        return key and key.removeprefix("min-")

    def superfluous(self, checkpoints: Sequence[TrialCheckpoint]) -> list[TrialCheckpoint]:
        """Checkpoints of a trial, given the oldest first, that are to be removed."""
        if self.num_to_keep is None or len(checkpoints) <= self.num_to_keep:
            return []
        ranked = list(checkpoints)
        if self.checkpoint_score_attribute:
            ranked.sort(key=lambda checkpoint: self._rank(checkpoint.metrics))
        return [checkpoint for checkpoint in ranked[: -self.num_to_keep] if checkpoint is not checkpoints[-1]]

    def _rank(self, metrics: Mapping[str, float]) -> float:
        value = metrics.get(self.score_key, math.nan)
        if math.isnan(value):
            return -math.inf
        lowest = self.checkpoint_score_attribute.startswith("min-") or self.checkpoint_score_order == "min"
        return -value if lowest else value


@dataclass
class FailureConfig:
    """Settings of failures of trials.

    Attributes:
        max_failures: number of times that a trial may fail and start again from its last checkpoint; -1: any number.
        fail_fast: the first trial that fails for good ends the experiment; "raise": with its own exception.
    """

    max_failures: int = 0
    fail_fast: bool | str = False


# Configs -> separate settings of `tune.run` -> their fields.
PARTS_OF_CONFIGS: dict[str, dict[str, str]] = {
    "checkpoint_config": {
        "keep_checkpoints_num": "num_to_keep",
        "checkpoint_score_attr": "checkpoint_score_attribute",
        "checkpoint_score_order": "checkpoint_score_order",
        "checkpoint_freq": "checkpoint_frequency",
        "checkpoint_at_end": "checkpoint_at_end",
    },
    "failure_config": {"max_failures": "max_failures", "fail_fast": "fail_fast"},
}


def _noting_given(cls: type[T]) -> type[T]:
    """Decorates a dataclass of settings whose constructor notes in `_given` the names of those that it was given.

    A setting that is given with its default is not left out: when an experiment is resumed, it replaces the saved one.
    """
    init = cls.__init__
    signature = inspect.signature(init)

    @functools.wraps(init)
    def construct(self, *args, **settings):
        # `dataclasses.replace` gives the settings that change, then the other fields in their order, of which _given is
        # the first (tests/tune/test_resume.py).
        given = dict.fromkeys(itertools.takewhile(lambda name: name != "_given", settings))
        before = settings.pop("_given", None) or frozenset()
        init(self, *args, **settings)
        self._given = before | signature.bind(self, *args, **given).arguments.keys() - {"self"}

    shown = [parameter for name, parameter in signature.parameters.items() if name != "_given"]
    construct.__signature__ = signature.replace(parameters=shown)
    cls.__init__ = construct
    return cls


@dataclass
class _Settings:
    """Settings that know which of them were given: in the constructor, by `dataclasses.replace`, or as attributes."""

    # None: before the constructor has ended, and in a user's dataclass, whose constructor notes nothing.
    _given: frozenset[str] | None = field(default=None, kw_only=True, repr=False, compare=False)

    def __setattr__(self, name: str, value: Any):
        super().__setattr__(name, value)
        if name != "_given" and self._given is not None:
            self._given |= {name}


def settings_in(config: Any) -> list[Field]:
    """The fields of a RunConfig, TuneConfig or ExperimentSpec that are settings."""
    return [each for each in fields(config) if each.name != "_given"]


def given_in(config: "RunConfig | TuneConfig") -> dict[str, Any]:
    """Settings that a config was given. None is as left out.

    Of a user's subclass these are also its own defaults; what it has besides settings is left out.
    """
    noted = config._given or ()
    of_spec = [each for each in settings_in(ExperimentSpec) if hasattr(config, each.name)]
    values = {each.name: (getattr(config, each.name), each.default) for each in of_spec}
    return {
        name: value
        for name, (value, default) in values.items()
        if value not in (default, []) or (value is not None and name in noted)
    }


@_noting_given
@dataclass
class RunConfig(_Settings):
    """Settings of an experiment except its search: directory, stop criteria, checkpoints, failures, output.

    Attributes:
        name: name of the experiment's directory; trainable and date by default. If it exists, the new one gets a
            number, unless `resume` is given.
        storage_path, local_dir: the experiment's directory is made in it; ./results by default. With a URL such as
            s3://BUCKET/PATH as storage_path, the directory is made in local_dir, and has a copy below the URL.
        stop: {"result/key": threshold}, function(trial_id, result) -> bool, or a Stopper. {"time_total_s": seconds}
            also ends a trial that hangs: its process is killed soon after, and its results are kept.
        checkpoint_config: when trials are saved, and which checkpoints are kept.
        failure_config: how often a trial may fail.
        callbacks: Callback objects.
        verbose: 0 silent, 1 status, 2 and a line for each trial that ends.
        progress_reporter: shows the progress; by default a live table on terminals, else lines.
        log_to_file: True: trials print to the files stdout and stderr in their directories; or one name of such a file,
            or two.
        sync_config: Ray's, accepted without effect.
    """

    name: str | None = None
    storage_path: str | Path | None = None
    stop: Any = None
    checkpoint_config: CheckpointConfig | None = None
    failure_config: FailureConfig | None = None
    callbacks: Sequence[Callback] | None = None
    verbose: int | None = None
    progress_reporter: Any = None
    log_to_file: Any = False
    local_dir: str | Path | None = None
    sync_config: InitVar[Any] = None

    def __post_init__(self, sync_config: Any):
        if sync_config is not None:
            logger.warning("sync_config has no effect here: %s", OF_OTHER_ERAS["sync_config"])

    def __repr__(self):
        given = (f"{each.name}={shortened(getattr(self, each.name))}" for each in settings_in(self))
        return f"{type(self).__name__}({', '.join(given)})"


@_noting_given
@dataclass
class TuneConfig(_Settings):
    """Settings of the search: metric, number of samples, searcher, scheduler, limits.

    Attributes:
        metric, mode: result key by which trials are compared, and whether "max" or "min" is better; or a list of each,
            whose Pareto front is searched.
        num_samples: number of samples of the space (each with the whole grid); -1: without end.
        num_seeds: number of seeds that each trial runs with, side by side: the `seed` of its configuration, or 0, and
            the following. Its results are medians over the seeds at equal steps.
        search_alg, scheduler: names or objects.
        max_concurrent_trials: number of trials that run at once; by default as many as fit.
        time_budget_s: seconds, or a timedelta, for the whole experiment. Then all unfinished trials are ended, by force
            if they do not answer within 5 s.
        reuse_actors: trials take over the processes of ended ones, where the trainable has `reset_config`.
        trial_name_creator, trial_dirname_creator: functions of the Trial.
        chdir_to_trial_dir: each trial's process works in the trial's directory, so that trials do not overwrite one
            another's files; False: in the directory in which the session was started.
    """

    metric: Metric | None = None
    mode: Mode | None = None
    num_samples: int = 1
    num_seeds: int = 1
    search_alg: Any = None
    scheduler: Any = None
    max_concurrent_trials: int | None = None
    time_budget_s: float | timedelta | None = None
    reuse_actors: bool | None = None
    trial_name_creator: Callable[[Trial], str] | None = None
    trial_dirname_creator: Callable[[Trial], str] | None = None
    chdir_to_trial_dir: bool = True


@_noting_given
@dataclass(kw_only=True)
class ExperimentSpec(RunConfig, TuneConfig):
    """Settings of `tune.run`: the fields of RunConfig and TuneConfig, and the following.

    Attributes:
        trainable: name of an algorithm, class, config or function.
        config: settings and search space.
        resources_per_trial: {"cpu": 1, "gpu": 0, "extra_cpu": 2}; by default the trainable's own request.
        checkpoint_freq, checkpoint_at_end, keep_checkpoints_num, checkpoint_score_attr, checkpoint_score_order: fields
            of a CheckpointConfig; without effect where one is given.
        max_failures, fail_fast: fields of a FailureConfig; without effect where one is given.
        restore: checkpoint directory, or a file in it, that every trial starts from.
        resume: True or "LOCAL": continue the experiment of this name; "AUTO": if it exists; "ERRORED_ONLY": only its
            failed trials. Without a config, the experiment has its own again, and its other settings where they are
            left out or None.
        load_user_code: unpickle the objects that a resumed experiment, or a checkpoint of another run, holds next to
            plain values. That runs code: only for those whose origin you trust. Without it, values of `config` replace
            pickled ones of an experiment.
        raise_on_failed_trial: raise TuneError at the end if a trial has failed.
        return_trials: return the trials instead of the analysis.
        tensorboard: write event files.
        loggers: classes of Ray 0.8, made for each trial as Class(config, logdir), with on_result(result) and close().
        export_formats: exported into the directory of a trial that ends well: "model" (the policy) and "checkpoint" for
            algorithms; the formats of export_model(formats, directory) for classes.
    """

    trainable: Any = None
    config: dict[str, Any] | None = None
    resources_per_trial: Any = None
    checkpoint_freq: int = 0
    checkpoint_at_end: bool = False
    keep_checkpoints_num: int | None = None
    checkpoint_score_attr: str | None = None
    checkpoint_score_order: str = "max"
    max_failures: int = 0
    fail_fast: bool | str = False
    restore: str | Path | None = None
    resume: Any = False
    load_user_code: bool = False
    raise_on_failed_trial: bool = True
    return_trials: bool = False
    tensorboard: bool = True
    loggers: Sequence | None = None
    export_formats: Sequence[str] | None = None

    def result_keys(self) -> list[tuple[str, str]]:
        """(setting, result key or "a/b" path that it names); `stop` is a Stopper."""
        keys = [*(("metric", name) for name in names(self.metric))]
        keys.append(("checkpoint_score_attr", self.checkpoints.score_key))
        return [("stop", key) for key in self.stop.result_keys] + [pair for pair in keys if pair[1]]

    @property
    def storage_url(self) -> str | None:
        """URL below which the experiment has a copy; None: there is none."""
        place = place_of(self.storage_path) if self.storage_path else None
        return place if isinstance(place, str) else None

    @property
    def results_dir(self) -> Path:
        """Directory on this machine in which the experiment's directory is made, absolute."""
        given = self.local_dir if self.storage_url else self.storage_path or self.local_dir
        return local_path(place_of(given or os.environ.get("RLLIB_RESULTS_DIR", "results")))

    def name_of(self, path: Path) -> str:
        """Name of the experiment in a directory: its path below `results_dir`, which may have "/"."""
        results = self.results_dir  # another one if the program has changed its directory meanwhile
        return path.relative_to(results).as_posix() if path.is_relative_to(results) else path.name

    @property
    def checkpoints(self) -> CheckpointConfig:
        """The checkpoint_config, or one of the separate settings."""
        return self.checkpoint_config or CheckpointConfig(**self._parts_of("checkpoint_config"))

    @property
    def failures(self) -> FailureConfig:
        """The failure_config, or one of the separate settings."""
        return self.failure_config or FailureConfig(**self._parts_of("failure_config"))

    def _parts_of(self, config: str) -> dict[str, Any]:
        """Fields of a config by the separate settings."""
        return {field: getattr(self, name) for name, field in PARTS_OF_CONFIGS[config].items()}

    @property
    def all_callbacks(self) -> list[Callback]:
        """Callbacks, with the ones for `loggers`."""
        return [*(self.callbacks or []), *callbacks_of(self.loggers)]


class SyncConfig:
    """Settings of copies in remote storage, as Ray has them; without effect: `storage_path` alone says where they go.

    Args:
        settings: as in Ray.
    """

    def __init__(self, *_, **settings):
        self.settings = settings


@dataclass
class ResumeConfig:
    """Trials that continue when an experiment is resumed, in Ray's words: tune.run(resume=True, resume_config=...).

    Attributes:
        finished: "SKIP": they stay as they are.
        unfinished: "RESUME", or "SKIP" together with errored="RESUME".
        errored: "SKIP", "RESUME" from the last checkpoint, or "RESTART".

    Raises:
        ValueError: for another combination.
    """

    class ResumeType(StrEnum):
        """Treatment of a trial."""

        RESUME = "RESUME"
        RESTART = "RESTART"
        SKIP = "SKIP"

    finished: str = "SKIP"
    unfinished: str = "RESUME"
    errored: str = "SKIP"

    def __post_init__(self):
        given = f"{self.finished}, {self.unfinished}, {self.errored}"
        known = "errored SKIP, RESUME or RESTART; unfinished RESUME, or SKIP with errored RESUME; finished SKIP"
        check("ResumeConfig", given, self.resume is not None, known)

    @property
    def resume(self) -> bool | str | None:
        """The value of `resume` that says the same; None: there is none."""
        return _RESUMES.get((self.finished, self.unfinished, self.errored))


# What happens to finished, unfinished and failed trials -> resume
_RESUMES = {
    ("SKIP", "RESUME", "SKIP"): True,
    ("SKIP", "RESUME", "RESUME"): "AUTO+ERRORED",
    ("SKIP", "RESUME", "RESTART"): "RESTART_ERRORED",
    ("SKIP", "SKIP", "RESUME"): "ERRORED_ONLY",
}


# Settings that watch an experiment, and decide nothing in it.
WATCHING = ("callbacks", "loggers", "progress_reporter")
# Given again when an experiment is restored, or written into its header by themselves.
_NOT_SAVED = {
    "trainable", "config", "name", "storage_path", "local_dir", "resume", "load_user_code", "raise_on_failed_trial",
    "num_samples", "return_trials",
}  # fmt: skip


# Settings that an experiment has in its header, and takes from it.
SAVED = frozenset(each.name for each in settings_in(ExperimentSpec)) - _NOT_SAVED


def saved_settings(spec: ExperimentSpec) -> dict[str, Any]:
    """Settings that were given, with which an experiment is restored."""
    return {name: value for name, value in given_in(spec).items() if name in SAVED}


def takes_settings(
    spec: Callable[P, ExperimentSpec],
) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, P], R]]:
    """Decorates a function so that help() and type checkers see the fields of ExperimentSpec as its arguments."""

    def decorate(function):
        first, *_ = inspect.signature(function).parameters.values()
        settings = [
            parameter.replace(kind=parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(spec).parameters.items()
            if name != "trainable"
        ]
        function.__signature__ = inspect.Signature([first, *settings])
        return function

    return decorate


# Keys of Ray's experiment dicts -> names of ExperimentSpec.
_OLD_KEYS = {
    "run": "trainable",
    "trial_resources": "resources_per_trial",
    "checkpoint_score_attribute": "checkpoint_score_attr",
    "upload_dir": "storage_path",
}
# Arguments that are not given where they are None.
_UNSET_BY_NONE = ("upload_dir", "resume_config")


def space_of(config: Any) -> Any:
    """Settings and search space; of an AlgorithmConfig those that have been set."""
    return config.changes() if isinstance(config, AlgorithmConfig) else config


def make_spec(given: Mapping[str, Any], where: str, spec: ExperimentSpec | None = None) -> ExperimentSpec:
    """A spec with the settings in `given`, which may have names of other versions; they override `spec`.

    Raises:
        TypeError: for an unknown name, with the nearest; it begins with `where`.
    """
    known = [one.name for one in settings_in(ExperimentSpec)]
    settings = {}
    given = {key: value for key, value in given.items() if value is not None or key not in _UNSET_BY_NONE}
    given.pop("_given", None)  # of `**vars(RunConfig(...))`
    resume_config = given.pop("resume_config", None)
    if "upload_dir" in given and given.get("storage_path") is not None:
        raise TypeError(f"{where}: upload_dir is an earlier name of storage_path. Give storage_path alone.")
    for key, value in given.items():
        if key in OF_OTHER_ERAS:
            if value not in (None, False):
                level = logging.WARNING if key in _MISSED else logging.INFO
                logger.log(level, "%s has no effect here: %s", key, OF_OTHER_ERAS[key])
        elif _OLD_KEYS.get(key, key) in known:
            settings[_OLD_KEYS.get(key, key)] = space_of(value) if key == "config" else value
        else:
            hint = did_you_mean(key, [*known, *OF_OTHER_ERAS], otherwise=f"It takes: {', '.join(known)}.")
            raise TypeError(f"{where} has no argument {key!r}.{hint}")
    if resume_config is not None and not isinstance(resume_config, ResumeConfig):
        raise TypeError(f"{where}: resume_config must be a tune.ResumeConfig, but got {resume_config!r:.80}")
    if resume_config is not None and settings.get("resume"):
        settings["resume"] = resume_config.resume
    return replace(spec or ExperimentSpec(), **settings)


class Experiment:
    """One experiment for `run_experiments`.

    Args:
        name: name of its directory.
        run: first argument of `tune.run`.
        settings: as for `tune.run`, or the keys of Ray's experiment dicts; `env` is put into the config.

    Raises:
        TypeError: for an unknown key, with the nearest.
    """

    def __init__(self, name: str, run, **settings):
        self.name = name
        env = settings.pop("env", None)
        if env is not None:
            settings["config"] = {"env": env, **(space_of(settings.get("config")) or {})}
        self.spec = make_spec({"name": name, "trainable": run, **settings}, f"experiment {name!r}")

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> "Experiment":
        """The experiment of an experiment dict."""
        given = dict(spec)
        if "run" not in given:
            raise ValueError(f"experiment {name!r} does not say what to run: it has {', '.join(given) or 'nothing'}")
        return cls(name, given.pop("run"), **given)


def experiments_of(given) -> list[Experiment]:
    """The experiments of an Experiment, of a dict from names to experiments or their dicts, or of a list of these."""
    if isinstance(given, Experiment):
        return [given]
    if isinstance(given, Mapping):
        return [e if isinstance(e, Experiment) else Experiment.from_json(name, e) for name, e in given.items()]
    return [one for entry in given for one in experiments_of(entry)]
