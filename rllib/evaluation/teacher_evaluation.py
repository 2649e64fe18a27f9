"""Episodes that the teacher of a policy plays, in the environments of evaluations."""

from typing import Any

import numpy as np

from rllib.env.spaces.row_selection import RowSelection
from rllib.evaluation import seeding
from rllib.evaluation.evaluator import EvaluationWorker
from rllib.evaluation.teacher import LaneTeacher


class TeacherEvaluationWorker(EvaluationWorker):
    """An EvaluationWorker in which the teacher acts; its settings are those of workers that ask it."""

    kind = "evaluation worker of the teacher"

    def _make_player(self, mapper, rng):
        own, stream, settings = self.policy_settings, self.stream, self.settings
        rngs = [
            seeding.generator(settings.seed, seeding.EVALUATION_ACTIONS, self.worker_index, 0, i)
            for i in range(stream.num_envs)
        ]
        describe = lambda i: f"environment {i} of the {self.kind}"  # noqa: E731
        teacher = LaneTeacher(own.teacher, self.policy, mapper, rngs, describe)
        return _TeacherPlayer(
            teacher, self.policy, RowSelection(stream.observation_space, own.observation_space), mapper
        )


class _TeacherPlayer:
    """Chooses actions as PolicyPlayer does, by a teacher."""

    def __init__(self, teacher: LaneTeacher, policy, select: RowSelection, mapper):
        self._teacher, self._policy, self._select, self._mapper = teacher, policy, select, mapper

    def act(self, observations: np.ndarray, acting: np.ndarray, where) -> Any:
        seen = self._select(observations)
        if self._policy.filters_observations:
            seen = self._policy.filter(seen, update=False)
        self._policy.check_masks(seen, where, acting)
        return self._mapper.to_env(self._teacher.choose(observations, seen))

    def forget(self, environments: Any) -> None:
        self._teacher.episodes_ended(environments)
