"""GAIL on SAC: rewards of rows of the replay, what is imitated, checkpoints."""

import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.algorithms.gail_sac import GAILSACConfig
from rllib.losses.discriminator import absorbing_bonus
from tests.algorithms.algorithm_support import learner_stats, train
from tests.algorithms.test_gail import LEFT, turning
from tests.imitation.demonstrations import recorded


def make(data=LEFT, env="CartPole-v1", **training):
    small = {
        "num_steps_sampled_before_learning_starts": 64, "train_batch_size": 32, "lr": 1e-3,
        "model": {"fcnet_hiddens": [16]}, "q_model_config": {"fcnet_hiddens": [16]},
        "discriminator_model": {"fcnet_hiddens": [16]}, "discriminator_batch_size": 32,
    }  # fmt: skip
    return (
        GAILSACConfig()
        .environment(env)
        .rollouts(num_rollout_workers=0, num_envs_per_worker=4)
        .offline_data(demonstrations=data)
        .training(**{**small, "replay_buffer_config": {"type": "ReplayBuffer", "capacity": 5000}, **training})
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=200)
        .debugging(seed=1)
    )


def learned_rows(algo, iterations=1):
    """Rows of all updates, as they are learned from."""
    seen, learn = [], algo.trainee.learn_on_batch
    algo.trainee.learn_on_batch = lambda batch, **how: seen.append(dict(batch)) or learn(batch, **how)
    train(algo, iterations)
    return seen


@pytest.mark.parametrize("absorbing", [True, False])
def test_rows_of_the_replay_get_the_newest_reward(absorbing):
    with make(absorbing=absorbing, task_reward_coeff=10.0).build() as algo:
        reward, found = algo.trainee.reward, {}

        def rewards(own, goes_on):
            found.update(own=own, goes_on=goes_on)
            return np.full(len(own), 0.25, np.float32), 0.5, 0.25

        reward.discriminator.rewards = rewards
        rows = learned_rows(algo)[-1]
        ended = rows[sb.DISCOUNTS] == 0
        bonus = absorbing_bonus(0.5, 0.99) if absorbing else 0.0
        np.testing.assert_allclose(rows[sb.REWARDS], 0.25 + 10.0 + ended * bonus, rtol=1e-6)
        assert (rows[sb.ENV_REWARDS] == 1).all() and (
            algo.replay.sample(50, algo.trainee.rng, 0)[sb.REWARDS] == 1
        ).all()
        np.testing.assert_array_equal(found["own"].terminated, ended)


@pytest.mark.parametrize("inputs", [["obs", "actions"], ["obs", "next_obs"]])
@pytest.mark.parametrize("env, policy", [("CartPole-v1", lambda seen: 0), ("Pendulum-v1", turning)])
def test_it_learns_from_choices_and_numbers(env, policy, inputs):
    with make(recorded(env, policy, 2), env, discriminator_inputs=inputs).build() as algo:
        stats = learner_stats(train(algo, 2))
    assert np.isfinite(list(stats.values())).all()
    assert {"imitation_reward_mean", "discriminator_loss", "alpha_value"} <= stats.keys()


def test_a_restored_run_continues_with_the_same_discriminator(tmp_path):
    with make().build() as algo, make().debugging(seed=8).build() as other:
        train(algo, 2)
        other.restore(algo.save(tmp_path / "checkpoint"))
        saved, restored = (each.trainee.reward.discriminator.get_state() for each in (algo, other))
        for name, array in saved.items():
            np.testing.assert_array_equal(array, restored[name])
        np.testing.assert_array_equal(*(each.learned_reward(LEFT["obs"], LEFT["actions"]) for each in (algo, other)))


@pytest.mark.slow
def test_an_expert_that_falls_at_once_is_imitated():
    config = make(train_batch_size=128, training_intensity=32, discriminator_batch_size=256)
    config.training(
        **{name: {"fcnet_hiddens": [64, 64]} for name in ("model", "q_model_config", "discriminator_model")}
    )
    with config.reporting(
        min_sample_timesteps_per_iteration=6_000, metrics_num_episodes_for_smoothing=50
    ).build() as algo:
        assert algo.train()["episode_reward_mean"] < 12  # 9.3 are the expert's, 22 those of random actions
