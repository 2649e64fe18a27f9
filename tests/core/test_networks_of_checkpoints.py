"""Networks of a checkpoint by the paths that Ray's checkpoints have for them."""

import numpy as np
import pytest
import torch

from rllib import PPOConfig
from rllib.core import RLModule
from rllib.env.multi_agent import make_multi_agent
from tests.envs import CountingEnv

RL_MODULE = "learner_group/learner/rl_module"
OBSERVATIONS = {"obs": torch.tensor([[1.0], [2.0]])}


def config(env=CountingEnv, seed=0) -> PPOConfig:
    config = PPOConfig().environment(env, env_config={"lengths": [4]}).env_runners(num_env_runners=0)
    return config.training(train_batch_size=8, minibatch_size=8, num_epochs=1).debugging(seed=seed)


def agents(seed=0) -> PPOConfig:
    made = config(make_multi_agent(CountingEnv), seed).environment(env_config={"num_agents": 2, "lengths": [4]})
    return made.multi_agent(policies={"p0", "p1"}, policy_mapping_fn=lambda agent, *args, **more: f"p{agent}")


def logits(module) -> np.ndarray:
    return np.asarray(module.forward_inference(OBSERVATIONS)["action_dist_inputs"])


@pytest.mark.parametrize("part", ["", RL_MODULE, f"{RL_MODULE}/default_policy", "env_runner/rl_module/default_policy"])
def test_a_module_is_read_from_a_checkpoint(tmp_path, part):
    with config().build() as algo:
        path = algo.save(tmp_path / "saved")
        np.testing.assert_array_equal(logits(RLModule.from_checkpoint(path / part)), logits(algo.get_module()))


def test_of_several_modules_one_is_named(tmp_path):
    with agents().build() as algo:
        path = algo.save(tmp_path / "saved")
        every = RLModule.from_checkpoint(path / RL_MODULE)
        for policy_id in ("p0", "p1"):
            expected = logits(algo.get_module(policy_id))
            np.testing.assert_array_equal(logits(every[policy_id]), expected)
            np.testing.assert_array_equal(logits(RLModule.from_checkpoint(path / RL_MODULE / policy_id)), expected)
    with pytest.raises(KeyError, match="no policy 'p2': it has p0, p1"):
        RLModule.from_checkpoint(path / RL_MODULE / "p2")


def test_an_algorithm_takes_networks_alone(tmp_path):
    with config().build() as algo:
        algo.train()
        path, learned = algo.save(tmp_path / "saved"), algo.get_weights()["default_policy"]
    for given, component in ((path / RL_MODULE, RL_MODULE), (path, f"{RL_MODULE}/default_policy")):
        with config(seed=1).build() as other:
            other.restore_from_path(given, component=component)
            assert other.training_iteration == 0
            np.testing.assert_array_equal(other.get_weights()["default_policy"], learned)
            other.train()
    with config(seed=1).build() as other:
        other.restore_from_path(path)
        assert other.training_iteration == 1
        with pytest.raises(ValueError, match="the parts that can be taken alone"):
            other.restore_from_path(path, component="learner_group/learner/optimizer")
        with pytest.raises(ValueError, match="'mine' must be a policy of the checkpoint"):
            other.restore_from_path(path, component=f"{RL_MODULE}/mine")
