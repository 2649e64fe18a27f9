"""Readers of the user's own, which `input_` names by functions of an IOContext (RLlib's InputReader API)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rllib.config.io_context import IOContext
from rllib.offline.files import record_pieces
from rllib.offline.options import ReadOptions
from rllib.offline.records import Records, renamed
from rllib.registered import INPUTS
from rllib.sample_batch import SampleBatch

# Bytes of a file that a JsonReader has in memory, about.
_PIECE_BYTES = 16 << 20


class InputReader(ABC):
    """A reader of the user's own, which a run asks for a batch in each of its rounds."""

    @abstractmethod
    def next(self) -> SampleBatch | Mapping[str, Any]:
        """The next steps by RLlib's names: at least obs and actions [rows, ...], in whole episodes or parts of them.

        Raises:
            StopIteration: if there are no more; the reader is then made again.
        """


class JsonReader(InputReader):
    """Reads files of recorded steps, line by line, again and again; a run reads them as if it was given the paths.

    Args:
        inputs: files, directories, patterns, or a list of them, of any format that can be read.
        ioctx: of the run; not needed.
    """

    def __init__(self, inputs, ioctx: IOContext | None = None):
        self.inputs, self.ioctx = inputs, ioctx or IOContext()
        self._batches: Iterator[SampleBatch] | None = None

    def next(self) -> SampleBatch:
        """The batch of the next line; after the last line comes the first again."""
        if self._batches is None:
            self._batches = self.read_all_files()
        batch = next(self._batches, None)
        if batch is None:
            self._batches = self.read_all_files()
            batch = next(self._batches)
        return batch

    def read_all_files(self) -> Iterator[SampleBatch]:
        """The batch of each line, once; of formats without lines, of each piece."""
        for records in record_pieces(self.inputs, ReadOptions(), _PIECE_BYTES):
            yield from _batches(renamed(records, None))


def _batches(records: Records) -> Iterator[SampleBatch]:
    stops = [first for first, _ in records.parts[1:]] + [len(records)]
    for (first, _), stop in zip(records.parts, stops):  # the first may have begun in records before
        yield SampleBatch({name: column[max(first, 0) : stop] for name, column in records.columns.items()})


def register_input(name: str, input_creator: Callable[[IOContext], Any]) -> None:
    """Registers a reader of recorded steps, for .offline_data(input_=NAME).

    Args:
        name: name of the reader.
        input_creator: function of an IOContext that returns an InputReader, or data: a Dataset, arrays, a table, paths.

    Raises:
        TypeError: if name is no string, or the function cannot be called.
    """
    INPUTS.register(name, input_creator)
