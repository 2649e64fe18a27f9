"""TRPO: the algorithm, and its policy's step within a trust region."""

from rllib.algorithms.trpo.trpo import TRPO, TRPOConfig

__all__ = ["TRPO", "TRPOConfig"]
