"""The lane of a policy that learns from several agents: their steps become rows.

A row of a slot is opened when its agent acts, and closed when the agent receives the next observation, or ends. Each
call of `act` writes one row of all slots; at its end the fragment keeps the closed rows alone (Fragment.keep). Open
rows are carried over to the next fragment, and so are the closed rows of episodes that must stay whole.
"""

import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium import Space

from rllib import sample_batch as sb
from rllib.env.spaces.batches import batch_of
from rllib.env.spaces.observations import observation_column
from rllib.evaluation.lane import Lane
from rllib.evaluation.multi_agent.agent_lane import NetworkLane, set_states
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.settings import PolicySettings, RolloutSettings
from rllib.policy import Policy
from rllib.sample_batch import Column


@dataclass(frozen=True)
class Carried:
    """K rows of a lane that are carried over to its next fragment.

    Attributes:
        rows, slots: int64 [K], position of each row in the next fragment; the rows of a slot begin at 0 and keep their
            order.
        is_closed: bool [K], whether the outcome of the row's action is known.
        columns: name -> [K, ...].
        final_observations, final_states, cuts: the fragment's attributes of these names, restricted to these rows.
        has_values: whether the values of the observations are known.
        version: lowest version of the weights that chose the rows' actions.
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
        """Largest number of rows of a slot."""
        return int(self.rows.max(initial=-1)) + 1

    def moved(self, slots: np.ndarray) -> "Carried":
        """The same rows in other slots: `slots[slot]` is the new slot of `slot`."""
        finals = [(row, int(slots[slot]), final) for row, slot, final in self.final_observations]
        cuts = frozenset((row, int(slots[slot])) for row, slot in self.cuts)
        return replace(self, slots=slots[self.slots], final_observations=finals, cuts=cuts)


_NOTHING = Carried(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool))


class RecordingLane(NetworkLane, Lane):
    """A Lane whose slots need not act in each step.

    Args:
        policy, own, settings: as for Lane.
        observation_space, action_space: spaces of one agent.
        rngs: random stream of each slot.
        of_lane: further arguments of Lane.

    Attributes:
        fragment: the present fragment, with a row for each call of `act`, closed or not.
        oldest_version: lowest version of the weights that have acted in the fragment's rows, including rows carried
            over from earlier fragments.
    """

    records = True

    def __init__(
        self,
        policy: Policy,
        own: PolicySettings,
        settings: RolloutSettings,
        *,
        observation_space: Space,
        action_space: Space,
        rngs: Sequence[np.random.Generator],
        **of_lane: Any,
    ):
        given = _stored_columns(observation_space, own.marks_waiting)
        Lane.__init__(self, policy, own, settings, given=given, action_space=action_space, rngs=rngs, **of_lane)
        NetworkLane.__init__(self, policy, observation_space, action_space, len(rngs), self.mapper)
        self._action_space = action_space
        self._all = np.arange(self.num_slots)
        self._num_rows = 0
        self._opened = np.zeros(self.num_slots, np.int64)  # the row that each slot has opened last
        # Closed rows that are not written yet: row, slot and reward of each. Writing thousands of rows at once costs
        # as much as writing the rows of a few single steps.
        self._closed: tuple[list[int], list[int], list[float]] = [], [], []
        self._ended: list[int] = []
        self._carried = _NOTHING  # from the previous fragment
        # Lowest version of the weights that have acted in rows opened in this fragment.
        self.oldest_version = self._own_version = 0
        # Columns that are copied when rows are carried over: the inputs of an action and its outcome.
        names = {column.name for column in self.columns}
        of_labels = sb.TEACHER_ACTIONS, sb.TEACHER_DIST_INPUTS
        of_rows = (sb.OBS, sb.STATE_IN, sb.ACTIONS, sb.ACTION_DIST_INPUTS, sb.VF_PREDS, *of_labels)
        # Columns that are written only where a row is closed or marked, and hold zeros elsewhere.
        self._sparse = [n for n in (sb.REWARDS, sb.TERMINATEDS, sb.TRUNCATEDS, sb.WAITED) if n in names]
        self._of_carried_rows = [name for name in of_rows if name in names] + self._sparse
        # The first observation of each slot's newest agent, stored where rows are bootstrapped from the next
        # observation of the slot; and the slots whose newest agent has no observation yet.
        self._first = self.observations.copy() if settings.sequences else None
        self._begun: list[int] = []
        # The newest observation of each slot as its environment gave it, for a teacher; None: `observations` has it.
        self._given: np.ndarray | None = None
        if self.teacher is not None and self.changes_observations:
            self._given_column = observation_column(own.teacher.observation_space)
            column = self._given_column
            self._given = np.full((self.num_slots, *column.shape), column.filler, column.dtype)

    @property
    def _keeps_given(self) -> bool:
        return False  # the newest step's observations suffice, since each step is labelled at once

    def begin_episode(self, slot):
        super().begin_episode(slot)
        self._begun.append(slot)
        if self.teacher is not None:
            self.teacher.episodes_ended([slot])

    def begin(self, num_steps: int) -> None:
        """Begins a fragment of this number of environment steps; carried rows are its first rows."""
        carried = self._carried
        self._take(self.new_fragment(num_steps + carried.num_steps))
        for name in self._sparse:
            self.fragment[name][:] = 0
        self._opened[:] = 0
        self._write_from(carried.num_steps)
        if carried.num_steps:
            self._go_on_with(carried)
        self._own_version = self.policy_version
        self.oldest_version = min(carried.version, self.policy_version)
        self.prepare(num_steps)

    def _go_on_with(self, carried: Carried) -> None:
        """Writes the rows carried over from the previous fragment."""
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
        """Makes this the present fragment; none of its rows is closed."""
        self.fragment = fragment
        self._is_closed = np.zeros((fragment.num_steps, self.num_slots), bool)

    def _write_from(self, row: int) -> None:
        """Sets the row that is opened next."""
        fragment, columns, nowhere = self.fragment, self.fragment.columns, itertools.repeat(None)
        inputs = columns.get(sb.ACTION_DIST_INPUTS)
        self._num_rows = row
        # What each call of `act` writes: observations, states, outputs of the network, actions, values.
        self._writes = zip(
            fragment.observations[row:-1],
            columns[sb.STATE_IN][row:] if self.remembers else nowhere,
            itertools.repeat(self._scratch) if inputs is None else inputs[row:],
            columns[sb.ACTIONS][row:],
            columns[sb.VF_PREDS][row:] if fragment.has_values else nowhere,
        )

    def prepare(self, num_steps: int, active: Sequence[bool] | None = None) -> None:
        """Draws the noise of the next steps; `active`: whether each slot needs noise, None: all do."""
        self._noise = self.explorer.begin(num_steps, self.timesteps, active)
        if self.teacher is not None:
            self.teacher.begin(self.clock(num_steps), active)

    def make_room(self, num_steps: int) -> None:
        """Makes room for further steps, as whole episodes may be longer than the fragment was made for."""
        if self._num_rows + num_steps <= self.fragment.num_steps:
            return
        before, is_closed = self.fragment, self._is_closed
        self._take(self.new_fragment(2 * before.num_steps + num_steps))
        self.fragment.has_values = before.has_values
        for name, column in before.columns.items():
            self.fragment[name][: len(column)] = column
        for name in self._sparse:
            self.fragment[name][before.num_steps :] = 0
        self._is_closed[: len(is_closed)] = is_closed
        self._write_from(self._num_rows)
        self.fragment.cuts = before.cuts
        self.fragment.final_observations, self.fragment.final_states = before.final_observations, before.final_states

    def act(self, step=0):
        """Chooses the actions of the slots that act, and opens their rows."""
        act, noise = self.explorer.act, self._noise[step]
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
        if self.teacher is not None:
            self._teach(step, actions, None if everybody else self._array(self.acting))
        self._give(actions)

    def _teach(self, step: int, actions: np.ndarray, acting: np.ndarray | None) -> None:
        """Labels the newest rows, and replaces the actions where the teacher acts; see LaneTeacher.teach."""
        row = self._num_rows - 1
        labels, inputs = self.teacher.columns_of(self.fragment)
        given = self.observations if self._given is None else self._given
        inputs = None if inputs is None else inputs[row]
        self.teacher.teach(step, given, self.observations, actions, labels[row], inputs, acting)

    def _begin_row(self) -> tuple:
        """Opens the rows of the slots that act; returns their arrays, in the order of `_writes` (`_write_from`)."""
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
        """Opens the rows of the slots that act without computing actions and values; `put` writes the actions."""
        _, _, dist_inputs, actions, _ = self._begin_row()
        if len(self.acting) < self.num_slots:
            dist_inputs[:], actions[:] = 0, 0
        self.fragment.has_values = False

    def put(self, slot: int, action, dist_inputs: np.ndarray | None, version: int) -> None:
        """Replaces a slot's newest action by the one that a copy of the policy has taken in the environment.

        Args:
            slot: the slot.
            action: the action as the policy stores it.
            dist_inputs: parameters of the action's distribution; None where the policy stores none.
            version: version of the weights that chose the action.
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
        """Converts the newest actions, after `put`, to the environment's units, as `act` does."""
        self._give(self._newest[3])

    def open_run(self, count: int) -> slice:
        """Adds rows for this number of steps, which `put_run` writes for some slots; returns the range of rows."""
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
        """Writes N consecutive steps of a slot, with the results of `close`, `see`, `open_without_choice` and `put`.

        Each step closes the row of the previous action and opens a new row; the last row stays open.

        Args:
            slot: the slot, whose open row is closed first.
            rows: the N rows that `open_run` returned.
            rewards: for each step, the reward of the previous action.
            observations, actions, dist_inputs: N items each, one for each step.
            version: version of the weights that chose the actions.
        """
        closed, slots, given = self._closed
        closed += (int(self._opened[slot]), *range(rows.start, rows.stop - 1))
        slots += [slot] * len(rewards)
        given += rewards
        self._opened[slot] = rows.stop - 1
        seen = self.fragment.observations[rows, slot]
        self.column.write_rows(observations, seen)
        self._refuse_not_finite(seen, [slot] * len(seen))
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
        """Closes the rows that these slots opened with the newest actions; their agents act again."""
        rows, closed, given = self._closed
        rows += [self._num_rows - 1] * len(slots)
        closed += slots
        given += rewards
        self._seen_slots += slots
        self._seen += observations

    def keep_final(self, slot: int, observation) -> None:
        """Stores the final observation of a slot whose agent ends; called before `close` closes its row."""
        final = self.column.row(observation)
        self._refuse_final(final, int(self._opened[slot]), slot)
        if self.filters and not self.stores_raw:
            final = self.policy.filter(final[None], environments=np.array([slot]))[0]
        self._add_final(int(self._opened[slot]), slot, final, self.states[slot])

    def keep_last(self, slot: int) -> None:
        """Stores a slot's last observation as the final one, for an agent that ends without a final observation."""
        row = int(self._opened[slot])
        self._add_final(row, slot, self.fragment.observations[row, slot].copy(), self.states[slot])

    def _add_final(self, row: int, slot: int, final: np.ndarray, state: np.ndarray) -> None:
        self.fragment.final_observations.append((row, slot, final))
        if self.remembers:
            self.fragment.final_states.append(state.copy())

    def drop(self, slot: int, *, has_row_here: bool, has_row_earlier: bool) -> None:
        """Drops the open row of a slot whose episode was cut while the agent waited.

        The previous row becomes the last one; its final observation is the observation of the dropped row.

        Args:
            slot: the slot.
            has_row_here: whether the agent has an earlier row in this fragment.
            has_row_earlier: whether the agent has a row in an earlier fragment.
        """
        if has_row_earlier and not has_row_here:
            self.cut([slot])
        elif has_row_here:
            fragment, row = self.fragment, int(self._opened[slot])
            self._store_closed()
            before = int(np.flatnonzero(self._is_closed[:, slot])[-1])
            # The previous row may already be cut, since another row after it was dropped.
            if not (fragment[sb.TERMINATEDS][before, slot] or fragment[sb.TRUNCATEDS][before, slot]):
                fragment[sb.TRUNCATEDS][before, slot] = True
                fragment.cuts.add((before, slot))
                state = fragment[sb.STATE_IN][row, slot] if self.remembers else self.states[slot]
                self._add_final(before, slot, fragment.observations[row, slot].copy(), state)
        self.explorer.episodes_ended([slot])

    def receive(self):
        if self._ended:
            self.explorer.episodes_ended(self._ended)
            self._ended = []
        if self._given is not None and self._seen:
            given = np.empty((len(self._seen), *self._given.shape[1:]), self._given.dtype)
            self._given_column.write_rows(self._seen, given)
            self._given[self._seen_slots] = given
        NetworkLane.receive(self)
        self._note_first()

    def see_all(self, observations: np.ndarray) -> None:
        if self._given is not None:
            self._given_column.write_batch(observations, self._given)
        NetworkLane.see_all(self, observations)
        self._note_first()

    def _note_first(self) -> None:
        if self._begun and self._first is not None:
            self._first[self._begun] = self.observations[self._begun]
        self._begun = []

    def close_all(self, rewards: np.ndarray, ends: Sequence[tuple[int, bool, bool]]) -> None:
        """Closes the rows that all slots opened with the newest actions.

        Args:
            rewards: [S].
            ends: (slot, terminated, truncated) for each slot whose episode has ended.
        """
        row = self._num_rows - 1
        self.fragment[sb.REWARDS][row] = rewards
        self._is_closed[row] = True
        for slot, terminated, truncated in ends:
            self.fragment[sb.TERMINATEDS][row, slot] = terminated
            self.fragment[sb.TRUNCATEDS][row, slot] = truncated
        if ends:
            self.explorer.episodes_ended([slot for slot, *_ in ends])

    def log(self, slot: int, action) -> None:
        """Replaces a slot's newest action by the one that was taken in the environment, in the environment's units."""
        batch = batch_of(self._action_space, [action])
        self.fragment[sb.ACTIONS][self._num_rows - 1, slot] = self.mapper.to_policy(batch)[0]

    def get_state(self):
        return Lane.get_state(self)

    def set_state(self, state):
        """Restores the state that `get_state` returned, or the random streams in the state of a ChoosingLane."""
        if all("exploration" in saved for saved in state):
            Lane.set_state(self, state)
        else:
            set_states(self.rngs, state)

    def widen(self, other, slots):
        """Continues the running episodes of a lane with fewer slots, after the end of its fragment."""
        NetworkLane.widen(self, other, slots)
        self.take_over(other, slots)
        self._carried = other._carried.moved(slots)
        if self._first is not None:
            self._first[slots] = other._first
        if self.teacher is not None:
            self.teacher.widen(other.teacher, slots)
        if self._given is not None:
            self._given[slots] = other._given

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
        """Ends the fragment and returns it with its closed rows; open rows are carried over to the next fragment.

        Args:
            is_open: bool [S], slots that have acted and have no outcome of their action yet.
            is_free: bool [S], slots without an agent; None: all slots have an agent.
            num_carried: int64 [S], number of each slot's last closed rows that are carried over, too; None: none are.
        """
        self._store_closed()
        fragment, is_closed = self.fragment, self._is_closed
        open_slots, is_carried = self._all[is_open], np.zeros_like(is_closed)
        if num_carried is not None and num_carried.any():
            is_carried = is_closed & (np.cumsum(is_closed[::-1], axis=0)[::-1] <= num_carried)
        self._carried = self._carry(is_carried, open_slots)
        newest = {sb.OBS: self.observations}
        if self.remembers:
            newest[sb.STATE_IN] = self.states
        for name, values in newest.items():
            # An agent that waits has received no observation since its action.
            newest[name] = values.copy()
            newest[name][open_slots] = fragment[name][self._opened[open_slots], open_slots]
        if self._first is not None and is_free is not None:
            # The slot's next agent has not appeared yet: the previous agent's first observation is used for its own.
            newest[sb.OBS][is_free] = self._first[is_free]
        fragment.keep(is_closed & ~is_carried, newest)
        return fragment

    def _carry(self, is_carried: np.ndarray, open_slots: np.ndarray) -> Carried:
        """Removes the rows that are carried over from the fragment and returns them.

        Args:
            is_carried: bool [T, S], closed rows that are carried over.
            open_slots: slots whose open rows are carried over.
        """
        fragment, position = self.fragment, np.cumsum(is_carried, axis=0)
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
            rows=np.append(position[closed_rows, closed_slots] - 1, position[-1, open_slots]),
            slots=at[1],
            is_closed=np.arange(len(at[0])) < len(closed_rows),
            columns={name: fragment[name][at] for name in self._of_carried_rows},
            final_observations=[(int(position[t, i]) - 1, i, final) for (t, i, final), _ in carried],
            final_states=[state for _, state in carried if state is not None],
            cuts=frozenset((int(position[t, i]) - 1, i) for t, i in cuts),
            has_values=fragment.has_values,
            version=self.oldest_version if (at[0] < self._carried.num_steps).any() else self._own_version,
        )

    def start_over(self):
        Lane.start_over(self)
        self._carried = _NOTHING
        self._closed, self._ended = ([], [], []), []
        NetworkLane.start_over(self)
        if self._first is not None:  # a user's loss may read the observations of slots without an agent
            self._first[:] = self.observations


def _stored_columns(observation_space: Space, marks_waiting: bool) -> tuple[Column, ...]:
    """The columns that environments write for an agent with this observation space."""
    column = observation_column(observation_space)
    return (
        Column(sb.OBS, column.shape, str(column.dtype), before_action=True),
        Column(sb.REWARDS),
        Column(sb.TERMINATEDS, (), "bool"),
        Column(sb.TRUNCATEDS, (), "bool"),
        *([Column(sb.WAITED, (), "bool")] if marks_waiting else ()),
    )
