"""Results of runs with several agents: steps of environments and of agents, statistics by policy and agent."""

import pytest

from rllib import APPOConfig, DQNConfig, IMPALAConfig, PPOConfig
from rllib.env.multi_agent import make_multi_agent
from tests.multi_agent import BasicMultiAgent


def build(**multi_agent):
    config = (
        PPOConfig()
        .environment(make_multi_agent("CartPole-v1"), env_config={"num_agents": 2})
        .rollouts(num_rollout_workers=0, num_envs_per_worker=2)
        .training(train_batch_size=80, sgd_minibatch_size=40, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
        .debugging(seed=1)
    )
    return config.multi_agent(**multi_agent).build()


# An agent whose pole has fallen waits for the other, so there are fewer steps than two to one.
@pytest.mark.parametrize("policies", ["own", "shared"])
def test_a_batch_is_counted_in_steps_of_environments(policies):
    with build(policies=policies) as algo:
        result = algo.train()
    steps = result["num_agent_steps_sampled"]
    assert result["timesteps_total"] == result["num_env_steps_sampled"] == result["num_env_steps_trained"] == 80
    assert 80 < steps <= 160
    assert steps == sum(result["env_runners/num_agent_steps_sampled"].values())
    assert steps == sum(result["env_runners/num_module_steps_sampled"].values())
    assert steps >= result["num_agent_steps_trained"] > 80
    assert result["learners/__all_modules__/num_module_steps_trained"] == result["num_agent_steps_trained"]
    assert result["info/learner"].keys() == ({"0", "1"} if policies == "own" else {"shared"})


def test_a_batch_is_counted_in_steps_of_agents():
    with build(policies="own", count_steps_by="agent_steps") as algo:
        result = algo.train()
    steps = result["num_agent_steps_sampled"]
    assert 80 <= steps == result["timesteps_total"] == result["timesteps_this_iter"] < 160
    assert result["num_env_steps_sampled"] < steps


@pytest.mark.parametrize(("counted", "env_steps"), [("env_steps", 60), ("agent_steps", 20)])
@pytest.mark.parametrize("is_shared", [True, False])
def test_the_same_number_of_steps_is_three_agents_rows_or_those_of_one(counted, env_steps, is_shared):
    """All agents act in each step. Each policy makes its passes over its own rows, however many others have."""
    rows = {"all": 3 * env_steps} if is_shared else {"one": env_steps, "two": 2 * env_steps}
    mapping = "all" if is_shared else {"0": "one", "*": "two"}
    config = (
        PPOConfig()
        .environment(lambda context: BasicMultiAgent(3))
        .rollouts(num_rollout_workers=0, num_envs_per_worker=2)
        .multi_agent(policies=set(rows), policy_mapping_fn=mapping, count_steps_by=counted)
        .training(train_batch_size=60, sgd_minibatch_size=10, num_sgd_iter=3, model={"fcnet_hiddens": [4]})
    )
    with config.build() as algo:
        result = algo.train()
    assert result["num_env_steps_sampled"] == env_steps
    assert result["num_agent_steps_sampled"] == result["agent_timesteps_total"] == 3 * env_steps
    assert result["timesteps_total"] == result["timesteps_this_iter"] == 60
    assert result["num_agent_steps_trained"] == 3 * env_steps
    for policy_id, count in rows.items():
        learned = result["info/learner"][policy_id]
        assert learned["num_agent_steps_trained"] == count
        assert learned["num_grad_updates_lifetime"] == 3 * count // 10


def test_a_policy_that_does_not_train_is_sampled_alone():
    with build(policies="own", policies_to_train=["0"]) as algo:
        result = algo.train()
    assert result["info/learner"].keys() == {"0"}
    assert result["num_agent_steps_trained"] == result["info/learner/0/num_agent_steps_trained"]
    assert result["env_runners/num_module_steps_sampled/1"] > 0
    assert result["num_env_steps_trained"] == 80


@pytest.mark.parametrize("config_class", [IMPALAConfig, APPOConfig, DQNConfig])
def test_an_iteration_without_an_update_names_the_policies_that_learn(config_class):
    config = config_class().environment(lambda context: BasicMultiAgent(3))
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
    config.rollouts(num_rollout_workers=0).training(model={"fcnet_hiddens": [4]})
    mapping = {"0": "one", "1": "two", "*": "frozen"}
    config.multi_agent(policies=["one", "two", "frozen"], policy_mapping_fn=mapping, policies_to_train=["one", "two"])
    with config.build() as algo:
        algo.training_step = dict
        assert algo.train()["info/learner"].keys() == {"one", "two"}
