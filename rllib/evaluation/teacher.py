"""The teacher of a policy in training, in a rollout worker: it labels each step with the action that it would take.

Labels are computed in the step that they belong to, since a recurrent teacher needs the state that the observations so
far lead to, and with the probability `beta` an environment gets the teacher's action instead of the student's. A
teacher reads the environment's observations before the student's filter and with keys that the student does not get; it
has its own filter. Its results for an environment do not depend on the distribution of environments among workers,
where this holds for the policy (`Policy.act_among`).

With several agents, each policy has its own teacher, or none, and a slot is an agent, which does not act in each step.
"""

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib.env.spaces.actions import ActionMapper, StructuredActionMapper, action_mapper
from rllib.env.spaces.batches import batch_of, rows_of
from rllib.env.spaces.row_selection import RowSelection, structured
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.distributions.base import ActionUnit
from rllib.models.observations.masks import MaskedOutputs, parts_of_mask
from rllib.policy import Policy
from rllib.sample_batch import TEACHER_ACTIONS, TEACHER_DIST_INPUTS, Column
from rllib.schedules import Schedule


@dataclass(frozen=True)
class NetworkTeacher:
    """A policy that teaches.

    Args:
        spec: description of the network.
        state: weights and filter statistics, as Policy.get_state returns them.
        observation_space: space of the observations that the teacher reads, as it stores them.
        action_space: action space of the environment.
        normalize_actions, clip_actions: as for ActionMapper.
        key: key of the environment's observations that may hold the teacher's observation as a whole; None: no key.
    """

    spec: NetworkSpec
    state: Mapping[str, np.ndarray]
    observation_space: spaces.Space
    action_space: spaces.Space
    normalize_actions: bool = True
    clip_actions: bool = False
    key: str | None = None

    def select(self, given: spaces.Space) -> RowSelection:
        """Selects the teacher's observations from the environment's; raises as RowSelection."""
        return RowSelection(given, self.observation_space, self.key)

    def mapper(self) -> ActionMapper | StructuredActionMapper:
        """The mapping of the teacher's actions to the environment's."""
        return action_mapper(self.action_space, self.spec.distribution, self.normalize_actions, self.clip_actions)

    def gives_distributions(self, student: NetworkSpec, normalize_actions: bool, clip_actions: bool) -> bool:
        """Whether the teacher's action distributions have the student's type and units."""
        distribution = self.spec.distribution
        if distribution != student.distribution or not distribution.has_log_prob:
            return False
        if distribution.choices and distribution.unit is ActionUnit.CHOICE:
            return True
        return (self.normalize_actions, self.clip_actions) == (normalize_actions, clip_actions)


@dataclass(frozen=True)
class FunctionTeacher:
    """A function that teaches.

    Args:
        function: f(observations) -> actions, both in the form of vector environments: arrays [N, ...], for Dict and
            Tuple spaces a dict or tuple of arrays.
    """

    function: Callable[[Any], Any]


@dataclass(frozen=True)
class TeacherSettings:
    """Settings of a policy's teacher in a worker.

    Args:
        teachers: name -> teacher.
        choose: function of a single observation that returns the name of its teacher; None: there is one teacher.
        deterministic: whether labels are the most probable actions; False: actions drawn from the distribution.
        beta: probability, over the run's environment steps, that an environment gets the teacher's action.
        has_distribution: whether labels include teacher_dist_inputs, which every teacher then provides.
        observation_space: space of one agent's observations from the environment; teachers read all or a part of them.
    """

    teachers: Mapping[str, NetworkTeacher | FunctionTeacher]
    choose: Callable[[Any], str] | None
    deterministic: bool
    beta: Schedule
    has_distribution: bool
    observation_space: spaces.Space

    def columns(self, policy: Policy) -> tuple[Column, ...]:
        """The columns that labels are written to."""
        columns = (Column(TEACHER_ACTIONS, policy.action_shape, str(policy.action_dtype)),)
        if self.has_distribution:
            columns += (Column(TEACHER_DIST_INPUTS, (policy.num_dist_inputs,)),)
        return columns


class LaneTeacher:
    """The teacher of a lane's policy.

    Args:
        settings: the teacher's settings.
        policy: the student.
        mapper: converts the student's actions to the environment's.
        rngs: random stream of each slot.
        describe: function of a slot that returns its description for error messages.
    """

    def __init__(
        self,
        settings: TeacherSettings,
        policy: Policy,
        mapper: ActionMapper | StructuredActionMapper,
        rngs: Sequence[np.random.Generator],
        describe: Callable[[int], str],
    ):
        self._settings, self._student, self._rngs, self._describe = settings, policy, rngs, describe
        self._space = settings.observation_space
        # Whether each slot gets the teacher's action in each prepared step, bool [T, N]; None: none does.
        self._takes: np.ndarray | None = None
        kinds = {NetworkTeacher: _AskedNetwork, FunctionTeacher: _AskedFunction}
        self._asked = {
            name: kinds[type(teacher)](teacher, settings, policy, mapper, len(rngs))
            for name, teacher in settings.teachers.items()
        }

    def act_among(self, total: int, rows: slice) -> None:
        """As Policy.act_among, for each teacher."""
        for asked in self._asked.values():
            asked.act_among(total, rows)

    def begin(self, steps: np.ndarray, active: Sequence[bool] | None = None) -> None:
        """Draws the random numbers of the next steps.

        Args:
            steps: int64 [T], environment steps of the run at each step.
            active: whether each slot may act in these steps; None: all may. Nothing is drawn for other slots.
        """
        drawing = range(len(self._rngs)) if active is None else np.flatnonzero(active).tolist()
        self._takes = self._drawn_turns(steps, drawing)
        for asked in self._asked.values():
            asked.begin(len(steps), self._rngs, drawing)

    def teach(
        self,
        step: int,
        given: np.ndarray,
        seen: np.ndarray,
        actions: np.ndarray,
        labels: np.ndarray,
        inputs: np.ndarray | None,
        acting: np.ndarray | None = None,
    ) -> None:
        """Writes the labels of a step, and replaces the student's actions where the teacher acts (`beta`).

        Args:
            step: number of the step since `begin`.
            given: [N, ...], observations from the environments.
            seen: [N, ...], the student's observations made of these.
            actions: [N, *action], the student's actions; changed in place.
            labels, inputs: rows of the columns, which are written; `inputs` is None if there is no such column.
            acting: slots that act, int64; None: all. Values written for other slots are finite and meaningless.
        """
        try:
            self._label(step, given, seen, labels, inputs, acting)
        except Exception as error:
            first = 0 if acting is None else acting[0]
            error.add_note(f"The first of these observations is that of {self._describe(int(first))}.")
            raise
        if self._takes is None:
            return
        takes = self._takes[step]
        if acting is not None:
            takes = acting[takes[acting]]
        actions[takes] = labels[takes]

    def acting(
        self,
        act: Callable[..., None],
        fragment: Fragment,
        given: Sequence[np.ndarray],
        steps: np.ndarray,
        active: Sequence[bool] | None,
    ) -> Callable[..., None]:
        """Wraps `act` so that it also calls `teach`; the result is called once for each of the next steps.

        Args:
            act: chooses the student's actions: Explorer.act.
            fragment: its columns are written.
            given: observations from the environments, [N, ...] for each step.
            steps, active: as for `begin`.
        """
        self.begin(steps, active)
        labels, inputs = self.columns_of(fragment)
        count = itertools.count()

        def taught(observations, noise, dist_inputs, actions, *rest) -> None:
            act(observations, noise, dist_inputs, actions, *rest)
            t = next(count)
            self.teach(t, given[t], observations, actions, labels[t], None if inputs is None else inputs[t])

        return taught

    def columns_of(self, fragment: Fragment) -> tuple[np.ndarray, np.ndarray | None]:
        """The columns of a fragment that labels are written to."""
        return fragment[TEACHER_ACTIONS], fragment[TEACHER_DIST_INPUTS] if self._settings.has_distribution else None

    def choose(self, given: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """The teacher's action in each environment, in units of the student's actions [N, *action].

        Args:
            given: [N, ...], observations from the environments.
            seen: [N, ...], the student's observations made of these.
        """
        labels = np.empty((len(self._rngs), *self._student.action_shape), self._student.action_dtype)
        for asked in self._asked.values():
            asked.begin(1, self._rngs, range(len(self._rngs)))
        self._label(0, given, seen, labels, None, None)
        return labels

    def _drawn_turns(self, steps: np.ndarray, drawing: Iterable[int]) -> np.ndarray | None:
        """Whether each environment gets the teacher's action in each step, bool [T, N]; None: none does."""
        beta = np.array([self._settings.beta(step) for step in steps.tolist()])
        if not beta.any():
            return None
        takes = np.zeros((len(steps), len(self._rngs)), bool)
        for i in drawing:
            takes[:, i] = self._rngs[i].random(len(steps)) < beta
        return takes

    def _label(
        self,
        t: int,
        given: np.ndarray,
        seen: np.ndarray,
        labels: np.ndarray,
        inputs: np.ndarray | None,
        acting: np.ndarray | None,
    ) -> None:
        """Writes the labels of one step; arguments as for `teach`."""
        mask = self._student.spec.encoder.mask(seen) if self._student.is_masked else None
        if self._settings.choose is None:
            (asked,) = self._asked.values()
            asked.label(t, given, mask, labels, inputs, acting)
            return
        rows = np.arange(len(labels)) if acting is None else acting
        labels[:] = 0
        if inputs is not None:
            inputs[:] = 0
        names = self._chosen(given[rows])
        for name, asked in self._asked.items():
            own, of_own = np.empty_like(labels), None if inputs is None else np.empty_like(inputs)
            asked.label(t, given, mask, own, of_own, acting)
            counts = rows[[chosen == name for chosen in names]]
            labels[counts] = own[counts]
            if inputs is not None:
                inputs[counts] = of_own[counts]

    def _chosen(self, given: np.ndarray) -> list[Hashable]:
        """Name of the teacher of each of these observations."""
        try:
            names = [self._settings.choose(each) for each in rows_of(self._space, structured(self._space, given))]
        except Exception as error:
            error.add_note("teacher_mapping_fn was asked for the name of an observation's teacher")
            raise
        unknown = [name for name in names if not isinstance(name, Hashable) or name not in self._asked]
        if unknown:
            raise ValueError(
                f"teacher_mapping_fn returned {unknown[0]!r:.80}, but there are the teachers "
                f"{', '.join(map(repr, self._asked))}. Return one of these names for the one observation given."
            )
        return names

    def episodes_ended(self, slots: Any) -> None:
        """Resets these slots, in which new episodes begin with the next action."""
        for asked in self._asked.values():
            asked.forget(slots)

    def widen(self, other: "LaneTeacher", slots: np.ndarray) -> None:
        """Continues the running episodes of a lane of the same policy; `slots`: new slot for each of its slots."""
        for name, asked in self._asked.items():
            asked.widen(other._asked[name], slots)

    def start_over(self) -> None:
        """Resets all slots, after the running episodes were dropped."""
        self.episodes_ended(slice(None))

    def check(self, fragment: Fragment) -> None:
        """Raises a ValueError for a label that the student cannot learn: not finite, or an illegal action."""
        labels = fragment[TEACHER_ACTIONS]
        valid = np.ones(labels.shape[:2], bool) if fragment.valid is None else fragment.valid
        bad = np.zeros_like(valid) if labels.dtype.kind == "i" else ~np.isfinite(_flat(labels)).all(-1)
        what = "is not finite"
        if self._student.is_masked and not (bad & valid).any():
            seen = fragment.observations[: fragment.num_steps]
            masks = self._student.spec.encoder.mask(seen.reshape(-1, seen.shape[-1])).reshape(*valid.shape, -1)
            bad, what = _is_illegal(masks, _flat(labels), self._student.distribution), "is illegal there"
        if (bad := bad & valid).any():
            t, i = np.argwhere(bad)[0]
            raise ValueError(
                f"the teacher's action {labels[t, i]} for {self._describe(i)} at step {t} of the fragment {what}. A "
                "teacher has to return actions that the environment takes."
            )


def _flat(labels: np.ndarray) -> np.ndarray:
    return labels.reshape(*labels.shape[:2], -1)


def _is_illegal(masks: np.ndarray, labels: np.ndarray, distribution) -> np.ndarray:
    """Whether each action [T, N, parts] has a part that its mask [T, N, choices] forbids."""
    bad = np.zeros(labels.shape[:2], bool)
    for index, (columns, _) in enumerate(parts_of_mask(distribution)):
        part, chosen = masks[..., columns], labels[..., index].astype(np.int64)
        is_legal = np.take_along_axis(part, chosen[..., None], -1)[..., 0] != 0
        bad |= ~is_legal & part.any(-1)
    return bad


class _AskedNetwork:
    """A NetworkTeacher that is asked in each step; arguments as for LaneTeacher."""

    def __init__(self, teacher: NetworkTeacher, settings: TeacherSettings, student: Policy, mapper, count: int):
        self._policy = policy = Policy(teacher.spec)
        policy.set_state(dict(teacher.state))
        policy.silence()
        self._select = teacher.select(settings.observation_space)
        self._deterministic = settings.deterministic
        # Actions in the student's units are labels without conversion.
        self._mapper = None if settings.has_distribution else teacher.mapper()
        self._student_mapper = mapper
        self._masks = MaskedOutputs(policy.distribution) if student.is_masked and not policy.is_masked else None
        self._noise = np.zeros_like(policy.distribution.noise(np.random.default_rng(0), count))
        self._drawn: np.ndarray | None = None
        self._actions = np.empty((count, *policy.action_shape), policy.action_dtype)
        self._inputs = np.empty((count, policy.num_dist_inputs), np.float32)
        self._states = np.zeros((2, count, policy.state_size), np.float32)

    def act_among(self, total: int, rows: slice) -> None:
        self._policy.act_among(total, rows)

    def begin(self, num_steps: int, rngs: Sequence[np.random.Generator], drawing: Iterable[int]) -> None:
        """Draws the random numbers of the next steps."""
        if self._deterministic:
            return
        self._drawn = np.zeros((num_steps, *self._noise.shape), self._noise.dtype)
        for i in drawing:
            self._drawn[:, i] = self._policy.distribution.noise(rngs[i], num_steps)

    def label(
        self,
        t: int,
        given: np.ndarray,
        mask: np.ndarray | None,
        labels: np.ndarray,
        inputs: np.ndarray | None,
        acting: np.ndarray | None,
    ) -> None:
        """Writes actions, and distribution inputs where they are asked for, of step t; see LaneTeacher.teach.

        The network is computed for all slots, so that the bits of one do not depend on which others act.
        """
        policy, noise = self._policy, self._noise if self._drawn is None else self._drawn[t]
        rows = policy.filter(self._select(given)) if policy.filters_observations else self._select(given)
        memory = (None, self._states[0], self._states[1]) if policy.state_size else ()
        policy.act(rows, noise, self._inputs, self._actions, *memory)
        if policy.state_size:
            moved = slice(None) if acting is None else acting
            self._states[0, moved] = self._states[1, moved]
        if self._masks is not None:
            self._masks.write(self._inputs, self._masks.illegal(mask))
            policy.distribution.sample(self._inputs, noise, self._actions)
        if inputs is not None:
            inputs[:] = self._inputs
        actions = self._actions
        if self._mapper is not None:
            actions = self._student_mapper.to_policy(self._mapper.to_env(actions))
        labels[:] = np.reshape(actions, labels.shape)

    def forget(self, slots: Any) -> None:
        self._states[0, slots] = 0

    def widen(self, other: "_AskedNetwork", slots: np.ndarray) -> None:
        self._states[0, slots] = other._states[0]


class _AskedFunction:
    """A FunctionTeacher that is asked in each step."""

    def __init__(self, teacher: FunctionTeacher, settings: TeacherSettings, student: Policy, mapper, count: int):
        self._function, self._space, self._student_mapper = teacher.function, settings.observation_space, mapper

    def act_among(self, total: int, rows: slice) -> None:
        """Does nothing: a function computes what it is given."""

    def begin(self, num_steps: int, rngs: Sequence[np.random.Generator], drawing: Iterable[int]) -> None:
        """Draws nothing."""

    def label(
        self,
        t: int,
        given: np.ndarray,
        mask: np.ndarray | None,
        labels: np.ndarray,
        inputs: np.ndarray | None,
        acting: np.ndarray | None,
    ) -> None:
        # Slots that do not act may hold values that are no observations.
        asked = given.copy() if acting is None else given[acting]
        try:
            answer = _in_arrays(self._function(structured(self._space, asked)))
        except Exception as error:
            error.add_note(f"The teacher, a function, was asked for {len(asked)} actions. {self._what_it_gets}")
            raise
        actions = self._student_mapper.to_policy(self._checked(answer, len(asked)))
        # Values beyond a bound are clipped for the environment, so a student need not learn them.
        written = slice(None) if acting is None else acting
        labels[:] = 0
        labels[written] = np.reshape(self._student_mapper.clipped(actions), (len(asked), *labels.shape[1:]))

    @property
    def _what_it_gets(self) -> str:
        form = "a tuple of arrays" if isinstance(self._space, spaces.Tuple) else "an array"
        if isinstance(self._space, spaces.Dict):
            form = f"a dict of arrays ({', '.join(map(repr, self._space))})"
        return f"It gets {form} of numpy, whose first axis is that of the observations."

    def _checked(self, answer: Any, count: int) -> Any:
        """The answer as a batch of `count` actions of the action space.

        Raises:
            ValueError: if it is none.
        """
        space = self._student_mapper.space
        try:
            if isinstance(space, spaces.Dict | spaces.Tuple):
                batch = batch_of(space, list(answer)) if isinstance(answer, list) else answer
                rows = rows_of(space, batch)
            else:
                rows = batch = np.asarray(answer)
                rows = rows if rows.shape == (count, *space.shape) else None
            if rows is not None and len(rows) == count and _are_actions(space, rows):
                return batch
        except (ValueError, TypeError, KeyError):  # of another form
            pass
        raise ValueError(
            f"the teacher is a function of {count} observations, and must return as many actions of {space}, but "
            f"returned {answer!r:.200}. {self._what_it_gets}{_hint(answer)}"
        )

    def forget(self, slots: Any) -> None:
        """Does nothing: a function remembers nothing."""

    def widen(self, other: "_AskedFunction", slots: np.ndarray) -> None:
        """Does nothing: a function remembers nothing."""


def _in_arrays(answer: Any) -> Any:
    """The answer of a function, with arrays in place of torch's tensors."""
    if hasattr(answer, "detach"):
        return answer.detach().cpu().numpy()
    if isinstance(answer, Mapping):
        return {key: _in_arrays(part) for key, part in answer.items()}
    return tuple(map(_in_arrays, answer)) if isinstance(answer, tuple) else answer


def _hint(answer: Any) -> str:
    """What to do about answers that other libraries' policies give, a sentence; empty for others."""
    if isinstance(answer, tuple) and len(answer) == 2:
        return " Of a predict() that returns (actions, state), take the first: lambda seen: predict(seen)[0]."
    return ""


def _are_actions(space: spaces.Space, rows: Sequence) -> bool:
    """Whether all are real numbers, and choices those of the space. Other numbers are clipped at its bounds."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return all(_are_actions(part, [row[key] for row in rows]) for key, part in inner)
    given = [np.asarray(row) for row in rows]
    if any(row.dtype.kind not in "biuf" for row in given):
        return False
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        return True
    with np.errstate(invalid="ignore"):  # NaN is no choice, which the comparison finds
        cast = [row.astype(space.dtype) for row in given]
    return all(np.array_equal(own, row) and space.contains(own) for own, row in zip(cast, given))
