"""The columns a rollout worker writes: T steps of N environments, time-major, in one block of memory.

The block comes from the worker's allocator. In a worker process that is the object store's, so the columns lie in
shared memory and returning them costs one small message and no copy; small blocks are copied into the message.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rllib import sample_batch as sb
from rllib.sample_batch import Column, SampleBatch

_ALIGNMENT = 64  # bytes: a cache line, and the alignment for vector instructions


class Fragment:
    """Preallocated columns of shape [T, N, ...]; those from before the action have one row more, for the bootstrap.

    Attributes:
        observations: [T + 1, N, *observation], row t + 1 follows action t (after an automatic reset).
        final_observations: (t, i, observation) for each episode of environment i that was truncated after action t
            (terminated episodes too, where the postprocess asks for them).
        valid: [T, N] bool, False for rows that are no transitions; None when all are.
        starts: int64 [N], first row of each slot, where slots have made different numbers of steps (`keep`). Rows
            before it are outside of the slot's time, and it follows the last row of the fragment before. None: 0.
        failures: (t, i) where environment i raised in step t and was replaced; that row is not valid.
        lives_lost: (t, i) where step t of environment i ended a life and not the game.
        cuts: (t, i) where an episode was truncated after step t because the environment failed in the next one.
        time_limits: [T, N] bool, steps at which a time limit has cut episodes that count as terminated; None: none.
        has_values: whether acting has filled the column vf_preds.
        unfiltered: [T + 1, N, *observation] before the filter, where steps are recorded and the policy has one; else
            None.
        ends: (t, i, observation) for each episode that ended after action t, with its final observation before the
            filter, where steps are recorded.
        by_environment: whether the bits of results for one environment's rows must not depend on the other rows.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        num_steps: int,
        num_envs: int,
        allocate: Callable[..., np.ndarray] = np.empty,
    ):
        self.num_steps = num_steps
        self.num_envs = num_envs
        self.columns = _in_one_block(
            {
                column.name: ((num_steps + column.before_action, num_envs, *column.shape), np.dtype(column.dtype))
                for column in columns
            },
            allocate,
        )
        self.observations = self.columns[sb.OBS]
        self.final_observations: list[tuple[int, int, np.ndarray]] = []
        # State of a policy's memory at each final observation.
        self.final_states: list[np.ndarray] = []
        self.valid: np.ndarray | None = None
        self.starts: np.ndarray | None = None
        self.failures: list[tuple[int, int]] = []
        self.lives_lost: list[tuple[int, int]] = []
        self.cuts: set[tuple[int, int]] = set()
        self.time_limits: np.ndarray | None = None
        self.unfiltered: np.ndarray | None = None
        self.ends: list[tuple[int, int, np.ndarray]] = []
        self.has_values = False
        self.by_environment = False

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    @property
    def num_transitions(self) -> int:
        """Rows that are transitions."""
        return self.num_steps * self.num_envs if self.valid is None else int(np.count_nonzero(self.valid))

    def is_in_lockstep(self, num_steps: int) -> bool:
        """Whether each slot has made all of these steps, or none."""
        if self.starts is None:
            return self.num_steps == num_steps
        return self.num_steps == num_steps and not ((self.starts > 0) & (self.starts < num_steps)).any()

    @property
    def gaps(self) -> np.ndarray | None:
        """[T, N] bool, rows between two episodes of a slot, which are no transitions; None if there are none."""
        if self.valid is None or self.starts is not None:
            return None
        return ~self.valid

    def keep(self, is_row: np.ndarray, newest: Mapping[str, np.ndarray]) -> None:
        """Keeps some rows of each slot, one behind the other at the fragment's end.

        The last row of every slot then lies next to the last rows of the others, and the inputs of the next actions in
        the row behind it. As many steps are left as the busiest slot has rows.

        Args:
            is_row: bool [T, N], the rows that stay.
            newest: inputs of the next actions [N, ...], by column.
        """
        counts = np.count_nonzero(is_row, axis=0)
        length = int(counts.max(initial=0))
        starts = length - counts
        if not is_row.all():
            # Row of each row that is left; the first one of its slot stands before `starts`, too.
            rank = np.maximum(np.arange(length)[:, None] - starts, 0)
            source = np.take_along_axis(np.argsort(~is_row, axis=0, kind="stable"), rank, axis=0)
            slots, row_after = np.arange(self.num_envs), np.cumsum(is_row, axis=0) - 1 + starts
            for name, column in self.columns.items():
                column[:length] = column[source, slots]
                self.columns[name] = column[: length + (name in newest)]
            self.observations, self.num_steps, self.starts = self.columns[sb.OBS], length, starts
            finals = self.final_observations
            self.final_observations = [(int(row_after[t, i]), i, final) for t, i, final in finals]
            self.cuts = {(int(row_after[t, i]), i) for t, i in self.cuts}
            before = np.arange(length)[:, None] < starts
            if before.any():
                self.valid = ~before
                for name in (sb.REWARDS, sb.TERMINATEDS, sb.TRUNCATEDS):
                    self.columns[name][before] = 0
        for name, values in newest.items():
            self.columns[name][length] = values

    def mark_invalid(self, step: int, environments) -> None:
        """Marks these environments' rows at this step as no transitions; an episode begins with the next row."""
        if self.valid is None:
            self.valid = np.ones((self.num_steps, self.num_envs), bool)
        self.valid[step, environments] = False
        if sb.STATE_IN in self.columns:
            self.forget(step, environments)

    def add_final(self, step: int, environment: int, observation: np.ndarray) -> None:
        """Keeps the final observation of an episode that ended after this step, before `forget`."""
        self.final_observations.append((step, environment, observation))
        if sb.STATE_IN in self.columns:
            self.final_states.append(self[sb.STATE_IN][step + 1, environment].copy())

    def forget(self, step: int, environments) -> None:
        """Resets the memory of a policy in these environments after this step."""
        self[sb.STATE_IN][step + 1, environments] = 0

    def cut_at_failures(self) -> None:
        """Truncates episodes in which an environment failed after their last whole step.

        The observation before the failed step is the final one. Where the failed step is the first of the fragment,
        the one before it is in an earlier fragment, which was bootstrapped from that observation.
        """
        for t, i in self.failures:
            goes_on = t > 0 and self.valid[t - 1, i] and not self[sb.TERMINATEDS][t - 1, i]
            if goes_on and not self[sb.TRUNCATEDS][t - 1, i]:
                self[sb.TRUNCATEDS][t - 1, i] = True
                self.cuts.add((t - 1, i))
                self.add_final(t - 1, i, self.observations[t, i].copy())

    @staticmethod
    def join(parts: "list[Fragment]", columns: Sequence[Column], allocate: Callable[..., np.ndarray]) -> "Fragment":
        """Fragments of the same environments, one after the other in time, as one."""
        if len(parts) == 1:
            return parts[0]
        joined = Fragment(columns, sum(part.num_steps for part in parts), parts[0].num_envs, allocate)
        joined.has_values = all(part.has_values for part in parts)
        joined.by_environment = parts[0].by_environment
        if parts[0].unfiltered is not None:
            joined.unfiltered = np.concatenate([*(part.unfiltered[:-1] for part in parts), parts[-1].unfiltered[-1:]])
        start = 0
        for part in parts:
            stop = start + part.num_steps
            for name, column in part.columns.items():
                joined.columns[name][start : start + len(column)] = column
            joined.final_observations += [(start + t, i, final) for t, i, final in part.final_observations]
            joined.final_states += part.final_states
            joined.ends += [(start + t, i, final) for t, i, final in part.ends]
            joined.failures += [(start + t, i) for t, i in part.failures]
            joined.lives_lost += [(start + t, i) for t, i in part.lives_lost]
            if part.valid is not None:
                for t, valid in enumerate(part.valid):
                    joined.mark_invalid(start + t, ~valid)
            start = stop
        return joined

    def to_batch(self, policy_version: int, has_gaps: bool = False) -> SampleBatch:
        """The transitions, step by step; views of the block where all rows [T * N] are transitions.

        Args:
            policy_version: version of the weights that acted.
            has_gaps: every worker's fragments may have such rows. They are then copied environment by environment, the
                one order in which joining workers' rows gives the same however environments are shared out.
        """
        rows = {}
        for name, column in self.columns.items():
            column = column[: self.num_steps]
            rows[name] = column.reshape(self.num_steps * self.num_envs, *column.shape[2:])
        batch = SampleBatch(rows, policy_version=policy_version, num_steps=self.num_steps)
        if has_gaps:
            by_environment = np.arange(batch.count).reshape(self.num_steps, self.num_envs).T.reshape(-1)
            return batch.rows(by_environment if self.valid is None else by_environment[self.valid.T.reshape(-1)])
        if self.valid is None:
            return batch
        kept = batch.rows(self.valid.reshape(-1))
        if self.starts is not None:  # slots that were never acted in are left out, the others are in lockstep
            kept.num_steps = self.num_steps
        return kept

    def to_sequences(
        self,
        policy_version: int,
        allocate: Callable[..., np.ndarray] = np.empty,
        *,
        bootstraps: bool = True,
        max_seq_len: int = 20,
    ) -> SampleBatch:
        """The transitions environment by environment, in the order of their steps.

        For a policy with a memory the batch has the columns seq_lens and state_in_0: sequences end with an episode, at
        rows that are no transitions, at the end of the fragment and after `max_seq_len` rows.

        Args:
            policy_version: version of the weights that acted.
            allocate: as for the constructor.
            bootstraps: whether bootstrap rows are added after truncated episodes and at the end of each environment's
                steps. They hold an observation (the true final one, or the next); loss_mask is False, all else zero.
            max_seq_len: longest sequence.
        """
        num_steps, num_envs = self.num_steps, self.num_envs
        length = num_steps + bootstraps
        # Positions in columns [(T + 1) * N]; values are bootstrapped from the rows of the last step, T.
        source = np.arange(length * num_envs).reshape(length, num_envs).T.reshape(-1)
        mask = source < num_steps * num_envs
        final = np.full(len(source), -1)
        if bootstraps and self.final_observations:
            after = [i * length + t + 1 for t, i, _ in self.final_observations]
            source = np.insert(source, after, 0)
            mask = np.insert(mask, after, False)
            # np.insert keeps the order in which equal positions are given, and no two of these are equal.
            final = np.insert(final, after, np.arange(len(after)))
        if self.valid is not None:
            kept = ~mask
            kept[mask] = self.valid.reshape(-1)[source[mask]]
            source, mask, final = source[kept], mask[kept], final[kept]
        columns = {name: column for name, column in self.columns.items() if name != sb.STATE_IN}
        shapes = {name: ((len(source), *column.shape[2:]), column.dtype) for name, column in columns.items()}
        if bootstraps:
            shapes[sb.LOSS_MASK] = mask.shape, mask.dtype
        sequences = self._sequences(source, final, max_seq_len) if sb.STATE_IN in self.columns else {}
        shapes |= {name: (column.shape, column.dtype) for name, column in sequences.items()}
        rows = _in_one_block(shapes, allocate)
        for name, column in columns.items():
            # "clip": the rows to bootstrap from exceed all columns but the observations, and become zero.
            np.take(column.reshape(-1, *column.shape[2:]), source, axis=0, out=rows[name], mode="clip")
            if name != sb.OBS:
                rows[name][~mask] = 0
        for row in np.flatnonzero(final >= 0):
            rows[sb.OBS][row] = self.final_observations[final[row]][2]
        if bootstraps:
            rows[sb.LOSS_MASK][:] = mask
        for name, column in sequences.items():
            rows[name][:] = column
        return SampleBatch(rows, policy_version=policy_version)

    def _sequences(self, source: np.ndarray, final: np.ndarray, max_seq_len: int) -> dict[str, np.ndarray]:
        """The columns seq_lens and state_in_0.

        Args:
            source: [B] of each row its position t * N + i.
            final: [B] instead, which of the final observations it has, else -1.
            max_seq_len: longest sequence.
        """
        # Whether a memory was reset, or the fragment has begun, with the action of step t: [T + 1, N].
        restarts = np.ones((self.num_steps + 1, self.num_envs), bool)
        restarts[1:] = self[sb.TERMINATEDS] | self[sb.TRUNCATEDS]
        if self.valid is not None:
            restarts[1:] |= ~self.valid
        begins = restarts.reshape(-1)[source] & (final < 0)
        rows = np.arange(len(source))
        begins |= (rows - np.maximum.accumulate(np.where(begins, rows, 0))) % max_seq_len == 0
        first = np.flatnonzero(begins)
        states = self[sb.STATE_IN].reshape(-1, *self[sb.STATE_IN].shape[2:])[source[first]]
        for row in np.flatnonzero(final[first] >= 0):
            states[row] = self.final_states[final[first[row]]]
        return {sb.SEQ_LENS: np.diff(first, append=len(source)), sb.STATE_IN: states}


def _in_one_block(columns: dict[str, tuple], allocate: Callable[..., np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of the given (shape, dtype) by name, all in one allocation."""
    places, offset = {}, 0
    for name, (shape, dtype) in columns.items():
        places[name] = offset
        nbytes = math.prod(shape) * dtype.itemsize
        offset += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
    block = allocate((offset,), dtype=np.uint8)
    return {name: np.ndarray(shape, dtype, block, places[name]) for name, (shape, dtype) in columns.items()}
