"""Lanes of policies whose slots keep time of their own: an agent acts in some steps of its environment, not in all.

A row of a slot is opened when its agent acts, and closed when the agent receives the next observation, or ends. The
fragment's row r of a slot is therefore its r-th closed row, wherever the environment is by then (Fragment.pack).
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib import sample_batch as sb
from rllib.env.spaces.actions import action_mapper, of_each
from rllib.env.spaces.observations import observation_column
from rllib.evaluation.lane import Lane
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.policy import Policy
from rllib.sample_batch import Column


class ActingSlots:
    """A policy that acts in slots, and keeps nothing but the inputs of its next actions.

    Args:
        policy: chooses the actions; None for policies that are written by hand.
        observation_space, action_space: of one agent.
        num_slots: S.

    Attributes:
        observations: [S, *observation], newest one of each slot, as stored.
        states: float32 [S, state], the memory's state before the next action of each slot.
        env_actions: the newest actions in the environment's units, by slot.
        acting: slots that act in the next step.
    """

    records = False

    def __init__(self, policy: Policy, observation_space, action_space, num_slots: int):
        self.policy, self.num_slots = policy, num_slots
        self.column = observation_column(observation_space)
        self._received = np.zeros((num_slots, *self.column.shape), self.column.dtype)
        stored = np.float32 if policy.filters_observations else self.column.dtype
        self.observations = np.zeros((num_slots, *self.column.shape), stored)
        self.states = np.zeros((num_slots, policy.state_size), np.float32)
        self._next_states = np.zeros_like(self.states)
        self.env_actions: Sequence[Any] = ()
        self.acting: list[int] = []
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
        self.states[:] = 0

    def see(self, slot: int, observation) -> None:
        """Notes the newest observation of a slot, on which its agent acts in the next step; `receive` stores it."""
        self._seen_slots.append(slot)
        self._seen.append(observation)

    def receive(self) -> None:
        """Stores the observations that were noted since the last call; their slots are `acting` from now on."""
        slots, seen, count = self._seen_slots, self._seen, len(self._seen)
        self.acting, self._seen_slots, self._seen = slots, [], []
        if not count:
            return
        is_dense = count == self.num_slots and slots == list(range(count))
        received = self._received[:count]
        self.column.write_rows(seen, received)
        if is_dense:
            self._store(received, self.observations, None)
        else:
            stored = np.empty((count, *self.observations.shape[1:]), self.observations.dtype)
            self._store(received, stored, np.array(slots))
            self.observations[slots] = stored

    def _store(self, received: np.ndarray, out: np.ndarray, slots: np.ndarray | None) -> None:
        if self.policy.filters_observations:
            self.policy.filter(received, out=out, update=False)
        else:
            out[:] = received


class ChoosingSlots(ActingSlots):
    """Slots of a policy that is evaluated: it takes the most probable actions, or samples them.

    Args:
        policy, observation_space, action_space, num_slots: as for ActingSlots.
        rng: draws the actions; None: the most probable ones.
        mapping: normalize_actions and clip_actions.
    """

    def __init__(
        self,
        policy: Policy,
        observation_space,
        action_space,
        num_slots: int,
        *,
        rng: np.random.Generator | None,
        mapping: tuple[bool, bool] = (True, False),
    ):
        super().__init__(policy, observation_space, action_space, num_slots)
        self._rng = rng
        self._mapper = action_mapper(action_space, policy.distribution, *mapping)

    def act(self, step: int = 0) -> None:
        """Chooses the actions of the slots that act."""
        slots = np.array(self.acting)
        state = self.states[slots] if self.policy.state_size else None
        seen = self.observations[slots]
        actions = self.policy.choose(seen, explore=self._rng is not None, rng=self._rng, filtered=True, state=state)
        if state is not None:
            self.states[slots] = state
        self.env_actions = dict(zip(self.acting, self._one_by_one(self._mapper.to_env(actions))))


class RecordingSlots(ActingSlots):
    """Slots of a policy whose steps become rows: a Lane with a write index for each slot.

    Args:
        lane: of the policy; its slots are these.
        observation_space, action_space: of one agent.

    Attributes:
        fragment: the present one, whose rows are not packed yet.
        oldest_version: of the weights that have acted in its rows; open rows of the fragment before count.
    """

    records = True

    def __init__(self, lane: Lane, observation_space, action_space):
        super().__init__(lane.policy, observation_space, action_space, len(lane.rngs))
        self.lane, self.every_final_observation = lane, lane.every_final_observation
        self._all = np.arange(self.num_slots)
        self._rows = np.zeros(self.num_slots, np.int64)
        self._row: int | None = 0  # where all slots stand at the same row
        self._closed: list[int] = []
        self._rewards: list[float] = []
        self._ends: list[tuple[int, bool, bool]] = []
        # Slots with an open row at the end of the fragment before, and its columns.
        self._open, self._open_rows = self._all[:0], {}
        self.oldest_version, self._kept_version = 0, sys.maxsize
        policy = lane.policy
        self._actions = np.zeros((self.num_slots, *policy.action_shape), policy.action_dtype)
        self._dist_inputs = np.zeros((self.num_slots, policy.num_dist_inputs), np.float32)
        self._values = np.zeros(self.num_slots, np.float32)
        # Columns of the inputs of an action, and of its outcome, by which an open row goes on in the next fragment.
        names = {column.name for column in lane.columns}
        of_rows = (sb.OBS, sb.STATE_IN, sb.ACTIONS, sb.ACTION_DIST_INPUTS, sb.VF_PREDS)
        self._of_open_rows = [name for name in of_rows if name in names]

    def begin(self, num_steps: int) -> None:
        """Begins a fragment of this number of steps of the environments; rows that are open go on in it."""
        lane = self.lane
        self.fragment = lane.new_fragment(num_steps)
        for column in self.fragment.columns.values():
            column[0] = 0
        for name, values in self._open_rows.items():
            self.fragment[name][0, self._open] = values
        for name in (sb.REWARDS, sb.TERMINATEDS, sb.TRUNCATEDS):
            self.fragment[name][:] = 0
        self._rows[:], self._row = 0, 0
        self.oldest_version = min(self._kept_version, lane.policy_version)
        self._kept_version = lane.policy_version
        self.prepare(num_steps)

    def prepare(self, num_steps: int, active: Sequence[bool] | None = None) -> None:
        """Draws the noise of the next steps; of the active slots alone, where some are not."""
        self._noise = self.lane.explorer.begin(num_steps, self.lane.timesteps, active)

    def make_room(self, num_steps: int) -> None:
        """Makes room for further steps; whole episodes are longer than the fragment that was asked for."""
        if int(self._rows.max()) + num_steps <= self.fragment.num_steps:
            return
        longer = self.lane.new_fragment(2 * self.fragment.num_steps + num_steps)
        for name, column in self.fragment.columns.items():
            longer[name][: len(column)] = column
            longer[name][len(column) :] = 0
        longer.cuts = self.fragment.cuts
        longer.final_observations, longer.final_states = self.fragment.final_observations, self.fragment.final_states
        self.fragment = longer

    def act(self, step: int) -> None:
        """Chooses the actions of the slots that act, and opens their rows.

        All slots are computed, so that the bits of one do not depend on which others act.

        Args:
            step: number of the step since `prepare`.
        """
        lane, fragment, row = self.lane, self.fragment, self._row
        states = (self.states, self._next_states) if lane.remembers else (None, None)
        values = self._values if fragment.has_values else None
        lane.explorer.act(self.observations, self._noise[step], self._dist_inputs, self._actions, values, *states)
        acting = self.acting
        if row is not None and len(acting) == self.num_slots:
            at: Any = row
            seen = slice(None)
        else:
            seen = np.array(acting)
            at = self._rows[seen], seen
        fragment.observations[at] = self.observations[seen]
        fragment[sb.ACTIONS][at] = self._actions[seen]
        if sb.ACTION_DIST_INPUTS in fragment.columns:
            fragment[sb.ACTION_DIST_INPUTS][at] = self._dist_inputs[seen]
        if values is not None:
            fragment[sb.VF_PREDS][at] = values[seen]
        if lane.remembers:
            fragment[sb.STATE_IN][at] = self.states[seen]
            self.states[seen] = self._next_states[seen]
        self.env_actions = self._one_by_one(lane.mapper.to_env(self._actions))

    def close(self, slot: int, reward: float, terminated: bool, truncated: bool) -> None:
        """Notes that the open row of a slot is complete; `receive` stores it."""
        self._closed.append(slot)
        self._rewards.append(reward)
        if terminated or truncated:
            self._ends.append((slot, terminated, truncated))

    def keep_final(self, slot: int, observation) -> None:
        """Keeps the final observation of a slot whose open row is about to be closed by an end."""
        final = self.column.row(observation)
        if self.lane.filters and not self.lane.stores_raw:
            final = self.policy.filter(final[None], environments=np.array([slot]))[0]
        self._add_final(int(self._rows[slot]), slot, final, self.states[slot])

    def _add_final(self, row: int, slot: int, final: np.ndarray, state: np.ndarray) -> None:
        self.fragment.final_observations.append((row, slot, final))
        if self.lane.remembers:
            self.fragment.final_states.append(state.copy())

    def drop(self, slot: int, has_row_before: bool) -> None:
        """Drops the open row of a slot: its episode was cut while the agent waited.

        Args:
            slot: whose row.
            has_row_before: whether the episode has an earlier row in this fragment. It becomes the last one, and its
                final observation is the one that the dropped action was chosen from.
        """
        row = int(self._rows[slot])
        if has_row_before and not self.fragment[sb.TERMINATEDS][row - 1, slot]:
            self.fragment[sb.TRUNCATEDS][row - 1, slot] = True
            self.fragment.cuts.add((row - 1, slot))
            state = self.fragment[sb.STATE_IN][row, slot] if self.lane.remembers else self.states[slot]
            self._add_final(row - 1, slot, self.fragment.observations[row, slot].copy(), state)
        self.lane.explorer.episodes_ended([slot])

    def receive(self) -> None:
        """Stores the rows that were closed and the observations that were seen since the last call."""
        if self._closed:
            self._store_closed()
        super().receive()

    def _store_closed(self) -> None:
        closed, row = self._closed, self._row
        slots = np.array(closed)
        if row is not None and len(closed) == self.num_slots:
            self.fragment[sb.REWARDS][row, slots] = self._rewards
            self._row = row + 1
            self._rows += 1
        else:
            self.fragment[sb.REWARDS][self._rows[slots], slots] = self._rewards
            self._row = None
            self._rows[slots] += 1
        if self._ends:
            for slot, terminated, truncated in self._ends:
                last = self._rows[slot] - 1
                self.fragment[sb.TERMINATEDS][last, slot] = terminated
                self.fragment[sb.TRUNCATEDS][last, slot] = truncated
            self.lane.explorer.episodes_ended([slot for slot, *_ in self._ends])
            self._ends = []
        self._closed, self._rewards = [], []

    def _store(self, received, out, slots):
        if not self.lane.filters:
            out[:] = received
        elif slots is None:
            self.policy.filter(received, out=out, update=True)
        else:
            out[:] = self.policy.filter(received, update=True, environments=slots)

    def end(self, is_open: np.ndarray) -> Fragment:
        """Ends the fragment, whose closed rows are packed; open rows go on in the next.

        Args:
            is_open: bool [S], slots that have acted and wait for what follows.
        """
        fragment, waiting = self.fragment, self._all[~is_open]
        at = self._rows[waiting], waiting
        fragment.observations[at] = self.observations[waiting]
        if self.lane.remembers:
            fragment[sb.STATE_IN][at] = self.states[waiting]
        self._open = open_slots = self._all[is_open]
        self._open_rows = {name: fragment[name][self._rows[open_slots], open_slots] for name in self._of_open_rows}
        if not len(open_slots):
            self._kept_version = sys.maxsize
        fragment.pack(self._rows)
        return fragment

    def start_over(self) -> None:
        """Drops the running episodes."""
        self.lane.start_over()
        self._open, self._open_rows = self._all[:0], {}
        self._closed, self._rewards, self._ends = [], [], []
        super().start_over()


class HandWrittenSlots:
    """Slots of a policy that is written by hand: a function of the agents' raw observations.

    Args:
        chooser: has `compute_actions(observations, state_batches=None, **kwargs)`, which returns the actions, or
            (actions, states, fetches).
        policy_id: its name, for messages.
        num_slots: S.
    """

    records = False

    def __init__(self, chooser, policy_id: str, num_slots: int):
        self.chooser, self._policy_id, self.num_slots = chooser, policy_id, num_slots
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
        self._seen.append(observation)

    def receive(self) -> None:
        """Makes the observations that were noted those that are acted upon next."""
        self.acting, self._observations = self._seen_slots, self._seen
        self._seen_slots, self._seen = [], []

    def act(self, step: int = 0) -> None:
        """Asks the policy for the actions of the slots that act.

        Raises:
            ValueError: if it gives another number of actions than there are observations.
        """
        initial = getattr(self.chooser, "get_initial_state", list)
        states = [self._states.get(slot) or initial() for slot in self.acting]
        batches = [np.stack(parts) for parts in zip(*states)] or None
        answer = self.chooser.compute_actions(self._observations, state_batches=batches)
        if isinstance(answer, tuple) and len(answer) == 3:
            answer, following, _ = answer
            for position, slot in enumerate(self.acting):
                self._states[slot] = [part[position] for part in following]
        if len(answer) != len(self.acting):
            name = type(self.chooser).__name__
            raise ValueError(
                f"{name} {self._policy_id!r} gave {len(answer)} actions for {len(self.acting)} observations; "
                "compute_actions returns one for each of them, in their order"
            )
        self.env_actions = dict(zip(self.acting, answer))

    def start_over(self) -> None:
        """Drops the running episodes."""
        self.acting, self._seen_slots, self._seen, self._states = [], [], [], {}


Slots = RecordingSlots | ChoosingSlots | HandWrittenSlots


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
