"""A teacher of scripted episodes: its action follows from the place that an observation says, and is legal there."""

import numpy as np

from rllib import sample_batch as sb
from rllib.env.spaces.observations import observation_column
from tests.witness.checks.steps import close
from tests.witness.forms import legal
from tests.witness.script import decoded


class Teacher:
    """The function that teaches.

    Args:
        form, actions: of the observations and actions (forms.py).
        is_masked: whether some actions are illegal.
    """

    def __init__(self, form, actions, is_masked):
        self._form, self._actions, self._is_masked = form, actions, is_masked

    def __call__(self, observations):
        column, count = observation_column(self._form.space), _count(observations)
        rows = np.empty((count, *column.shape), column.dtype)
        column.write_batch(observations, rows)
        return np.stack([self.action(decoded(row)) for row in self._form.plain(rows)])

    def action(self, step):
        """The action at a step, as the environment takes it."""
        space, number = self._actions.space, sum(step)
        if not self._actions.choices:
            return (space.low + (space.high - space.low) * (number % 5) / 4).astype(np.float32)
        mask = legal(self._actions, step) if self._is_masked else np.ones(sum(self._actions.choices), np.int8)
        parts = np.split(mask, np.cumsum(self._actions.choices)[:-1])
        chosen = [np.flatnonzero(part)[(number + index) % part.sum()] for index, part in enumerate(parts)]
        return np.array(chosen, np.int64).reshape(space.shape) + space.start

    def check(self, columns, beta):
        """Checks the labels of rows, whose observations are digits and whose actions are numbers."""
        for row, seen in enumerate(columns[sb.OBS]):
            if sb.LOSS_MASK in columns and not columns[sb.LOSS_MASK][row]:
                continue
            step = decoded(seen)
            expected = self._actions.number(_of_space(self._actions.space, self.action(step)))
            label = self._actions.plain(columns[sb.TEACHER_ACTIONS][row][None])[0]
            close(label, expected, f"{step}: the teacher's action", 1e-5)
            if beta == 1:
                close(columns[sb.ACTIONS][row], expected, f"{step}: the action, which is the teacher's", 1e-5)


def _of_space(space, action):
    return action if space.shape else int(action)


def _count(observations):
    while isinstance(observations, dict | tuple):
        observations = next(iter(observations.values())) if isinstance(observations, dict) else observations[0]
    return len(observations)
