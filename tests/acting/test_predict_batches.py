"""`predict` of several observations: each row as if it had come alone."""

import numpy as np
import pytest

import rllib
from rllib import PPOConfig
from rllib.env.spaces.batches import batch_of
from tests.envs import BoundedAction, CountingEnv, GoalOnALine, MaskedProbe, StructuredProbe, Team, nth_sample


def built(env, model=None, env_config=None, **environment):
    return (
        PPOConfig()
        .environment(env, env_config=env_config or {}, **environment)
        .rollouts(num_rollout_workers=0)
        .training(model={"fcnet_hiddens": [4], **(model or {})})
        .debugging(seed=1)
        .build()
    )


def assert_close(one, other):
    """Equality but for the order in which a product of matrices is summed."""
    if isinstance(one, dict | tuple):
        for key in one if isinstance(one, dict) else range(len(one)):
            assert_close(one[key], other[key])
    else:
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("env", [CountingEnv, BoundedAction, GoalOnALine, Team, MaskedProbe, StructuredProbe])
def test_each_row_gets_the_action_that_it_gets_alone(env, tmp_path):
    with built(env) as algo:
        space = env({}).observation_space if env is MaskedProbe else env.observation_space
        rows = [nth_sample(space, n) for n in range(5)]
        if env is MaskedProbe:
            for row in rows:
                row["action_mask"][0] = 1  # at least one action is legal
        batch = batch_of(space, rows)
        loaded = rllib.load_policy(algo.save(tmp_path / "saved"))
        for policy in (algo, loaded):
            actions, state = policy.predict(batch, deterministic=True)
            assert state is None and len(actions) == 5
            for action, row in zip(actions, rows, strict=True):
                assert_close(action, policy.compute_single_action(row, explore=False))
        drawn = {str(action) for _ in range(20) for action in algo.predict(batch)[0]}
        assert len(drawn) > 1 or env is MaskedProbe


def test_an_array_of_actions_comes_back():
    with built(BoundedAction) as algo:
        actions, _ = algo.predict(np.zeros((3, 1), np.float32), deterministic=True)
        assert actions.shape == (3, 1) and actions.dtype == np.float32
        assert algo.predict(np.zeros((1, 1), np.float32))[0].shape == (1, 1)
        assert algo.predict(np.zeros(1, np.float32))[0].shape == (1,)
        assert algo.predict([[0.0], [0.5]])[0].shape == (2, 1)


@pytest.mark.parametrize("cell", ["use_lstm", "use_gru"])
def test_states_go_in_and_out_and_begin_anew(cell, tmp_path):
    with built(CountingEnv, {cell: True, "lstm_cell_size": 4, "vf_share_layers": False}) as algo:
        loaded = rllib.load_policy(algo.save(tmp_path / "saved"))
        for policy in (algo, loaded):
            batch = np.array([[1.0], [2.0]], np.float32)
            first, states = policy.predict(batch, state=None, episode_start=np.ones(2, bool), deterministic=True)
            _, after = policy.predict(batch, state=states, episode_start=np.array([False, True]), deterministic=True)
            # The second environment began anew: its state is as after the first step.
            np.testing.assert_array_equal(after[1][0], states[1][0])
            assert not np.array_equal(after[0][0], states[0][0])
            _, alone = policy.predict(batch[0], deterministic=True)
            np.testing.assert_allclose(alone[0], states[0][0], rtol=1e-5, atol=1e-6)
            _, kept = policy.predict(batch[0], alone, False, True)
            np.testing.assert_allclose(kept[0], after[0][0], rtol=1e-5, atol=1e-6)
            _, anew = policy.predict(batch[0], alone, episode_start=np.array([True]), deterministic=True)
            np.testing.assert_allclose(anew[0], alone[0], rtol=1e-5, atol=1e-6)
            assert len(first) == 2


def test_masks_are_given_for_each():
    with built(MaskedProbe, env_config={"mask": "info"}, action_mask_from="info") as algo:
        masks = np.eye(3, dtype=np.int8)
        rows = np.zeros((3, 2), np.float32)
        assert algo.predict(rows, action_masks=masks)[0].tolist() == [0, 1, 2]
        with pytest.raises(ValueError, match="trained with masks in addition to observations"):
            algo.predict(rows)


def test_numbers_that_do_not_fit_are_refused():
    with built(CountingEnv, {"use_lstm": True, "lstm_cell_size": 4}) as algo:
        batch = np.zeros((3, 1), np.float32)
        _, states = algo.predict(batch)
        with pytest.raises(ValueError, match="3 observations cannot have 2 states and 3 values of episode_start"):
            algo.predict(batch, states[:2])
        with pytest.raises(ValueError, match="3 states and 1 values"):
            algo.predict(batch, states, episode_start=True)
        with pytest.raises(ValueError, match=r"observation has shape \(2, 3\)"):
            algo.predict(np.zeros((2, 3), np.float32))
        with pytest.raises(ValueError, match=r"the pair \(observation, info\) that reset\(\) returns"):
            algo.predict(CountingEnv().reset())
