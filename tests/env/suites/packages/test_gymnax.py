"""gymnax by name: gymnasium's dynamics, seeds, settings and their mistakes, training."""

import gymnasium
import numpy as np
import pytest
from suite_rows import random_rows, weights_after

from rllib import PPOConfig
from rllib.env import make_stream, resolve

pytestmark = [pytest.mark.extras("gymnax"), pytest.mark.timeout(1200)]


def test_cartpole_has_the_dynamics_of_gymnasium():
    observations, rewards, ends = random_rows("gymnax:CartPole-v1")
    assert (rewards == 1).all() and ends and all(abs(final[2]) > 0.2 or abs(final[0]) > 2.4 for *_, final in ends)
    single = gymnasium.make("CartPole-v1").unwrapped
    single.reset(seed=0)
    actions = np.random.default_rng(0).integers(2, size=(60, 3))
    ended = {(step, index): final for step, index, final in ends}
    for step in range(60):
        for index in range(3):
            single.state, single.steps_beyond_terminated = observations[step, index], None
            following, _, terminated, *_ = single.step(int(actions[step, index]))
            assert terminated == ((step, index) in ended)
            expected = ended.get((step, index), observations[step + 1, index])
            np.testing.assert_allclose(following, expected, rtol=1e-5, atol=1e-6)


def test_a_division_among_workers_gives_the_same_bits():
    np.testing.assert_array_equal(weights_after("gymnax:CartPole-v1", 1, 8), weights_after("gymnax:CartPole-v1", 2, 4))


def test_64_environments_have_the_bits_of_two_times_32():
    actions = np.random.default_rng(0).integers(2, size=(100, 64))

    def rows(first, last):
        with make_stream(resolve("gymnax:CartPole-v1"), num_envs=last - first, seeds=range(first, last)) as stream:
            buffers, seen = stream.new_buffers(), []
            stream.reset(buffers)
            for each in actions[:, first:last]:
                stream.step(each, buffers)
                seen.append(buffers.observations.copy())
        return np.stack(seen)

    np.testing.assert_array_equal(rows(0, 64), np.concatenate([rows(0, 32), rows(32, 64)], axis=1))


def test_env_config_has_parameters_and_names_the_mend_of_a_wrong_one():
    _, _, ends = random_rows("gymnax:Pendulum-v1", steps=11, env_config={"max_steps_in_episode": 5})
    assert [step for step, *_ in ends] == [4, 4, 4, 9, 9, 9]
    with pytest.raises(ValueError, match=r"env_config has 'gravty'.*Did you mean 'gravity'"):
        PPOConfig().environment("gymnax:CartPole-v1", env_config={"gravty": 1}).build()
    with pytest.raises(ValueError, match=r'Did you mean "gymnax:CartPole-v1"'):
        PPOConfig().environment("gymnax:CartPol-v1").build()


def test_a_time_limit_is_no_termination():
    config = PPOConfig().environment("gymnax:Pendulum-v1", env_config={"max_steps_in_episode": 5})
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=2, rollout_fragment_length=10)
    with config.training(train_batch_size=20, sgd_minibatch_size=20, num_sgd_iter=1).build() as algo:
        batch = algo.sample(20)
        assert not batch["terminateds"].any() and batch["truncateds"].sum() == 4


# MNISTBandit downloads its pictures.
@pytest.mark.parametrize("name", ["Acrobot-v1", "MountainCar-v0", "Breakout-MinAtar", "Catch-bsuite", "FourRooms-misc"])
def test_one_of_each_kind_is_played(name):
    observations, rewards, _ = random_rows(f"gymnax:{name}", steps=30)
    assert np.isfinite(observations).all() and np.isfinite(rewards).all()
