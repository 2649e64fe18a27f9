"""Settings of algorithms whose policies may learn from a teacher, alone or in addition to the algorithm's loss."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.settings.exploration import OF_NOVELTY
from rllib.algorithms.families.teacher import FORMS, Teacher, Unasked, is_teacher
from rllib.config.config_object import relation
from rllib.config.conflicts import DEFAULT, Mistake, Unfit, conflict, needs
from rllib.config.sections import OfPolicy, at_least, between, only_with, section
from rllib.policies import own_settings_of

if TYPE_CHECKING:
    from rllib.algorithms.base.trainee import Trainee

_NO_KEYS: list = []


class TaughtConfig(AlgorithmConfig):
    """Settings of a teacher."""

    # Whether there has to be one.
    needs_teacher: ClassVar[bool] = False

    @section
    def environment(
        self,
        *,
        teacher_observation_keys: Annotated[
            list[str], "keys of a Dict observation that a teacher reads, and the policy does not"
        ] = _NO_KEYS,
    ) -> Self: ...

    @section
    def evaluation(
        self,
        *,
        evaluate_teacher: Annotated[
            bool,
            "play evaluation_duration episodes with the teacher, once: results have teacher_return_mean",
            only_with("teacher"),
        ] = False,
    ) -> Self: ...

    @section
    def training(
        self,
        *,
        teacher: Annotated[
            Any,
            "what the policy learns from: a run, a checkpoint, a loaded policy, or f(observations) -> actions; or "
            "{name: teacher}",
            OfPolicy,
        ] = None,
        teacher_mapping_fn: Annotated[
            Any, "f(observation) -> name of the teacher that counts, where there are several", OfPolicy
        ] = None,
        teacher_deterministic: Annotated[
            bool, "learn the teacher's most probable actions; False: drawn ones", only_with("teacher"), OfPolicy
        ] = True,
        beta: Annotated[
            float | list,
            "probability, in each step of each environment, that it gets the teacher's action, or a schedule",
            between(0, 1),
            only_with("teacher"),
            OfPolicy,
        ] = 0.0,
        distillation_loss: Annotated[
            Literal["auto", "kl", "reverse_kl", "log_prob", "huber"],
            "distance from the teacher; auto: cross entropy of choices, squared error of means",
            only_with("teacher"),
            OfPolicy,
        ] = "auto",
        teacher_coeff: Annotated[
            float | list,
            "weight of this distance in the loss, or a schedule",
            at_least(0),
            only_with("teacher"),
            OfPolicy,
        ] = 0.0,
    ) -> Self: ...

    conflicts = (
        needs(
            "teacher",
            "teacher_coeff",
            "beta",
            why="else it neither teaches nor acts",
            remedies=[{"teacher_coeff": 1.0}],
        ),
        conflict(
            "teacher",
            "input_",
            when=lambda config: config.asks_teacher and config.has_data,
            why="it is asked in the observations that the policy comes to, and recorded steps are those of others",
            remedies=[{"input_": DEFAULT}],
        ),
        conflict(
            "teacher",
            "exploration_config",
            # Of all policies or of none, so that a policy's own teacher is a matter of the run.
            when=lambda config: config._has_teachers and config.exploration_config.get("type") in OF_NOVELTY,
            why="what is new leads away from what a teacher does, and both report a distillation_loss",
            remedies=[{"exploration_config": DEFAULT}],
        ),
        conflict(
            "teacher_observation_keys",
            "output",
            why="recorded steps would have what the policy does not read",
        ),
    )

    @relation("teacher", "policies")
    def _check_presence(self) -> Mistake | None:
        """Where an algorithm learns from a teacher alone, there is a `teacher`; `policies` may have their own."""
        if self.teacher is not None or not self.needs_teacher or self.is_multi_agent:
            return None
        return Mistake(
            f"{self.algorithm_name} learns from a teacher, and there is none.",
            ("teacher",),
            advice=f'Use .training(teacher="results/TEACHER"): {FORMS}.',
        )

    @relation("teacher", "teacher_mapping_fn")
    def _check_teacher(self) -> Mistake | None:
        """`teacher` is a path, a policy, or a function; of several, `teacher_mapping_fn` chooses one."""
        several = self.teacher if isinstance(self.teacher, dict) else {}
        teachers = several.values() if isinstance(self.teacher, dict) else [self.teacher]
        if self.teacher is not None and not (teachers and all(map(is_teacher, teachers))):
            problem = f"teacher={self.teacher!r:.80} must be {FORMS}, or a dict of names and these."
            return Mistake(problem, ("teacher",), self.without_teacher, 'Use .training(teacher="results/TEACHER").')
        if not several and self.teacher_mapping_fn is not None:
            return Mistake(
                f"teacher_mapping_fn chooses among several teachers, but teacher={self.teacher!r:.80}.",
                ("teacher_mapping_fn", "teacher"),
                ({"teacher_mapping_fn": None},),
                examples=({"teacher": {"NAME": "PATH"}},),
            )
        if several and self.teacher_mapping_fn is not None and not callable(self.teacher_mapping_fn):
            return Mistake(
                f"teacher_mapping_fn={self.teacher_mapping_fn!r:.80} must be a function that returns a teacher's name "
                "for an observation.",
                ("teacher_mapping_fn", "teacher"),
                ({"teacher": next(iter(several.values())), "teacher_mapping_fn": None},),
                examples=({"teacher_mapping_fn": "FUNCTION"},),
            )
        if several and self.teacher_mapping_fn is None:
            return Mistake(
                f"teacher={{{', '.join(map(repr, several))}: ...}} has names, and nothing chooses among them.",
                ("teacher", "teacher_mapping_fn"),
                ({"teacher": next(iter(several.values()))},),
                examples=({"teacher_mapping_fn": "FUNCTION"},),
            )
        return None

    @relation("teacher_observation_keys", "critic_observation_keys")
    def _check_keys_of_both(self) -> Mistake | None:
        """Keys that the critic reads reach a teacher as well, and are not in `teacher_observation_keys`."""
        both = [key for key in self.teacher_observation_keys if key in self.critic_observation_keys]
        if not both:
            return None
        alone = [key for key in self.teacher_observation_keys if key not in both]
        return Mistake(
            f"teacher_observation_keys={self.teacher_observation_keys!r} are keys that a teacher alone reads, but "
            f"{' and '.join(map(repr, both))} are among critic_observation_keys, which a teacher reads as well.",
            ("teacher_observation_keys", "critic_observation_keys"),
            ({"teacher_observation_keys": alone},),
        )

    @property
    def without_teacher(self) -> tuple[dict[str, None], ...]:
        """Remedies that leave the teacher out; none where the algorithm needs one."""
        return () if self.needs_teacher else ({"teacher": None},)

    @property
    def asks_teacher(self) -> bool:
        return self.teacher is not None and not self.leaves_teachers_alone

    @property
    def _has_teachers(self) -> bool:
        """Whether there is a teacher, of the run or of a policy."""
        specs = self.policies.values() if isinstance(self.policies, Mapping) else ()
        has_own = any(own_settings_of(spec).get("teacher") is not None for spec in specs)
        return not self.leaves_teachers_alone and (has_own or self.teacher is not None)

    @property
    def leaves_teachers_alone(self) -> bool:
        return isinstance(self.teacher, Unasked)

    def make_teacher(self, trainee: "Trainee") -> Teacher | None:
        if trainee.algorithm.config.leaves_teachers_alone:  # those that are a policy's own, too
            return None
        if self.teacher is None and self.needs_teacher:
            policy_id = trainee.policy_id
            raise Unfit.of(
                Mistake(
                    f"{self.algorithm_name} learns from a teacher, and the policy {policy_id!r} has none.",
                    ("teacher", "policies"),
                    advice=f"Give it one, .multi_agent(policies={{{policy_id!r}: {{'teacher': "
                    '"results/TEACHER"}}), give the run one for all policies, or leave it out of policies_to_train.',
                )
            )
        return Teacher(trainee) if self.asks_teacher else None
