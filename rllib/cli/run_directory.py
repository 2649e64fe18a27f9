"""The directory of a run of `rllib train`: specification, results, and checkpoints from which it can continue."""

import contextlib
import math
import re
import shutil
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Self

import msgspec

from rllib.cli.failures import Mistake, user_input
from rllib.cli.spec import RunSpec
from rllib.errors import DamagedFileError
from rllib.runs.files import UNREADABLE
from rllib.runs.run_log import RunLog
from rllib.runs.safe_files import numbered, write_whole
from rllib.storage.checkpoint import OF_ITERATION, import_command, newest_checkpoint
from rllib.storage.foreign_files import json_object, read_inside, refuse_links

SPEC = "run.json"
BEST = "best.json"
# Without a number of iterations, the state is saved after the first iteration and then when a run is twice as old as
# at the last time, at intervals between these: a run that fails has a checkpoint, and loses half of its time at most.
MIN_SAVE_S, SAVE_EVERY_S = 5.0, 300.0


class _Best(msgspec.Struct):
    """Content of best.json: the checkpoint that a run keeps as its best, and its return."""

    checkpoint: str
    episode_reward_mean: float


class RunDirectory:
    """Files and checkpoints of one run.

    Args:
        path: an existing directory.

    Attributes:
        log: writes the run's files, and keeps other processes from training there.
        checkpoint: path of the newest checkpoint; None if there is none.
        best: path of the checkpoint that `save_if_best` keeps; None if there is none.

    Raises:
        Mistake: if another process trains there.
    """

    def __init__(self, path: Path):
        self.path, self.checkpoint = path, newest_checkpoint(path)
        try:
            self.log = RunLog(path)
        except BlockingIOError as error:
            raise Mistake(str(error)) from None
        self._began_at, self._passing = time.monotonic(), None
        self._saved_at = self._began_at
        self.best, self.best_return = None, -math.inf
        with contextlib.suppress(OSError, *UNREADABLE):
            kept = msgspec.json.decode(read_inside(path, BEST), type=_Best)
            if OF_ITERATION.fullmatch(kept.checkpoint) and (path / kept.checkpoint).is_dir():
                self.best, self.best_return = path / kept.checkpoint, kept.episode_reward_mean

    @classmethod
    def new(cls, results: Path, spec: RunSpec) -> Self:
        """Makes RESULTS/NAME, RESULTS/EXPERIMENT_DATE or RESULTS/ALGORITHM_ENV_DATE, and writes the specification.

        Raises:
            Mistake: if there is a run of that name, or the directory cannot be made.
        """
        refuse_used_name(results, spec)
        what = spec.experiment or f"{spec.algorithm}_{spec.world}"
        name = _file_name(spec.name or f"{what}_{datetime.now():%Y-%m-%d_%H-%M-%S}")
        for path in numbered(results / name):
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue  # of another run that began in this second
            except OSError as error:
                raise Mistake(f"cannot make the directory of the run: {error}") from error
            directory = cls(path)
            directory.write_spec(spec)
            return directory

    @classmethod
    def taken_up(cls, path: Path) -> Self:
        """Opens the directory of an earlier run. No file is changed before `begin`.

        Raises:
            Mistake: if it is no run's directory, has no checkpoint, or is being trained.
        """
        if not (path / SPEC).is_file():
            within = sorted(str(found.parent) for found in path.glob(f"*/{SPEC}"))
            hint = f". Runs in it: {', '.join(within[-3:])}" if within else ""
            if command := import_command(path):
                hint = f". Import it first: {command}"
            raise Mistake(f"{path} is not the directory of a run of rllib train: it has no {SPEC}{hint}")
        with user_input():
            refuse_links(path)
        directory = cls(path)
        if directory.checkpoint is None:
            raise Mistake(f"{path} has no checkpoint to continue from; start the run again, under another --name")
        return directory

    def begin(self, spec: RunSpec, params: Mapping, title: str) -> None:
        """Opens the files for writing, without results of iterations after the newest checkpoint.

        It is called when settings and checkpoint have been accepted: until then no file changes.

        Args:
            spec: specification of the run, which is stored.
            params: all settings.
            title: of the curve.
        """
        self.log.forget_after(self.iteration)
        self.write_spec(spec)
        self.log.start(params, title)

    @property
    def iteration(self) -> int:
        """Iteration of the newest checkpoint; 0 if there is none."""
        return _iteration(self.checkpoint) if self.checkpoint else 0

    def read_spec(self) -> RunSpec:
        """Reads the specification of the run."""
        try:
            spec = msgspec.convert(json_object(read_inside(self.path, SPEC)), RunSpec)
        except (msgspec.ValidationError, DamagedFileError) as error:
            raise Mistake(f"{self.path / SPEC} is damaged: {error}") from error
        if not (spec.env or spec.external):
            raise Mistake(f"{self.path / SPEC} is damaged: it has neither `env` nor `external`, the section of clients")
        return spec

    def write_spec(self, spec: RunSpec) -> None:
        """Stores the specification of the run."""
        write_whole(self.path / SPEC, msgspec.json.format(msgspec.json.encode(spec), indent=2) + b"\n")

    # ------------------------------------------------------------------ checkpoints

    def save_if_due(self, algorithm, iteration: int, every: int) -> None:
        """Saves after each `every` iterations; with 0 at growing intervals, keeping only the newest checkpoint."""
        if every:
            if iteration % every == 0:
                self.save(algorithm, iteration)
            return
        interval = min(SAVE_EVERY_S, max(MIN_SAVE_S, self._saved_at - self._began_at))
        if self.checkpoint is None or time.monotonic() - self._saved_at >= interval:
            self.save(algorithm, iteration)
            self._passing = self.checkpoint

    def save_if_best(self, algorithm, iteration: int, result: Mapping, every: int) -> None:
        """Saves if the return is the highest so far, and removes the earlier best checkpoint.

        In an iteration with an evaluation, the return is the evaluation's.

        Args:
            algorithm, iteration, every: as for `save_if_due`; checkpoints of each `every` iterations are not removed.
            result: of the iteration.
        """
        # An evaluation on recorded data alone has no return.
        score = result.get("evaluation", {}).get("episode_reward_mean", result["episode_reward_mean"])
        if not score > self.best_return:
            return
        earlier = self.best
        self.save(algorithm, iteration)
        self.best, self.best_return = self.checkpoint, score
        write_whole(self.path / BEST, msgspec.json.encode(_Best(self.best.name, score)) + b"\n")
        if earlier is not None and earlier != self.best and not (every and _iteration(earlier) % every == 0):
            shutil.rmtree(earlier, ignore_errors=True)

    def save(self, algorithm, iteration: int) -> None:
        """Writes the checkpoint of an iteration, unless it exists."""
        path = self.path / f"checkpoint_{iteration:06}"
        if path != self.checkpoint:
            algorithm.save(path)
            self.checkpoint = path
            if self._passing is not None:
                if self._passing != self.best:
                    shutil.rmtree(self._passing)
                self._passing = None
        self._saved_at = time.monotonic()


def refuse_used_name(results: Path, spec: RunSpec) -> None:
    """Raises Mistake if there is a run of that name."""
    if spec.name and (path := results / _file_name(spec.name)).exists():
        go_on = f", or resume it: rllib train --resume {path}" if (path / SPEC).exists() else ""
        raise Mistake(f"{path} exists already; give this run another --name{go_on}")


def _iteration(checkpoint: Path) -> int:
    return int(OF_ITERATION.fullmatch(checkpoint.name)[1])


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", name)
