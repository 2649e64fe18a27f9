"""Policies of several agents that act in one episode, for deployment: a player that takes and gives dicts by agent."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from rllib.acting.player import Acts, Player
from rllib.hand_written import choose

AgentID = Hashable


class PlayedEpisode:
    """The episode that a mapping of agents to policies is asked with, outside of training.

    Attributes:
        episode_id: number of the episode of this player.
        env_id: 0.
        worker: None.
        user_data: a dict for the mapping.
    """

    env_id, worker = 0, None

    def __init__(self, episode_id: int):
        self.episode_id = episode_id
        self.user_data: dict[str, Any] = {}

    @cached_property
    def rng(self) -> np.random.Generator:
        """A random stream of this episode, as a mapping that draws opponents asks for it."""
        return np.random.default_rng(self.episode_id)


class AgentPlayer:
    """Plays episodes of an environment with several agents; `Algorithm.make_player` makes it.

        player, (observations, _) = algo.make_player(), env.reset()
        while observations:
            observations, rewards, terminateds, truncateds, _ = env.step(player.act(observations, rewards))
            ...
        player.reset()

    Each agent acts by the policy that the mapping names when the agent is first seen in the episode, with its own
    recurrent state, previous action and previous reward.

    Args:
        algo: an algorithm with several agents.
        policy_of: function (agent, episode, worker) -> policy id.
        hand_written: policy id -> factory of the object that acts in place of a network.
        explore: sample the actions.
        with_masks: ActingSettings.with_masks.
        policies: agent -> policy id, in place of the mapping's answer; agents that are left out keep it.
    """

    def __init__(
        self,
        algo: Acts,
        policy_of: Callable[..., str],
        hand_written: Mapping[str, Callable[[], Any]],
        *,
        explore: bool = False,
        with_masks: Callable[..., Sequence],
        policies: Mapping[AgentID, str] | None = None,
    ):
        self._with_masks = with_masks
        self._algo, self._policy_of, self._explore = algo, policy_of, explore
        self._hand_written = {policy_id: make() for policy_id, make in hand_written.items()}
        self._given = dict(policies or {})
        self._number = -1
        self.reset()

    def reset(self) -> None:
        """Begins a new episode."""
        self._number += 1
        self._episode = PlayedEpisode(self._number)
        self._players: dict[AgentID, Player | _HandWrittenPlayer] = {}
        # Agent -> sum of its rewards since it acted.
        self._since_acted: dict[AgentID, float] = {}

    def policy_for(self, agent: AgentID) -> str:
        """Id of the policy by which an agent acts in this episode."""
        return self._player_of(agent).policy_id

    def _player_of(self, agent: AgentID) -> "Player | _HandWrittenPlayer":
        player = self._players.get(agent)
        if player is None:
            policy_id = self._given.get(agent) or self._policy_of(agent, self._episode, None)
            if policy_id in self._hand_written:
                player = _HandWrittenPlayer(policy_id, self._hand_written[policy_id], self._with_masks)
            else:
                player = Player(self._algo, explore=self._explore, policy_id=policy_id, agent_id=agent)
            self._players[agent] = player
        return player

    def act(
        self,
        observations: Mapping[AgentID, Any],
        rewards: Mapping[AgentID, float] | None = None,
        action_masks: Mapping[AgentID, Any] | None = None,
    ) -> dict[AgentID, Any]:
        """Actions of the agents that have an observation, in the environment's units.

        Args:
            observations: agent -> observation as the environment gives it.
            rewards: agent -> reward of the last step, for policies that read the last reward; the environment's whole
                dict, since rewards of agents that wait are added to what they read next. Agents that are left out
                have got 0.
            action_masks: agent -> mask of legal actions, where the environment gives them in addition to the
                observation.

        Raises:
            ValueError: for an observation that is not in the policy's space, or a missing mask; a KeyError as well for
                an agent whose policy there is not.
        """
        for agent, reward in (rewards or {}).items():
            self._since_acted[agent] = self._since_acted.get(agent, 0.0) + float(reward or 0.0)
        actions = {}
        for agent, observation in observations.items():
            since_acted = self._since_acted.pop(agent, 0.0)
            reward = None if rewards is None else since_acted
            actions[agent] = self._player_of(agent).act(observation, reward, (action_masks or {}).get(agent))
        return actions


class _HandWrittenPlayer:
    """A policy that is written by hand, with the state of one agent in one episode."""

    def __init__(self, policy_id: str, chooser: Any, with_masks: Callable[..., Sequence]):
        self.policy_id, self._chooser, self._with_masks = policy_id, chooser, with_masks
        self._states: list | None = None

    def act(self, observation: Any, reward: float | None = None, action_mask: Any = None) -> Any:
        """The action for the environment's newest observation; such a policy reads nothing else but the mask."""
        (seen,) = self._with_masks([observation], None if action_mask is None else [action_mask])
        (action, *_), self._states = choose(self._chooser, [seen], self._states)
        return action


class SlotPlayers:
    """Players that share the agents of an episode: AgentPlayers of several algorithms, people, and the like.

    Args:
        slots: name of an agent, str(agent) -> its player.
        others: the player of all other agents.
    """

    def __init__(self, slots: Mapping[str, Any], others: Any):
        self._slots, self._others = dict(slots), others

    def reset(self) -> None:
        """Begins a new episode."""
        for player in {id(player): player for player in (*self._slots.values(), self._others)}.values():
            player.reset()

    def policy_for(self, agent: AgentID) -> str:
        """Name of what an agent acts by."""
        return self._player_of(agent).policy_for(agent)

    def act(
        self,
        observations: Mapping[AgentID, Any],
        rewards: Mapping[AgentID, float] | None = None,
        action_masks: Mapping[AgentID, Any] | None = None,
    ) -> dict[AgentID, Any]:
        """Actions of the agents that have an observation; arguments and errors as for AgentPlayer."""
        players = {agent: self._player_of(agent) for agent in [*observations, *(rewards or {})]}
        actions: dict[AgentID, Any] = {}
        for player in {id(player): player for player in players.values()}.values():

            def own(given: Mapping[AgentID, Any], player: Any = player) -> dict[AgentID, Any]:
                return {agent: each for agent, each in given.items() if players.get(agent) is player}

            actions.update(player.act(own(observations), None if rewards is None else own(rewards), action_masks))
        return {agent: actions[agent] for agent in observations}

    def _player_of(self, agent: AgentID) -> Any:
        return self._slots.get(str(agent), self._others)
