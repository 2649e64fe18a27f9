"""Callbacks of `learn`, by the names of Stable-Baselines3 (docs/start/from_sb3.md).

    algo.learn(100_000, callback=[EvalCallback("CartPole-v1", eval_freq=5_000), CheckpointCallback(10_000, "saved")])

Hooks within workers, for single episodes and updates, are those of rllib.DefaultCallbacks (docs/guide/own_code.md).
"""

from rllib.compat.names.elsewhere import OF_STABLE_BASELINES
from rllib.lazy_names import lazy_names

# Loaded on first use: an algorithm needs the base classes alone.
_LAZY = {
    "BaseCallback": "rllib.callbacks.base",
    "CallbackList": "rllib.callbacks.base",
    "CheckpointCallback": "rllib.callbacks.steps",
    "ConvertCallback": "rllib.callbacks.base",
    "EvalCallback": "rllib.callbacks.evaluations",
    "EventCallback": "rllib.callbacks.base",
    "EveryNTimesteps": "rllib.callbacks.steps",
    "LogEveryNTimesteps": "rllib.callbacks.shown",
    "ProgressBarCallback": "rllib.callbacks.shown",
    "StopTrainingOnMaxEpisodes": "rllib.callbacks.steps",
    "StopTrainingOnNoModelImprovement": "rllib.callbacks.evaluations",
    "StopTrainingOnRewardThreshold": "rllib.callbacks.evaluations",
}

__all__ = sorted(_LAZY)  # noqa: PLE0605

__getattr__, __dir__ = lazy_names(globals(), _LAZY, OF_STABLE_BASELINES.get)
