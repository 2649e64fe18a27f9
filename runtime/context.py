"""The engine of this process, for references, handles and API functions, which are not given one."""

import os
from typing import Any

# An engines.base.Engine; the module imports nothing of the runtime, since references import it.
_engine: Any = None


def current_engine():
    """The engine of this process (engines.base.Engine), or None before `init()` and after `shutdown()`."""
    return _engine


def engine_of(session_id: str):
    """The engine of this process, if it belongs to this session."""
    return _engine if _engine is not None and _engine.session_id == session_id else None


def set_engine(engine) -> None:
    """Installs an engine; a worker process installs its own before it runs user code."""
    global _engine
    _engine = engine


def _forked() -> None:
    if _engine is not None:
        _engine.forked()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_forked)
