"""The place where RLlib has these names: `from rllib.algorithms.callbacks import DefaultCallbacks`."""

from rllib.evaluation.callbacks import DefaultCallbacks, make_multi_callbacks

__all__ = ["DefaultCallbacks", "make_multi_callbacks"]
