"""Rows of n steps (CORRECTNESS 4.2), against a loop that is written like the definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib import sample_batch as sb
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.postprocess.transitions import Transitions, n_step_returns
from rllib.sample_batch import Column, SampleBatch


def columns(*arrays):
    return [np.asarray(array)[:, None] for array in arrays]


def test_gold():
    """Rewards 1 to 5, truncated after index 2, terminated after index 4."""
    rewards, terminateds, truncateds = columns([1.0, 2, 3, 4, 5], [0, 0, 0, 0, 1], [0, 0, 1, 0, 0])
    returns, discounts, last = n_step_returns(rewards, terminateds.astype(bool), truncateds.astype(bool), 0.9, 3)
    np.testing.assert_allclose(returns[:, 0], [5.23, 4.7, 3, 8.5, 5], rtol=1e-12)
    np.testing.assert_allclose(discounts[:, 0], [0.9**3, 0.9**2, 0.9, 0, 0], rtol=1e-12)
    assert (last[:, 0] - np.arange(5) + 1).tolist() == [3, 2, 1, 2, 1]


def slow(rewards, terminateds, truncateds, gamma, n_step, valid):
    """One window per step; it goes on until n, an end, a row that is no transition, or the last row."""
    windows = []
    for start in range(len(rewards)):
        total, k, t = 0.0, 0, start
        while True:
            total += gamma**k * rewards[t]
            k += 1
            if k == n_step or terminateds[t] or truncateds[t] or t + 1 == len(rewards) or not valid[t + 1]:
                break
            t += 1
        windows.append((total, 0.0 if terminateds[t] else gamma**k, t))
    return windows


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 30), st.integers(1, 3), st.integers(1, 8), st.integers(0, 2**32 - 1), st.booleans())
def test_any_fragment(num_steps, num_envs, n_step, seed, with_gaps):
    rng = np.random.default_rng(seed)
    shape = num_steps, num_envs
    rewards, valid = rng.normal(size=shape), rng.random(shape) < 0.8 if with_gaps else np.ones(shape, bool)
    terminateds, truncateds = rng.random(shape) < 0.15, rng.random(shape) < 0.15
    found = n_step_returns(rewards, terminateds, truncateds, 0.9, n_step, valid if with_gaps else None)
    for env in range(num_envs):
        columns = (array[:, env] for array in (rewards, terminateds, truncateds))
        expected = slow(*columns, 0.9, n_step, valid[:, env])
        for part, values in zip(found, zip(*expected)):
            np.testing.assert_allclose(part[:, env], values, rtol=1e-12, atol=1e-12)


def test_bad_input():
    flags = np.zeros((4, 2), bool)
    with pytest.raises(ValueError, match="n_step=0 must be at least 1"):
        n_step_returns(np.zeros((4, 2)), flags, flags, 0.9, 0)
    with pytest.raises(ValueError, match="must have the same shape"):
        n_step_returns(np.zeros((4, 1)), flags, flags, 0.9, 2)


COLUMNS = (
    Column(sb.OBS, (1,), before_action=True),
    Column(sb.ACTIONS, (), "int64"),
    Column(sb.REWARDS, (), "float32"),
    Column(sb.TERMINATEDS, (), "bool"),
    Column(sb.TRUNCATEDS, (), "bool"),
)


class Steps:
    """Steps of environments in which observations count up; every episode begins 100 above the last observation.

    Args:
        flags: terminateds and truncateds, [T, N] each.
        valid: [T, N]; None: all steps are transitions.
    """

    def __init__(self, terminateds, truncateds, valid=None):
        self.terminateds, self.truncateds, self.valid = terminateds, truncateds, valid
        self.num_steps, self.num_envs = terminateds.shape
        ended = terminateds | truncateds
        self.observations = np.zeros((self.num_steps + 1, self.num_envs), np.float32)
        for t in range(self.num_steps):
            self.observations[t + 1] = self.observations[t] + 1 + 100 * ended[t]
        self.finals = [(t, i, self.observations[t, i] + 1) for t, i in np.argwhere(ended)]

    def fragment(self, start, stop, postprocess):
        fragment = Fragment((*COLUMNS, *postprocess.columns), stop - start, self.num_envs)
        fragment.observations[:] = self.observations[start : stop + 1, :, None]
        fragment[sb.ACTIONS][:] = np.arange(start, stop)[:, None]
        fragment[sb.REWARDS][:] = self.observations[start:stop]
        fragment[sb.TERMINATEDS][:] = self.terminateds[start:stop]
        fragment[sb.TRUNCATEDS][:] = self.truncateds[start:stop]
        fragment.final_observations = [(t - start, i, [final]) for t, i, final in self.finals if start <= t < stop]
        if self.valid is not None:
            for t in range(start, stop):
                fragment.mark_invalid(t - start, ~self.valid[t])
        postprocess(fragment, None)
        return fragment

    def rows(self, pieces, n_step, has_gaps=False):
        """The batches of fragments of these lengths, by one maker of rows."""
        postprocess = Transitions((1,), "float32", 0.5, n_step)
        made, start, batches = postprocess.make_rows(None, ()), 0, []
        for length in pieces:
            fragment = self.fragment(start, start + length, postprocess)
            batches.append(made.of(fragment, None, 0, has_gaps))
            start += length
        return batches


def flags(*steps, num_steps):
    return np.isin(np.arange(num_steps), steps)[:, None]


@pytest.mark.parametrize("pieces", [(6,), (1,) * 6, (4, 2)])
def test_gold_over_fragments(pieces):
    """Truncated after step 2; n = 3. Rows are (reward, discount, what followed); those of the end wait for more."""
    steps = Steps(flags(num_steps=6), flags(2, num_steps=6))
    batch = SampleBatch.concat(steps.rows(pieces, 3))
    assert batch[sb.ACTIONS].tolist() == [0, 1, 2, 3]
    assert batch[sb.REWARDS].tolist() == [0 + 0.5 + 0.5, 1 + 1, 2, 103 + 52 + 105 / 4]
    assert batch[sb.DISCOUNTS].tolist() == [0.125, 0.25, 0.5, 0.125]
    assert batch[sb.NEXT_OBS][:, 0].tolist() == [3, 3, 3, 106]
    assert batch[sb.TRUNCATEDS].tolist() == [True, True, True, False]


def test_rows_are_sent_as_soon_as_they_are_complete():
    ends = Steps(flags(3, num_steps=8), flags(num_steps=8))
    sent = [batch[sb.ACTIONS].tolist() for batch in ends.rows((2, 2, 2, 2), 3)]
    assert sent == [[], [0, 1, 2, 3], [], [4, 5]]


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 3), st.integers(1, 6), st.integers(0, 2**32 - 1), st.booleans())
def test_fragments_of_any_lengths_give_the_rows_of_the_whole(num_envs, n_step, seed, with_gaps):
    rng = np.random.default_rng(seed)
    pieces = rng.integers(1, 6, 6).tolist()
    shape = sum(pieces), num_envs
    steps = Steps(*(rng.random(shape) < 0.15 for _ in range(2)), rng.random(shape) < 0.8 if with_gaps else None)
    found = SampleBatch.concat([SampleBatch(dict(batch)) for batch in steps.rows(pieces, n_step)])
    valid = np.ones(shape, bool) if steps.valid is None else steps.valid
    columns = steps.observations[:-1].astype(float), steps.terminateds, steps.truncateds
    expected = {}
    for env in range(num_envs):
        windows = slow(*(column[:, env] for column in columns), 0.5, n_step, valid[:, env])
        for t, (reward, discount, last) in enumerate(windows):
            is_open = last == shape[0] - 1 and last - t + 1 < n_step and not (columns[1] | columns[2])[last, env]
            if valid[t, env] and not is_open:
                expected[float(columns[0][t, env]), t, env] = reward, discount, columns[0][last, env] + 1
    names = sb.REWARDS, sb.DISCOUNTS, sb.NEXT_OBS
    rows = [tuple(float(np.ravel(found[name][row])[0]) for name in names) for row in range(found.count)]
    assert sorted(rows) == sorted(expected.values())


def test_the_order_of_rows_does_not_depend_on_how_environments_are_shared_out():
    rng = np.random.default_rng(0)
    ends = [rng.random((12, 4)) < 0.2 for _ in range(2)]
    together = Steps(*ends).rows((5, 7), 3)
    apart = [Steps(*(flag[:, envs] for flag in ends)).rows((5, 7), 3) for envs in (slice(0, 1), slice(1, 4))]
    for round_, whole in enumerate(together):
        joined = SampleBatch.join_rounds([[batches[round_] for batches in apart]])
        for name, column in whole.items():
            np.testing.assert_array_equal(joined[name], column)


def test_one_step_keeps_the_order_of_fragments():
    steps = Steps(flags(3, num_steps=8).repeat(2, 1), flags(num_steps=8).repeat(2, 1))
    batch, _ = steps.rows((4, 4), 1)
    assert batch[sb.ACTIONS].tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and batch.num_steps == 4
    assert batch[sb.DISCOUNTS].tolist() == [0.5] * 6 + [0.0] * 2
