"""Helpers on top of the verbs."""

from .actor_pool import ActorPool

__all__ = ["ActorPool"]
