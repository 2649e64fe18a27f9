"""An experiment as data: everything that `tune.run` takes, and the experiment dicts of old."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from rllib.algorithms.sections import nearest
from rllib.tune.experiment_callbacks import Callback
from rllib.tune.old_loggers import callbacks_of
from rllib.tune.trial import Trial

logger = logging.getLogger(__name__)

# Arguments of other versions that are taken without effect, and why.
OF_OTHER_ERAS = {
    "upload_dir": "results stay on this machine",
    "sync_config": "results stay on this machine",
    "queue_trials": "what can never fit is refused at once, all else waits",
    "ray_auto_init": "the runtime is started when it is needed",
    "trial_executor": "there is one",
    "server_port": "there is no server",
    "with_server": "there is no server",
    "global_checkpoint_period": "the journal is written as things happen",
    "max_retries": "there is nothing to upload",
}
# Who gives these expects something that does not happen.
_MISSED = ("upload_dir", "sync_config")


@dataclass
class ExperimentSpec:
    """Everything that `tune.run` takes, by its names; see there."""

    trainable: Any
    name: str | None = None
    metric: str | None = None
    mode: str | None = None
    stop: Any = None
    time_budget_s: float | timedelta | None = None
    config: dict[str, Any] | None = None
    resources_per_trial: Any = None
    num_samples: int = 1
    results_dir: str | Path | None = None
    search_alg: Any = None
    scheduler: Any = None
    checkpoint_freq: int = 0
    checkpoint_at_end: bool = False
    keep_checkpoints_num: int | None = None
    checkpoint_score_attr: str | None = None
    checkpoint_score_order: str = "max"
    verbose: int | None = None
    progress_reporter: Any = None
    log_to_file: Any = False
    trial_name_creator: Callable[[Trial], str] | None = None
    trial_dirname_creator: Callable[[Trial], str] | None = None
    max_failures: int = 0
    fail_fast: bool | str = False
    restore: str | Path | None = None
    resume: Any = False
    reuse_actors: bool = False
    raise_on_failed_trial: bool = True
    callbacks: Sequence[Callback] = field(default_factory=list)
    max_concurrent_trials: int | None = None
    tensorboard: bool = True
    export_formats: Sequence[str] = ()
    chdir_to_trial_dir: bool = True


# Given anew when an experiment is restored, or written into its header by themselves.
_NOT_SAVED = {
    "trainable", "config", "name", "results_dir", "resume", "raise_on_failed_trial", "num_samples",
}  # fmt: skip


def saved_settings(spec: ExperimentSpec) -> dict[str, Any]:
    """What an experiment is restored with: the settings that are not the defaults."""
    return {
        one.name: getattr(spec, one.name)
        for one in fields(spec)
        if one.name not in _NOT_SAVED and getattr(spec, one.name) not in (one.default, [])
    }


# Keys of the experiment dicts of old -> names of ExperimentSpec.
EXPERIMENT_KEYS = {
    "run": "trainable",
    "local_dir": "results_dir",
    "storage_path": "results_dir",
    "trial_resources": "resources_per_trial",
    "checkpoint_score_attribute": "checkpoint_score_attr",
}


class Experiment:
    """One experiment for `run_experiments`.

    Args:
        name: of its directory.
        run: what `tune.run` takes first.
        settings: as for `tune.run`, or the keys of the old experiment dicts; `env` is put into the config.

    Raises:
        TypeError: for an unknown key, with the nearest.
    """

    def __init__(self, name: str, run, **settings):
        self.name = name
        self.spec = _spec_of_dict(name, {"run": run, **settings})

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> "Experiment":
        """Of an experiment dict."""
        given = dict(spec)
        if "run" not in given:
            raise ValueError(f"experiment {name!r} does not say what to run: it has {', '.join(given) or 'nothing'}")
        return cls(name, given.pop("run"), **given)


def experiments_of(given) -> list[Experiment]:
    if isinstance(given, Experiment):
        return [given]
    if isinstance(given, Mapping):
        return [e if isinstance(e, Experiment) else Experiment.from_json(name, e) for name, e in given.items()]
    return [one for entry in given for one in experiments_of(entry)]


def _spec_of_dict(name: str, given: Mapping[str, Any]) -> ExperimentSpec:
    given = {EXPERIMENT_KEYS.get(key, key): value for key, value in given.items()}
    env = given.pop("env", None)
    if env is not None:
        given["config"] = {"env": env, **(given.get("config") or {})}
    for key in list(given):
        if key in OF_OTHER_ERAS:
            check_other_eras({key: given.pop(key)})
    if "loggers" in given:
        given["callbacks"] = [*given.get("callbacks", ()), *callbacks_of(given.pop("loggers"))]
    checkpoint_config = given.pop("checkpoint_config", None)
    refuse_unknown(given, f"experiment {name!r}")
    spec = ExperimentSpec(**{"name": name, **given})
    return checkpoint_config.applied(spec) if checkpoint_config is not None else spec


def refuse_unknown(given: Mapping[str, Any], where: str) -> None:
    known = [spec_field.name for spec_field in fields(ExperimentSpec)]
    for key in given:
        if key not in known:
            near = nearest(key, known)
            hint = f"Did you mean {near[0]!r}?" if near else f"It takes: {', '.join(known)}."
            raise TypeError(f"{where}: unknown key {key!r}. {hint}")


def check_other_eras(given: Mapping[str, Any]) -> None:
    for key in given:
        if key not in OF_OTHER_ERAS:
            known = [spec_field.name for spec_field in fields(ExperimentSpec) if spec_field.name != "results_dir"]
            near = nearest("storage_path" if key == "results_dir" else key, [*known, "storage_path", *OF_OTHER_ERAS])
            hint = f" Did you mean {near[0]}?" if near else ""
            raise TypeError(f"tune.run has no argument {key!r}.{hint}")
        if given[key] not in (None, False):
            level = logging.WARNING if key in _MISSED else logging.INFO
            logger.log(level, "%s has no effect here: %s", key, OF_OTHER_ERAS[key])
