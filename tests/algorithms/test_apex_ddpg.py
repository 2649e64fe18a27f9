"""Ape-X DDPG: what workers send, settings, learning, restoring, processes that die. Its mechanism: test_apex_dqn.py."""

import os
import signal

import gymnasium as gym
import numpy as np
import pytest

from rllib import ApexDDPGConfig
from rllib import sample_batch as sb
from rllib.algorithms.base.registry import get_algorithm_class
from tests.algorithms.algorithm_support import learner_stats, shard_pids, train_until, worker_pids


class Reach(gym.Env):
    """Episodes of `length` steps; each reward is -(a / bound - o)^2."""

    def __init__(self, config):
        self.bound, self.length = config.get("bound", 2.0), config.get("length", 1)
        self.observation_space = gym.spaces.Box(-1, 1, (1,))
        self.action_space = gym.spaces.Box(-self.bound, self.bound, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._next(), {}

    def _next(self):
        self.goal = self.np_random.uniform(-0.8, 0.8, 1).astype(np.float32)
        return self.goal

    def step(self, action):
        assert self.action_space.contains(action)
        reward, self.t = -float((action[0] / self.bound - self.goal[0]) ** 2), self.t + 1
        return self._next(), reward, self.t == self.length, False, {}


class Unbounded(Reach):
    def __init__(self, config):
        super().__init__(config)
        self.action_space = gym.spaces.Box(-np.inf, np.inf, (1,))


def config(env=Reach, num_workers=2, fragment=20, explored=None, env_config=None, **training) -> ApexDDPGConfig:
    defaults = {
        "train_batch_size": 32,
        "num_steps_sampled_before_learning_starts": 200,
        "target_network_update_freq": 0,
        "tau": 0.02,
        "training_intensity": 8,
        "replay_buffer_config": {"capacity": 5000},
        "num_replay_buffer_shards": 2,
        "max_weight_sync_delay": 40,
        "model": {"fcnet_hiddens": [16, 16]},
        "lr": 3e-3,
    }
    return (
        ApexDDPGConfig()
        .environment(env, env_config=env_config or {})
        .rollouts(num_rollout_workers=num_workers, rollout_fragment_length=fragment)
        .training(**{**defaults, **training})
        .exploration(exploration_config={"random_timesteps": 100, **(explored or {})})
        .reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=200)
        .fault_tolerance(delay_between_worker_restarts_s=0.1)
        .debugging(seed=11)
    )


def learned_more(algo, rows=1000):
    """Trains until the learner has processed more than `rows` further rows."""
    trained = algo.metrics.counters["num_env_steps_trained"]
    return train_until(algo, lambda result: result["num_env_steps_trained"] > trained + rows)


@pytest.mark.parametrize("parts", [{}, {"twin_q": True, "use_huber": True, "n_step": 1}], ids=str)
def test_rows_come_with_the_errors_of_the_workers_weights(parts):
    """Those that the learner has as long as its target copies are equal to what they copy."""
    with config(num_workers=0, env_config={"length": 7}, gamma=0.9, **parts).build() as algo:
        batch = algo.sample(60)
        errors = batch[sb.TD_ERRORS].copy()
        batch[sb.WEIGHTS] = np.ones(batch.count, np.float32)
        stats = algo.trainee.learn_from(batch, actor_lr=0.0, critic_lr=0.0)
        np.testing.assert_allclose(errors, stats["td_error"], rtol=1e-4, atol=1e-5)
        assert np.ptp(errors) > 0.01


def test_workers_judge_by_the_critics_of_their_snapshot():
    with config(num_workers=1).build() as algo:
        learned_more(algo, 500)
        (version,) = algo.workers.foreach_worker(lambda worker: worker.policy_version)
        (critics,) = algo.workers.foreach_worker(lambda worker: worker.policy.modules["critics"].copy())
        assert version > 0 and critics.shape == algo.learner.vector["critics"].shape
        assert np.abs(critics - algo.learner.vector["critics"]).max() < 1


def test_priorities_of_workers_can_be_left_out():
    """Then new rows get the largest priority so far, and workers get the actor alone."""
    replay = {"capacity": 5000, "worker_side_prioritization": False}
    with config(replay_buffer_config=replay).build() as algo:
        algo.train()
        assert algo.snapshot().modules is None
        state = algo.replay.get_state()
        priorities = np.concatenate([state[f"{shard}.priorities"] for shard in range(2)])
        assert len(priorities) > 100 and (priorities == 1).mean() > 0.3


@pytest.mark.parametrize("twin_q", [False, True])
def test_it_solves_a_probe(twin_q):
    """The action is the observation times the bound. With two critics and delayed updates it is an Ape-X TD3."""
    more = {"twin_q": True, "policy_delay": 2, "smooth_target_policy": True} if twin_q else {}
    explored = {"random_timesteps": 400, "ou_base_scale": 1.0}
    with config(explored=explored, gamma=0.9, **more).build() as algo:
        observations = np.linspace(-0.7, 0.7, 9, dtype=np.float32)[:, None]

        def is_near(result):
            actions = [algo.compute_single_action(each, explore=False) for each in observations]
            return np.abs(np.stack(actions) / 2.0 - observations).mean() < 0.1

        result = train_until(algo, is_near)
        stats = learner_stats(result)
        assert {"critic_loss", "actor_loss", "cur_actor_lr", "rows_trained_per_step_sampled"} <= stats.keys()
        assert result["info/replay"]["num_shards"] == 2


@pytest.mark.parametrize(
    ("env", "training", "message"),
    [
        ("CartPole-v1", {}, r"ApexDDPG is for continuous actions, .* Discrete\(2\)\. Use ApexDQN for Discrete"),
        (Unbounded, {}, "ApexDDPG squashes actions into their bounds, but .* is not bounded"),
        (Reach, {"replay_buffer_config": {"capacity": 100}}, "capacity=100 is below num_steps_sampled_before_learning"),
        (Reach, {"replay_buffer_config": {"capacity": 10**13}}, "GiB are free"),
        (Reach, {"num_replay_buffer_shards": 0}, "num_replay_buffer_shards=0 must be"),
        (Reach, {"replay_buffer_config": {"worker_side_prioritization": 1}}, "must be True or False"),
        (Reach, {"double_q": True}, "double_q"),
    ],
)
def test_what_does_not_fit_is_refused_at_build(env, training, message):
    with pytest.raises((ValueError, TypeError), match=message):
        config(env, **training).build()


def test_noise_of_values_is_refused():
    with pytest.raises(ValueError, match="PerWorkerEpsilonGreedy: it chooses among actions by their values"):
        config(explored={"type": "PerWorkerEpsilonGreedy"}).build()


def test_it_is_found_by_rays_name():
    assert get_algorithm_class("APEX_DDPG") is ApexDDPGConfig.algo_class


def restarts(result) -> int:
    return result["num_remote_worker_restarts"] + result["info/replay"]["num_shard_restarts"]


@pytest.mark.parametrize(("workers", "shards"), [(1, 0), (0, 1), (2, 1), (0, 2), (2, 2)])
def test_killed_processes_are_replaced(workers, shards):
    with config().build() as algo:
        learned_more(algo, 200)
        before = worker_pids(algo) + shard_pids(algo)
        killed = worker_pids(algo)[:workers] + shard_pids(algo)[:shards]
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        train_until(algo, lambda result: restarts(result) == len(killed))
        result = learned_more(algo)
        assert result["num_healthy_workers"] == 2 and result["info/replay"]["num_shards"] == 2
        assert set(before) - {*worker_pids(algo), *shard_pids(algo)} == set(killed)
        assert np.isfinite(algo.learner.weights).all()


def test_goes_on_from_a_checkpoint(tmp_path):
    with config(store_buffer_in_checkpoints=True, policy_delay=2).build() as algo:
        learned_more(algo, 500)
        state, path, rows = algo.get_state(), algo.save(tmp_path / "checkpoint"), len(algo.replay)
    with ApexDDPGConfig.algo_class.from_checkpoint(path) as other:
        restored = other.get_state()
        file = "policies/default_policy/learner.safetensors"
        for name, array in state[file].items():
            np.testing.assert_array_equal(restored[file][name], array, err_msg=name)
        assert restored["algorithm.json"]["state"] == state["algorithm.json"]["state"]
        assert len(other.replay) > 0.9 * rows
        learned_more(other, 500)
