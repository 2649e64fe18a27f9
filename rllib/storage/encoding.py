"""Lossless conversion of Python values to JSON and back, for checkpoints. Reading runs no code.

Values that JSON supports are written unchanged. Any other value is a dict with one key that starts with "$":

| value                                | JSON                                                                        |
|--------------------------------------|-----------------------------------------------------------------------------|
| infinite and NaN floats              | {"$float": "inf"}, "-inf" or "nan"                                          |
| tuple                                | {"$tuple": [...]}                                                           |
| dict with other keys than strings    | {"$dict": [[key, value], ...]}; dicts with keys that start with "$" as well |
| numpy array or scalar (shape null)   | {"$array": {"dtype": "float32", "shape": [2], "data": [0.5, 1.5]}}          |
| array of more than 256 numbers       | the same, with "data": the little-endian numbers in base64                  |
| gymnasium space                      | {"$space": {"type": "Discrete", "n": 2, "start": 0, "dtype": "int64"}}      |
| bytes                                | {"$bytes": "base64"}                                                        |
| set, frozenset                       | {"$set": [...]}, {"$frozenset": [...]}                                      |
| OrderedDict of a torch state         | {"$ordered": {"items": [[key, value], ...], "metadata": ...}}               |
| array in a separate file             | {"$tensor": {"name": "0"}}, with "device" for a torch tensor                |
| ByArguments of the library           | {"$object": {"class": "module:qualname", "arguments": {...}}}               |
| path, date, range, Decimal, dtype    | {"$plain": {"date": "2020-01-01"}}, and further kinds of plain_values.py   |
| member of an enumeration             | {"$enum": ["module:qualname", "NAME"]}                                      |
| class or function that has a name    | {"$import": "module:qualname"}                                              |
| anything else                        | {"$pickle": "place"}: the value itself is returned to be pickled            |
"""

import base64
import importlib
import math
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from rllib.storage.by_arguments import ByArguments, is_library_path
from rllib.storage.pickle_scan import refuse_collisions
from rllib.storage.plain_values import enum_member, enum_path, plain_value, written_plain
from rllib.storage.tensor_file import DTYPES

# Of the spaces in one file, all together: a bound that all numbers share is written once, however many they are.
MOST_NUMBERS = 2**24
_COLLECTIONS = (list, tuple, set, frozenset)
# Numbers of the largest array that is written to be read by people.
_READABLE = 256
# Devices that a file can name.
_DEVICE = re.compile(r"cpu|cuda(:\d{1,3})?")


@dataclass(frozen=True)
class UserCode:
    """A placeholder for a class, function or object of the user's that has not been loaded.

    Args:
        reference: "module:qualname", or the place of the pickled value.
    """

    reference: str


def encode(value, place: str = "", pickled: dict[str, Any] | None = None, arrays: dict[str, Any] | None = None):
    """Encodes a value as JSON-able data.

    Args:
        value: anything.
        place: path of the value in the data, for messages and for the names of pickled values.
        pickled: receives the values that JSON cannot hold, by place.
        arrays: receives numpy arrays and torch tensors, as arrays, by a name, to be written into a file of tensors;
            without it arrays are in the JSON, and tensors are values that JSON cannot hold.

    Raises:
        TypeError: for a value that JSON cannot hold, if `pickled` is None.
    """
    return _Encoder(pickled, arrays).value(value, place)


def decode(data, load: Callable[[str, str], Any] | None = None, arrays: Mapping[str, Any] | None = None):
    """Decodes the result of `encode`; user code becomes a UserCode unless `load` is given.

    Args:
        data: what `encode` returned, or json.loads of it.
        load: load("import" or "pickle", reference) returns the class, function or object.
        arrays: what `encode` has put into its `arrays`.

    Raises:
        ValueError: for a kind of value that this version does not know, and for spaces of more than MOST_NUMBERS.
        Exception: of another type, for data that `encode` has not returned.
    """
    return _Decoder(load, arrays or {}).value(data)


class _Encoder:
    """Encodes the values of one file; see `encode`."""

    def __init__(self, pickled: dict[str, Any] | None, arrays: dict[str, Any] | None):
        self._pickled, self._arrays = pickled, arrays

    def value(self, value, place: str):
        if (member := enum_path(value)) is not None:
            return {"$enum": member}
        if value is None or isinstance(value, (bool, str)):
            return value
        if type(value) is int:
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"$float": str(value)}
        if type(value) is bytes:
            return {"$bytes": base64.b64encode(value).decode()}
        if type(value) in _COLLECTIONS:
            items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
            encoded = [self.value(item, _within(place, i)) for i, item in enumerate(items)]
            return encoded if type(value) is list else {f"${type(value).__name__}": encoded}
        if type(value) is OrderedDict and self._arrays is not None:
            metadata = self.value(vars(value).get("_metadata"), f"{place} (metadata)")
            return {"$ordered": {"items": self._pairs(value, place), "metadata": metadata}}
        if isinstance(value, dict):
            return self._dict(value, place)
        if self._arrays is not None and (type(value) is np.ndarray or is_tensor(value)):
            return {"$tensor": self._tensor(value)}
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf":
            return {"$array": _encode_array(value)}
        if isinstance(value, UserCode):
            raise TypeError(f"{place} is {value}, which has not been loaded, so it cannot be written again")
        if _is_space(value):
            return {"$space": space_to_json(value)}
        if isinstance(value, ByArguments) and is_library_path(kind := importable_path(type(value)) or ""):
            return {"$object": {"class": kind, "arguments": self.value(value.arguments(), place)}}
        if (plain := written_plain(value)) is not None:
            return {"$plain": plain}
        path = importable_path(value)
        if path is not None:
            return {"$import": path}
        if self._pickled is None:
            raise TypeError(f"{place or 'the value'} must be plain data, but it is {value!r} ({type(value).__name__})")
        name, count = place, 1
        while name in self._pickled:  # the places of keys, and of keys with the same text, are the same
            count += 1
            name = f"{place} ({count})"
        self._pickled[name] = value
        return {"$pickle": name}

    def _dict(self, value: dict, place: str) -> dict:
        if all(isinstance(key, str) and not isinstance(key, Enum) and not key.startswith("$") for key in value):
            return {key: self.value(item, _within(place, key)) for key, item in value.items()}
        return {"$dict": self._pairs(value, place)}

    def _pairs(self, value: dict, place: str) -> list:
        return [
            [self.value(key, f"a key of {place}"), self.value(item, _within(place, key))] for key, item in value.items()
        ]

    def _tensor(self, value) -> dict:
        name = str(len(self._arrays))
        if type(value) is np.ndarray:
            self._arrays[name] = value
            return {"name": name}
        self._arrays[name] = value.cpu().numpy()
        return {"name": name, "device": str(value.device)}


def _within(place: str, key) -> str:
    return f"{place}.{key}" if place else str(key)


def _encode_array(value) -> dict:
    array = np.asarray(value)
    data: str | list
    if array.size > _READABLE and array.dtype.name in DTYPES:
        data = base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode()
    else:
        data = [encode(number) for number in array.reshape(-1).tolist()]
    return {
        "dtype": array.dtype.name,
        "shape": None if isinstance(value, np.generic) else list(array.shape),
        "data": data,
    }


def _library_class(value):
    """The library's class that has not been loaded; any other value as it is."""
    is_one = isinstance(value, UserCode) and is_library_path(value.reference)
    return import_path(value.reference) if is_one else value


class _Decoder:
    """Decodes the values of one file. Memory is bounded by the file's size, and for spaces by MOST_NUMBERS."""

    def __init__(self, load: Callable[[str, str], Any] | None, arrays: Mapping[str, Any]):
        self._load, self._arrays, self._left = load, dict(arrays), MOST_NUMBERS

    def value(self, data):
        if isinstance(data, list):
            return [self.value(item) for item in data]
        if not isinstance(data, dict):
            return data
        kind = next(iter(data), "")
        if len(data) != 1 or not kind.startswith("$"):
            return {key: self.value(item) for key, item in data.items()}
        content = data[kind]
        match kind:
            case "$import" | "$pickle":
                return self._load(kind[1:], content) if self._load else UserCode(content)
            case "$plain":
                ((of, written),) = content.items()
                return plain_value(of, written)
            case "$enum":
                return self._member(*content)
            case "$float":
                return float(content)
            case "$tuple":
                return tuple(map(self.value, content))
            case "$set":
                return set(refuse_collisions(map(self.value, content)))
            case "$frozenset":
                return frozenset(refuse_collisions(map(self.value, content)))
            case "$bytes":
                return base64.b64decode(content, validate=True)
            case "$dict":
                keys = refuse_collisions(self.value(key) for key, _ in content)
                return {key: self.value(item) for key, (_, item) in zip(keys, content)}
            case "$ordered":
                return self._ordered(**content)
            case "$tensor":
                return self._tensor(**content)
            case "$object":
                return self._object(content["class"], self.value(content["arguments"]))
            case "$array":
                return self._array(**content)
            case "$space":
                self._left -= _bounds_of(content)
                if self._left < 0:
                    raise ValueError(f"its spaces have more than {MOST_NUMBERS:,} numbers")
                return space_from_json(content)
        raise ValueError(f"{kind!r} is no kind of value that this version of rllib knows; a newer one has written it")

    def _member(self, path: str, name: str):
        """A member of an enumeration that is imported already; of another one it is the user's code."""
        if (member := enum_member(path, name)) is not None:
            return member
        return self._load("import", path)[name] if self._load else UserCode(path)

    def _object(self, path: str, arguments: dict):
        made = import_path(path) if is_library_path(path) else None
        if not isinstance(made, type) or not issubclass(made, ByArguments):
            raise ValueError(f"{path!r:.80} is no class whose objects this version of rllib makes from a file")
        arguments = {name: _library_class(value) for name, value in arguments.items()}
        # With an argument that has not been loaded the object has not been loaded either.
        unloaded = [value for value in arguments.values() if isinstance(value, UserCode)]
        return unloaded[0] if unloaded else made(**arguments)

    def _ordered(self, items: list, metadata) -> OrderedDict:
        keys = refuse_collisions(self.value(key) for key, _ in items)
        made = OrderedDict((key, self.value(item)) for key, (_, item) in zip(keys, items))
        if metadata is not None:
            made._metadata = self.value(metadata)
        return made

    def _tensor(self, name: str, device: str | None = None):
        array = self._arrays.pop(name)
        if device is None:
            return array
        if not _DEVICE.fullmatch(device):
            raise ValueError(f"{device!r:.40} is no device of a tensor that is written")
        import torch

        # A machine with fewer GPUs reads it as well.
        exists = (torch.device(device).index or 0) < torch.cuda.device_count()
        return torch.from_numpy(array).to(device if exists else "cpu")

    def _array(self, dtype: str, shape: list[int] | None, data: list | str):
        if isinstance(data, str):
            stored = np.frombuffer(base64.b64decode(data, validate=True), _dtype(dtype).newbyteorder("<"))
            flat = stored.astype(_dtype(dtype))
        else:
            flat = np.array([self.value(number) for number in data], _dtype(dtype))
        return flat.dtype.type(flat[0]) if shape is None else flat.reshape(shape)


def _dtype(name: str) -> np.dtype:
    """Dtype by its name; numpy itself would accept texts of any length and meaning."""
    if name not in DTYPES:
        raise ValueError(f"{name!r:.40} is no type of numbers that are written")
    return np.dtype(name)


def _bounds_of(data: Mapping) -> int:
    """Length of each bound of a space in JSON, summed over its parts."""
    if data["type"] in ("Dict", "Tuple"):
        parts = (part[1] for part in data["spaces"]) if data["type"] == "Dict" else data["spaces"]
        return sum(map(_bounds_of, parts))
    shape = {"Box": data.get("shape", ()), "MultiBinary": data.get("n", ())}.get(data["type"], ())
    sizes = [shape] if isinstance(shape, int) else shape
    if any(type(size) is not int or size < 0 for size in sizes):
        raise ValueError(f"{shape!r:.40} is no shape of a space")
    return math.prod(sizes)


# ---------------------------------------------------------------------- classes and functions


def importable_path(target) -> str | None:
    """ "module:qualname" if importing it gives this object in other processes as well, else None."""
    module, qualname = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str) or module == "__main__" or "<" in qualname:
        return None
    found = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return f"{module}:{qualname}" if found is target else None


def import_path(path: str):
    """Imports the class or function of a path of `importable_path`.

    Raises:
        ValueError: if it cannot be imported here.
    """
    module, _, qualname = path.partition(":")
    try:
        found = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{path} cannot be imported here: {error}. Install it, or start where it lies.") from error
    return found


# ---------------------------------------------------------------------- tensors


def is_tensor(value) -> bool:
    """Whether a value is a torch tensor that files of tensors can hold: dense, without gradient, of a known dtype."""
    torch = sys.modules.get("torch")  # without it there is no tensor
    return (
        torch is not None
        and type(value) is torch.Tensor
        and value.layout == torch.strided
        and not (value.requires_grad or value.is_conj() or value.is_neg())
        and _DEVICE.fullmatch(str(value.device)) is not None
        and str(value.dtype).removeprefix("torch.") in DTYPES
    )


# ---------------------------------------------------------------------- spaces


def _is_space(value) -> bool:
    gymnasium = sys.modules.get("gymnasium")  # without it there is no space
    return gymnasium is not None and isinstance(value, gymnasium.spaces.Space)


def space_to_json(space) -> dict:
    """A gymnasium space as JSON-able data, exactly: bounds, dtypes, starts and the order of keys.

    Raises:
        ValueError: for kinds of spaces other than Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        if math.prod(space.shape) > MOST_NUMBERS:
            raise ValueError(f"a space of shape {space.shape} cannot be written: more than {MOST_NUMBERS:,} numbers")
        return {
            "type": "Box",
            "shape": list(space.shape),
            "dtype": space.dtype.name,
            "low": _bound_to_json(space.low, space.bounded_below, -math.inf),
            "high": _bound_to_json(space.high, space.bounded_above, math.inf),
        }
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": space.dtype.name}
    if isinstance(space, spaces.MultiDiscrete):
        nvec, start = space.nvec.tolist(), space.start.tolist()
        return {"type": "MultiDiscrete", "nvec": nvec, "start": start, "dtype": space.dtype.name}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "n": space.n if isinstance(space.n, int) else [int(n) for n in space.n]}
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "spaces": [[encode(key), space_to_json(part)] for key, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [space_to_json(part) for part in space.spaces]}
    raise ValueError(
        f"{space} cannot be written: {type(space).__name__} spaces are not supported. Supported are Box, Discrete, "
        "MultiDiscrete, MultiBinary, Dict and Tuple."
    )


def space_from_json(data: Mapping):
    """Reads the result of `space_to_json`.

    Raises:
        ValueError: for an unknown kind of space.
    """
    from gymnasium import spaces

    kind = data["type"]
    if kind == "Box":
        return _box_from_json(spaces.Box, data)
    if kind == "Discrete":
        # Discrete spaces have a dtype only in newer versions of gymnasium; int64 was and is the usual one.
        dtype = {} if data["dtype"] == "int64" else {"dtype": _dtype(data["dtype"]).type}
        return spaces.Discrete(data["n"], start=data["start"], **dtype)
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(data["nvec"], dtype=_dtype(data["dtype"]).type, start=data["start"])
    if kind == "MultiBinary":
        return spaces.MultiBinary(data["n"])
    if kind == "Dict":
        keys = refuse_collisions(decode(key) for key, _ in data["spaces"])
        return spaces.Dict([(key, space_from_json(part)) for key, (_, part) in zip(keys, data["spaces"])])
    if kind == "Tuple":
        return spaces.Tuple([space_from_json(part) for part in data["spaces"]])
    raise ValueError(f"{kind!r} is no kind of space that this version of rllib knows")


def _bound_to_json(bound: np.ndarray, bounded: np.ndarray, infinity: float):
    """One number if all bounds are equal, as in most spaces; else a flat list of them.

    An unbounded Box of integers has the least or greatest integer as its bound; this is written as "inf", too.
    """
    exact = zip(bound.reshape(-1).tolist(), bounded.reshape(-1).tolist())
    numbers = [encode(number if is_bounded else infinity) for number, is_bounded in exact]
    return numbers[0] if numbers and all(number == numbers[0] for number in numbers) else numbers


def _box_from_json(box_class, data: Mapping):
    shape, dtype = tuple(data["shape"]), _dtype(data["dtype"])
    bounds, bounded = [], []
    for name in ("low", "high"):
        numbers = [decode(number) for number in (data[name] if isinstance(data[name], list) else [data[name]])]
        is_bounded = [number not in (-math.inf, math.inf) for number in numbers]
        if dtype.kind == "i":
            limit = np.iinfo(dtype).min if name == "low" else np.iinfo(dtype).max
            numbers = [number if finite else limit for number, finite in zip(numbers, is_bounded)]
        for found, written in ((bounds, np.array(numbers, dtype)), (bounded, np.array(is_bounded))):
            found.append(written.reshape(shape) if isinstance(data[name], list) else np.full(shape, written[0]))
    box = box_class(*bounds, shape, dtype.type)
    box.bounded_below, box.bounded_above = bounded
    return box
