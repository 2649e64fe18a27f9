"""Base class of the descriptions of action distributions."""

from collections.abc import Callable
from typing import ClassVar

from rllib.storage.json_dataclass import Described


class Distribution(Described):
    """What a network's outputs mean for the choice of an action; the methods are in distributions/standard.py.

    Attributes:
        squashed: actions are stored before tanh, which maps them into the bounds.
        spans_bounds: tanh keeps actions, or their mean, in [-1, 1], which spans the bounds of a Box whatever
            normalize_actions says: other actions are beyond the policy's reach.
        closed_form: the distributions of a batch have a `gradient` in numpy.
        num_atoms: outputs for each choice; more than 1 for distributions of returns.
        size: components of a continuous action; 0 for others.
        log_prob_of: (inputs [B, num_inputs], actions [B, size]) -> log-probabilities of actions in [-1, 1], of
            distributions that are squashed; None: of others.
        user_class: the user's class that evaluates it; None: it is the library's.
    """

    squashed: ClassVar[bool] = False
    spans_bounds: ClassVar[bool] = False
    closed_form: ClassVar[bool] = True
    num_atoms = 1
    size = 0
    log_prob_of: ClassVar[Callable | None] = None
    user_class: Callable | None = None
