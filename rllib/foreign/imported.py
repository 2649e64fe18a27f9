"""Result of an import: where the checkpoint is, and what it does not hold."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ImportedModel:
    """A model of another library as a checkpoint of this one.

    Attributes:
        path: of the checkpoint, as `Algorithm.from_checkpoint` and `rllib.load_policy` read it.
        algorithm: its name here.
        env: name of the environment; None if the model was imported without one.
        timesteps: environment steps that it has been trained for; 0 if they are not known.
        left_out: parts that were not carried over, a sentence each.
    """

    path: Path
    algorithm: str
    env: str | None
    timesteps: int
    left_out: tuple[str, ...]
