"""Truncated episodes of which nobody knows what followed: they end at their last observation, whose value is taken.

The reward is always 1, no episode terminates, and gamma is 0.9, so that everything is worth 1 / (1 - 0.9) = 10.
"""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from rllib.offline.estimators import DirectMethod, DoublyRobust

from rllib import MARWILConfig
from rllib import sample_batch as sb
from rllib.acting.inference import ActingSettings
from rllib.evaluation.estimators.q_model import QModel
from rllib.evaluation.offline.imitated import ImitatedRows, ReturnsToGo
from rllib.evaluation.offline.rows import transitions
from rllib.models.catalog.catalog import policy_spec
from rllib.offline.dataset import Dataset
from rllib.policy import Policy

LENGTHS, GAMMA, VALUE = [4, 1, 2, 6, 3], 0.9, 10.0
ROWS, LAST = sum(LENGTHS), np.cumsum(LENGTHS) - 1
SPACES = Box(-np.inf, np.inf, (1,), np.float32), Discrete(2)


def endless(ends, terminated=()):
    """Truncated episodes, whose observations count the steps; but those with the numbers `terminated`.

    Args:
        ends: "known"; "missing", without new_obs; or "reset", where it is the first observation of the next episode.
        terminated: numbers of episodes.
    """
    obs = np.arange(ROWS, dtype=np.float32)[:, None]
    new_obs = obs + 1
    if ends == "known":
        new_obs[LAST] += 0.5
    flags = np.zeros((2, ROWS), bool)
    flags[1, LAST] = True
    flags[:, LAST[list(terminated)]] = [[True], [False]]
    columns = {
        "obs": obs, "new_obs": new_obs, "actions": np.arange(ROWS) % 2, "rewards": np.ones(ROWS, np.float32),
        "terminateds": flags[0], "truncateds": flags[1], "eps_id": np.repeat(np.arange(len(LENGTHS)), LENGTHS),
        "action_prob": np.linspace(0.2, 0.9, ROWS),
    }  # fmt: skip
    if ends == "missing":
        del columns["new_obs"]
    dataset = Dataset.from_columns(columns, observation_space=SPACES[0], action_space=SPACES[1])
    if ends == "reset":  # after the last episode there is none whose first observation it could be
        dataset.has_next[-1] = False
    return dataset


@pytest.fixture(scope="module")
def policy():
    return Policy(policy_spec(*SPACES, {"fcnet_hiddens": [4]}))


UNKNOWN = ["missing", "reset"]
ENDS = pytest.mark.parametrize("ends", ["known", *UNKNOWN])


# ---------------------------------------------------------------------- rows of critics


@pytest.mark.parametrize("n_step", [1, 3, 10])
@ENDS
def test_rows_of_critics_bootstrap_at_the_last_known_observation(policy, ends, n_step):
    dataset = endless(ends)
    given = dataset, policy, ActingSettings(), dataset.columns["rewards"], GAMMA, n_step
    rows = transitions(*given, with_next_actions=True)
    is_step = np.ones(ROWS, bool)
    is_step[LAST] = ends == "known"
    steps = np.flatnonzero(is_step)
    assert rows[sb.OBS][:, 0].tolist() == steps.tolist()
    np.testing.assert_allclose(rows[sb.REWARDS] + rows[sb.DISCOUNTS] * VALUE, VALUE, rtol=1e-6)
    last, after = np.repeat(LAST, LENGTHS)[steps], steps + n_step
    final = last + (1.5 if ends == "known" else 0)
    assert rows[sb.NEXT_OBS][:, 0].tolist() == np.where(after <= last, after, final).tolist()
    assert rows[sb.NEXT_ACTIONS].tolist() == (np.minimum(after, last) % 2).tolist()


# ---------------------------------------------------------------------- MARWIL


@ENDS
def test_returns_to_go_end_with_the_value_of_the_last_known_observation(policy, ends, monkeypatch):
    asked = []
    monkeypatch.setattr(Policy, "values", lambda self, obs: asked.append(obs[:, 0]) or np.full(len(obs), VALUE))
    dataset = endless(ends, terminated=[2])
    targets = ImitatedRows(
        dataset, policy, ActingSettings(), ROWS, ReturnsToGo(dataset, dataset.columns["rewards"], GAMMA, policy)
    ).batch(np.arange(ROWS))[sb.VALUE_TARGETS]
    expected = np.full(ROWS, VALUE)
    expected[5:7] = [1.9, 1]
    np.testing.assert_allclose(targets, expected, rtol=1e-6)
    assert asked[0].tolist() == (LAST + (1.5 if ends == "known" else 0))[[0, 1, 3, 4]].tolist()


@pytest.mark.parametrize("ends", UNKNOWN)
def test_returns_without_values_count_all_recorded_rewards(ends):
    dataset, batch = endless(ends), sb.SampleBatch({})
    ReturnsToGo(dataset, dataset.columns["rewards"], GAMMA, None)(batch, np.arange(4))
    np.testing.assert_allclose(batch[sb.VALUE_TARGETS], [3.439, 2.71, 1.9, 1], rtol=1e-6)


# ---------------------------------------------------------------------- estimators


class Constant(QModel):
    """A model that knows the value."""

    def values(self, observations):
        return np.full(len(observations), VALUE)

    def action_values(self, observations, actions):
        return np.full(len(observations), VALUE)


@pytest.mark.parametrize("kind", [DirectMethod, DoublyRobust])
@ENDS
def test_estimates_add_the_value_of_the_last_known_observation(policy, ends, kind):
    found = kind(policy, gamma=GAMMA, q_model_config={"type": Constant}).estimate(endless(ends))
    assert (found["v_target"], found["v_target_std"]) == pytest.approx((VALUE, 0), abs=1e-6)
    assert found["num_truncated"] == found["num_episodes"] == len(LENGTHS)


@pytest.mark.parametrize("ends", UNKNOWN)
def test_steps_that_an_estimate_leaves_out_have_no_weight(policy, ends):
    estimator, dataset = DoublyRobust(policy, gamma=GAMMA, q_model_config={"type": Constant}), endless(ends)
    ratios = np.exp(estimator.log_ratios(estimator.steps(dataset)))
    ratios[LAST] = 1
    weights = np.multiply.reduceat(ratios, LAST + 1 - LENGTHS)
    expected = weights.sum() ** 2 / np.square(weights).sum()
    assert estimator.estimate(dataset)["effective_sample_size"] == pytest.approx(expected)


ATTENTION = {"use_attention": True, "attention_dim": 8, "attention_num_heads": 1, "attention_head_dim": 8}
ATTENTION |= {"attention_memory_inference": 4, "attention_memory_training": 4}
MANY, PART = (5, 13, 1, 20, 7, 8), 4


@pytest.mark.parametrize("memory", [{"use_lstm": True, "lstm_cell_size": 4}, {"use_gru": True}, ATTENTION])
@pytest.mark.parametrize("burn_in", [0, 3, 9])
@pytest.mark.parametrize("is_known", [True, False])
def test_marwil_adds_the_value_of_what_followed_also_with_a_memory(memory, burn_in, is_known):
    """The memory has read the episode's last sequence and the rows before it, as it has where the policy learns."""
    rows, ends, rng = sum(MANY), np.cumsum(MANY) - 1, np.random.default_rng(0)
    obs, following = rng.normal(size=(2, rows, 3)).astype(np.float32)
    following[:-1] = np.where(np.isin(np.arange(rows - 1), ends)[:, None], following[:-1], obs[1:])
    terminateds = np.isin(np.arange(rows), ends[::3])
    columns = {"obs": obs, "actions": rng.integers(2, size=rows), "rewards": rng.normal(size=rows)} | {
        "terminateds": terminateds, "eps_id": np.repeat(np.arange(len(MANY)), MANY)
    }  # fmt: skip
    columns |= {"new_obs": following} if is_known else {}
    config = MARWILConfig().offline_data(input_=columns, dataset_num_iters_per_learner=2)
    model = {"fcnet_hiddens": [8], "max_seq_len": PART, **memory}
    with config.training(train_batch_size=12, lr=1e-2, burn_in=burn_in, gamma=0.9, model=model).build() as algorithm:
        algorithm.train()
        policy, recorded = algorithm.get_policy(), algorithm.recorded_rows()
        targets = recorded.batch(np.arange(len(recorded)))["value_targets"]
    expected = np.zeros(rows)
    for start, stop in zip(ends + 1 - MANY, ends + 1):
        last, total = stop - 1, 0.0
        seen = max(start, start + (last - start) // PART * PART - burn_in)
        if not terminateds[last]:
            state = np.zeros((1, policy.state_size), np.float32)
            for row in range(seen, stop if is_known else last):
                state = policy.state_after(obs[None, row : row + 1], np.array([1]), state)
            total = float(policy.values((following if is_known else obs)[last : last + 1], state)[0])
        for row in range(last, start - 1, -1):
            is_step = is_known or row < last or terminateds[last]
            total = columns["rewards"][row] + 0.9 * total if is_step else total
            expected[row] = total
    np.testing.assert_allclose(targets, expected, atol=1e-5)
