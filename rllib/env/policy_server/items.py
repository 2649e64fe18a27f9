"""Checked items of step requests, with values converted to the spaces' types, by agent."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from rllib.env.external.checks import AGENT, check_logged_agents, check_masks, check_observation, logged_action_of
from rllib.env.external.episodes import EpisodeTable, OpenEpisode
from rllib.env.external.source import EpisodeSource
from rllib.env.policy_server.forms import LONGEST_NAME, MOST_AGENTS, Item
from rllib.web.bodies import NO_ARRAY, BadRequest, with_arrays


class CheckedItem(NamedTuple):
    """An item whose values are valid.

    Attributes:
        episode: the item's episode.
        item: the item as received.
        observations: agent -> observation.
        rewards, infos: agent -> reward, or info, since the last action.
        action: agent -> action that the policy has not chosen; None: the policy acts, or the episode ends.
    """

    episode: OpenEpisode
    item: Item
    observations: Mapping
    rewards: Mapping
    infos: Mapping
    action: Mapping | None


class ItemReader:
    """Reads the items of requests.

    Args:
        source: source whose spaces and action masks the values are checked against.
        episodes: running episodes of the source.
    """

    def __init__(self, source: EpisodeSource, episodes: EpisodeTable):
        self._source, self._episodes = source, episodes
        self._agents: dict[str, set] = {}  # running episode -> its agents, if the spaces do not name them

    def read(self, items: list[Item], is_logged: bool, ends: bool) -> list[CheckedItem]:
        """Checks all items before any is accepted.

        Args:
            items: items of different episodes.
            is_logged: whether each item has an action that the policy has not chosen.
            ends: whether the episodes end.

        Raises:
            BadRequest: for the first invalid value.
        """
        found = [self._checked(item, is_logged, ends) for item in items]
        for each in found if self._source.has_several_agents else ():
            self._meet(each)
        for each in found if not ends else ():
            try:
                each.episode.check_agents(each.observations)
            except ValueError as error:
                raise BadRequest(400, str(error)) from None
            self.check_legal(each.observations, each.action)
        return found

    def _checked(self, item: Item, is_logged: bool, ends: bool) -> CheckedItem:
        """An item whose values lie in their spaces."""
        has_several, episode = self._source.has_several_agents, self._episode(item)
        seen = self._by_agent("observation", item.observation)
        if item.info is not None:
            item.info = _with_arrays(item.info)
        if item.truncated and not ends:
            raise BadRequest(422, "truncated says how an episode ends: end it by /v1/end")
        if has_several:
            infos = {} if item.info is None else item.info
            _check_agents("infos", infos)
        elif item.dones or item.truncateds:
            raise BadRequest(
                422, "dones and truncateds are for several agents: leave them out, and end the episode by /v1/end"
            )
        else:
            infos = {AGENT: item.info} if item.info else {}
        rewards = {} if item.reward is None else self._rewards(item.reward, episode)
        if is_logged:
            return CheckedItem(episode, item, seen, rewards, infos, self._logged(item))
        if item.action is not msgspec.UNSET and item.action is not None:  # it would be left out
            raise BadRequest(422, "an action that the policy has not chosen is reported by /v1/log: leave it out here")
        return CheckedItem(episode, item, seen, rewards, infos, None)

    def check_legal(self, seen: Mapping, logged: Mapping | None) -> None:
        """Refuses observations without a legal action, and logged actions that are not legal."""
        try:
            check_masks(self._source.mask_problem, seen, logged)
        except ValueError as error:
            raise BadRequest(400, str(error)) from None

    def forget(self, episode_id: str) -> None:
        """Forgets the agents of an episode that is over."""
        self._agents.pop(episode_id, None)

    def _logged(self, item: Item) -> Mapping:
        if item.action is msgspec.UNSET:
            raise BadRequest(422, "an item of /v1/log needs the action")
        actions = self._by_agent("action", item.action)
        if self._source.has_several_agents:
            try:
                check_logged_agents(item.observation, actions)
            except ValueError as error:
                raise BadRequest(422, str(error)) from None
        return actions

    def _meet(self, checked: CheckedItem) -> None:
        """Refuses agents that the run does not have, and more than an episode may have."""
        item = checked.item
        named = {*checked.observations, *checked.rewards, *checked.infos, *item.dones, *item.truncateds}
        if isinstance(self._source.observation_space, dict):
            if unknown := named - self._source.observation_space.keys():
                known = ", ".join(map(repr, self._source.observation_space))
                raise BadRequest(400, f"there is no agent {min(map(repr, unknown)):.80}; there are {known}")
            return
        if any(len(agent) > LONGEST_NAME for agent in named):
            raise BadRequest(422, f"the name of an agent may have {LONGEST_NAME} characters")
        met = self._agents.setdefault(checked.episode.id, set())
        if len(met | named) > MOST_AGENTS:
            raise BadRequest(422, f"an episode may have {MOST_AGENTS:,} agents")
        met |= named

    def _episode(self, item: Item) -> OpenEpisode:
        try:
            return self._episodes.find(item.episode_id)
        except ValueError as error:  # it has ended, was given up, or is of a server before this one
            raise BadRequest(410, str(error)) from None

    def _rewards(self, reward: Any, episode: OpenEpisode) -> Mapping:
        try:
            if not self._source.has_several_agents:
                return {AGENT: episode.finite_reward(AGENT, reward)}
            _check_agents("rewards", reward)
            return {agent: episode.finite_reward(agent, each) for agent, each in reward.items()}
        except ValueError as error:
            raise BadRequest(400, str(error)) from None

    def _by_agent(self, kind: str, value: Any) -> Mapping:
        """An observation or action of a body, as values of its space, by agent."""
        if self._source.has_several_agents:
            _check_agents(f"{kind}s", value)
            values = {agent: _with_arrays(each) for agent, each in value.items()}
        else:
            values = {AGENT: _with_arrays(value)}
        try:
            if kind == "action":
                return {
                    agent: logged_action_of(self._source.action_space, each, agent) for agent, each in values.items()
                }
            for agent, each in values.items():
                check_observation(self._source.observation_space, each, agent)
        except ValueError as error:
            raise BadRequest(400, str(error)) from None
        return values


def _with_arrays(value: Any) -> Any:
    """`with_arrays` of a value of a body."""
    try:
        return with_arrays(value)
    except NO_ARRAY as error:
        raise BadRequest(422, f'an array of MessagePack is {{"$array": [dtype, shape, bytes]}}: {error}') from None


def _check_agents(name: str, values: Any) -> None:
    """Refuses values that are no dict by agent, and agents that are no strings: JSON knows no others."""
    if not isinstance(values, Mapping):
        raise BadRequest(422, f"with several agents, {name} are a dict by agent")
    for agent in values:
        if not isinstance(agent, str):
            raise BadRequest(422, f"the agents of {name} are strings, but one is {agent!r:.80}")
