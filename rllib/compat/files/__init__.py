"""Imports trained models of other libraries as checkpoints. Pickles in them are read as data; their code never runs."""

from rllib.compat.files.imported import ImportedModel
from rllib.compat.files.ray_checkpoints.model import import_ray
from rllib.compat.files.sb3.model import import_sb3

__all__ = ["ImportedModel", "import_ray", "import_sb3"]
