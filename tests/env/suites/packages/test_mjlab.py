"""mjlab's own tasks, on a CPU: its first step compiles for a minute."""

import pytest
import torch

from rllib import PPOConfig
from rllib.env import resolve
from rllib.env.factories.registry import EnvContext
from rllib.env.suites.labs import simulation

pytestmark = [pytest.mark.extras("mjlab"), pytest.mark.timeout(1200)]
TASK = "mjlab:Mjlab-Cartpole-Balance"


@pytest.fixture(autouse=True)
def closed():
    yield
    simulation.close_all()


def test_a_task_is_trained_with_its_critics_group():
    short = {
        "critic_group": "critic",
        "random_ages": True,
        "seed": 3,
        "device": "cpu",
        "cfg": {"episode_length_s": 1.0},
    }
    config = PPOConfig().environment(TASK, env_config=short, critic_observation_keys=["critic"])
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=4, rollout_fragment_length=24)
    with config.training(train_batch_size=96, sgd_minibatch_size=48, num_sgd_iter=1).build() as algo:
        result = algo.train()
        assert set(algo.observation_space.spaces) == {"actor", "critic"} and algo.rollout_device == "cpu"
    assert "Episode_Reward/smooth_reward" in result["env_log"] and result["episode_len_max"] == 20


def test_time_limits_truncate():
    env = resolve(TASK).make(EnvContext({"device": "cpu", "cfg": {"episode_length_s": 0.1}}, num_envs=2))
    env.reset(seed=0)
    ends = []
    for _ in range(2):
        *_, terminated, truncated, _ = env.step(torch.zeros(2, 1))
        ends.append((bool(terminated.any()), bool(truncated.all())))  # mjlab writes into the same tensors again
    assert ends == [(False, False), (False, True)]


def test_an_unknown_task_and_a_field_get_the_nearest():
    with pytest.raises(ValueError, match=f'Did you mean "{TASK}"'):
        resolve(TASK[:-1]).make(EnvContext())
    with pytest.raises(ValueError, match="Did you mean 'episode_length_s'"):
        resolve(TASK).make(EnvContext({"device": "cpu", "cfg": {"episode_length": 1.0}}))
