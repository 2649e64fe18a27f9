"""Vector environments that hand over torch tensors, where arrays are wanted: in checks, evaluation, other algorithms.

torch is not imported here: an environment that hands over tensors has done so.
"""

import functools
import logging
import sys
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from rllib.env.streams.first_results import env_name

logger = logging.getLogger("rllib.env")


def device_of(batch) -> str | None:
    """The device of the first tensor in a batched observation, such as "cuda:0"; None where it holds no tensor."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    for leaf in _leaves(batch):
        if isinstance(leaf, torch.Tensor):
            return str(leaf.device)
    return None


def final_observations(infos: dict):
    """The batch of final observations in the infos of a step, under gymnasium's name or an older one; None without."""
    return infos.get("final_obs", infos.get("final_observation"))


@functools.cache
def warn_of_lost_finals(name: str) -> None:
    """Logs once per environment class that truncated episodes bootstrap from the preceding observation."""
    logger.warning(
        "%s resets ended episodes within the step and gives no final observations: the value of a truncated episode's "
        'end is taken from the observation before its last step. infos["final_obs"] of all environments would make it '
        "exact.",
        name,
    )


class AsArrays(VectorWrapper):
    """A vector environment that takes and returns arrays. If it hands over tensors, each step waits for the device.

    Where ended episodes of tensors are reset within the step, infos get final_obs and _final_obs as gymnasium has them;
    an environment without final observations gets those before the last step in their place.

    Args:
        env: takes and returns tensors, or arrays, which stay as they are.
        mode: its autoreset mode.

    Attributes:
        device: device of its tensors, to which actions are sent; None before a reset has shown one, and for arrays.
    """

    def __init__(self, env: VectorEnv, mode: AutoresetMode):
        super().__init__(env)
        self.device: str | None = None
        self._resets_at_once = mode is AutoresetMode.SAME_STEP
        self._newest: Any = None
        self._has_warned = False

    def reset(self, *, seed=None, options: dict | None = None) -> tuple:
        return self.converted(self.env.reset(seed=seed, options=options and self._to_tensors(options)))

    def converted(self, result: tuple) -> tuple:
        """The result of reset(), with arrays for tensors."""
        self.device = self.device or device_of(result[0])
        if self.device is None:
            return result
        batch, infos = arrays_of(result)
        self._newest = batch
        return batch, infos

    def step(self, actions) -> tuple:
        if self.device is None:
            return self.env.step(actions)
        before = _mapped(self._newest, np.ndarray, np.array) if self._resets_at_once else None
        batch, rewards, terminated, truncated, infos = arrays_of(self.env.step(self._to_tensors(actions)))
        self._newest = batch
        if self._resets_at_once:
            infos = self._with_finals(infos, before, terminated | truncated)
        return batch, rewards, terminated, truncated, infos

    def _with_finals(self, infos: dict, before, ended: np.ndarray) -> dict:
        final = final_observations(infos)
        if final is None:
            final = before
            if ended.any() and not self._has_warned:
                self._has_warned = True
                warn_of_lost_finals(env_name(self.env))
        return {**infos, "final_obs": final, "_final_obs": infos.get("_final_obs", ended)}

    def _to_tensors(self, values):
        if self.device is None:
            return values
        torch = sys.modules["torch"]
        return _mapped(values, np.ndarray, lambda array: torch.from_numpy(np.array(array)).to(self.device))


def device_below(env: VectorEnv) -> str | None:
    """The device of the tensors that an environment, or what it wraps, hands over as arrays; None: there are none."""
    while isinstance(env, VectorWrapper):
        if isinstance(env, AsArrays):
            return env.device
        env = env.env
    return None


def arrays_of(values):
    """The structure of dicts, tuples and lists with arrays for its tensors."""
    torch = sys.modules.get("torch")
    if torch is None:
        return values
    return _mapped(values, torch.Tensor, lambda tensor: tensor.detach().cpu().numpy())


def _mapped(values, kind: type, change):
    """The structure of dicts, tuples and lists with its entries of one kind changed."""
    if isinstance(values, kind):
        return change(values)
    if isinstance(values, dict):
        return {key: _mapped(part, kind, change) for key, part in values.items()}
    if type(values) in (tuple, list):
        return type(values)(_mapped(part, kind, change) for part in values)
    return values


def _leaves(values):
    if isinstance(values, dict):
        values = tuple(values.values())
    if not isinstance(values, tuple):
        yield values
        return
    for part in values:
        yield from _leaves(part)
