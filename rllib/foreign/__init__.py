"""Trained models of other libraries, as checkpoints of this one. Pickles in them are read as data, and none is run."""

from rllib.foreign.imported import ImportedModel
from rllib.foreign.ray_checkpoints.model import import_ray
from rllib.foreign.sb3.model import import_sb3

__all__ = ["ImportedModel", "import_ray", "import_sb3"]
