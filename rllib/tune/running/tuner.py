"""`Tuner(trainable, param_space=..., tune_config=TuneConfig(...), run_config=RunConfig(...)).fit()`."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.errors import DamagedFileError
from rllib.tune.experiment.directory import journal_file, read_records
from rllib.tune.experiment.journal_values import ValueReader
from rllib.tune.experiment.spec import ExperimentSpec, RunConfig, TuneConfig, make_spec, saved_settings
from rllib.tune.reporting.analysis import ExperimentAnalysis, ResultGrid
from rllib.tune.running.run_experiment import run_spec
from rllib.tune.trainables.resolve import resolve_trainable

logger = logging.getLogger(__name__)


class Tuner:
    """An experiment, to be run by `fit`.

    Args:
        trainable: as for `tune.run`.
        param_space: settings and search space.
        tune_config: metric, search and scheduling.
        run_config: directory, stop criteria, checkpoints, output.
    """

    def __init__(
        self,
        trainable,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ):
        if isinstance(param_space, AlgorithmConfig):
            param_space = param_space.changes()
        self._spec = ExperimentSpec(
            **vars(tune_config or TuneConfig()),
            **vars(run_config or RunConfig()),
            trainable=trainable,
            config=dict(param_space or {}),
            raise_on_failed_trial=False,
        )

    def fit(self) -> ResultGrid:
        """Runs the experiment; failed trials are in the result's `errors`."""
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
        load_user_code: bool = False,
        **more,
    ) -> "Tuner":
        """Restores the experiment in a directory; `fit` continues its unfinished trials with its own settings.

        Args:
            path: of the experiment's directory.
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
        path = Path(path).absolute()
        file = journal_file(path)
        header, read = read_records(file)[0], ValueReader(load_user_code)
        tuner = cls(trainable, param_space=param_space, **more)
        given = tuner._spec
        try:
            if param_space is None:
                if not header.get("space"):
                    raise ValueError(f"the search space of {path} could not be saved; give it again as param_space")
                given.config = read(header["space"])
            settings = {**_settings_of(header, saved_settings(given), read), **saved_settings(given)}
        except (AttributeError, LookupError, TypeError, DamagedFileError) as error:
            raise DamagedFileError(f"{file} is damaged: its first record: {error!r}") from error
        if resolve_trainable(given.trainable).resources is not None:
            settings.pop("resources_per_trial", None)
        tuner._spec = replace(
            make_spec(settings, "Tuner", given),
            name=path.name,
            storage_path=path.parent,
            load_user_code=load_user_code,
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
        """Results of a restored experiment, without running it."""
        path = Path(self._spec.results_dir) / self._spec.name
        return ResultGrid(ExperimentAnalysis(path))


def _settings_of(header: Mapping[str, Any], given: Mapping[str, Any], read: ValueReader) -> dict[str, Any]:
    """Settings that an experiment has saved and that are not given again; warns of settings that it could not save."""
    if "settings" not in header:  # of an earlier version
        return {"metric": header["metric"], "mode": header["mode"]}
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
            raise type(error)(f"{name}: {error}") from error
    return settings
