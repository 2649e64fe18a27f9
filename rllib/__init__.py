"""Fast, correct reinforcement learning on a ZeroMQ actor runtime."""

import importlib

from rllib.algorithms.registry import ALGORITHMS

__version__ = "0.1.0"

# Loaded on first use, so that `import rllib` stays quick and never brings in torch.
_LAZY = {
    "Algorithm": "rllib.algorithms.algorithm",
    "AlgorithmConfig": "rllib.algorithms.algorithm_config",
    "DefaultCallbacks": "rllib.evaluation.callbacks",
    "ModelCatalog": "rllib.models.model_catalog",
    "Policy": "rllib.policy",
    "RolloutWorker": "rllib.evaluation.rollout_worker",
    "SampleBatch": "rllib.sample_batch",
    "check_env": "rllib.env.checkup.check_env",
    "concat_samples": "rllib.sample_batch",
    "load_policy": "rllib.serving.loaded_policy",
    "make_learner": "rllib.learners.learner",
    "make_multi_callbacks": "rllib.evaluation.callbacks",
    "register_action_dist": "rllib.models.registry",
    "register_env": "rllib.env.registry",
    "register_model": "rllib.models.registry",
    "register_wrapper": "rllib.env.wrappers",
}
# Each algorithm's class and its config, PPO and PPOConfig.
for _name, _module in ALGORITHMS.items():
    _LAZY |= {_name: _module, f"{_name}Config": _module}

__all__ = list(_LAZY)


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module 'rllib' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
