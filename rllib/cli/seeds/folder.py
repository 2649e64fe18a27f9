"""The folder of one run with several seeds: a directory of `rllib train` for each, and what they have in common."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from rllib.cli.failures import Mistake
from rllib.cli.run_directory import SEEDS, SPEC, made_directory, read_spec, refuse_used_name
from rllib.cli.spec import RunSpec, load_spec, make_spec
from rllib.errors import DamagedFileError
from rllib.runs.safe_files import write_whole
from rllib.storage.checkpoint import newest_checkpoint
from rllib.storage.foreign_files import json_object, read_inside
from rllib.tune.trainables.checkpoint import METADATA

# The keys that a seed without a checkpoint starts from when the folder is resumed.
SETTINGS = "settings.yaml"


_OF_SEED = re.compile(r"seed_(-?\d+)")


class _Content(msgspec.Struct):
    """Content of seeds.json."""

    seeds: list[int]


class SeedFolder:
    """The runs of several seeds.

    Args:
        path: of the folder.
        seeds: of its runs.
    """

    def __init__(self, path: Path, seeds: list[int]):
        self.path, self.seeds = path, seeds

    @classmethod
    def new(cls, results: Path, spec: RunSpec, seeds: list[int], storage: str | None = None) -> Self:
        """Makes RESULTS/NAME, or RESULTS/ALGORITHM_ENV_DATE, for runs that differ from `spec` in their seed.

        Raises:
            Mistake: if there is something of that name, or the folder cannot be made.
        """
        refuse_used_name(results, spec, storage)
        path = made_directory(results, spec)
        with suppress(TypeError):  # objects of a Python file: then only runs with a checkpoint can be resumed
            _write_settings(path, spec)
        write_whole(path / SEEDS, msgspec.json.encode(_Content(seeds)) + b"\n")
        return cls(path, seeds)

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

    def spec(self) -> RunSpec:
        """Specification of the runs.

        Raises:
            Mistake: if none of them has begun, and there is no settings.yaml.
            ValueError: if it is damaged.
        """
        if runs := self.runs():
            return read_spec(runs[0])
        if (self.path / SETTINGS).is_file():
            return make_spec(load_spec(self.path / SETTINGS), {}, str(self.path / SETTINGS))
        raise Mistake(f"no seed in {self.path} has begun; start the run again, under another --name")

    def change_settings(self, spec: RunSpec) -> None:
        """Lets a seed that begins from now on have this specification, if it does not need objects of a program."""
        if (self.path / SETTINGS).is_file():
            _write_settings(self.path, spec)

    def name_of(self, seed: int) -> str:
        """Name of the directory of a seed's run."""
        return f"seed_{seed}"

    def run(self, seed: int) -> Path:
        """Directory of a seed's run, which may not be there yet."""
        return self.path / self.name_of(seed)

    def log(self, seed: int) -> Path:
        """File of what a seed's process prints."""
        return self.path / f"{self.name_of(seed)}.log"

    def runs(self) -> list[Path]:
        """Directories of the seeds' runs that are there."""
        return [self.run(seed) for seed in self.seeds if (self.run(seed) / SPEC).is_file()]


def _write_settings(path: Path, spec: RunSpec) -> None:
    """Writes settings.yaml; raises a TypeError for objects, which a file cannot hold."""
    given = msgspec.structs.asdict(spec).items()
    keys = {key: value for key, value in given if value not in (None, {}) and key not in ("seed", "name")}
    write_whole(path / SETTINGS, msgspec.json.format(msgspec.json.encode(keys), indent=2) + b"\n")


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
