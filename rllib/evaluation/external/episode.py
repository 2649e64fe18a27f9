"""An external episode: its agents, and the rows made of its step requests."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from rllib.env.external.exchange import AgentRefused
from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.env.multi_agent.stream import AgentStep
from rllib.evaluation.multi_agent.agent_lane import AgentLane
from rllib.evaluation.multi_agent.environment_episode import EnvironmentEpisode, OutOfSlotsError
from rllib.evaluation.running_episode import AgentSlot


class ExternalEpisode(EnvironmentEpisode):
    """An episode whose loop is outside of the worker and may pause for any time between two step requests.

    Attributes:
        given: the actions that answered the newest step request.
        is_void: whether all open rows are dropped when they close.
        num_steps: steps since `begin_fragment` that become rows.
    """

    is_void = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.given: Mapping = {}
        # Agents whose newest rows are dropped when they close, which cuts the sequences of their rows there. This is
        # noted by agent, since other agents act while one waits.
        self._dropped: set[AgentID] = set()
        # Steps of the running episode that are in no fragment yet.
        self.num_steps = self._own_steps = 0

    def begin(self, trains: bool, rewards: Mapping[AgentID, float]) -> None:
        """Starts the episode; its rewards so far belong to no row.

        Raises:
            AgentRefused: if an agent has no policy. The caller must call `void`.
            OutOfSlotsError: if a policy has too few slots for its agents. Once it has more, call `begin_late`.
        """
        self.trains, self.is_void, self.given, self._own_steps = trains, False, {}, 0
        self._dropped.clear()
        self.start()
        self._add_rewards(rewards)

    def begin_late(self, step: AgentStep) -> None:
        """Gives slots to the first agents of an episode for which `begin` had too few slots; errors as there."""
        self._give_slots(step.observations)
        self._let_act(self.living, step.observations)
        self._add_rewards(step.rewards)

    def acted(self, given: Mapping, drops: bool) -> None:
        """Opens the rows of the agents that have just acted.

        Args:
            given: the actions of these agents.
            drops: whether these rows are dropped when they close; the rows of agents that wait are not affected.
        """
        self.given = given
        for slot in self._acting:
            slot.is_open, slot.reward = True, 0.0
        if drops:
            self._dropped.update(slot.agent for slot in self._acting)
        elif self._dropped:
            self._dropped.difference_update(slot.agent for slot in self._acting)

    def _keeps(self, slot: AgentSlot) -> bool:
        """Whether the open row of a slot is learned from when it closes."""
        return self.trains and not self.is_void and slot.agent not in self._dropped

    def follow(self, step: AgentStep, is_void: bool) -> bool:
        """Processes the step that followed the newest actions; returns whether the episode is over.

        Args:
            step: the outcome of the newest actions; it ends the episode if `is_void`.
            is_void: whether the episode is given up, so that the outcome of the newest actions is unknown.

        Raises:
            AgentRefused: if a new agent has no policy. The caller must call `void`.
            OutOfSlotsError: if a policy has too few slots for its agents. In both cases nothing was accepted.
        """
        if not step.is_over and not step.observations.keys() <= self.running.slots.keys():
            ends = (*step.terminateds.items(), *step.truncateds.items()) if step.has_ends else ()
            self._check_new(step.observations, {agent for agent, flag in ends if flag})
        self.is_void |= is_void
        self._count_steps(self.trains and not is_void)
        return self.take_in(self.given, step)

    def _count_steps(self, count: int) -> None:
        self.num_steps += count
        self._own_steps += count

    @property
    def can_run(self) -> bool:
        """Whether `run` is possible: a single agent acts, and its open row is kept when it closes."""
        return len(self._acting) == 1 and self._acting[0].is_open and self._keeps(self._acting[0])

    def run(self, rewards: Sequence[float]) -> AgentSlot:
        """Counts steps of the single agent, which acts after each of them; returns its slot.

        Args:
            rewards: for each step, the reward of the previous action.
        """
        (slot,), count = self._acting, len(rewards)
        for reward in rewards:  # in this order, as `follow` adds them
            slot.total += reward
        slot.num_rows += count
        self.num_closed += count
        self._count_steps(count)
        self.running.length += count
        return slot

    def _give_slots(self, observations: Mapping) -> None:
        self._check_new(observations)
        super()._give_slots(observations)

    def _check_new(self, observations: Mapping, ending: Collection[AgentID] = ()) -> None:
        """Checks that new agents have policies with enough free slots.

        Args:
            observations: agent -> observation.
            ending: agents whose slots become free before the new agents need theirs.

        Raises:
            AgentRefused: if a new agent has no policy.
            OutOfSlotsError: if a policy has too few free slots.
        """
        known = self.running.slots
        wanted = Counter(self._policy_for(agent) for agent in observations if agent not in known)
        wanted.subtract(slot.policy_id for slot in self.living if slot.agent in ending)
        for policy_id, count in wanted.items():
            if count > len(self._free.get(policy_id, self._slots[policy_id])):
                raise OutOfSlotsError(policy_id)

    def _policy_for(self, agent: AgentID) -> str:
        """The id of a new agent's policy; raises AgentRefused if the mapping fails for the agent's external name."""
        try:
            return self.running.policy_for(agent)
        except Exception as error:
            raise AgentRefused(f"the run has no policy for agent {agent!r:.80}: {error!r:.200}") from error

    def void(self) -> None:
        """Drops the episode, whose newest actions have no known outcome."""
        self.is_void = True
        self._void()

    # ------------------------------------------------------------------ a fragment

    def carry(self) -> None:
        """Carries the running episode over to the next fragment, with all its rows and steps that are in none yet."""
        self.is_carried = True
        self.num_closed -= self._own_rows
        self.num_steps -= self._own_steps

    @property
    def _own_rows(self) -> int:
        return sum(slot.num_rows - slot.first_row for slot in self.running.slots.values())

    def begin_fragment(self) -> None:
        """Resets the counts of rows and steps; a carried episode's rows and steps count in the new fragment."""
        if self.is_carried:
            self.is_carried, self._closed = False, Counter()
            self.num_closed, self.num_steps = self._own_rows, self._own_steps
        else:
            super().begin_fragment()
            self.num_steps = self._own_steps = 0

    def _count_rows(self) -> None:
        if not self.is_carried:
            super()._count_rows()

    def carried_rows(self, lane: AgentLane) -> Counter[int]:
        """Slot of this lane -> number of its closed rows that are carried over to the next fragment."""
        counts: Counter[int] = Counter()
        for slot in self.running.slots.values() if self.is_carried else ():
            if slot.lane is lane:  # several agents may have had the same slot, one after the other
                counts[slot.index] += slot.num_rows - slot.first_row
        return counts

    def forget(self) -> None:
        super().forget()
        self.is_carried = False

    # ------------------------------------------------------------------ rows

    @property
    def acting(self) -> list[AgentSlot]:
        """Slots of the agents that act next."""
        return self._acting

    def _close(self, slot: AgentSlot, terminated: bool = False, truncated: bool = False) -> None:
        if self._keeps(slot):
            super()._close(slot, terminated, truncated)
            return
        if self.trains and slot.lane.records:
            self._drop(slot)
        slot.is_open = False

    def _close_last(self, slot: AgentSlot, observations: Mapping, terminated: bool, truncated: bool) -> None:
        if self._keeps(slot):
            super()._close_last(slot, observations, terminated, truncated)
        else:
            self._close(slot)
