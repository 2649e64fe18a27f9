"""Forms: spaces that carry a script's observations and actions, and the way back from what batches hold.

An observation is a row of digits (script.observation); a form gives it to the environment in its own space and finds
it again in the rows that the library stores. An action is a number (the term of a reward is ACTION_REWARD times it);
`Actions` say which number an action of the environment, and a stored one, stands for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from tests.witness.script import BASE, OBSERVATION_SIZE, decoded

SIZE = OBSERVATION_SIZE
DIGITS = Box(0.0, 1.0, (SIZE,), np.float32)


@dataclass(frozen=True)
class Form:
    """A space of observations.

    Attributes:
        space: of the environment.
        give: digits [SIZE] -> observation in the space.
        stored: digits [SIZE] -> the row that batches hold.
        plain: rows [..., *shape] of batches -> digits [..., SIZE].
        model: settings that a network needs to read it.
    """

    space: Space
    give: Callable[[np.ndarray], Any]
    stored: Callable[[np.ndarray], np.ndarray]
    plain: Callable[[np.ndarray], np.ndarray]
    model: dict | None = None


def _same(row):
    return row


def _give_dict(row):
    return {"z": row[:3], "a": {"n": row[3:7], "b": row[7:]}}


# gymnasium sorts the keys of a Dict that is made of a plain dict: a.b, a.n, z.
_ORDER = np.array([*range(7, SIZE), *range(3, 7), *range(3)])
# A part of a Tuple is one digit as a choice, which is stored one-hot.
_CHOICE = 4


def _give_tuple(row):
    return row[:_CHOICE], round(float(row[_CHOICE]) * BASE), row[_CHOICE + 1 :]


def _one_hot(digits):
    return np.eye(BASE, dtype=np.float32)[np.round(np.asarray(digits) * BASE).astype(int)]


def _stored_tuple(row):
    return np.concatenate([row[:_CHOICE], _one_hot(row[_CHOICE]), row[_CHOICE + 1 :]])


def _checked_argmax(one_hot):
    one_hot = np.asarray(one_hot, np.float64)
    assert ((one_hot == 0) | (one_hot == 1)).all() and (one_hot.sum(-1) <= 1).all(), "not one-hot"
    return one_hot.argmax(-1)  # 0 in rows that fill a sequence up, which are zeros


def _plain_tuple(rows):
    choice = _checked_argmax(rows[..., _CHOICE : _CHOICE + BASE]) / BASE
    return np.concatenate([rows[..., :_CHOICE], choice[..., None], rows[..., _CHOICE + BASE :]], -1)


def _plain_choices(rows):
    return _checked_argmax(rows.reshape(*rows.shape[:-1], SIZE, BASE)) / BASE


# An image has a digit in each of its first pixels; others are a checkerboard that must stay as it is.
_SHAPE = (6, 4, 1)
_REST = np.arange(np.prod(_SHAPE) - SIZE, dtype=np.uint8) % 2 * 255


def _pixels(row):
    return np.concatenate([np.round(row * BASE).astype(np.uint8), _REST]).reshape(_SHAPE)


def _plain_pixels(rows):
    flat = np.asarray(rows).reshape(*rows.shape[:-3], -1)
    assert flat.dtype == np.uint8, "pixels are stored as bytes"
    # Rows that fill a sequence up are zeros.
    assert ((flat[..., SIZE:] == _REST).all(-1) | (flat == 0).all(-1)).all(), "pixels of the background"
    return (flat[..., :SIZE] / BASE).astype(np.float32)


_GOAL = 2


def _give_goal(row):
    return {"observation": row[:-_GOAL], "achieved_goal": row[-_GOAL:], "desired_goal": row[:_GOAL]}


def _stored_goal(row):
    return np.concatenate([row[-_GOAL:], row[:_GOAL], row[:-_GOAL]])


def _plain_goal(rows):
    assert np.array_equal(rows[..., _GOAL : 2 * _GOAL], rows[..., 2 * _GOAL : 3 * _GOAL]), "the desired goal"
    return np.concatenate([rows[..., 2 * _GOAL :], rows[..., :_GOAL]], -1)


def _part(size):
    return Box(0.0, 1.0, (size,), np.float32)


FORMS = {
    "box": Form(DIGITS, _same, _same, _same),
    "dict": Form(
        Dict({"z": _part(3), "a": Dict({"n": _part(4), "b": _part(SIZE - 7)})}),
        _give_dict,
        lambda row: row[_ORDER],
        lambda rows: np.asarray(rows)[..., np.argsort(_ORDER)],
    ),
    "tuple": Form(
        Tuple((_part(_CHOICE), Discrete(BASE), _part(SIZE - _CHOICE - 1))), _give_tuple, _stored_tuple, _plain_tuple
    ),
    "multidiscrete": Form(
        MultiDiscrete([BASE] * SIZE, start=[7] * SIZE),
        lambda row: np.round(row * BASE).astype(np.int64) + 7,
        lambda row: _one_hot(row).ravel(),
        _plain_choices,
    ),
    "image": Form(Box(0, 255, _SHAPE, np.uint8), _pixels, _pixels, _plain_pixels, {"conv_filters": [[4, [3, 3], 2]]}),
    "goal": Form(
        Dict({"observation": _part(SIZE - _GOAL), "achieved_goal": _part(_GOAL), "desired_goal": _part(_GOAL)}),
        _give_goal,
        _stored_goal,
        _plain_goal,
    ),
}


# ---- actions


@dataclass(frozen=True)
class Actions:
    """A space of actions.

    Attributes:
        space: of the environment.
        number: an action of the environment -> the number that it stands for.
        plain: stored actions [..., *shape] -> numbers [...]; with `squashed`, stored before their tanh.
        choices: number of choices of each part; () for a Box of floats.
        bounds: least and largest number.
    """

    space: Space
    number: Callable[[Any], float]
    plain: Callable[..., np.ndarray]
    choices: tuple[int, ...] = ()
    bounds: tuple[float, float] = (0.0, 1.0)

    def log_prob(self, inputs: np.ndarray, stored: np.ndarray) -> np.ndarray:
        """Log-probabilities [...] of stored actions, in float64, from the distribution's inputs [..., K].

        K is a logit for each choice of each part; or the means of a Gaussian and the logarithms of its deviations.
        """
        inputs, total, first = np.asarray(inputs, np.float64), 0.0, 0
        if not self.choices:
            mean, log_std = np.split(inputs, 2, -1)
            errors = (np.asarray(stored, np.float64) - mean) / np.exp(log_std)
            return -(errors**2 / 2 + log_std + np.log(2 * np.pi) / 2).sum(-1)
        parts = np.asarray(stored).reshape(*inputs.shape[:-1], len(self.choices))
        for part, count in enumerate(self.choices):
            logits = inputs[..., first : first + count] - inputs[..., first : first + count].max(-1, keepdims=True)
            chosen = np.take_along_axis(logits, parts[..., part : part + 1].astype(int), -1)[..., 0]
            total, first = total + chosen - np.log(np.exp(logits).sum(-1)), first + count
        return total


_LOW, _HIGH = 2.0, 6.0


def _plain_box(stored, squashed=False):
    units = np.tanh(np.asarray(stored, np.float64)) if squashed else np.clip(np.asarray(stored, np.float64), -1, 1)
    return (_LOW + (units + 1) / 2 * (_HIGH - _LOW)).sum(-1)


def _number_in_box(action):
    action = np.asarray(action)
    assert action.shape == (2,) and (action >= _LOW).all() and (action <= _HIGH).all(), f"action {action}"
    return float(action.astype(np.float64).sum())


def _number_of(space, action, weights, start):
    assert space.contains(action), f"{action!r} is not in {space}"
    return float(((np.asarray(action) - start) * weights).sum())


def _choices(space, choices, weights, start=0):
    weights, start = np.array(weights), np.array(start)
    bounds = 0.0, float(((np.array(choices) - 1) * weights).sum())
    if len(choices) == 1:
        return Actions(
            space, partial(_number_of, space, weights=weights[0], start=start), _as_they_are, choices, bounds
        )
    plain = partial(_weighted, weights=weights)
    return Actions(space, partial(_number_of, space, weights=weights, start=start), plain, choices, bounds)


def _as_they_are(stored, squashed=False):
    return np.asarray(stored, np.float64)


def _weighted(stored, squashed=False, *, weights):
    return (np.asarray(stored) * weights).sum(-1).astype(np.float64)


ACTIONS = {
    "discrete": _choices(Discrete(2), (2,), [1]),
    "start": _choices(Discrete(3, start=5), (3,), [1], 5),
    "multidiscrete": _choices(MultiDiscrete([2, 3], start=[4, 9]), (2, 3), [1, 2], [4, 9]),
    "box": Actions(Box(_LOW, _HIGH, (2,), np.float32), _number_in_box, _plain_box, bounds=(2 * _LOW, 2 * _HIGH)),
}


# ---- masks


def legal(actions: Actions, step: tuple[int, int, int, int]) -> np.ndarray:
    """Mask of the legal choices at a step, int8 [sum of choices]: by the script, at least one of each part."""
    rng, parts = np.random.default_rng((*step, 5)), []
    for count in actions.choices:
        part = rng.random(count) < 0.5
        part[rng.integers(count)] = True
        parts.append(part)
    return np.concatenate(parts).astype(np.int8)


def masked(form: Form, actions: Actions) -> Form:
    """The form with the mask of legal choices beside it: {"action_mask": ..., "observations": ...}."""
    count = sum(actions.choices)

    def mask(row):
        return legal(actions, decoded(row))

    def stored(row):
        return np.concatenate([mask(row), np.ravel(form.stored(row))]).astype(np.float32)

    def plain(rows):
        rows = np.asarray(rows)
        digits = form.plain(rows[..., count:])
        for given, row in zip(rows[..., :count].reshape(-1, count), digits.reshape(-1, SIZE), strict=True):
            if row.any():  # a row that fills a sequence up has no mask
                assert np.array_equal(given, mask(row)), f"{decoded(row)}: mask {given}, not {mask(row)}"
        return digits

    space = Dict({"action_mask": MultiBinary(count), "observations": form.space})
    return Form(space, lambda row: {"action_mask": mask(row), "observations": form.give(row)}, stored, plain)


def is_legal(actions: Actions, step: tuple[int, int, int, int], action) -> bool:
    """Whether an action of the environment is legal at a step."""
    mask, start, first = legal(actions, step), np.ravel(actions.space.start), 0
    for part, count, low in zip(np.ravel(action), actions.choices, start, strict=True):
        if not mask[first + int(part - low)]:
            return False
        first += count
    return True
