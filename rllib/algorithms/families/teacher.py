"""The teacher of a policy in training: a part that its trainee owns.

It is loaded once, and sent to each worker when that is made; workers ask it with every step (evaluation/teacher.py).
Here its labels become a term of the loss (losses/distillation.py). A checkpoint has the student, the setting `teacher`,
and a digest of what the teacher computes, by which a run does not continue with another one unnoticed.
"""

import hashlib
import importlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space, spaces

from rllib.acting.inference import Acting, inference_of
from rllib.algorithms.base import wiring
from rllib.config.conflicts import Mistake, Remedy, Unfit
from rllib.env.factories.previous_steps import ACTIONS, REWARDS, SETTINGS
from rllib.evaluation.teacher import FunctionTeacher, NetworkTeacher, TeacherSettings
from rllib.losses.distillation import OF_DISTRIBUTIONS, WEIGHT, DistillationTerm, TaughtLoss
from rllib.losses.loss import Loss, LossOverModules
from rllib.models.architectures import description_of
from rllib.models.observations.flat_spaces import parts
from rllib.policies import of_only_policy
from rllib.policy import Policy
from rllib.storage.checkpoint import CheckpointError
from rllib.storage.local_path import expanded, of_script

if TYPE_CHECKING:
    from rllib.algorithms.base.trainee import Trainee

FORMS = (
    "the path of a run or of a checkpoint, what load_policy returns, or a function of observations that returns actions"
)
_DIGEST, _RETURN = "digest", "return_mean"
# Names of rules. Those of the library alone: names come from files and checkpoints, which run no other code.
_RULE = re.compile(r"rllib\.env\.tasks\.\w+:[a-z]\w*")
# Name of a teacher that is the only one.
_ONLY = ""


@dataclass(frozen=True)
class Unasked:
    """In place of a teacher, for an algorithm that acts and does not learn: nothing is loaded."""


def is_teacher(given: Any) -> bool:
    """Whether a value of the setting `teacher` has one of FORMS, or represents one."""
    is_function = callable(given) and not isinstance(given, type)
    return is_function or isinstance(given, str | os.PathLike | Policy | Acting | Unasked)


class Teacher:
    """The teacher of a policy in training, or its teachers.

    Args:
        trainee: trainee of the policy; its learner is not made yet.

    Attributes:
        settings: what workers ask it by.

    Raises:
        Unfit: (a ValueError) if it does not fit the policy or the environment, or cannot be asked there.
        CheckpointError: (a ValueError) if there is no such checkpoint.
    """

    def __init__(self, trainee: "Trainee"):
        self._trainee, self._config, self._run = trainee, trainee.config, trainee.algorithm.config
        # Of the episodes that it has played; None: it has played none.
        self._return_mean: float | None = None
        self._refuse_world()
        config, algorithm, student = self._config, trainee.algorithm, trainee.policy
        given = config.teacher if isinstance(config.teacher, Mapping) else {_ONLY: config.teacher}
        teachers = {name: self._loaded(name, each) for name, each in given.items()}
        space = wiring.space_of_teacher(algorithm, trainee.policy_id)
        for name, teacher in teachers.items():
            if isinstance(teacher, NetworkTeacher):
                self._refuse_spaces(name, teacher, space)
        how = student.spec, self._run.normalize_actions, self._run.clip_actions
        has_distribution = all(
            isinstance(each, NetworkTeacher) and each.gives_distributions(*how) for each in teachers.values()
        )
        self._refuse_kind(has_distribution)
        self.settings = TeacherSettings(
            teachers,
            config.teacher_mapping_fn if isinstance(config.teacher, Mapping) else None,
            config.teacher_deterministic,
            config.get_schedule("beta"),
            has_distribution,
            space,
        )

    # ------------------------------------------------------------------ what does not fit

    def _mistake(self, problem: str, advice: str, *remedies: Remedy) -> Unfit:
        names = tuple(dict.fromkeys(["teacher", *(name for remedy in remedies for name in remedy)]))
        return Unfit.of(Mistake(problem, names, (*remedies, *self._config.without_teacher), advice))

    def _wrong_world(self, problem: str, advice: str) -> Unfit:
        """The mistake of an environment in which no teacher is asked."""
        without = self._config.without_teacher
        return Unfit.of(Mistake(problem, ("teacher", "env") if without else ("env",), without, advice))

    @property
    def _student(self) -> str:
        """The policy, in words."""
        has_several = self._trainee.algorithm.agents is not None
        return f"the policy {self._trainee.policy_id!r}" if has_several else "the policy"

    def _refuse_world(self) -> None:
        """Refuses environments in which no teacher is asked."""
        algorithm = self._trainee.algorithm
        if algorithm.agents is not None and self._run.evaluate_teacher:
            raise Unfit(
                "evaluate_teacher=True plays episodes with the teacher alone, but several agents act in this "
                "environment.",
                "Use .evaluation(evaluate_teacher=False).",
                {"evaluate_teacher": False},
            )
        if algorithm._is_external:
            raise self._wrong_world(
                "a teacher is asked where the library steps the environment, and this one drives its own loop.",
                "Leave the teacher out, or let the loop log the teacher's actions (log_action).",
            )
        if algorithm.rollout_device is not None:
            raise self._mistake(
                "a teacher is asked in observations that are arrays, and rollouts are tensors.",
                "Use .rollouts(tensor_rollouts=False).",
                {"tensor_rollouts": False},
            )

    def _refuse_spaces(self, name: str, teacher: NetworkTeacher, space: Space) -> None:
        """Refuses a teacher of other actions, or of observations that the environment does not give."""
        own = self._trainee.policy.action_space
        if teacher.action_space != own:
            raise self._mistake(
                f"teacher{_of(name)} has the action space {teacher.action_space}, and {self._student} {own}.",
                "Give a teacher with the same actions.",
            )
        try:
            teacher.select(space)
        except ValueError as error:
            advice = (
                "Let the environment give what both read, and name in .environment(teacher_observation_keys=[...]) "
                "what the teacher alone does."
            )
            own = teacher.observation_space
            if isinstance(own, spaces.Dict) and {ACTIONS, REWARDS} & own.keys():
                advice = f"It reads its previous step, which is there if the policy's model does, too: {SETTINGS}."
            of_agents = "" if self._trainee.algorithm.agents is None else f" for {self._student}"
            raise self._mistake(
                f"teacher{_of(name)} reads {teacher.observation_space}, and of the environment's observations"
                f"{of_agents} {error}.",
                advice,
            ) from error

    def _refuse_kind(self, has_distribution: bool) -> None:
        """Refuses a loss that the teacher's labels, or the student's actions, do not have."""
        kind, student, auto = self._config.distillation_loss, self._trainee.policy, {"distillation_loss": "auto"}
        if student.distribution.choices is None:
            given = {"model": {"custom_action_dist": None}}
            problem = "a teacher cannot be compared with a policy whose action distribution is your own."
            raise self._mistake(problem, "Leave model['custom_action_dist'] out.", given)
        if kind in OF_DISTRIBUTIONS and not has_distribution:
            raise self._mistake(
                f"distillation_loss={kind!r} compares distributions of actions, and this teacher gives actions alone: "
                "it is a function, or its actions have another distribution than the policy's.",
                'Use .training(distillation_loss="auto").',
                auto,
            )
        if kind == "huber" and student.action_dtype.kind == "i":
            raise self._mistake(
                f"distillation_loss='huber' is a distance of numbers, but the action space is {student.action_space}.",
                'Use .training(distillation_loss="auto").',
                auto,
            )

    def _loaded(self, name: str, given: Any) -> NetworkTeacher | FunctionTeacher:
        """A teacher as workers ask it."""
        if isinstance(given, str) and _RULE.fullmatch(given):
            return FunctionTeacher(self._rule(given))
        if isinstance(given, str | os.PathLike):
            # Serving stands above the algorithms, so it is named, not imported.
            load_policy = importlib.import_module("rllib.serving.loaded_policy").load_policy
            try:
                given = load_policy(of_script(expanded(given)))
            except CheckpointError as error:
                of_agents = "" if self._trainee.algorithm.agents is None else f" of {self._student}"
                raise CheckpointError(
                    f"teacher{_of(name)}={os.fspath(given)!r}{of_agents} must be {FORMS}, but "
                    f"{str(error).removesuffix('.')}. load_policy(PATH, POLICY_ID) returns one of several policies. If "
                    "the teacher has moved since a run was saved, or the path is relative to another directory, name "
                    "it when the run is restored: teacher=PATH."
                ) from error
        if isinstance(given, Acting):
            policy = of_only_policy(given.policies, "teacher", "load_policy(PATH, POLICY_ID)")
            how = inference_of(given).settings
            return self._of_policy(policy, how.normalize_actions, how.clip_actions)
        return self._of_policy(given) if isinstance(given, Policy) else FunctionTeacher(given)

    def _rule(self, name: str) -> Callable:
        """A rule of the library, by its name."""
        module, _, function = name.partition(":")
        try:
            return getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as error:
            problem = f"teacher={name!r}: {error}."
            raise self._mistake(problem, "The rules are in rllib/env/tasks/privileged.py.") from error

    def _of_policy(self, policy: Policy, normalize_actions: bool = True, clip_actions: bool = False) -> NetworkTeacher:
        spaces = policy.observation_space, policy.action_space
        if None in spaces:
            problem = "the teacher is a Policy that does not know the spaces of its environment."
            raise self._mistake(problem, "Give what rllib.load_policy(PATH) returns, or the path.")
        keys = self._run.teacher_observation_keys
        key = keys[0] if len(keys) == 1 and parts(policy.observation_space) is None else None
        return NetworkTeacher(policy.spec, policy.get_state(), *spaces, normalize_actions, clip_actions, key)

    # ------------------------------------------------------------------ updates

    def with_term(self, loss: Loss | LossOverModules) -> TaughtLoss:
        """The loss of the algorithm, with the distance from the teacher."""
        if isinstance(loss, LossOverModules):
            raise self._mistake(
                "a teacher adds to a loss of the policy's outputs, but that of this algorithm is over several modules.",
                "Use PPO.",
            )
        return TaughtLoss(loss, DistillationTerm(self._config.distillation_loss, self.settings.has_distribution))

    def loss_settings(self) -> dict[str, float]:
        """Settings of the next update's loss."""
        return self._trainee.scheduled(WEIGHT)

    def stats(self) -> dict[str, float]:
        """Statistics of an update, in addition to those of its loss."""
        stats = self._trainee.scheduled(WEIGHT, "beta")
        if not self._run.evaluate_teacher:
            return stats
        if self._return_mean is None:
            episodes = self._trainee.algorithm._play_teacher(self._trainee.policy_id)
            self._return_mean = float(np.mean([episode.episode_return for episode in episodes]))
        return {**stats, "teacher_return_mean": self._return_mean}

    # ------------------------------------------------------------------ checkpoints

    def get_state(self) -> dict[str, np.ndarray]:
        """A digest of what the teacher computes, empty where there are functions alone, and its return, if known."""
        networks = [each for each in self.settings.teachers.values() if isinstance(each, NetworkTeacher)]
        digest = hashlib.sha256()
        for teacher in networks:
            digest.update(json.dumps(description_of(teacher.spec), sort_keys=True, default=repr).encode())
            for name, array in sorted(teacher.state.items()):
                digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
        state = {_DIGEST: np.frombuffer(digest.digest() if networks else b"", np.uint8)}
        return state if self._return_mean is None else {**state, _RETURN: np.array(self._return_mean)}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes its return; `refuse_state` has compared the digest."""
        if _RETURN in state:
            self._return_mean = float(state[_RETURN])

    def refuse_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Refuses to continue with another teacher.

        Raises:
            ValueError: if the digests differ.
        """
        if not np.array_equal(state[_DIGEST], self.get_state()[_DIGEST]):
            raise ValueError(
                f"the checkpoint's policy has learned from another teacher: teacher={self._config.teacher!r:.80} has "
                "other weights, or another network"
            )


def _of(name: str) -> str:
    return f"[{name!r}]" if name else ""
