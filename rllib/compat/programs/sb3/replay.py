"""A model's replay, by the names of Stable-Baselines3's buffers."""

from typing import Any

import numpy as np
import torch

from rllib.compat.programs.sb3.buffers import ReplayBuffer, ReplayBufferSamples
from rllib.sample_batch import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS


class ReplayView(ReplayBuffer):
    """Reads the replay of a model.

    Args:
        replay: of the only policy.
        steps: environment steps that it holds at most.
        n_envs: number of environments.
        config: settings of the algorithm.

    Attributes:
        buffer_size: steps of each environment that it holds at most.
    """

    def __init__(self, replay: Any, steps: int, n_envs: int, config: Any):
        self._replay, self.n_envs = replay, n_envs
        self.buffer_size = max(int(steps) // n_envs, 1)
        # With hindsight a step has a row for each of its goals.
        self._rows = n_envs * config.replay_buffer_config["capacity"] // max(int(steps), 1)

    def __len__(self) -> int:
        return len(self._replay)

    def size(self) -> int:
        """Number of steps of each environment."""
        return min(len(self._replay) // self._rows, self.buffer_size)

    @property
    def pos(self) -> int:
        """Where the next step is written."""
        return 0 if self.full else self.size()

    @property
    def full(self) -> bool:
        """Whether further steps take the place of the oldest."""
        return self.size() >= self.buffer_size

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples:
        """Rows that are drawn as for learning, with numpy's global generator.

        Args:
            batch_size: number of rows.
            env: None.
        """
        if env is not None:
            raise ValueError("env=... cannot be given to sample: the rows are as the model learns from them")
        rows = self._replay.sample(batch_size, np.random.default_rng(np.random.randint(2**31)))
        count = len(rows[REWARDS])

        def column(name: str) -> torch.Tensor:
            return torch.from_numpy(np.array(rows[name])).reshape(count, -1)

        return ReplayBufferSamples(
            torch.from_numpy(np.array(rows[OBS])), column(ACTIONS), torch.from_numpy(np.array(rows[NEXT_OBS])),
            (column(DISCOUNTS) == 0).float(), column(REWARDS),
        )  # fmt: skip

    # Methods of a buffer that is filled by hand.
    add = property(lambda self: self.__getattr__("add"))
    extend = property(lambda self: self.__getattr__("extend"))
    reset = property(lambda self: self.__getattr__("reset"))
    to_torch = property(lambda self: self.__getattr__("to_torch"))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"the replay has no {name!r} here: it has size(), full, buffer_size and sample(n); "
            "model.replays['default_policy'] is this library's (docs/guide/replay.md)"
        )
