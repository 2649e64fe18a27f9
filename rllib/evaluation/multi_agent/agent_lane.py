"""Base of the lanes of several agents, and the lane of a policy that acts and does not learn.

A lane is one policy's side of a worker (evaluation/lane.py). Its slots are agents, each with its own time steps: an
agent acts in some steps of its environment, not in all.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from rllib.env.spaces.actions import one_by_one
from rllib.env.spaces.observations import are_finite, observation_column
from rllib.evaluation.lane import OF_ENVIRONMENT
from rllib.policy import Policy

# Actions of a slot for which noise is drawn at once.
NOISE_STEPS = 64


class AgentLane:
    """Base of the lanes whose slots are agents.

    Args:
        num_slots: S.

    Attributes:
        records: whether the steps become rows.
        env_actions: the newest actions in the environment's units, by slot.
        acting: slots that act in the next step.
    """

    records: ClassVar[bool] = False

    def __init__(self, num_slots: int):
        self.num_slots = num_slots
        self.env_actions: Sequence[Any] | Mapping[int, Any] = ()
        self.acting: list[int] = []
        self._seen_slots: list[int] = []
        self._seen: list[Any] = []

    def begin_episode(self, slot: int) -> None:
        """Resets a slot for an agent that has just appeared."""

    def start_over(self) -> None:
        """Drops the running episodes."""
        self._seen_slots, self._seen, self.acting = [], [], []

    def widen(self, other: "AgentLane", slots: np.ndarray) -> None:
        """Continues the running episodes of a lane of the same policy that has fewer slots.

        Args:
            other: the lane that this one replaces.
            slots: int64 [slots of `other`], the slot of this lane that continues each of them.
        """

    def see(self, slot: int, observation) -> None:
        """Buffers the newest observation of a slot, whose agent acts on it in the next step; `receive` stores it."""
        self._seen_slots.append(slot)
        self._seen.append(observation)

    def go_on(self, slots: list[int], rewards: list[float], observations: list) -> None:
        """Buffers rewards and newest observations of slots that have acted and act again in the next step."""
        self._seen_slots += slots
        self._seen += observations

    def receive(self) -> None:
        """Stores the observations buffered since the last call; their slots are `acting` from now on."""

    def _pop_seen(self) -> list:
        """Returns the buffered observations and empties the buffer; their slots act next."""
        seen, self.acting, self._seen_slots, self._seen = self._seen, self._seen_slots, [], []
        return seen

    def act(self, step: int = 0) -> None:
        """Chooses the actions of the slots that act.

        Args:
            step: number of the step since a lane that records was prepared.

        Raises:
            ValueError: if an observation has no legal action.
        """

    def get_state(self) -> list[dict]:
        """Random stream of each slot, JSON-able."""

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Restores the state that `get_state` returned."""


def states_of(rngs: Sequence[np.random.Generator]) -> list[dict]:
    """State of each random stream, JSON-able."""
    return [{"rng": rng.bit_generator.state} for rng in rngs]


def set_states(rngs: Sequence[np.random.Generator], state: Sequence[Mapping[str, Any]]) -> None:
    """Restores the states that `states_of` returned."""
    for rng, saved in zip(rngs, state):
        rng.bit_generator.state = saved["rng"]


class NetworkLane(AgentLane):
    """Base of the lanes of a network: keeps the inputs of its next actions.

    Each step computes the network for all slots, so that the bits of one slot do not depend on which others act.

    Args:
        policy: chooses the actions.
        observation_space, action_space: spaces of one agent.
        num_slots: S.
        mapper: from the policy's actions to the environment's.

    Attributes:
        observations: [S, *observation], newest observation of each slot, as stored.
        states: float32 [S, state], state of the recurrent network before the next action of each slot.
        mapped_actions: the newest actions in one array [S, ...]; for Tuple and Dict spaces a list.
    """

    _describe: Callable[[int], str]

    def __init__(self, policy: Policy, observation_space, action_space, num_slots: int, mapper):
        AgentLane.__init__(self, num_slots)
        self.policy, self._mapper = policy, mapper
        self.column = observation_column(observation_space)
        self._received = np.zeros((num_slots, *self.column.shape), self.column.dtype)
        stored = np.float32 if policy.filters_observations else self.column.dtype
        self.observations = np.full((num_slots, *self.column.shape), self.column.filler, stored)
        self.states = np.zeros((num_slots, policy.state_size), np.float32)
        self._next_states = np.zeros_like(self.states)
        self.mapped_actions: Any = ()
        self._in_order = list(range(num_slots))
        # The last list of slots that was converted, and its array: most often the same slots act again.
        self._listed, self._index = self._in_order, np.arange(num_slots)
        self._one_by_one = one_by_one(action_space)

    def begin_episode(self, slot):
        self.states[slot] = 0

    def start_over(self):
        AgentLane.start_over(self)
        self.observations[:] = self.column.filler
        self.states[:] = 0

    def widen(self, other, slots):
        self.observations[slots], self.states[slots] = other.observations, other.states

    def receive(self):
        seen = self._pop_seen()
        slots, count = self.acting, len(seen)
        if not count:
            return
        if slots == self._in_order and not self.policy.filters_observations:
            self.column.write_rows(seen, self.observations)
            self._refuse_not_finite(self.observations, slots)
            return
        received = self._received[:count]
        self.column.write_rows(seen, received)
        self._refuse_not_finite(received, slots)
        if slots == self._in_order:
            self._filter(received, self.observations, None)
            return
        slots = self._array(slots)
        if self.policy.filters_observations:
            stored = np.empty((count, *self.observations.shape[1:]), self.observations.dtype)
            self._filter(received, stored, slots)
            received = stored
        self.observations[slots] = received

    def _array(self, slots: list[int]) -> np.ndarray:
        if slots != self._listed:
            self._listed, self._index = slots, np.array(slots)
        return self._index

    def see_all(self, observations: np.ndarray) -> None:
        """Stores the newest observations [S, ...] of all slots, which act in the next step."""
        self.acting = self._in_order
        if self.policy.filters_observations:
            self.column.write_batch(observations, self._received)
            self._refuse_not_finite(self._received, self.acting)
            self._filter(self._received, self.observations, None)
        else:
            self.column.write_batch(observations, self.observations)
            self._refuse_not_finite(self.observations, self.acting)

    def _refuse_not_finite(self, received: np.ndarray, slots: Sequence[int]) -> None:
        """Raises a ValueError for a NaN or an infinity before the policy acts on it and the filter counts it."""
        if are_finite(received):
            return
        for slot, row in zip(slots, received):
            if not are_finite(row):
                raise ValueError(f"obs of {self._describe(slot)} is not finite: {row}; {OF_ENVIRONMENT}")

    def _filter(self, received: np.ndarray, out: np.ndarray, slots: np.ndarray | None) -> None:
        """Filters raw observations of these slots; `slots` None: of all slots."""
        self.policy.filter(received, out=out, update=False)

    def _give(self, actions: np.ndarray) -> None:
        """Converts the policy's actions [S, ...] to the environment's units and stores them as the newest actions."""
        self.mapped_actions = self._mapper.to_env(actions)
        self.env_actions = self._one_by_one(self.mapped_actions)


class ChoosingLane(NetworkLane):
    """The lane of a policy that acts and does not learn: in evaluation, or because it is not trained.

    Args:
        policy, observation_space, action_space, num_slots, mapper: as for NetworkLane.
        describe: function of a slot that returns its description for error messages.
        rngs: random stream of each slot, which draws its actions; None: the most probable actions are taken.
        exploration: keyword arguments of the distribution's `noise`.
    """

    def __init__(
        self,
        policy: Policy,
        observation_space,
        action_space,
        num_slots: int,
        mapper,
        *,
        describe: Callable[[int], str],
        rngs: Sequence[np.random.Generator] | None,
        exploration: Mapping[str, Any],
    ):
        super().__init__(policy, observation_space, action_space, num_slots, mapper)
        self._describe, self._rngs, self._exploration = describe, rngs, exploration
        self._dist_inputs = np.zeros((num_slots, policy.num_dist_inputs), np.float32)
        self._actions = np.zeros((num_slots, *policy.action_shape), policy.action_dtype)
        # Not policy.noise, which replaces an empty `exploration` by the policy's exploration in training.
        nothing = np.zeros_like(policy.distribution.noise(np.random.default_rng(), num_slots, **exploration))
        self._noise = np.repeat(nothing[None], NOISE_STEPS, axis=0)
        # Number of noise vectors used, of the NOISE_STEPS that are drawn for a slot at once, and the state of the
        # random stream before they were drawn.
        self._used = np.full(num_slots, NOISE_STEPS)
        self._drawn_from: list[Any] = [None] * num_slots

    def act(self, step=0):
        policy, slots = self.policy, self._array(self.acting)
        if policy.is_masked:
            where = lambda row: f"{self._describe(int(slots[row]))} has no legal action"  # noqa: E731
            policy.check_masks(self.observations[slots], where)
        if self._rngs is None:
            policy.silence()
            noise = self._noise[0]
        else:
            policy.resample(self._rngs[0])
            noise = self._drawn(slots)
        memory = (self.states, self._next_states) if policy.state_size else (None, None)
        policy.act(self.observations, noise, self._dist_inputs, self._actions, None, *memory)
        if policy.state_size:
            self.states[slots] = self._next_states[slots]
        self._give(self._actions)

    def _drawn(self, slots: np.ndarray) -> np.ndarray:
        """Noise [S, ...]: for slots that act, the next numbers of their own random streams; for others zeros."""
        for slot in slots[self._used[slots] == NOISE_STEPS].tolist():
            self._draw(slot)
            self._used[slot] = 0
        noise = np.zeros_like(self._noise[0])
        noise[slots] = self._noise[self._used[slots], slots]
        self._used[slots] += 1
        return noise

    def _draw(self, slot: int) -> None:
        rng = self._rngs[slot]
        self._drawn_from[slot] = rng.bit_generator.state
        self._noise[:, slot] = self.policy.distribution.noise(rng, NOISE_STEPS, **self._exploration)

    def get_state(self):
        """Random stream of each slot, and how many of the numbers drawn from it are used; JSON-able."""
        state = states_of(self._rngs or [])
        for each, drawn_from, used in zip(state, self._drawn_from, self._used.tolist()):
            if used < NOISE_STEPS:
                each |= {"drawn_from": drawn_from, "used": used}
        return state

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Restores the state that `get_state` returned, or the random streams in the state of a RecordingLane."""
        for slot, (rng, saved) in enumerate(zip(self._rngs or [], state)):
            self._used[slot] = saved.get("used", NOISE_STEPS)
            if "used" in saved:
                rng.bit_generator.state = saved["drawn_from"]
                self._draw(slot)
        set_states(self._rngs or [], state)
