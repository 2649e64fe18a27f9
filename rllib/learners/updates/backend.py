"""Backends, which compute the updates of a learner."""

import contextlib
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rllib.learners.updates.core_choice import FreeCores


class Backend:
    """Base class of backends: numpy or torch in this process, or learners in other processes.

    Attributes:
        device: device of the computations, by torch's name.
        takes_tensors: whether batches may be tensors on `device`, where the order of their rows is drawn, too.
        core_choice: chooses the number of cores; None: the number is fixed.
        policy_module: the policy's torch network on `device`, which other parts of this process may use; None: the
            backend has none.
        logged: values that user functions have logged in other processes, for `Learner.pop_logged`.
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
