"""Returns and lengths of episodes whose rewards are tensors."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rllib.env.episodes import Episode


class EndedEpisodes(Sequence):
    """Episodes that are made of a table's columns when they are asked for: thousands may end in one fragment.

    Args:
        table: float64 [3, E]: return, length and environment of each.
    """

    def __init__(self, table: np.ndarray):
        self._table = table

    def __len__(self) -> int:
        return self._table.shape[1]

    def __getitem__(self, index):
        if isinstance(index, slice):
            return EndedEpisodes(self._table[:, index])
        total, length, environment = self._table[:, index].tolist()
        return Episode(total, int(length), int(environment))


class TensorEpisodes:
    """Tracks the running episode of each of N environments across fragments, on a device; as EpisodeTracker.

    Args:
        num_envs: N.
        device: of the rewards.
    """

    def __init__(self, num_envs: int, device: torch.device):
        self._totals = torch.zeros(2, num_envs, dtype=torch.float64, device=device)  # returns, lengths
        self._finished = [np.empty((3, 0))]  # columns (return, length, environment) of each fragment's episodes

    def add_fragment(self, rewards: Tensor, ended: Tensor, valid: Tensor | None = None) -> None:
        """Counts T steps of every environment; the ended episodes are copied to the host in one transfer.

        Args:
            rewards: [T, N] raw rewards; 0 where not valid.
            ended: [T, N] bool, terminated or truncated with this step.
            valid: [T, N] bool, False in rows that were no steps, or None.
        """
        steps = torch.ones_like(rewards) if valid is None else valid.to(rewards.dtype)
        sums = torch.stack((rewards, steps)).double().cumsum(1)  # [2, T, N]
        sums += self._totals[:, None]
        environments, times = torch.nonzero(ended.T, as_tuple=True)  # ordered by environment, then by time
        at_ends = sums[:, times, environments]
        # An environment's earlier end, if there is one, is what the sum of a later episode begins from.
        same = environments[1:] == environments[:-1]
        of_episodes = at_ends.clone()
        of_episodes[:, 1:] -= at_ends[:, :-1] * same
        self._totals = sums[:, -1] - self._at_last_ends(sums, ended)
        found = torch.cat((of_episodes, environments.double()[None], times.double()[None])).cpu().numpy()
        self._finished.append(found[:3, np.lexsort((found[2], found[3]))])

    @staticmethod
    def _at_last_ends(sums: Tensor, ended: Tensor) -> Tensor:
        """The sums at each environment's last end, [2, N]; 0 where no episode has ended."""
        numbers = torch.arange(1, len(ended) + 1, device=ended.device)[:, None]
        last = (ended * numbers).amax(0)
        found = sums.gather(1, (last - 1).clamp_(min=0).expand(2, 1, -1))[:, 0]
        return found * (last > 0)

    def pop_finished(self) -> "EndedEpisodes":
        """The episodes that have ended since the last call, in the order of their ends."""
        finished, self._finished = self._finished, [np.empty((3, 0))]
        return EndedEpisodes(np.concatenate(finished, axis=1))

    @property
    def longest_running(self) -> int:
        """Steps of the longest episode that has not ended; waits for the device."""
        return int(self._totals[1].max())

    def reset(self) -> None:
        """Drops the running episodes; to be called after the environments have been reset."""
        self._totals.zero_()
