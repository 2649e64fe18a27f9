"""The files of a trial that the experiment writes: params.*, result.json, progress.csv, error.*."""

import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path

import cloudpickle
import msgspec

from rllib.tune.loggers import CsvLogger, JsonLogger, write_params
from rllib.tune.trial import MetricAnalysis, Trial, TrialCheckpoint
from rllib.tune.trial_checkpoint import METADATA, read_metadata, remove_temporaries


class TrialFiles:
    """Writes a trial's results; opened when the trial starts, closed when it ends or stands still.

    Args:
        directory: of the trial.
    """

    def __init__(self, directory: Path):
        self._loggers = [JsonLogger(directory), CsvLogger(directory)]

    def on_result(self, result: Mapping) -> None:
        """Writes one result to each file."""
        for logger in self._loggers:
            logger.on_result(result)

    def close(self) -> None:
        """Closes them."""
        for logger in self._loggers:
            logger.close()


def write_config(trial: Trial) -> None:
    """params.json for people and other programs, params.pkl with what JSON cannot hold."""
    directory = Path(trial.logdir)
    directory.mkdir(parents=True, exist_ok=True)
    write_params(directory, trial.config)
    (directory / "params.pkl").write_bytes(cloudpickle.dumps(trial.config))


def write_error(trial: Trial) -> None:
    """error.txt gets the newest traceback at its end; error.pkl holds the exception, if it can be pickled."""
    directory = Path(trial.logdir)
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "error.txt", "a") as file:
        file.write(f"Failure # {trial.num_failures}\n{trial.error}\n")
    if trial.exception is not None:
        try:
            (directory / "error.pkl").write_bytes(cloudpickle.dumps(trial.exception))
        except Exception:  # whatever a user's exception holds
            (directory / "error.pkl").write_bytes(pickle.dumps(RuntimeError(trial.error)))


def roll_back(trial: Trial) -> None:
    """Makes files and trial agree on the newest checkpoint whose result was written, or on the beginning.

    What came after it is done again: such results are taken out of result.json and progress.csv, such checkpoints
    removed. `last_result` and `metric_analysis` are those of the results that stay.
    """
    directory = Path(trial.logdir)
    results = read_results(directory)
    iterations = [result.get("training_iteration", 0) for result in results]
    trial.checkpoints = _checkpoints(trial, directory, iterations[-1] if iterations else 0)
    last = trial.checkpoints[-1].iteration if trial.checkpoints else 0
    kept = [result for result, iteration in zip(results, iterations) if iteration <= last]
    if len(kept) < len(results) or not kept:
        for name in ("result.json", "progress.csv"):
            (directory / name).unlink(missing_ok=True)
        if kept:
            _rewrite(directory, kept)
    trial.last_result, trial.analysis = {}, MetricAnalysis()
    for result in kept:
        trial.take({**result, "config": trial.config})


def start_over(trial: Trial) -> None:
    """Removes the trial's checkpoints, so that it begins anew."""
    trial.checkpoints = []
    for path in Path(trial.logdir).glob("checkpoint_*"):
        shutil.rmtree(path, ignore_errors=True)


def read_results(directory: Path) -> list[dict]:
    """The results in result.json; half a line at its end is left out."""
    try:
        content = (directory / "result.json").read_bytes()
    except FileNotFoundError:
        return []
    whole = content[: content.rfind(b"\n") + 1]
    return [msgspec.json.decode(line) for line in whole.splitlines() if line]


def _rewrite(directory: Path, results: list[dict]) -> None:
    files = TrialFiles(directory)
    for result in results:
        files.on_result(result)
    files.close()


def _checkpoints(trial: Trial, directory: Path, last_iteration: int) -> list[TrialCheckpoint]:
    """Those that are there and whole, the oldest first."""
    known = {checkpoint.name: checkpoint for checkpoint in trial.checkpoints}
    remove_temporaries(directory)
    found = []
    for path in directory.glob("checkpoint_*"):
        iteration = read_metadata(path).get("iteration") if (path / METADATA).exists() else None
        # One that was taken over from another trial may be ahead of the trial's own results.
        if iteration is None or (iteration > last_iteration and path.name not in known):
            shutil.rmtree(path, ignore_errors=True)
        else:
            found.append(known.get(path.name) or TrialCheckpoint(path.name, iteration))
    order = {name: index for index, name in enumerate(known)}
    return sorted(found, key=lambda c: (order.get(c.name, len(order)), c.iteration))
