"""Replay buffers: transitions kept for off-policy learning."""

from rllib.lazy_names import lazy_names
from rllib.replay.replay_buffer import ReplayBuffer

__all__ = ["ReplayBuffer"]

__getattr__, __dir__ = lazy_names(globals())
