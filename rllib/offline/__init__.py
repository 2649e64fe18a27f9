"""Recorded steps: files, what they hold as episodes, and their way into replays and batches."""

import importlib

from rllib.did_you_mean import missing

__all__ = ["Dataset", "IOContext", "JsonWriter"]

# Loaded on first use: a worker that writes nothing needs none of them.
_LAZY = {
    "Dataset": "rllib.offline.dataset",
    "IOContext": "rllib.offline.io_context",
    "JsonWriter": "rllib.offline.writing.rolling",
}


def __getattr__(name: str):
    if name not in _LAZY:
        raise missing(__name__, name, __all__, None)
    globals()[name] = value = getattr(importlib.import_module(_LAZY[name]), name)
    return value
