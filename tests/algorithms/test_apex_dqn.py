"""Ape-X DQN: what workers send, settings, bounds, restoring, and processes that die."""

import logging
import os
import re
import signal
import time
from collections import Counter

import numpy as np
import pytest
from gymnasium.spaces import Box

from rllib import ApexDQNConfig
from rllib import sample_batch as sb
from rllib.algorithms.base.registry import get_algorithm_class, get_algorithm_config
from rllib.exploration.epsilon import worker_epsilon
from runtime.errors import ActorDiedError
from runtime.util.fleet import Member
from tests.algorithms.algorithm_support import learner_stats, shard_pids, train_until, worker_pids
from tests.envs import (
    ActionReward,
    BoundedAction,
    CountingEnv,
    InfiniteHorizon,
    ProbeFailure,
    RaisingEnv,
    SleepEnv,
    StackedCounting,
)
from tests.runtime.runtime_support import wait_until

pytestmark = pytest.mark.usefixtures("workers_know_the_module")


def config(env="CartPole-v1", num_workers=2, training=None, envs=1, fragment=20, **env_config) -> ApexDQNConfig:
    defaults = {
        "train_batch_size": 32,
        "num_steps_sampled_before_learning_starts": 200,
        "target_network_update_freq": 200,
        "training_intensity": 4,
        "replay_buffer_config": {"capacity": 5000},
        "num_replay_buffer_shards": 2,
        "model": {"fcnet_hiddens": [16]},
        "hiddens": [],
        "lr": 3e-3,
    }
    return (
        ApexDQNConfig()
        .environment(env, env_config=env_config)
        .rollouts(num_rollout_workers=num_workers, rollout_fragment_length=fragment, num_envs_per_worker=envs)
        .training(**{**defaults, **(training or {})})
        .reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=200)
        .fault_tolerance(delay_between_worker_restarts_s=0.1)
        .debugging(seed=11)
    )


class TestWhatWorkersSend:
    @pytest.mark.parametrize(
        "parts",
        [{}, {"num_atoms": 11, "v_min": -5.0, "v_max": 50.0}, {"dueling": False}, {"conservative_weight": 0.9}],
        ids=str,
    )
    def test_rows_are_windows_with_the_errors_of_the_workers_weights(self, parts):
        """Rewards are the steps' numbers, lengths 3, 5, 4: windows as of a loop, errors as the learner has them."""
        with config(CountingEnv, 0, {**parts, "n_step": 3, "gamma": 0.9}, fragment=60).build() as algo:
            batch = algo.sample(60)
            start, end = batch[sb.OBS][:, 0], batch[sb.NEXT_OBS][:, 0]
            length = end - start
            assert set(length.tolist()) == {1, 2, 3}
            expected = [sum(0.9**k * (s + 1 + k) for k in range(int(n))) for s, n in zip(start, length)]
            np.testing.assert_allclose(batch[sb.REWARDS], expected, rtol=1e-6)
            bootstrapped = batch[sb.DISCOUNTS] > 0
            np.testing.assert_allclose(batch[sb.DISCOUNTS][bootstrapped], 0.9 ** length[bootstrapped], rtol=1e-6)
            # Ends in turn: terminated, truncated (bootstrapped with gamma^k), both. The fragment has five of each.
            assert set(end[~bootstrapped].tolist()) == {3, 4}
            assert 5 in end[bootstrapped]
            # With a target network that equals the weights, the learner's errors are the same.
            batch[sb.WEIGHTS] = np.ones(60, np.float32)
            algo.trainee.add_targets(batch)
            errors = algo.learner.update(batch, rng=np.random.default_rng(0), lr=0.0, shuffle=False)["td_error"]
            np.testing.assert_allclose(batch[sb.TD_ERRORS], errors, rtol=1e-4, atol=1e-5)

    def test_each_worker_has_its_epsilon(self):
        with config(
            InfiniteHorizon, 3, {"num_steps_sampled_before_learning_starts": 4000}, fragment=800
        ).build() as algo:
            algo.train()
            epsilons = algo.workers.foreach_worker(lambda worker: worker.explored_by()["epsilon"])
            assert epsilons == pytest.approx([0.4, 0.4**4.5, 0.4**8])
            taken = [rows[sb.ACTIONS] for rows in algo.workers.foreach_worker(lambda worker: worker.sample()[0])]
            # The observation never changes: whatever differs from the greedy action was chance.
            greedy = int(algo.compute_single_action(np.zeros(1, np.float32), explore=False))
            by_chance = [np.mean(actions != greedy) for actions in taken]
            assert by_chance[0] == pytest.approx(0.4 / 2, abs=0.05)
            assert by_chance[1] < 0.03 and by_chance[2] == 0

    def test_epsilons_are_those_of_the_paper(self):
        found = [worker_epsilon(i + 1, 8) for i in range(8)]
        np.testing.assert_allclose(found, [0.4 ** (1 + i) for i in range(8)], rtol=1e-12)
        assert worker_epsilon(1, 1) == 0.4


class TestSettings:
    def test_defaults_of_ray(self):
        config = get_algorithm_config("APEX")
        assert get_algorithm_class("apex").__name__ == "ApexDQN"
        expected = {
            "num_rollout_workers": 32, "rollout_fragment_length": 50, "n_step": 3, "train_batch_size": 512,
            "target_network_update_freq": 500_000, "training_intensity": 1, "num_replay_buffer_shards": 4,
            "num_steps_sampled_before_learning_starts": 50_000, "max_weight_sync_delay": 400, "lr": 5e-4,
            "max_requests_in_flight_per_sampler_worker": 2, "min_time_s_per_iteration": 30, "double_q": True,
            "min_sample_timesteps_per_iteration": 25_000, "exploration_config": {"type": "PerWorkerEpsilonGreedy"},
        }  # fmt: skip
        assert {name: config[name] for name in expected} == expected
        replay = config.replay_settings()
        assert replay["capacity"] == 2_000_000 and replay.has_priorities
        assert replay["prioritized_replay_alpha"] == 0.6 and replay["prioritized_replay_beta"] == 0.4

    @pytest.mark.parametrize(
        ("training", "message"),
        [
            ({"replay_buffer_config": {"capacity": 100}}, "capacity=100 is below num_steps_sampled_before_learning"),
            ({"replay_buffer_config": {"capacity": 10**13}}, "GiB are free"),
            (
                {"replay_buffer_config": {"capacity": 3}, "num_replay_buffer_shards": 4,
                 "num_steps_sampled_before_learning_starts": 0},
                "num_replay_buffer_shards=4: capacity is shared out",
            ),
            ({"replay_buffer_config": {"worker_side_prioritization": 1}}, "must be True or False"),
            ({"replay_buffer_config": {"frame_stack_axis": -1}}, r"have the shape \(4,\). Leave it at None"),
            ({"replay_buffer_config": {"size": 3}}, "there is no 'size'"),
            ({"num_replay_buffer_shards": 0}, "num_replay_buffer_shards=0 must be"),
            ({"max_requests_in_flight_per_replay_worker": 0}, "must be an integer >= 1"),
            ({"max_weight_sync_delay": 0}, "must be an integer >= 1"),
        ],
    )  # fmt: skip
    def test_refused_at_build(self, training, message):
        with pytest.raises(ValueError, match=message):
            config(training=training).build()

    def test_continuous_actions_are_refused(self):
        with pytest.raises(ValueError, match="ApexDQN learns the value of each action, so it needs a Discrete"):
            config(BoundedAction).build()

    def test_without_workers_it_says_so_and_learns(self, caplog):
        with caplog.at_level(logging.WARNING), config(ActionReward, 0).build() as algo:
            assert "num_rollout_workers=0 runs synchronously" in caplog.text
            # The shards are processes: how many updates an iteration has is not always the same.
            for _ in range(30):
                algo.train()
                values = algo.policy.action_values(np.zeros((1, 1), np.float32)).q_values()[0]
                if np.allclose(values, [-1, 1], atol=0.15):
                    return
            pytest.fail(f"the values of the two actions are {values}, not [-1, 1]")

    def test_worker_side_priorities_can_be_left_out(self):
        """Then new rows get the largest priority so far."""
        with config(training={"replay_buffer_config": {"worker_side_prioritization": False}}).build() as algo:
            assert algo.train()["num_env_steps_sampled"] >= 200
            state = algo.replay.get_state()
            priorities = np.concatenate([state[f"{shard}.priorities"] for shard in range(2)])
            assert len(priorities) > 100 and (priorities == 1).mean() > 0.3

    def test_stacked_frames_are_stored_once(self):
        sizes = []
        for axis in (-1, None):
            replay = {"replay_buffer_config": {"capacity": 5000, "frame_stack_axis": axis}}
            with config(StackedCounting, 2, replay, axis=-1).build() as algo:
                result = train_until(algo, lambda result: result["num_env_steps_trained"] > 500)
                sizes.append(result["info/replay"]["size_bytes"])
        assert sizes[0] < 0.4 * sizes[1]

    def test_shards_that_frames_fill_before_their_rows_are_learned_from(self):
        """Episodes of two steps have four frames more than steps, so a shard never holds `capacity` rows."""
        training = {
            "replay_buffer_config": {"capacity": 400, "frame_stack_axis": 0},
            "num_steps_sampled_before_learning_starts": 400,
        }
        with config(ShortStacks, 0, training).build() as algo:
            for _ in range(4):
                result = algo.train()
            assert len(algo.replay) < 400 < result["timesteps_total"]
            assert learner_stats(result)["rows_trained_per_step_sampled"] == pytest.approx(4, rel=0.3)


class ShortStacks(StackedCounting):
    """Episodes of two steps whose numbers are all different."""

    first = 0

    def __init__(self, config):
        super().__init__({"axis": 0})
        self.observation_space = Box(0, 1e6, self.observation_space.shape)

    def reset(self, *, seed=None, options=None):
        self.first += 7
        self.t = 0
        return self.stack(range(self.first, self.first + 4)), {}

    def step(self, action):
        self.t += 1
        first = self.first + self.t
        return self.stack(range(first, first + 4)), 1.0, self.t == 2, False, {}


class TestLearning:
    def test_infinite_horizon(self):
        """P6: truncation is bootstrapped with gamma^k, V = 1 / (1 - gamma)."""
        training = {"gamma": 0.8, "lr": 0.01, "training_intensity": 16, "max_weight_sync_delay": 40}
        with config(InfiniteHorizon, 2, training, length=10).build() as algo:
            for _ in range(20):
                algo.train()
            values = algo.policy.action_values(np.zeros((1, 1), np.float32)).q_values()[0]
            np.testing.assert_allclose(values, 5, atol=0.3)

    @pytest.mark.parametrize("intensity", [0.5, 4])
    def test_sampling_and_learning_keep_to_their_ratio(self, intensity):
        with config(training={"training_intensity": intensity}).build() as algo:
            first = train_until(algo, lambda result: result["num_env_steps_trained"])
            owed = []
            for _ in range(15):
                result = algo.train()
                owed.append(result["num_env_steps_sampled"] * intensity - result["num_env_steps_trained"])
            # What is owed at most, an update, and what may arrive in one go: two fragments of two workers.
            assert max(owed) - min(owed) <= 8 * 32 + 32 + 4 * 20 * intensity
            sampled, trained = (
                result[name] - first[name] for name in ("num_env_steps_sampled", "num_env_steps_trained")
            )
            assert trained / sampled == pytest.approx(intensity, rel=0.35)
            told = learner_stats(result)["rows_trained_per_step_sampled"]
            # Of the steps that have made updates due: those before a shard has answered have made none.
            trained = result["num_env_steps_trained"]
            due = trained + algo.trainee.updates_owed * algo.config.train_batch_size
            assert told == pytest.approx(intensity * trained / due)

    def test_without_a_ratio_nobody_waits(self):
        with config(SleepEnv, training={"training_intensity": None}, seconds=0.006).build() as algo:
            for _ in range(2):
                result = algo.train()
            assert learner_stats(result)["rows_trained_per_step_sampled"] > 4

    def test_noise_in_the_weights_takes_the_place_of_epsilon(self):
        parts = {"noisy": True, "hiddens": [16], "num_atoms": 11, "v_min": 0.0, "v_max": 50.0}
        with config(training=parts).build() as algo:
            result = algo.train()
            while "mean_td_error" not in learner_stats(result):  # on a busy machine the first updates come late
                result = algo.train()
            assert np.isfinite(learner_stats(result)["mean_td_error"])
            assert list(algo._counted_workers()) == [1, 2]  # private: results do not name the workers

    def test_what_is_reported(self):
        with config().build() as algo:
            for _ in range(5):
                result = algo.train()
            while "mean_td_error" not in learner_stats(result):
                result = algo.train()
        told = learner_stats(result)
        assert {"mean_q", "min_q", "max_q", "mean_td_error", "cur_lr", "total_loss"} <= told.keys()
        assert 0 <= told["policy_lag_mean"] <= told["policy_lag_max"] <= result["counters/num_updates"]
        replay = result["info/replay"]
        assert replay["num_shards"] == 2 and replay["num_shard_restarts"] == 0
        # As many as the shards have said to hold; they may have more to do.
        assert 200 <= replay["num_entries"] <= result["timesteps_total"]
        assert replay["size_bytes"] == 2 * (2500 * (16 + 16 + 8 + 4 + 4) + 2 * 4096 * 8)
        assert result["num_in_flight_async_reqs"] <= 4

    def test_returns_are_of_the_workers_that_explore_least(self):
        """Two of four; the others' episodes are sampled, not counted."""
        with config(CountingEnv, 4, lengths=[10]).build() as algo:
            take, episodes = algo.workers.fleet.take, dict.fromkeys(range(1, 5), 0)

            def watched(timeout_s):
                answers = take(timeout_s)
                for index, (_, report), *_ in answers:
                    episodes[index] += len(report.episodes)
                return answers

            algo.workers.fleet.take = watched
            result = train_until(algo, lambda result: all(episodes.values()))
            assert result["episodes_total"] == episodes[3] + episodes[4]


class TestWhatIsInFlight:
    def test_weights_are_sent_anew_after_so_many_steps_of_a_worker(self):
        with config(training={"max_weight_sync_delay": 60, "training_intensity": 32}).build() as algo:
            versions: dict[int, list] = {1: [], 2: []}
            take = algo.workers.fleet.take

            def watched(timeout_s):
                answers = take(timeout_s)
                for index, (batch, _), *_ in answers:
                    assert batch.policy_version <= algo.num_updates
                    versions[index].append(batch.policy_version)
                return answers

            algo.workers.fleet.take = watched
            train_until(algo, lambda result: all(seen and seen[-1] > 50 for seen in versions.values()))
            for seen in versions.values():
                assert seen == sorted(seen)
                # Three fragments of 20 steps by the same weights, then newer ones.
                learning = [version for version in seen if version]
                assert all(learning.count(version) <= 3 for version in learning)

    def test_requests_and_samples_are_bounded(self, monkeypatch):
        with config(SleepEnv, 3, {"training_intensity": 100}, seconds=0.0).build() as algo:
            send = Member.send

            def watched(member, ref, tag=None):
                send(member, ref, tag)
                asked = Counter(tag for tag, _ in member.pending)
                assert asked["sample"] <= 2 and asked["add"] <= 16 and asked.total() <= 16 + 2 + 3

            monkeypatch.setattr(Member, "send", watched)
            for _ in range(3):
                algo.train()
                assert algo.workers.fleet.num_in_flight <= 6
                assert algo.trainee.updates_owed <= 8 + 6 * 20 * 100 / 32

    def test_a_slow_worker_does_not_hold_up_the_others(self):
        with config(SleepEnv, 3, seconds=1.0, worker_index=1).build() as algo:
            algo.train()
            started = time.monotonic()
            for _ in range(3):
                algo.train()
            assert time.monotonic() - started < 15  # it takes 20 s for a fragment of 20, the others milliseconds


class TestDeaths:
    @pytest.mark.parametrize("victims", [1, 2])
    def test_killed_workers_are_replaced(self, victims):
        """One of two, and both at once."""
        with config().build() as algo:
            for _ in range(3):
                algo.train()
            before = worker_pids(algo)
            for pid in before[:victims]:
                os.kill(pid, signal.SIGKILL)
            result = train_until(algo, lambda result: result["num_remote_worker_restarts"] == victims)
            trained = result["num_env_steps_trained"]
            result = train_until(algo, lambda result: result["num_env_steps_trained"] > trained + 1000)
            assert result["num_healthy_workers"] == 2
            assert len(set(worker_pids(algo)) - set(before)) == victims

    @pytest.mark.parametrize("victims", [1, 2])
    def test_a_killed_shard_is_replaced_and_its_rows_are_lost(self, victims, caplog):
        with config().build() as algo:
            for _ in range(5):
                algo.train()
            before = shard_pids(algo)
            for pid in before[:victims]:
                os.kill(pid, signal.SIGKILL)
            with caplog.at_level(logging.WARNING):
                result = train_until(algo, lambda result: result["info/replay"]["num_shard_restarts"] == victims)
            lost = [int(rows) for rows in re.findall(r"the (\d+) rows of replay shard \d are lost", caplog.text)]
            assert len(lost) == victims and sum(lost) > 0
            assert result["info/replay"]["num_entries"] <= result["num_env_steps_sampled"] - sum(lost)
            trained = result["num_env_steps_trained"]
            result = train_until(algo, lambda result: result["num_env_steps_trained"] > trained + 1000)
            assert result["info/replay"]["num_shards"] == 2
            assert len(set(shard_pids(algo)) - set(before)) == victims

    def test_everything_at_once(self):
        with config().build() as algo:
            for _ in range(3):
                algo.train()
            for pid in worker_pids(algo) + shard_pids(algo):
                os.kill(pid, signal.SIGKILL)
            result = train_until(
                algo,
                lambda result: (
                    result["num_remote_worker_restarts"] == 2 and result["info/replay"]["num_shard_restarts"] == 2
                ),
            )
            trained = result["num_env_steps_trained"]
            train_until(algo, lambda result: result["num_env_steps_trained"] > trained + 1000)

    def test_a_shard_that_falls_silent_is_replaced(self):
        with config().rollouts(sample_timeout_s=0.5).build() as algo:
            for _ in range(3):
                algo.train()
            os.kill(shard_pids(algo)[0], signal.SIGSTOP)
            train_until(algo, lambda result: result["info/replay"]["num_shard_restarts"] == 1)

    @pytest.mark.parametrize("of", [worker_pids, shard_pids])
    def test_without_restart_a_death_ends_the_run_with_its_reason(self, of):
        with config().fault_tolerance(recreate_failed_workers=False).build() as algo:
            algo.train()
            os.kill(of(algo)[0], signal.SIGKILL)
            with pytest.raises(ActorDiedError, match=r"(?i)sigkill"):
                train_until(algo)

    def test_a_shard_can_be_left_out(self):
        tolerance = {"recreate_failed_workers": False, "ignore_worker_failures": True}
        with config().fault_tolerance(**tolerance).build() as algo:
            algo.train()
            pids = shard_pids(algo)
            os.kill(pids[0], signal.SIGKILL)
            train_until(algo, lambda result: result["info/replay"]["num_shards"] == 1)
            os.kill(pids[1], signal.SIGKILL)
            with pytest.raises(ActorDiedError):
                train_until(algo)

    def test_a_failing_environment_ends_the_run_with_its_own_exception(self):
        with (
            config(RaisingEnv, step=500, worker_index=2).build() as algo,
            pytest.raises(ProbeFailure, match="step 500"),
        ):
            train_until(algo)


class TestRestoring:
    @pytest.mark.parametrize("with_rows", [False, True])
    def test_goes_on_from_a_checkpoint(self, with_rows, tmp_path):
        where = {"storage": "disk" if with_rows else "memory"}
        settings = config(training={"store_buffer_in_checkpoints": with_rows, "replay_buffer_config": where})
        with settings.build() as algo:
            for _ in range(4):
                algo.train()
            path, weights = algo.save(tmp_path / "checkpoint"), algo.get_weights()
            target = algo.trainee.target.weights.copy()
            rows = len(algo.replay)
        with settings.build() as other:
            other.restore(path)
            assert np.array_equal(other.get_weights()["default_policy"], weights["default_policy"])
            assert np.array_equal(other.trainee.target.weights, target)
            assert (len(other.replay) > 0.9 * rows) if with_rows else len(other.replay) == 0
            trained = other.metrics.counters["num_env_steps_trained"]
            train_until(other, lambda result: result["num_env_steps_trained"] > trained + 500)

    def test_restored_in_place(self, tmp_path):
        with config().build() as algo:
            algo.train()
            path = algo.save(tmp_path / "checkpoint")
            for _ in range(3):
                algo.train()
            algo.restore(path)
            steps = algo.timesteps
            assert algo.train()["timesteps_total"] >= steps + 200

    def test_stopped_means_that_no_process_is_left(self):
        algo = config().build()
        algo.train()
        pids = worker_pids(algo) + shard_pids(algo)
        algo.stop()
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
        algo.stop()
        with pytest.raises(RuntimeError, match="has been stopped"):
            algo.train()
