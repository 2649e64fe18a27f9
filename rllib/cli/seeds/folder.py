"""The folder of one run with several seeds: an experiment of Tune whose trials are the directories seed_N."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from rllib.cli.failures import Mistake
from rllib.cli.run_directory import SEEDS, SPEC, read_spec, write_spec
from rllib.cli.spec import RunSpec
from rllib.errors import DamagedFileError
from rllib.runs.safe_files import write_whole
from rllib.storage.checkpoint import newest_checkpoint
from rllib.storage.foreign_files import json_object, read_inside
from rllib.tune.experiment.directory import JOURNALS
from rllib.tune.trainables.checkpoint import METADATA

_OF_SEED = re.compile(r"seed_(-?\d+)")


class _Content(msgspec.Struct):
    """Content of seeds.json."""

    seeds: list[int]


class SeedFolder:
    """The runs of several seeds.

    Args:
        path: path of the folder.
        seeds: seeds of its runs.
    """

    def __init__(self, path: Path, seeds: Sequence[int]):
        self.path, self.seeds = path, list(seeds)

    @classmethod
    def at(cls, path: Path) -> Self | None:
        """The folder at a path; None if there is none.

        Raises:
            Mistake: if its seeds.json is damaged.
        """
        if not (path / SEEDS).is_file():
            return None
        try:
            content = msgspec.convert(json_object(read_inside(path, SEEDS)), _Content)
        except (msgspec.ValidationError, DamagedFileError) as error:
            raise Mistake(f"{path / SEEDS} is damaged: {error}") from error
        return cls(path, content.seeds)

    def describe(self, spec: RunSpec) -> None:
        """Writes which seeds it has, and the specification of each run, by which other commands know them."""
        for seed in self.seeds:
            self.run(seed).mkdir(exist_ok=True)
            write_spec(self.run(seed), msgspec.structs.replace(spec, seed=seed, name=self.run(seed).name))
        write_whole(self.path / SEEDS, msgspec.json.encode(_Content(self.seeds)) + b"\n")

    def spec(self) -> RunSpec:
        """Specification of the runs.

        Raises:
            Mistake: if it is damaged, or of an earlier version, which trained each seed by itself.
        """
        if not any(self.path.glob(JOURNALS)):
            runs = [self.run(seed) for seed in self.seeds if (self.run(seed) / SPEC).is_file()]
            if not runs:
                raise Mistake(f"no seed in {self.path} has begun; start the run again, under another --name")
            raise Mistake(
                f"{self.path} is of an earlier version, which trained each seed by itself. Continue them one after the "
                f"other, as by rllib train --resume {runs[0]}"
            )
        return read_spec(self.run(self.seeds[0]))

    def run(self, seed: int) -> Path:
        """Directory of a seed's run."""
        return self.path / f"seed_{seed}"


def refuse_one_seed(path: Path) -> None:
    """Raises a Mistake if a path is the directory of a seed, which is continued together with the others."""
    folder = path.absolute().parent
    if SeedFolder.at(folder) and any(folder.glob(JOURNALS)):
        given = path.parent if path.name else folder
        raise Mistake(f"{path} is a seed of {given}, which continue together: rllib train --resume {given}")


def checkpoints_of_seeds(place: Path | str) -> dict[int, Path]:
    """Checkpoints by seed: the newest of each in a folder of seeds, those in a checkpoint of a trial, else none.

    Args:
        place: a folder of seeds, a trial of several seeds or one of its checkpoints; or anything else.

    Raises:
        Mistake: if no seed of a folder has one.
    """
    if not isinstance(place, Path) or not place.is_dir():
        return {}
    if folder := SeedFolder.at(place):
        found = {seed: newest_checkpoint(folder.run(seed)) for seed in folder.seeds if folder.run(seed).is_dir()}
        if not any(found.values()):
            raise Mistake(f"no seed in {place} has a checkpoint yet")
        return {seed: path for seed, path in found.items() if path is not None}
    return _parts(place) or _parts(newest_checkpoint(place) or place)


def _parts(checkpoint: Path) -> dict[int, Path]:
    """The seeds' own checkpoints in the checkpoint of a trial, by seed."""
    found = {int(match[1]): path for path in checkpoint.iterdir() if (match := _OF_SEED.fullmatch(path.name))}
    return {seed: path for seed, path in sorted(found.items()) if (path / METADATA).is_file()}
