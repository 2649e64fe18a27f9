"""Recorded steps: files, what they hold as episodes, and their way into replays and batches."""

import importlib

from rllib.did_you_mean import missing

# Loaded on first use, so that a run from an environment loads none of it.
_LAZY = {
    "Dataset": "rllib.offline.dataset",
    "IOContext": "rllib.config.io_context",
    "InputReader": "rllib.offline.readers",
    "JsonReader": "rllib.offline.readers",
    "JsonWriter": "rllib.offline.writing.rolling",
    "register_input": "rllib.offline.readers",
}

__all__ = sorted(_LAZY)  # noqa: PLE0605


def __getattr__(name: str):
    if name not in _LAZY:
        raise missing(__name__, name, __all__)
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
