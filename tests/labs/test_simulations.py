"""Tasks by name, and the adapter of their observations, ends and logs."""

import numpy as np
import pytest
import torch

from rllib import PPOConfig
from rllib.env import resolve
from rllib.env.factories.registry import EnvContext
from rllib.env.suites.labs import simulation as simulations

SHORT = {
    "num_rollout_workers": 0, "num_envs_per_worker": 8, "rollout_fragment_length": 8, "train_batch_size": 64,
    "sgd_minibatch_size": 32, "num_sgd_iter": 2, "seed": 0, "gamma": 0.9, "lambda_": 0.8,
    "model": {"fcnet_hiddens": [8], "vf_share_layers": False}, "normalize_actions": False,
}  # fmt: skip
NAMES = {"isaaclab": "isaaclab:Isaac-Point-v0", "mjlab": "mjlab:Mjlab-Point"}


def config(lab, **env_config):
    return PPOConfig().environment(NAMES[lab], env_config=env_config).update_from_dict(SHORT)


def made(lab="isaaclab", num_envs=8, **env_config):
    return resolve(NAMES[lab]).make(EnvContext(env_config, num_envs=num_envs))


@pytest.mark.parametrize(("lab", "group"), [("isaaclab", "policy"), ("mjlab", "actor")])
def test_the_value_alone_reads_the_critics_group(labs, lab, group):
    with config(lab, critic_group="critic").environment(critic_observation_keys=["critic"]).build() as algo:
        assert set(algo.observation_space.spaces) == {group, "critic"} and algo.rollout_device == "cpu"
        assert algo.train()["num_env_steps_sampled"] == 64
        action = algo.compute_single_action({group: np.ones(4, np.float32)}, explore=False)
        assert action.shape == (2,), "the robot has no critic's group"


@pytest.mark.parametrize("lab", NAMES)
def test_without_a_critics_group_the_policys_is_all(labs, lab):
    with config(lab).build() as algo:
        assert algo.observation_space.shape == (4,), "not the hidden mass"


def test_a_group_that_there_is_not_is_refused(labs):
    with pytest.raises(ValueError, match=r"critic_group='critics' must be a group.*\['policy', 'critic'\]"):
        made(critic_group="critics")
    with pytest.raises(ValueError, match=r"group 'actors' is not among them"):
        made(group="actors")
    simulations.close_all()
    with pytest.raises(ValueError, match=r"must be a group other than the policy's"):
        made(cfg={"asymmetric": False}, critic_group="critic")


def test_a_truncated_end_is_bootstrapped_as_by_rsl_rl(labs):
    """rsl_rl/algorithms/ppo.py: reward + gamma V(observation before the step), where a time-out ends an episode."""
    with config("isaaclab", cfg={"episode_length_s": 0.4}).build() as algo:
        batch = {name: np.asarray(column, np.float64) for name, column in algo.sample(64).items()}
    shaped = {name: column.reshape(8, 8) for name, column in batch.items() if column.ndim == 1}
    rewards, values, ends = shaped["rewards"], shaped["vf_preds"], shaped["truncateds"]
    assert ends[[3, 7]].all() and not shaped["terminateds"].any(), "each episode has four steps"
    rewards = rewards + 0.9 * values * ends
    expected, advantage = np.zeros((8, 8)), 0.0
    for t in reversed(range(8)):
        goes_on = 1.0 - ends[t]
        following = values[t + 1] if t < 7 else 0.0
        advantage = rewards[t] + goes_on * 0.9 * following - values[t] + goes_on * 0.9 * 0.8 * advantage
        expected[t] = advantage
    np.testing.assert_allclose(shaped["advantages"], expected, atol=1e-5)


def test_a_time_limit_that_belongs_to_the_task_terminates(labs):
    env = made(cfg={"episode_length_s": 0.1, "is_finite_horizon": True})
    env.reset(seed=0)
    *_, terminated, truncated, _ = env.step(torch.zeros(8, 2))
    assert terminated.all() and not truncated.any()


def test_first_episodes_begin_at_random_ages(labs):
    env = made(num_envs=64, random_ages=True)
    env.reset(seed=0)
    ages = env.simulator.unwrapped.episode_length_buf
    assert len(set(ages.tolist())) > 5 and min(ages) >= 0 and max(ages) < 20
    env.close()
    same = made(num_envs=64)
    same.reset()
    assert not same.simulator.unwrapped.episode_length_buf.any()


def test_clipped_actions_are_the_space(labs):
    env = made(clip_actions=2.0)
    assert env.single_action_space.low.tolist() == [-2.0, -2.0] and env.single_action_space.high.tolist() == [2.0, 2.0]
    env.close()
    with pytest.raises(ValueError, match="clip_actions=-1 must be a positive bound"):
        made(clip_actions=-1)


def test_what_the_simulator_logs_is_in_results(labs):
    with config("mjlab", cfg={"episode_length_s": 0.4}).build() as algo:
        result = algo.train()
    assert result["env_log"]["Episode_Termination/away"] == 0.5
    assert result["env_log"]["Episode_Reward/near"] == pytest.approx(result["episode_reward_mean"], abs=0.4)
    assert (
        "env_log"
        not in PPOConfig()
        .environment("CartPole-v1")
        .update_from_dict(
            {"num_rollout_workers": 0, "train_batch_size": 50, "sgd_minibatch_size": 50, "num_sgd_iter": 1}
        )
        .build()
        .train()
    )


def test_counters_of_a_curriculum_go_on(labs):
    with config("isaaclab").build() as algo:
        (env,) = algo.workers.local_worker().stream.environments
        before = env.simulator.common_step_counter
        algo.train()
        assert env.simulator.common_step_counter == before + 8
        assert env.simulator.points.seeds[-1] != env.simulator.points.seeds[0], "the run's seed"


@pytest.mark.parametrize("lab", NAMES)
def test_a_restored_run_has_the_counters_of_its_curricula(labs, lab, tmp_path):
    with config(lab).build() as algo:
        algo.train()
        algo.train()
        saved = algo.save(tmp_path / "saved")
    simulations.close_all()
    with config(lab).build() as algo:
        algo.restore(saved)
        (env,) = algo.workers.local_worker().stream.environments
        algo.train()
        points = env.simulator.points
        assert points.common_step_counter == 24 and points.counted[-1] >= 16, "also where episodes begin"


def test_a_process_of_isaac_lab_has_one_simulation(labs):
    first = made()
    with pytest.raises(ValueError, match=r"this one has Isaac-Point-v0 with 8 environments, which is"):
        made()
    first.close()
    again = made()
    assert again.simulator is first.simulator and not again.simulator.points.closed, "it stays open"
    again.close()
    with pytest.raises(ValueError, match="with 4 environments cannot be made"):
        made(num_envs=4)
    simulations.close_all()
    assert again.simulator.points.closed and made(num_envs=4).num_envs == 4


def test_mjlab_makes_as_many_as_are_asked_for(labs):
    assert made("mjlab").simulator is not made("mjlab").simulator


@pytest.mark.parametrize(("lab", "wrong"), [("isaaclab", "Isaac-Piont-v0"), ("mjlab", "Mjlab-Piont")])
def test_an_unknown_task_gets_the_nearest(labs, lab, wrong):
    right = NAMES[lab].partition(":")[2]
    with pytest.raises(ValueError, match=rf'there is no environment .*Did you mean "{lab}:{right}"'):
        resolve(f"{lab}:{wrong}").make(EnvContext())


def test_wrong_words_of_env_config_are_refused(labs):
    with pytest.raises(ValueError, match=r"env_config has 'devise'.*Did you mean 'device'"):
        made(devise="cpu")
    with pytest.raises(ValueError, match=r"env of the task has no 'episode_length'. Did you mean 'episode_length_s'"):
        made(cfg={"episode_length": 3.0})
    with pytest.raises(ValueError, match=r"the module 'absent_tasks', which is to register tasks"):
        made(tasks="absent_tasks")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r'torch sees no GPU here\. Use device="cpu"'):
            made(device="cuda:0")


def test_arrays_are_refused(labs):
    given = config("isaaclab", cfg={"as_arrays": True}).rollouts(tensor_rollouts=True)
    env = made(cfg={"as_arrays": True})
    given.environment(
        disable_env_checking=True, observation_space=env.single_observation_space, action_space=env.single_action_space
    )
    env.close()
    with (
        pytest.raises(TypeError, match=r"needs an environment that hands over torch tensors, but reset.*gave ndarray"),
        given.build() as algo,
    ):
        algo.train()
