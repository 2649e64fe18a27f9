"""Recorded steps as imitation learns from them: single rows, or whole sequences for policies with a memory."""

from collections.abc import Callable

import numpy as np

from rllib import sample_batch as sb
from rllib.evaluation.offline import rows
from rllib.offline.dataset import Dataset
from rllib.policy import Policy
from rllib.sample_batch import SampleBatch


class ImitatedRows:
    """Rows with observation and action.

    Args:
        dataset: recorded steps.
        policy: that imitates them.
        conversions: conversions of actions; see rows.Conversions.
        rows_at_once: of a batch; sequences have up to length - 1 more.
        returns: adds the column of returns to go to the rows of a batch; None: it is not read.
    """

    def __init__(
        self,
        dataset: Dataset,
        policy: Policy,
        conversions: rows.Conversions,
        rows_at_once: int,
        returns: "ReturnsToGo | None" = None,
    ):
        self._columns = {
            sb.OBS: rows.observations(dataset, policy),
            sb.ACTIONS: rows.actions(dataset, policy, conversions),
        }
        self.rows_at_once, self._returns = rows_at_once, returns

    def __len__(self) -> int:
        return len(self._columns[sb.ACTIONS])

    def lengths(self, units: np.ndarray) -> np.ndarray:
        """Rows of each of these units, int64."""
        return np.ones(len(units), np.int64)

    def batch(self, units: np.ndarray) -> SampleBatch:
        """The rows with these numbers."""
        batch = SampleBatch({name: column[units] for name, column in self._columns.items()})
        if self._returns is not None:
            self._returns(batch, units)
        return batch


class ImitatedSequences(ImitatedRows):
    """Parts of episodes, of `length` rows at most, for policies with a memory.

    A memory begins empty at the beginning of an episode. What it held at the beginning of a further part depends on the
    weights: the present ones compute it from the `burn_in` rows before, in front of which it is empty.

    Args:
        dataset, policy, conversions, rows_at_once, returns: as for ImitatedRows.
        length: most rows of a sequence.
        burn_in: most rows before a sequence that bring the memory up to date, without being learned from.
    """

    def __init__(
        self,
        dataset: Dataset,
        policy: Policy,
        conversions,
        rows_at_once: int,
        returns=None,
        *,
        length: int,
        burn_in: int = 0,
    ):
        super().__init__(dataset, policy, conversions, rows_at_once, returns)
        parts = [np.arange(start, stop, length) for start, stop in zip(dataset.starts[:-1], dataset.starts[1:])]
        self._starts = np.concatenate(parts)
        self._stops = np.append(self._starts[1:], len(dataset))
        begins = np.repeat(dataset.starts[:-1], [len(part) for part in parts])
        self._burn_in = np.minimum(self._starts - begins, burn_in)
        self._policy = policy
        # The last part of each episode.
        self._last = np.cumsum([len(part) for part in parts]) - 1
        if returns is not None:
            returns.states_before = self._states_at_ends

    def __len__(self) -> int:
        return len(self._starts)

    def lengths(self, units: np.ndarray) -> np.ndarray:
        """Rows of each of these sequences, int64."""
        return self._stops[units] - self._starts[units]

    def batch(self, units: np.ndarray) -> SampleBatch:
        """The rows of these sequences, one after the other, with their lengths and the states before them."""
        starts, lengths = self._starts[units], self.lengths(units)
        places = np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths) + np.arange(lengths.sum())
        batch = super().batch(places)
        batch[sb.SEQ_LENS] = lengths.astype(np.int64)
        batch[sb.STATE_IN] = self._states(starts, self._burn_in[units])
        return batch

    def _states_at_ends(self, episodes: np.ndarray, places: np.ndarray) -> np.ndarray:
        """The memory's states before rows of the last parts of episodes, or behind these, float32 [episodes, state].

        Args:
            episodes: int [episodes].
            places: int [episodes], numbers of the rows.
        """
        begins = self._starts[self._last[episodes]] - self._burn_in[self._last[episodes]]
        return self._states(places, places - begins)

    def _states(self, starts: np.ndarray, burn_in: np.ndarray) -> np.ndarray:
        """Computes the memory's states at the first rows of sequences.

        Args:
            starts: int [sequences], numbers of the first rows.
            burn_in: int [sequences], how many rows before each are read.

        Returns:
            float32 [sequences, state].
        """
        states = np.zeros((len(starts), self._policy.state_size), np.float32)
        longest = int(burn_in.max(initial=0))
        if not longest:
            return states
        # Rows past a sequence's own count for nothing.
        places = np.minimum((starts - burn_in)[:, None] + np.arange(longest), len(self._columns[sb.OBS]) - 1)
        return self._policy.state_after(self._columns[sb.OBS][places], burn_in, states)


class ReturnsToGo:
    """The column value_targets of recorded rows: G_t, with the present value of what followed a truncated episode.

    Where it is unknown what followed, it is the value of the last step's own observation, in place of its reward; the
    target of this step is the value itself, so that its action is imitated with an advantage of 0.

    Args:
        dataset: recorded steps.
        rewards: float32 [rows] that are learned from.
        gamma: discount per step.
        policy: whose values are taken; None: nothing is added for what followed.

    Attributes:
        states_before: (numbers of episodes, of rows) -> the states of the policy's memory there; None: it has none.
    """

    states_before: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None

    def __init__(self, dataset: Dataset, rewards: np.ndarray, gamma: float, policy: Policy | None):
        self._dataset, self._policy = dataset, policy
        if policy is not None:
            rewards = np.where(dataset.is_transition, rewards, 0)
        self._sums = rows.returns_to_go(dataset, rewards, gamma, np.zeros(dataset.num_episodes))
        self._episodes = np.repeat(np.arange(dataset.num_episodes), dataset.lengths)
        last = dataset.starts[1:] - 1
        self._is_known = dataset.is_transition[last]
        left = (last + self._is_known)[self._episodes] - np.arange(len(dataset))
        self._discounts = (gamma ** left.astype(np.float64)).astype(np.float32)
        self._goes_on = ~dataset.columns[sb.TERMINATEDS][last]

    def __call__(self, batch: SampleBatch, places: np.ndarray) -> None:
        """Adds the column for rows with these numbers in the dataset."""
        targets = self._sums[places].copy()
        episodes = self._episodes[places]
        if self._policy is not None and self._goes_on[episodes].any():
            values = self._values(np.unique(episodes[self._goes_on[episodes]]))
            targets += self._discounts[places] * values[episodes]
        batch[sb.VALUE_TARGETS] = targets

    def _values(self, episodes: np.ndarray) -> np.ndarray:
        """Values of the last known observations of these episodes, float32 [all episodes]; 0 for others."""
        values = np.zeros(self._dataset.num_episodes, np.float32)
        columns, last = self._dataset.columns, self._dataset.starts[1:][episodes] - 1
        following, is_unknown = columns[sb.NEXT_OBS][last], ~self._is_known[episodes]
        following[is_unknown] = columns[sb.OBS][last[is_unknown]]
        stored = self._policy.filter(following) if self._policy.filters_observations else following
        # The state of a memory, if there is one.
        more = () if self.states_before is None else (self.states_before(episodes, last + self._is_known[episodes]),)
        values[episodes] = self._policy.values(stored, *more)
        return values
