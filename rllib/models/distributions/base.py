"""Base class of the descriptions of action distributions, and the units of the actions that they draw."""

import functools
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, ClassVar

import numpy as np

from rllib.storage.json_dataclass import Described


class ActionUnit(Enum):
    """Unit of the actions that a distribution draws, and in which batches and replays store them.

    | unit        | stored                                     | read by critics                |
    |-------------|--------------------------------------------|--------------------------------|
    | CHOICE      | int64, counted from 0                      | the same                       |
    | NUMBER      | float32; where actions are normalised,     | the same                       |
    |             | [-1, 1] spans the bounds                   |                                |
    | BEFORE_TANH | float32 u                                  | tanh(u); (-1, 1) spans the bounds |
    """

    CHOICE = "choice"
    NUMBER = "number"
    BEFORE_TANH = "before_tanh"

    def read(self, stored):
        """Stored actions, array or tensor, as critics read them."""
        if self is not ActionUnit.BEFORE_TANH:
            return stored
        return np.tanh(stored) if isinstance(stored, np.ndarray) else stored.tanh()

    def stored(self, read: np.ndarray) -> np.ndarray:
        """The inverse of `read`; actions at a bound, which would be infinite before tanh, are moved off it."""
        if self is not ActionUnit.BEFORE_TANH:
            return read
        limit = np.float32(1 - np.finfo(np.float32).eps)
        return np.arctanh(np.clip(read, -limit, limit))


class Draw:
    """Actions that a continuous distribution has drawn with given noise. It unpacks to (actions, log_prob).

    Attributes:
        actions: [B, size] as critics read them.
    """

    actions: Any

    @functools.cached_property
    def log_prob(self):
        """Log-density of the actions as critics read them, [B], computed when asked for; None of deterministic ones."""
        return None

    def gradient(self, d_actions: np.ndarray, d_log_prob: float = 0.0) -> np.ndarray:
        """Gradient with respect to the distribution's inputs, [B, num_inputs]; of arrays, tensors have autograd.

        Args:
            d_actions: gradient with respect to the actions, [B, size].
            d_log_prob: weight of every row's log-probability.
        """
        raise NotImplementedError

    def __iter__(self) -> Iterator:
        yield self.actions
        yield self.log_prob


class Distribution(Described):
    """What a network's outputs mean for the choice of an action; the methods are in distributions/standard.py.

    Attributes:
        action_dtype: dtype of stored actions.
        spans_bounds: tanh keeps actions, or their mean, in [-1, 1], which spans the bounds of a Box whatever
            normalize_actions says: other actions are beyond the policy's reach.
        closed_form: the distributions of a batch have a `gradient` in numpy.
        num_atoms: outputs for each choice; more than 1 for distributions of returns.
        size: components of a continuous action; 0 for others.
        log_prob_of: (inputs [B, num_inputs], actions [B, size]) -> log-probabilities of actions in [-1, 1], of
            distributions that are squashed; None: of others.
        choices: columns (start, stop) of the inputs with the choices of each part of an action, () for numbers; None:
            they are not known, as of the user's distributions.
        user_class: the user's class that evaluates it; None: it is the library's.
    """

    action_dtype: np.dtype
    spans_bounds: ClassVar[bool] = False
    closed_form: ClassVar[bool] = True
    num_atoms = 1
    size = 0
    log_prob_of: ClassVar[Callable | None] = None
    choices: tuple[tuple[int, int], ...] | None = None
    user_class: Callable | None = None

    @property
    def unit(self) -> ActionUnit:
        """Unit of stored actions."""
        return ActionUnit.NUMBER if self.action_dtype.kind == "f" else ActionUnit.CHOICE

    def for_critics(self, stored):
        """Stored actions [B, *action_shape], array or tensor, as critics read them: [B, size] numbers, or choices."""
        return self.unit.read(stored.reshape(len(stored), self.size) if self.size else stored)

    def draw(self, inputs: np.ndarray, noise: np.ndarray | None) -> Draw:
        """Draws actions that have a gradient with respect to the inputs.

        Args:
            inputs: float32 [B, num_inputs], of the network.
            noise: float32 [B, size]: standard normal numbers; of deterministic actions summands, or None.

        Raises:
            TypeError: for a distribution that is not continuous, or of the user's.
        """
        raise self._draws_nothing()

    def torch_draw(self, inputs, noise) -> Draw:
        """As `draw`, for tensors and autograd."""
        raise self._draws_nothing()

    def _draws_nothing(self) -> TypeError:
        return TypeError(
            f"actions of {type(self).__name__} have no gradient: only continuous distributions of the library draw "
            "them for critics. For choices take the mean over the probabilities of `at(inputs)`."
        )
