"""Lanes of policies whose slots keep time of their own: an agent acts in some steps of its environment, not in all.

A row of a slot is opened when its agent acts, and closed when the agent receives the next observation, or ends. The
fragment's row r of a slot is therefore its r-th closed row, wherever the environment is by then (Fragment.pack).
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from rllib import sample_batch as sb
from rllib.env.multi_agent.adapt import own_observation
from rllib.env.spaces.actions import of_each
from rllib.env.spaces.observations import observation_column
from rllib.evaluation.lane import Lane
from rllib.evaluation.postprocess.fragment import Fragment
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
        acting: slots that act in the next step.
    """

    records: ClassVar[bool] = False

    def __init__(self, policy: Policy, observation_space, action_space, num_slots: int, mapper):
        self.policy, self.num_slots, self._mapper = policy, num_slots, mapper
        self.column = observation_column(observation_space)
        self._received = np.zeros((num_slots, *self.column.shape), self.column.dtype)
        stored = np.float32 if policy.filters_observations else self.column.dtype
        self.observations = np.zeros((num_slots, *self.column.shape), stored)
        self.states = np.zeros((num_slots, policy.state_size), np.float32)
        self._next_states = np.zeros_like(self.states)
        self._dist_inputs = np.zeros((num_slots, policy.num_dist_inputs), np.float32)
        self._actions = np.zeros((num_slots, *policy.action_shape), policy.action_dtype)
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
        received = self._received[:count]
        self.column.write_rows(seen, received)
        if count == self.num_slots and slots == list(range(count)):
            self._store(received, self.observations, None)
        else:
            stored = np.empty((count, *self.observations.shape[1:]), self.observations.dtype)
            self._store(received, stored, np.array(slots))
            self.observations[slots] = stored

    def _store(self, received: np.ndarray, out: np.ndarray, slots: np.ndarray | None) -> None:
        """Writes what is stored of raw observations; of all slots, where `slots` is None."""
        if self.policy.filters_observations:
            self.policy.filter(received, out=out, update=False)
        else:
            out[:] = received

    def _map_actions(self) -> None:
        self.env_actions = self._one_by_one(self._mapper.to_env(self._actions))


class ChoosingSlots(ActingSlots):
    """Slots of a policy that acts and does not learn: in evaluation, or because it is not trained.

    Args:
        policy, observation_space, action_space, num_slots, mapper: as for ActingSlots.
        place: a slot in words, for messages.
        rngs: random stream of each slot, which draws its actions; None: the most probable ones.
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
    ):
        super().__init__(policy, observation_space, action_space, num_slots, mapper)
        self._place, self._rngs = place, rngs
        nothing = np.zeros_like(policy.noise(np.random.default_rng(), num_slots))
        self._noise = np.repeat(nothing[None], NOISE_STEPS, axis=0)
        # Number of noises used, of NOISE_STEPS that are drawn for a slot at once.
        self._used = np.full(num_slots, NOISE_STEPS)

    def act(self, step: int = 0) -> None:
        """Chooses the actions of the slots that act.

        Raises:
            ValueError: if an observation has no legal action.
        """
        policy, slots = self.policy, np.array(self.acting)
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
        self._map_actions()

    def _drawn(self, slots: np.ndarray) -> np.ndarray:
        """Noise [S, ...], in which the slots that act have the next numbers of their own streams."""
        for slot in slots[self._used[slots] == NOISE_STEPS].tolist():
            self._noise[:, slot] = self.policy.noise(self._rngs[slot], NOISE_STEPS)
            self._used[slot] = 0
        noise = np.zeros_like(self._noise[0])
        noise[slots] = self._noise[self._used[slots], slots]
        self._used[slots] += 1
        return noise

    def _check_masks(self, slots: np.ndarray) -> None:
        without = self.policy.without_choice(self.observations[slots])
        if without.any():
            slot = int(slots[without.argmax()])
            mask = self.policy.spec.encoder.mask(self.observations[slot][None])[0]
            raise ValueError(f"{self._place(slot)} has no legal action: {no_choice(mask)}")


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
        super().__init__(lane.policy, observation_space, action_space, len(lane.rngs), lane.mapper)
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
        self._flatten()
        self._rows[:], self._row = 0, 0
        self.oldest_version = min(self._kept_version, lane.policy_version)
        self._kept_version = lane.policy_version
        self.prepare(num_steps)

    def _flatten(self) -> None:
        """Makes views of the fragment's columns with one row for each (row, slot): one index is quicker than two."""
        fragment = self.fragment
        sources = {
            sb.OBS: self.observations,
            sb.STATE_IN: self.states,
            sb.ACTIONS: self._actions,
            sb.ACTION_DIST_INPUTS: self._dist_inputs,
            sb.VF_PREDS: self._values,
        }
        flat = {name: column.reshape(-1, *column.shape[2:]) for name, column in fragment.columns.items()}
        # (column, its flat view, what is written of an action)
        self._of_action = [
            (fragment[name], flat[name], sources[name])
            for name in self._of_open_rows
            if name != sb.VF_PREDS or fragment.has_values
        ]
        self._flat_rewards = flat[sb.REWARDS]

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
        self._flatten()

    def act(self, step: int) -> None:
        """Chooses the actions of the slots that act, and opens their rows.

        Args:
            step: number of the step since `prepare`.
        """
        lane, row = self.lane, self._row
        states = (self.states, self._next_states) if lane.remembers else (None, None)
        values_out = self._values if self.fragment.has_values else None
        noise = self._noise[step]
        lane.explorer.act(self.observations, noise, self._dist_inputs, self._actions, values_out, *states)
        if row is not None and len(self.acting) == self.num_slots:
            for column, _, values in self._of_action:
                column[row] = values
            self.states[:] = self._next_states
        else:
            acting = np.array(self.acting)
            at = self._rows[acting] * self.num_slots + acting
            for _, flat, values in self._of_action:
                flat[at] = values[acting]
            self.states[acting] = self._next_states[acting]
        self._map_actions()

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
            self._flat_rewards[self._rows[slots] * self.num_slots + slots] = self._rewards
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
        place: a slot in words, for messages.
    """

    records: ClassVar[bool] = False

    def __init__(self, chooser, policy_id: str, num_slots: int, place: Callable[[int], str]):
        self.chooser, self._policy_id, self.num_slots, self._place = chooser, policy_id, num_slots, place
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
        count, initial = len(self.acting), getattr(self.chooser, "get_initial_state", list)
        before = [self._states.get(slot) or initial() for slot in self.acting]
        states = [np.stack(parts) for parts in zip(*before)] or None
        answer = self.chooser.compute_actions(self._observations, state_batches=states)
        following: Sequence = ()
        if isinstance(answer, tuple) and len(answer) == 3 and isinstance(answer[2], Mapping):
            answer, following, _ = answer
        if not hasattr(answer, "__len__") or len(answer) != count:
            given = f"{len(answer)} actions" if hasattr(answer, "__len__") else f"{answer!r:.60}"
            raise ValueError(
                f"{self._name} gave {given} for {count} observations; compute_actions returns one action for each of "
                "them, in their order"
            )
        for position, slot in enumerate(self.acting if following else ()):
            self._states[slot] = [part[position] for part in following]
        return answer

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
