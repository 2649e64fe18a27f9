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

import importlib

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


def __getattr__(name):
    if name == "util":  # imported with its first use, since most programs need none of it
        return importlib.import_module(".util", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
