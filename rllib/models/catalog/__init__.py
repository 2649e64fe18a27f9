"""The choice of a network from the `model` settings."""

from rllib.models.catalog.catalog import policy_spec
from rllib.models.catalog.model_catalog import ModelCatalog

__all__ = ["ModelCatalog", "policy_spec"]
