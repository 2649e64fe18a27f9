"""Ray's names of errors, and what is imported when."""

import contextlib
import subprocess
import sys

import pytest

import runtime


@pytest.mark.parametrize(
    "name, ours",
    [
        ("RayError", runtime.RuntimeFailure),
        ("RaySystemError", runtime.RuntimeFailure),
        ("RayTaskError", runtime.TaskError),
        ("RayActorError", runtime.ActorError),
        ("GetTimeoutError", runtime.GetTimeoutError),
    ],
)
def test_errors_have_the_names_of_ray(name, ours):
    assert getattr(runtime.exceptions, name) is ours and getattr(runtime.errors, name) is ours


# Those of Ray 2.60, and of 0.8 where they have gone since.
NAMES_OF_RAY = """
    ActorAlreadyExistsError ActorDiedError ActorHandleNotFoundError ActorPlacementGroupRemoved ActorUnavailableError
    ActorUnschedulableError AsyncioActorExit AuthenticationError CrossLanguageError GetTimeoutError LocalRayletDiedError
    NodeDiedError ObjectFetchTimedOutError ObjectFreedError ObjectLostError ObjectReconstructionFailedError
    ObjectRefStreamEndOfStreamError ObjectStoreFullError OufOfBandObjectRefSerializationException OutOfDiskError
    OutOfMemoryError OwnerDiedError PendingCallsLimitExceeded PlasmaObjectNotAvailable RayActorError
    RayCgraphCapacityExceeded RayChannelError RayChannelTimeoutError RayDirectTransportError RayError RaySystemError
    RayTaskError ReferenceCountingAssertionError RpcError RuntimeEnvSetupError StreamingGeneratorReplayInconsistentError
    TaskCancelledError TaskPlacementGroupRemoved TaskUnschedulableError UnserializableException UserCodeException
    WorkerCrashedError RayWorkerError UnreconstructableError RayOutOfMemoryError
"""


@pytest.mark.parametrize("name", NAMES_OF_RAY.split())
def test_an_except_clause_may_name_each_error_of_ray(name):
    error = getattr(runtime.exceptions, name)
    assert issubclass(error, runtime.RuntimeFailure) and name in runtime.exceptions.__all__
    with pytest.raises(ZeroDivisionError), contextlib.suppress(error):
        raise ZeroDivisionError


def test_the_helpers_need_no_import_of_their_own():
    source = "import runtime, sys; assert 'runtime.util' not in sys.modules; print(runtime.util.ActorPool.__name__)"
    result = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert result.stdout == "ActorPool\n", result.stderr
    with pytest.raises(AttributeError, match="module 'runtime' has no attribute 'utils'"):
        runtime.utils  # noqa: B018
