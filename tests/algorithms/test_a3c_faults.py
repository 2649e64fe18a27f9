"""Workers of A3C that die or are slow while gradients are under way: the others go on."""

import os
import signal

import pytest

from rllib import A3CConfig
from runtime.errors import ActorDiedError
from tests.algorithms.algorithm_support import train_until, worker_pids
from tests.envs import SleepEnv


def config(env="CartPole-v1", num_workers=2, **env_config) -> A3CConfig:
    return (
        A3CConfig()
        .environment(env, env_config=env_config)
        .rollouts(num_rollout_workers=num_workers, num_envs_per_worker=2)
        .training(model={"fcnet_hiddens": [16]})
        .reporting(min_time_s_per_iteration=0.2)
        .debugging(seed=11)
    )


@pytest.mark.parametrize("how_many", [1, 3])
def test_killed_workers_are_replaced(how_many):
    """With SleepEnv every worker is within a request when it dies."""
    with config(SleepEnv, num_workers=3, seconds=0.002).build() as algo:
        algo.train()
        before = worker_pids(algo)
        trained = algo.train()["num_env_steps_trained"]
        for pid in before[:how_many]:
            os.kill(pid, signal.SIGKILL)
        train_until(algo, lambda result: result["num_remote_worker_restarts"] >= how_many)
        result = algo.train()
        assert result["num_env_steps_trained"] > trained
        assert result["num_healthy_workers"] == 3
        assert set(worker_pids(algo)).isdisjoint(before[:how_many])


@pytest.mark.parametrize("how_many", [1, 2])
def test_without_restart_a_death_ends_the_run_with_its_reason(how_many):
    with config().fault_tolerance(recreate_failed_workers=False).build() as algo:
        algo.train()
        for pid in worker_pids(algo)[:how_many]:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(ActorDiedError, match=r"(?i)sigkill"):
            train_until(algo)


def test_nothing_waits_for_a_slow_worker():
    """A fragment of the slow worker takes 10 x 2 x 1 s; the fast one goes on meanwhile."""
    twelve = {"min_train_timesteps_per_iteration": 12 * 20}
    with config(SleepEnv, seconds=1.0, worker_index=2).reporting(**twelve).build() as algo:
        result = algo.train()
        assert result["time_this_iter_s"] < 15
        assert result["info"]["learner"]["default_policy"]["num_grad_updates_lifetime"] >= 12
