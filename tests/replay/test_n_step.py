"""Returns of n steps over fragments (CORRECTNESS 4.2), against a loop that is written like the definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib.replay.n_step import n_step_returns


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
