"""The agents of one environment, each in a slot of its policy, and the steps of the environment as rows of its agents.

Rules of a row (Ray's, docs/guide/multi_agent.md): it opens when its agent acts, and closes with the first later step
in which the agent has an observation or ends, or the episode ends. Its reward is the sum of all rewards given to the
agent from the step of its action on. Rewards outside of any row count in the agent's return.
"""

from collections import Counter
from collections.abc import Callable, KeysView, Mapping, Sequence
from typing import Any, NamedTuple

from rllib.env.episodes import Episode
from rllib.env.multi_agent.agent_spaces import ALL, AgentID
from rllib.env.multi_agent.stream import AgentStep, MultiAgentStream
from rllib.evaluation.episode_hooks import EpisodeHooks
from rllib.evaluation.multi_agent.lanes import Slots
from rllib.evaluation.running_episode import AgentSlot, RunningEpisode


class OutOfSlotsError(Exception):
    """More agents of a policy are in one environment than it has slots for; the argument is the policy's id."""


class Bench(NamedTuple):
    """Agents of one policy that act together in an environment.

    Attributes:
        lane: in which they act.
        seats, slots: of each of them.
    """

    lane: Slots
    seats: list[AgentSlot]
    slots: list[int]


class EnvironmentSeats:
    """The seats of one environment.

    Args:
        index: of the environment in its worker.
        stream: steps it.
        new_episode: function of (index of the environment in the worker, number of the episode in it).
        hooks: get the episodes; None: there are none.

    Attributes:
        number: of the episode in this environment, counted from 0.
        episode: the running one; None where there is none.
        result: the episode that the newest step has ended; None where there is none, or it was void.
        living: seats of the agents that have appeared and have not ended, in the stream's order of agents.
        num_closed: rows that were closed since `begin_fragment`.
        num_seated: seats that were taken so far, in all episodes.
        is_carried: whether all rows of the running episode go on in the next fragment.
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
        self.number, self.num_seated = -1, 0
        self.num_closed = 0
        self._closed: Counter[tuple[AgentID, str]] = Counter()
        self.result: Episode | None = None
        self.place({}, {})

    def place(self, lanes: Mapping[str, Slots], places: Mapping[str, range]) -> None:
        """Puts the seats into lanes, and drops the running episode.

        Args:
            lanes: policy id -> its slots.
            places: policy id -> slots of this environment in the lane.
        """
        self._lanes, self._places = lanes, places
        self.forget()

    def add_places(self, policy_id: str, places: range) -> None:
        """Adds slots of a further policy in this environment."""
        self._places = {**self._places, policy_id: places}

    def move(self, policy_id: str, before: Slots, moved: Sequence[int], places: range) -> None:
        """Moves the seats of a policy into the lane that replaces its lane; the running episode goes on.

        Args:
            policy_id: of the policy.
            before: its lane so far.
            moved: slot in the new lane, of each slot before.
            places: slots of this environment in the new lane.
        """
        taken = set()
        living = {seat.agent for seat in self.living}
        for seat in self.episode.slots.values() if self.episode is not None else ():
            if seat.lane is before:
                seat.lane, seat.slot = self._lanes[policy_id], moved[seat.slot]
                if seat.agent in living:
                    taken.add(seat.slot)
        self._benches = None
        self.add_places(policy_id, places)
        if policy_id in self._free:
            self._free[policy_id] = [slot for slot in reversed(places) if slot not in taken]

    def forget(self) -> None:
        """Drops the running episode."""
        self.episode: RunningEpisode | None = None
        self.living: list[AgentSlot] = []
        self._acting: list[AgentSlot] = []
        # The seats that act, by policy; None: not sorted yet.
        self._benches: list[Bench] | None = None
        # Free slots of the policies that act in this episode; of hundreds, few do.
        self._free: dict[str, list[int]] = {}

    @property
    def is_running(self) -> bool:
        """Whether there is an episode."""
        return self.episode is not None

    @property
    def length(self) -> int:
        """Steps of the episode so far; 0 where there is none."""
        return 0 if self.episode is None else self.episode.length

    @property
    def played(self) -> int:
        """Number of the newest episode with a step; one without any begins anew after a restore."""
        return self.number - (self.episode is not None and not self.episode.length)

    # ------------------------------------------------------------------ an episode

    def start(self) -> None:
        """Starts an episode in the environment."""
        first = None
        while first is None:
            self.forget()
            self.number += 1
            self.episode = episode = self._new_episode(self.index, self.number)
            if self._hooks is not None:
                self._hooks.created(episode)
            first = self._stream.reset(self.index)
            if first is None:
                self._fail()
        if self._hooks is not None:
            episode.begin(*first)
            self._hooks.started(episode)
        observations, _ = first
        self._take_seats(observations)
        self._let_act(self.living, observations)

    def _let_act(self, acting: list[AgentSlot], observations: Mapping) -> None:
        """Notes who acts in the next step, and on which observations."""
        self._acting, self._benches = acting, None
        for seat in acting:
            seat.lane.see(seat.slot, observations[seat.agent])

    def _take_seats(self, observations: Mapping) -> None:
        """Seats the agents that are new, in the stream's order."""
        episode, position = self.episode, self._stream.order(self.index)
        new = [agent for agent in observations if agent not in episode.slots]
        position.meet(new)
        for agent in position.sorted(new) if len(new) > 1 else new:
            policy_id = episode.policy_for(agent)
            free = self._free.get(policy_id)
            if free is None:
                free = self._free[policy_id] = list(reversed(self._places[policy_id]))
            if not free:
                raise OutOfSlotsError(policy_id)
            seat = AgentSlot(agent, policy_id, self._lanes[policy_id], free.pop(), episode.loose.pop(agent, 0.0))
            seat.lane.begin_episode(seat.slot)
            episode.slots[agent] = seat
            self.living.append(seat)
        self.num_seated += len(new)
        if len(new) < len(self.living):
            self.living.sort(key=lambda seat: position[seat.agent])

    def act_and_step(self) -> bool:
        """Steps the environment with the actions that the lanes have chosen.

        Returns:
            whether the episode is over: it has ended, and is `result`, or the environment has failed.
        """
        actions = self.actions()
        step = self._stream.step(self.index, actions)
        if step is not None and not step.has_ends and self._go_on_alike(actions.keys(), step):
            if self._hooks is not None:
                self._tell_hooks(actions, step)
            return False
        return self.take_in(actions, step)

    def _tell_hooks(self, actions: Mapping[AgentID, Any], step: AgentStep) -> None:
        self.episode.stepped(actions, step)
        self._hooks.stepped(self.episode)

    def actions(self) -> dict[AgentID, Any]:
        """The newest actions of the agents that act."""
        return {seat.agent: seat.lane.env_actions[seat.slot] for seat in self._acting}

    def take_in(self, actions: Mapping[AgentID, Any], step: AgentStep | None) -> bool:
        """Takes in what has followed these actions; returns what `act_and_step` does."""
        for seat in self._acting:
            seat.is_open, seat.reward = True, 0.0
        if step is None:
            self.result = None
            self._void()
            return True
        episode = self.episode
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

    def _go_on_alike(self, agents: KeysView, step: AgentStep) -> bool:
        """Takes in a step after which the same agents act again, and no others have rewards, policy by policy.

        Args:
            agents: that have acted.
            step: in which nobody has ended.

        Returns:
            whether it is one. If not, nothing has happened.
        """
        observations, rewards = step.observations, step.rewards
        if observations.keys() != agents or rewards.keys() != agents:
            return False
        if self._benches is None:
            self._benches = _by_policy(self._acting)
        self.episode.length += 1
        for lane, seats, slots in self._benches:
            given, seen = [], []
            for seat in seats:
                agent = seat.agent
                reward = float(rewards[agent])
                seat.total += reward
                seat.num_rows += 1
                given.append(reward)
                seen.append(observations[agent])
            lane.go_on(slots, given, seen)
        self.num_closed += len(agents)
        return True

    def _add_rewards(self, rewards: Mapping[AgentID, float]) -> None:
        seats, loose = self.episode.slots, self.episode.loose
        for agent, reward in rewards.items():
            seat = seats.get(agent)
            if seat is not None:
                reward = float(reward or 0.0)
                seat.reward += reward
                seat.total += reward
            elif reward:
                loose[agent] = loose.get(agent, 0.0) + float(reward)

    def _close_rows(self, step: AgentStep) -> list[AgentSlot]:
        """Closes the rows that are complete after a step; returns the agents that have ended with it."""
        observations, terminateds, truncateds = step.observations, step.terminateds, step.truncateds
        if not step.has_ends:
            for seat in self.living:
                if seat.is_open and seat.agent in observations:
                    self._close(seat)
            return []
        all_terminated, all_truncated = bool(terminateds[ALL]), bool(truncateds[ALL])
        ended: list[AgentSlot] = []
        for seat in self.living:
            agent = seat.agent
            terminated = all_terminated or bool(terminateds.get(agent))
            truncated = all_truncated or bool(truncateds.get(agent))
            if terminated or truncated:
                ended.append(seat)
                if seat.is_open:
                    self._close_last(seat, observations, terminated, truncated)
            elif seat.is_open and agent in observations:
                self._close(seat)
        return ended

    def _close(self, seat: AgentSlot, terminated: bool = False, truncated: bool = False) -> None:
        seat.is_open = False
        seat.num_rows += 1
        self.num_closed += 1
        if seat.lane.records:
            seat.lane.close(seat.slot, seat.reward, terminated, truncated)

    def _close_last(self, seat: AgentSlot, observations: Mapping, terminated: bool, truncated: bool) -> None:
        """Closes the last row of an agent, or drops it where nothing says what followed a truncation."""
        lane, is_seen = seat.lane, seat.agent in observations
        if lane.records and not is_seen and not terminated:
            self._drop(seat)
            self._stream.warn_of_dropped_row(seat.agent)
            return
        if lane.records and is_seen and (lane.every_final_observation or not terminated):
            lane.keep_final(seat.slot, observations[seat.agent])
        self._close(seat, terminated, truncated)

    @staticmethod
    def _drop(seat: AgentSlot) -> None:
        seat.is_open = False
        has_row_here, has_row_earlier = seat.num_rows > seat.first_row, seat.first_row > 0
        seat.lane.drop(seat.slot, has_row_here=has_row_here, has_row_earlier=has_row_earlier)

    def _go_on(self, observations: Mapping, ended: list[AgentSlot]) -> None:
        """Frees the slots of agents that have ended, seats new agents, and notes who acts next."""
        for seat in ended:
            self.living.remove(seat)
            self._free[seat.policy_id].append(seat.slot)
            self._free[seat.policy_id].sort(reverse=True)
        if not observations.keys() <= self.episode.slots.keys():
            self._take_seats(observations)
        self._let_act([seat for seat in self.living if seat.agent in observations], observations)

    def _end(self) -> Episode:
        episode = self.episode
        lengths = {(seat.agent, seat.policy_id): seat.num_rows for seat in episode.slots.values()}
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
        """Drops the episode of an environment that has raised and was replaced."""
        for seat in self.living:
            if seat.is_open and seat.lane.records:
                self._drop(seat)
        self._fail()
        self._count_rows()
        self.forget()

    def _fail(self) -> None:
        self.episode.is_faulty = True
        if self._hooks is not None:
            self._hooks.failed(self.episode)

    # ------------------------------------------------------------------ a fragment

    def begin_fragment(self) -> None:
        """Counts rows from here on: which rows of the episode are in earlier fragments is noted."""
        self.num_closed, self._closed = 0, Counter()
        for seat in self.episode.slots.values() if self.episode is not None else ():
            seat.first_row = seat.num_rows

    def _count_rows(self) -> None:
        for seat in self.episode.slots.values() if self.episode is not None else ():
            if seat.num_rows > seat.first_row:
                self._closed[seat.agent, seat.policy_id] += seat.num_rows - seat.first_row

    def closed_rows(self) -> Counter[tuple[AgentID, str]]:
        """Number of rows by (agent, policy) that were closed since `begin_fragment`; called at a fragment's end."""
        self._count_rows()
        return self._closed


def _by_policy(seats: list[AgentSlot]) -> list[Bench]:
    """The seats on benches of their policies, in order."""
    benches: dict[str, Bench] = {}
    for seat in seats:
        bench = benches.setdefault(seat.policy_id, Bench(seat.lane, [], []))
        bench.seats.append(seat)
        bench.slots.append(seat.slot)
    return list(benches.values())
