"""Lanes of policies whose slots keep time of their own: an agent acts in some steps of its environment, not in all.

A row of a slot is opened when its agent acts, and closed when the agent receives the next observation, or ends. Each
call of `act` writes one row of all slots; the end of the fragment keeps the rows that were closed (Fragment.keep). Rows
that are open go on in the next fragment, and with them, where episodes are to stay whole, their closed rows.
"""

import inspect
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from rllib import sample_batch as sb
from rllib.env.multi_agent.adapt import own_observation
from rllib.env.spaces.actions import of_each
from rllib.env.spaces.observations import observation_column
from rllib.evaluation.lane import Lane
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.hand_written import choose
from rllib.models.observations.masks import no_choice
from rllib.policy import Policy
from rllib.sample_batch import Column

# Actions of a slot for which noise is drawn at once.
NOISE_STEPS = 64


class ActingSlots:
    """Base of the slots of a network: keeps the inputs of its next actions.

    All slots are computed in each step, so that the bits of one do not depend on which others act.

    Args:
        policy: chooses the actions.
        observation_space, action_space: of one agent.
        num_slots: S.
        mapper: from the policy's actions to the environment's.

    Attributes:
        records: whether the steps become rows.
        observations: [S, *observation], newest one of each slot, as stored.
        states: float32 [S, state], the memory's state before the next action of each slot.
        env_actions: the newest actions in the environment's units, by slot.
        mapped_actions: the same in one array [S, ...]; for Tuple and Dict spaces a list.
        acting: slots that act in the next step.
    """

    records: ClassVar[bool] = False

    def __init__(self, policy: Policy, observation_space, action_space, num_slots: int, mapper):
        self.policy, self.num_slots, self._mapper = policy, num_slots, mapper
        self.column = observation_column(observation_space)
        self._received = np.zeros((num_slots, *self.column.shape), self.column.dtype)
        stored = np.float32 if policy.filters_observations else self.column.dtype
        self.observations = np.full((num_slots, *self.column.shape), self.column.filler, stored)
        self.states = np.zeros((num_slots, policy.state_size), np.float32)
        self._next_states = np.zeros_like(self.states)
        self.env_actions: Sequence[Any] = ()
        self.mapped_actions: Any = ()
        self.acting: list[int] = []
        self._in_order = list(range(num_slots))
        # A list of slots as an array, until another one is asked for: most often the same slots act again.
        self._listed, self._index = self._in_order, np.arange(num_slots)
        self._seen_slots: list[int] = []
        self._seen: list[Any] = []
        # The actions one by one: ints for Discrete, else rows of a copy, which environments may keep or change.
        if isinstance(action_space, spaces.Discrete):
            self._one_by_one = np.ndarray.tolist
        elif isinstance(action_space, spaces.Tuple | spaces.Dict) or not action_space.shape:
            self._one_by_one = of_each
        else:
            self._one_by_one = np.ndarray.copy

    def begin_episode(self, slot: int) -> None:
        """Prepares a slot for an agent that has just appeared."""
        self.states[slot] = 0

    def start_over(self) -> None:
        """Drops the running episodes."""
        self._seen_slots, self._seen, self.acting = [], [], []
        self.observations[:] = self.column.filler
        self.states[:] = 0

    def take_over(self, other: "ActingSlots", slots: np.ndarray) -> None:
        """Takes over what is in the slots of a lane of the same policy that has fewer.

        Args:
            other: the lane before.
            slots: int64, slot of this lane for each of its slots.
        """
        self.observations[slots], self.states[slots] = other.observations, other.states

    def see(self, slot: int, observation) -> None:
        """Notes the newest observation of a slot, on which its agent acts in the next step; `receive` stores it."""
        self._seen_slots.append(slot)
        self._seen.append(observation)

    def go_on(self, slots: list[int], rewards: list[float], observations: list) -> None:
        """Notes rewards and newest observations of slots that have acted and act again in the next step."""
        self._seen_slots += slots
        self._seen += observations

    def receive(self) -> None:
        """Stores the observations that were noted since the last call; their slots are `acting` from now on."""
        slots, seen, count = self._seen_slots, self._seen, len(self._seen)
        self.acting, self._seen_slots, self._seen = slots, [], []
        if not count:
            return
        if slots == self._in_order and not self.policy.filters_observations:
            self.column.write_rows(seen, self.observations)
            return
        received = self._received[:count]
        self.column.write_rows(seen, received)
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
            self._filter(self._received, self.observations, None)
        else:
            self.column.write_batch(observations, self.observations)

    def _filter(self, received: np.ndarray, out: np.ndarray, slots: np.ndarray | None) -> None:
        """Filters raw observations of these slots; of all, where `slots` is None."""
        self.policy.filter(received, out=out, update=False)

    def _give(self, actions: np.ndarray) -> None:
        """Makes the policy's actions [S, ...] those of the environments."""
        self.mapped_actions = self._mapper.to_env(actions)
        self.env_actions = self._one_by_one(self.mapped_actions)


class ChoosingSlots(ActingSlots):
    """Slots of a policy that acts and does not learn: in evaluation, or because it is not trained.

    Args:
        policy, observation_space, action_space, num_slots, mapper: as for ActingSlots.
        place: a slot in words, for messages.
        rngs: random stream of each slot, which draws its actions; None: the most probable ones.
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
        place: Callable[[int], str],
        rngs: Sequence[np.random.Generator] | None,
        exploration: Mapping[str, Any],
    ):
        super().__init__(policy, observation_space, action_space, num_slots, mapper)
        self._place, self._rngs, self._exploration = place, rngs, exploration
        self._dist_inputs = np.zeros((num_slots, policy.num_dist_inputs), np.float32)
        self._actions = np.zeros((num_slots, *policy.action_shape), policy.action_dtype)
        # Not by policy.noise, which explores as the policy did when it learned, where it explores no more.
        nothing = np.zeros_like(policy.distribution.noise(np.random.default_rng(), num_slots, **exploration))
        self._noise = np.repeat(nothing[None], NOISE_STEPS, axis=0)
        # Number of noises used, of NOISE_STEPS that are drawn for a slot at once, and the stream before they were.
        self._used = np.full(num_slots, NOISE_STEPS)
        self._drawn_from: list[Any] = [None] * num_slots

    def act(self, step: int = 0) -> None:
        """Chooses the actions of the slots that act.

        Raises:
            ValueError: if an observation has no legal action.
        """
        policy, slots = self.policy, self._array(self.acting)
        if policy.is_masked:
            self._check_masks(slots)
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
        """Noise [S, ...], in which the slots that act have the next numbers of their own streams."""
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

    def get_state(self) -> list[dict]:
        """Random stream of each slot, and which of its numbers are used; JSON-able."""
        state = _states_of(self._rngs or [])
        for each, drawn_from, used in zip(state, self._drawn_from, self._used.tolist()):
            if used < NOISE_STEPS:
                each |= {"drawn_from": drawn_from, "used": used}
        return state

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Restores the state that `get_state` returned, or the streams of a policy that learned."""
        for slot, (rng, saved) in enumerate(zip(self._rngs or [], state)):
            self._used[slot] = saved.get("used", NOISE_STEPS)
            if "used" in saved:
                rng.bit_generator.state = saved["drawn_from"]
                self._draw(slot)
        _set_states(self._rngs or [], state)

    def _check_masks(self, slots: np.ndarray) -> None:
        without = self.policy.without_choice(self.observations[slots])
        if without.any():
            slot = int(slots[without.argmax()])
            mask = self.policy.spec.encoder.mask(self.observations[slot][None])[0]
            raise ValueError(f"{self._place(slot)} has no legal action: {no_choice(mask)}")


@dataclass(frozen=True)
class Carried:
    """K rows of a lane that go on in its next fragment.

    Attributes:
        rows, slots: int64 [K], place of each in the next fragment; the rows of a slot begin at 0 and keep their order.
        is_closed: bool [K], whether what has followed the action is known.
        columns: name -> [K, ...].
        final_observations, final_states, cuts: those of Fragment at these rows.
        has_values: whether the values of the observations are known.
        version: lowest version of the weights that have acted.
    """

    rows: np.ndarray
    slots: np.ndarray
    is_closed: np.ndarray
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    final_observations: Sequence[tuple[int, int, np.ndarray]] = ()
    final_states: Sequence[np.ndarray] = ()
    cuts: frozenset[tuple[int, int]] = frozenset()
    has_values: bool = True
    version: int = sys.maxsize

    @property
    def num_steps(self) -> int:
        """Number of rows of the slot that has most."""
        return int(self.rows.max(initial=-1)) + 1

    def moved(self, slots: np.ndarray) -> "Carried":
        """The same rows in other slots: `slots` has the new one of each."""
        finals = [(row, int(slots[slot]), final) for row, slot, final in self.final_observations]
        cuts = frozenset((row, int(slots[slot])) for row, slot in self.cuts)
        return replace(self, slots=slots[self.slots], final_observations=finals, cuts=cuts)


_NOTHING = Carried(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool))


class RecordingSlots(ActingSlots):
    """Slots of a policy whose steps become rows: a Lane whose slots need not act in each step.

    Args:
        lane: of the policy; its slots are these.
        observation_space, action_space: of one agent.

    Attributes:
        fragment: the present one, with a row for each call of `act`, closed or not.
        oldest_version: of the weights that have acted in its rows; those of earlier fragments that go on count.
    """

    records = True

    def __init__(self, lane: Lane, observation_space, action_space):
        super().__init__(lane.policy, observation_space, action_space, len(lane.rngs), lane.mapper)
        self.lane, self.every_final_observation = lane, lane.every_final_observation
        self._action_space = action_space
        self._all = np.arange(self.num_slots)
        self._num_rows = 0
        self._opened = np.zeros(self.num_slots, np.int64)  # the row that each slot has opened last
        # Closed rows that are not written yet: row, slot and reward of each. One write of thousands costs as
        # much as a few of a single step.
        self._closed: tuple[list[int], list[int], list[float]] = [], [], []
        self._ended: list[int] = []
        self._carried = _NOTHING  # of the fragment before
        # Lowest version of the weights that have acted in rows that this fragment has opened.
        self.oldest_version = self._own_version = 0
        # Columns of the inputs of an action, and of its outcome, by which rows go on in the next fragment.
        names = {column.name for column in lane.columns}
        of_rows = (sb.OBS, sb.STATE_IN, sb.ACTIONS, sb.ACTION_DIST_INPUTS, sb.VF_PREDS)
        # Columns that are written where a row is closed, or marked, and hold zeros elsewhere.
        self._sparse = [n for n in (sb.REWARDS, sb.TERMINATEDS, sb.TRUNCATEDS, sb.WAITED) if n in names]
        self._of_carried_rows = [name for name in of_rows if name in names] + self._sparse
        # Where the network's outputs go that no column keeps.
        self._scratch = np.empty((self.num_slots, self.policy.num_dist_inputs), np.float32)
        # The first observation of each slot's newest agent, where rows are bootstrapped from the one that comes next;
        # slots whose newest agent has none yet.
        self._first = self.observations.copy() if lane.settings.sequences else None
        self._begun: list[int] = []

    def begin_episode(self, slot: int) -> None:
        super().begin_episode(slot)
        self._begun.append(slot)

    def begin(self, num_steps: int) -> None:
        """Begins a fragment of this number of steps of the environments; rows that go on are its first ones."""
        lane, carried = self.lane, self._carried
        self._take(lane.new_fragment(num_steps + carried.num_steps))
        for name in self._sparse:
            self.fragment[name][:] = 0
        self._opened[:] = 0
        self._write_from(carried.num_steps)
        if carried.num_steps:
            self._go_on_with(carried)
        self._own_version = lane.policy_version
        self.oldest_version = min(carried.version, lane.policy_version)
        self.prepare(num_steps)

    def _go_on_with(self, carried: Carried) -> None:
        """Writes rows of the fragment before."""
        fragment, at, is_open = self.fragment, (carried.rows, carried.slots), ~carried.is_closed
        for name, column in fragment.columns.items():
            column[: carried.num_steps] = self.column.filler if name == sb.OBS else 0
        for name, values in carried.columns.items():
            fragment[name][at] = values
        if sb.WAITED in self._sparse:
            fragment[sb.WAITED][at] = True
        self._is_closed[at] = carried.is_closed
        self._opened[carried.slots[is_open]] = carried.rows[is_open]
        fragment.final_observations += carried.final_observations
        fragment.final_states += carried.final_states
        fragment.cuts |= carried.cuts
        fragment.has_values &= carried.has_values

    def _take(self, fragment: Fragment) -> None:
        """Writes into this fragment from now on; none of its rows is closed."""
        self.fragment = fragment
        self._is_closed = np.zeros((fragment.num_steps, self.num_slots), bool)

    def _write_from(self, row: int) -> None:
        """Makes this the next row that is opened."""
        fragment, columns, nowhere = self.fragment, self.fragment.columns, itertools.repeat(None)
        inputs = columns.get(sb.ACTION_DIST_INPUTS)
        self._num_rows = row
        # What each call of `act` writes: observations, states, outputs of the network, actions, values.
        self._writes = zip(
            fragment.observations[row:-1],
            columns[sb.STATE_IN][row:] if self.lane.remembers else nowhere,
            itertools.repeat(self._scratch) if inputs is None else inputs[row:],
            columns[sb.ACTIONS][row:],
            columns[sb.VF_PREDS][row:] if fragment.has_values else nowhere,
        )

    def prepare(self, num_steps: int, active: Sequence[bool] | None = None) -> None:
        """Draws the noise of the next steps; of the active slots alone, where some are not."""
        self._noise = self.lane.explorer.begin(num_steps, self.lane.timesteps, active)

    def make_room(self, num_steps: int) -> None:
        """Makes room for further steps; whole episodes are longer than the fragment that was asked for."""
        if self._num_rows + num_steps <= self.fragment.num_steps:
            return
        before, is_closed = self.fragment, self._is_closed
        self._take(self.lane.new_fragment(2 * before.num_steps + num_steps))
        self.fragment.has_values = before.has_values
        for name, column in before.columns.items():
            self.fragment[name][: len(column)] = column
        for name in self._sparse:
            self.fragment[name][before.num_steps :] = 0
        self._is_closed[: len(is_closed)] = is_closed
        self._write_from(self._num_rows)
        self.fragment.cuts = before.cuts
        self.fragment.final_observations, self.fragment.final_states = before.final_observations, before.final_states

    def act(self, step: int) -> None:
        """Chooses the actions of the slots that act, and opens their rows.

        Args:
            step: number of the step since `prepare`.
        """
        act, noise = self.lane.explorer.act, self._noise[step]
        observations, states, dist_inputs, actions, values = self._begin_row()
        everybody = len(self.acting) == self.num_slots
        if states is None:
            act(observations, noise, dist_inputs, actions, values)
        else:
            states[:] = self.states
            act(observations, noise, dist_inputs, actions, values, states, self._next_states)
            if everybody:
                self.states[:] = self._next_states
            else:
                acting = self._array(self.acting)
                self.states[acting] = self._next_states[acting]
        self._give(actions)

    def _begin_row(self) -> tuple:
        """Opens the rows of the slots that act; returns what is written there, as `_take` says."""
        row = self._num_rows
        self._num_rows = row + 1
        if len(self.acting) == self.num_slots:
            self._opened.fill(row)
        else:
            self._opened[self._array(self.acting)] = row
        self._newest = next(self._writes)
        self._newest[0][:] = self.observations
        return self._newest

    def open_without_choice(self) -> None:
        """Opens the rows of the slots that act, whose actions `put` writes: no action and no value is computed."""
        _, _, dist_inputs, actions, _ = self._begin_row()
        if len(self.acting) < self.num_slots:
            dist_inputs[:], actions[:] = 0, 0
        self.fragment.has_values = False

    def put(self, slot: int, action, dist_inputs: np.ndarray | None, version: int) -> None:
        """Writes the action that a slot has really taken, by a copy of the policy, in the place of the newest one.

        Args:
            slot: whose row.
            action, dist_inputs: as the policy stores them; None where it stores no parameters of distributions.
            version: of the weights that have acted.
        """
        _, _, row_of_inputs, actions, _ = self._newest
        actions[slot] = action
        if dist_inputs is not None:
            row_of_inputs[slot] = dist_inputs
        self._acted_by(version)

    def _acted_by(self, version: int) -> None:
        if version < self._own_version:
            self._own_version = version
            self.oldest_version = min(self.oldest_version, version)

    def give_put(self) -> None:
        """Makes the newest actions those of the environments, after `put`."""
        self._give(self._newest[3])

    def open_run(self, count: int) -> slice:
        """Adds rows for this number of steps, which `put_run` writes for some slots; returns them."""
        rows = slice(self._num_rows, self._num_rows + count)
        self.fragment.has_values = False
        self._write_from(rows.stop)
        self.fragment.observations[rows] = self.observations
        for name in (sb.ACTIONS, sb.ACTION_DIST_INPUTS):
            if name in self.fragment.columns:
                self.fragment[name][rows] = 0
        return rows

    def put_run(
        self,
        slot: int,
        rows: slice,
        *,
        rewards: list[float],
        observations: np.ndarray | list,
        actions: np.ndarray,
        dist_inputs: np.ndarray | None,
        version: int,
    ) -> None:
        """Writes N steps of a slot, one behind the other, as `close`, `see`, `open_without_choice` and `put` do.

        Each step closes the row of the action before and opens its own; the last one stays open.

        Args:
            slot: whose open row is closed first.
            rows: N of them, from `open_run`.
            rewards: of the action before each step.
            observations, actions, dist_inputs: of each step.
            version: of the weights that have acted.
        """
        closed, slots, given = self._closed
        closed += (int(self._opened[slot]), *range(rows.start, rows.stop - 1))
        slots += [slot] * len(rewards)
        given += rewards
        self._opened[slot] = rows.stop - 1
        self.column.write_rows(observations, self.fragment.observations[rows, slot])
        self.observations[slot] = self.fragment.observations[rows.stop - 1, slot]
        self.fragment[sb.ACTIONS][rows, slot] = actions
        if dist_inputs is not None:
            self.fragment[sb.ACTION_DIST_INPUTS][rows, slot] = dist_inputs
        self._acted_by(version)

    def close(self, slot: int, reward: float, terminated: bool, truncated: bool) -> None:
        """Closes the open row of a slot."""
        row = int(self._opened[slot])
        for values, value in zip(self._closed, (row, slot, reward)):
            values.append(value)
        if terminated or truncated:
            self.fragment[sb.TERMINATEDS][row, slot] = terminated
            self.fragment[sb.TRUNCATEDS][row, slot] = truncated
            self._ended.append(slot)

    def go_on(self, slots, rewards, observations):
        """Closes the rows that these slots have opened with the newest actions; their agents act again."""
        rows, closed, given = self._closed
        rows += [self._num_rows - 1] * len(slots)
        closed += slots
        given += rewards
        self._seen_slots += slots
        self._seen += observations

    def keep_final(self, slot: int, observation) -> None:
        """Keeps the final observation of a slot whose open row is about to be closed by an end."""
        final = self.column.row(observation)
        if self.lane.filters and not self.lane.stores_raw:
            final = self.policy.filter(final[None], environments=np.array([slot]))[0]
        self._add_final(int(self._opened[slot]), slot, final, self.states[slot])

    def _add_final(self, row: int, slot: int, final: np.ndarray, state: np.ndarray) -> None:
        self.fragment.final_observations.append((row, slot, final))
        if self.lane.remembers:
            self.fragment.final_states.append(state.copy())

    def drop(self, slot: int, *, has_row_here: bool, has_row_earlier: bool) -> None:
        """Drops the open row of a slot: its episode was cut while the agent waited.

        The row before becomes the last one, and its final observation is the one that the dropped action was chosen
        from.

        Args:
            slot: whose row.
            has_row_here: whether the agent has an earlier row in this fragment.
            has_row_earlier: whether it has one in a fragment before.
        """
        if has_row_earlier and not has_row_here:
            self.lane.cut([slot])
        elif has_row_here:
            fragment, row = self.fragment, int(self._opened[slot])
            self._store_closed()
            before = int(np.flatnonzero(self._is_closed[:, slot])[-1])
            # It may be cut already, behind another row that was dropped.
            if not (fragment[sb.TERMINATEDS][before, slot] or fragment[sb.TRUNCATEDS][before, slot]):
                fragment[sb.TRUNCATEDS][before, slot] = True
                fragment.cuts.add((before, slot))
                state = fragment[sb.STATE_IN][row, slot] if self.lane.remembers else self.states[slot]
                self._add_final(before, slot, fragment.observations[row, slot].copy(), state)
        self.lane.explorer.episodes_ended([slot])

    def receive(self) -> None:
        """Stores the observations that were seen since the last call, and lets episodes end that have."""
        if self._ended:
            self.lane.explorer.episodes_ended(self._ended)
            self._ended = []
        super().receive()
        self._note_first()

    def see_all(self, observations: np.ndarray) -> None:
        super().see_all(observations)
        self._note_first()

    def _note_first(self) -> None:
        if self._begun and self._first is not None:
            self._first[self._begun] = self.observations[self._begun]
        self._begun = []

    def close_all(self, rewards: np.ndarray, ends: Sequence[tuple[int, bool, bool]]) -> None:
        """Closes the rows that all slots have opened with the newest actions.

        Args:
            rewards: [S].
            ends: (slot, terminated, truncated) of the slots whose episodes have ended.
        """
        row = self._num_rows - 1
        self.fragment[sb.REWARDS][row] = rewards
        self._is_closed[row] = True
        for slot, terminated, truncated in ends:
            self.fragment[sb.TERMINATEDS][row, slot] = terminated
            self.fragment[sb.TRUNCATEDS][row, slot] = truncated
        if ends:
            self.lane.explorer.episodes_ended([slot for slot, *_ in ends])

    def log(self, slot: int, action) -> None:
        """Writes the action that a slot has really taken in the place of the newest one, in the environment's units."""
        batch = concatenate(self._action_space, [action], create_empty_array(self._action_space, 1))
        self.fragment[sb.ACTIONS][self._num_rows - 1, slot] = self.lane.mapper.to_policy(batch)[0]

    def get_state(self) -> list[dict]:
        """Random stream and exploration of each slot, JSON-able."""
        return self.lane.get_state()

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Restores the state that `get_state` returned; of a policy that did not learn, its streams."""
        if all("exploration" in saved for saved in state):
            self.lane.set_state(state)
        else:
            _set_states(self.lane.rngs, state)

    def take_over(self, other: "RecordingSlots", slots: np.ndarray) -> None:
        """Takes over the slots of a lane that has fewer, after the end of its fragment."""
        super().take_over(other, slots)
        self.lane.take_over(other.lane, slots)
        self._carried = other._carried.moved(slots)
        if self._first is not None:
            self._first[slots] = other._first

    def _store_closed(self) -> None:
        rows, slots, rewards = self._closed
        at = np.array(rows, np.int64), np.array(slots, np.int64)
        self.fragment[sb.REWARDS][at] = rewards
        self._is_closed[at] = True
        self._closed = [], [], []

    def _filter(self, received, out, slots):
        if slots is None:
            self.policy.filter(received, out=out, update=True)
        else:
            out[:] = self.policy.filter(received, update=True, environments=slots)

    def end(
        self, is_open: np.ndarray, is_free: np.ndarray | None = None, num_carried: np.ndarray | None = None
    ) -> Fragment:
        """Ends the fragment: its closed rows are left. Open rows go on in the next.

        Args:
            is_open: bool [S], slots that have acted and wait for what follows.
            is_free: bool [S], slots without an agent; None: there are none.
            num_carried: int64 [S], number of each slot's last closed rows that go on as well; None: none do.
        """
        self._store_closed()
        fragment, is_closed = self.fragment, self._is_closed
        open_slots, is_carried = self._all[is_open], np.zeros_like(is_closed)
        if num_carried is not None and num_carried.any():
            is_carried = is_closed & (np.cumsum(is_closed[::-1], axis=0)[::-1] <= num_carried)
        self._carried = self._carry(is_carried, open_slots)
        newest = {sb.OBS: self.observations}
        if self.lane.remembers:
            newest[sb.STATE_IN] = self.states
        for name, values in newest.items():
            # An agent that waits has seen nothing since its action.
            newest[name] = values.copy()
            newest[name][open_slots] = fragment[name][self._opened[open_slots], open_slots]
        if self._first is not None and is_free is not None:
            # The agent that comes next is not there yet: the start of the one before stands for its start.
            newest[sb.OBS][is_free] = self._first[is_free]
        fragment.keep(is_closed & ~is_carried, newest)
        return fragment

    def _carry(self, is_carried: np.ndarray, open_slots: np.ndarray) -> Carried:
        """Takes the rows that go on out of the fragment.

        Args:
            is_carried: bool [T, S], closed rows.
            open_slots: slots whose open rows go on.
        """
        fragment, place = self.fragment, np.cumsum(is_carried, axis=0)
        closed_slots, closed_rows = np.nonzero(is_carried.T)
        at = np.append(closed_rows, self._opened[open_slots]), np.append(closed_slots, open_slots)
        if not len(at[0]):
            return _NOTHING
        ends = list(itertools.zip_longest(fragment.final_observations, fragment.final_states))
        carried = [(final, state) for final, state in ends if is_carried[final[0], final[1]]]
        left = [(final, state) for final, state in ends if not is_carried[final[0], final[1]]]
        fragment.final_observations = [final for final, _ in left]
        fragment.final_states = [state for _, state in left if state is not None]
        cuts = {(t, i) for t, i in fragment.cuts if is_carried[t, i]}
        fragment.cuts = fragment.cuts - cuts
        return Carried(
            rows=np.append(place[closed_rows, closed_slots] - 1, place[-1, open_slots]),
            slots=at[1],
            is_closed=np.arange(len(at[0])) < len(closed_rows),
            columns={name: fragment[name][at] for name in self._of_carried_rows},
            final_observations=[(int(place[t, i]) - 1, i, final) for (t, i, final), _ in carried],
            final_states=[state for _, state in carried if state is not None],
            cuts=frozenset((int(place[t, i]) - 1, i) for t, i in cuts),
            has_values=fragment.has_values,
            version=self.oldest_version if (at[0] < self._carried.num_steps).any() else self._own_version,
        )

    def start_over(self) -> None:
        """Drops the running episodes."""
        self.lane.start_over()
        self._carried = _NOTHING
        self._closed, self._ended = ([], [], []), []
        super().start_over()
        if self._first is not None:  # losses of the user's may see what slots without an agent hold
            self._first[:] = self.observations


class HandWrittenSlots:
    """Slots of a policy that is written by hand: a function of the agents' raw observations.

    Args:
        chooser: has `compute_actions(observations, state_batches=None, **kwargs)`, which returns the actions, or
            (actions, states, fetches).
        policy_id: its name, for messages.
        num_slots: S.
        place: a slot in words, for messages.
        rngs: random stream of each slot, for a chooser whose method has the argument `rngs`.
    """

    records: ClassVar[bool] = False

    def __init__(
        self,
        chooser,
        policy_id: str,
        num_slots: int,
        *,
        place: Callable[[int], str],
        rngs: Sequence[np.random.Generator],
    ):
        self.chooser, self._policy_id, self.num_slots, self._place = chooser, policy_id, num_slots, place
        self._rngs, self._takes_rngs = rngs, _names(chooser.compute_actions, "rngs")
        self.env_actions: dict[int, Any] = {}
        self.acting: list[int] = []
        self._seen_slots: list[int] = []
        self._seen: list[Any] = []
        self._observations: list[Any] = []
        self._states: dict[int, Sequence] = {}

    def begin_episode(self, slot: int) -> None:
        """Prepares a slot for an agent that has just appeared."""
        self._states.pop(slot, None)

    def see(self, slot: int, observation) -> None:
        """Notes the newest observation of a slot."""
        self._seen_slots.append(slot)
        self._seen.append(own_observation(observation))

    def go_on(self, slots: list[int], rewards: list[float], observations: list) -> None:
        """Notes the newest observations of slots that have acted and act again in the next step."""
        self._seen_slots += slots
        self._seen += map(own_observation, observations)

    def receive(self) -> None:
        """Makes the observations that were noted those that are acted upon next."""
        self.acting, self._observations = self._seen_slots, self._seen
        self._seen_slots, self._seen = [], []

    def act(self, step: int = 0) -> None:
        """Asks the policy for the actions of the slots that act.

        Raises:
            ValueError: if it gives another number of actions than there are observations.
            its own exception, with a note naming the policy and the agents.
        """
        try:
            actions = self._chosen()
        except Exception as error:
            places = "; ".join(map(self._place, self.acting[:4])) + ("; ..." if len(self.acting) > 4 else "")
            error.add_note(f"{self._name} was asked for {len(self.acting)} actions, of {places}")
            raise
        self.env_actions = dict(zip(self.acting, actions))

    @property
    def _name(self) -> str:
        return f"{type(self.chooser).__name__} {self._policy_id!r}"

    def _chosen(self) -> Sequence:
        """The policy's actions; keeps the states that it returns with them."""
        count = len(self.acting)
        before = [self._states.get(slot) for slot in self.acting]
        more = {"rngs": [self._rngs[slot] for slot in self.acting]} if self._takes_rngs else {}
        answer, following = choose(self.chooser, self._observations, before, **more)
        if not hasattr(answer, "__len__") or len(answer) != count:
            given = f"{len(answer)} actions" if hasattr(answer, "__len__") else f"{answer!r:.60}"
            raise ValueError(
                f"{self._name} gave {given} for {count} observations; compute_actions returns one action for each of "
                "them, in their order"
            )
        self._states.update((slot, state) for slot, state in zip(self.acting, following) if state)
        return answer

    def take_over(self, other: "HandWrittenSlots", slots: np.ndarray) -> None:
        """Takes over the states of the slots of a lane of the policy that has fewer."""
        self._states = {int(slots[slot]): state for slot, state in other._states.items()}

    def get_state(self) -> list[dict]:
        """Random stream of each slot, JSON-able."""
        return _states_of(self._rngs)

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Restores the state that `get_state` returned."""
        _set_states(self._rngs, state)

    def start_over(self) -> None:
        """Drops the running episodes."""
        self.acting, self._seen_slots, self._seen, self._states = [], [], [], {}


Slots = RecordingSlots | ChoosingSlots | HandWrittenSlots


def _states_of(rngs: Sequence[np.random.Generator]) -> list[dict]:
    return [{"rng": rng.bit_generator.state} for rng in rngs]


def _set_states(rngs: Sequence[np.random.Generator], state: Sequence[Mapping[str, Any]]) -> None:
    for rng, saved in zip(rngs, state):
        rng.bit_generator.state = saved["rng"]


def _names(function: Callable, argument: str) -> bool:
    """Whether a function has an argument of this name."""
    try:
        return argument in inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins without a signature
        return False


def stored_columns(observation_space, extra: Sequence[Column] = ()) -> tuple[Column, ...]:
    """The columns that the environments write for an agent with this observation space."""
    column = observation_column(observation_space)
    return (
        Column(sb.OBS, column.shape, str(column.dtype), before_action=True),
        Column(sb.REWARDS),
        Column(sb.TERMINATEDS, (), "bool"),
        Column(sb.TRUNCATEDS, (), "bool"),
        *extra,
    )
