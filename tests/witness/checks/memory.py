"""States of memories before sequences, and which steps stand in a sequence."""

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rllib import sample_batch as sb
from rllib.evaluation.postprocess.sequences import BOOTSTRAP_AT, BURN_IN
from rllib.policy import Policy
from tests.witness.checks.steps import Step, following, life_of
from tests.witness.script import Family, decoded, observation

Columns = Mapping[str, np.ndarray]


class Remembered:
    """States of a policy's memory, by running it through the observations of a life from its first one on.

    Args:
        policy: whose weights have not changed.
        seen: gives what the policy observes in a step.
    """

    def __init__(self, policy: Policy, seen: Callable[..., np.ndarray] = lambda step: observation(*step)):
        self.policy, self.seen = policy, seen
        self._states: dict[tuple[int, int, int], list[np.ndarray]] = {}

    def state(self, step: Step) -> np.ndarray:
        """The state before the action of a step, [size]; zeros at a life's first."""
        states = self._states.setdefault(step[:3], [np.zeros(self.policy.state_size, np.float32)])
        while len(states) <= step[3]:
            seen = self.seen((*step[:3], len(states) - 1))
            states.append(self.policy.state_after(seen[None, None], np.ones(1, np.int64), states[-1][None])[0])
        return states[step[3]]

    def values(self, steps: Sequence[Step]) -> np.ndarray:
        """Values of steps."""
        seen, states = (np.stack([of(step) for step in steps]) for of in (self.seen, self.state))
        return self.policy.values(seen, states)

    def check(self, step: Step, state: np.ndarray, tolerance: float = 1e-5) -> None:
        """Checks that this is the state before a step."""
        if step[3] == 0:
            assert not state.any(), f"{step} is the first one, and its state is {state}"
        wanted = self.state(step)
        assert np.abs(state - wanted).max() <= tolerance, f"{step}: state {state}, not {wanted}"

    def check_outputs(self, columns: Columns, rows: Mapping[Step, int]) -> None:
        """Checks parameters of distributions by the states of the steps."""
        for step, row in rows.items():
            wanted = self.policy.dist_inputs(self.seen(step)[None], np.ones(1, np.int64), self.state(step)[None])[0]
            given = columns[sb.ACTION_DIST_INPUTS][row]
            assert np.abs(given - wanted).max() < 1e-5, f"{step}: parameters of its distribution {given}, not {wanted}"


def check_sequences(
    columns: Columns, family: Family, remembered: Remembered, max_seq_len: int, decode: Callable = decoded
) -> int:
    """Checks the sequences of one fragment of each environment: whole, of one life, and begun with its state.

    Args:
        columns: as the learner gets them.
        family: of the scripts.
        remembered: states of the policy that acted.
        max_seq_len: longest sequence.
        decode: gives the step of a stored observation.

    Returns:
        Number of sequences that begin in the middle of a life.
    """
    start = size = in_the_middle = 0
    mask = columns.get(sb.LOSS_MASK, np.ones(len(columns[sb.OBS]), bool))
    ends: list[Step] = []
    for length, state in zip(columns[sb.SEQ_LENS].tolist(), columns[sb.STATE_IN]):
        assert 0 < length <= max_seq_len, f"a sequence of {length} rows"
        rows = range(start, start + length)
        places = [decode(columns[sb.OBS][row]) for row in rows if mask[row]]
        for before, after in itertools.pairwise(places):
            assert after == following(before), f"a sequence goes from {before} to {after}"
        first = places[0] if places else decode(columns[sb.OBS][start])
        goes_on = bool(ends) and first == following(ends[-1])
        if places or (goes_on and not _is_terminal(family, ends[-1])):  # else nothing is learned from it
            remembered.check(first, state)
        in_the_middle += first[3] > 0
        if goes_on:
            assert size == max_seq_len, f"a sequence of {size} rows ends before {first}, in the middle of a life"
        ends += places[-1:]
        start, size = rows.stop, length
    assert start == len(columns[sb.OBS]), f"sequences of {start} rows, and there are {len(columns[sb.OBS])}"
    return in_the_middle


def _is_terminal(family: Family, step: Step) -> bool:
    life = life_of(family, step)
    return life.terminated and step[3] == life.length - 1


def check_bootstraps(columns: Columns, family: Family) -> None:
    """Checks the rows that values are bootstrapped from: each last step of a life or fragment is followed by one."""
    mask, seen = columns[sb.LOSS_MASK], columns[sb.OBS]
    for row in np.flatnonzero(mask):
        step = decoded(seen[row])
        life = life_of(family, step)
        if step[3] == life.length - 1 and life.terminated:
            continue
        assert row + 1 < len(mask), f"{step} is the last row, and nothing follows it"
        after = decoded(seen[row + 1])
        assert after == following(step), f"{step} is followed by {after}"
        is_last = step[3] == life.length - 1
        assert not (is_last and mask[row + 1]), f"{after} is learned from, after the end"


def check_replayed_sequences(
    columns: Columns, remembered: Remembered | None, max_seq_len: int, burn_in: int, n_step: int
) -> int:
    """Checks sequences that a replay took in: where they begin, how they are padded, and the states before them.

    Args:
        columns: rows of sequences.
        remembered: states of the policy that acted; None: states are zeros when they are learned from.
        max_seq_len, burn_in: steps that are learned from, and steps before them, at most.
        n_step: rewards of a step's return, at most.

    Returns:
        Number of sequences with steps before those that are learned from.
    """
    for row, (before, length) in enumerate(zip(columns[BURN_IN].tolist(), columns[sb.SEQ_LENS].tolist())):
        count = before + length
        first = decoded(columns[sb.OBS][row, 0])
        learned = first[3] + before
        assert learned % max_seq_len == 0, f"steps from {learned} on are learned from"
        assert before == min(burn_in, learned), f"{first}: {before} steps before step {learned}"
        assert 0 < length <= max_seq_len, f"{first}: {length} steps"
        for name in (sb.ACTIONS, sb.REWARDS, sb.DISCOUNTS, BOOTSTRAP_AT):
            assert not columns[name][row, count:].any(), f"{first}: {name} is not 0 after {count} steps"
        for t in range(count):
            at = int(columns[BOOTSTRAP_AT][row, t])
            assert at == min(t + n_step, count), f"step {t} of {first} is followed by what stands at {at}"
        if remembered is not None:
            remembered.check(first, columns[sb.STATE_IN][row])
    return int((columns[BURN_IN] > 0).sum())


def check_learned_sequences(columns: Columns, remembered: Remembered | None, max_seq_len: int) -> None:
    """Checks sequences as they are learned from: the steps behind the burn-in, and the states before them.

    Args:
        columns: as the learner gets them.
        remembered, max_seq_len: as for `check_replayed_sequences`.
    """
    start = 0
    for length, state in zip(columns[sb.SEQ_LENS].tolist(), columns[sb.STATE_IN]):
        places = [decoded(seen) for seen in columns[sb.OBS][start : start + length]]
        assert 0 < length <= max_seq_len, f"a sequence of {length} rows"
        assert places[0][3] % max_seq_len == 0, f"a sequence begins with {places[0]}"
        for step, after in itertools.pairwise(places):
            assert after == following(step), f"a sequence goes from {step} to {after}"
        if remembered is not None:
            remembered.check(places[0], state)
        start += length
    assert start == len(columns[sb.OBS]), f"sequences of {start} rows, and there are {len(columns[sb.OBS])}"
