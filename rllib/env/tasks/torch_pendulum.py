"""Pendulum-v1 in torch: N of them side by side, on a CPU or a GPU."""

import math

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor

from rllib.env.tasks.torch_vector_env import TorchVectorEnv

GRAVITY = 10.0  # m/s^2
TIME_STEP = 0.05  # s
MAX_SPEED = 8.0  # rad/s
MAX_TORQUE = 2.0  # N m
FIRST_ANGLE, FIRST_SPEED = math.pi, 1.0  # bounds of first states

_HIGH = np.array([1.0, 1.0, MAX_SPEED], np.float32)


class TorchPendulum(TorchVectorEnv):
    """gymnasium's Pendulum-v1 (mass 1, length 1), which ends after 200 steps and not before.

    A state is the angle, 0 upright, and the angular velocity; observed are the angle's cosine and sine, and the latter.

    Args:
        num_envs: N.
        device: "cpu", "cuda" or "cuda:1".
        max_episode_steps: time limit.
    """

    def __init__(self, num_envs: int = 1, device: str = "cpu", max_episode_steps: int = 200):
        observations, actions = Box(-_HIGH, _HIGH, dtype=np.float32), Box(-MAX_TORQUE, MAX_TORQUE, (1,), np.float32)
        super().__init__(num_envs, observations, actions, max_episode_steps=max_episode_steps, device=device)
        self._bounds = torch.tensor([FIRST_ANGLE, FIRST_SPEED], device=self.device)

    def initial_states(self) -> Tensor:
        return self.uniform(2) * self._bounds

    def advance(self, states: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        angle, speed = states.unbind(1)
        torque = actions[:, 0].clamp(-MAX_TORQUE, MAX_TORQUE)
        deviation = (angle + math.pi).remainder(2 * math.pi) - math.pi  # of the angle from upright, in [-pi, pi)
        costs = deviation.square() + 0.1 * speed.square() + 0.001 * torque.square()
        speed = (speed + (1.5 * GRAVITY * angle.sin() + 3.0 * torque) * TIME_STEP).clamp(-MAX_SPEED, MAX_SPEED)
        following = torch.stack((angle + speed * TIME_STEP, speed), 1)
        return following, -costs, torch.zeros_like(costs, dtype=torch.bool)

    def observe(self, states: Tensor) -> Tensor:
        angle, speed = states.unbind(1)
        return torch.stack((angle.cos(), angle.sin(), speed), 1)
