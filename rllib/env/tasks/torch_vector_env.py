"""Base of environments written in torch: a few tensor operations advance all N of them, on a CPU or a GPU.

    class Walk(TorchVectorEnv):
        def __init__(self, num_envs, device="cpu"):
            super().__init__(num_envs, Box(-9, 9, (1,)), Discrete(2), max_episode_steps=20, device=device)

        def initial_states(self):                   # -> [N, ...]
            return torch.zeros(self.num_envs, 1, device=self.device)

        def advance(self, states, actions):         # -> states, rewards [N], terminated [N]
            states = states + (2 * actions[:, None] - 1)
            return states, states[:, 0], states[:, 0].abs() >= 9

PPO and A2C keep their rollouts on the device of such an environment (docs/scale/learners.md).
"""

from abc import abstractmethod
from typing import ClassVar

import gymnasium
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor


class TorchVectorEnv(VectorEnv):
    """N environments whose states are one tensor; an ended episode is followed by a reset within the same step.

    Nothing in a step waits for the device: the episodes that end are chosen by masks. `info["final_obs"]` holds what
    was observed before the resets, of all environments, and `info["_final_obs"]` says which of them have ended.

    Args:
        num_envs: N.
        observation_space, action_space: spaces of a single environment.
        max_episode_steps: episodes are truncated after this number of steps; None: never.
        device: "cpu", "cuda" or "cuda:1".

    Attributes:
        states: [N, ...], of the running episodes; may be set, between steps.
        steps: int64 [N], of the running episodes so far.
        generator: draws the first states; on the same device.
    """

    metadata: ClassVar[dict] = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self,
        num_envs: int,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        *,
        max_episode_steps: int | None = None,
        device: str | torch.device = "cpu",
    ):
        self.num_envs, self.device = num_envs, torch.device(device)
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self.max_episode_steps = max_episode_steps
        self.generator = torch.Generator(self.device)
        self.generator.seed()
        self.steps = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        self.states = torch.empty(0, device=self.device)

    @abstractmethod
    def initial_states(self) -> Tensor:
        """States [N, ...] in which episodes begin, drawn by `self.generator`."""

    @abstractmethod
    def advance(self, states: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step of all environments, without time limits and resets.

        Args:
            states: [N, ...], to be left as they are.
            actions: [N, ...].

        Returns:
            the next states [N, ...], rewards [N], terminated bool [N]; new tensors.
        """

    def observe(self, states: Tensor) -> Tensor:
        """Observations of states, [N, *observation_shape]; by default the states themselves."""
        return states

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Tensor, dict]:
        """Starts an episode in every environment: observations, and an empty info.

        Args:
            seed: seed of all first states from now on; None: their generator continues.
            options: none.
        """
        if seed is not None:
            self.generator.manual_seed(seed)
        self.states = self.initial_states()
        self.steps = torch.zeros_like(self.steps)
        return self.observe(self.states), {}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict]:
        """Observations, rewards, terminated, truncated, info; all are new tensors."""
        states, rewards, terminated = self.advance(self.states, actions)
        steps = self.steps + 1
        if self.max_episode_steps is None:
            truncated = torch.zeros_like(terminated)
        else:
            truncated = steps >= self.max_episode_steps
        ended = terminated | truncated
        final = self.observe(states)
        mask = ended.reshape(-1, *(1,) * (states.dim() - 1))
        self.states = torch.where(mask, self.initial_states(), states)
        self.steps = steps.masked_fill_(ended, 0)
        return self.observe(self.states), rewards, terminated, truncated, {"final_obs": final, "_final_obs": ended}

    def uniform(self, *shape: int) -> Tensor:
        """Numbers in [-1, 1), float32 [N, *shape], drawn by `self.generator`."""
        return torch.empty(self.num_envs, *shape, device=self.device).uniform_(-1, 1, generator=self.generator)
