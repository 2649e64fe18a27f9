"""Sequences for off-policy learning of policies with a memory, made from a worker's fragments: rows of a replay.

A row is a sequence of one episode. Its first steps, at most `burn_in`, bring the memory up to date; the others, at most
`max_seq_len`, are learned from. With L = burn_in + max_seq_len, steps beyond the sequence's own being zeros:

| column       | shape                 | dtype     | meaning                                                           |
|--------------|-----------------------|-----------|-------------------------------------------------------------------|
| obs          | [L + 1, *observation] | as stored | of each step, and what followed the last: the final one at an end |
| actions      | [L, *action]          | as stored | of each step                                                      |
| rewards      | [L]                   | float32   | r_t + gamma r_{t+1} + ..., n of them, or to the sequence's end    |
| discounts    | [L]                   | float32   | gamma^k of what follows these k rewards; 0 where the task ended   |
| bootstrap_at | [L]                   | int64     | its place in obs                                                  |
| burn_in      | []                    | int64     | number of first steps that are not learned from                   |
| seq_lens     | []                    | int64     | number of steps that are, after those                             |
| state_in_0   | [state]               | float32   | the memory's state before the first step, where it is kept        |
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rllib import sample_batch as sb
from rllib.env.streams.base import EnvironmentStream
from rllib.evaluation.postprocess.base import Postprocess
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.postprocess.transitions import n_step_returns
from rllib.policy import Policy
from rllib.sample_batch import Column, SampleBatch

BOOTSTRAP_AT = "bootstrap_at"
BURN_IN = "burn_in"


@dataclass(frozen=True)
class SequenceTransitions(Postprocess):
    """A postprocess that makes rows of sequences, as in the table above.

    An episode's sequences begin after every `max_seq_len` steps, so each step is learned from in one of them.

    Args:
        observation: one stored observation.
        action: one action.
        gamma: discount per step.
        n_step: rewards that a step's return sums up, at most.
        max_seq_len: steps of a sequence that are learned from, at most.
        burn_in: steps before them, at most; an episode's first sequence has none.
        state_size: numbers of the memory's state; 0 leaves the states out.
    """

    observation: Column
    action: Column
    gamma: float
    n_step: int
    max_seq_len: int
    burn_in: int
    state_size: int
    columns = ()
    every_final_observation = True

    def __call__(self, fragment: Fragment, policy: Policy) -> None:
        """Adds nothing to the steps."""

    @property
    def length(self) -> int:
        """L, the steps that a row has room for."""
        return self.burn_in + self.max_seq_len

    @property
    def row_columns(self) -> tuple[Column, ...]:
        """The columns of a row."""
        state = (Column(sb.STATE_IN, (self.state_size,)),) if self.state_size else ()
        return (
            Column(sb.OBS, (self.length + 1, *self.observation.shape), self.observation.dtype),
            Column(sb.ACTIONS, (self.length, *self.action.shape), self.action.dtype),
            Column(sb.REWARDS, (self.length,)),
            Column(sb.DISCOUNTS, (self.length,)),
            Column(BOOTSTRAP_AT, (self.length,), "int64"),
            Column(BURN_IN, (), "int64"),
            Column(sb.SEQ_LENS, (), "int64"),
            *state,
        )

    def make_rows(self, stream: EnvironmentStream, rngs: Sequence[np.random.Generator]) -> "SequenceRows":
        """Makes rows from the fragments of one worker; nothing is drawn."""
        return SequenceRows(self, len(rngs))


class SequenceRows:
    """Sequences from the fragments of one worker; incomplete ones wait for the next fragment.

    Args:
        settings: see SequenceTransitions.
        num_envs: environments of the worker; where there are several agents, slots of a policy.
    """

    def __init__(self, settings: SequenceTransitions, num_envs: int):
        self._settings = settings
        self._open = [_Sequence(settings) for _ in range(num_envs)]  # of each environment
        # Sequences of each environment that `cut` has completed.
        self._cut: list[list[_Sequence]] = [[] for _ in range(num_envs)]

    def of(self, fragment: Fragment, policy: Policy, policy_version: int, has_gaps: bool) -> SampleBatch:
        """The sequences that this fragment completes, environment by environment; arguments as for NStepRows.of."""
        finals = {(t, i): final for t, i, final in fragment.final_observations}
        complete = []
        for i, cut in enumerate(self._cut):
            complete += (*cut, *self._completed(fragment, i, finals))
            cut.clear()
        return SampleBatch(self._rows(complete), policy_version=policy_version)

    def cut(self, environments: Sequence[int]) -> None:
        """Ends the episodes of these environments with the last step of the fragment before, as a truncation does.

        The sequences that this completes come with the next fragment.
        """
        for i in environments:
            sequence = self._open[i]
            if sequence.count > sequence.burn_in:
                self._cut[i].append(sequence.closed(sequence.following))
            if sequence.count:
                self._open[i] = _Sequence(self._settings)

    def take_over(self, other: "SequenceRows", environments: np.ndarray) -> None:
        """Continues with the sequences of the same episodes in other environments; arguments as for NStepRows."""
        for i, sequence, cut in zip(environments.tolist(), other._open, other._cut):
            self._cut[i] += cut
            if sequence.count:
                self._open[i] = sequence

    def _completed(self, fragment: Fragment, i: int, finals: dict) -> "list[_Sequence]":
        """The sequences of environment i; `finals` are its final observations by (step, environment)."""
        terminated, observations = fragment[sb.TERMINATEDS][:, i], fragment.observations
        ended = terminated | fragment[sb.TRUNCATEDS][:, i]
        is_gap = np.zeros_like(ended) if fragment.gaps is None else fragment.gaps[:, i]
        first = 0 if fragment.starts is None else int(fragment.starts[i])
        # Spans of steps that are either of one episode, or one step that is no transition.
        cuts = {first, *np.flatnonzero(is_gap), *(np.flatnonzero(ended | is_gap) + 1), fragment.num_steps}
        sequence, complete = self._open[i], []
        for start, stop in itertools.pairwise(sorted(cuts)):
            if is_gap[start]:
                # The environment has failed, or is being reset: what was going on was cut before.
                if sequence.count > sequence.burn_in:
                    complete.append(sequence.closed(observations[start, i]))
                sequence = _Sequence(self._settings) if sequence.count else sequence
                continue
            while start < stop:
                start = sequence.take(fragment, i, start, stop)
                if ended[start - 1]:
                    complete.append(sequence.closed(finals[start - 1, i], bool(terminated[start - 1])))
                    sequence = _Sequence(self._settings)
                elif not sequence.room:
                    complete.append(sequence.closed(observations[start, i]))
                    sequence = sequence.next()
        self._open[i] = sequence
        if sequence.count:
            sequence.following = observations[fragment.num_steps, i].copy()
        return complete

    def _rows(self, sequences: "list[_Sequence]") -> dict[str, np.ndarray]:
        settings, count = self._settings, len(sequences)
        rows = {column.name: np.zeros((count, *column.shape), column.dtype) for column in settings.row_columns}
        steps = np.arange(settings.length)[:, None]
        counts = np.array([sequence.count for sequence in sequences], np.int64)
        rewards = np.zeros((settings.length, count), np.float32)
        for row, sequence in enumerate(sequences):
            rows[sb.OBS][row], rows[sb.ACTIONS][row] = sequence.observations, sequence.actions
            rewards[:, row], rows[BURN_IN][row] = sequence.rewards, sequence.burn_in
            if settings.state_size:
                rows[sb.STATE_IN][row] = sequence.states[0]
        rows[sb.SEQ_LENS] = counts - rows[BURN_IN]
        valid = steps < counts
        terminated = (steps == counts - 1) & np.array([sequence.terminated for sequence in sequences], bool)
        returns, discounts, last = n_step_returns(
            rewards, terminated, np.zeros_like(terminated), settings.gamma, settings.n_step, valid
        )
        for name, column in ((sb.REWARDS, returns), (sb.DISCOUNTS, discounts), (BOOTSTRAP_AT, last + 1)):
            np.copyto(rows[name], np.where(valid, column, 0).T, casting="unsafe")
        return rows


class _Sequence:
    """A sequence that is being filled.

    Attributes:
        burn_in: number of first steps that are not learned from.
        count: number of steps so far, with those.
        terminated: whether the task ended with the last of them.
        observations, actions, rewards, states: of the steps, [L + 1 or L, ...]; zeros where there is none yet.
        following: the observation that has followed the last step of the newest fragment.
    """

    def __init__(self, settings: SequenceTransitions):
        length, action = settings.length, settings.action
        self._settings = settings
        self.burn_in = self.count = 0
        self.terminated = False
        self.observations = np.zeros((length + 1, *settings.observation.shape), settings.observation.dtype)
        self.actions = np.zeros((length, *action.shape), action.dtype)
        self.rewards = np.zeros(length, np.float32)
        self.states = np.zeros((length, settings.state_size), np.float32)
        self.following = self.observations[0]

    @property
    def room(self) -> int:
        """Number of steps that are missing."""
        return self.burn_in + self._settings.max_seq_len - self.count

    def take(self, fragment: Fragment, i: int, start: int, stop: int) -> int:
        """Copies steps of environment i from `start` to `stop`, as many as there is room for; returns where it ends."""
        stop = min(stop, start + self.room)
        here, there = slice(self.count, self.count + stop - start), (slice(start, stop), i)
        self.observations[here], self.actions[here] = fragment.observations[there], fragment[sb.ACTIONS][there]
        self.rewards[here] = fragment[sb.REWARDS][there]
        if self._settings.state_size:
            self.states[here] = fragment[sb.STATE_IN][there]
        self.count = here.stop
        return stop

    def closed(self, following: np.ndarray, terminated: bool = False) -> "_Sequence":
        """This sequence, complete: what followed its last step, and whether the task ended with it."""
        self.observations[self.count], self.terminated = following, terminated
        return self

    def next(self) -> "_Sequence":
        """The sequence of the same episode that follows this one: it begins with the last steps of this."""
        following = _Sequence(self._settings)
        kept = min(self._settings.burn_in, self.count)
        old, new = slice(self.count - kept, self.count), slice(kept)
        following.observations[new], following.actions[new] = self.observations[old], self.actions[old]
        following.rewards[new], following.states[new] = self.rewards[old], self.states[old]
        following.burn_in = following.count = kept
        return following
