"""The agents of one environment, each in a slot of its policy, and the steps of the environment as rows of its agents.

Rules of a row (Ray's, docs/multi_agent.md): it opens when its agent acts, and closes with the first later step in which
the agent has an observation or ends, or the episode ends. Its reward is the sum of all rewards given to the agent from
the step of its action on. Rewards outside of any row count in the agent's return.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rllib.env.episodes import Episode
from rllib.env.multi_agent.agent_spaces import ALL, AgentID
from rllib.env.multi_agent.stream import AgentStep, MultiAgentStream
from rllib.evaluation.multi_agent.lanes import Slots

logger = logging.getLogger(__name__)


class OutOfSlotsError(Exception):
    """More agents of a policy are in one environment than it has slots for; the argument is the policy's id."""


class Seat:
    """An agent of the running episode, and its slot.

    Attributes:
        agent, policy_id: who sits here, and what acts for it.
        lane, slot: where it acts.
        reward: sum of its rewards since it has acted.
        total: sum of all its rewards in the episode.
        num_rows: its closed rows in the episode.
        first_row: number of them that were closed in earlier fragments.
        is_open: whether it has acted and waits for what follows.
    """

    __slots__ = ("agent", "first_row", "is_open", "lane", "num_rows", "policy_id", "reward", "slot", "total")

    def __init__(self, agent: AgentID, policy_id: str, lane: Slots, slot: int, total: float):
        self.agent, self.policy_id, self.lane, self.slot = agent, policy_id, lane, slot
        self.reward, self.total = 0.0, total
        self.num_rows = self.first_row = 0
        self.is_open = False


class EpisodeEvents(Protocol):
    """Receives the events of an environment's episodes, by its index."""

    def began(self, seats: "EnvironmentSeats", observations: Mapping, infos: Mapping) -> None:
        """An episode has begun with these results of reset()."""

    def stepped(self, seats: "EnvironmentSeats", actions: Mapping, step: AgentStep) -> None:
        """A step was made."""

    def ended(self, seats: "EnvironmentSeats", episode: Episode) -> None:
        """The episode is over."""

    def failed(self, seats: "EnvironmentSeats") -> None:
        """The environment has raised, and the episode is void."""


class EnvironmentSeats:
    """The seats of one environment.

    Args:
        index: of the environment in its worker.
        stream: steps it.
        lanes: policy id -> its slots.
        places: policy id -> slots of this environment in the lane.
        choose: function of (agent, these seats) that returns the id of the agent's policy for the episode.
        events: receives the events of the episodes; None: nobody does.

    Attributes:
        number: of the episode in this environment, counted from 0.
        length: steps of the episode so far.
        seats: agent -> its seat, of all that have appeared in the episode.
        is_running: whether there is an episode.
        has_failed: whether the environment has raised in the newest step, and was replaced.
        agent_steps: number of closed rows by (agent, policy); the owner may set another Counter.
    """

    def __init__(
        self,
        index: int,
        stream: MultiAgentStream,
        lanes: Mapping[str, Slots],
        places: Mapping[str, range],
        choose: Callable[[AgentID, "EnvironmentSeats"], str],
        events: EpisodeEvents | None = None,
    ):
        self.index, self._stream, self._lanes, self._places = index, stream, lanes, places
        self._choose, self._events = choose, events
        self.number = -1
        self.agent_steps: Counter[tuple[AgentID, str]] = Counter()
        self.has_failed = False
        self._clear()

    def _clear(self) -> None:
        self.is_running = False
        self.length = 0
        self.seats: dict[AgentID, Seat] = {}  # of all agents that have appeared in the episode
        self._living: list[Seat] = []  # in the stream's order of agents
        self._acting: list[Seat] = []
        # Rewards of agents that have not appeared.
        self._loose: dict[AgentID, float] = {}
        self._free = {policy_id: list(reversed(place)) for policy_id, place in self._places.items()}

    # ------------------------------------------------------------------ an episode

    def start(self) -> None:
        """Starts an episode in the environment."""
        self._begin(*self._stream.reset(self.index))

    def _begin(self, observations: Mapping, infos: Mapping) -> None:
        self._clear()
        self.number += 1
        self.is_running = True
        if self._events is not None:
            self._events.began(self, observations, infos)
        self._take_seats(observations)
        self._acting = self._living
        for seat in self._acting:
            seat.lane.see(seat.slot, observations[seat.agent])

    def _take_seats(self, observations: Mapping) -> None:
        """Seats the agents that are new, in the stream's order."""
        new = [agent for agent in observations if agent not in self.seats]
        for agent in self._stream.order.sorted(new) if len(new) > 1 else new:
            policy_id = self._choose(agent, self)
            free = self._free[policy_id]
            if not free:
                raise OutOfSlotsError(policy_id)
            seat = Seat(agent, policy_id, self._lanes[policy_id], free.pop(), self._loose.pop(agent, 0.0))
            seat.lane.begin_episode(seat.slot)
            self.seats[agent] = seat
            self._living.append(seat)
        if len(new) < len(self._living):
            position = self._stream.order
            self._living.sort(key=lambda seat: position[seat.agent])

    def act_and_step(self, starts_next: bool = True) -> Episode | None:
        """Steps the environment with the actions that the lanes have chosen.

        Args:
            starts_next: whether an episode that ends is followed by the next one within the step.

        Returns:
            the episode that has ended with the step, or None.
        """
        acting, self.has_failed = self._acting, False
        actions = {}
        for seat in acting:
            seat.is_open, seat.reward = True, 0.0
            actions[seat.agent] = seat.lane.env_actions[seat.slot]
        step = self._stream.step(self.index, actions)
        if step is None:
            self._void()
            return None
        self.length += 1
        if self._events is not None:
            self._events.stepped(self, actions, step)
        observations, rewards, terminateds, truncateds, _, is_over = step
        seats = self.seats
        for agent, reward in rewards.items():
            seat = seats.get(agent)
            if seat is not None:
                reward = float(reward or 0.0)
                seat.reward += reward
                seat.total += reward
            elif reward:
                self._loose[agent] = self._loose.get(agent, 0.0) + float(reward)
        all_terminated, all_truncated = bool(terminateds[ALL]), bool(truncateds[ALL])
        has_flags = is_over or len(terminateds) > 1 or len(truncateds) > 1
        ended: list[Seat] = []
        for seat in self._living:
            agent = seat.agent
            is_seen = agent in observations
            terminated = truncated = False
            if has_flags:
                terminated = all_terminated or bool(terminateds.get(agent))
                truncated = all_truncated or bool(truncateds.get(agent))
                if terminated or truncated:
                    ended.append(seat)
            if seat.is_open and (is_seen or terminated or truncated):
                self._close(seat, observations.get(agent), is_seen, terminated, truncated)
        if is_over:
            return self._end(starts_next)
        for seat in ended:
            self._living.remove(seat)
            self._free[seat.policy_id].append(seat.slot)
            self._free[seat.policy_id].sort(reverse=True)
        if len(seats) < len(observations) or not observations.keys() <= seats.keys():
            self._take_seats(observations)
        if len(observations) == len(self._living) and not ended:
            self._acting = self._living
        else:
            self._acting = [seat for seat in self._living if seat.agent in observations]
        for seat in self._acting:
            seat.lane.see(seat.slot, observations[seat.agent])
        return None

    def _close(self, seat: Seat, observation: Any, is_seen: bool, terminated: bool, truncated: bool) -> None:
        """Closes the open row of an agent: rule R2 and R3; R6 where it cannot be bootstrapped."""
        seat.is_open = False
        lane = seat.lane
        if lane.records and not is_seen and not terminated:
            lane.drop(seat.slot, seat.num_rows > seat.first_row)
            _warn_of_dropped_row(seat.agent)
            return
        seat.num_rows += 1
        self.agent_steps[seat.agent, seat.policy_id] += 1
        if not lane.records:
            return
        if is_seen and ((lane.every_final_observation and (terminated or truncated)) or (truncated and not terminated)):
            lane.keep_final(seat.slot, observation)
        lane.close(seat.slot, seat.reward, terminated, truncated)

    def _end(self, starts_next: bool) -> Episode:
        totals = {(seat.agent, seat.policy_id): seat.total for seat in self.seats.values()}
        # Agents that were rewarded and never had an observation have no policy.
        total = sum(totals.values()) + sum(self._loose.values())
        lengths = {(seat.agent, seat.policy_id): seat.num_rows for seat in self.seats.values()}
        episode = Episode(total, self.length, self.index, agent_returns=totals, agent_lengths=lengths)
        if self._events is not None:
            self._events.ended(self, episode)
        if starts_next:
            self.start()
        else:
            self._clear()
        return episode

    def _void(self) -> None:
        """Drops the episode of an environment that has failed and was replaced."""
        self.has_failed = True
        if self._events is not None:
            self._events.failed(self)
        for seat in self._living:
            if seat.is_open and seat.lane.records:
                seat.lane.drop(seat.slot, seat.num_rows > seat.first_row)
        self._begin(*self._stream.first)

    def begin_fragment(self) -> None:
        """Notes which rows of the episode are in earlier fragments."""
        for seat in self._living:
            seat.first_row = seat.num_rows

    @property
    def living(self) -> list[Seat]:
        """The agents that have appeared and have not ended, in order."""
        return self._living

    def forget(self) -> None:
        """Drops the running episode."""
        self._clear()


_warned: set[str] = set()


def _warn_of_dropped_row(agent: AgentID) -> None:
    """Says once that a time limit has come while an agent waited."""
    if "dropped" not in _warned:
        _warned.add("dropped")
        logger.warning(
            "an episode was truncated while agent %r waited for an observation after its action: this last step of "
            "the agent is not learned from, since nothing says what followed. Give all agents an observation in the "
            "step that is truncated, if there is one.",
            agent,
        )
