"""use_lstm and use_gru in whole algorithms: what is learned, states outside of training, checkpoints."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rllib import PPO, A2CConfig, A3CConfig, APPOConfig, DQNConfig, IMPALAConfig, Policy, PPOConfig
from rllib import sample_batch as sb
from rllib.env.tasks.memory import CartPoleNoVel, RepeatAfterMe
from tests.algorithms.test_recall import Recall
from tests.envs import ProbeEnv

SIZE = 16
LSTM = {"use_lstm": True, "lstm_cell_size": SIZE, "fcnet_hiddens": []}
GRU = {"use_gru": True, "lstm_cell_size": SIZE, "fcnet_hiddens": []}
FEED_FORWARD = {"fcnet_hiddens": [SIZE]}


def config(kind=PPOConfig, model=LSTM, env=Recall):
    config = kind().environment(env).debugging(seed=4)
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=16, rollout_fragment_length=20)
    config.training(lr=0.01, gamma=0.9, model=model)
    if kind is PPOConfig:
        config.training(train_batch_size=640, sgd_minibatch_size=160, num_sgd_iter=6, entropy_coeff=0.01)
    elif kind is not A3CConfig:
        config.training(train_batch_size=320)
    return config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=640)


@pytest.mark.parametrize(
    ("kind", "model", "iterations"),
    [
        (PPOConfig, LSTM, 12),
        (PPOConfig, {**GRU, "vf_share_memory": True, "post_lstm_hiddens": [SIZE]}, 12),
        (A2CConfig, GRU, 40),
        (A3CConfig, LSTM, 40),
        (IMPALAConfig, GRU, 40),
        (APPOConfig, LSTM, 40),
    ],
)
def test_who_remembers_answers_right(kind, model, iterations):
    with config(kind, model).build() as algo:
        for _ in range(iterations):
            algo.train()
        assert algo.evaluate(200)["episode_reward_mean"] > 0.95


def test_who_does_not_remember_guesses():
    with config(model=FEED_FORWARD).build() as algo:
        for _ in range(12):
            algo.train()
        assert algo.evaluate(200)["episode_reward_mean"] < 0.7


@pytest.mark.parametrize("model", [LSTM, {**GRU, "fcnet_hiddens": [8], "vf_share_memory": True}])
def test_numpy_and_torch_learn_alike(model):
    """From the same weights and batches; minibatches of whole sequences, and the last is a remainder."""
    weights = {}
    for learner in ("numpy", "torch"):
        with config(model=model).training(learner=learner).build() as algo:
            for _ in range(2):
                algo.train()
            weights[learner] = algo.policy.weights.copy()
    np.testing.assert_allclose(weights["numpy"], weights["torch"], atol=1e-3)
    assert abs(weights["numpy"]).max() > 0.1


@pytest.mark.parametrize(("model", "num_arrays"), [(LSTM, 4), ({**LSTM, "vf_share_memory": True}, 2), (GRU, 2)])
def test_states_outside_of_training(model, num_arrays):
    """A list of h, and c for an LSTM, of each tower, as RLlib has it."""
    with config(model=model).build() as algo:
        state = algo.get_policy().get_initial_state()
        assert [part.shape for part in state] == [(SIZE,)] * num_arrays and not any(part.any() for part in state)
        observation, memory = np.ones(1, np.float32), np.zeros((1, SIZE * num_arrays), np.float32)
        for _ in range(3):
            action, state, fetches = algo.compute_single_action(observation, state, explore=False)
            expected = {}
            assert action == algo.policy.choose(observation[None], False, state=memory, fetches=expected)[0]
            np.testing.assert_array_equal(np.concatenate(state), memory[0])
            np.testing.assert_array_equal(fetches["action_dist_inputs"], expected["action_dist_inputs"][0])
            np.testing.assert_array_equal(fetches["vf_preds"], expected["vf_preds"][0])
        with pytest.raises(ValueError, match=r"this policy has a memory: .*get_initial_state\(\)"):
            algo.compute_single_action(observation, [np.zeros(3)] * num_arrays)


def test_a_policy_is_made_from_a_checkpoint(tmp_path):
    """Without code of the user's; it remembers as the one that was saved."""
    with config().build() as algo, config().debugging(seed=5).build() as other:
        algo.train()
        whole, alone = algo.save(tmp_path / "whole"), algo.export_policy_model(tmp_path / "alone")
        for policy in (Policy.from_checkpoint(alone), *Policy.from_checkpoint(whole).values()):
            assert policy.spec == algo.policy.spec
            np.testing.assert_array_equal(policy.weights, algo.policy.weights)
        other.restore(whole)
        np.testing.assert_array_equal(other.policy.weights, algo.policy.weights)
        other.train()


def test_a_checkpoint_from_when_one_cell_was_the_default_is_restored(tmp_path):
    """Its config says nothing of the cell; the policy's description does."""
    with config(model={**LSTM, "vf_share_memory": True}).build() as algo:
        path = Path(algo.save(tmp_path))
        written, manifest = (json.loads((path / name).read_text()) for name in ("config.json", "manifest.json"))
        del written["model"]["vf_share_memory"]
        text = json.dumps(written).encode()
        (path / "config.json").write_bytes(text)
        manifest["files"]["config.json"] = {"size_bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
        (path / "manifest.json").write_text(json.dumps(manifest))
        with PPO.from_checkpoint(path, load_user_code=True) as other:
            np.testing.assert_array_equal(other.policy.weights, algo.policy.weights)
            observation, state = np.ones(1, np.float32), [np.zeros(SIZE, np.float32)] * 2
            actions = [each.compute_single_action(observation, state, explore=False)[0] for each in (algo, other)]
            assert actions[0] == actions[1]
            other.train()


def test_a_restored_run_goes_on_to_the_bit(tmp_path):
    """With whole episodes, so that nothing is lost in between."""

    def build():
        return config().rollouts(batch_mode="complete_episodes").build()

    with build() as algo, build() as other:
        algo.train()
        algo.save(tmp_path)
        other.restore(tmp_path)
        algo.restore(tmp_path)
        for each in (algo, other):
            each.train()
        np.testing.assert_array_equal(other.policy.weights, algo.policy.weights)


def test_a_replay_cannot_keep_states():
    with pytest.raises(ValueError, match="cannot train a policy with a memory: a replay keeps single rows"):
        DQNConfig().environment("CartPole-v1").training(model=LSTM).build()


def test_torch_is_not_loaded():
    code = (
        "import sys; from rllib import PPOConfig;"
        "config = PPOConfig().environment('CartPole-v1').training(model={'use_lstm': True, 'lstm_cell_size': 8},"
        "train_batch_size=128, num_sgd_iter=1).rollouts(num_rollout_workers=0);"
        "algo = config.build(); algo.train(); algo.stop(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_cartpole_without_velocities():
    env = CartPoleNoVel()
    observation, _ = env.reset(seed=0)
    assert observation.shape == (2,) and env.observation_space.contains(observation)
    np.testing.assert_array_equal(observation, env.unwrapped.state.astype(np.float32)[[0, 2]])


@pytest.mark.parametrize("delay", [0, 2])
def test_repeat_after_me(delay):
    env = RepeatAfterMe(repeat_delay=delay, episode_len=10)
    seen, total, truncated = [0] * delay + [env.reset(seed=1)[0]], 0.0, False
    for t in range(10):
        assert not truncated
        observation, reward, _, truncated, _ = env.step(seen[t])
        seen.append(observation)
        total += reward
    assert truncated and total == 10 and 0 < sum(seen) < 10
    env.reset()
    assert env.step(1 - seen[0])[1] in (-1.0, 1.0)


def test_batches_stand_in_sequences():
    with config().rollouts(num_rollout_workers=2, num_envs_per_worker=4).build() as algo:
        batch = algo.sample(640)
        assert batch[sb.SEQ_LENS].sum() == batch.count >= 640
        assert batch[sb.STATE_IN].shape == (len(batch[sb.SEQ_LENS]), 4 * SIZE)


class RandomRewards(ProbeEnv):
    """Rewards at random; episodes of six steps."""

    def follow(self, action):
        return 0.0, float(self.np_random.choice([-1.0, 1.0])), self.t == 6, False


def test_the_step_before_is_part_of_what_is_stored():
    """Rows: [observation, one-hot action before, its reward], zeros where an episode begins."""
    told = {"lstm_use_prev_action_reward": True}
    with config(model={**LSTM, **told}, env=RandomRewards).rollouts(num_envs_per_worker=1).build() as algo:
        batch = algo.sample(24)
        assert batch[sb.OBS].shape[1] == 4
        begins = np.arange(len(batch[sb.OBS])) % 6 == 0
        actions, rewards = np.roll(batch[sb.ACTIONS], 1), np.roll(batch[sb.REWARDS], 1)
        expected = np.column_stack([np.zeros(len(actions)), actions == 0, actions == 1, rewards])
        expected[begins] = 0
        np.testing.assert_array_equal(batch[sb.OBS], expected)
        algo.train()
        assert algo.evaluate(2)["episodes_this_iter"] == 2


def test_actions_outside_of_training_are_told_of_the_step_before():
    told = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    with config(model={**LSTM, **told}).build() as algo:
        observation, state = np.ones(1, np.float32), algo.get_policy().get_initial_state()
        action, state, first = algo.compute_single_action(observation, state, explore=False)
        with pytest.raises(ValueError, match="Give prev_action and prev_reward with every"):
            algo.compute_single_action(observation, state)
        step = {"prev_action": action, "prev_reward": 2.0, "explore": False}
        _, _, second = algo.compute_single_action(observation, state, **step)
        row = np.array([[1.0, action == 0, action == 1, 2.0]], np.float32)
        fetches = {}
        algo.policy.choose(row, False, state=np.concatenate(state)[None], fetches=fetches)
        np.testing.assert_array_equal(second["action_dist_inputs"], fetches["action_dist_inputs"][0])
        assert (first["action_dist_inputs"] != second["action_dist_inputs"]).any()


@pytest.mark.parametrize("num_episodes", [None, 2])
def test_a_player_remembers(num_episodes):
    """What it does is what compute_single_action does with all that it is to be given."""
    model = {**LSTM, "lstm_use_prev_action_reward": True}
    with config(model=model).build() as algo:
        player, rng = algo.make_player(num_episodes), np.random.default_rng(0)
        for _ in range(2):
            state, action, reward = algo.get_policy().get_initial_state(), None, None
            for _ in range(4):
                observation = rng.uniform(-1, 1, 1).astype(np.float32)
                if num_episodes is None:
                    found = player.act(observation, reward)
                else:
                    found, other = player.act([observation] * 2, reward and [reward] * 2)
                    assert found == other
                before = {"prev_action": action, "prev_reward": reward, "explore": False}
                action, state, _ = algo.compute_single_action(observation, state, **before)
                # Matrix products of one row and of two may differ in the last bit.
                np.testing.assert_allclose(np.concatenate(player._states[0]), np.concatenate(state), rtol=1e-4)
                assert found == action
                reward = float(rng.normal())
            player.reset()
        with pytest.raises(ValueError, match="0 observations" if num_episodes else "no action can be computed"):
            player.act([] if num_episodes else np.ones(3, np.float32))


def test_a_player_without_a_memory():
    with config(model=FEED_FORWARD).build() as algo:
        player = algo.make_player(2)
        actions = player.act([np.ones(1, np.float32)] * 2)
        player.reset(1)
        assert actions.tolist() == player.act([np.ones(1, np.float32)] * 2).tolist()
        with pytest.raises(ValueError, match="num_episodes=0 must be at least 1"):
            algo.make_player(0)
