"""The errors under the name of Ray's module, with Ray's names in addition to ours, for programs for Ray."""

from . import errors
from .errors import *  # noqa: F403
from .errors import RayActorError, RayError, RaySystemError, RayTaskError

__all__ = ["RayActorError", "RayError", "RaySystemError", "RayTaskError"]
__all__ += errors.__all__
