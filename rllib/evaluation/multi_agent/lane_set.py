"""The lanes of a worker's policies and the episodes of its environments, stepped together."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.env.multi_agent.stream import MultiAgentStream
from rllib.errors import UnknownPolicyError
from rllib.evaluation import seeding
from rllib.evaluation.episode_hooks import EpisodeHooks
from rllib.evaluation.multi_agent.agent_lane import AgentLane
from rllib.evaluation.multi_agent.environment_episode import EnvironmentEpisode
from rllib.evaluation.running_episode import RunningEpisode
from rllib.evaluation.worker import Worker

logger = logging.getLogger(__name__)


def double_slots(num_slots: dict[str, int], policy_id: str) -> None:
    """Doubles a policy's slots in each environment, after one environment had more agents of the policy than slots."""
    logger.info(
        "more than %d agents of policy %r are in one environment: its slots double. An environment that has "
        "possible_agents is sampled without this.",
        num_slots[policy_id],
        policy_id,
    )
    num_slots[policy_id] *= 2


class LaneSet:
    """Lanes of one worker, and the episodes of its environments.

    Args:
        worker: has the environments and the policies; its settings have `agents`.
        stream: the environments.
        indices: indices of the environments in the run.
        num_slots: policy id -> its slots in one environment.
        make_lane: function of (policy id, number of the policy, slots in all environments, describe), which makes a
            lane; `describe` is a function of a slot that returns its description for error messages.
        episode_key: part of the key of the episodes' random streams; episodes with the same numbers and another
            `episode_key` have other streams.
        hooks: receive the episodes; None: there are no hooks.
        episode_class: class of the objects in `episodes`.

    Attributes:
        lanes: policy id -> its lane.
        numbers: policy id -> number of the policy whose lane it is.
        episodes: one object for each environment, which holds the running episode and is reused for the next ones.
    """

    def __init__(
        self,
        worker: Worker,
        stream: MultiAgentStream,
        indices: range,
        num_slots: Mapping[str, int],
        make_lane: Callable[[str, int, int, Callable[[int], str]], AgentLane],
        *,
        episode_key: tuple[int, ...],
        hooks: EpisodeHooks | None = None,
        episode_class: type[EnvironmentEpisode] = EnvironmentEpisode,
    ):
        self._worker, self._make_lane, self._key = worker, make_lane, episode_key
        self._remembers = hooks is not None and hooks.remembers
        self._make_episode = partial(episode_class, stream=stream, new_episode=self._new_episode, hooks=hooks)
        self._indices = indices
        self.episodes = [self._make_episode(index) for index in range(len(indices))]
        self.make(num_slots)

    def make(self, num_slots: Mapping[str, int]) -> None:
        """Makes lanes with this number of slots of each policy in an environment; running episodes are dropped."""
        self.lanes: dict[str, AgentLane] = {}
        self.numbers: dict[str, int] = {}
        # Lanes with agents: of hundreds of policies, few act at a time.
        self._active: list[AgentLane] = []
        self._num_appeared = 0
        for episode in self.episodes:
            episode.use(self.lanes)
        numbers = self._worker.settings.agents.numbers
        for number, (policy_id, slots) in enumerate(sorted(num_slots.items())):
            self.add(policy_id, numbers.get(policy_id, number), slots)

    def add(self, policy_id: str, number: int, slots: int) -> None:
        """Makes the lane of a further policy; running episodes continue.

        Args:
            policy_id: id of the policy.
            number: number of the policy, part of the key of its random streams.
            slots: number of slots of the policy in one environment.
        """
        describe = self._describer(policy_id, slots)
        self.numbers[policy_id] = number
        self.lanes[policy_id] = self._make_lane(policy_id, number, slots * len(self._indices), describe)
        for index, episode in enumerate(self.episodes):
            episode.add_slots(policy_id, range(index * slots, (index + 1) * slots))

    def widen(self, indices: range, num_slots: Mapping[str, int]) -> None:
        """Adds environments behind the present ones, and slots in each environment; running episodes continue.

        Args:
            indices: indices of all environments of this worker in the run.
            num_slots: policy id -> its slots in one environment, no fewer than before.
        """
        self._indices = indices
        new = [self._make_episode(index) for index in range(len(self.episodes), len(indices))]
        numbers = self._worker.settings.agents.numbers
        for number, (policy_id, slots) in enumerate(sorted(num_slots.items())):
            if self.lanes[policy_id].num_slots < slots * len(indices):
                self._widen_lane(policy_id, numbers.get(policy_id, number), slots)
        self._active = []
        for episode in new:
            episode.use(self.lanes)
            for policy_id, slots in num_slots.items():
                episode.add_slots(policy_id, range(episode.index * slots, (episode.index + 1) * slots))
        self.episodes += new
        self._find_active()

    def _widen_lane(self, policy_id: str, number: int, slots: int) -> None:
        """Replaces a policy's lane by one with this number of slots in each environment; arguments as for `add`."""
        before = self.lanes[policy_id]
        lane = self._make_lane(policy_id, number, slots * len(self._indices), self._describer(policy_id, slots))
        environments, positions = np.divmod(np.arange(before.num_slots), before.num_slots // len(self.episodes))
        moved = environments * slots + positions  # slot in the new lane for each slot of `before`
        lane.widen(before, moved)
        self.lanes[policy_id] = lane
        for index, episode in enumerate(self.episodes):
            episode.move(policy_id, before, moved.tolist(), range(index * slots, (index + 1) * slots))

    def remove_unused(self, policy_ids: Iterable[str]) -> list[str]:
        """Removes the lanes of those of these policies that no agent uses any more; returns the ids of the removed."""
        used = {slot.policy_id for episode in self.episodes for slot in episode.living}
        unused = [policy_id for policy_id in policy_ids if policy_id not in used]
        for policy_id in unused:
            del self.lanes[policy_id], self.numbers[policy_id]
        return unused

    def _describer(self, policy_id: str, slots: int) -> Callable[[int], str]:
        def describe(slot: int) -> str:
            index = slot // slots
            agents = [s.agent for s in self.episodes[index].living if (s.policy_id, s.index) == (policy_id, slot)]
            who = f"agent {agents[0]!r} of " if agents else ""
            return f"{who}environment {index} of {self._owner} (policy {policy_id!r})"

        return describe

    @property
    def _owner(self) -> str:
        return f"{self._worker.kind} {self._worker.worker_index}"

    # ------------------------------------------------------------------ episodes

    def _new_episode(self, env_id: int, number: int) -> RunningEpisode:
        return RunningEpisode(
            self._worker,
            env_id,
            number,
            self._indices[0],
            choose=self._policy_of,
            make_rng=self._rng,
            only=self._worker.settings.agents.only,
            remembers=self._remembers,
        )

    def _rng(self, env_id: int, number: int) -> np.random.Generator:
        key = self._indices[env_id], *self._key, number
        return seeding.generator(self._worker.settings.seed, seeding.AGENT_EPISODES, *key)

    def _policy_of(self, agent: AgentID, episode: RunningEpisode) -> str:
        """The id of an agent's policy, from the user's mapping.

        Raises:
            UnknownPolicyError, TypeError: if the mapping does not return the id of a policy.
            the mapping's own exception, with a note.
        """
        try:
            policy_id = self._worker.settings.agents.policy_of(agent, episode, self._worker)
        except Exception as error:
            error.add_note(
                f"policy_mapping_fn was asked for the policy of agent {agent!r}, in episode {episode.number} of "
                f"environment {episode.env_id} of {self._owner}"
            )
            raise
        if not isinstance(policy_id, str):
            raise TypeError(
                f"policy_mapping_fn must return the id of a policy, a string, but gave {policy_id!r:.60} for agent "
                f"{agent!r}"
            )
        if policy_id not in self.lanes:
            raise UnknownPolicyError(
                f"policy_mapping_fn gave agent {agent!r} the policy {policy_id!r}, but there are "
                f"{', '.join(self.lanes)}. Add it to .multi_agent(policies=...), or algo.add_policy({policy_id!r})."
            )
        return policy_id

    # ------------------------------------------------------------------ steps

    def act(self, step: int = 0) -> None:
        """Chooses the actions of all agents that act."""
        for lane in self._active:
            if lane.acting:
                lane.act(step)

    @staticmethod
    def step(episodes: Sequence[EnvironmentEpisode]) -> list[EnvironmentEpisode]:
        """Steps these environments with the actions of `act`; returns those whose episodes are over."""
        return [each for each in episodes if each.act_and_step()]

    @staticmethod
    def start(episodes: Iterable[EnvironmentEpisode]) -> None:
        """Starts an episode in each of these environments that has none."""
        for each in episodes:
            if not each.is_running:
                each.start()

    def receive(self) -> None:
        """Stores the agents' observations since the last call; exactly these agents act in the next step."""
        num_appeared = sum([each.num_appeared for each in self.episodes])
        if num_appeared != self._num_appeared:
            self._num_appeared = num_appeared
            self._find_active()
        for lane in self._active:
            lane.receive()

    def _find_active(self) -> None:
        """Finds the lanes with agents, after agents have appeared; `act` and `receive` skip the other lanes."""
        before = self._active
        used = {id(slot.lane): (slot.policy_id, slot.lane) for episode in self.episodes for slot in episode.living}
        self._active = [lane for _, lane in sorted(used.values(), key=lambda pair: pair[0])]
        for lane in before:
            if id(lane) not in used:
                lane.receive()

    def number_anew(self, key: tuple[int, ...]) -> None:
        """Numbers the environments' episodes from 0 again, with other random streams.

        Args:
            key: as `episode_key` of the constructor.
        """
        self._key = key
        for each in self.episodes:
            each.number = -1

    def start_over(self) -> None:
        """Drops the running episodes."""
        for each in self.episodes:
            each.forget()
        for lane in self.lanes.values():
            lane.start_over()
        self._active = []
