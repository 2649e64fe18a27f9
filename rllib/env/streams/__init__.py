"""Streams of transitions: the interface through which rollout workers step environments."""
