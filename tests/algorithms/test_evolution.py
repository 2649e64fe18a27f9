"""ES and ARS as a user meets them: reproducible with any number of workers, restorable, and robust against deaths."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium.spaces import Box

from rllib import Algorithm, ARSConfig, ESConfig
from rllib.storage.checkpoint import write_checkpoint
from runtime.errors import ActorDiedError
from tests.envs import CountingEnv, HundredReward, MatchObservation, SleepEnv

TUNED = Path(__file__).parents[2] / "tuned_examples"
SMALL = {"noise_size": 50_000, "eval_prob": 0.2, "noise_stdev": 0.05}


def es(env="CartPole-v1", num_workers=0, num_envs=8, seed=0, env_config=None, **training) -> ESConfig:
    training = {
        "episodes_per_batch": 20,
        "train_batch_size": 1,
        "stepsize": 0.03,
        "model": {"fcnet_hiddens": [8]},
        "filter_update_prob": 0.5,
        **SMALL,
        **training,
    }
    return _with(ESConfig(), env, num_workers, num_envs, seed, env_config, training)


def ars(env="CartPole-v1", num_workers=0, num_envs=4, seed=0, env_config=None, **training) -> ARSConfig:
    training = {"num_rollouts": 4, "rollouts_used": 2, "sgd_stepsize": 0.02, **SMALL, **training}
    return _with(ARSConfig(), env, num_workers, num_envs, seed, env_config, training)


def _with(config, env, num_workers, num_envs, seed, env_config, training):
    return (
        config.environment(env, env_config=env_config or {})
        .rollouts(num_rollout_workers=num_workers, num_envs_per_worker=num_envs)
        .training(**training)
        .debugging(seed=seed)
    )


def state_after(iterations: int, config) -> tuple:
    with config.build() as algo:
        results = [algo.train() for _ in range(iterations)]
        return (
            algo.policy.weights.tobytes(),
            {name: array.tobytes() for name, array in algo.policy.filter.get_state().items()},
            [result["timesteps_total"] for result in results],
            results[-1]["hist_stats"],
        )


@pytest.mark.parametrize("make", [es, ars])
def test_equal_seeds_give_equal_bits_with_any_number_of_workers_and_environments(make):
    expected = state_after(4, make(seed=7))
    assert expected == state_after(4, make(seed=7, num_envs=3))
    assert expected == state_after(4, make(seed=7, num_workers=1, num_envs=2))
    assert expected == state_after(4, make(seed=7, num_workers=2, num_envs=5))
    assert expected != state_after(4, make(seed=8))


def test_workers_share_one_table():
    with es(num_workers=2).build() as algo:
        tables = algo.workers.foreach_worker(lambda worker: worker.noise.values.tobytes())
        assert tables == [algo.noise.values.tobytes()] * 2
        writable = algo.workers.foreach_worker(lambda worker: worker.noise.values.flags.writeable)
        assert not any(writable), "they look at the store's memory, and keep no copy"


def test_result_counts_what_happened():
    with es(CountingEnv, env_config={"lengths": [5]}, eval_prob=0.5).build() as algo:
        results = [algo.train() for _ in range(3)]
    result = results[-1]
    info = result["info"]
    assert {"weights_norm", "grad_norm", "update_ratio"} <= info.keys()
    assert [r["info"]["episodes_this_iter"] for r in results] == [20, 20, 20]
    assert info["episodes_so_far"] == 60
    assert result["num_env_steps_trained"] == 60 * 5
    assert result["timesteps_total"] == 60 * 5 + result["episodes_total"] * 5
    assert result["episodes_total"] > 0
    assert info["learner"]["default_policy"]["learner_stats"]["grad_norm"] == info["grad_norm"]
    assert result["timers"]["sample_time_ms"] > 0


def test_a_batch_meets_both_of_its_minima():
    with es(CountingEnv, env_config={"lengths": [5]}, train_batch_size=330, eval_prob=0.0).build() as algo:
        result = algo.train()
    assert result["num_env_steps_trained"] == 330
    assert result["info"]["episodes_this_iter"] == 66


class SumOfActions(gymnasium.Env):
    """Ten steps, reward = action: theta = 0 gives exactly 0, any noise something else."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, config=None):
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), float(action[0]), self.t == 10, False, {}


def test_reported_rewards_are_those_of_the_weights_without_any_noise():
    # The observation is zero: a bias alone can act.
    biased = {"output_layer_use_bias": True}
    config = ars(SumOfActions, eval_prob=1.0, action_noise_std=0.5, offset=3.0, model=biased)
    with config.build() as algo:
        result = algo.train()  # its noiseless episodes are of the weights before the step: zero
        assert result["hist_stats"]["episode_reward"] and result["episode_reward_mean"] == 0.0
        expected = algo.evaluate(3)["episode_reward_mean"]
        assert expected != 0.0
        statistics = algo.train()["hist_stats"]["episode_reward"]
        assert statistics[-1] == pytest.approx(expected)


def test_reported_means_are_over_the_last_noiseless_episodes():
    with es(HundredReward, eval_prob=1.0, report_length=7).build() as algo:
        result = algo.train()
        assert len(result["hist_stats"]["episode_reward"]) == 7
        assert result["episode_reward_mean"] == 1000.0


class Regulator(gymnasium.Env):
    """x' = x + u, rewards -0.9^t (x^2 + u^2), from x = 1 or -1: the best u is -0.588403 x, at a cost of 1.588403."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, config=None):
        self.t, self.x = 0, 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.x = 0, float(self.np_random.choice([-1.0, 1.0]))
        return np.array([self.x], np.float32), {}

    def step(self, action):
        u = float(action[0])
        reward = -(0.9**self.t) * (self.x**2 + u**2)
        self.x, self.t = self.x + u, self.t + 1
        return np.array([self.x], np.float32), reward, self.t == 20, False, {}


def test_ars_uses_all_directions_where_there_are_fewer_than_rollouts_used():
    fewer = ARSConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0).training(num_rollouts=10, **SMALL)
    given = fewer.copy().training(rollouts_used=10)
    assert state_after(1, fewer.debugging(seed=3)) == state_after(1, given.debugging(seed=3))


def test_ars_reaches_the_riccati_cost():
    config = ars(Regulator, num_rollouts=8, rollouts_used=8, num_envs=16, sgd_stepsize=0.01, eval_prob=0.0).rollouts(
        observation_filter="NoFilter"
    )
    with config.build() as algo:
        for _ in range(300):
            algo.train()
        assert algo.evaluate(20)["episode_reward_mean"] == pytest.approx(-1.588403, rel=0.01)
        action = algo.compute_single_action(np.array([1.0], np.float32))
        assert float(action[0]) == pytest.approx(-0.588403, abs=0.05)


def test_es_climbs_the_regulators_cost_too():
    config = es(Regulator, model={"fcnet_hiddens": []}, l2_coeff=0.0, stepsize=0.02, eval_prob=0.0, num_envs=16)
    with config.rollouts(observation_filter="NoFilter").build() as algo:
        for _ in range(150):
            algo.train()
        assert algo.evaluate(20)["episode_reward_mean"] == pytest.approx(-1.588403, rel=0.03)


@pytest.mark.parametrize("make", [es, ars])
def test_a_probe_is_solved(make):
    training = {"num_rollouts": 32, "rollouts_used": 32} if make is ars else {"episodes_per_batch": 64}
    with make(MatchObservation, num_envs=16, eval_prob=0.0, noise_stdev=0.1, **training).build() as algo:
        for _ in range(40):
            algo.train()
        assert algo.evaluate(50)["episode_reward_mean"] == 1.0


def test_ars_is_linear_and_its_earlier_checkpoints_have_a_bias(tmp_path):
    with ars().build() as algo:
        named = algo.policy.layout.named_parameters(algo.policy.weights)
        assert "policy.head.weight" in named and "policy.head.bias" not in named
    with ars(model={"output_layer_use_bias": True}).build() as algo:
        algo.train()
        state, weights = algo.get_state(), algo.policy.weights.copy()
    del state["config.json"]["model"]["output_layer_use_bias"]
    with Algorithm.from_checkpoint(write_checkpoint(tmp_path / "saved", state)) as algo:
        np.testing.assert_array_equal(algo.policy.weights, weights)
        assert "policy.head.bias" in algo.policy.layout.named_parameters(weights)


@pytest.mark.parametrize("make", [es, ars])
def test_a_checkpoint_holds_all_that_is_needed(make, tmp_path):
    """Three iterations, saved and restored, and three more are six; the restored policy plays the same."""
    expected = state_after(6, make(seed=3))
    with make(seed=3).build() as algo:
        for _ in range(3):
            algo.train()
        path = algo.save(tmp_path / "checkpoint")
        statistics = algo.policy.filter.get_state()
        before = algo.evaluate(10)["hist_stats"]
    restored = Algorithm.from_checkpoint(path)
    try:
        assert statistics["count"] > 0
        for name, array in restored.policy.filter.get_state().items():
            np.testing.assert_array_equal(array, statistics[name])
        assert restored.evaluate(10)["hist_stats"] == before
        results = [restored.train() for _ in range(3)]
        assert restored.policy.weights.tobytes() == expected[0]
        assert results[-1]["hist_stats"] == expected[3]
        assert results[0]["info"]["episodes_this_iter"] == (20 if make is es else 8)
    finally:
        restored.stop()


@pytest.mark.parametrize("victims", [1, 2])
def test_killed_workers_change_nothing(victims):
    """kill -9 of one worker, and of all, in the midst of an iteration: goes on, and with the very same weights."""
    slow = {"seconds": 0.002, "length": 20}
    small = {"num_envs": 2, "env_config": slow, "episodes_per_batch": 30, "eval_prob": 0.1}
    expected = state_after(2, es(SleepEnv, num_workers=2, **small))
    with es(SleepEnv, num_workers=2, **small).build() as algo:
        algo.train()
        pids = algo.workers.foreach_worker(lambda worker: os.getpid())[:victims]
        killer = psutil.Popen(["sh", "-c", f"sleep 0.1; kill -9 {' '.join(map(str, pids))}"])
        started = time.monotonic()
        result = algo.train()
        killer.wait(timeout=10)
        assert time.monotonic() - started < 30
        assert algo.policy.weights.tobytes() == expected[0]
        assert result["num_remote_worker_restarts"] == victims
        assert result["num_healthy_workers"] == 2


def test_without_restart_a_death_ends_the_run_with_its_reason():
    with es(num_workers=2).fault_tolerance(recreate_failed_workers=False).build() as algo:
        os.kill(algo.workers.foreach_worker(lambda worker: os.getpid())[0], signal.SIGKILL)
        with pytest.raises(ActorDiedError, match=r"(?i)sigkill"):
            algo.train()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (lambda: es(noise_size=20), "noise_size=20 must be at least the number of the network's weights"),
        (lambda: es(noise_size=10**13), "noise_size=10000000000000 needs 37252.9 GiB"),
        (lambda: es(lr=0.1), "lr=0.1: the step size is stepsize"),
        (lambda: es(grad_clip=0.5), "grad_clip=0.5: the returns are scaled"),
        (lambda: es(gamma=0.9), "gamma=0.9: whole episodes"),
        (lambda: ars(opt_type="rmsprop", momentum=0.9), "(?s)opt_type='rmsprop': ES steps by Adam.*momentum=0.9: "),
        (lambda: ars(train_batch_size=500), "train_batch_size=500: an update is of num_rollouts"),
        (lambda: es(noise_stdev=0.0), "noise_stdev"),
        (lambda: ars(noise_stdev=float("inf")), "noise_stdev=inf must be a number > 0 and finite"),
        (lambda: es(eval_prob=1.5), "eval_prob"),
        (lambda: es(episodes_per_batch=1), "episodes_per_batch"),
        (lambda: es(return_proc_mode="ranks"), "return_proc_mode"),
        (lambda: es(lambda config: gymnasium.make_vec("CartPole-v1", num_envs=8)), "VectorEnv"),
    ],
)
def test_what_cannot_be_served_is_refused_by_build(config, message):
    with pytest.raises((ValueError, TypeError), match=message):
        config().build()


def test_defaults_are_rays():
    es_config, ars_config = ESConfig(), ARSConfig()
    assert (es_config.stepsize, es_config.noise_stdev, es_config.action_noise_std) == (0.01, 0.02, 0.01)
    assert (es_config.l2_coeff, es_config.episodes_per_batch, es_config.train_batch_size) == (0.005, 1000, 10_000)
    assert (es_config.eval_prob, es_config.noise_size, es_config.report_length) == (0.03, 250_000_000, 10)
    assert (es_config.num_rollout_workers, es_config.observation_filter) == (10, "MeanStdFilter")
    assert es_config.return_proc_mode == "centered_rank"
    assert (ars_config.sgd_stepsize, ars_config.noise_stdev, ars_config.num_rollouts) == (0.01, 0.02, 32)
    assert (ars_config.rollouts_used, ars_config.num_rollout_workers) == (32, 2)
    assert ars_config.observation_filter == "MeanStdFilter"


@pytest.mark.parametrize(("name", "settings"), [("ES", ("episodes_per_batch=10", "train_batch_size=1")), ("ARS", ())])
def test_the_command_line_trains_it(name, settings, tmp_path):
    command = [sys.executable, "-m", "rllib", "train", name, "CartPole-v1", "--defaults", "noise_size=50000", *settings]
    command += ["num_rollout_workers=1", "model.fcnet_hiddens=[4]", "--stop", "training_iteration=2", "--seed", "1"]
    environment = {**os.environ, "PYTHONPATH": str(TUNED.parent)}
    finished = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "after 2 iterations" in finished.stdout


def test_step_sizes_follow_schedules():
    """At the end of the line nothing moves any more."""
    ended = {"type": "linear", "initial": 0.1, "final": 0.0, "timesteps": 1}
    for config in (ars(sgd_stepsize=ended), es(stepsize=ended)):
        with config.build() as algo:
            before = algo.policy.weights.copy()
            algo.train()
            np.testing.assert_array_equal(algo.policy.weights, before)
