"""The result of an import: the checkpoint's path, and the parts that were left out."""

import os
from dataclasses import dataclass
from pathlib import Path

from rllib.storage.local_path import local_path


@dataclass(frozen=True)
class ImportedModel:
    """A model of another library as a checkpoint of this one.

    Attributes:
        path: path of the checkpoint, as `Algorithm.from_checkpoint` and `rllib.load_policy` read it.
        algorithm: name of the algorithm in this library.
        env: name of the environment; None if the model was imported without one.
        timesteps: number of environment steps that the model was trained for; 0 if unknown.
        left_out: parts that were not carried over, a sentence each.
    """

    path: Path
    algorithm: str
    env: str | None
    timesteps: int
    left_out: tuple[str, ...]


def refuse_used(directory: str | os.PathLike) -> None:
    """Raises a ValueError if an import would overwrite files."""
    path = local_path(directory)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} exists already, and an import writes a new directory: give another one")
