"""The directory of a run of `rllib train`: specification, results, and checkpoints from which it can continue."""

import contextlib
import logging
import math
import shlex
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Self

import msgspec

from rllib.cli.failures import Mistake, storage_input, user_input
from rllib.cli.spec import RunSpec
from rllib.errors import DamagedFileError
from rllib.notices import shown
from rllib.remote.download import working_copy
from rllib.remote.filesystem import RemoteFolder
from rllib.remote.mirror import Mirror, noted_copy
from rllib.remote.url import is_url, joined, parent_and_name
from rllib.runs.files import UNREADABLE
from rllib.runs.naming import file_name
from rllib.runs.run_log import RunLog
from rllib.runs.safe_files import numbered, write_whole
from rllib.runs.saving import is_save_due
from rllib.storage.checkpoint import OF_ITERATION, checkpoints_in, import_command, newest_checkpoint
from rllib.storage.foreign_files import json_object, printable, read_inside, refuse_links
from rllib.storage.local_path import local_path
from rllib.storage.whole import remove_abandoned, remove_whole
from rllib.tune.experiment.directory import JOURNALS

logger = logging.getLogger(__name__)

SPEC = "run.json"
SEEDS = "seeds.json"  # of the folder of several seeds (seeds/folder.py)
BEST = "best.json"
# Origins of the return by which a checkpoint is the best.
_TRAINING, _EVALUATION = "training", "evaluation"


class _Best(msgspec.Struct):
    """Content of best.json.

    Attributes:
        checkpoint: name of the checkpoint that a run keeps as its best.
        episode_reward_mean: its return.
        source: origin of the return, "training" or "evaluation"; "" in files of earlier versions, which mixed them.
    """

    checkpoint: str
    episode_reward_mean: float
    source: str = ""

    def is_below(self, score: float, source: str) -> bool:
        """Whether a return is better than this one. Any return of an evaluation is better than training's."""
        if self.source and source != self.source:
            return source == _EVALUATION and not math.isnan(score)
        return score > self.episode_reward_mean


class RunDirectory:
    """Files and checkpoints of one run.

    Args:
        path: an existing directory.
        url: URL of the copy that is kept of it in remote storage; None: none is kept.

    Attributes:
        url: the same.
        log: writes the run's files, and keeps other processes from training there.
        checkpoint: path of the newest checkpoint; None if there is none.
        lacking: message about files that have not arrived in remote storage; None if all have.

    Raises:
        Mistake: if another process trains there.
        ImportError, ValueError: for a URL that cannot be opened.
    """

    def __init__(self, path: Path, url: str | None = None):
        self.path, self.checkpoint, self.url = path, newest_checkpoint(path), url
        self.lacking: str | None = None
        self._mirror = None if url is None else Mirror(path, url)
        try:
            self.log = RunLog(path)
        except BlockingIOError as error:
            raise Mistake(str(error)) from None
        self._began_at = self._saved_at = time.monotonic()
        self._passing: Path | None = None  # checkpoint that goes when the next one is there
        self._best = _Best("", -math.inf)
        with contextlib.suppress(OSError, *UNREADABLE):
            kept = msgspec.json.decode(read_inside(path, BEST), type=_Best)
            if OF_ITERATION.fullmatch(kept.checkpoint) and (path / kept.checkpoint).is_dir():
                self._best = kept

    @classmethod
    def new(cls, results: Path, spec: RunSpec, storage: str | None = None) -> Self:
        """Makes RESULTS/NAME, RESULTS/EXPERIMENT_DATE or RESULTS/ALGORITHM_ENV_DATE, and writes the specification.

        Raises:
            Mistake: if there is a run of that name, or the directory cannot be made.
        """
        refuse_used_name(results, spec, storage)
        path = _made_directory(results, spec)
        directory = cls(path, storage and joined(storage, path.name))
        try:
            directory.write_spec(spec)
        except OSError:
            directory.close()
            with contextlib.suppress(OSError):
                path.rmdir()  # else its name would be taken when the command is repeated
            raise
        return directory

    @classmethod
    def taken_up(cls, place: Path | str, results: Path, storage: str | None = None) -> Self:
        """Opens the directory of an earlier run. No file of it is changed before `begin`.

        Args:
            place: its path, or its URL in remote storage, which is copied to RESULTS/NAME if that is not there.
            results: directory of such copies.
            storage: URL below which the run at a path has, or gets, its copy.

        Raises:
            Mistake: if it is no run's directory, has no checkpoint, or is being trained.
        """
        url = place if is_url(place) else storage and joined(storage, local_path(place).name)
        with storage_input():
            path = working_copy(place, results, SPEC) if is_url(place) else place
        if not (path / SPEC).is_file():
            within = sorted(str(found.parent) for found in path.glob(f"*/{SPEC}"))
            hint = f". Runs in it: {', '.join(within[-3:])}" if within else ""
            if path.is_dir() and (path.parent / SPEC).is_file():
                hint = f". It is in the run {path.parent}, which --resume continues from its newest checkpoint"
            for experiment in (path, path.parent):
                if any(experiment.glob(JOURNALS)):
                    what = "an experiment" if experiment == path else "a trial of an experiment"
                    elsewhere = experiment.parent.resolve() != results.resolve()
                    place = f" --results-dir {shlex.quote(str(experiment.parent))}" if elsewhere else ""
                    command = f"rllib tune --name {shlex.quote(experiment.name)} --resume{place}"
                    hint = f". It is {what}, which continues by {command}"
                    break
            if command := import_command(path):
                hint = f". Import it first: {command}"
            raise Mistake(f"{path} is not the directory of a run of rllib train: it has no {SPEC}{hint}")
        with user_input():
            refuse_links(path)
        if url is None and (copy := noted_copy(path)):
            logger.warning("its copy at %s is not brought up to date; --storage-path URL does that", printable(copy))
        directory = cls(path, url)
        if directory.checkpoint is None:
            raise Mistake(f"{path} has no checkpoint to continue from; start the run again, under another --name")
        return directory

    @property
    def resume_command(self) -> str:
        """The command that continues the run, and its copy; without the login of a URL."""
        storage = f" --storage-path {shown(parent_and_name(self.url)[0])}" if self.url else ""
        return f"rllib train --resume {shlex.quote(str(self.path))}{storage}"

    def begin(self, spec: RunSpec, params: Mapping, title: str) -> None:
        """Opens the files for writing, without results of iterations after the newest checkpoint.

        It is called when settings and checkpoint have been accepted: until then no file changes.

        Args:
            spec: specification of the run, which is stored.
            params: all settings.
            title: title of the curve.

        Raises:
            Mistake: if the copy in remote storage is of another run, or newer.
            StorageError: if remote storage cannot be written.
        """
        if self._mirror is not None:
            with user_input():
                self._mirror.start()
        self.log.forget_after(self.iteration)
        remove_abandoned(self.path)
        if spec.checkpoint_freq and spec.keep_checkpoints_num:  # a run that was killed may have removed none
            self.keep_newest(spec.keep_checkpoints_num)
        # That of iteration 0 is an imported model, and no run has saved it.
        if self.iteration and not (spec.checkpoint_freq or self.read_spec().checkpoint_freq):
            self._passing = self.checkpoint
        self.write_spec(spec)
        self.log.start(params, title)

    @property
    def best(self) -> Path | None:
        """Path of the checkpoint that `save_if_best` keeps; None if there is none."""
        return self.path / self._best.checkpoint if self._best.checkpoint else None

    @property
    def best_return(self) -> float:
        """Return of the best checkpoint; -inf if there is none."""
        return self._best.episode_reward_mean

    @property
    def iteration(self) -> int:
        """Iteration of the newest checkpoint; 0 if there is none."""
        return _iteration(self.checkpoint) if self.checkpoint else 0

    def read_spec(self) -> RunSpec:
        """Reads the specification of the run."""
        return read_spec(self.path)

    def write_spec(self, spec: RunSpec) -> None:
        """Stores the specification of the run."""
        write_spec(self.path, spec)

    def close(self) -> None:
        """Waits until all is written, here and in remote storage; a second call does nothing."""
        try:
            self.log.close()
        finally:
            if self._mirror is not None and (lacking := self._mirror.close()):
                self.lacking = lacking
                logger.warning("%s", lacking)

    # ------------------------------------------------------------------ checkpoints

    def save_if_due(self, algorithm, iteration: int, every: int) -> None:
        """Saves after each `every` iterations; with 0 at growing intervals, keeping only the newest checkpoint."""
        if every:
            if iteration % every == 0:
                self.save(algorithm, iteration)
            return
        saved_s = None if self.checkpoint is None else self._saved_at - self._began_at
        if is_save_due(time.monotonic() - self._began_at, saved_s):
            self.save(algorithm, iteration)
            self._passing = self.checkpoint

    def save_if_best(self, algorithm, iteration: int, result: Mapping, every: int) -> None:
        """Saves if the return is the highest so far, and removes the earlier best checkpoint.

        From the first evaluation on, the returns of evaluations alone are compared: those of training are of other
        episodes, with exploration.

        Args:
            algorithm, iteration, every: as for `save_if_due`; checkpoints of each `every` iterations are not removed.
            result: result of the iteration.
        """
        # An evaluation on recorded data alone has no return.
        source = _EVALUATION if "episode_reward_mean" in result.get("evaluation", {}) else _TRAINING
        score = (result["evaluation"] if source == _EVALUATION else result)["episode_reward_mean"]
        score = math.nan if score is None else score  # as files have it
        if not self._best.is_below(score, source):
            return
        earlier = self.best
        self.save(algorithm, iteration)
        self._best = _Best(self.checkpoint.name, score, source)
        write_whole(self.path / BEST, msgspec.json.encode(self._best) + b"\n")
        if earlier is not None and earlier != self.best and not (every and _iteration(earlier) % every == 0):
            remove_whole(earlier)

    def keep_newest(self, number: int) -> None:
        """Removes all checkpoints but the newest `number`, and the best one."""
        kept = sorted(checkpoints_in(self.path).items())
        for _, path in kept[:-number]:
            if path not in (self.best, self.checkpoint):
                remove_whole(path)

    def save(self, algorithm, iteration: int) -> None:
        """Writes the checkpoint of an iteration, unless it exists."""
        path = self.path / f"checkpoint_{iteration:06}"
        if path != self.checkpoint:
            algorithm.save(path)
            self.checkpoint = path
            if self._passing is not None:
                if self._passing != self.best:
                    remove_whole(self._passing)
                self._passing = None
        self._saved_at = time.monotonic()


def write_spec(path: Path, spec: RunSpec) -> None:
    """Writes the specification of a run into its directory."""
    write_whole(path / SPEC, msgspec.json.format(msgspec.json.encode(spec, enc_hook=repr), indent=2) + b"\n")


def read_spec(path: Path) -> RunSpec:
    """Reads the specification in the directory of a run.

    Raises:
        Mistake: if it is damaged.
    """
    try:
        spec = msgspec.convert(json_object(read_inside(path, SPEC)), RunSpec)
    except (msgspec.ValidationError, DamagedFileError) as error:
        raise Mistake(f"{path / SPEC} is damaged: {error}") from error
    if not spec.has_steps:
        raise Mistake(
            f"{path / SPEC} is damaged: it has neither `env`, nor `external`, the section of clients, nor `input_` in "
            "`config`, recorded steps"
        )
    return spec


def directory_name(spec: RunSpec) -> str:
    """NAME, EXPERIMENT_DATE or ALGORITHM_ENV_DATE."""
    what = spec.experiment or f"{spec.algorithm}_{spec.world}"
    return file_name(spec.name or f"{what}_{datetime.now():%Y-%m-%d_%H-%M-%S}")


def _made_directory(results: Path, spec: RunSpec) -> Path:
    """Makes RESULTS/NAME, RESULTS/EXPERIMENT_DATE or RESULTS/ALGORITHM_ENV_DATE, with a number where it is taken.

    Raises:
        Mistake: if it cannot be made.
    """
    for path in numbered(results / directory_name(spec)):
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue  # of another run that began in this second
        except OSError as error:
            raise Mistake(f"cannot make the directory of the run: {error}") from error
        return path


def refuse_used_name(results: Path, spec: RunSpec, storage: str | None = None) -> None:
    """Raises Mistake if there is a run of that name, here or in remote storage."""
    if spec.name and storage:
        folder = RemoteFolder(joined(storage, file_name(spec.name)))
        if folder.names():
            raise Mistake(f"{folder.url} exists already; give this run another --name, or --resume {folder.url}")
    if spec.name and (path := results / file_name(spec.name)).exists():
        go_on = (
            f", or resume it: rllib train --resume {shlex.quote(str(path))}"
            if any((path / name).exists() for name in (SPEC, SEEDS))
            else ""
        )
        raise Mistake(f"{path} exists already; give this run another --name{go_on}")


def _iteration(checkpoint: Path) -> int:
    return int(OF_ITERATION.fullmatch(checkpoint.name)[1])
