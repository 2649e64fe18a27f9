"""Values that callbacks add to results, by the methods of Stable-Baselines3's logger."""

import logging
import numbers
from collections.abc import MutableMapping
from typing import Any

import numpy as np

_messages = logging.getLogger("rllib.learn")


class Logger:
    """Takes values by name; the next result of `train()` has them, and so have the files of the run.

    Attributes:
        name_to_value: the values that no result has yet.
    """

    def __init__(self, directory: Any):
        self._directory = directory
        self.name_to_value: dict[str, Any] = {}
        self._counts: dict[str, int] = {}

    def record(self, key: str, value: Any, exclude: str | tuple[str, ...] | None = None) -> None:
        """Takes a value; a later one of the same name replaces it.

        Args:
            key: "section/name"; `result["section/name"]` reads it.
            value: a number, a string or None.
            exclude: without effect: all files have all values.

        Raises:
            TypeError: for another value.
        """
        if isinstance(value, np.generic | np.ndarray) and np.ndim(value) == 0:
            value = value.item()
        if not isinstance(value, numbers.Number | str | None):
            raise TypeError(
                f"{key} = {value!r:.60} ({type(value).__name__}) cannot be recorded: a value is a number or a string. "
                "Videos are written by evaluation_videos=1, plots by rllib plot."
            )
        self.name_to_value[key] = value

    def record_mean(self, key: str, value: float | None, exclude: str | tuple[str, ...] | None = None) -> None:
        """Takes a value; the result has the mean of all that it was given since the last one."""
        if value is None:
            return
        count = self._counts.get(key, 0)
        before = self.name_to_value.get(key, 0.0) if count else 0.0
        self._counts[key] = count + 1
        self.record(key, before + (float(value) - before) / (count + 1))

    def dump(self, step: int = 0) -> None:
        """Does nothing: values are written with the result of their iteration."""

    def get_dir(self) -> str:
        """Directory of the run."""
        return str(self._directory)

    def log(self, *args: Any, level: int = logging.INFO) -> None:
        """Logs a message."""
        _messages.log(level, " ".join(map(str, args)))

    def debug(self, *args: Any) -> None:
        """Logs a message of the level DEBUG."""
        self.log(*args, level=logging.DEBUG)

    def info(self, *args: Any) -> None:
        """Logs a message."""
        self.log(*args)

    def warn(self, *args: Any) -> None:
        """Logs a warning."""
        self.log(*args, level=logging.WARNING)

    def error(self, *args: Any) -> None:
        """Logs an error."""
        self.log(*args, level=logging.ERROR)

    def move_into(self, result: MutableMapping[str, Any]) -> None:
        """Adds the values to a result, nested by the parts of their names, and forgets them.

        Raises:
            ValueError: if the result has a value where a name has a section.
        """
        for key, value in self.name_to_value.items():
            *sections, name = key.split("/")
            place: Any = result
            for section in sections:
                place = place.setdefault(section, {})
                if not isinstance(place, dict):
                    raise ValueError(f"{key} cannot be recorded: the result has a value {section}. Use another name.")
            place[name] = value
        self.name_to_value, self._counts = {}, {}
