"""The errors under the name of Ray's module, with Ray's names beside ours, for programs that were written for it."""

from . import errors
from .errors import *  # noqa: F403
from .errors import RayActorError, RayError, RaySystemError, RayTaskError

__all__ = ["RayActorError", "RayError", "RaySystemError", "RayTaskError"]
__all__ += errors.__all__
