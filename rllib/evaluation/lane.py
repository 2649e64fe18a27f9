"""Lane: one policy's side of a rollout worker.

A lane chooses the actions of a policy in its slots, keeps the columns that result, and makes rows of them. A slot is
what the policy acts for: an environment where there is one agent, else an agent of an environment. The worker steps the
environments and tells its lanes what followed.
"""

import itertools
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space

from rllib import sample_batch as sb
from rllib.env.spaces.actions import action_mapper
from rllib.env.spaces.observations import are_finite
from rllib.env.spaces.row_selection import RowSelection
from rllib.evaluation import seeding
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.settings import PolicySettings, RolloutSettings
from rllib.evaluation.teacher import LaneTeacher
from rllib.exploration.explorers import Explorer, Greedy, WorkerPosition
from rllib.policy import Policy, Snapshot
from rllib.sample_batch import Column, SampleBatch, table_of

# Cause of an observation that is not finite.
OF_ENVIRONMENT = "the environment gave it, or a number beyond float32's"


class Lane:
    """One policy with its explorer, its observation filter, and the columns of its slots.

    Args:
        policy: chooses the actions.
        own: settings of this policy.
        settings: settings of the worker.
        given: columns that the environments write; the first is the observation's.
        action_space: space of a slot's actions, in the environment's units.
        rngs: random stream of each slot.
        worker_index, incarnation: index and incarnation of the worker.
        stream: the environments, for a postprocess that asks them (hindsight).
        describe: gives a slot in words, for messages, such as "environment 0 of rollout worker 2".
        allocate: `allocate(shape, dtype)` returns memory for the columns.
        by_slot: whether the bits of a slot's rows must not depend on the number of slots.

    Attributes:
        policy_version: version of the weights that act.
        timesteps: environment steps of the whole run before the next step here, as far as the worker knows.
        mapper: from the policy's actions to the environment's.
        explorer: chooses the actions.
        columns: of a fragment.
        stores_raw: whether fragments hold unfiltered observations, and the postprocess filters its rows.
        changes_observations: whether the policy sees others than the environments give.
        teacher: says in each step what it would do; None: there is none.
        remembers: whether the policy has a memory.
    """

    def __init__(
        self,
        policy: Policy,
        own: PolicySettings,
        settings: RolloutSettings,
        *,
        given: Sequence[Column],
        action_space: Space,
        rngs: Sequence[np.random.Generator],
        worker_index: int,
        incarnation: int,
        stream: Any,
        describe: Callable[[int], str],
        allocate: Callable[..., np.ndarray] = np.empty,
        by_slot: bool = False,
    ):
        self.policy, self.own, self.settings, self._stream = policy, own, settings, stream
        self.policy_version = self.timesteps = 0
        self.rngs, self._describe, self._allocate, self._by_slot = rngs, describe, allocate, by_slot
        self.filters, self.remembers = policy.filters_observations, policy.state_size > 0
        self.stores_raw = self.filters and own.postprocess.stores_raw_observations
        # The teacher alone may read some of what the environments give.
        self._select = None
        if own.teacher is not None:
            self._select = RowSelection(own.teacher.observation_space, own.observation_space)
        if self._select is not None and self._select.takes_all:
            self._select = None
        self.changes_observations = self.filters or self._select is not None
        # Sequences are copied out of the fragment, which then needs no memory that others can see.
        self._makes_sequences = settings.sequences or self.remembers
        self._allocate_fragment = np.empty if self._makes_sequences else allocate
        self.mapper = action_mapper(
            action_space, policy.distribution, settings.normalize_actions, settings.clip_actions
        )
        self.explorer = self._make_explorer(worker_index, incarnation)
        self.teacher: LaneTeacher | None = None
        if own.teacher is not None:
            self.teacher = LaneTeacher(own.teacher, policy, self.mapper, rngs, describe)
        self.columns = self._column_table(given)
        self._before_action = [column.name for column in self.columns if column.before_action]
        self._gives_values = self.explorer.gives_values and any(c.name == sb.VF_PREDS for c in self.columns)
        self._learner = own.learner and own.learner(policy)
        self.every_final_observation = own.postprocess.every_final_observation
        make_scale = own.make_return_scale
        self._return_scale = make_scale and make_scale(num_envs=len(rngs))
        self._records = settings.make_recorder is not None
        # Where the network's outputs go that no column keeps.
        self._scratch = np.empty((len(rngs), policy.num_dist_inputs), np.float32)
        self.forget_fragment()

    def _make_explorer(self, worker_index: int, incarnation: int) -> Explorer:
        settings = self.settings
        low, high = self.mapper.policy_bounds or (None, None)
        shared_rng = seeding.generator(settings.seed, seeding.WEIGHT_NOISE, incarnation=incarnation)
        position = WorkerPosition(worker_index, settings.num_workers, settings.num_envs, low, high, shared_rng)
        kind = self.own.exploration.explorer if self.own.explore else Greedy
        return kind(self.own.exploration, self.policy, self.rngs, position)

    def _column_table(self, given: Sequence[Column]) -> tuple[Column, ...]:
        """The columns of a fragment: from the environments, the policy and the algorithm."""
        observed, *others = given
        if self._select is not None:
            observed = Column(observed.name, self._select.shape, str(self._select.dtype), observed.before_action)
        if self.filters and not self.stores_raw:
            observed = Column(observed.name, observed.shape, "float32", observed.before_action)
        taught = () if self.own.teacher is None else self.own.teacher.columns(self.policy)
        return table_of(observed, *others, *self.policy.columns, *taught, *self.own.postprocess.columns)

    # ------------------------------------------------------------------ weights and state

    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Uses this version of the policy from now on."""
        self.policy.load_snapshot(snapshot)
        self.policy_version, self.timesteps = snapshot.version, snapshot.timesteps
        # For users' own calls: the explorer gives its numbers with each.
        self.policy.exploration = self.explorer.exploration.numbers_alone(snapshot.timesteps)
        if snapshot.return_state is not None:
            self._return_scale.set_state(snapshot.return_state)

    def merge(self, filter_delta, return_delta) -> None:
        """Merges a report's statistics of observations and of returns, as a driver does; None: there are none."""
        if filter_delta is not None:
            self.policy.filter.merge(filter_delta)
        if return_delta is not None:
            self._return_scale.merge(return_delta)

    def take_over(self, other: "Lane", slots: np.ndarray) -> None:
        """Continues where another lane of the policy has ended a fragment.

        It takes over what the other one has received (version, clock, statistics of returns), and what its slots keep
        from step to step: exploration, running returns, steps whose rows are not complete.

        Args:
            other: the lane before.
            slots: int64, slot of this lane for each of its slots. Where two are the same, the episodes of both must
                have been cut.
        """
        self.policy_version, self.timesteps = other.policy_version, other.timesteps
        self.explorer.take_over(other.explorer, slots)
        if self._return_scale:
            self._return_scale.take_over(other._return_scale, slots)
        if self._rows is not None:
            self._rows.take_over(other._rows, slots)

    def cut(self, slots: Sequence[int]) -> None:
        """Ends the episodes of these slots with their last rows, which earlier fragments had, as a truncation does."""
        if self._return_scale:
            self._return_scale.cut(slots)
        if self._rows is not None:
            self._rows.cut(slots)

    def cut_all(self) -> None:
        """Ends the episodes of all slots so, before another lane continues."""
        self.explorer.start_over()
        self.cut(range(len(self.rngs)))

    def pop_deltas(self) -> tuple[Any, Any]:
        """Statistics of observations and of returns since the last call; None where they are not kept."""
        return self.policy.filter.pop_delta(), self._return_scale and self._return_scale.pop_delta()

    def get_state(self) -> list[dict]:
        """Random stream and exploration of each slot, JSON-able."""
        return [
            {"rng": rng.bit_generator.state, "exploration": explored}
            for rng, explored in zip(self.rngs, self.explorer.get_state(), strict=True)
        ]

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Restores the state that `get_state` returned."""
        for rng, saved in zip(self.rngs, state, strict=True):
            rng.bit_generator.state = saved["rng"]
        self.explorer.set_state([saved["exploration"] for saved in state])

    def start_over(self) -> None:
        """Prepares new episodes in all slots, after the running ones were dropped."""
        self.explorer.start_over()
        self.forget_fragment()
        if self.teacher is not None:
            self.teacher.start_over()
        if self._return_scale:
            self._return_scale.start_over()
        self.own.postprocess.start_over()

    def forget_fragment(self) -> None:
        """Drops what waits for the next fragment: the newest observations, and steps whose rows are not complete."""
        # Inputs of the next actions, by column: where the next fragment starts. None: with a reset.
        self.newest: dict[str, np.ndarray] | None = None
        self._rows = self.own.postprocess.make_rows(self._stream, self.rngs)

    # ------------------------------------------------------------------ a fragment

    def new_fragment(self, num_steps: int) -> Fragment:
        """Memory for this number of steps of every slot."""
        fragment = Fragment(self.columns, num_steps, len(self.rngs), self._allocate_fragment)
        fragment.has_values, fragment.by_environment = self._gives_values, self._by_slot
        if self._keeps_given:
            observed = self._stream.new_buffers().observations
            fragment.unfiltered = np.empty((num_steps + 1, *observed.shape), observed.dtype)
        return fragment

    @property
    def _keeps_given(self) -> bool:
        """Whether fragments hold what the environments gave in addition to what the policy sees."""
        reads_given = self._records or self.teacher is not None
        return reads_given and self.changes_observations and not self.stores_raw

    def joined(self, parts: list[Fragment]) -> Fragment:
        """Fragments of these slots, one after the other in time, as one."""
        return Fragment.join(parts, self.columns, self._allocate_fragment)

    def start(self, fragment: Fragment) -> bool:
        """Writes the inputs of the first actions, if they are there; else the environments have to be reset."""
        if self.newest is None:
            return False
        for name, values in self.newest.items():
            fragment[name][0] = values
        if fragment.unfiltered is not None:
            fragment.unfiltered[0] = self._newest_unfiltered
        return True

    def keep_newest(self, fragment: Fragment) -> None:
        """Keeps the inputs of the next actions for the next fragment."""
        # Copies: views would keep the whole fragment's memory from being used again.
        self.newest = {name: fragment[name][-1].copy() for name in self._before_action}
        if fragment.unfiltered is not None:
            self._newest_unfiltered = fragment.unfiltered[-1].copy()

    def acting_columns(self, fragment: Fragment, active: Sequence[bool] | None) -> Iterator[tuple]:
        """For each step the arguments of `explorer.act` that follow the observations; draws the noise.

        Args:
            fragment: its columns are written.
            active: slots that make these steps; None: all.
        """
        states = fragment[sb.STATE_IN] if self.remembers else itertools.repeat(None)
        return zip(
            self.explorer.begin(fragment.num_steps, self.timesteps, active),
            fragment[sb.ACTION_DIST_INPUTS]
            if sb.ACTION_DIST_INPUTS in fragment.columns
            else itertools.repeat(self._scratch),
            fragment[sb.ACTIONS],
            fragment[sb.VF_PREDS] if fragment.has_values else itertools.repeat(None),
            states,
            states[1:] if self.remembers else states,
        )

    def end_steps(self, num_steps: int) -> None:
        """Moves the clock after the steps that `acting_columns` has prepared."""
        self.timesteps += num_steps * self.explorer.position.stride
        self.explorer.end()

    def filtered(self, raw: np.ndarray, out: np.ndarray, active: Sequence[bool] | None = None) -> None:
        """Writes raw observations as they are stored, filtered or not; with `active`, of active slots alone."""
        if self._select is not None:
            raw = self._select(raw)
        if not self.filters:
            out[:] = raw
        elif active is None:
            self.policy.filter(raw, out=out, update=True)
        else:
            out[active] = self.policy.filter(raw[active], update=True, environments=np.flatnonzero(active))

    def refuse_not_finite(self, given: np.ndarray, t: int, active: Sequence[bool] | None = None) -> None:
        """Refuses what the environments gave before the policy acts on it, and before the filter counts it.

        Args:
            given: [N, ...], unfiltered.
            t: row of the fragment.
            active: as for `acting_columns`.

        Raises:
            ValueError: if a number of an active slot is not finite.
        """
        if are_finite(given):
            return
        bad = ~np.isfinite(given).reshape(len(given), -1).all(-1)
        for i in np.flatnonzero(bad if active is None else bad & active)[:1]:
            raise ValueError(self._named(sb.OBS, i, t, given[i], OF_ENVIRONMENT))

    def seen_apart(self, fragment: Fragment) -> list[np.ndarray]:
        """Memory for what the policy sees where a fragment holds raw observations; the first is there already."""
        seen = np.empty(fragment.observations.shape, np.float32)
        self.policy.filter(fragment.observations[0], out=seen[0])
        return list(seen)

    def note_ends(self, fragment: Fragment, t: int, ended: Sequence[tuple[int, np.ndarray]]) -> None:
        """Keeps the true final observations of slots whose episodes ended with step t, and begins new episodes."""
        truncated, terminated = fragment[sb.TRUNCATEDS][t], fragment[sb.TERMINATEDS][t]
        self.episodes_ended([i for i, _ in ended])
        for i, final in ended:
            if self._records:
                fragment.ends.append((t, i, np.array(final)))
            if self.every_final_observation or (truncated[i] and not terminated[i]):
                self._refuse_final(final, t, i)  # it is bootstrapped from, or stored
                if self._select is not None:
                    final = self._select(np.asarray(final)[None])[0]
                if self.filters and not self.stores_raw:
                    final = self.policy.filter(np.asarray(final)[None], environments=np.array([i]))[0]
                fragment.add_final(t, i, final)
        if self.remembers:
            fragment.forget(t, [i for i, _ in ended])

    def _refuse_final(self, final: np.ndarray, t: int, i: int) -> None:
        if not are_finite(np.asarray(final)):
            raise ValueError(self._named("the final observation", i, t, final, OF_ENVIRONMENT))

    def episodes_ended(self, slots: Sequence[int]) -> None:
        """Prepares new episodes, which begin in these slots with the next action."""
        self.explorer.episodes_ended(slots)
        if self.teacher is not None:
            self.teacher.episodes_ended(slots)

    def acting(
        self, fragment: Fragment, given: Sequence[np.ndarray], active: Sequence[bool] | None
    ) -> Callable[..., None]:
        """The function that chooses the actions of the steps that `acting_columns` has prepared.

        Args:
            fragment: its columns are written.
            given: what the environments gave, [N, ...] for each step.
            active: as for `acting_columns`.
        """
        if self.teacher is None:
            return self.explorer.act
        return self.teacher.acting(self.explorer.act, fragment, given, self.clock(fragment.num_steps), active)

    def clock(self, num_steps: int) -> np.ndarray:
        """Environment steps of the run, int64 [num_steps], at each of the next steps."""
        return self.timesteps + self.explorer.position.stride * np.arange(num_steps)

    def finish(self, fragment: Fragment) -> None:
        """Computes for the whole fragment at once: checks, scaled rewards, log-probabilities, the postprocess."""
        if self.policy.is_masked:
            seen = fragment.observations[: fragment.num_steps]
            self.policy.check_masks(
                seen.reshape(-1, seen.shape[-1]),
                lambda row: (
                    f"{self._describe(row % fragment.num_envs)} had no legal action at step "
                    f"{row // fragment.num_envs} of the fragment"
                ),
                None if fragment.valid is None else fragment.valid.reshape(-1),
            )
        if self.settings.time_limit_ends_episode:
            self._end_at_time_limits(fragment)
        fragment.cut_at_failures()
        # Clipped first: signs of scaled rewards would have no scale.
        rewards = fragment[sb.REWARDS]
        self.settings.clip(rewards)
        if self._return_scale:
            ended = fragment[sb.TERMINATEDS] | fragment[sb.TRUNCATEDS]
            self._return_scale.apply(rewards, ended, fragment.valid, fragment.starts)
        self._check_finite(fragment)
        if self.teacher is not None:
            self.teacher.check(fragment)
        if sb.ACTION_LOGP in fragment.columns:
            dist_inputs, actions = fragment[sb.ACTION_DIST_INPUTS], fragment[sb.ACTIONS]
            rows = fragment.num_steps * fragment.num_envs
            fragment[sb.ACTION_LOGP].reshape(rows)[:] = self.policy.log_prob(
                dist_inputs.reshape(rows, -1), actions.reshape(rows, *actions.shape[2:])
            )
        self.own.postprocess(fragment, self.policy)

    def _end_at_time_limits(self, fragment: Fragment) -> None:
        """Turns truncated episodes into terminated ones, but for those that were cut because nothing followed."""
        truncated = fragment[sb.TRUNCATEDS]
        terminated = fragment[sb.TERMINATEDS]
        fragment.time_limits = truncated.copy()
        terminated |= truncated
        truncated[:] = False
        for t, i in fragment.cuts:
            terminated[t, i], truncated[t, i], fragment.time_limits[t, i] = False, True, False
        if self.every_final_observation or not fragment.final_observations:
            return
        finals, states = fragment.final_observations, fragment.final_states or [None] * len(fragment.final_observations)
        left = [(final, state) for final, state in zip(finals, states, strict=True) if truncated[final[0], final[1]]]
        fragment.final_observations = [final for final, _ in left]
        fragment.final_states = [state for _, state in left if state is not None]

    def to_batch(self, fragment: Fragment, has_gaps: bool) -> SampleBatch:
        """The rows of a finished fragment.

        Args:
            fragment: see `finish`.
            has_gaps: see Fragment.to_batch.
        """
        if self._rows is not None:
            return self._rows.of(fragment, self.policy, self.policy_version, has_gaps)
        if self._makes_sequences:
            return fragment.to_sequences(
                self.policy_version,
                self._allocate,
                bootstraps=self.settings.sequences,
                max_seq_len=self.policy.spec.architecture.max_seq_len,
            )
        return fragment.to_batch(self.policy_version, has_gaps)

    def compute_gradient(self, batch: SampleBatch, **settings) -> tuple[np.ndarray, dict[str, float]]:
        """The loss's gradient over a batch, and its statistics; settings as for Learner.compute_gradient."""
        return self._learner.compute_gradient(batch, **settings)

    def note_rows_without_choice(self, error: BaseException, acting: Container[int] | None = None) -> None:
        """Adds to an error of the environments which slots had no legal action when they acted last.

        Args:
            error: gets a note for each of them.
            acting: slots that have acted; None: all.
        """
        for i in self.policy.acted_without_choice() if self.policy.is_masked else ():
            if acting is not None and i not in acting:
                continue
            error.add_note(f"{self._describe(i)} had no legal action at that step")

    def _check_finite(self, fragment: Fragment) -> None:
        """Raises an error for a NaN or an infinity of the network here, near its cause."""
        names = [sb.ACTION_DIST_INPUTS, *([sb.VF_PREDS] if fragment.has_values else [])]
        if problem := self._not_finite(fragment, names):
            raise ValueError(problem)

    def note_not_finite(self, error: BaseException, fragment: Fragment, t: int) -> None:
        """Adds to an error of the environments in step t which number of the policy was not finite, if one was."""
        if problem := self._not_finite(fragment, [sb.ACTION_DIST_INPUTS], t + 1):
            error.add_note(problem)

    def _not_finite(self, fragment: Fragment, names: Sequence[str], rows: int | None = None) -> str | None:
        """Names the first number of these columns, or of their first rows, that is not finite; None: all are."""
        for name in names:
            column = fragment.columns[name][:rows] if name in fragment.columns else np.empty(0)
            if column.dtype.kind != "f" or math.isfinite(float(column.sum(dtype=np.float64))):
                continue
            network = self.policy.spec.architecture.network_name
            t, i = np.argwhere(~np.isfinite(column).reshape(*column.shape[:2], -1).all(-1))[0]
            overflow = f"{network} overflowed: scale the observations, or lower the learning rate"
            return self._named(name, i, t, column[t, i], overflow)
        return None

    def _named(self, name: str, i: int, t: int, value: np.ndarray, cause: str) -> str:
        return f"{name} of {self._describe(i)} is not finite at step {t} of the fragment: {value}; {cause}"
