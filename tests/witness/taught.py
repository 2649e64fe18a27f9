"""A teacher of scripted episodes: its action follows from the place that an observation says, and is legal there."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib import sample_batch as sb
from rllib.env.spaces.observations import observation_column
from tests.witness.checks.steps import close
from tests.witness.forms import legal
from tests.witness.script import decoded

# How a function answers: in arrays, in tensors, or with numbers that lie beyond the bounds where they are at them.
ANSWERS = ("arrays", "tensors", "beyond")


@dataclass(frozen=True)
class Teacher:
    """The function that teaches.

    Attributes:
        form, actions: of the observations and actions (forms.py).
        is_masked: whether some actions are illegal.
        answer: one of ANSWERS.
        number: tells teachers apart, which do different things.
    """

    form: Any
    actions: Any
    is_masked: bool
    answer: str = "arrays"
    number: int = 0

    def __call__(self, observations):
        column, count = observation_column(self.form.space), _count(observations)
        rows = np.empty((count, *column.shape), column.dtype)
        column.write_batch(observations, rows)
        actions = np.stack([self.action(decoded(row)) for row in self.form.plain(rows)])
        if self.answer == "tensors":
            import torch  # takes a second to import

            return torch.as_tensor(actions).requires_grad_(actions.dtype.kind == "f")  # as networks return them
        space = self.actions.space
        if self.answer == "beyond" and not self.actions.choices:
            actions = actions + 5.0 * ((actions >= space.high).astype(np.float32) - (actions <= space.low))
        return actions

    def action(self, step):
        """The action at a step, as the environment takes it."""
        space, number = self.actions.space, sum(step) + self.number
        if not self.actions.choices:
            return (space.low + (space.high - space.low) * (number % 5) / 4).astype(np.float32)
        mask = legal(self.actions, step) if self.is_masked else np.ones(sum(self.actions.choices), np.int8)
        parts = np.split(mask, np.cumsum(self.actions.choices)[:-1])
        chosen = [np.flatnonzero(part)[(number + index) % part.sum()] for index, part in enumerate(parts)]
        return np.array(chosen, np.int64).reshape(space.shape) + space.start

    def check(self, columns, beta):
        """Checks the labels of rows, whose observations are digits and whose actions are numbers."""
        for row, seen in enumerate(columns[sb.OBS]):
            if sb.LOSS_MASK in columns and not columns[sb.LOSS_MASK][row]:
                continue
            step = decoded(seen)
            expected = self.actions.number(_of_space(self.actions.space, self.action(step)))
            stored = columns[sb.TEACHER_ACTIONS][row]
            if not self.actions.choices:
                assert (np.abs(stored) <= 1 + 1e-5).all(), f"{step}: the teacher's action {stored} is beyond the bounds"
            label = self.actions.plain(stored[None])[0]
            close(label, expected, f"{step}: the teacher's action", 1e-5)
            if beta == 1:
                close(columns[sb.ACTIONS][row], expected, f"{step}: the action, which is the teacher's", 1e-5)


def _of_space(space, action):
    return action if space.shape else int(action)


def _count(observations):
    while isinstance(observations, dict | tuple):
        observations = next(iter(observations.values())) if isinstance(observations, dict) else observations[0]
    return len(observations)
