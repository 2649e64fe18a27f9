"""CUDA in this process: whether torch can use it, and an error with advice when its memory is full."""

import contextlib
import os
from collections.abc import Callable, Iterator

from rllib.errors import GpuMemoryError


def why_no_cuda() -> str | None:
    """The reason why torch cannot compute on a GPU here; None if it can."""
    import torch  # takes seconds, and most runs do without a GPU

    if torch.cuda.is_available():
        return None
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built for CPUs: install a CUDA build, on a machine with a GPU"
    try:
        torch.cuda.init()  # says what is_available() keeps to itself, such as a driver that is too old
        reason = "is its driver new enough?"
    except (RuntimeError, AssertionError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible!r})"
    return f"torch {torch.__version__} is built for CUDA {torch.version.cuda} and finds no device{hidden}: {reason}"


@contextlib.contextmanager
def memory_of(device, what: Callable[[], str], advice: str) -> Iterator[None]:
    """Context manager: turns torch's out-of-memory errors into GpuMemoryError with advice.

    Args:
        device: device, by torch's name.
        what: called in that case; returns the subject of the message, such as "1000 weights".
        advice: sentences that end the message.

    Raises:
        GpuMemoryError: if the device's memory is full.
    """
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise GpuMemoryError(f"{what()} do not fit into the memory of {device}. {advice}") from error
