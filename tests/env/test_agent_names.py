"""Ids of agents that are no strings: their names are unique, and everything that goes by names keeps them apart."""

import enum

import numpy as np
import pytest
from gymnasium import spaces

from rllib import Algorithm, PPOConfig
from rllib.env import MultiAgentEnv
from rllib.env.external.external_env import ExternalMultiAgentEnv
from rllib.env.multi_agent import AgentOrder

SPACE, ACTIONS = spaces.Box(-9, 9, (1,), np.float32), spaces.Discrete(2)


class Side(enum.Enum):
    LEFT, RIGHT = 1, 2


class Named(MultiAgentEnv):
    """Agents of the config for four steps; the i-th gets i + 1 for each. Unless they are known they come one by one."""

    observation_space, action_space = SPACE, ACTIONS

    def __init__(self, config):
        self.all = config["agents"]
        if config.get("known", True):
            self.possible_agents = list(self.all)
        self.known = config.get("known", True)

    def seen(self):
        count = len(self.all) if self.known else self.t + 1
        return {agent: np.zeros(1, np.float32) for agent in self.all[:count]}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.seen(), {}

    def step(self, action_dict):
        self.t += 1
        rewards = {agent: self.all.index(agent) + 1.0 for agent in action_dict}
        return self.seen(), rewards, {"__all__": self.t == 4}, {"__all__": False}, {}


class Driven(ExternalMultiAgentEnv):
    def __init__(self, config):
        agents = config["agents"]
        super().__init__(dict.fromkeys(agents, ACTIONS), dict.fromkeys(agents, SPACE))

    def run(self):
        raise AssertionError


def config(env, agents, **env_config):
    return (
        PPOConfig()
        .environment(env, env_config={"agents": agents, **env_config})
        .rollouts(num_rollout_workers=0)
        .training(train_batch_size=32, sgd_minibatch_size=16, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
        .debugging(seed=1)
    )


SAME = [["0", 0], [1, "1"], [("a", 0), "('a', 0)"], [None, "None"], [b"x", "b'x'"], [Side.LEFT, "Side.LEFT"]]


@pytest.mark.parametrize("agents", SAME, ids=str)
@pytest.mark.parametrize(("env", "known"), [(Named, True), (Named, False), (Driven, True)])
@pytest.mark.parametrize("policies", ["own", "shared"])
def test_two_agents_of_one_name_are_refused(agents, env, known, policies):
    with pytest.raises(ValueError, match=r"have the same name, .*Rename one of them") as caught:
        config(env, agents, known=known).multi_agent(policies=policies).build()
    assert all(repr(agent) in str(caught.value) for agent in agents)


def test_equal_ids_are_one_agent():
    order = AgentOrder([1, np.int64(1), 2])
    order.meet([np.int64(2), 3])
    assert list(order) == [1, 2, 3]


@pytest.mark.parametrize(
    "agents", [[0, 1], [np.int64(0), np.int64(1)], [("a", 0), ("a", 1)], [Side.LEFT, Side.RIGHT], [b"x", None]], ids=str
)
@pytest.mark.parametrize("policies", ["own", "shared"])
def test_what_goes_by_names_is_by_agent(agents, policies, tmp_path):
    names = [str(agent) for agent in agents]
    settings = config(Named, agents).multi_agent(policies=policies, agent_id_in_observation=True)
    with settings.build() as algo:
        first = algo.train()
        path = algo.save(tmp_path / "checkpoint")
        second = algo.train()
        assert sorted(algo.policies) == (sorted(names) if policies == "own" else ["shared"])
    with Algorithm.from_checkpoint(path, load_user_code=True) as restored:
        again = restored.train()
        weights = [each.weights for one in (algo, restored) for each in one.policies.values()]
        assert all(map(np.array_equal, weights[: len(weights) // 2], weights[len(weights) // 2 :]))
    for result in (first, second, again):
        assert result["agent_reward_mean"] == {names[0]: 4.0, names[1]: 8.0}
        assert result["agent_len_mean"] == dict.fromkeys(names, 4.0)
    assert again["agent_steps_sampled"] == second["agent_steps_sampled"] == dict.fromkeys(names, 64)
