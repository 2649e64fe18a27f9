"""Errors of Ray as errors of the runtime."""

from __future__ import annotations

import re

from ray import exceptions

from ... import errors
from .worker import ActorExited, Raised, TaskExited

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

# The first class that fits says what an error of Ray's is here. Subclasses stand before their bases; names, since some
# exist only in newer versions.
_CLASSES = [
    ("GetTimeoutError", errors.GetTimeoutError),
    ("TaskCancelledError", errors.TaskCancelledError),
    ("ActorUnavailableError", errors.ActorUnavailableError),
    ("ActorUnschedulableError", errors.UnschedulableError),
    ("ActorPlacementGroupRemoved", errors.ActorDiedError),
    ("RayActorError", errors.ActorDiedError),
    ("TaskUnschedulableError", errors.UnschedulableError),
    ("TaskPlacementGroupRemoved", errors.TaskPlacementGroupRemoved),
    ("WorkerCrashedError", errors.WorkerCrashedError),
    ("LocalRayletDiedError", errors.WorkerCrashedError),
    ("NodeDiedError", errors.WorkerCrashedError),
    ("OutOfMemoryError", errors.OutOfMemoryError),
    ("OwnerDiedError", errors.OwnerDiedError),
    ("ObjectLostError", errors.ObjectLostError),
    ("ObjectStoreFullError", errors.ObjectStoreFullError),
    ("OutOfDiskError", errors.ObjectStoreFullError),
    ("PendingCallsLimitExceeded", errors.PendingCallsLimitExceeded),
    ("RayTaskError", errors.TaskError),
]
_KINDS = [(getattr(exceptions, name), kind) for name, kind in _CLASSES if hasattr(exceptions, name)]

# What Ray says nothing about.
_WITHOUT_TEXT = {errors.TaskCancelledError: "the task, or one whose result it was to take, was cancelled"}


def error_of(error: Exception) -> errors.RuntimeFailure:
    """The error for the caller; a user's exception keeps its class."""
    started = not isinstance(error, exceptions.RayActorError)
    cause = _cause(error)
    if isinstance(cause, Raised):
        return cause.failure.error(errors.TaskError if started else errors.ActorStartError)
    if isinstance(cause, TaskExited):
        return errors.WorkerExitedError(str(cause))
    if isinstance(cause, ActorExited):
        return errors.ActorDiedError(str(cause))
    if isinstance(cause, exceptions.RayError) and cause is not error:
        return error_of(cause)
    kind = next((kind for theirs, kind in _KINDS if isinstance(error, theirs)), errors.RuntimeFailure)
    return kind(_COLOURS.sub("", str(error)) or _WITHOUT_TEXT.get(kind, ""))


def _cause(error):
    """Exception of a task, a method or a constructor in the worker."""
    if isinstance(error, exceptions.RayActorError):  # of a constructor; it keeps its cause
        error = next((part for part in error.args if isinstance(part, exceptions.RayTaskError)), error)
    return getattr(error, "cause", None)
