"""Every failure of the runtime itself; a user's mistake is a plain ValueError or TypeError.

An exception that user code raises in a task or an actor reaches the caller as a `TaskError` that is also an instance
of the user's own class (see failures.py), so both `except TaskError` and `except MyError` catch it.
"""

from __future__ import annotations


class RuntimeFailure(Exception):
    """Base of everything below."""


class TaskError(RuntimeFailure):
    """User code raised in a task or an actor call; `str()` shows the remote traceback.

    Attributes:
        failure: the `failures.RemoteFailure` it was made from.
        cause: the user's exception (without its traceback), or None when it could not travel between processes.
    """

    failure = None
    cause = None

    def __str__(self):
        return self.failure.text() if self.failure is not None else super().__str__()

    def as_instanceof_cause(self) -> TaskError:
        """The error itself, which is one of the user's class already; for programs written for Ray."""
        return self

    def __reduce__(self):
        if self.failure is None:
            return super().__reduce__()
        kind = ActorStartError if isinstance(self, ActorStartError) else TaskError
        return self.failure.error, (kind,), {"__notes__": list(getattr(self, "__notes__", ()))}


class WorkerCrashedError(RuntimeFailure):
    """The process that ran a task died, more often than `max_retries` allows; names exit code or signal."""


class WorkerExitedError(WorkerCrashedError):
    """A task called `sys.exit`; it is not retried."""


class ActorError(RuntimeFailure):
    """The call of an actor failed because of the actor; Ray's RayActorError."""


class ActorDiedError(ActorError):
    """The actor's process has ended; the message has the reason, exit code or signal, and the last lines of stderr."""


class OutOfMemoryError(WorkerCrashedError):
    """The process of a task, or of an actor, was ended because memory ran out; names who had how much."""


class ActorOutOfMemoryError(ActorDiedError, OutOfMemoryError):
    """The same of an actor that has no restarts left."""


class ActorStartError(ActorDiedError, TaskError):
    """The actor's constructor raised; also an instance of the user's class, like every `TaskError`."""


class ActorUnavailableError(ActorError):
    """The actor cannot be reached now and may come back; the call may or may not have run."""


class GetTimeoutError(RuntimeFailure, TimeoutError):
    """`get(..., timeout=s)` ran out of time; the task continues, and a later `get` can still succeed."""


class ObjectLostError(RuntimeFailure):
    """The value existed and is gone."""


class OwnerDiedError(ObjectLostError):
    """The process that was to produce or hold the value has died."""


class ObjectStoreFullError(RuntimeFailure):
    """Shared memory and the disk for objects are used up, and nothing was freed in time; names who holds what."""


class NodeDiedError(RuntimeFailure):
    """The supervising process of the session has died; `shutdown()` and `init()` start again."""


class UnschedulableError(RuntimeFailure, ValueError):
    """The resources asked for can never be met by this session."""


class ResourceDeadlockError(RuntimeFailure):
    """Tasks wait for one another and no further worker may be started; names the chain."""


class TaskCancelledError(RuntimeFailure):
    """The task was cancelled before it finished."""


class TaskKilledError(TaskCancelledError, WorkerCrashedError):
    """The task was running when it was cancelled with force=True, which has ended its process."""


class PendingCallsLimitExceeded(RuntimeFailure):
    """More calls wait for an actor than its limit allows."""


class TaskPlacementGroupRemoved(RuntimeFailure):
    """The placement group in which the task ran, or was to run, has been removed."""


class PlatformError(RuntimeFailure):
    """Processes were asked for on another system than Linux."""


class SessionClosedError(RuntimeFailure):
    """A reference or handle of a session that has been shut down was used."""


class ForkedProcessError(RuntimeFailure):
    """The runtime was used in a child that user code forked; the session belongs to the parent."""


# Ray's names, for programs that catch them.
RayError, RayTaskError, RayActorError, RaySystemError = RuntimeFailure, TaskError, ActorError, RuntimeFailure

__all__ = [
    "ActorDiedError",
    "ActorError",
    "ActorOutOfMemoryError",
    "ActorStartError",
    "ActorUnavailableError",
    "ForkedProcessError",
    "GetTimeoutError",
    "NodeDiedError",
    "ObjectLostError",
    "ObjectStoreFullError",
    "OutOfMemoryError",
    "OwnerDiedError",
    "PendingCallsLimitExceeded",
    "PlatformError",
    "ResourceDeadlockError",
    "RuntimeFailure",
    "SessionClosedError",
    "TaskCancelledError",
    "TaskError",
    "TaskKilledError",
    "TaskPlacementGroupRemoved",
    "UnschedulableError",
    "WorkerCrashedError",
    "WorkerExitedError",
]
