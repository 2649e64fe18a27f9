"""The zip that `model.save` writes, read as data.

data                        settings and spaces, JSON; objects in it are pickles in base64, which are not read, with
                            their readable fields next to them
policy.pth                  parameters of all networks
pytorch_variables.pth       the temperature of SAC and TQC
*.optimizer.pth             memories of the optimizers, which are not read
_stable_baselines3_version  a text
"""

import io
import pickle
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rllib.errors import DamagedFileError
from rllib.storage.foreign_files import WRONG_FORM, json_object, open_inside
from rllib.storage.pickle_scan import check_opcodes

# An entry may be larger than the whole zip by this factor, plus a MiB: settings are texts, parameters hardly compress.
_MOST_TIMES = 50
_MEBIBYTE = 2**20
# Parameters of a shared features extractor occur under three names.
_MOST_NAMES = 4
_SERIALIZED, _TYPE = ":serialized:", ":type:"
_CLASS = re.compile(r"<class '(?P<path>[\w.]+)'>")


@dataclass(frozen=True)
class SavedModel:
    """Content of the zip of a model.

    Attributes:
        path: path of the zip.
        data: settings and other attributes of the model; objects are dicts of their readable fields, with their type
            under ":type:".
        parameters: of the networks, by name.
        variables: further tensors, by name.
        version: version of Stable-Baselines3; "" if it is not known.
    """

    path: Path
    data: dict[str, Any]
    parameters: dict[str, np.ndarray]
    variables: dict[str, np.ndarray]
    version: str

    def plain(self, name: str, default=None):
        """A setting that is plain data; the default if it is missing, or is an object, which is not read."""
        value = self.data.get(name, default)
        return default if is_object(value) else value

    @property
    def policy_kwargs(self) -> dict[str, Any]:
        """Settings of the networks; classes are their paths, "torch.nn.modules.activation.ReLU"."""
        given = self.data.get("policy_kwargs") or {}
        return {
            name: found["path"] if isinstance(value, str) and (found := _CLASS.fullmatch(value)) else value
            for name, value in given.items()
            if not name.startswith(":")
        }


def is_object(value) -> bool:
    """Whether a value of `data` represents a pickled object."""
    return isinstance(value, dict) and _SERIALIZED in value


def type_of(value) -> str:
    """Name of the class of a pickled object, such as "Box"; "" if it is none."""
    text = value.get(_TYPE) if isinstance(value, dict) else None
    found = _CLASS.fullmatch(text) if isinstance(text, str) else None
    return found["path"].rpartition(".")[2] if found else ""


def read_model(path: Path) -> SavedModel:
    """Reads a zip without running anything in it.

    Raises:
        DamagedFileError: (a ValueError) if the file is no such zip, cut off, or holds more than settings and tensors.
        OSError: if the file cannot be opened.
    """
    if path.is_dir():
        raise DamagedFileError(f"{path} is a directory, and a model is a zip")
    whole = path.resolve()
    with open_inside(whole.parent, whole.name) as file:
        try:
            return _read(path, file)
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError, *WRONG_FORM) as error:
            raise DamagedFileError(f"{path} is no model of Stable-Baselines3, or damaged: {error}") from None


def _read(path: Path, file: BinaryIO) -> SavedModel:
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
        for name in ("data", "policy.pth"):
            if name not in names:
                raise DamagedFileError(f"it has no entry {name!r}, which `model.save` writes")
        data = json_object(_content(archive, "data"))
        parameters = _tensors(_content(archive, "policy.pth"), "policy.pth")
        variables: dict[str, np.ndarray] = {}
        if "pytorch_variables.pth" in names:
            variables = _tensors(_content(archive, "pytorch_variables.pth"), "pytorch_variables.pth")
        version = "_stable_baselines3_version"
        version = _content(archive, version).decode(errors="replace")[:20] if version in names else ""
    return SavedModel(path, data, parameters, variables, version)


def _content(archive: zipfile.ZipFile, name: str) -> bytes:
    """Content of an entry, unless it would grow to far more than the file."""
    size = archive.fp.seek(0, io.SEEK_END)
    limit = _MOST_TIMES * size + _MEBIBYTE
    with archive.open(name) as entry:
        content = entry.read(limit + 1)
    if len(content) > limit:
        raise DamagedFileError(f"its entry {name!r} grows to more than {limit:,} bytes, from a file of {size:,}")
    return content


def _tensors(content: bytes, name: str) -> dict[str, np.ndarray]:
    """Tensors of a file of torch.save as arrays, by name; it may hold nothing else."""
    import torch

    content = _checked(content, name)
    try:
        found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DamagedFileError(f"{name} holds other things than tensors: {_first_line(error)}") from None
    except Exception as error:  # a damaged file raises anything
        raise DamagedFileError(f"{name} cannot be read: {_first_line(error)}") from None
    if not isinstance(found, dict):
        raise DamagedFileError(f"{name} holds {type(found).__name__} instead of tensors by name")
    return _arrays({key: value for key, value in found.items() if value is not None}, name, _MOST_NAMES * len(content))


def _checked(content: bytes, name: str) -> bytes:
    """A file of torch, rewritten with the checked entries only, as torch reads zips in its own way.

    Compressed entries are refused, since they could grow without bound and torch writes none, and so are pickles that
    would end or occupy the process, which torch does not prevent.
    """
    try:
        inner = zipfile.ZipFile(io.BytesIO(content))
    except zipfile.BadZipFile:
        raise DamagedFileError(f"{name} is no file that torch.save writes since 1.6") from None
    entries = inner.infolist()
    if any(each.compress_type != zipfile.ZIP_STORED for each in entries):
        raise DamagedFileError(f"{name} is compressed, and torch.save compresses nothing")
    if sum(each.file_size for each in entries) > len(content):
        raise DamagedFileError(f"{name} says that its entries are larger than itself")
    if len({each.filename.lower() for each in entries}) < len(entries):
        raise DamagedFileError(f"{name} has two entries of one name")
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as copy:
        for each in entries:
            part = inner.read(each)
            if each.filename.lower().endswith(".pkl"):
                check_opcodes(part, name)
            copy.writestr(each.filename, part)
    return written.getvalue()


def _arrays(tensors: dict, name: str, most_bytes: int) -> dict[str, np.ndarray]:
    """The tensors as arrays. Each may be a view that repeats a few numbers without end, or all of another's numbers."""
    arrays = {}
    for key, value in tensors.items():
        most_bytes -= value.numel() * value.element_size() if hasattr(value, "numel") else 0
        if most_bytes < 0:
            raise DamagedFileError(f"{name}: {key!r:.60} and the tensors before it are larger than their file")
        arrays[key] = _array(value, f"{name}: {key!r:.60}")
    return arrays


def _array(value, what: str) -> np.ndarray:
    import torch

    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_quantized:
        raise DamagedFileError(f"{what} is no plain tensor")
    if not (value.is_floating_point() or value.dtype == torch.int64):
        raise DamagedFileError(f"{what} is of {value.dtype}, and parameters are floating-point numbers")
    return value.detach().to(torch.float32).numpy().copy()


def _first_line(error: Exception) -> str:
    """The part of torch's message with the reason, without its advice to trust the file."""
    text = str(error)
    if found := re.search(r"Unsupported (?:global|class)[^\n]*|GLOBAL [\w.]+", text):
        return found[0][:200]
    return text.strip().partition("\n")[0][:200]
