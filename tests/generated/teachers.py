"""Teachers of generated runs: a function of any world, a network that reads what its environments give, and both."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rllib import PPOConfig
from rllib.env.spaces.batches import batch_of
from tests.generated import worlds

# What stands for a teacher in a draw.
MARK = "teacher of"


def with_teacher(settings: Mapping[str, Any], world: Mapping[str, Any], place: Path) -> dict[str, Any]:
    """The settings of a draw with the teacher that they ask for, in a world, or below a directory."""
    asked = settings.get("teacher")
    if not isinstance(asked, Mapping):
        return dict(settings)
    if asked[MARK] != "several":
        return {**settings, "teacher": _MADE[asked[MARK]](world, place)}
    teachers = {name: make(world, place) for name, make in _MADE.items()}
    return {**settings, "teacher": teachers, "teacher_mapping_fn": by_first_number}


def by_first_number(observation) -> str:
    """The teacher of an observation, where there are several."""
    while isinstance(observation, Mapping | tuple):
        observation = next(iter(observation.values())) if isinstance(observation, Mapping) else observation[0]
    return list(_MADE)[int(10 * abs(float(np.ravel(observation)[0]))) % len(_MADE)]


class Chooser:
    """A function that chooses by the observation's first number, legal actions alone."""

    def __init__(self, world: Mapping[str, Any]):
        self.space = worlds.World(world).action_space

    def __eq__(self, other):
        return isinstance(other, Chooser) and self.space == other.space

    __hash__ = None

    def __call__(self, observations):
        masks, numbers = _mask(observations), _numbers(observations)
        masks = [None] * len(numbers) if masks is None else masks
        actions = [_chosen(self.space, number, mask) for number, mask in zip(numbers, masks)]
        return batch_of(self.space, actions)


def _mask(observations) -> np.ndarray | None:
    return observations.get("action_mask") if isinstance(observations, Mapping) else None


def _numbers(observations) -> list[int]:
    while isinstance(observations, Mapping | tuple):
        observations = next(iter(observations.values())) if isinstance(observations, Mapping) else observations[0]
    return [int(10 * abs(float(np.ravel(row)[0]))) for row in np.asarray(observations)]


def _chosen(space: gymnasium.Space, number: int, mask):
    """An action; the mask's numbers are used up from the front."""
    mask = None if mask is None else list(mask)
    return _part(space, number, mask)


def _part(space: gymnasium.Space, number: int, mask: list | None):
    match space:
        case Discrete():
            return int(space.start) + _choice(int(space.n), number, mask)
        case MultiDiscrete():
            return np.array([_choice(int(n), number, mask) for n in space.nvec], space.dtype)
        case MultiBinary():
            return np.array([_choice(2, number, mask) for _ in range(space.shape[0])], space.dtype)
        case Box() if space.dtype.kind == "i":
            counts = (space.high - space.low + 1).tolist()
            return space.low + np.array([_choice(int(n), number, mask) for n in counts], space.dtype)
        case Box():
            low, high = np.maximum(space.low, -1), np.minimum(space.high, 1)
            return (low + (high - low) * (number % 3) / 2).astype(space.dtype)
        case Dict():
            return {key: _part(part, number, mask) for key, part in space.spaces.items()}
        case Tuple():
            return tuple(_part(part, number, mask) for part in space.spaces)
    raise TypeError(f"no action of {space} is known")


def _choice(count: int, number: int, mask: list | None) -> int:
    if mask is None:
        return number % count
    own = [mask.pop(0) for _ in range(count)]
    legal = [index for index, is_legal in enumerate(own) if is_legal] or [0]
    return legal[number % len(legal)]


def _function(world: Mapping[str, Any], place: Path) -> Chooser:
    return Chooser(world)


def _network(world: Mapping[str, Any], place: Path) -> Any:
    """The path of an untrained PPO's policy; a function where it cannot be built."""
    path = place / "teacher"
    if world["kind"] not in ("single", "vector"):
        return _function(world, place)
    if not path.exists():
        config = PPOConfig().environment(worlds.DOORS[world["kind"]], env_config={**world, "fails": 0})
        config.environment(action_mask_from=world.get("mask") or "observation").debugging(seed=0)
        config.rollouts(num_rollout_workers=0, observation_filter="MeanStdFilter")
        is_image = world["observation"] in worlds.HAS_IMAGE
        layers = {"conv_filters": [[2, 6, 6]], "post_fcnet_hiddens": [6]} if is_image else {}
        with config.training(model={"fcnet_hiddens": [6], **layers}).build() as algorithm:
            algorithm.export_policy_model(path)
    return str(path)


_MADE = {"function": _function, "network": _network}
