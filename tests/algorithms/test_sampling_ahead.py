"""With `sample_async` workers sample the next round while the learner is at this one."""

import os
import signal

import numpy as np
import pytest

from rllib import ApexDQNConfig, DQNConfig, IMPALAConfig, PPOConfig, PQNConfig, R2D2Config, SACConfig
from tests.algorithms.algorithm_support import train, train_until, worker_pids

REPLAY = {
    "num_steps_sampled_before_learning_starts": 8,
    "train_batch_size": 16,
    "training_intensity": 16,
    "replay_buffer_config": {"capacity": 1000},
}
CONFIGS = {
    "PQN": PQNConfig().training(train_batch_size=32, sgd_minibatch_size=16).environment("CartPole-v1"),
    "DQN": DQNConfig().training(**REPLAY, hiddens=[16]).environment("CartPole-v1"),
    "R2D2": R2D2Config()
    .training(**REPLAY, hiddens=[16], model={"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 4})
    .environment("CartPole-v1"),
    "SAC": SACConfig().training(**REPLAY, model={"fcnet_hiddens": [16]}).environment("Pendulum-v1"),
}


def build(name: str, num_workers=2, num_envs=1, sample_async=True):
    return (
        CONFIGS[name]
        .copy()
        .rollouts(num_rollout_workers=num_workers, num_envs_per_worker=num_envs, sample_async=sample_async)
        .reporting(min_sample_timesteps_per_iteration=0, min_time_s_per_iteration=None)
        .debugging(seed=5)
        .build()
    )


def lags(algo, iterations: int) -> list[int]:
    """By how many updates the weights that sampled each round are older than those that take it in."""
    found, sample_round = [], algo._sample_round

    def recorded():
        updates, fragments = algo.num_updates, sample_round()
        found.extend({updates - batch.policy_version for batch, _ in fragments})
        return fragments

    algo._sample_round = recorded
    train(algo, iterations)
    algo._sample_round = sample_round
    return found


@pytest.mark.parametrize(("name", "updates_per_round"), [("PQN", 1), ("DQN", 2), ("SAC", 2)])
def test_weights_are_those_before_the_updates_of_a_round(name, updates_per_round):
    with build(name) as algo:
        train(algo, 8)
        assert set(lags(algo, 5)) == {updates_per_round}
    with build(name, sample_async=False) as algo:
        assert set(lags(algo, 10)) == {0}


@pytest.mark.parametrize("name", CONFIGS)
def test_runs_repeat_and_do_not_depend_on_the_split(name):
    def weights(num_workers, num_envs):
        with build(name, num_workers, num_envs) as algo:
            train(algo, 12)
            return algo.policy.weights.copy()

    expected = weights(1, 2)
    np.testing.assert_array_equal(weights(1, 2), expected)
    np.testing.assert_array_equal(weights(2, 1), expected)


@pytest.mark.parametrize("name", CONFIGS)
def test_what_other_weights_sample_is_forgotten(name, tmp_path):
    with build(name) as algo:
        train(algo, 8)
        algo.save(tmp_path / "saved")
        algo.restore(tmp_path / "saved")
        assert lags(algo, 1) == [0]
        algo.set_weights(algo.get_weights())
        assert lags(algo, 1) == [0]


def test_a_worker_killed_while_it_samples_ahead_is_replaced():
    with build("DQN") as algo:
        train(algo, 8)
        os.kill(worker_pids(algo)[0], signal.SIGKILL)
        result = train_until(algo, lambda result: result["num_remote_worker_restarts"] == 1)
        assert result["num_healthy_workers"] == 2
        assert set(lags(algo, 5)) == {2}


def test_sampling_ahead_needs_workers():
    for name in CONFIGS:
        with pytest.raises(ValueError, match="sample_async=True needs num_rollout_workers"):
            build(name, num_workers=0)


def test_who_always_samples_meanwhile_is_told_nothing_new():
    ApexDQNConfig().environment("CartPole-v1").rollouts(sample_async=True).validate()


@pytest.mark.parametrize("config_class", [PPOConfig, IMPALAConfig])
def test_others_refuse_it_and_say_what_to_do(config_class):
    with pytest.raises(TypeError, match=r"sample_async=True cannot be used: leave it out: .*APPO and A3C always"):
        config_class().update_from_dict({"sample_async": True})
