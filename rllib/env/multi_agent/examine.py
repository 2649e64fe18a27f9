"""Examination of an environment with several agents, in the driver, before any worker starts."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from gymnasium import Space

from rllib.env.multi_agent.agent_spaces import ALL, AgentID, AgentOrder, known_agents, random_action
from rllib.env.multi_agent.augmented import Augmentation
from rllib.env.multi_agent.stream import EXAMINED_STEPS, MultiAgentStream
from rllib.env.spaces.supported import check_spaces

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExaminedAgents:
    """Agents of an environment that was reset, and stepped with random actions.

    Attributes:
        name: name of the environment.
        agents: in the environment's order; those that appeared, where it does not say which there are.
        are_known: whether the environment says which agents may ever appear.
        spaces: agent -> observation space and action space.
        augmentation: further parts of the observations, where they have some.

    Raises:
        ValueError: if two agents have the same name (AgentOrder).
    """

    name: str
    agents: tuple[AgentID, ...]
    are_known: bool
    spaces: Mapping[AgentID, tuple[Space, Space]]
    augmentation: Augmentation | None = None

    def __post_init__(self):
        AgentOrder(self.agents)


def examine_agents(env, name: str, check: bool = True, action_mask_key: str | None = None) -> ExaminedAgents:
    """Resets an environment, takes a few random steps, and closes it.

    Args:
        env: an environment with several agents.
        name: name of the environment, for messages.
        check: False takes no steps.
        action_mask_key: key of the mask in Dict observations; the steps then take legal actions.

    Raises:
        ValueError: if a result breaks a rule of environments with several agents, or a space is not supported.
        Exception: whatever the environment raises, with a note.
    """
    with MultiAgentStream([env], [0], worker="the check", checked_steps=int(check)) as stream:
        known = known_agents(stream.environments[0])
        observations, _ = stream.reset(0)
        order, spaces = AgentOrder(known), stream.spaces(0)
        order.meet(observations)
        drawn: dict[AgentID, Space] = {}
        done: set[AgentID] = set()
        for _ in range(EXAMINED_STEPS if check else 0):
            actions = {}
            for agent, observation in observations.items():
                if agent in done:
                    continue
                if agent not in drawn:
                    drawn[agent] = spaces.action(agent)
                actions[agent] = random_action(observation, drawn[agent], action_mask_key)
            step = stream.step(0, actions)
            observations = step.observations
            for flags in (step.terminateds, step.truncateds):
                done |= {agent for agent, flag in flags.items() if flag and agent != ALL}
            if step.is_over:
                (observations, _), done = stream.reset(0), set()
            order.meet(observations)
        agents = tuple(order)
        pairs = {agent: (spaces.observation(agent), spaces.action(agent)) for agent in agents}
        augmentation = getattr(env, "augmentation", None)
    for agent, pair in pairs.items():
        check_spaces(*pair, f"{name}, agent {agent!r}")
    return ExaminedAgents(name, agents, bool(known), pairs, augmentation)
