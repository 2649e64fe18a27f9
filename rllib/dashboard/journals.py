"""Experiments of Tune, read from their journals as these grow."""

from pathlib import Path
from typing import Any

import msgspec

from rllib.errors import DamagedFileError
from rllib.storage.growing_lines import GrowingLines
from rllib.tune.experiment.directory import FORMAT, journal_file, lock_held
from rllib.tune.experiment.records import apply_record, with_settings
from rllib.tune.experiment.trial import Trial
from rllib.tune.objectives import checked_objective, pairs

_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, ValueError, AttributeError)


class Experiment:
    """Header and trials of an experiment.

    Args:
        path: path of its directory.
        id: name of the experiment in requests of the page.

    Attributes:
        header: record that describes the experiment; {} if its journal cannot be read.
        trials: by id.
        is_running: whether a process has the journal locked; None if that cannot be known.
        problem: error in the journal, or "".
    """

    def __init__(self, path: Path, id: str):
        self.path, self.id = path, id
        self._seen: tuple | None = None
        self._lines: GrowingLines | None = None
        self._begin()

    @property
    def objectives(self) -> list[tuple[str, str]]:
        """(metric, mode) by which trials are compared, or one for each of several metrics; [] if that is unknown."""
        try:
            return pairs(*checked_objective(self.header.get("metric"), self.header.get("mode")))
        except (TypeError, ValueError):  # of a damaged journal
            return []

    def _begin(self) -> None:
        self.header: dict[str, Any] = {}
        self.trials: dict[str, Trial] = {}
        self.is_running: bool | None = None
        self.problem = ""

    def refresh(self) -> bool:
        """Reads new records. Returns whether anything has changed."""
        try:
            file = journal_file(self.path)
            status = file.stat()
        except (ValueError, OSError):
            return False
        seen = file, status.st_ino, status.st_size, status.st_mtime_ns
        if seen == self._seen and not self.is_running:
            return False
        was = self.is_running
        if seen != self._seen:
            if self._lines is None or file != self._lines.path:
                self._begin()
                self._lines = GrowingLines(file)
            self._read(file.name)
        self.is_running = lock_held(file)
        changed = seen != self._seen or was != self.is_running
        self._seen = seen
        return changed

    def _read(self, name: str) -> None:
        try:
            lines = self._lines.read()
        except (OSError, DamagedFileError) as error:
            self.problem = f"{name}: {getattr(error, 'strerror', None) or error}"
            return
        if self._lines.was_replaced:
            self._begin()
        for line in lines.split(b"\n")[:-1]:
            try:
                self._take(msgspec.json.decode(line))
            except _BROKEN as error:
                self.problem = self.problem or f"the journal has a record that cannot be read: {error or type(error)}"

    def _take(self, record: dict) -> None:
        if record["type"] == "settings":
            self.header = with_settings(self.header, record)
        elif record["type"] != "experiment":
            apply_record(record, self.trials, self.path)
        elif record["format"] > FORMAT:
            raise ValueError(f"it is of format {record['format']}, and this version reads {FORMAT}")
        else:
            self.header = record
