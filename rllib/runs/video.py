"""Video files, written frame by frame."""

import math
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from contextlib import nullcontext, suppress
from ctypes.util import find_library
from fractions import Fraction
from typing import Self

import numpy as np

from rllib.extras import install_hint
from rllib.runs.safe_files import is_of_full_disk
from rllib.storage.local_path import local_path

# The 256 colours of a GIF are chosen frame by frame: a common choice would need all frames at once.
_PALETTES = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1:dither=none"
# The usual pixel format has one colour for two by two pixels, so that sizes have to be even.
_EVEN = ["-pix_fmt", "yuv420p", "-vf", "scale=ceil(iw/2)*2:ceil(ih/2)*2"]
# Frames per second of an environment that says nothing.
DEFAULT_FPS = 30.0
# Those that all kinds of files can have: ffmpeg rounds others to nothing, or its counters do not hold them.
_FPS = 0.001, 1e6
# Ending of a file -> how ffmpeg encodes it.
_ENCODINGS = {
    ".mp4": ["-vcodec", "libx264", "-crf", "25", *_EVEN],
    ".webm": ["-vcodec", "libvpx-vp9", "-qscale:v", "16", *_EVEN],
    ".gif": ["-vcodec", "gif", "-pix_fmt", "pal8", "-filter_complex", _PALETTES],
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


def fps_of(env) -> float:
    """Frames per second at which the environment should be shown: `render_fps` of its metadata, if it has that.

    Raises:
        ValueError: if `render_fps` is no number that videos can have.
    """
    given = (getattr(env, "metadata", None) or {}).get("render_fps") or DEFAULT_FPS
    return _checked_fps(given, "metadata['render_fps'] of the environment")


def _checked_fps(given, name: str) -> float:
    try:
        fps = float(given)
    except (TypeError, ValueError, OverflowError):
        fps = math.nan
    if not _FPS[0] <= fps <= _FPS[1]:
        raise ValueError(f"{name} is {given!r}, but has to be a number from {_FPS[0]:g} to {_FPS[1]:.0f}")
    return fps


def _ffmpeg_program() -> str:
    """Path or name of the program ffmpeg."""
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise ImportError(f"videos need imageio-ffmpeg: {install_hint('video')}") from error
    try:
        program = imageio_ffmpeg.get_ffmpeg_exe()
    except RuntimeError as error:  # a package without the program; it says what to do
        raise ImportError(f"videos need ffmpeg: {error}") from error
    if shutil.which(program) is None:
        raise ImportError(
            f"videos need ffmpeg, but IMAGEIO_FFMPEG_EXE={program!r} is no program that can be run. Correct or unset "
            "that environment variable."
        )
    return program


# To each ffmpeg, which completes its file when all processes have closed their ends of the pipe.
_pipes: weakref.WeakSet = weakref.WeakSet()


def _forked() -> None:
    """Closes in a forked child what is its parent's."""
    for pipe in list(_pipes):
        pipe.close()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_forked)


class VideoFile:
    """A video file. Each frame goes to ffmpeg at once, so that memory does not grow with the length.

    Use it as a context manager; a file without a frame is not written, and one that cannot be completed is removed. A
    fork of the process cannot write to it.

    Args:
        path: path of the file; its ending chooses the format (.mp4, .webm, .gif).
        fps: frames per second, from 0.001 to 1000000; numpy's numbers are accepted, too.

    Raises:
        ValueError: for another ending or another number.
        ImportError: without the package imageio-ffmpeg, which brings ffmpeg, or if its ffmpeg cannot be run.
    """

    def __init__(self, path: str | os.PathLike, fps: float):
        self.path = local_path(path)
        if self.path.suffix not in _ENCODINGS:
            raise ValueError(f"{path} has none of the endings of videos: {', '.join(_ENCODINGS)}")
        self._rate = str(Fraction(_checked_fps(fps, "fps")).limit_denominator())
        self._program = _ffmpeg_program()
        self._ffmpeg: subprocess.Popen | None = None

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
        if self._ffmpeg is None:
            self._start(frame.shape)
        if frame.shape != self._shape:
            raise ValueError(f"all frames have one size: {list(self._shape)}, but this one has {list(frame.shape)}")
        rest = frame.reshape(-1)
        try:
            while rest.size:
                rest = rest[self._ffmpeg.stdin.write(rest) :]
        except OSError as error:  # ffmpeg has ended
            self.close()
            self.path.unlink(missing_ok=True)
            raise OSError(f"{self.path} cannot be written: ffmpeg ended before its last frame") from error

    def _start(self, shape: tuple[int, ...]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.open("wb").close()  # its error names the path; ffmpeg's is a broken pipe
        self._shape = shape
        frames = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{shape[1]}x{shape[0]}", "-r", self._rate, "-i", "-"]
        command = [self._program, "-y", "-v", "error", *frames, "-an", *_ENCODINGS[self.path.suffix], str(self.path)]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close())
        try:
            # In a separate session Ctrl-C does not end it: close() completes the file.
            # Without a buffer a fork can close its copy of the pipe, and does not write frames a second time.
            self._ffmpeg = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            self.path.unlink(missing_ok=True)
            raise OSError(f"ffmpeg cannot be started from {self._program}: {error.strerror}") from error
        _pipes.add(self._ffmpeg.stdin)

    def close(self) -> None:
        """Completes the file.

        Raises:
            OSError: if it cannot be written.
        """
        if self._ffmpeg is None or self._ffmpeg.stdin.closed:  # the latter in a fork
            return
        ffmpeg, self._ffmpeg = self._ffmpeg, None
        with self._errors as errors:
            try:
                with suppress(OSError):  # ffmpeg has ended
                    ffmpeg.stdin.close()
                code = ffmpeg.wait()  # without a bound: it encodes what it has, and Ctrl-C ends the wait
            except BaseException:
                ffmpeg.kill()
                ffmpeg.wait()
                self.path.unlink(missing_ok=True)
                raise
            errors.seek(0)
            reason = errors.read().decode(errors="replace").strip()
        if code or (self.path.is_file() and not self.path.stat().st_size):
            self.path.unlink(missing_ok=True)
            number = -code & 0xFF  # of the error: ffmpeg exits with -errno
            error = OSError(number, os.strerror(number), str(self.path))
            if code > 0 and is_of_full_disk(error):
                raise error
            raise OSError(f"{self.path} cannot be written: ffmpeg ended with exit code {code}. {reason}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_) -> None:
        with suppress(OSError) if error else nullcontext():
            self.close()
