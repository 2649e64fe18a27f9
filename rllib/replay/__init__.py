"""Replay buffers: transitions kept for off-policy learning."""
