"""restart_failed_sub_environments: one environment of many raises, is replaced, and the others go on."""

from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rllib import PPOConfig
from rllib import sample_batch as sb
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.es import ESConfig
from rllib.algorithms.impala import IMPALAConfig
from tests.envs import CountingEnv, ProbeFailure, RaisingEnv
from tests.evaluation.test_rollout_worker import time_major, worker

# Steps (from 1) at which the first environment of slot 1 raises; what replaces it goes on.
FAILS_AT = 10
made = []


class FailsOnce(CountingEnv):
    """CountingEnv, of which the first one in slot 1 raises in step FAILS_AT; episodes of 6 steps by default."""

    def __init__(self, config):
        super().__init__({"lengths": [6], **config})
        self.steps = 0
        index = getattr(config, "vector_index", None)
        self.fails = index == 1 and index not in made
        made.append(index)

    def step(self, action):
        self.steps += 1
        if self.fails and self.steps == FAILS_AT:
            raise ProbeFailure("asked to fail once")
        return super().step(action)

    def close(self):
        made.append("closed")


@pytest.fixture(autouse=True)
def none_made():
    made.clear()


def sampled(fragment_length=30, **more):
    player = worker(FailsOnce, fragment_length=fragment_length, replace_failed_envs=True, **more)
    return player, *player.sample()


def test_the_failed_step_is_dropped_and_the_one_before_it_truncates(caplog):
    player, batch, report = sampled()
    assert report.num_faulty_episodes == 1
    assert report.env_steps == batch.count == 59
    assert "environment 1 of rollout worker 0 (FailsOnce) raised in step()" in caplog.text
    assert "asked to fail once" in caplog.text
    assert made.count(1) == 2 and "closed" in made
    # Rows are time-major: until the failed step two a step, then one, then two again.
    of_failing = np.r_[np.arange(1, 2 * (FAILS_AT - 1), 2), np.arange(2 * FAILS_AT, batch.count, 2)]
    rows = batch.rows(of_failing)
    np.testing.assert_array_equal(rows[sb.OBS][:14, 0], [*range(6), *range(3), *range(5)])
    assert rows[sb.TRUNCATEDS][8] and not rows[sb.TERMINATEDS][8]
    # One step of GAE: nothing of the new episode gets into the old one.
    value = player.policy.values(np.array([[3.0]], np.float32))[0]
    np.testing.assert_allclose(rows[sb.VALUE_TARGETS][8], rows[sb.REWARDS][8] + 0.9 * value, rtol=1e-5)
    assert [e.length for e in report.episodes if e.env_index == 0] == [6] * 5
    assert [e.length for e in report.episodes if e.env_index == 1] == [6] * 4, "the void episode of 3 steps is none"


def test_other_environments_see_nothing_of_it():
    _, batch, _ = sampled()
    whole, _ = worker(FailsOnce).sample()  # none fails: `made` has one of this slot
    mine = np.r_[np.arange(0, 2 * FAILS_AT, 2), np.arange(2 * FAILS_AT - 1, batch.count, 2)][:30]
    np.testing.assert_array_equal(batch[sb.OBS][mine], time_major(whole, sb.OBS)[:, 0])
    np.testing.assert_array_equal(batch[sb.ACTIONS][mine], time_major(whole, sb.ACTIONS)[:, 0])


@pytest.mark.parametrize("fragment_length", [FAILS_AT - 1, FAILS_AT])
def test_failures_at_the_edges_of_a_fragment(fragment_length):
    player, first, _ = sampled(fragment_length)
    second, _ = player.sample()
    assert first.count + second.count == 4 * fragment_length - 1
    assert np.isfinite(first[sb.ADVANTAGES]).all() and np.isfinite(second[sb.ADVANTAGES]).all()


def test_complete_episodes_are_truncated_where_an_environment_fails():
    _, batch, report = sampled(FAILS_AT - 1, complete_episodes=True)
    assert report.num_faulty_episodes == 1
    assert (batch[sb.TERMINATEDS] | batch[sb.TRUNCATEDS]).sum() == 4 + 1
    assert [e.length for e in report.episodes] == [6] * 4


def test_sequences_of_a_failed_environment_are_bootstrapped_from_its_last_observation():
    _, batch, _ = sampled(sequences=True)
    (t,) = np.flatnonzero(batch[sb.TRUNCATEDS] & (batch[sb.OBS][:, 0] == 2))
    assert batch[sb.LOSS_MASK][t] and not batch[sb.LOSS_MASK][t + 1]
    assert batch[sb.OBS][t + 1, 0] == 3


CONFIGS = {
    "PPO": lambda: PPOConfig().training(train_batch_size=128, sgd_minibatch_size=64, num_sgd_iter=1),
    "DQN": lambda: DQNConfig().training(n_step=3, num_steps_sampled_before_learning_starts=64, train_batch_size=16),
    "IMPALA": lambda: IMPALAConfig().training(train_batch_size=128),
    "ES": lambda: ESConfig().training(episodes_per_batch=8, train_batch_size=1, noise_size=100_000),
}


def config(name, env=RaisingEnv, **env_config):
    return (
        CONFIGS[name]()
        .environment(env, env_config=env_config)
        .rollouts(num_rollout_workers=0, num_envs_per_worker=2)
        .training(model={"fcnet_hiddens": [8]})
        .fault_tolerance(restart_failed_sub_environments=True)
        .debugging(seed=11)
    )


def test_a_perturbation_is_played_again():
    with config("ES", FailsOnce).build() as algo:
        result = algo.train()
        assert made.count(1) == 2
        assert result["timesteps_total"] == 8 * 6


@pytest.mark.parametrize("name", ["PPO", "DQN", "IMPALA"])
def test_algorithms_learn_on(name):
    with config(name, step=30, vector_index=1).build() as algo:
        result = algo.train()
        while result["timesteps_total"] < 256:
            result = algo.train()
        assert result["num_faulty_episodes"] > 0
        assert np.isfinite(algo.policy.weights).all()


def test_an_environment_that_fails_in_every_first_step_ends_the_run():
    with config("PPO", step=9, vector_index=1).build() as algo:
        algo.workers.local_worker().stream._remake = lambda index: RaisingEnv({"step": 1})
        with pytest.raises(ProbeFailure, match="step 1") as caught:
            algo.train()
        assert any("has failed 4 times in a row" in note for note in caught.value.__notes__)


def test_an_environment_that_fails_in_reset_is_replaced():
    with config("PPO", FailsInReset).build() as algo:
        result = algo.train()
        assert result["episodes_total"] > 2
        assert result["timesteps_total"] == 128, "every step was whole"


class FailsInReset(CountingEnv):
    """Raises in its fourth reset."""

    def reset(self, **kwargs):
        if self.episode == 2:
            raise ProbeFailure("asked to fail in reset")
        return super().reset(**kwargs)


def test_a_vector_environment_is_replaced_as_a_whole():
    def create(context):
        makers = [partial(RaisingEnv, {"step": 20 if index else None}) for index in range(context.num_envs)]
        return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.NEXT_STEP)

    with config("PPO", create).build() as algo:
        result = algo.train()
        assert result["num_faulty_episodes"] == 2 * (64 // 20)


def test_an_evaluation_plays_its_number_of_episodes():
    with config("PPO", FailsOnce).evaluation(evaluation_duration=4).build() as algo:
        made.clear()
        evaluation = algo.evaluate()
        assert evaluation["hist_stats"]["episode_lengths"] == [6] * 4
        assert made.count(1) == 2
