"""Stable-Baselines3's logger: named values, which a dump prints as a table or writes into files."""

import csv
import json
import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from rllib.callbacks.logger import Logger as OfResults

DEBUG, INFO, WARN, ERROR, DISABLED = 10, 20, 30, 40, 50
# Groups that results have by other names.
_OF_RESULTS = ("time/", "train/", "rollout/")
# Longest name and value in a table.
_MOST_LETTERS = 36


class FormatUnsupportedError(NotImplementedError):
    """A value that an output cannot hold.

    Args:
        unsupported_formats: outputs that cannot.
        value_description: what the value is.
    """

    def __init__(self, unsupported_formats: Sequence[str], value_description: str):
        super().__init__(
            f"{', '.join(unsupported_formats)} cannot hold {value_description}. Exclude them: "
            "logger.record(key, value, exclude=(...))."
        )


class _Value:
    """A value that is no number or text."""


class Video(_Value):
    """Frames of a film.

    Args:
        frames: [N, T, channels, height, width].
        fps: frames per second.
    """

    def __init__(self, frames: Any, fps: float):
        self.frames, self.fps = frames, fps


class Figure(_Value):
    """A figure of matplotlib.

    Args:
        figure: as above.
        close: close it afterwards.
    """

    def __init__(self, figure: Any, close: bool):
        self.figure, self.close = figure, close


class Image(_Value):
    """A picture.

    Args:
        image: its pixels.
        dataformats: order of its axes, such as "HWC".
    """

    def __init__(self, image: Any, dataformats: str):
        self.image, self.dataformats = image, dataformats


class HParam(_Value):
    """Settings, and the metrics that runs are compared by.

    Args:
        hparam_dict: the settings.
        metric_dict: the metrics.
    """

    def __init__(self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, float | int]):
        if not metric_dict:
            raise ValueError("metric_dict={} must name at least one metric, by which TensorBoard compares runs")
        self.hparam_dict, self.metric_dict = dict(hparam_dict), dict(metric_dict)


def filter_excluded_keys(
    key_values: Mapping[str, Any], key_excluded: Mapping[str, tuple[str, ...]], _format: str
) -> dict[str, Any]:
    """The values that were not excluded from an output."""
    return {key: value for key, value in key_values.items() if _format not in (key_excluded.get(key) or ())}


class KVWriter(ABC):
    """Base class of outputs for named values."""

    @abstractmethod
    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Writes the values of a step."""

    def close(self) -> None:
        """Closes the output."""


class SeqWriter(ABC):
    """Base class of outputs for texts."""

    @abstractmethod
    def write_sequence(self, sequence: Sequence[str]) -> None:
        """Writes words into a line."""


class HumanOutputFormat(KVWriter, SeqWriter):
    """Tables for readers.

    Args:
        filename_or_file: a path, or an open file.
        max_length: letters of a name or value; longer ones are cut.
    """

    def __init__(self, filename_or_file: str | TextIO, max_length: int = _MOST_LETTERS):
        self.max_length, self.own_file = max_length, isinstance(filename_or_file, str)
        self.file = open(filename_or_file, "w") if self.own_file else filename_or_file  # noqa: SIM115  (closed by close)

    def write(self, key_values, key_excluded, step=0):
        kept = filter_excluded_keys(key_values, key_excluded, "stdout")
        kept = filter_excluded_keys(kept, key_excluded, "log")
        rows = [(key, value) for key, value in sorted(kept.items()) if not isinstance(value, _Value)]
        if rows:
            print("\n".join(self._table(rows)), file=self.file, flush=True)

    def _table(self, rows: list[tuple[str, Any]]) -> list[str]:
        """Lines: names below their groups, padded to the longest."""
        shown: list[tuple[str, str]] = []
        group = ""
        for key, value in rows:
            own, slash, name = key.partition("/")
            if slash and own != group:
                group = own
                shown.append((self._cut(f"{own}/"), ""))
            text = f"{value:<8.3g}" if isinstance(value, float | np.floating) else str(value)
            shown.append((self._cut(f"   {name}" if slash else key), self._cut(text)))
        names, values = (max(map(len, column)) for column in zip(*shown, strict=True))
        line = "-" * (names + values + 7)
        return [line, *(f"| {name:<{names}} | {value:<{values}} |" for name, value in shown), line]

    def _cut(self, text: str) -> str:
        return text if len(text) <= self.max_length else f"{text[: self.max_length - 3]}..."

    def write_sequence(self, sequence):
        print(*sequence, file=self.file, flush=True)

    def close(self):
        if self.own_file:
            self.file.close()


class JSONOutputFormat(KVWriter):
    """A line of JSON for each dump.

    Args:
        filename: path of the file.
    """

    def __init__(self, filename: str | os.PathLike):
        self.file = open(filename, "w")  # noqa: SIM115  (closed by close)

    def write(self, key_values, key_excluded, step=0):
        kept = filter_excluded_keys(key_values, key_excluded, "json")
        _refuse_objects(kept, "json")
        plain = {key: value.item() if hasattr(value, "item") else value for key, value in kept.items()}
        self.file.write(json.dumps(plain) + "\n")
        self.file.flush()

    def close(self):
        self.file.close()


class CSVOutputFormat(KVWriter):
    """Rows of a table, which gets further columns when further names come.

    Args:
        filename: path of the file.
    """

    def __init__(self, filename: str | os.PathLike):
        self._path, self.keys = Path(filename), []
        self._rows: list[dict[str, Any]] = []
        self._path.write_text("")

    def write(self, key_values, key_excluded, step=0):
        kept = filter_excluded_keys(key_values, key_excluded, "csv")
        _refuse_objects(kept, "csv")
        new = sorted(kept.keys() - set(self.keys))
        self.keys += new
        self._rows.append(kept)
        with self._path.open("w" if new else "a", newline="") as file:
            writer = csv.DictWriter(file, self.keys, restval="", lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerows(self._rows if new else [kept])


class TensorBoardOutputFormat(KVWriter):
    """TensorBoard's events.

    Args:
        folder: folder of the file.
    """

    def __init__(self, folder: str | os.PathLike):
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(log_dir=str(folder))

    def write(self, key_values, key_excluded, step=0):
        for key, value in sorted(filter_excluded_keys(key_values, key_excluded, "tensorboard").items()):
            if isinstance(value, str):
                self.writer.add_text(key, value, step)
            elif isinstance(value, Figure):
                self.writer.add_figure(key, value.figure, step, close=value.close)
            elif isinstance(value, Image):
                self.writer.add_image(key, np.asarray(value.image), step, dataformats=value.dataformats)
            elif isinstance(value, Video):
                self.writer.add_video(key, np.asarray(value.frames), step, value.fps)
            elif isinstance(value, HParam):
                self.writer.add_hparams(value.hparam_dict, value.metric_dict)
            elif value is not None:
                self.writer.add_scalar(key, float(value), step)
        self.writer.flush()

    def close(self):
        self.writer.close()


class EventsOfRun(TensorBoardOutputFormat):
    """What a run's own events have not: pictures, films, settings, and what a program adds by `writer`.

    Numbers and texts come from the run's results. The file is made when it is first needed, and once `learn` writes
    into another directory, a further one there.

    Args:
        model: whose run it is.
    """

    def __init__(self, model: Any):
        self._model, self._writers = model, {}

    @property
    def writer(self) -> Any:
        """tensorboardX's SummaryWriter of the run's present directory."""
        from tensorboardX import SummaryWriter

        folder = str(self._model.directory)
        if folder not in self._writers:
            self._writers[folder] = SummaryWriter(log_dir=folder)
        return self._writers[folder]

    def write(self, key_values, key_excluded, step=0):
        if objects := {key: value for key, value in key_values.items() if isinstance(value, _Value)}:
            super().write(objects, key_excluded, step)

    def close(self):
        for writer in self._writers.values():
            writer.close()
        self._writers = {}


def _refuse_objects(values: Mapping[str, Any], output: str) -> None:
    for value in values.values():
        if isinstance(value, _Value):
            raise FormatUnsupportedError([output], type(value).__name__.lower())


def make_output_format(_format: str, log_dir: str, log_suffix: str = "") -> KVWriter:
    """An output by its name.

    Args:
        _format: "stdout", "log", "json", "csv" or "tensorboard".
        log_dir: directory of its file.
        log_suffix: suffix of the file's name.

    Raises:
        ValueError: for another name.
    """
    directory = Path(log_dir)
    directory.mkdir(parents=True, exist_ok=True)
    makers = {
        "stdout": lambda: HumanOutputFormat(sys.stdout),
        "log": lambda: HumanOutputFormat(str(directory / f"log{log_suffix}.txt")),
        "json": lambda: JSONOutputFormat(directory / f"progress{log_suffix}.json"),
        "csv": lambda: CSVOutputFormat(directory / f"progress{log_suffix}.csv"),
        "tensorboard": lambda: TensorBoardOutputFormat(directory),
    }
    if _format not in makers:
        raise ValueError(f"there is no output {_format!r}; there are {', '.join(makers)}")
    return makers[_format]()


class Logger(OfResults):
    """Takes values by name; a dump gives them to the outputs, and the next result of `train()` has them as well.

    Args:
        folder: folder of the outputs' files; None: none.
        output_formats: the outputs.
    """

    def __init__(self, folder: str | None, output_formats: Sequence[KVWriter]):
        super().__init__(folder)
        self.dir, self.output_formats = folder, list(output_formats)
        self.level = INFO
        self._dumped: dict[str, Any] = {}
        self.name_to_excluded: dict[str, tuple[str, ...]] = {}

    def get_dir(self) -> str | None:
        """Directory of the outputs' files."""
        return self.dir

    def set_level(self, level: int) -> None:
        """Sets the least level of messages that `log` writes."""
        self.level = level

    def record(self, key: str, value: Any, exclude: str | tuple[str, ...] | None = None) -> None:
        """Takes a value; a later one of the same name replaces it.

        Args:
            key: "group/name".
            value: a number, a text, or a Video, Figure, Image or HParam.
            exclude: outputs that do not get it.
        """
        self.name_to_excluded[key] = (exclude,) if isinstance(exclude, str) else tuple(exclude or ())
        if isinstance(value, _Value):
            self.name_to_value[key] = value
        else:
            super().record(key, value)

    def dump(self, step: int = 0) -> None:
        """Gives the values to the outputs, and forgets them."""
        self.write(self.name_to_value, step)
        self._dumped |= {key: value for key, value in self.name_to_value.items() if not key.startswith(_OF_RESULTS)}
        self.name_to_value, self._counts = {}, {}

    def write(self, values: Mapping[str, Any], step: int) -> None:
        """Gives values to the outputs."""
        if self.level == DISABLED:
            return
        excluded = {key: self.name_to_excluded.get(key) or () for key in values}  # programs read both by the same names
        for output in self.output_formats:
            output.write(dict(values), dict(excluded), step)

    def log(self, *args: Any, level: int = INFO) -> None:
        """Writes a message to the outputs that take texts."""
        if self.level <= level:
            for output in self.output_formats:
                if isinstance(output, SeqWriter):
                    output.write_sequence(list(map(str, args)))

    def move_into(self, result) -> None:
        """Adds the numbers and texts to a result, and forgets all values."""
        both, self._dumped = {**self._dumped, **self.name_to_value}, {}
        self.name_to_value = {key: value for key, value in both.items() if not isinstance(value, _Value)}
        super().move_into(result)

    def close(self) -> None:
        """Closes the outputs."""
        for output in self.output_formats:
            output.close()


def configure(folder: str | os.PathLike | None = None, format_strings: Sequence[str] | None = None) -> Logger:
    """A logger for `model.set_logger`.

    Args:
        folder: folder of its files; None: SB3_LOGDIR, or a new one for temporary files.
        format_strings: names of outputs (`make_output_format`); None: SB3_LOG_FORMAT, or "stdout", "log" and "csv".
    """
    if folder is None:
        usual = Path(tempfile.gettempdir()) / datetime.now().strftime("SB3-%Y-%m-%d-%H-%M-%S-%f")
        folder = os.environ.get("SB3_LOGDIR", usual)
    if format_strings is None:
        format_strings = os.environ.get("SB3_LOG_FORMAT", "stdout,log,csv").split(",")
    formats = [name for name in format_strings if name]
    outputs = [make_output_format(name, str(folder)) for name in formats]
    logger = Logger(str(folder), outputs)
    if formats and formats != ["stdout"]:
        logger.log(f"Logging to {folder}")
    return logger


def read_json(filename: str) -> Any:
    """What JSONOutputFormat wrote, as a DataFrame."""
    import pandas

    with open(filename) as file:
        return pandas.DataFrame([json.loads(line) for line in file])


def read_csv(filename: str) -> Any:
    """What CSVOutputFormat wrote, as a DataFrame."""
    import pandas

    return pandas.read_csv(filename, index_col=None, comment="#")
