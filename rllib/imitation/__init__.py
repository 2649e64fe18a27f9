"""Rewards that are learned from demonstrations: what a discriminator reads, its networks, updates and rewards."""

from rllib.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(globals())
