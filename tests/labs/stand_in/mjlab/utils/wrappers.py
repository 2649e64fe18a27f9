"""As mjlab.utils.wrappers."""

from point_mass import Recorder as VideoRecorder

__all__ = ["VideoRecorder"]
