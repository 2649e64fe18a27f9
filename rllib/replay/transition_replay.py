"""Transitions of E environments in contiguous columns [steps, E], sampled uniformly or by priority.

A step of all environments is a row, so that the row after it holds what followed: n-step returns (Sutton, 1988) are
summed up when they are sampled, never across an episode's end, the write head, or a gap in an environment's steps.
Priorities are proportional ones (Schaul et al., arXiv:1511.05952).
"""

import math
from collections.abc import Mapping

import numpy as np
import psutil

from rllib import sample_batch as sb
from rllib.sample_batch import SampleBatch

STORED = (sb.OBS, sb.NEXT_OBS, sb.ACTIONS, sb.REWARDS, sb.TERMINATEDS, sb.TRUNCATEDS)


class TransitionReplay:
    """A ring of transitions.

    Args:
        columns: shape of a row and dtype of each of STORED.
        capacity: transitions, rounded up to whole steps of all environments.
        num_envs: E, how many environments are added in lockstep.
        gamma: discount per step.
        n_step: rewards that a sample sums up, at most.
        alpha: exponent of the priorities; None samples uniformly.
        epsilon: added to every |TD error|, so that nothing is never sampled again.

    Raises:
        ValueError: if the columns are larger than the memory that is free.
    """

    def __init__(
        self,
        columns: Mapping[str, tuple[tuple[int, ...], str]],
        capacity: int,
        num_envs: int,
        gamma: float,
        n_step: int = 1,
        alpha: float | None = None,
        epsilon: float = 1e-6,
    ):
        self.num_steps = math.ceil(capacity / num_envs)
        self.num_envs = num_envs
        self.gamma = gamma
        self.n_step = n_step
        self.steps_added = 0
        rows = self.num_steps * num_envs
        row_bytes = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in columns.values())
        _check_memory(rows, row_bytes + (0 if alpha is None else 8))
        self.priorities = None if alpha is None else Priorities(rows, alpha, epsilon)
        self.columns = {
            name: np.zeros((self.num_steps, num_envs, *columns[name][0]), columns[name][1]) for name in STORED
        }

    def __len__(self) -> int:
        """Transitions that can be sampled."""
        return min(self.steps_added, self.num_steps) * self.num_envs

    @property
    def size_bytes(self) -> int:
        """Memory of the columns."""
        return sum(column.nbytes for column in self.columns.values())

    def add(self, batch: SampleBatch, steps: int, num_fragments: int = 1) -> None:
        """Appends fragments, one behind the other, each [steps * environments] time-major, of E environments in all.

        Args:
            batch: columns STORED.
            steps: that each environment made.
            num_fragments: how many there are, with equally many environments.

        Raises:
            ValueError: if they are not whole steps of all environments.
        """
        if batch.count != steps * self.num_envs:
            raise ValueError(
                f"{batch.count} rows are not {steps} steps of {self.num_envs} environments each: workers are missing, "
                "or some rows are no transitions (environments that reset in a step of their own)"
            )
        parts = {name: self._by_step(batch[name], steps, num_fragments) for name in STORED}
        if self.n_step > 1 and self.steps_added:
            self._cut_where_steps_are_missing(parts[sb.OBS][0])
        for start in range(0, steps, self.num_steps):
            self._write({name: part[start : start + self.num_steps] for name, part in parts.items()})

    def _by_step(self, column: np.ndarray, steps: int, num_fragments: int) -> np.ndarray:
        """[fragments * steps * environments, ...] as [steps, E, ...]."""
        fragments = column.reshape(num_fragments, steps, -1, *column.shape[1:])
        return fragments.swapaxes(0, 1).reshape(steps, self.num_envs, *column.shape[1:])

    def _cut_where_steps_are_missing(self, observations: np.ndarray) -> None:
        """Ends the episodes of environments that do not go on where they stood: a replaced worker's begin anew."""
        last = (self.steps_added - 1) % self.num_steps
        went_on = (self.columns[sb.NEXT_OBS][last] == observations).reshape(self.num_envs, -1).all(1)
        over = self.columns[sb.TERMINATEDS][last] | self.columns[sb.TRUNCATEDS][last]
        self.columns[sb.TRUNCATEDS][last] |= ~went_on & ~over

    def _write(self, parts: Mapping[str, np.ndarray]) -> None:
        steps = len(parts[sb.OBS])
        head = self.steps_added % self.num_steps
        first = min(steps, self.num_steps - head)
        for name, part in parts.items():
            self.columns[name][head : head + first] = part[:first]
            self.columns[name][: steps - first] = part[first:]
        if self.priorities is not None:
            rows = (head * self.num_envs + np.arange(steps * self.num_envs)) % (self.num_steps * self.num_envs)
            self.priorities.set_newest(rows)
        self.steps_added += steps

    # ------------------------------------------------------------------ sampling

    def sample(self, count: int, rng: np.random.Generator, beta: float = 0.0) -> SampleBatch:
        """Draws transitions with replacement.

        Args:
            count: how many.
            rng: draws them.
            beta: exponent of the importance weights; without priorities they are 1.

        Returns:
            obs, actions, rewards (the discounted sum of k <= n_step), new_obs (k steps later), discounts (gamma^k, 0
            where the task ended), weights, batch_indexes (for `update_priorities`).
        """
        if self.priorities is None:
            # As with priorities that are all 1: then both draw the same rows.
            rows, weights = (rng.random(count) * len(self)).astype(np.int64), np.ones(count, np.float32)
        else:
            rows, weights = self.priorities.sample(count, len(self), rng, beta)
        flat = {name: column.reshape(-1, *column.shape[2:]) for name, column in self.columns.items()}
        rewards, discounts, last = self._returns(rows, flat)
        return SampleBatch(
            {
                sb.OBS: flat[sb.OBS][rows],
                sb.ACTIONS: flat[sb.ACTIONS][rows],
                sb.REWARDS: rewards,
                sb.NEXT_OBS: flat[sb.NEXT_OBS][last],
                sb.DISCOUNTS: discounts,
                sb.WEIGHTS: weights,
                sb.INDICES: rows,
            }
        )

    def _returns(self, rows: np.ndarray, flat: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rewards and discounts [B], and the rows of the windows' last steps."""
        rewards, factor = flat[sb.REWARDS][rows], np.float32(self.gamma)
        last, discounts = rows, np.full(len(rows), factor, np.float32)
        going = np.ones(len(rows), bool)
        head = (self.steps_added % self.num_steps) * self.num_envs
        for _ in range(self.n_step - 1):
            following = (last + self.num_envs) % (self.num_steps * self.num_envs)
            over = flat[sb.TERMINATEDS][last] | flat[sb.TRUNCATEDS][last]
            going &= ~over & ((following < head) | (following >= head + self.num_envs))
            rewards = rewards + discounts * flat[sb.REWARDS][following] * going
            last = np.where(going, following, last)
            discounts = np.where(going, discounts * factor, discounts)
        return rewards, discounts * ~flat[sb.TERMINATEDS][last], last

    def update_priorities(self, rows: np.ndarray, td_errors: np.ndarray) -> None:
        """Sets the priorities of sampled rows; does nothing for uniform sampling."""
        if self.priorities is not None:
            self.priorities.update(rows, td_errors)

    # ------------------------------------------------------------------ checkpoints

    def get_state(self) -> dict[str, np.ndarray]:
        """Named arrays: all that has been added, and the priorities."""
        filled = min(self.steps_added, self.num_steps)
        state = {f"columns.{name}": column[:filled] for name, column in self.columns.items()}
        state["steps_added"] = np.array(self.steps_added)
        if self.priorities is not None:
            state["priorities"] = self.priorities.values.reshape(-1)[: filled * self.num_envs]
            state["largest"] = np.array(self.priorities.largest)
        return state

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes over what `get_state` gave.

        Raises:
            ValueError: if it is of another capacity, number of environments or kind of sampling.
        """
        self.steps_added = int(state["steps_added"])
        filled = min(self.steps_added, self.num_steps)
        stored = {name.removeprefix("columns."): part for name, part in state.items() if name.startswith("columns.")}
        shapes = {part.shape[:2] for part in stored.values()}
        if shapes - {(filled, self.num_envs)} or ("priorities" in state) != (self.priorities is not None):
            raise ValueError(
                f"the saved replay holds {sorted(shapes)} steps and environments, this one takes "
                f"{(filled, self.num_envs)}; capacity, environments and priorities must be as they were"
            )
        for name, part in stored.items():
            self.columns[name][:filled] = part
        if self.priorities is not None:
            self.priorities.load(state["priorities"], float(state["largest"]))


def _check_memory(rows: int, row_bytes: int) -> None:
    needed, free = rows * row_bytes, psutil.virtual_memory().available
    if needed > free:
        raise ValueError(
            f"a replay of {rows} transitions takes {needed / 2**30:.1f} GiB, but {free / 2**30:.1f} GiB are free. "
            f"Use .training(replay_buffer_config={{'capacity': {free // (2 * row_bytes)}}})."
        )


# Priorities in a block of the table below.
BLOCK = 64


class Priorities:
    """(|TD error| + epsilon)^alpha of each row, and draws in proportion to them.

    Two levels: the sums of blocks of 64 priorities, added up at each draw, lead to a block, and the running sums within
    it to the row. For some 10,000 rows and more that is as fast in numpy as a binary tree, whose every level costs a
    call; and sums are always computed afresh, so none drifts. All in float64.
    """

    def __init__(self, rows: int, alpha: float, epsilon: float):
        self.alpha, self.epsilon = alpha, epsilon
        self.values = np.zeros((math.ceil(rows / BLOCK), BLOCK))
        self._sums = np.zeros(len(self.values))
        self._flat = self.values.reshape(-1)
        self.largest = 1.0

    def set_newest(self, rows: np.ndarray) -> None:
        """Rows that were never sampled get the largest priority so far, so that they soon are."""
        self._set(rows, self.largest)

    def update(self, rows: np.ndarray, td_errors: np.ndarray) -> None:
        """Takes the new TD errors of the rows."""
        priorities = (np.abs(td_errors).astype(np.float64) + self.epsilon) ** self.alpha
        self.largest = max(self.largest, float(priorities.max()))
        self._set(rows, priorities)

    def load(self, priorities: np.ndarray, largest: float) -> None:
        """Takes over the priorities of the first rows."""
        self._flat[: len(priorities)] = priorities
        self._sums[:] = self.values.sum(1)
        self.largest = largest

    def sample(self, count: int, rows: int, rng: np.random.Generator, beta: float) -> tuple[np.ndarray, np.ndarray]:
        """Rows [count] below `rows`, with their importance weights (N P)^-beta, divided by the largest of them."""
        ends = np.cumsum(self._sums)
        total = ends[-1]
        drawn = rng.random(count) * total
        blocks = np.minimum(np.searchsorted(ends, drawn, side="right"), (rows - 1) // BLOCK)
        within = np.cumsum(self.values[blocks], axis=1)
        rest = drawn - (ends[blocks] - self._sums[blocks])
        # Rounding may leave a rest beyond the last priority: then the last row that has one is meant.
        column = (within <= np.minimum(rest, np.nextafter(within[:, -1], 0))[:, None]).sum(1)
        found = np.minimum(blocks * BLOCK + column, rows - 1)
        weights = (rows * self._flat[found] / total) ** -beta
        return found, (weights / weights.max()).astype(np.float32)

    def _set(self, rows: np.ndarray, priorities) -> None:
        self._flat[rows] = priorities
        blocks = rows // BLOCK
        self._sums[blocks] = self.values[blocks].sum(1)
