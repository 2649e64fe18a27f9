"""Observations as Stable-Baselines3's networks read them: scaled pictures, one-hot choices, and their sizes."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional

from rllib.env.vec_env.wrappers import is_image_space, is_image_space_channels_first


def preprocess_obs(obs: Any, observation_space: spaces.Space, normalize_images: bool = True) -> Any:
    """Observations for a network, float32.

    Args:
        obs: tensors [B, ...] as the space has them; of a Dict space a dict.
        observation_space: space of one observation.
        normalize_images: scale pixels to 0 ... 1.

    Raises:
        NotImplementedError: for a Tuple space.
    """
    if isinstance(observation_space, spaces.Dict):
        return {key: preprocess_obs(obs[key], part, normalize_images) for key, part in observation_space.items()}
    if isinstance(observation_space, spaces.Box):
        return obs.float() / 255.0 if normalize_images and is_image_space(observation_space) else obs.float()
    if isinstance(observation_space, spaces.Discrete):
        return functional.one_hot(obs.long(), num_classes=int(observation_space.n)).float()
    if isinstance(observation_space, spaces.MultiDiscrete):
        parts = torch.split(obs.long(), 1, dim=1)
        sizes = np.asarray(observation_space.nvec).reshape(-1).tolist()
        hot = [functional.one_hot(part.squeeze(1), num_classes=size) for part, size in zip(parts, sizes, strict=True)]
        return torch.cat(hot, dim=-1).float()
    if isinstance(observation_space, spaces.MultiBinary):
        return obs.float()
    raise NotImplementedError(f"observations of {observation_space} have no form for these networks")


def get_obs_shape(observation_space: spaces.Space) -> Any:
    """The shape of an observation; of a Dict space a dict."""
    if isinstance(observation_space, spaces.Dict):
        return {key: get_obs_shape(part) for key, part in observation_space.items()}
    if isinstance(observation_space, spaces.Discrete):
        return (1,)
    if isinstance(observation_space, spaces.MultiDiscrete):
        return (len(observation_space.nvec),)
    return tuple(observation_space.shape)


def get_flattened_obs_dim(observation_space: spaces.Space) -> int:
    """Length of an observation as numbers, choices one-hot."""
    if isinstance(observation_space, spaces.MultiDiscrete):
        return int(np.sum(observation_space.nvec))
    return spaces.flatdim(observation_space)


def get_action_dim(action_space: spaces.Space) -> int:
    """Number of parts of an action."""
    if isinstance(action_space, spaces.Discrete):
        return 1
    if isinstance(action_space, spaces.MultiDiscrete):
        return len(action_space.nvec)
    if isinstance(action_space, spaces.MultiBinary):
        return int(action_space.n)
    return int(np.prod(action_space.shape))


def check_for_nested_spaces(obs_space: spaces.Space) -> None:
    """Raises a NotImplementedError for a Dict or Tuple space within one; policies here take them."""
    if isinstance(obs_space, spaces.Dict | spaces.Tuple):
        for part in obs_space.values() if isinstance(obs_space, spaces.Dict) else obs_space.spaces:
            if isinstance(part, spaces.Dict | spaces.Tuple):
                raise NotImplementedError(f"{obs_space} has a structure within: flatten it")


def maybe_transpose(observation: np.ndarray, observation_space: spaces.Space) -> np.ndarray:
    """Pictures with their channels where the space has them."""
    if is_image_space(observation_space) and observation.shape not in (
        observation_space.shape,
        (len(observation), *observation_space.shape),
    ):
        return np.moveaxis(observation, -1, -3)
    return observation


def with_channels_first(space: spaces.Space) -> spaces.Space:
    """The space that networks read: pictures with their channels first."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: with_channels_first(part) for key, part in space.items()})
    if is_image_space(space) and not is_image_space_channels_first(space):
        low, high = (np.moveaxis(bound, -1, 0) for bound in (space.low, space.high))
        return spaces.Box(low, high, dtype=space.dtype)
    return space


def channels_first(observation: Any, space: spaces.Space) -> Any:
    """Observations [B, ...] of a space in the order of `with_channels_first`."""
    if isinstance(space, spaces.Dict):
        return {key: channels_first(observation[key], part) for key, part in space.items()}
    moves = is_image_space(space) and not is_image_space_channels_first(space)
    return observation.movedim(-1, -3) if moves else observation


def obs_as_tensor(obs: Any, device: Any) -> Any:
    """Observations as tensors on a device."""
    if isinstance(obs, dict):
        return {key: obs_as_tensor(part, device) for key, part in obs.items()}
    if not isinstance(obs, np.ndarray):
        raise TypeError(f"obs={obs!r:.60} must be an array, or a dict of them")
    return torch.as_tensor(obs, device=device)


Observation = Tensor | dict[str, Tensor]
