"""Exploration: explorers, noise on parameters, intrinsic rewards."""

from rllib.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(globals())
