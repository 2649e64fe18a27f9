"""An actor runtime on ZeroMQ: functions become tasks, classes become actors, arrays are shared and never copied twice.

import runtime

@runtime.remote
class Counter:
    def __init__(self):
        self.value = 0

    def add(self, amount):
        self.value += amount
        return self.value

counter = Counter.remote()
print(runtime.get([counter.add.remote(i) for i in range(10)]))
"""

from . import errors, exceptions
from .api import (
    as_completed,
    available_resources,
    cancel,
    cluster_resources,
    empty,
    get,
    get_gpu_ids,
    get_runtime_context,
    kill,
    nodes,
    put,
    remote,
    timeline,
    wait,
)
from .errors import *  # noqa: F403
from .lazy_modules import lazy_modules
from .remote.actors import ActorHandle, exit_actor, get_actor, method
from .remote.generators import DynamicObjectRefGenerator, ObjectRefGenerator
from .remote.refs import ObjectRef
from .session import init, is_initialized, shutdown

__all__ = [
    "ActorHandle",
    "DynamicObjectRefGenerator",
    "ObjectRef",
    "ObjectRefGenerator",
    "as_completed",
    "available_resources",
    "cancel",
    "cluster_resources",
    "empty",
    "errors",
    "exceptions",
    "exit_actor",
    "get",
    "get_actor",
    "get_gpu_ids",
    "get_runtime_context",
    "init",
    "is_initialized",
    "kill",
    "method",
    "nodes",
    "put",
    "remote",
    "shutdown",
    "timeline",
    "wait",
]
__all__ += errors.__all__


# Names of Ray that are not here: what to use instead.
_INSTEAD = {
    "LoggingConfig": "use init(logging_level=...)",
    "ObjectID": "it is ObjectRef here",
    **dict.fromkeys(("get_webui_url", "get_dashboard_url", "show_in_dashboard"), "there is no dashboard"),
    **dict.fromkeys(("ActorID", "NodeID", "JobID", "TaskID", "WorkerID"), "ids are strings (get_runtime_context())"),
    **dict.fromkeys(("FunctionID", "PlacementGroupID", "UniqueID"), "ids are strings (get_runtime_context())"),
    **dict.fromkeys(("ActorClassID", "actor"), "use ActorHandle, get_actor and remote"),
    **dict.fromkeys(("data", "workflow", "widgets", "internal"), "there are tasks, actors and objects alone"),
    "autoscaler": "a session has the machine that it is started on",
    **dict.fromkeys(
        ("java_function", "java_actor_class", "cpp_function", "cross_language", "Language"), "there is Python alone"
    ),
    **dict.fromkeys(("profile", "profiling"), "set RUNTIME_TIMELINE=1, and use timeline()"),
    "register_custom_serializer": "use util.register_serializer",
    **dict.fromkeys(("state", "experimental"), "use nodes(), cluster_resources(), or the command runtime status"),
    "job_submission": "start the program itself; cluster_resources() and available_resources() say what is free",
    **dict.fromkeys(("LOCAL_MODE", "SCRIPT_MODE", "WORKER_MODE"), "use init(engine='local'), or no argument"),
    **dict.fromkeys(("client", "ClientBuilder"), "use init(address=...)"),
    "get_accelerator_ids": "use get_runtime_context().get_accelerator_ids()",
}

__getattr__ = lazy_modules(__name__, _INSTEAD)
