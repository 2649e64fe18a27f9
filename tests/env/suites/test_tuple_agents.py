"""Environments whose agents' values are tuples, as lbforaging and RWARE have them."""

import gymnasium
import numpy as np

from rllib.env.suites.tuple_agents import TupleAgents


class _Pair(gymnasium.Env):
    observation_space = gymnasium.spaces.Tuple([gymnasium.spaces.Box(0, 9, (1,)), gymnasium.spaces.Box(0, 9, (2,))])
    action_space = gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(3)])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observed(), {}

    def step(self, actions):
        self.steps += 1
        return self._observed(), list(actions), self.steps == 2, False, {}

    def _observed(self):
        return tuple(np.full(count, self.steps, np.float32) for count in (1, 2))


def test_values_are_given_to_each_agent():
    env = TupleAgents(_Pair())
    assert env.observation_spaces["agent_1"].shape == (2,) and env.action_spaces["agent_0"].n == 2
    observations, _ = env.reset(seed=0)
    assert observations["agent_1"].tolist() == [0, 0] and env.agents == ["agent_0", "agent_1"]
    env.step({"agent_1": 2, "agent_0": 1})
    observations, rewards, terminateds, truncateds, _ = env.step({"agent_1": 2, "agent_0": 1})
    assert rewards == {"agent_0": 1.0, "agent_1": 2.0} and observations["agent_0"].tolist() == [2]
    assert terminateds["__all__"] and terminateds["agent_1"] and not truncateds["__all__"] and env.agents == []
