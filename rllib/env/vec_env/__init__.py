"""Several environments at once in the form of Stable-Baselines3's VecEnv, for loops of its programs."""

import importlib

from rllib.config.elsewhere import OF_STABLE_BASELINES
from rllib.did_you_mean import missing

# Loaded on first use; `make_vec_env` resolves names of environments, which most loops do not need.
_LAZY = {
    "DummyVecEnv": "rllib.env.vec_env.dummy_vec_env",
    "make_vec_env": "rllib.env.vec_env.make",
}

__all__ = sorted(_LAZY)  # noqa: PLE0605


def __getattr__(name: str):
    if name not in _LAZY:
        raise missing(__name__, name, __all__, OF_STABLE_BASELINES.get(name))
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
