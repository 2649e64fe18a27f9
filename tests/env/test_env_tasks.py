"""Tasks of environments, set by env_task_fn after every iteration."""

import os
import signal
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from rllib import ESConfig, PPOConfig
from rllib.config.conflicts import SettingsError
from rllib.env import TaskSettableEnv
from rllib.env.factories.settable_tasks import set_next_task, summary_of

SPACE = gymnasium.spaces.Box(0, 100, (1,))


class Levels(TaskSettableEnv):
    """Ends after as many steps as its level says."""

    observation_space = SPACE
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config=None):
        self.level, self.at = 1, 0

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.at += 1
        return np.full(1, self.at, np.float32), 1.0, self.at >= self.level, False, {}

    def get_task(self):
        return self.level

    def set_task(self, task):
        self.level = task


def config_of(env, task_fn, num_workers=0):
    config = PPOConfig().environment(env, env_task_fn=task_fn)
    config.rollouts(num_rollout_workers=num_workers, num_envs_per_worker=2, rollout_fragment_length=20)
    return config.training(train_batch_size=40, sgd_minibatch_size=40, num_sgd_iter=1)


def next_level(result, env, context):
    assert context.vector_index in (0, 1)
    return env.get_task() + (result["episode_len_mean"] >= env.get_task())


@pytest.mark.parametrize("num_workers", [0, 1])
def test_environments_get_the_task_that_the_function_chooses(num_workers):
    with config_of(Levels, next_level, num_workers).build() as algo:
        algo.train()
        assert algo.workers.foreach_env(lambda env: env.unwrapped.get_task()) == [[2, 2]]
        algo.train()
        assert algo.train()["episode_len_mean"] > 1


@pytest.mark.parametrize("num_workers", [0, 1])
def test_results_have_the_task_and_checkpoints_restore_it(num_workers, tmp_path):
    config = config_of(Levels, by_two, num_workers)
    with config.build() as algo:
        assert [algo.train()["env_task"] for _ in range(3)] == [1, 3, 5]
        checkpoint = algo.save(tmp_path / "checkpoint")
    with config.copy(copy_frozen=False).build() as algo:
        algo.restore(checkpoint)
        assert algo.workers.foreach_env(lambda env: env.unwrapped.level) == [[7, 7]]
        result = algo.train()
        # Two environments with 20 steps each end two episodes of 7 steps.
        assert result["env_task"] == 7 and result["episodes_this_iter"] == 4
        assert result["hist_stats"]["episode_lengths"][-4:] == [7] * 4, "from the first episode on"


def by_two(result, env, context):
    return env.get_task() + 2


class Rounds(Levels):
    """Ends after four steps; shows the level that it was reset with."""

    def reset(self, *, seed=None, options=None):
        self.shown, self.steps = self.level, 0
        return np.full(1, self.shown, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(1, self.shown, np.float32), float(action), self.steps == 4, False, {}


@pytest.mark.parametrize(
    ("algorithm", "num_workers", "every"),
    [("PPO", 0, 3), ("PPO", 1, 3), ("ES", 0, 1)],
    ids=["PPO", "PPO with a worker", "ES, with each result"],
)
def test_a_run_whose_last_result_changed_no_task_continues_exactly_or_any_of_es(
    tmp_path, algorithm, num_workers, every
):
    def level_of_time(result, env, context):
        return result["training_iteration"] // every

    if algorithm == "PPO":
        config = config_of(Rounds, level_of_time, num_workers)
    else:
        config = ESConfig().environment(Rounds, env_task_fn=level_of_time).rollouts(num_rollout_workers=num_workers)
        config.training(episodes_per_batch=4, train_batch_size=16, noise_size=100_000)
    with config.debugging(seed=3).training(model={"fcnet_hiddens": [8]}).build() as algo:
        for _ in range(2):
            algo.train()
        path, tasks, weights = algo.save(tmp_path), [], []
        for _ in range(2):
            tasks.append(algo.train()["env_task"])
            weights.append(algo.get_weights()["default_policy"].copy())
    assert tasks == [2 // every, 3 // every]
    with type(algo).from_checkpoint(path, {"env_task_fn": level_of_time}) as algo:
        for task, vector in zip(tasks, weights):
            assert algo.train()["env_task"] == task
            np.testing.assert_array_equal(algo.get_weights()["default_policy"], vector)


def test_a_run_with_more_environments_gets_the_tasks_of_fewer(tmp_path):
    with config_of(Levels, lambda result, env, context: 4 + context.vector_index).build() as algo:
        algo.train()
        assert algo.train()["env_task"] == 4.5, "the mean of different ones"
        checkpoint = algo.save(tmp_path / "checkpoint")
    more = config_of(Levels, by_two).rollouts(num_envs_per_worker=5).training(train_batch_size=100)
    with more.build() as algo:
        algo.restore(checkpoint)
        assert algo.workers.foreach_env(lambda env: env.unwrapped.level) == [[4, 5, 4, 5, 4]]


def test_tasks_that_are_no_data_are_left_out_of_checkpoints(tmp_path, caplog):
    with config_of(Levels, lambda result, env, context: Level(3)).build() as algo:
        algo.train()
        checkpoint = algo.save(tmp_path / "checkpoint")
    assert "checkpoints leave out the tasks of environments, which are no plain values" in caplog.text
    assert not (checkpoint / "env_tasks.json").exists()
    with config_of(Levels, by_two).build() as algo:
        algo.restore(checkpoint)
        assert algo.train()["env_task"] == 1


def test_a_worker_that_is_replaced_goes_on_with_the_present_tasks():
    with config_of(Levels, by_two, num_workers=1).fault_tolerance(recreate_failed_workers=True).build() as algo:
        algo.train()
        algo.train()
        (victim,) = algo.workers.foreach_worker(lambda worker: os.getpid())
        os.kill(victim, signal.SIGKILL)
        result = algo.train()
        assert result["fault_tolerance"]["num_remote_worker_restarts"] == 1
        assert result["hist_stats"]["episode_lengths"][-result["episodes_this_iter"] :] == [5] * 8
        assert algo.workers.foreach_env(lambda env: env.unwrapped.level) == [[7, 7]]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_environment_that_is_replaced_goes_on_with_its_task(mode, tmp_path, caplog):
    config = config_of(RaisesOnceAtLevel3, by_two).environment(env_config={"marker": str(tmp_path / "raised")})
    config.fault_tolerance(restart_failed_sub_environments=True)
    with config.rollouts(gym_env_vectorize_mode=mode).build() as algo:
        algo.train()
        result = algo.train()
        assert "it is replaced by a new one" in caplog.text
        assert set(result["hist_stats"]["episode_lengths"][-result["episodes_this_iter"] :]) == {3}
        assert algo.workers.foreach_env(lambda env: env.unwrapped.get_task()) == [[5, 5]]


class RaisesOnceAtLevel3(Levels):
    """One of its instances fails in the middle of an episode."""

    def __init__(self, config):
        super().__init__()
        self.marker = Path(config["marker"])

    def step(self, action):
        if self.level == 3 and self.at == 1 and not self.marker.exists():
            self.marker.touch()
            raise RuntimeError("it fails")
        return super().step(action)


class Level(int):
    """A level that is no plain number."""


def test_a_level_in_env_config_is_what_a_scheduler_changes(tmp_path):
    """Population-based training restores a checkpoint under a changed env_config, whose level then holds."""

    def level(result, env, context):
        return context["level"]

    config = config_of(Levels, level).environment(env_config={"level": 3})
    with config.build() as algo:
        algo.train()
        checkpoint = algo.save(tmp_path / "checkpoint")
    with config.copy(copy_frozen=False).environment(env_config={"level": 8}).build() as algo:
        algo.restore(checkpoint)
        algo.train()
        assert algo.train()["env_task"] == 8


@pytest.mark.parametrize(
    ("tasks", "summary"),
    [([[2, 2], [2]], 2), ([[1], [2]], 1.5), ([["a", "b"]], ["a", "b"]), ([["a"], ["a"]], "a"), ([[]], None)],
)
def test_the_tasks_of_all_environments_are_one_value(tasks, summary):
    assert summary_of(tasks) == summary


def test_tasks_that_cannot_be_compared_are_set():
    env, goal = Levels(), {"goal": np.zeros(2)}
    env.set_task(goal)
    set_next_task(lambda result, env, context: {"goal": np.ones(2)}, {}, env, None)
    np.testing.assert_array_equal(env.get_task()["goal"], np.ones(2))


def test_wrapped_environments_have_tasks_too():
    config = config_of(Levels, next_level).environment(env_wrappers=[{"TimeLimit": {"max_episode_steps": 50}}])
    with config.build() as algo:
        algo.train()
        assert algo.workers.foreach_env(lambda env: env.unwrapped.level) == [[2, 2]]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_environment_without_tasks_is_refused_at_build(num_workers):
    with pytest.raises(SettingsError, match=r"but CartPoleEnv has none\. Derive it from rllib\.env\.Task") as raised:
        config_of("CartPole-v1", next_level, num_workers).build()
    assert raised.value.mistakes[0].remedies == ({"env_task_fn": None},)


def test_tasks_need_an_environment():
    config = PPOConfig().environment(observation_space=SPACE, action_space=SPACE, env_task_fn=next_level)
    with pytest.raises(ValueError, match=r"env_task_fn=.* needs env, but env=None"):
        config.build()


def test_the_base_says_what_is_to_be_written():
    for name, given in (("sample_tasks", (2,)), ("get_task", ()), ("set_task", (1,))):
        with pytest.raises(NotImplementedError, match=f"TaskSettableEnv needs a method {name}"):
            getattr(TaskSettableEnv(), name)(*given)
