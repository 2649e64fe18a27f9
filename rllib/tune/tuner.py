"""`Tuner(trainable, param_space=..., tune_config=TuneConfig(...), run_config=RunConfig(...)).fit()`."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from rllib.tune.analysis import ExperimentAnalysis, ResultGrid
from rllib.tune.experiment import from_text, journal_file, read_journal
from rllib.tune.experiment_callbacks import Callback
from rllib.tune.experiment_spec import ExperimentSpec, saved_settings
from rllib.tune.run_experiment import run_spec
from rllib.tune.trainables import resolve_trainable
from rllib.tune.trial import Trial

logger = logging.getLogger(__name__)


@dataclass
class CheckpointConfig:
    """When trials are saved, and what stays.

    Attributes:
        num_to_keep: checkpoints of a trial; None: all.
        checkpoint_score_attribute: keep the best by this result key; None: the newest.
        checkpoint_score_order: "max" or "min".
        checkpoint_frequency: iterations between checkpoints; 0: none.
        checkpoint_at_end: one when the trial ends.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str = "max"
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool = False

    def applied(self, spec: ExperimentSpec) -> ExperimentSpec:
        """The experiment with these settings."""
        return replace(
            spec,
            keep_checkpoints_num=self.num_to_keep,
            checkpoint_score_attr=self.checkpoint_score_attribute,
            checkpoint_score_order=self.checkpoint_score_order,
            checkpoint_freq=self.checkpoint_frequency,
            checkpoint_at_end=self.checkpoint_at_end,
        )


@dataclass
class FailureConfig:
    """What happens when a trial fails.

    Attributes:
        max_failures: how often it may, and goes on from its last checkpoint; -1: always.
        fail_fast: end the experiment with the first that fails for good; "raise": with its own exception.
    """

    max_failures: int = 0
    fail_fast: bool | str = False


@dataclass
class RunConfig:
    """Where and how an experiment runs; see `tune.run`, whose names are the same."""

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


@dataclass
class TuneConfig:
    """What is searched; see `tune.run`, whose names are the same."""

    metric: str | None = None
    mode: str | None = None
    num_samples: int = 1
    search_alg: Any = None
    scheduler: Any = None
    max_concurrent_trials: int | None = None
    time_budget_s: float | timedelta | None = None
    reuse_actors: bool = False
    trial_name_creator: Callable[[Trial], str] | None = None
    trial_dirname_creator: Callable[[Trial], str] | None = None
    chdir_to_trial_dir: bool = True


class Tuner:
    """An experiment, to be run by `fit`.

    Args:
        trainable: as for `tune.run`.
        param_space: settings and search space.
        tune_config: what is searched.
        run_config: where and how it runs.
    """

    def __init__(
        self,
        trainable,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ):
        if hasattr(param_space, "to_dict") and not isinstance(param_space, Mapping):
            trainable, param_space = _with_algorithm_config(trainable, param_space)
        tune_config, run_config = tune_config or TuneConfig(), run_config or RunConfig()
        failure = run_config.failure_config or FailureConfig()
        spec = ExperimentSpec(
            trainable,
            name=run_config.name,
            metric=tune_config.metric,
            mode=tune_config.mode,
            stop=run_config.stop,
            time_budget_s=tune_config.time_budget_s,
            config=dict(param_space or {}),
            num_samples=tune_config.num_samples,
            results_dir=run_config.storage_path or run_config.local_dir,
            search_alg=tune_config.search_alg,
            scheduler=tune_config.scheduler,
            verbose=run_config.verbose,
            progress_reporter=run_config.progress_reporter,
            log_to_file=run_config.log_to_file,
            trial_name_creator=tune_config.trial_name_creator,
            trial_dirname_creator=tune_config.trial_dirname_creator,
            max_failures=failure.max_failures,
            fail_fast=failure.fail_fast,
            reuse_actors=tune_config.reuse_actors,
            raise_on_failed_trial=False,
            callbacks=list(run_config.callbacks or []),
            max_concurrent_trials=tune_config.max_concurrent_trials,
            chdir_to_trial_dir=tune_config.chdir_to_trial_dir,
        )
        self._spec = (run_config.checkpoint_config or CheckpointConfig()).applied(spec)

    def fit(self) -> ResultGrid:
        """Runs it; failed trials are in the result's `errors`."""
        return ResultGrid(run_spec(self._spec))

    @classmethod
    def restore(
        cls,
        path: str | Path,
        trainable,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: Mapping[str, Any] | None = None,
        **more,
    ) -> "Tuner":
        """The experiment in a directory; `fit` goes on with its unfinished trials, as it was told to at first.

        Args:
            path: of the experiment's directory, whose header is unpickled: only for experiments of one's own.
            trainable: what it ran.
            resume_unfinished: False, together with resume_errored: only the failed trials go on.
            resume_errored: failed trials go on from their last checkpoint.
            restart_errored: failed trials start over.
            param_space: as it was; by default what the experiment saved.
            more: tune_config and run_config; what they set replaces the experiment's own settings.

        Raises:
            ValueError: if there is no experiment, its search space could not be saved, or nothing is to go on.
        """
        if not resume_unfinished and (restart_errored or not resume_errored):
            raise ValueError(
                "resume_unfinished=False leaves the failed trials to go on, so it needs resume_errored=True. To look "
                "at the results so far, use Tuner.restore(path, trainable).get_results()"
            )
        path = Path(path).absolute()
        header, _ = read_journal(journal_file(path), load_objects=False)
        if param_space is None:
            if not header.get("space"):
                raise ValueError(f"the search space of {path} could not be saved; give it again as param_space")
            param_space = from_text(header["space"])
        tuner = cls(trainable, param_space=param_space, **more)
        given = tuner._spec
        settings = {**_settings_of(header), **saved_settings(given)}
        if resolve_trainable(given.trainable).resources is not None:
            settings.pop("resources_per_trial", None)
        tuner._spec = replace(
            given,
            **settings,
            name=path.name,
            results_dir=path.parent,
            num_samples=header["num_samples"] if given.num_samples == 1 else given.num_samples,
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
        """Whether there is an experiment in the directory."""
        return any(Path(path).glob("experiment_state-*.json"))

    def get_results(self) -> ResultGrid:
        """What a restored experiment has so far, without running it."""
        path = Path(self._spec.results_dir) / self._spec.name
        return ResultGrid(ExperimentAnalysis(path))


def _settings_of(header: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that an experiment has saved; those that it could not are warned of."""
    if "settings" not in header:  # of an earlier version
        return {"metric": header["metric"], "mode": header["mode"]}
    pickled = header["settings"]
    lost = [name for name, text in pickled.items() if text is None]
    if lost:
        logger.warning(
            "%s could not be pickled when the experiment began, so it goes on without: give it again in tune_config "
            "or run_config", ", ".join(lost)
        )  # fmt: skip
    return {name: from_text(text) for name, text in pickled.items() if text is not None}


def _with_algorithm_config(trainable, config):
    """An AlgorithmConfig as param_space: its settings."""
    defaults = type(config)()
    return trainable, {name: value for name, value in config.items() if value is not defaults[name]}
