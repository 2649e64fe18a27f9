"""Whole episodes of one environment with several agents, for play and videos."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from gymnasium import Space

from rllib.env.episodes import Episode
from rllib.env.multi_agent.agent_spaces import AgentID, known_agents
from rllib.env.multi_agent.stream import MultiAgentStream


class PlaysAgents(Protocol):
    """A player of agents, such as an AgentPlayer."""

    def reset(self) -> None: ...

    def policy_for(self, agent: AgentID) -> str: ...

    def act(
        self,
        observations: Mapping[AgentID, Any],
        rewards: Mapping[AgentID, float],
        action_masks: Mapping[AgentID, Any] | None,
    ) -> dict[AgentID, Any]: ...


class PlayedEpisodes:
    """Plays episodes of an environment by the rules of sampling: who acts, and when an episode is over.

    Args:
        env: an environment with several agents; the owner closes it.
        seed: seed of its first reset.
        mask_key: key of the mask of legal actions in each agent's info; None: there are none.
    """

    def __init__(self, env: Any, seed: int = 0, mask_key: str | None = None):
        self._mask_key = mask_key
        self._stream = MultiAgentStream([env], [seed], worker="play")

    @property
    def agents(self) -> list[AgentID]:
        """All agents that may appear; empty where the environment does not say."""
        return known_agents(self._stream.environments[0])

    def action_space(self, agent: AgentID) -> Space:
        """The action space of an agent; raises ValueError where it is not known before the first reset."""
        return self._stream.spaces(0).action(agent)

    def reseed(self, seed: int) -> None:
        """Sets the seed of the next reset."""
        self._stream.reseed([seed])

    def play(self, player: PlaysAgents, draw: Callable[[], None] = lambda: None) -> Episode:
        """Plays one episode to its end.

        Args:
            player: acts; it begins a new episode.
            draw: called after the reset and after each step.

        Returns:
            the episode, with returns and numbers of actions by (agent, policy) of the agents that have acted.

        Raises:
            ValueError: if a result of the environment breaks a rule; the environment's own exception, with a note.
        """
        player.reset()
        observations, infos = self._stream.reset(0)
        draw()
        returns: defaultdict[AgentID, float] = defaultdict(float)
        since_acted: defaultdict[AgentID, float] = defaultdict(float)
        actions_of: Counter[AgentID] = Counter()
        ended: set[AgentID] = set()
        length, is_over = 0, False
        while not is_over:
            acting = {agent: seen for agent, seen in observations.items() if agent not in ended}
            actions_of.update(acting.keys())
            masks = None if self._mask_key is None else {agent: infos[agent][self._mask_key] for agent in acting}
            actions = player.act(acting, {agent: since_acted.pop(agent, 0.0) for agent in acting}, masks)
            step = self._stream.step(0, actions)
            for agent, reward in step.rewards.items():
                returns[agent] += float(reward or 0.0)
                since_acted[agent] += float(reward or 0.0)
            for flags in (step.terminateds, step.truncateds):
                ended.update(agent for agent, flag in flags.items() if flag)
            observations, infos, is_over, length = step.observations, step.infos, step.is_over, length + 1
            draw()
        keys = {agent: (agent, player.policy_for(agent)) for agent in actions_of}
        return Episode(
            sum(returns.values()),
            length,
            agent_returns={key: returns[agent] for agent, key in keys.items()},
            agent_lengths={key: actions_of[agent] for agent, key in keys.items()},
        )
