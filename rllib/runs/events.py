"""TensorBoard events of a run: its numbers by environment steps, and its videos."""

import logging
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rllib.runs.curve_groups import in_groups
from rllib.runs.entries import finite_numbers, is_finite, is_number, lookup
from rllib.runs.safe_files import AppendedFile
from rllib.storage.foreign_files import read_inside

logger = logging.getLogger(__name__)

# Path of a video in the run's directory, a GIF, where an iteration has one.
VIDEO = "evaluation/video"
_VIDEOS, _LARGEST_VIDEO_BYTES = "videos", 2**26


@contextmanager
def _hidden(module: str) -> Iterator[None]:
    """Makes importing a module fail inside, unless it has been imported before."""
    was_there = module in sys.modules
    sys.modules.setdefault(module, None)
    try:
        yield
    finally:
        if not was_there:
            del sys.modules[module]


def _of_tensorboard() -> tuple:
    """Imports the classes of events and summaries, and the checksum of records.

    Raises:
        ImportError: if tensorboardX is not installed.
    """
    with _hidden("torch"):
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary
        from tensorboardX.record_writer import masked_crc32c

    return Event, Summary, masked_crc32c


class TensorBoardLogger:
    """Writes the numbers of each result to an event file, by environment steps.

    Importing tensorboardX imports torch where it is installed (1.6 s, 200 MB) to convert tensors, of which there are
    none here, so torch is hidden from it. Its writer is not used: its thread dies on a full disk,
    and every later write then waits for it without end.

    Args:
        directory: directory of the run.
        has_groups: whether curves are in the groups of Stable-Baselines3 (curve_groups.py).

    Attributes:
        points_per_poll: largest number of results written in each half second; very short iterations make more.
    """

    points_per_poll = 100
    what = "TensorBoard events are"
    # Suffix of its files, which tells them from event files that a user's code writes there.
    _SUFFIX = ".rllib"

    def __init__(self, directory: Path, has_groups: bool = False):
        self._event, self._summary, self._checksum = _of_tensorboard()
        self._directory, self._has_groups, self._has_refused = directory, has_groups, False
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}{self._SUFFIX}"
        self._file = AppendedFile(directory / name)
        self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))

    @classmethod
    def fresh(cls, directory: Path, has_groups: bool = False) -> "TensorBoardLogger":
        """Makes a logger that gets all results again: earlier event files are removed."""
        _of_tensorboard()
        for file in directory.glob(f"events.out.tfevents*{cls._SUFFIX}"):
            file.unlink(missing_ok=True)
        return cls(directory, has_groups)

    def on_result(self, result: Mapping) -> None:
        """Adds a point to every curve in a single event, since an event for each number takes seven times as long."""
        values = [self._summary.Value(tag=key, simple_value=value) for key, value in self._numbers(result).items()]
        if video := lookup(result, VIDEO):
            values += self._video(video)
        steps = (result.get(key) for key in ("timesteps_total", "training_iteration"))
        now = result.get("timestamp")
        self._write(self._event(
            summary=self._summary(value=values),
            step=int(next((step for step in steps if step and is_number(step) and is_finite(step)), 0)),
            wall_time=now if is_number(now) and is_finite(now) else time.time(),
        ))  # fmt: skip

    def _numbers(self, result: Mapping) -> dict[str, float]:
        """Tag of each curve -> its number."""
        numbers = finite_numbers(result)
        return in_groups(numbers) if self._has_groups else numbers

    def _video(self, name) -> list:
        """Summary of a result's video; empty if its name leads out of the run's videos or to no GIF."""
        try:
            gif = read_video(self._directory, name)
        except (OSError, ValueError) as error:
            if not self._has_refused:
                logger.warning("a video is left out of the TensorBoard events: %s", error)
            self._has_refused = True
            return []
        width, height = struct.unpack("<HH", gif[6:10])
        image = self._summary.Image(width=width, height=height, colorspace=3, encoded_image_string=gif)
        return [self._summary.Value(tag=VIDEO, image=image)]

    def _write(self, event) -> None:
        """Appends a record: length, its checksum, event, its checksum."""
        content = event.SerializeToString()
        length = struct.pack("<Q", len(content))
        checksums = [struct.pack("<I", self._checksum(part)) for part in (length, content)]
        self._file.append(length + checksums[0] + content + checksums[1])

    def add_hparams(self, params: Mapping, result: Mapping) -> None:
        """Writes the run's row on TensorBoard's page of hyperparameters.

        Args:
            params: "a/b" path -> value that was chosen for it.
            result: the last one.
        """
        from tensorboardX.summary import hparams

        simple = (bool, int, float, str)
        given = {key: value for key, value in params.items() if value is not None}
        shown = {key: value if isinstance(value, simple) else str(value) for key, value in given.items()}
        for summary in hparams(shown, self._numbers(result)):
            self._write(self._event(summary=summary, wall_time=time.time()))

    def close(self) -> None:
        self._file.close()


def read_video(directory: Path, name: str) -> bytes:
    """Reads a GIF in the videos of a run, by its name in a result.

    Raises:
        ValueError: if it is no GIF, or not in the folder of videos.
        OSError: if it cannot be read, or is a link.
    """
    folder, _, plain_name = str(name).partition("/")
    if folder != _VIDEOS or not plain_name or "/" in plain_name or plain_name == "..":
        raise ValueError(f"{name!r:.200} is no file in {directory / _VIDEOS}")
    content = read_inside(directory, str(name), _LARGEST_VIDEO_BYTES)
    if len(content) < 10 or content[:6] not in (b"GIF87a", b"GIF89a"):
        raise ValueError(f"{name!r:.200} is no GIF")
    return content
