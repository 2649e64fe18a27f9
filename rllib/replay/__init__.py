"""Replay buffers: transitions kept for off-policy learning."""

from rllib.replay.replay_buffer import ReplayBuffer

__all__ = ["ReplayBuffer"]
