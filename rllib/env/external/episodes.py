"""Running episodes of external loops, with the data reported for each since its last step request."""

import math
import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, SupportsFloat

from rllib.env.external.checks import AGENT
from rllib.env.external.exchange import StepRequest
from rllib.env.multi_agent.agent_spaces import ALL, AgentID
from rllib.env.multi_agent.stream import AgentStep
from rllib.env.spaces.supported import LARGEST

# Number of ended episodes whose ids are kept, for error messages.
_REMEMBERED = 10_000
_NO_ENDS = MappingProxyType({ALL: False})


class OpenEpisode:
    """A running episode, with the data for its next step request."""

    def __init__(self, episode_id: str, trains: bool):
        self.id, self.trains = episode_id, trains
        self.lock = threading.Lock()  # one call at a time
        self.rewards: dict[AgentID, float] = {}
        self.infos: dict[AgentID, Any] = {}
        self.terminateds: dict[AgentID, bool] = {}
        self.truncateds: dict[AgentID, bool] = {}
        self.num_requests = 0
        self.thread: int | None = None  # identity of the thread that made the last call
        # Agents that have ended, with all step requests so far and without the newest one.
        self._ended: frozenset[AgentID] = frozenset()
        self._ended_before = self._ended

    def check_agents(self, observations: Mapping[AgentID, Any]) -> None:
        """Raises ValueError for an observation of an agent that has ended."""
        if self._ended and (ended := self._ended & observations.keys()):
            agent = min(ended, key=repr)
            raise ValueError(
                f"agent {agent!r:.80} has ended in episode {self.id}: its last observation comes with the call that "
                "ends it"
            )

    def step(self, observations: Mapping[AgentID, Any], end: tuple[bool, bool] | None) -> AgentStep:
        """Makes the step that ends with these observations; `end`: (terminated, truncated) of the last step, else None.

        The rewards, infos and ends that were added since the previous step are part of it.
        """
        rewards, self.rewards, infos, self.infos = self.rewards, {}, self.infos, {}
        if end is None and not self.terminateds and not self.truncateds:
            return AgentStep(observations, rewards, _NO_ENDS, _NO_ENDS, infos, False, False)
        has_ended = {agent for flags in (self.terminateds, self.truncateds) for agent, flag in flags.items() if flag}
        self._ended_before, self._ended = self._ended, self._ended | has_ended
        terminated, truncated = end or (False, False)
        terminateds = {**self.terminateds, ALL: terminated}
        truncateds = {**self.truncateds, ALL: truncated}
        has_ends = end is not None or any(self.terminateds.values()) or any(self.truncateds.values())
        return AgentStep(observations, rewards, terminateds, truncateds, infos, end is not None, has_ends)

    def request(
        self, observations: Mapping[AgentID, Any], logged: Mapping | None, end: tuple[bool, bool] | None
    ) -> StepRequest:
        """Makes the next step request; `end` as for `step`."""
        self.num_requests += 1
        return StepRequest(self.id, self.step(observations, end), logged, self.trains, is_first=self.num_requests == 1)

    def withdraw(self, request: StepRequest) -> None:
        """Undoes a step request whose loop no longer waits; its rewards and infos are lost."""
        request.is_withdrawn = True
        self.num_requests -= 1
        self._ended = self._ended_before

    def take_back(self, request: StepRequest) -> None:
        """Withdraws a step request, and keeps its rewards and infos for the next one."""
        self.withdraw(request)
        for agent, reward in request.step.rewards.items():
            self.rewards[agent] = self.rewards.get(agent, 0.0) + reward
        self.infos = {**request.step.infos, **self.infos}

    def add_rewards(self, rewards: Mapping[AgentID, SupportsFloat], infos: Mapping) -> None:
        """Adds to the rewards and infos of the next step request; nothing is added if a reward is refused.

        Raises:
            ValueError: as `finite_reward`.
        """
        self.add({agent: self.finite_reward(agent, reward) for agent, reward in rewards.items()}, infos)

    def add(self, rewards: Mapping[AgentID, float], infos: Mapping) -> None:
        """Adds rewards, as `finite_reward` returns them, and infos to the next step request."""
        for agent, reward in rewards.items():
            self.rewards[agent] = self.rewards.get(agent, 0.0) + reward
        self.infos.update(infos)

    def finite_reward(self, agent: AgentID, reward: SupportsFloat) -> float:
        """Converts a reward of an agent to a float.

        Raises:
            ValueError: if it is no number, or the sum of the agent's rewards of this step would not be finite or would
                exceed 1e9 in size.
        """
        try:
            number = float(reward)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if abs(self.rewards.get(agent, 0.0) + number) <= LARGEST:
            return number
        of = "" if agent == AGENT else f" of agent {agent!r}"
        raise ValueError(
            f"the reward{of} in episode {self.id}, after {self.num_requests} steps, must be a finite number, of "
            f"at most {LARGEST:g} in size, but is {reward!r:.80}; rewards near 1 are learned from best"
        )


class EpisodeTable:
    """Running episodes by id, and error messages for the ids of ended episodes. Safe in several threads.

    Attributes:
        running: episode id -> its OpenEpisode.
    """

    def __init__(self):
        self.running: dict[str, OpenEpisode] = {}
        # Id of an ended episode -> error message for later calls with this id.
        self._ended: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, episode_id: str | None, trains: bool, most: int | None = None) -> str:
        """Starts an episode.

        Args:
            episode_id: id of the episode; None: a new id is made.
            trains: whether its steps are learned from.
            most: largest number of running episodes; None: any number.

        Returns:
            the id of the episode.

        Raises:
            ValueError: if the id was used before, or too many episodes are under way.
        """
        with self._lock:
            if episode_id is None:
                episode_id = uuid.uuid4().hex
            if episode_id in self._ended:
                raise ValueError(f"Episode {episode_id} has already completed.")
            if episode_id in self.running:
                raise ValueError(f"Episode {episode_id} is already started")
            if most is not None and len(self.running) >= most:
                raise ValueError(
                    f"{len(self.running)} episodes are under way, and max_concurrent={most}: end one "
                    "before the next begins"
                )
            self.running[episode_id] = OpenEpisode(episode_id, trains)
        return episode_id

    def find(self, episode_id: str) -> OpenEpisode:
        """The running episode with this id; raises ValueError if it is unknown or has ended."""
        episode = self.running.get(episode_id)
        if episode is None:
            raise ValueError(self._ended.get(episode_id, f"Episode {episode_id} not found."))
        return episode

    def end(self, episode_id: str, reason: str | None = None) -> None:
        """Ends an episode; `reason`: why later calls with its id are refused."""
        with self._lock:
            self.running.pop(episode_id, None)
            self._ended[episode_id] = reason or f"Episode {episode_id} has already completed."
            if len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)
