"""Environments whose observations have keys that a simulator knows and a robot does not, and rules that read all keys.

They are named as in "rllib.env.tasks.privileged:CartPole" and teacher="rllib.env.tasks.privileged:balance".
"""

from collections.abc import Mapping

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

# Ranges of the pendulum's mass and length; both are 1 in Pendulum-v1.
MASSES, LENGTHS = (0.5, 1.5), (0.7, 1.3)
_GRAVITY, _TORQUE = 10.0, 2.0


class CartPole(gymnasium.ObservationWrapper):
    """CartPole-v1, whose observation is a Dict.

    | key          | shape | meaning                                |
    |--------------|-------|----------------------------------------|
    | `seen`       | [2]   | position of the cart, angle of the pole |
    | `velocities` | [2]   | their velocities                       |
    """

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        space = self.env.observation_space
        parts = {"seen": [0, 2], "velocities": [1, 3]}
        self.observation_space = Dict(
            {key: Box(space.low[at], space.high[at], dtype=np.float32) for key, at in parts.items()}
        )

    def observation(self, observation: np.ndarray) -> dict[str, np.ndarray]:
        return {"seen": observation[[0, 2]], "velocities": observation[[1, 3]]}


def balance(observations: Mapping[str, np.ndarray]) -> np.ndarray:
    """Actions [N] of a rule that keeps CartPole's pole upright for 500 steps, from observations [N, 2] by key."""
    (position, angle), (velocity, turning) = observations["seen"].T, observations["velocities"].T
    return (angle + 0.5 * turning + 0.05 * velocity + 0.02 * position > 0).astype(np.int64)


class PendulumPositions(gymnasium.ObservationWrapper):
    """Pendulum-v1, whose observation is a Dict.

    | key     | shape | meaning                                                                    |
    |---------|-------|----------------------------------------------------------------------------|
    | `seen`  | [2]   | cosine and sine of the angle                                               |
    | `whole` | [3]   | Pendulum-v1's own observation, with the velocity, as its policies read it  |
    """

    def __init__(self):
        super().__init__(gymnasium.make("Pendulum-v1"))
        space = self.env.observation_space
        self.observation_space = Dict({"seen": Box(space.low[:2], space.high[:2], dtype=np.float32), "whole": space})

    def observation(self, observation: np.ndarray) -> dict[str, np.ndarray]:
        return {"seen": observation[:2], "whole": observation}


class Pendulum(gymnasium.Wrapper):
    """Pendulum-v1 with another mass and length in each episode; its observation is a Dict.

    | key    | shape | meaning                                                |
    |--------|-------|--------------------------------------------------------|
    | `seen` | [3]   | cosine and sine of the angle, and its velocity (rad/s) |
    | `body` | [2]   | mass (kg) and length (m), drawn uniformly              |
    """

    def __init__(self):
        super().__init__(gymnasium.make("Pendulum-v1"))
        low, high = (np.array([masses, lengths], np.float32) for masses, lengths in zip(MASSES, LENGTHS))
        self.observation_space = Dict({"seen": self.env.observation_space, "body": Box(low, high)})
        self._body = low

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        drawn = [self.env.unwrapped.np_random.uniform(*bounds) for bounds in (MASSES, LENGTHS)]
        self._body = np.array(drawn, np.float32)
        self.env.unwrapped.m, self.env.unwrapped.l = drawn
        return self._whole(observation), info

    def step(self, action):
        observation, *rest = self.env.step(action)
        return self._whole(observation), *rest

    def _whole(self, observation: np.ndarray) -> dict[str, np.ndarray]:
        return {"seen": observation, "body": self._body}


def swing_up(observations: Mapping[str, np.ndarray]) -> np.ndarray:
    """Torques [N, 1] of a rule for Pendulum: energy is pumped until it suffices, then the pole is held upright.

    The energy of a rod of mass m and length l, over m l^2 / 3, is w^2 / 2 + (3 g / 2 l) (cos a - 1): 0 at rest on top.

    Args:
        observations: `seen` [N, 3] and `body` [N, 2].
    """
    (cosine, sine, velocity), (mass, length) = observations["seen"].T, observations["body"].T
    inertia, weight = mass * length**2 / 3, 1.5 * _GRAVITY / length
    energy = 0.5 * velocity**2 + weight * (cosine - 1)
    pumped = np.where(energy < 0, _TORQUE, -_TORQUE) * np.where(velocity < 0, -1, 1)
    # The torque that cancels gravity, and that of a damped spring.
    angle = np.arctan2(sine, cosine)
    held = -inertia * (weight * sine + 20 * angle + 8 * velocity)
    near = (cosine > 0.9) & (np.abs(held) < 3 * _TORQUE)
    return np.clip(np.where(near, held, pumped), -_TORQUE, _TORQUE)[:, None].astype(np.float32)
