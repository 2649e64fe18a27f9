"""Spaces: supported kinds, observations as rows, actions between policy and environment."""
