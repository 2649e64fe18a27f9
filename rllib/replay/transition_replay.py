"""Transitions of E environments in contiguous columns [steps, E], sampled uniformly or by priority.

The transitions of a step of all environments lie side by side, and those of the next step behind them, so n-step
returns (Sutton, 1988) are summed up when they are sampled, never across an episode's end, the write head, or a gap in
an environment's steps. Observations of stacked frames can be kept as single frames (frame_stacks.py).
"""

import math
from collections.abc import Mapping

import numpy as np

from rllib import sample_batch as sb
from rllib.replay.frame_stacks import FrameStacks
from rllib.replay.memory import check_memory
from rllib.replay.priorities import Priorities
from rllib.replay.replay_buffer import numbers_of, rows_still_there, uniform_draw
from rllib.replay.sum_tree import SumTree
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
        frame_axis: 0 or -1 for observations that are stacks of frames along this axis, each then kept once; None: they
            are kept whole. Where so many episodes begin that their first stacks overfill the room for frames, the
            oldest steps go before their time.

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
        frame_axis: int | None = None,
    ):
        self.num_steps = math.ceil(capacity / num_envs)
        self.num_envs = num_envs
        self.gamma = gamma
        self.n_step = n_step
        self.steps_added = 0
        # The oldest step that can be sampled.
        self._oldest = 0
        self._rows = self.num_steps * num_envs
        table = {name: columns[name] for name in STORED} | {sb.LOSS_MASK: ((), "bool")}
        stack = table[sb.OBS]
        if frame_axis is not None:
            table |= {sb.OBS: ((), "int64"), sb.NEXT_OBS: ((), "int64")}
        check_memory(
            self._rows,
            self._rows * sum(_row_bytes(*column) for column in table.values())
            + (0 if alpha is None else SumTree.bytes_for(self._rows))
            + (0 if frame_axis is None else FrameStacks.bytes_for(*stack, frame_axis, num_envs, self.num_steps)),
        )
        self.priorities = None if alpha is None else Priorities(self._rows, alpha, epsilon)
        self.stacks = None if frame_axis is None else FrameStacks(*stack, frame_axis, num_envs, self.num_steps)
        # Zeros cost nothing until they are written to.
        self.columns = {
            name: np.zeros((self.num_steps, num_envs, *shape), dtype) for name, (shape, dtype) in table.items()
        }

    def __len__(self) -> int:
        """Transitions that can be sampled."""
        return (self.steps_added - self._oldest) * self.num_envs

    @property
    def size_bytes(self) -> int:
        """Memory of columns, frames and priorities when all are full."""
        frames = 0 if self.stacks is None else self.stacks.size_bytes
        priorities = 0 if self.priorities is None else self.priorities.tree.size_bytes
        return sum(column.nbytes for column in self.columns.values()) + frames + priorities

    def add(self, batch: SampleBatch, steps: int) -> None:
        """Appends a fragment, [steps * E] time-major.

        Args:
            batch: columns STORED; where loss_mask is among them, rows in which it is False are no transitions
                (environments that reset in a step of their own) and are never sampled.
            steps: that each environment made.

        Raises:
            ValueError: if they are not whole steps of all environments.
        """
        if batch.count != steps * self.num_envs:
            raise ValueError(
                f"{batch.count} rows are not {steps} steps of {self.num_envs} environments each: workers are missing, "
                "or rows that are no transitions (environments that reset in a step of their own) were left out"
            )
        columns = {sb.LOSS_MASK: np.ones(batch.count, bool), **batch}
        parts = {
            name: columns[name].reshape(steps, self.num_envs, *columns[name].shape[1:]) for name in self.columns
        }
        if self.stacks is not None:
            parts[sb.OBS], parts[sb.NEXT_OBS] = self._positions(parts[sb.OBS], parts[sb.NEXT_OBS])
        if self.n_step > 1 and self.steps_added:
            self._cut_where_steps_are_missing(parts[sb.OBS][0])
        for start in range(0, steps, self.num_steps):
            self._write({name: part[start : start + self.num_steps] for name, part in parts.items()})

    def _positions(self, observations: np.ndarray, following: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the frames of the stacks [steps, E, ...] lie, [steps, E] each; writes those that are new."""
        places = np.empty((2, *observations.shape[:2]), np.int64)
        for t, env in np.ndindex(places.shape[1:]):
            places[0, t, env] = self.stacks.append(env, observations[t, env])
            places[1, t, env] = self.stacks.append(env, following[t, env])
        return places[0], places[1]

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
            self.priorities.add(head * self.num_envs, steps * self.num_envs)
            self.priorities.drop_rows(
                (head * self.num_envs + np.flatnonzero(~parts[sb.LOSS_MASK])) % (self.num_steps * self.num_envs)
            )
        self.steps_added += steps
        self._oldest = max(self._oldest, self.steps_added - self.num_steps)
        if self.stacks is not None:
            self._drop_steps_without_frames()

    def _drop_steps_without_frames(self) -> None:
        oldest = self.stacks.oldest()
        while self._oldest < self.steps_added:
            step = self._oldest % self.num_steps
            if (self.columns[sb.OBS][step] >= oldest).all():
                return
            if self.priorities is not None:
                self.priorities.drop(step * self.num_envs, self.num_envs)
            self._oldest += 1

    # ------------------------------------------------------------------ sampling

    def sample(self, count: int, rng: np.random.Generator, beta: float = 0.0) -> SampleBatch:
        """Draws transitions with replacement.

        Args:
            count: how many.
            rng: draws them.
            beta: exponent of the importance weights; without priorities they are 1.

        Returns:
            obs, actions, rewards (the discounted sum of k <= n_step), new_obs (k steps later), discounts (gamma^k, 0
            where the task ended), weights (float32), batch_indexes (int64, for `update_priorities`).

        Raises:
            ValueError: if there is nothing to sample.
        """
        if not len(self):
            raise ValueError("there is nothing to sample: the replay is empty. Call add() first.")
        if self.priorities is None:
            rows, weights = self._uniform(count, rng), np.ones(count, np.float32)
        else:
            rows, weights = self.priorities.sample(count, rng, beta)
        flat = {name: column.reshape(-1, *column.shape[2:]) for name, column in self.columns.items()}
        rewards, discounts, last = self._returns(rows, flat)
        return SampleBatch(
            {
                sb.OBS: self._observations(flat[sb.OBS], rows),
                sb.ACTIONS: flat[sb.ACTIONS][rows],
                sb.REWARDS: rewards,
                sb.NEXT_OBS: self._observations(flat[sb.NEXT_OBS], last),
                sb.DISCOUNTS: discounts,
                sb.WEIGHTS: weights.astype(np.float32, copy=False),
                sb.INDICES: numbers_of(rows, self.steps_added * self.num_envs, self._rows),
            }
        )

    def _uniform(self, count: int, rng: np.random.Generator) -> np.ndarray:
        rows = self._in_order(uniform_draw(len(self), count, rng))
        is_transition = self.columns[sb.LOSS_MASK].reshape(-1)
        while not is_transition[rows].all():
            if not is_transition.any():
                raise ValueError("there is nothing to sample: no row of the replay is a transition. Give it more room.")
            others = np.flatnonzero(~is_transition[rows])
            rows[others] = self._in_order(uniform_draw(len(self), len(others), rng))
        return rows

    def _in_order(self, numbers: np.ndarray) -> np.ndarray:
        """The places of the rows that can be sampled, counted from the beginning of the columns."""
        first, head = self._oldest % self.num_steps, self.steps_added % self.num_steps
        if first < head:  # all in one piece, behind what was dropped
            return numbers + first * self.num_envs
        return np.where(numbers < head * self.num_envs, numbers, numbers + (first - head) * self.num_envs)

    def _observations(self, column: np.ndarray, rows: np.ndarray) -> np.ndarray:
        if self.stacks is None:
            return column[rows]
        return self.stacks.take(rows % self.num_envs, column[rows])

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

    def update_priorities(self, indexes: np.ndarray, td_errors: np.ndarray) -> None:
        """Sets the priorities of sampled rows that are still there; does nothing for uniform sampling.

        Raises:
            ValueError: if there never was such a row, or a TD error is not finite.
        """
        if self.priorities is not None:
            there = rows_still_there(indexes, self._oldest * self.num_envs, self.steps_added * self.num_envs)
            self.priorities.update(indexes[there] % self._rows, td_errors[there])

    # ------------------------------------------------------------------ checkpoints

    def get_state(self) -> dict[str, np.ndarray]:
        """Named arrays: all that has been added, and the priorities."""
        filled = min(self.steps_added, self.num_steps)
        state = {f"columns.{name}": column[:filled] for name, column in self.columns.items()}
        state["steps"] = np.array([self._oldest, self.steps_added])
        if self.stacks is not None:
            state |= {f"stacks.{name}": array for name, array in self.stacks.get_state().items()}
        if self.priorities is not None:
            state["priorities"] = self.priorities.tree[: filled * self.num_envs]
            state["largest"] = np.array(self.priorities.largest)
        return state

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes over what `get_state` gave.

        Raises:
            ValueError: if it is of another capacity, number of environments, kind of sampling or of observations.
        """
        oldest, added = state["steps"].tolist()
        filled = min(added, self.num_steps)
        stored = {name.removeprefix("columns."): part for name, part in state.items() if name.startswith("columns.")}
        shapes = {part.shape[:2] for part in stored.values()}
        kinds = "priorities" in state, "stacks.frames" in state
        if shapes - {(filled, self.num_envs)} or kinds != (self.priorities is not None, self.stacks is not None):
            raise ValueError(
                f"the saved replay holds {sorted(shapes)} steps and environments, this one takes "
                f"{(filled, self.num_envs)}; capacity, environments and priorities must be as they were"
            )
        self._oldest, self.steps_added = oldest, added
        for name, part in stored.items():
            self.columns[name][:filled] = part
        if self.stacks is not None:
            self.stacks.set_state({name: state[f"stacks.{name}"] for name in ("frames", "written")})
        if self.priorities is not None:
            self.priorities.load(state["priorities"], float(state["largest"]))


def _row_bytes(shape: tuple[int, ...], dtype: str) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize
