"""Incremental reading of files of lines, such as result.json and journals: each line once, and only whole ones."""

import os
import sys
from pathlib import Path
from typing import BinaryIO

from rllib.storage.foreign_files import open_inside

# Number of bytes before the position that are compared: a file that was made again has others there.
_FINGERPRINT_BYTES = 4096
_LONGEST_LINE_BYTES = 1 << 24


class GrowingLines:
    """Reads the new lines of a file that may grow, be cut or be replaced; an unfinished line waits for its end.

    Args:
        path: path of the file, which need not exist yet.

    Attributes:
        position: number of bytes read; the end of a line.
        was_replaced: whether the last read found the file cut, or another file in its place, and began again: lines
            that were read before are void.
        unfinished_bytes: number of bytes after the end of the last line.
        behind_bytes: number of bytes of whole lines that have not been read yet.
    """

    def __init__(self, path: Path):
        self.path, self._inode, self._fingerprint = path, 0, b""
        self.position = self.unfinished_bytes = self.behind_bytes = 0
        self.was_replaced = False

    def read(self, most_bytes: int = sys.maxsize) -> bytes:
        """Reads the next lines, each with its end; b"" if there are none.

        Args:
            most_bytes: largest number of bytes to read; a longer line is read as a whole, up to 16 MiB.

        Raises:
            OSError, DamagedFileError: if the file cannot be opened; the position stays.
        """
        with open_inside(self.path.parent, self.path.name) as file:
            status = os.fstat(file.fileno())
            self.was_replaced = self.position > 0 and not self._is_same(file, status)
            if self.was_replaced:
                self.position, self._fingerprint = 0, b""
            self._inode = status.st_ino
            return self._next_lines(file, status.st_size - self.position, most_bytes)

    def _is_same(self, file: BinaryIO, status: os.stat_result) -> bool:
        if status.st_size < self.position or status.st_ino != self._inode:
            return False
        file.seek(self.position - len(self._fingerprint))
        return file.read(len(self._fingerprint)) == self._fingerprint

    def _next_lines(self, file: BinaryIO, left: int, most_bytes: int) -> bytes:
        file.seek(self.position)
        chunk = file.read(min(most_bytes, left))
        while b"\n" not in chunk and len(chunk) < min(left, _LONGEST_LINE_BYTES):
            if not (more := file.read(min(len(chunk), left - len(chunk)))):
                break
            chunk += more
        end = chunk.rfind(b"\n") + 1
        is_all = len(chunk) == left or not end  # lines after one that is too long are not read
        self.position += end
        self._fingerprint = (self._fingerprint + chunk[max(0, end - _FINGERPRINT_BYTES) : end])[-_FINGERPRINT_BYTES:]
        self.unfinished_bytes, self.behind_bytes = (left - end, 0) if is_all else (0, left - end)
        return chunk[:end]
