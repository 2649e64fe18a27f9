"""Masks of legal actions, by the names of sb3-contrib."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

import rllib
from rllib.compat.programs.sb3.callbacks import EvalCallback

_METHOD = "action_masks"


class ActionMasker(gymnasium.Wrapper):
    """Gives an environment the method action_masks().

    Args:
        env: the environment.
        action_mask_fn: function of the environment, or name of its method, that returns the mask.

    Raises:
        TypeError: for anything else.
    """

    def __init__(self, env: gymnasium.Env, action_mask_fn: str | Callable[[gymnasium.Env], np.ndarray]):
        super().__init__(env)
        if isinstance(action_mask_fn, str):
            self._find: Callable[[gymnasium.Env], np.ndarray] = lambda env: env.get_wrapper_attr(action_mask_fn)()
        elif callable(action_mask_fn):
            self._find = action_mask_fn
        else:
            raise TypeError(f"action_mask_fn={action_mask_fn!r:.60} must be a function, or the name of a method")

    def action_masks(self) -> np.ndarray:
        """The mask of the legal actions."""
        return self._find(self.env)


def is_masking_supported(env: Any) -> bool:
    """Whether an environment, or each of a vector, has the method action_masks()."""
    if hasattr(env, "step_async"):
        return env.has_attr(_METHOD)
    return env.has_wrapper_attr(_METHOD)


def get_action_masks(env: Any) -> np.ndarray:
    """The mask of an environment, or the masks of a vector, [N, actions]."""
    if hasattr(env, "step_async"):
        return np.stack(env.env_method(_METHOD))
    return env.get_wrapper_attr(_METHOD)()


def evaluate_policy(model: Any, env: Any, *args: Any, use_masking: bool = True, **kwargs: Any) -> Any:
    """`rllib.evaluate_policy`, which asks environments for their masks in any case."""
    _refuse_without(use_masking)
    return rllib.evaluate_policy(model, env, *args, **kwargs)


class MaskableEvalCallback(EvalCallback):
    """EvalCallback, which asks environments for their masks in any case.

    Args:
        as for EvalCallback.
        use_masking: True.
    """

    def __init__(self, *args: Any, use_masking: bool = True, **kwargs: Any):
        _refuse_without(use_masking)
        super().__init__(*args, **kwargs)


def _refuse_without(use_masking: bool) -> None:
    if not use_masking:
        raise ValueError("use_masking=False is not available: a policy with masks reads them with each observation")
