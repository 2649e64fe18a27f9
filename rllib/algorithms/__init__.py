"""The algorithms, one readable file each, and what they share."""

from rllib.algorithms.base.registry import ALGORITHMS
from rllib.lazy_names import lazy_names

_LAZY = {
    "Algorithm": "rllib.algorithms.base.algorithm",
    "AlgorithmConfig": "rllib.algorithms.base.config",
}
# Each algorithm's class and its config, PPO and PPOConfig.
for _name, _module in ALGORITHMS.items():
    _LAZY |= {_name: _module, f"{_name}Config": _module}

__all__ = list(_LAZY)

__getattr__, __dir__ = lazy_names(globals(), _LAZY)
