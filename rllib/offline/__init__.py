"""Recorded steps: files, what they hold as episodes, and their way into replays and batches."""

from rllib.lazy_names import lazy_names

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

__getattr__, __dir__ = lazy_names(globals(), _LAZY)
