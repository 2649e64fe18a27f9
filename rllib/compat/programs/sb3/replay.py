"""A model's replay, by the names of Stable-Baselines3's buffers."""

from typing import Any


class ReplayView:
    """Reads the replay of a model.

    Args:
        replay: of the only policy.
        capacity: number of steps that it holds.
        n_envs: number of environments.

    Attributes:
        buffer_size: rows that it holds at most.
    """

    def __init__(self, replay: Any, capacity: int, n_envs: int):
        self._replay, self.buffer_size, self.n_envs = replay, capacity, n_envs

    def __len__(self) -> int:
        return len(self._replay)

    def size(self) -> int:
        """Number of rows."""
        return len(self._replay)

    @property
    def full(self) -> bool:
        """Whether further rows take the place of the oldest."""
        return len(self._replay) >= self.buffer_size

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"the replay has no {name!r} here: it has size(), full and buffer_size; model.replays['default_policy'] "
            "is this library's (docs/guide/replay.md)"
        )
