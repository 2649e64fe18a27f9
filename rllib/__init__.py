"""Fast, correct reinforcement learning on a ZeroMQ actor runtime."""

import importlib

__version__ = "0.1.0"

# Loaded on first use, so that `import rllib` stays quick and never brings in torch.
_LAZY = {
    "A2C": "rllib.algorithms.a2c",
    "A2CConfig": "rllib.algorithms.a2c",
    "A3C": "rllib.algorithms.a3c",
    "A3CConfig": "rllib.algorithms.a3c",
    "ARS": "rllib.algorithms.ars",
    "ARSConfig": "rllib.algorithms.ars",
    "Algorithm": "rllib.algorithms.algorithm",
    "AlgorithmConfig": "rllib.algorithms.algorithm_config",
    "DefaultCallbacks": "rllib.evaluation.callbacks",
    "ES": "rllib.algorithms.es",
    "ESConfig": "rllib.algorithms.es",
    "PG": "rllib.algorithms.pg",
    "PGConfig": "rllib.algorithms.pg",
    "IMPALA": "rllib.algorithms.impala",
    "IMPALAConfig": "rllib.algorithms.impala",
    "APPO": "rllib.algorithms.appo",
    "APPOConfig": "rllib.algorithms.appo",
    "PPO": "rllib.algorithms.ppo",
    "PQN": "rllib.algorithms.pqn",
    "PQNConfig": "rllib.algorithms.pqn",
    "PPOConfig": "rllib.algorithms.ppo",
    "Policy": "rllib.policy",
    "SampleBatch": "rllib.sample_batch",
    "register_env": "rllib.env.registry",
}

__all__ = [
    "A2C",
    "A3C",
    "APPO",
    "ARS",
    "ES",
    "IMPALA",
    "PG",
    "PPO",
    "PQN",
    "A2CConfig",
    "A3CConfig",
    "APPOConfig",
    "ARSConfig",
    "Algorithm",
    "AlgorithmConfig",
    "DefaultCallbacks",
    "ESConfig",
    "IMPALAConfig",
    "PGConfig",
    "PPOConfig",
    "PQNConfig",
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
