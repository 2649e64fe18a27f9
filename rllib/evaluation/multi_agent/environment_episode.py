"""The agents of one environment, each in a slot of its policy, and steps of the environment as rows of its agents.

Rules of a row (Ray's, docs/guide/multi_agent.md): it opens when its agent acts, and closes with the first later step
in which the agent has an observation or ends, or the episode ends. Its reward is the sum of all rewards given to the
agent from the step of its action on. Rewards outside of any row count in the agent's return.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rllib.env.episodes import Episode
from rllib.env.multi_agent.agent_spaces import ALL, AgentID
from rllib.env.multi_agent.stream import AgentStep, MultiAgentStream
from rllib.evaluation.episode_hooks import EpisodeHooks
from rllib.evaluation.multi_agent.agent_lane import AgentLane
from rllib.evaluation.running_episode import AgentSlot, RunningEpisode


class OutOfSlotsError(Exception):
    """One environment has more agents of a policy than the policy has slots; the argument is the policy's id."""


class EnvironmentEpisode:
    """The running episode of an environment, and then the next ones: which agent has which slot, which rows close.

    Args:
        index: index of the environment in its worker.
        stream: steps the environment.
        new_episode: function of (index of the environment in the worker, number of the episode in it).
        hooks: receive the episodes; None: there are no hooks.

    Attributes:
        number: number of the episode in this environment, counted from 0.
        running: the running episode; None where there is none.
        result: the episode that the newest step has ended; None where it ended no episode or a void one.
        living: slots of the agents that have appeared and have not ended, in the stream's order of agents.
        num_closed: rows that were closed since `begin_fragment`.
        num_appeared: agents that have appeared so far, in all episodes.
        is_carried: whether all rows of the running episode are carried over to the next fragment.
        trains: whether the steps of the running episode become rows.
    """

    is_carried = False
    trains = True

    def __init__(
        self,
        index: int,
        stream: MultiAgentStream,
        new_episode: Callable[[int, int], RunningEpisode],
        hooks: EpisodeHooks | None = None,
    ):
        self.index, self._stream, self._new_episode, self._hooks = index, stream, new_episode, hooks
        self.number, self.num_appeared = -1, 0
        self.num_closed = 0
        self._closed: Counter[tuple[AgentID, str]] = Counter()
        self.result: Episode | None = None
        self.use({})

    def use(self, lanes: Mapping[str, AgentLane]) -> None:
        """Sets the lanes (policy id -> lane) and drops the running episode; `add_slots` then adds their slots."""
        self._lanes, self._slots = lanes, {}
        self.forget()

    def add_slots(self, policy_id: str, slots: range) -> None:
        """Adds slots of a further policy in this environment."""
        self._slots = {**self._slots, policy_id: slots}

    def move(self, policy_id: str, before: AgentLane, moved: Sequence[int], slots: range) -> None:
        """Moves the agents of a policy into the lane that replaces its lane; the running episode continues.

        Args:
            policy_id: id of the policy.
            before: its lane so far.
            moved: slot in the new lane for each slot of `before`.
            slots: slots of this environment in the new lane.
        """
        taken = set()
        living = {slot.agent for slot in self.living}
        for slot in self.running.slots.values() if self.running is not None else ():
            if slot.lane is before:
                slot.lane, slot.index = self._lanes[policy_id], moved[slot.index]
                if slot.agent in living:
                    taken.add(slot.index)
        self._acting_by_lane = None
        self.add_slots(policy_id, slots)
        if policy_id in self._free:
            self._free[policy_id] = [slot for slot in reversed(slots) if slot not in taken]

    def forget(self) -> None:
        """Drops the running episode."""
        self.running: RunningEpisode | None = None
        self.living: list[AgentSlot] = []
        self._acting: list[AgentSlot] = []
        # The slots that act, grouped by lane, with their numbers; None: not grouped yet.
        self._acting_by_lane: list[tuple[AgentLane, list[AgentSlot], list[int]]] | None = None
        # Free slots of the policies that act in this episode: of hundreds of policies, few do.
        self._free: dict[str, list[int]] = {}

    @property
    def is_running(self) -> bool:
        """Whether there is an episode."""
        return self.running is not None

    @property
    def length(self) -> int:
        """Steps of the episode so far; 0 where there is none."""
        return 0 if self.running is None else self.running.length

    @property
    def played(self) -> int:
        """Number of the newest episode that has made a step; an episode without steps is started again by a restore."""
        return self.number - (self.running is not None and not self.running.length)

    # ------------------------------------------------------------------ an episode

    def start(self) -> None:
        """Starts an episode in the environment."""
        first = None
        while first is None:
            self.forget()
            self.number += 1
            self.running = episode = self._new_episode(self.index, self.number)
            if self._hooks is not None:
                self._hooks.created(episode)
            first = self._stream.reset(self.index)
            if first is None:
                self._fail()
        if self._hooks is not None:
            episode.begin(*first)
            self._hooks.started(episode)
        observations, _ = first
        self._give_slots(observations)
        self._let_act(self.living, observations)

    def _let_act(self, acting: list[AgentSlot], observations: Mapping) -> None:
        """Sets the agents that act in the next step, and passes their observations to the lanes."""
        self._acting, self._acting_by_lane = acting, None
        for slot in acting:
            slot.lane.see(slot.index, observations[slot.agent])

    def _give_slots(self, observations: Mapping) -> None:
        """Assigns slots to new agents, in the stream's order."""
        episode, position = self.running, self._stream.order(self.index)
        new = [agent for agent in observations if agent not in episode.slots]
        position.meet(new)
        for agent in position.sorted(new) if len(new) > 1 else new:
            policy_id = episode.policy_for(agent)
            free = self._free.get(policy_id)
            if free is None:
                free = self._free[policy_id] = list(reversed(self._slots[policy_id]))
            if not free:
                raise OutOfSlotsError(policy_id)
            slot = AgentSlot(agent, policy_id, self._lanes[policy_id], free.pop(), episode.loose.pop(agent, 0.0))
            slot.lane.begin_episode(slot.index)
            episode.slots[agent] = slot
            self.living.append(slot)
        self.num_appeared += len(new)
        if len(new) < len(self.living):
            self.living.sort(key=lambda slot: position[slot.agent])

    def act_and_step(self) -> bool:
        """Steps the environment with the actions that the lanes have chosen.

        Returns:
            whether the episode is over: either it has ended and is `result`, or the environment has failed.
        """
        actions = self.actions()
        step = self._stream.quick_step(self.index, actions)
        if type(step) is not tuple:
            return self.take_in(actions, step)
        observations, rewards, *_ = step
        if self._acting_by_lane is None:
            self._acting_by_lane = _by_lane(self._acting)
        self.running.length += 1
        self.num_closed += len(actions)
        for lane, acting, slots in self._acting_by_lane:
            given, seen = [], []
            for slot in acting:
                agent = slot.agent
                reward = float(rewards[agent])
                slot.total += reward
                slot.num_rows += 1
                given.append(reward)
                seen.append(observations[agent])
            lane.go_on(slots, given, seen)
        if self._hooks is not None:
            self._tell_hooks(actions, AgentStep(*step, is_over=False, has_ends=False))
        return False

    def actions(self) -> dict[AgentID, Any]:
        """The newest actions of the agents that act."""
        actions = {}
        for slot in self._acting:  # a comprehension is one more call a step
            actions[slot.agent] = slot.lane.env_actions[slot.index]
        return actions

    def _tell_hooks(self, actions: Mapping[AgentID, Any], step: AgentStep) -> None:
        self.running.stepped(actions, step)
        self._hooks.stepped(self.running)

    def take_in(self, actions: Mapping[AgentID, Any], step: AgentStep | None) -> bool:
        """Processes the step that followed these actions; returns the same as `act_and_step`.

        Args:
            actions: agent -> action, as `actions` returned them.
            step: the environment's results; None: the environment has failed.
        """
        for slot in self._acting:
            slot.is_open, slot.reward = True, 0.0
        if step is None:
            self.result = None
            self._void()
            return True
        episode = self.running
        episode.length += 1
        self._add_rewards(step.rewards)
        ended = self._close_rows(step)
        if not step.is_over:
            self._go_on(step.observations, ended)
        if self._hooks is not None:
            self._tell_hooks(actions, step)
        if step.is_over:
            self.result = self._end()
        return step.is_over

    def _add_rewards(self, rewards: Mapping[AgentID, float]) -> None:
        slots, loose = self.running.slots, self.running.loose
        for agent, reward in rewards.items():
            slot = slots.get(agent)
            if slot is not None:
                reward = float(reward or 0.0)
                slot.reward += reward
                slot.total += reward
            elif reward:
                loose[agent] = loose.get(agent, 0.0) + float(reward)

    def _close_rows(self, step: AgentStep) -> list[AgentSlot]:
        """Closes the rows that are complete after a step; returns the slots of agents that ended in this step."""
        observations, terminateds, truncateds = step.observations, step.terminateds, step.truncateds
        if not step.has_ends:
            for slot in self.living:
                if slot.is_open and slot.agent in observations:
                    self._close(slot)
            return []
        all_terminated, all_truncated = bool(terminateds[ALL]), bool(truncateds[ALL])
        ended: list[AgentSlot] = []
        for slot in self.living:
            agent = slot.agent
            terminated = all_terminated or bool(terminateds.get(agent))
            truncated = all_truncated or bool(truncateds.get(agent))
            if terminated or truncated:
                ended.append(slot)
                if slot.is_open:
                    self._close_last(slot, observations, terminated, truncated)
            elif slot.is_open and agent in observations:
                self._close(slot)
        return ended

    def _close(self, slot: AgentSlot, terminated: bool = False, truncated: bool = False) -> None:
        slot.is_open = False
        slot.num_rows += 1
        self.num_closed += 1
        if slot.lane.records:
            slot.lane.close(slot.index, slot.reward, terminated, truncated)

    def _close_last(self, slot: AgentSlot, observations: Mapping, terminated: bool, truncated: bool) -> None:
        """Closes the last row of an agent, or drops it after a truncation without a final observation."""
        lane, is_seen = slot.lane, slot.agent in observations
        if lane.records and not is_seen and not terminated:
            self._drop(slot)
            self._stream.warn_of_dropped_row(slot.agent)
            return
        if lane.records and is_seen and (lane.every_final_observation or not terminated):
            lane.keep_final(slot.index, observations[slot.agent])
        elif lane.records and lane.every_final_observation:
            lane.keep_last(slot.index)
        self._close(slot, terminated, truncated)

    @staticmethod
    def _drop(slot: AgentSlot) -> None:
        slot.is_open = False
        has_row_here, has_row_earlier = slot.num_rows > slot.first_row, slot.first_row > 0
        slot.lane.drop(slot.index, has_row_here=has_row_here, has_row_earlier=has_row_earlier)

    def _go_on(self, observations: Mapping, ended: list[AgentSlot]) -> None:
        """Frees the slots of agents that have ended, assigns slots to new agents, and sets the agents that act next."""
        for slot in ended:
            self.living.remove(slot)
            self._free[slot.policy_id].append(slot.index)
            self._free[slot.policy_id].sort(reverse=True)
        if not observations.keys() <= self.running.slots.keys():
            self._give_slots(observations)
        self._let_act([slot for slot in self.living if slot.agent in observations], observations)

    def _end(self) -> Episode:
        episode = self.running
        lengths = {(slot.agent, slot.policy_id): slot.num_rows for slot in episode.slots.values()}
        result = Episode(
            episode.total_reward,
            episode.length,
            self.index,
            agent_returns=episode.agent_rewards,
            agent_lengths=lengths,
        )
        if self._hooks is not None:
            self._hooks.ended(episode, result)
        self._count_rows()
        self.forget()
        return result

    def _void(self) -> None:
        """Drops the episode of an environment that raised an exception and was replaced."""
        for slot in self.living:
            if slot.is_open and slot.lane.records:
                self._drop(slot)
        self._fail()
        self._count_rows()
        self.forget()

    def _fail(self) -> None:
        self.running.is_faulty = True
        if self._hooks is not None:
            self._hooks.failed(self.running)

    # ------------------------------------------------------------------ a fragment

    def begin_fragment(self) -> None:
        """Resets the row counts, and records how many rows of the running episode are in earlier fragments."""
        self.num_closed, self._closed = 0, Counter()
        for slot in self.running.slots.values() if self.running is not None else ():
            slot.first_row = slot.num_rows

    def _count_rows(self) -> None:
        for slot in self.running.slots.values() if self.running is not None else ():
            if slot.num_rows > slot.first_row:
                self._closed[slot.agent, slot.policy_id] += slot.num_rows - slot.first_row

    def closed_rows(self) -> Counter[tuple[AgentID, str]]:
        """Number of rows by (agent, policy) that were closed since `begin_fragment`; called at a fragment's end."""
        self._count_rows()
        return self._closed


def _by_lane(acting: list[AgentSlot]) -> list[tuple[AgentLane, list[AgentSlot], list[int]]]:
    """Slots of the agents that act, grouped by lane in their order, each group with the slots' numbers."""
    found: dict[str, tuple[AgentLane, list[AgentSlot], list[int]]] = {}
    for each in acting:
        _, own, slots = found.setdefault(each.policy_id, (each.lane, [], []))
        own.append(each)
        slots.append(each.index)
    return list(found.values())
