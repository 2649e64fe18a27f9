"""Modules that are added in a run by the names of RLlib's new API stack: snapshots of a policy as its opponents."""

import logging

import numpy as np
import pytest
import torch

from rllib import PPOConfig
from rllib.core import MultiRLModuleSpec, RLModuleSpec
from rllib.env.multi_agent import make_multi_agent
from tests.core.small_module import Small
from tests.envs import CountingEnv

OBSERVATIONS = {"obs": torch.tensor([[1.0], [2.0]])}


def config(module_class=None) -> PPOConfig:
    config = PPOConfig().environment(make_multi_agent(CountingEnv), env_config={"num_agents": 2, "lengths": [4]})
    config.env_runners(num_env_runners=0).training(train_batch_size=8, minibatch_size=8, num_epochs=1)
    model = {"width": 4} if module_class else {"fcnet_hiddens": [4]}
    spec = RLModuleSpec(module_class=module_class, model_config=model)
    config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"main": spec}))
    return config.multi_agent(policies={"main"}, policy_mapping_fn=lambda *args, **more: "main")


def logits(module) -> np.ndarray:
    return np.asarray(module.forward_inference(OBSERVATIONS)["action_dist_inputs"])


@pytest.mark.parametrize("module_class", [None, Small])
def test_a_snapshot_is_added_and_plays(module_class):
    with config(module_class).build() as algo:
        main = algo.get_module("main")
        before = logits(main).copy()
        algo.add_module(
            module_id="main_v1",
            module_spec=RLModuleSpec.from_module(main),
            new_agent_to_module_mapping_fn=lambda agent, *args, **more: "main" if agent == 0 else "main_v1",
            new_should_module_be_updated=["main"],
        )
        networks = {"learner_group": {"learner": {"rl_module": {"main_v1": main.get_state()}}}}
        algo.set_state(networks)
        np.testing.assert_allclose(logits(algo.get_module("main_v1")), before, rtol=1e-6)
        for _ in range(2):
            result = algo.train()
        assert set(result["policy_reward_mean"]) == {"main", "main_v1"}
        assert not np.allclose(logits(algo.get_module("main")), before)
        np.testing.assert_allclose(logits(algo.get_module("main_v1")), before, rtol=1e-6)
        algo.remove_module("main_v1", new_agent_to_module_mapping_fn=lambda *args, **more: "main")
        assert set(algo.policies) == {"main"}


def test_states_by_other_components_are_refused():
    with config().build() as algo:
        state = algo.get_module("main").get_state()
        for given in ({"env_runner": {}}, {"learner_group": {"learner": {"optimizer": {}}}}, {}):
            with pytest.raises(ValueError, match="nor one of networks alone"):
                algo.set_state(given)
        with pytest.raises(ValueError, match="there is no policy 'other'; there are main"):
            algo.set_state({"learner_group": {"learner": {"rl_module": {"other": state}}}})


def test_parts_of_a_run_that_go_without_a_module_are_warned_of(caplog):
    with config().build() as algo, caplog.at_level(logging.WARNING, logger="rllib"):
        algo.add_module("later", RLModuleSpec(), add_to_learners=False)
    assert "add_module: add_to_learners has no effect: all processes of a run have all policies" in caplog.text
