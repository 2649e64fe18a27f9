"""`Algorithm.learn`: training for a number of steps, as in Stable-Baselines3."""

import math

import pytest

from rllib import PPO, PPOConfig
from tests.envs import CountingEnv


def config():
    return (
        PPOConfig()
        .environment(CountingEnv)
        .rollouts(num_rollout_workers=0)
        .training(train_batch_size=100, sgd_minibatch_size=100, num_sgd_iter=1)
    )


def test_it_trains_for_so_many_further_steps():
    with config().build() as algo:
        assert algo.learn(250) is algo
        assert algo.timesteps == 300 and algo.metrics.iteration == 3
        algo.learn(1e2)
        assert algo.timesteps == 400
        algo.train()
        algo.learn(101)
        assert algo.timesteps == 700


def test_it_may_follow_the_constructor():
    algo = PPO(config(), env=CountingEnv).learn(100)
    assert algo.timesteps == 100
    algo.stop()


@pytest.mark.parametrize("steps", [0, -5, math.nan, math.inf, True])
def test_a_number_that_is_none_is_refused(steps):
    with config().build() as algo, pytest.raises(ValueError, match="must be a positive number of environment steps"):
        algo.learn(steps)


def test_the_progress_bar_shows_steps_speed_and_return(capsys):
    with config().build() as algo:
        algo.learn(200, progress_bar=True)
    shown = capsys.readouterr().out
    assert "200/200 steps" in shown and "/s" in shown and "return" in shown
    with config().build() as algo:
        algo.learn(200)
    assert capsys.readouterr().out == ""


def test_an_exception_leaves_the_terminal_as_it_was(capsys):
    class Broken(CountingEnv):
        def step(self, action):
            raise OSError("gone")

    with (
        config().environment(Broken, disable_env_checking=True).build() as algo,
        pytest.raises(OSError, match="gone"),
    ):
        algo.learn(200, progress_bar=True)
    assert "0/200 steps" in capsys.readouterr().out
