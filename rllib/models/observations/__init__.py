"""Conversion of observations to the inputs of a network: encoders, filters, masks, torsos."""

from rllib.models.observations.filters import MeanStdFilter, NoFilter
from rllib.models.observations.preprocessors import Preprocessor, get_preprocessor

__all__ = ["MeanStdFilter", "NoFilter", "Preprocessor", "get_preprocessor"]
