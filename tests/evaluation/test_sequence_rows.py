"""Sequences for a replay, against loops that are written like their definition (CORRECTNESS P7: nothing jumps)."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.evaluation.postprocess.sequences import BOOTSTRAP_AT, BURN_IN, SequenceTransitions
from rllib.sample_batch import Column
from tests.envs import CountingEnv
from tests.evaluation.test_states import KINDS, SIZE, Failing, worker

GAMMA = 0.9
LSTM = {"use_lstm": True, "lstm_cell_size": SIZE, "fcnet_hiddens": [3], "vf_share_memory": False}
# (max_seq_len, burn_in, n_step): sequences that cut episodes, end with them, and are longer.
SHAPES = [(2, 0, 1), (3, 2, 3), (2, 5, 2), (20, 4, 3)]


@dataclass(frozen=True)
class Recorded(SequenceTransitions):
    """Keeps the fragments that the rows are made of."""

    fragments: list = field(default_factory=list)

    def __call__(self, fragment, policy):
        self.fragments.append(fragment)


def sampler(max_seq_len, burn_in, n_step, kind="own", model=None, **more):
    env, options = KINDS[kind]
    state_size = 4 * SIZE if model else SIZE
    settings = Column(sb.OBS, (1,)), Column(sb.ACTIONS, (), "int64"), GAMMA, n_step, max_seq_len, burn_in, state_size
    return worker(env, model=model, postprocess=Recorded(*settings), **{**options, **more})


def rows_of(sampler, num_fragments) -> list[dict]:
    """The rows of each environment, one after the other, of environments with a fragment's rows in that order."""
    batches = [sampler.sample()[0] for _ in range(num_fragments)]
    return [{name: batch[name][row] for name in batch} for batch in batches for row in range(batch.count)]


def episodes(fragments, i) -> list[tuple[list[dict], bool]]:
    """The steps of each episode of environment i, and whether it is over; one that fails ends before its failure."""
    found, steps = [], []
    for fragment in fragments:
        finals = {(t, env): final for t, env, final in fragment.final_observations}
        for t in range(fragment.num_steps):
            if fragment.valid is not None and not fragment.valid[t, i]:
                found, steps = [*found, (steps, True)], []
                continue
            names = sb.OBS, sb.ACTIONS, sb.REWARDS, sb.TERMINATEDS, sb.STATE_IN
            step = {name: fragment[name][t, i].copy() for name in names}
            step["following"] = finals.get((t, i), fragment.observations[t + 1, i]).copy()
            steps.append(step)
            if fragment[sb.TERMINATEDS][t, i] or fragment[sb.TRUNCATEDS][t, i]:
                found, steps = [*found, (steps, True)], []
    return [*found, (steps, False)]


def slow_rows(settings, fragments, i) -> list[dict]:
    rows = []
    for steps, is_over in episodes(fragments, i):
        for start in range(0, len(steps), settings.max_seq_len):
            stop = min(start + settings.max_seq_len, len(steps))
            if stop - start == settings.max_seq_len or is_over:
                rows.append(slow_row(settings, steps, max(start - settings.burn_in, 0), start, stop))
    return rows


def slow_row(settings, steps, first, start, stop) -> dict:
    row = {column.name: np.zeros(column.shape, column.dtype) for column in settings.row_columns}
    row[BURN_IN][...], row[sb.SEQ_LENS][...] = start - first, stop - start
    row[sb.STATE_IN][:] = steps[first][sb.STATE_IN]
    for place, t in enumerate(range(first, stop)):
        row[sb.OBS][place : place + 2] = steps[t][sb.OBS], steps[t]["following"]
        row[sb.ACTIONS][place] = steps[t][sb.ACTIONS]
        total, k = 0.0, 0
        while k < settings.n_step and t + k < stop:
            total += GAMMA**k * float(steps[t + k][sb.REWARDS])
            k += 1
        row[sb.REWARDS][place], row[BOOTSTRAP_AT][place] = total, place + k
        row[sb.DISCOUNTS][place] = 0.0 if steps[t + k - 1][sb.TERMINATEDS] else GAMMA**k
    return row


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_definition(kind, shape):
    made = sampler(*shape, kind, num_envs=1, fragment_length=7)
    found = rows_of(made, 12)
    expected = slow_rows(made.policy_settings.postprocess, made.policy_settings.postprocess.fragments, 0)
    assert len(found) == len(expected) > 10
    for row, reference in zip(found, expected):
        assert row.keys() == reference.keys()
        for name, column in row.items():
            np.testing.assert_allclose(column, reference[name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_no_stored_pair_jumps(kind):
    """In a sequence each observation is that before plus 1, a reward is the later one, and all steps are learned."""
    found = rows_of(sampler(3, 2, 1, kind), 12)
    learned = []
    for row in found:
        first, stop = int(row[BURN_IN]), int(row[BURN_IN] + row[sb.SEQ_LENS])
        counts = row[sb.OBS][: stop + 1, 0]
        np.testing.assert_array_equal(counts, counts[0] + np.arange(stop + 1))
        np.testing.assert_array_equal(row[sb.REWARDS][:stop], counts[1:])
        assert counts[first] % 3 == 0 and first == min(2, counts[first])
        assert not row[sb.OBS][stop + 1 :].any() and not row[BOOTSTRAP_AT][stop:].any()
        learned += counts[first:stop].tolist()
    longest = max(CountingEnv().lengths) if KINDS[kind][0] is not Failing else 3
    assert set(learned) == set(range(longest))


@pytest.mark.parametrize("model", [None, LSTM], ids=["gru in torch", "two lstms in numpy"])
def test_stored_states_are_those_of_a_replay_step_by_step(model):
    """From the beginning of the episode, by the policy that acted, across fragments."""
    made = sampler(2, 1, 1, model=model, num_envs=1, fragment_length=3)
    policy, rows = made.policy, rows_of(made, 30)
    assert len(rows) == len(slow_rows(made.policy_settings.postprocess, made.policy_settings.postprocess.fragments, 0))
    moved = 0
    for row in rows:
        begins = int(row[sb.OBS][0, 0])
        state, following = np.zeros((2, 1, policy.state_size), np.float32)
        for t in range(begins):
            policy.network.step(policy.encode(np.full((1, 1), t, np.float32)), state, following)
            state[:] = following
        np.testing.assert_allclose(row[sb.STATE_IN], state[0], atol=1e-6)
        moved += bool(state.any())
    assert moved > 5


def test_rows_do_not_depend_on_the_fragments():
    """Environment by environment; what is not complete waits."""
    runs = []
    for length in (1, 4, 60):
        made = sampler(3, 2, 2, num_envs=1, fragment_length=length)
        runs.append(rows_of(made, 60 // length))
    for run in runs[1:]:
        assert len(run) == len(runs[0])
        for row, other in zip(run, runs[0]):
            for name in row:
                np.testing.assert_array_equal(row[name], other[name])


def test_dropped_episodes_leave_no_steps_behind():
    made = sampler(3, 0, 1, num_envs=1, fragment_length=2)
    made.sample()
    made.start_over()
    for row in rows_of(made, 20):
        counts = row[sb.OBS][: int(row[sb.SEQ_LENS]) + 1, 0]
        np.testing.assert_array_equal(np.diff(counts), 1)


@pytest.mark.parametrize("model", [None, LSTM], ids=["gru in torch", "two lstms in numpy"])
def test_a_state_after_some_steps_goes_on_as_the_whole_sequence(model):
    policy = sampler(3, 2, 1, model=model).policy
    rng = np.random.default_rng(0)
    seq_lens, burnt = np.array([5, 2, 7, 4]), np.array([2, 0, 5, 3])
    observations = rng.uniform(0, 3, (4, 8, 1)).astype(np.float32)
    state = rng.normal(size=(4, policy.state_size)).astype(np.float32)
    before = state.copy()

    def outputs(first, state):
        rows = np.concatenate([own[a:b] for own, a, b in zip(observations, first, seq_lens)])
        return np.split(policy.dist_inputs(rows, seq_lens - first, state), np.cumsum(seq_lens - first)[:-1])

    whole = outputs(np.zeros(4, int), state)
    rest = outputs(burnt, policy.state_after(observations, burnt, state))
    for own, part, first in zip(whole, rest, burnt):
        np.testing.assert_allclose(part, own[first:], atol=1e-6)
    np.testing.assert_array_equal(state, before)
