"""Files that the experiment writes for a trial: params.*, result.json, progress.csv, error.*, copied checkpoints."""

import pickle
from pathlib import Path
from typing import Any

import cloudpickle

from rllib.runs.files import drop_results_after, read_results, write_params
from rllib.runs.safe_files import append_text, numbered, write_whole
from rllib.storage.foreign_files import copy_inside
from rllib.storage.whole import draft_beside, move_whole, remove_whole
from rllib.tune.experiment.records import not_finite, with_infinite, with_numbers
from rllib.tune.experiment.trial import Trial, TrialCheckpoint, numbers_in
from rllib.tune.trainables.checkpoint import METADATA, read_metadata, remove_temporaries


def write_config(trial: Trial) -> None:
    """Writes params.json for people and other programs, and params.pkl with all that JSON cannot hold."""
    directory = Path(trial.logdir)
    directory.mkdir(parents=True, exist_ok=True)
    write_params(directory, trial.config if trial.seed is None else {**trial.config, "seed": trial.seed})
    write_whole(directory / "params.pkl", cloudpickle.dumps(trial.config), is_synced=False)


def write_error(trial: Trial) -> None:
    """Appends the newest traceback to error.txt; writes the exception to error.pkl, if it can be pickled."""
    directory = Path(trial.logdir)
    directory.mkdir(parents=True, exist_ok=True)
    append_text(directory / "error.txt", f"Failure # {trial.num_failures}\n{trial.error}\n")
    if trial.exception is not None:
        try:
            content = cloudpickle.dumps(trial.exception)
        except Exception:  # any error of a user's exception
            content = pickle.dumps(RuntimeError(trial.error))
        write_whole(directory / "error.pkl", content, is_synced=False)


def roll_back(trial: Trial) -> tuple[list[dict], list[TrialCheckpoint]]:
    """Rolls the trial's files back to the newest checkpoint whose result was written, from which the trial continues.

    Later results are removed from result.json and progress.csv, later checkpoints deleted; without a checkpoint,
    everything is removed.

    Returns:
        the remaining results and checkpoints, the oldest first. Numbers of the last result that were NaN or infinite
        are so again.
    """
    directory = Path(trial.logdir)
    checkpoints = _checkpoints(trial, directory, with_infinite(read_results(directory), trial))
    last = checkpoints[-1].iteration if checkpoints else 0
    kept = with_infinite(drop_results_after(directory, last), trial)
    if kept and checkpoints:
        kept[-1] = with_numbers(kept[-1], not_finite(checkpoints[-1].metrics))
    return kept, checkpoints


def as_paused(trial: Trial) -> tuple[list[dict[str, Any]], list[TrialCheckpoint]]:
    """Results and checkpoints, as `roll_back` returns them, of a trial that goes back only when it starts, or never.

    Checkpoints without a record are deleted: they may be copies for a takeover that will be carried out again.
    """
    directory = Path(trial.logdir)
    _remove_drafts(directory)
    known = {checkpoint.name for checkpoint in trial.checkpoints}
    for path in directory.glob("checkpoint_*"):
        if path.name not in known:
            remove_whole(path)
    there = [each for each in trial.checkpoints if Path(trial.checkpoint_path(each)).is_dir()]
    return with_infinite(read_results(directory), trial), there


def _remove_drafts(directory: Path) -> None:
    """Removes what a process and a driver that were killed have half written."""
    remove_temporaries(directory)
    for draft in directory.glob(".params.*.tmp"):
        draft.unlink(missing_ok=True)


def _checkpoints(trial: Trial, directory: Path, results: list[dict[str, Any]]) -> list[TrialCheckpoint]:
    """Complete checkpoints in the trial's directory, the oldest first; deletes the others.

    Those that were not recorded get the numbers of their results, by which it is decided which ones are kept.
    """
    by_iteration = {result.get("training_iteration", 0): result for result in results}
    last_iteration = results[-1].get("training_iteration", 0) if results else 0
    known = {checkpoint.name: checkpoint for checkpoint in trial.checkpoints}
    _remove_drafts(directory)
    found = []
    for path in directory.glob("checkpoint_*"):
        iteration = read_metadata(path).get("iteration") if (path / METADATA).exists() else None
        # A checkpoint that was taken over from another trial may be ahead of the trial's own results.
        if iteration is None or (iteration > last_iteration and path.name not in known):
            remove_whole(path)
        else:
            numbers = numbers_in(by_iteration.get(iteration, {}))
            found.append(known.get(path.name) or TrialCheckpoint(path.name, iteration, numbers))
    order = {name: index for index, name in enumerate(known)}
    return sorted(found, key=lambda c: (order.get(c.name, len(order)), c.iteration))


def start_over(trial: Trial) -> None:
    """Removes the files of the trial's checkpoints, so that it starts again when it is rolled back."""
    for path in Path(trial.logdir).glob("checkpoint_*"):
        remove_whole(path)


def adopt(trial: Trial, source: Trial) -> TrialCheckpoint:
    """Copies the newest checkpoint of one trial to another.

    Raises:
        DamagedFileError: if it holds a link, which another user's run may have left there.
    """
    checkpoint = source.checkpoint
    places = numbered(Path(trial.logdir) / f"checkpoint_{checkpoint.iteration:06d}")
    path = next(place for place in places if not place.exists())
    with draft_beside(path) as draft:
        copy_inside(source.logdir, checkpoint.name, draft)
        move_whole(draft, path)
    return TrialCheckpoint(path.name, checkpoint.iteration, dict(checkpoint.metrics))


def remove_checkpoint(trial: Trial, checkpoint: TrialCheckpoint) -> None:
    remove_whole(Path(trial.checkpoint_path(checkpoint)))
