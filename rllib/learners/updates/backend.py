"""What computes the updates of a learner."""

import contextlib
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rllib.learners.updates.core_choice import FreeCores


class Backend:
    """Base class of what computes updates: numpy or torch in this process, or learners in others.

    Attributes:
        device: where it computes, as torch names devices.
        takes_tensors: whether batches may be tensors on its device, and it draws the order of rows there.
        core_choice: chooses the number of cores; None: the number is fixed.
        policy_module: the policy's torch network on `device`, which other parts of this process may use; None: there is
            none.
        logged: values that functions of the user's have logged elsewhere, for `Learner.pop_logged`.
    """

    device: Any = "cpu"
    takes_tensors: ClassVar[bool] = False
    core_choice: FreeCores | None = None
    policy_module: Any = None
    logged: Sequence = ()

    def new_rows(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Memory for sampled rows."""
        return np.empty(shape, dtype)

    def on_cores(self) -> contextlib.AbstractContextManager:
        """Lets this process compute on the cores of an update."""
        return contextlib.nullcontext()
