"""Video files, written frame by frame."""

import os
import sys
from ctypes.util import find_library
from typing import Self

import numpy as np

from rllib.extras import install_hint
from rllib.storage.local_path import local_path

# The 256 colours of a GIF are chosen frame by frame: a common choice would need all frames at once.
_PALETTES = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1:dither=none"
# Ending of a file -> how ffmpeg encodes it. The usual pixel format has one colour for two by two pixels, so that sizes
# have to be even.
_ENCODINGS = {
    ".mp4": {"codec": "libx264", "macro_block_size": 2},
    ".webm": {"codec": "libvpx-vp9", "macro_block_size": 2},
    ".gif": {
        "codec": "gif",
        "pix_fmt_out": "pal8",
        "macro_block_size": 1,
        "output_params": ["-filter_complex", _PALETTES],
    },
}


def draw_without_display() -> None:
    """Makes pygame and MuJoCo draw in memory if there is no display."""
    if has_display():
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if "MUJOCO_GL" not in os.environ and find_library("EGL"):
        os.environ["MUJOCO_GL"] = "egl"


def has_display() -> bool:
    """Whether a window could be opened."""
    variables = os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"}
    return sys.platform in ("darwin", "win32") or any(os.environ[name] for name in variables)


class VideoFile:
    """A video file. Each frame goes to ffmpeg at once, so that memory does not grow with the length.

    Use it as a context manager; a file without a frame is not written.

    Args:
        path: of the file; its ending chooses the format (.mp4, .webm, .gif).
        fps: frames per second.

    Raises:
        ValueError: for another ending.
        ImportError: without the package imageio-ffmpeg, which brings ffmpeg.
    """

    def __init__(self, path: str | os.PathLike, fps: float):
        self.path = local_path(path)
        if self.path.suffix not in _ENCODINGS:
            raise ValueError(f"{path} has none of the endings of videos: {', '.join(_ENCODINGS)}")
        try:
            import imageio_ffmpeg
        except ImportError as error:
            raise ImportError(f"videos need imageio-ffmpeg: {install_hint('video')}") from error
        self._fps, self._write_frames, self._writer = fps, imageio_ffmpeg.write_frames, None

    def add(self, frame: np.ndarray) -> None:
        """Appends a frame.

        Args:
            frame: uint8 [height, width, 3]; all of the same size.

        Raises:
            ValueError: for anything else.
            OSError: if the file cannot be written.
        """
        frame = np.ascontiguousarray(frame)
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
            raise ValueError(f"a frame is uint8 [height, width, 3], but got {frame.dtype} {list(frame.shape)}")
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.open("wb").close()  # its error names the path; ffmpeg's is a broken pipe
            size = frame.shape[1], frame.shape[0]
            encoding = _ENCODINGS[self.path.suffix]
            self._writer = self._write_frames(str(self.path), size, fps=self._fps, ffmpeg_log_level="error", **encoding)
            self._writer.send(None)
            self._shape = frame.shape
        if frame.shape != self._shape:
            raise ValueError(f"all frames have one size: {list(self._shape)}, but this one has {list(frame.shape)}")
        self._writer.send(frame)

    def close(self) -> None:
        """Completes the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()
