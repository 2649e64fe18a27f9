"""Algorithms for recorded data: imitation, and off-policy learning that stays close to the data."""

from rllib.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(globals())
