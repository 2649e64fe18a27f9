"""Noise, delays and drops between an environment and one agent, for one episode after another."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib.config.conflicts import Unfit
from rllib.env.disturbances.settings import Disturbances, Interval

# Deviation of an observation, or by the key of a Dict.
Deviation = float | Mapping[str, float]


class Channel:
    """The way of one agent's observations and actions.

    The noise of an observation is drawn when it is made, so the policy sees a late observation with the same noise in
    each step that shows it. An episode's first observation is never dropped. In the steps before the first action
    arrives, `neutral_action` is played.

    Args:
        disturbances: see there.
        observation_space, action_space: spaces of the agent.

    Raises:
        Unfit: (a ValueError) if there is noise for spaces that take none.
    """

    def __init__(self, disturbances: Disturbances, observation_space: spaces.Space, action_space: spaces.Space):
        check_noise(disturbances, observation_space, action_space)
        self._asked = disturbances
        self._seen_in, self._acts_in = observation_space, action_space
        self._neutral = neutral_action(action_space)
        self._rng = np.random.default_rng(0)
        self._deviation: Deviation = 0.0
        self._action_deviation = self._drop = 0.0
        self._newest: Any = None
        self._observations: deque = deque([None], maxlen=1)
        self._actions: deque = deque(maxlen=1)

    def begin(self, rng: np.random.Generator, observation: Any) -> Any:
        """Begins an episode with its first observation, and returns what the policy sees.

        Args:
            rng: random generator of the episode; draws what differs from episode to episode, then the noise of its
                steps.
            observation: as the environment gives it.
        """
        asked, self._rng = self._asked, rng
        noise = asked.observation_noise
        if isinstance(noise, Mapping):
            self._deviation = {key: drawn(rng, each) for key, each in noise.items()}
        else:
            self._deviation = drawn(rng, noise)
        self._drop = drawn(rng, asked.drop_observation)
        self._action_deviation = drawn(rng, asked.action_noise)
        delay = drawn_integer(rng, asked.observation_delay)
        action_delay = drawn_integer(rng, asked.action_delay)
        self._newest = self._measured(observation)
        self._observations = deque([self._newest] * (delay + 1), maxlen=delay + 1)
        self._actions = deque([self._neutral] * (action_delay + 1), maxlen=action_delay + 1)
        return self._newest

    def played(self, action: Any) -> Any:
        """The action that the environment gets in the step in which the policy takes this one."""
        self._actions.append(_copied(action) if self._actions.maxlen > 1 else action)
        played = self._actions[0]
        if self._action_deviation:
            played = noisy(self._acts_in, played, self._action_deviation, self._rng)
        return played

    def seen(self, observation: Any) -> Any:
        """What the policy sees after the step that ends in this observation."""
        self._observations.append(self._measured(observation))
        if not self._drop or self._rng.random() >= self._drop:
            self._newest = self._observations[0]
        return self._newest

    def _measured(self, observation: Any) -> Any:
        """The observation with its noise; a copy, where it is kept for later."""
        if self._deviation:
            observation = noisy(self._seen_in, observation, self._deviation, self._rng)
        # Environments may hand out the same array again.
        return _copied(observation) if self._asked.observation_delay.high or self._drop else observation


def drawn(rng: np.random.Generator, interval: Interval) -> float:
    """A number of the interval, by the uniform distribution; nothing is drawn where there is one alone."""
    return interval.low if interval.is_fixed else float(rng.uniform(interval.low, interval.high))


def drawn_integer(rng: np.random.Generator, interval: Interval) -> int:
    """An integer of the interval, both ends included."""
    return int(interval.low) if interval.is_fixed else int(rng.integers(interval.low, interval.high, endpoint=True))


def noisy(space: spaces.Space, value: Any, deviation: Deviation, rng: np.random.Generator) -> Any:
    """A value of a space with Gaussian noise on its float Boxes, within their bounds; other parts as they are.

    A value that does not lie in the space stays outside of it: noise hides no fault of an environment from the checks.
    """
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or not space.spaces.keys() <= value.keys():
            return value
        parts = dict(value)
        for key, part in space.spaces.items():
            of_part = deviation.get(key, 0.0) if isinstance(deviation, Mapping) else deviation
            if of_part:
                parts[key] = noisy(part, value[key], of_part, rng)
        return parts
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            return value
        return tuple(noisy(part, each, deviation, rng) for part, each in zip(space.spaces, value))
    if not _takes_noise(space) or np.shape(value) != space.shape or np.asarray(value).dtype.kind not in "fiu":
        return value
    given = np.asarray(value, np.float64)
    measured = given + rng.normal(0.0, deviation, space.shape)
    return np.asarray(np.clip(measured, np.minimum(space.low, given), np.maximum(space.high, given)), space.dtype)


def neutral_action(space: spaces.Space) -> Any:
    """The action of the steps before the first one arrives: zeros, or what is nearest to them; the first choices."""
    if isinstance(space, spaces.Box):
        return np.asarray(np.clip(np.zeros(space.shape), space.low, space.high), space.dtype)
    if isinstance(space, spaces.Discrete):
        return int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return np.array(space.start, space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, space.dtype)
    if isinstance(space, spaces.Dict):
        return {key: neutral_action(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map(neutral_action, space.spaces))
    return None  # streams refuse the space


def check_noise(disturbances: Disturbances, observation_space: spaces.Space, action_space: spaces.Space) -> None:
    """Raises Unfit if there is noise for spaces that take none: choices, integers and pictures."""
    noise = disturbances.observation_noise
    if isinstance(noise, Mapping):
        keys = observation_space.spaces if isinstance(observation_space, spaces.Dict) else {}
        for key in noise:
            if key not in keys or not _takes_noise(keys[key]):
                which = [name for name, part in keys.items() if _takes_noise(part)]
                raise Unfit(
                    f"disturbances: observation_noise names {key!r}, but the observations are of {observation_space}.",
                    f"Keys with floats are {', '.join(which)}." if which else "Give one number for all of it.",
                    disturbances.without("observation_noise"),
                )
    elif noise.high and not _takes_noise(observation_space):
        raise _takes_none(disturbances, "observation_noise", "observations", observation_space)
    if disturbances.action_noise.high and not _takes_noise(action_space):
        raise _takes_none(disturbances, "action_noise", "actions", action_space)


def _takes_none(disturbances: Disturbances, key: str, what: str, space: spaces.Space) -> Unfit:
    return Unfit(
        f"disturbances: {key} is for numbers of float Boxes, but the {what} are of {space}.",
        f"Leave {key} out.",
        disturbances.without(key),
    )


def _takes_noise(space: spaces.Space) -> bool:
    """Whether some part of a space is a Box of floats."""
    if isinstance(space, spaces.Dict):
        return any(map(_takes_noise, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return any(map(_takes_noise, space.spaces))
    return isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)


def _copied(value: Any) -> Any:
    """A copy that the environment does not change in place."""
    if isinstance(value, Mapping):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_copied, value))
    return value.copy() if isinstance(value, np.ndarray | list) else value
