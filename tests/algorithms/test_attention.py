"""use_attention in whole algorithms: what is learned, states outside of training, workers, checkpoints."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from rllib import A2CConfig, A3CConfig, APPOConfig, DQNConfig, IMPALAConfig, Policy, PPOConfig
from rllib import sample_batch as sb
from tests.algorithms.test_lstm import RandomRewards, config

torch.set_num_threads(1)  # operations this small are slower on several

SIZE, WINDOW = 16, 8
ATTENTION = {
    "use_attention": True,
    "fcnet_hiddens": [SIZE],
    "attention_dim": SIZE,
    "attention_head_dim": SIZE,
    "attention_memory_inference": WINDOW,
    "attention_memory_training": WINDOW,
    "attention_position_wise_mlp_dim": SIZE,
}
TOLD = {"attention_use_n_prev_actions": 1, "attention_use_n_prev_rewards": 1}


@pytest.mark.parametrize(
    ("kind", "iterations"), [(PPOConfig, 5), (A2CConfig, 20), (A3CConfig, 20), (IMPALAConfig, 20), (APPOConfig, 30)]
)
def test_who_attends_to_what_was_seen_answers_right(kind, iterations):
    """P8; tests/algorithms/test_lstm.py shows that without a memory half of the answers are right."""
    with config(kind, ATTENTION).build() as algo:
        for _ in range(iterations):
            algo.train()
        assert algo.evaluate(200)["episode_reward_mean"] > 0.95


def test_states_outside_of_training():
    """A list of windows, and the number of steps in them; a player keeps it."""
    with config(model={**ATTENTION, "attention_num_transformer_units": 2}).build() as algo:
        state = algo.get_policy().get_initial_state()
        assert [part.shape for part in state] == [(WINDOW, SIZE)] * 4 + [(1,)]  # the policy's units, then the value's
        player, memory = algo.make_player(), np.zeros((1, algo.policy.state_size), np.float32)
        for step in range(WINDOW + 2):
            observation, expected = np.full(1, step % 2, np.float32), {}
            action, state, fetches = algo.compute_single_action(observation, state, explore=False)
            assert action == algo.policy.choose(observation[None], False, state=memory, fetches=expected)[0]
            assert action == player.act(observation)
            np.testing.assert_array_equal(np.concatenate(state, axis=None), memory[0])
            np.testing.assert_array_equal(fetches["action_dist_inputs"], expected["action_dist_inputs"][0])
            assert state[-1] == min(step + 1, WINDOW)
        with pytest.raises(ValueError, match=r"arrays of shapes (\[8, 16\], ){4}\[1\]"):
            algo.compute_single_action(observation, state[:2])


def test_the_step_before_is_part_of_what_is_stored():
    """Rows: [observation, one-hot action before, its reward], zeros where an episode begins."""
    with config(model={**ATTENTION, **TOLD}, env=RandomRewards).rollouts(num_envs_per_worker=1).build() as algo:
        batch = algo.sample(24)
        actions, rewards = np.roll(batch[sb.ACTIONS], 1), np.roll(batch[sb.REWARDS], 1)
        expected = np.column_stack([np.zeros(len(actions)), actions == 0, actions == 1, rewards])
        expected[np.arange(len(expected)) % 6 == 0] = 0
        np.testing.assert_array_equal(batch[sb.OBS], expected)
        algo.train()


def test_workers_send_sequences():
    with config(model=ATTENTION).rollouts(num_rollout_workers=2, num_envs_per_worker=4).build() as algo:
        batch = algo.sample(640)
        assert batch[sb.SEQ_LENS].sum() == batch.count >= 640
        assert batch[sb.STATE_IN].shape == (len(batch[sb.SEQ_LENS]), 2 * WINDOW * SIZE + 1)
        # Windows are those of the steps before: episodes begin with none, and have five steps.
        assert batch[sb.STATE_IN][:, -1].max() < 5
        algo.train()


def test_a_policy_is_made_from_a_checkpoint(tmp_path):
    """Without code of the user's; and a restored run goes on to the bit."""

    def build():
        return config(model=ATTENTION).rollouts(batch_mode="complete_episodes").build()

    with build() as algo, build() as other:
        algo.train()
        whole, alone = algo.save(tmp_path / "whole"), algo.export_policy_model(tmp_path / "alone")
        for policy in (Policy.from_checkpoint(alone), *Policy.from_checkpoint(whole).values()):
            assert policy.spec == algo.policy.spec
            np.testing.assert_array_equal(policy.weights, algo.policy.weights)
        for each in (algo, other):
            each.restore(whole)
            each.train()
        np.testing.assert_array_equal(other.policy.weights, algo.policy.weights)


def test_acting_loads_no_torch():
    code = (
        "import sys; import numpy as np; from gymnasium import spaces; from rllib import Policy;"
        "from rllib.models.catalog.catalog import policy_spec;"
        "policy = Policy(policy_spec(spaces.Box(-1, 1, (2,)), spaces.Discrete(2), {'use_attention': True}));"
        "state = np.zeros((3, policy.state_size), np.float32);"
        "policy.choose(np.ones((3, 2), np.float32), state=state);"
        "assert state[:, -1].tolist() == [1, 1, 1] and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_replay_cannot_keep_windows():
    with pytest.raises(ValueError, match="cannot train a policy with a memory: a replay keeps single rows"):
        DQNConfig().environment("CartPole-v1").training(model=ATTENTION).build()
