"""A factory of environments with several agents whose observations get further parts."""

from dataclasses import dataclass

from rllib.env.agents import is_multi_agent
from rllib.env.factories.registry import EnvContext, WrappingFactory
from rllib.env.multi_agent.adapt import as_multi_agent
from rllib.env.multi_agent.augmented import AugmentedEnv


@dataclass(frozen=True)
class AugmentedAgentsFactory(WrappingFactory):
    """Makes another factory's environments with ids of the agents, or a critic's inputs, in their observations.

    Attributes:
        agent_ids, critic: see AugmentedEnv (rllib/env/multi_agent/augmented.py).
    """

    agent_ids: bool = False
    critic: str | None = None

    def make(self, context: EnvContext):
        env = self.factory.make(context)
        if not is_multi_agent(env):
            return env  # what follows says that it has one agent
        return AugmentedEnv(as_multi_agent(env), self.agent_ids, self.critic)
