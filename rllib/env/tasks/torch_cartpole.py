"""CartPole-v1 in torch: N of them side by side, on a CPU or a GPU."""

import math

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from rllib.env.tasks.torch_vector_env import TorchVectorEnv

GRAVITY = 9.8  # m/s^2
POLE_MASS, TOTAL_MASS = 0.1, 1.1  # kg
HALF_LENGTH = 0.5  # m, of the pole
FORCE = 10.0  # N
TIME_STEP = 0.02  # s
MAX_POSITION = 2.4  # m
MAX_ANGLE = 12 * 2 * math.pi / 360  # rad
START = 0.05  # bound of each number of a first state

_HIGH = np.array([2 * MAX_POSITION, np.inf, 2 * MAX_ANGLE, np.inf], np.float32)


class TorchCartPole(TorchVectorEnv):
    """gymnasium's CartPole-v1: a reward of 1 for each step until the pole falls, the cart leaves, or 500 steps.

    A state is position, velocity, angle, angular velocity, as observed.

    Args:
        num_envs: N.
        device: "cpu", "cuda" or "cuda:1".
        max_episode_steps: time limit.
    """

    def __init__(self, num_envs: int = 1, device: str = "cpu", max_episode_steps: int = 500):
        space = Box(-_HIGH, _HIGH, dtype=np.float32)
        super().__init__(num_envs, space, Discrete(2), max_episode_steps=max_episode_steps, device=device)

    def initial_states(self) -> Tensor:
        return self.uniform(4).mul_(START)

    def advance(self, states: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Euler's method on the equations of Florian, https://coneural.org/florian/papers/05_cart_pole.pdf."""
        position, velocity, angle, spin = states.unbind(1)
        force = torch.where(actions == 1, FORCE, -FORCE)
        cosine, sine = angle.cos(), angle.sin()
        pushed = (force + POLE_MASS * HALF_LENGTH * spin * spin * sine) / TOTAL_MASS
        resistance = HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cosine * cosine / TOTAL_MASS)
        angular = (GRAVITY * sine - cosine * pushed) / resistance
        linear = pushed - POLE_MASS * HALF_LENGTH * angular * cosine / TOTAL_MASS
        rates = torch.stack((velocity, linear, spin, angular), 1)
        following = torch.add(states, rates, alpha=TIME_STEP)
        terminated = (following[:, 0].abs() > MAX_POSITION) | (following[:, 2].abs() > MAX_ANGLE)
        return following, torch.ones_like(position), terminated
