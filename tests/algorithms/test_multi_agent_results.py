"""Results of runs with several agents: steps of environments and of agents, statistics by policy and agent."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rllib
from rllib import APPOConfig, DQNConfig, IMPALAConfig, PPOConfig
from rllib.algorithms.base.registry import ALGORITHMS, get_algorithm_config
from rllib.env.multi_agent import MultiAgentEnv, make_multi_agent
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


class SeldomTwo(MultiAgentEnv):
    """Agent "two" acts once, in the eleventh of 40 steps; agent "one" in all of them."""

    def __init__(self, config=None):
        super().__init__()
        self.possible_agents = ["one", "two"]
        self.observation_spaces = dict.fromkeys(self.possible_agents, Box(0, 100, (1,), np.float32))
        self.action_spaces = dict.fromkeys(self.possible_agents, Discrete(2))

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._seen("one"), {}

    def step(self, actions):
        self.t += 1
        agents = ["one", "two"] if self.t in (10, 11) else ["one"]
        ends = {"__all__": self.t == 40} | ({"two": True} if self.t == 11 else {})
        return self._seen(*agents), dict.fromkeys(actions, 1.0), ends, {"__all__": False}, {}

    def _seen(self, *agents):
        return {agent: np.full(1, self.t, np.float32) for agent in agents}


NEED_DATA = [
    name
    for name in ALGORITHMS
    if get_algorithm_config(name).needs_data or "demonstrations" in get_algorithm_config(name).settings
]
# For one agent, for groups, or for numbers; Ape-X learns when its shards have answered.
OTHERS = {
    *("A3C", "ES", "ARS", "Distillation", "DAgger", "QMix", "VDN"),
    *("TQC", "CrossQ", "TD3", "DDPG", "ApexDDPG", "ApexDQN"),
}


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in (*OTHERS, *NEED_DATA)])
def test_who_has_learned_in_an_iteration_is_in_its_result(name):
    """Also a policy that has not acted in the iteration's last steps."""
    config = getattr(rllib, f"{name}Config")().environment(SeldomTwo).rollouts(num_rollout_workers=0)
    small = {"train_batch_size": 20, "sgd_minibatch_size": 5, "num_sgd_iter": 1,
             "num_steps_sampled_before_learning_starts": 20, "replay_buffer_config": {"capacity": 500},
             "training_intensity": 0.5, "rollout_fragment_length": 5}  # fmt: skip
    memory = {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 4} if name == "R2D2" else {}
    config.update_from_dict({name: value for name, value in small.items() if name in config.settings})
    config.training(model={"fcnet_hiddens": [4], **memory})
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=100)
    config.multi_agent(policies=["one", "two"], policy_mapping_fn={"one": "one", "two": "two"})
    learned = set()
    with config.build() as algo:
        for _ in range(6):
            before = {policy_id: trainee.num_updates for policy_id, trainee in algo.trainees.items()}
            result = algo.train()
            for policy_id, trainee in algo.trainees.items():
                if trainee.num_updates > before[policy_id]:
                    learned.add(policy_id)
                    stats = result["info/learner"][policy_id]
                    assert stats["num_agent_steps_trained"] > 0 and stats["learner_stats"], policy_id
    assert learned == {"one", "two"}


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
