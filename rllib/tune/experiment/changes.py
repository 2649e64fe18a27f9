"""Changes of an experiment that does not run: other settings, and trials that continue after their end."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rllib.runs.entries import encode
from rllib.runs.safe_files import write_whole
from rllib.tune.experiment.directory import ExperimentDirectory, described, for_header
from rllib.tune.experiment.files import write_config
from rllib.tune.experiment.journal_values import ValueReader
from rllib.tune.experiment.records import apply_record, config_record, settings_record, status_record
from rllib.tune.experiment.stoppers import make_stopper
from rllib.tune.experiment.trial import Trial
from rllib.tune.states import PENDING, TERMINATED


def change_experiment(
    path: Path,
    changed: Callable[[dict[str, Any]], dict[str, Any]],
    settings: Mapping[str, Any],
    load_user_code: bool = False,
) -> list[Trial]:
    """Changes an experiment, so that all of its trials continue with other settings when it is resumed.

    A trial that had ended, and whose last result does not reach the stop criterion, is unfinished again. The journal is
    replaced in one step.

    Args:
        path: path of the experiment's directory.
        changed: the search space, or the configuration of a trial -> the one from now on.
        settings: "stop" and further settings of the experiment, by their names, from now on.
        load_user_code: as for `Tuner.restore`.

    Returns:
        its trials.

    Raises:
        ValueError: if there is no experiment, it is damaged, another process runs it, or it holds code that is not
            loaded.
    """
    directory = ExperimentDirectory.reopen(path)
    try:
        header, read = directory.header, ValueReader(load_user_code)
        space = changed(read(header["space"]))
        header = {
            **header,
            "space": for_header(space),
            "described": described(space),
            "settings": {**header["settings"], **{name: for_header(value) for name, value in settings.items()}},
        }
        trials: dict[str, Trial] = {}
        for record in directory.past:
            apply_record(record, trials, path, read)
        records, stopper = [], make_stopper(settings["stop"])
        for trial in trials.values():
            before, trial.config = trial.config, changed(trial.config)
            if described(trial.config) != described(before):
                records.append(config_record(trial))
            if trial.status == TERMINATED and not stopper.reached(trial.trial_id, trial.last_result):
                trial.status, trial.stopped_by = PENDING, None
                records.append(status_record(trial))
        records.append(settings_record(header))
        lines = (encode(record) + b"\n" for record in (header, *directory.past, *records))
        write_whole(directory.journal.path, b"".join(lines))
        for trial in trials.values():
            write_config(trial)
        return list(trials.values())
    finally:
        directory.close()
