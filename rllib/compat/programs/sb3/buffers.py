"""Stable-Baselines3's replay as a separate object, for scripts with their own training loop."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces

from rllib.compat.programs.sb3.preprocessing import get_action_dim, get_obs_shape
from rllib.compat.programs.sb3.tools import get_device


class ReplayBufferSamples(NamedTuple):
    """Rows of a replay as tensors.

    Attributes:
        observations, next_observations: [B, ...]; of a Dict a dict of these.
        actions: [B, K].
        dones: [B, 1], 1 where nothing follows; not where an episode was truncated.
        rewards: [B, 1].
        discounts: None.
    """

    observations: Any
    actions: torch.Tensor
    next_observations: Any
    dones: torch.Tensor
    rewards: torch.Tensor
    discounts: torch.Tensor | None = None


DictReplayBufferSamples = ReplayBufferSamples


class BaseBuffer:
    """Base class of buffers.

    Args:
        buffer_size: steps, of all environments together.
        observation_space, action_space: spaces of an environment.
        device: device of sampled tensors.
        n_envs: number of environments.

    Attributes:
        buffer_size: steps of each environment.
        pos: where the next step is written.
        full: whether further steps take the place of the oldest.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: torch.device | str = "auto",
        n_envs: int = 1,
    ):
        if not isinstance(observation_space, spaces.Space) or not isinstance(action_space, spaces.Space):
            raise TypeError(
                f"observation_space={observation_space!r:.60} and action_space={action_space!r:.60} must be spaces of "
                "gymnasium"
            )
        self.buffer_size = max(int(buffer_size) // n_envs, 1)
        self.observation_space, self.action_space = observation_space, action_space
        self.device, self.n_envs = get_device(device), n_envs
        self.obs_shape, self.action_dim = get_obs_shape(observation_space), get_action_dim(action_space)
        self.pos, self.full = 0, False

    def size(self) -> int:
        """Number of steps of each environment."""
        return self.buffer_size if self.full else self.pos

    def reset(self) -> None:
        """Empties the buffer."""
        self.pos, self.full = 0, False

    def to_torch(self, array: np.ndarray, copy: bool = True) -> torch.Tensor:
        """An array as a tensor on the buffer's device."""
        return torch.tensor(array, device=self.device) if copy else torch.as_tensor(array, device=self.device)


class ReplayBuffer(BaseBuffer):
    """Steps of several environments, in arrays [steps, n_envs, ...]; the newest take the place of the oldest.

    As replay_buffer_class of a model it selects the usual replay. Dict observations are stored by their keys.

    Args:
        buffer_size, observation_space, action_space, device, n_envs: as for BaseBuffer.
        optimize_memory_usage: without effect: next observations are kept as well.
        handle_timeout_termination: bootstrap the returns of truncated episodes (info["TimeLimit.truncated"]).
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
    ):
        super().__init__(buffer_size, observation_space, action_space, device, n_envs)
        self.optimize_memory_usage = optimize_memory_usage
        self.handle_timeout_termination = handle_timeout_termination
        rows = self.buffer_size, n_envs
        self.observations, self.next_observations = self._of_observations(rows), self._of_observations(rows)
        kind = np.dtype(action_space.dtype)
        kind = np.dtype(np.float32) if kind == np.float64 else kind
        self.actions = np.zeros((*rows, self.action_dim), kind)
        self.rewards, self.dones, self.timeouts = (np.zeros(rows, np.float32) for _ in range(3))

    def _of_observations(self, rows: tuple[int, int]) -> Any:
        space = self.observation_space
        if isinstance(space, spaces.Dict):
            return {
                key: np.zeros((*rows, *shape), space[key].dtype)
                for key, shape in self.obs_shape.items()
            }  # fmt: skip
        return np.zeros((*rows, *self.obs_shape), space.dtype)

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: Sequence[Mapping],
    ) -> None:
        """Adds a step of each environment.

        Args:
            obs, next_obs: [n_envs, ...], or a dict of these.
            action: [n_envs, ...].
            reward, done: [n_envs].
            infos: of each environment.
        """
        self._write(self.observations, obs)
        self._write(self.next_observations, next_obs)
        self.actions[self.pos] = np.reshape(action, (self.n_envs, self.action_dim))
        self.rewards[self.pos], self.dones[self.pos] = np.reshape(reward, -1), np.reshape(done, -1)
        if self.handle_timeout_termination:
            self.timeouts[self.pos] = [info.get("TimeLimit.truncated", False) for info in infos]
        self.pos += 1
        if self.pos == self.buffer_size:
            self.pos, self.full = 0, True

    def _write(self, columns: Any, given: Any) -> None:
        if isinstance(columns, dict):
            for key, column in columns.items():
                column[self.pos] = np.reshape(given[key], column.shape[1:])
        else:
            columns[self.pos] = np.reshape(given, columns.shape[1:])

    def extend(self, *args: Any) -> None:
        """Adds several steps: the arguments of `add`, each with a further axis in front."""
        for step in zip(*args, strict=True):
            self.add(*step)

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples:
        """Rows that are drawn uniformly, with numpy's global generator.

        Args:
            batch_size: number of rows.
            env: a VecNormalize, whose statistics normalise observations and rewards; None: as they were added.

        Raises:
            ValueError: of an empty buffer.
        """
        if not self.size():
            raise ValueError("the replay is empty: add a step before sample")
        steps = np.random.randint(0, self.size(), batch_size)
        places = np.random.randint(0, self.n_envs, batch_size)

        def rows(columns: Any) -> Any:
            found = (
                {key: column[steps, places] for key, column in columns.items()}
                if isinstance(columns, dict)
                else columns[steps, places]
            )
            found = found if env is None else env.normalize_obs(found)
            if isinstance(found, dict):
                return {key: self.to_torch(column) for key, column in found.items()}
            return self.to_torch(found)

        rewards = self.rewards[steps, places].reshape(-1, 1)
        rewards = rewards if env is None else np.asarray(env.normalize_reward(rewards), np.float32)
        ends = (self.dones * (1 - self.timeouts))[steps, places].reshape(-1, 1)
        return ReplayBufferSamples(
            rows(self.observations),
            self.to_torch(self.actions[steps, places]),
            rows(self.next_observations),
            self.to_torch(ends),
            self.to_torch(rewards),
        )


class DictReplayBuffer(ReplayBuffer):
    """The replay of Dict observations."""
