"""The engine without processes: everything runs in the caller's thread, at once and in order. For debugging and tests.

A task runs inside `.remote()` as soon as its arguments are known. Arguments and results go through pickle all the same,
so that code which relies on shared objects fails here as it would between processes; arrays come out read-only. What
cannot run now (a call of an actor that is in the middle of another, a task whose resources are held by actors) waits,
and runs when it can; a `get` that could only wait for ever raises instead.

What differs from processes: `timeout` never interrupts running code, nor does `cancel`, Ctrl-C stops the caller,
`os._exit` ends everything, and the GPUs of a task are reported by its context, but not set in the environment. A
generator runs up to its next `yield` when its caller asks for a value; meanwhile other calls of its actor may run.
"""

from __future__ import annotations

from ..base import EngineConfig
from .engine import LocalEngine


def start(config: EngineConfig) -> LocalEngine:
    """Starts a session. See base.Engine."""
    return LocalEngine(config)
