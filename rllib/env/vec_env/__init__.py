"""Several environments at once in the form of Stable-Baselines3's VecEnv, for loops of its programs."""

from rllib.compat.names.elsewhere import OF_STABLE_BASELINES
from rllib.lazy_names import lazy_names

# Loaded on first use; `make_vec_env` resolves names of environments, which most loops do not need.
_LAZY = {
    "DummyVecEnv": "rllib.env.vec_env.dummy_vec_env",
    "make_vec_env": "rllib.env.vec_env.make",
}

__all__ = sorted(_LAZY)  # noqa: PLE0605

__getattr__, __dir__ = lazy_names(globals(), _LAZY, OF_STABLE_BASELINES.get)
