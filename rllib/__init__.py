"""Fast, correct reinforcement learning on a ZeroMQ actor runtime."""

import importlib

__version__ = "0.1.0"

# Loaded on first use, so that `import rllib` stays quick and never brings in torch.
_LAZY = {
    "ARS": "rllib.algorithms.ars",
    "ARSConfig": "rllib.algorithms.ars",
    "Algorithm": "rllib.algorithms.algorithm",
    "AlgorithmConfig": "rllib.algorithms.algorithm_config",
    "DefaultCallbacks": "rllib.evaluation.callbacks",
    "ES": "rllib.algorithms.es",
    "ESConfig": "rllib.algorithms.es",
    "PPO": "rllib.algorithms.ppo",
    "PPOConfig": "rllib.algorithms.ppo",
    "Policy": "rllib.policy",
    "SampleBatch": "rllib.sample_batch",
    "register_env": "rllib.env.registry",
}

__all__ = [
    "ARS",
    "ES",
    "PPO",
    "ARSConfig",
    "Algorithm",
    "AlgorithmConfig",
    "DefaultCallbacks",
    "ESConfig",
    "PPOConfig",
    "Policy",
    "SampleBatch",
    "register_env",
]


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module 'rllib' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
