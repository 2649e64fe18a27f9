"""The errors under the name of Ray's module, with Ray's names in addition to ours, for programs for Ray."""

from . import errors
from .errors import *  # noqa: F403
from .errors import (
    NodeDiedError,
    ObjectLostError,
    ObjectStoreFullError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RaySystemError,
    RayTaskError,
    RuntimeFailure,
    UnschedulableError,
    WorkerCrashedError,
)

# What raises one of Ray's finer or earlier classes there raises this one here.
_SAME = {
    **dict.fromkeys(("ActorUnschedulableError", "TaskUnschedulableError"), UnschedulableError),
    **dict.fromkeys(
        (
            *("ObjectFetchTimedOutError", "ObjectFreedError", "ObjectReconstructionFailedError"),
            "ObjectReconstructionFailedLineageEvictedError",
            "ObjectReconstructionFailedMaxAttemptsExceededError",
            *("ReferenceCountingAssertionError", "UnreconstructableError"),
        ),
        ObjectLostError,
    ),
    "LocalRayletDiedError": NodeDiedError,
    "OutOfDiskError": ObjectStoreFullError,
    "RayOutOfMemoryError": OutOfMemoryError,
    "RayWorkerError": WorkerCrashedError,
}
# Errors of what is not here. Nothing raises them; a program may name them in an except clause, or raise them itself.
_OF_PROGRAMS = (
    *("ActorAlreadyExistsError", "ActorHandleNotFoundError", "ActorPlacementGroupRemoved", "AsyncioActorExit"),
    *("AuthenticationError", "CrossLanguageError", "ObjectRefStreamEndOfStreamError"),
    *("OufOfBandObjectRefSerializationException", "PlasmaObjectNotAvailable", "RayCgraphCapacityExceeded"),
    *("RayChannelError", "RayChannelTimeoutError", "RayDirectTransportError", "RpcError", "RuntimeEnvSetupError"),
    *("StreamingGeneratorReplayInconsistentError", "UnserializableException", "UserCodeException"),
)
globals().update(_SAME)
globals().update({name: type(name, (RuntimeFailure,), {"__module__": __name__}) for name in _OF_PROGRAMS})

__all__ = ["RayActorError", "RayError", "RaySystemError", "RayTaskError"]
__all__ += errors.__all__
__all__ += list(_SAME)
__all__ += list(_OF_PROGRAMS)
