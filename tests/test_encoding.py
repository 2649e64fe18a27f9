"""Every value comes back as it was, through real JSON text."""

import enum
import inspect
import json
import math
import subprocess
import sys
from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rllib.storage.encoding import (
    UserCode,
    decode,
    encode,
    import_path,
    importable_path,
    space_from_json,
    space_to_json,
)
from rllib.storage.foreign_files import WRONG_FORM


def through_json(value):
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


def identical(one, other) -> bool:
    """Equality that tells types, dtypes, -0.0 and NaN apart."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        same_layout = (one.dtype, one.shape) == (other.dtype, other.shape)
        return same_layout and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (
            math.copysign(1, one) == math.copysign(1, other) and one == other
        )
    if isinstance(one, dict):
        return list(one) == list(other) and all(identical(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(identical, one, other))
    return one == other


arrays = hnp.arrays(
    st.sampled_from(["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint64", "bool"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), arrays,
    arrays.filter(lambda array: array.shape == () and array.size).map(lambda array: array[()]),
)  # fmt: skip
keys = st.one_of(st.text(max_size=4), st.integers(-3, 3), st.sampled_from(["$float", "$", "$import"]))
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
        st.dictionaries(st.tuples(keys), inner, max_size=2),
    ),
    max_leaves=8,
)


@settings(deadline=None)  # the machine may be busy
@given(trees)
def test_plain_values_of_all_kinds_come_back_identical(value):
    assert identical(through_json(value), value)


class Colour(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    ONE = "one"


class Bits(enum.Flag):
    LOW = 1
    HIGH = 2


OF_LIBRARIES = {
    repr(value): value
    for value in (
        Path("/data"), PurePosixPath("a/b"), PureWindowsPath("C:/a"), date(2020, 1, 1), time(1, 2, 3, 4),
        datetime(2020, 1, 1, 2, tzinfo=UTC), datetime(2020, 1, 1, 2), timedelta(-1, 5, 7), range(3, 9, 2), range(0),
        slice(None, 2), slice(1, 9, -1), 1j, complex(-0.0, math.inf), Decimal("1.50"), Decimal("NaN"), Fraction(-1, 3),
        UUID(int=5), np.dtype("f4"), np.dtype(">i8"), np.dtype(bool), int, float, dict, np.float32, torch.float32,
        torch.bfloat16, torch.device("cpu"), torch.device("cuda:1"), Colour.RED, Word.ONE, Bits.HIGH,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", OF_LIBRARIES)
def test_values_of_pythons_and_numpys_types_are_data(name):
    value = OF_LIBRARIES[name]
    for nested in (value, [value], {"a": (value,)}, {value: 1} if value.__hash__ else value):
        found = through_json(nested)
        assert type(found) is type(nested) and repr(found) == repr(nested)


@pytest.mark.parametrize(
    "value",
    [
        slice([1], object()),
        np.dtype([("a", "f4")]),
        np.dtype(object),
        datetime(2020, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        Bits.LOW | Bits.HIGH,
        eval,
    ],
)
def test_what_these_kinds_cannot_hold_is_not_changed_in_silence(value):
    pickled = {}
    assert next(iter(encode(value, "here", pickled))) in ("$pickle", "$import")


@pytest.mark.parametrize(
    "kind, content",
    [
        ("type", "eval"), ("type", "os.system"), ("dtype", "O"), ("dtype", "f4,f4"), ("torch_dtype", "load"),
        ("torch_device", "meta"), ("fraction", "1e999999999"), ("path", ["a"]), ("range", ["a"]), ("date", "x"),
        ("import", "os:system"), ("slice", 1), ("complex", "x"), ("timedelta", [10**12, 0, 0]),
    ],
)  # fmt: skip
def test_what_no_value_has_written_is_refused(kind, content):
    with pytest.raises(WRONG_FORM):
        decode({"$plain": {kind: content}})


@pytest.mark.parametrize("path", ["antigravity:Colour", "os:environ", f"{__name__}:OF_LIBRARIES", "os.path:x.y", "a"])
def test_an_enumeration_that_is_not_imported_is_code(path):
    assert decode({"$enum": [path, "RED"]}) == UserCode(path) and "antigravity" not in sys.modules


def test_the_state_of_random_generators_comes_back():
    for bits in (np.random.PCG64(1), np.random.MT19937(1), np.random.Philox(1)):
        generator = np.random.Generator(bits)
        state = through_json(generator.bit_generator.state)
        expected = generator.random(5)
        again = np.random.Generator(type(bits)())
        again.bit_generator.state = state
        assert np.array_equal(again.random(5), expected)


ALIKE = [number * (2**61 - 1) + 5 for number in range(20_000)]  # their hashes are equal


@pytest.mark.parametrize("data", [
    {"$set": ALIKE},
    {"$frozenset": ALIKE},
    {"$dict": [[number, None] for number in ALIKE]},
    {"$ordered": {"items": [[number, None] for number in ALIKE], "metadata": None}},
    {"$space": {"type": "Dict", "spaces": [[number, {"type": "MultiBinary", "n": 1}] for number in ALIKE]}},
])  # fmt: skip
def test_keys_that_would_all_be_compared_with_one_another_are_refused(data):
    with pytest.raises(ValueError, match="more than 100 of its keys have one hash"):
        decode(data)


def test_dicts_of_other_classes_come_back_as_dicts():
    assert identical(through_json(OrderedDict(b=1, a=2)), {"b": 1, "a": 2})


# ---------------------------------------------------------------------- spaces


def _boxes(draw, dtype):
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=3))
    if np.dtype(dtype).kind == "f":
        width = np.dtype(dtype).itemsize * 8
        numbers = st.floats(-1e4, 1e4, width=width)
        low, high = st.one_of(numbers, st.just(-np.inf)), st.one_of(numbers, st.just(np.inf))
    else:
        low = high = st.integers(np.iinfo(dtype).min, np.iinfo(dtype).max)
    one, other = draw(hnp.arrays(dtype, shape, elements=low)), draw(hnp.arrays(dtype, shape, elements=high))
    if draw(st.booleans()):
        one, other = np.full_like(one, one.flat[0]), np.full_like(other, other.flat[0])
    return spaces.Box(np.minimum(one, other), np.maximum(one, other), shape, np.dtype(dtype).type)


@st.composite
def boxes(draw):
    return _boxes(draw, draw(st.sampled_from(["float32", "float64", "uint8", "int32", "int64"])))


simple_spaces = st.one_of(
    boxes(),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), st.integers(-5, 5)),
    hnp.arrays(np.int64, hnp.array_shapes(max_dims=2, max_side=3), elements=st.integers(1, 9)).map(
        spaces.MultiDiscrete
    ),
    st.one_of(st.integers(1, 5), st.lists(st.integers(1, 3), min_size=1, max_size=2)).map(spaces.MultiBinary),
)
all_spaces = st.recursive(
    simple_spaces,
    lambda inner: st.one_of(
        st.dictionaries(st.text(max_size=3), inner, min_size=1, max_size=3).map(lambda d: spaces.Dict(list(d.items()))),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=4,
)


def same_space(one, other) -> bool:
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, spaces.Box):  # Box.__eq__ compares its bounds only approximately
        names = ("low", "high", "bounded_below", "bounded_above")
        return one.dtype == other.dtype and all(
            identical(np.asarray(getattr(one, n)), np.asarray(getattr(other, n))) for n in names
        )
    if isinstance(one, spaces.Dict):
        return list(one.spaces) == list(other.spaces) and all(
            map(same_space, one.spaces.values(), other.spaces.values())
        )
    if isinstance(one, spaces.Tuple):
        return all(map(same_space, one.spaces, other.spaces))
    return one.dtype == other.dtype


@settings(deadline=None)
@given(all_spaces)
def test_spaces_come_back_exactly(space):
    data = json.loads(json.dumps(space_to_json(space), allow_nan=False))
    assert same_space(space_from_json(data), space)


# gymnasium 1.1 and 1.2 sort the keys of each Dict.
UNSORTED = {"sort_keys": False} if "sort_keys" in inspect.signature(spaces.Dict).parameters else {}


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, np.inf, (3,), np.float32),
        spaces.Box(np.array([-np.inf, -1e-45, 0.1], np.float32), np.array([np.inf, 1e-45, 0.2], np.float32)),
        spaces.Box(0, 255, (84, 84, 4), np.uint8),
        spaces.Box(-np.inf, 5, (2,), np.int64),
        spaces.Box(-(2**63), 2**63 - 2, (2,), np.int64),
        spaces.Box(-1.0, 1.0, (), np.float64),
        spaces.Box(0, 1, (2,), bool),
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [0, 7]]),
        spaces.MultiBinary([2, 3]),
        spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Tuple([spaces.MultiBinary(2)])}, **UNSORTED),
        spaces.Dict([(("robot", 1), spaces.Discrete(2))]),
    ],
    ids=str,
)
def test_spaces_with_peculiarities_come_back_exactly(space):
    assert same_space(through_json({"space": space})["space"], space)


@pytest.mark.parametrize(
    "name", ["float16", "float32", "float64", "int8", "int64", "uint8", "uint64", "bool", ">f4", ">i8"]
)
@pytest.mark.parametrize("shape", [(257,), (1000, 3), (20, 30, 2)])
def test_arrays_of_many_numbers_come_back_and_take_little_room(name, shape):
    rng = np.random.default_rng(0)
    array = (rng.normal(size=shape) * 50).astype(np.dtype(name))
    if array.dtype.kind == "f":
        array.flat[:4] = np.nan, np.inf, -np.inf, -0.0
    for each in (array, array.T, array[::-1], np.asfortranarray(array)):
        native = each.astype(each.dtype.newbyteorder("="))
        back = through_json({"a": each})["a"]
        assert identical(back, native) and back.flags.writeable
        assert back.tobytes() == native.tobytes()
        assert len(json.dumps(encode(each))) < 1.4 * each.nbytes + 100


@pytest.mark.parametrize("data", ["", "AAAA", "x", "A" * 1024, "é" * 1024])
def test_numbers_that_are_none_of_an_array_are_refused(data):
    with pytest.raises(WRONG_FORM):
        decode({"$array": {"dtype": "float32", "shape": [100, 3], "data": data}})


def test_the_bounds_of_a_uniform_box_take_no_room():
    assert len(json.dumps(space_to_json(spaces.Box(0, 255, (84, 84, 4), np.uint8)))) < 120


def test_other_spaces_are_refused_by_name():
    with pytest.raises(ValueError, match="Text spaces are not supported"):
        space_to_json(spaces.Text(5))
    with pytest.raises(ValueError, match="'Graph' is no kind of space"):
        space_from_json({"type": "Graph"})


# ---------------------------------------------------------------------- classes, functions, and what is unknown


def test_what_can_be_imported_is_written_by_name_and_loaded_on_request():
    data = encode({"space": spaces.Discrete, "function": math.hypot})
    assert data == {"space": {"$import": "gymnasium.spaces.discrete:Discrete"}, "function": {"$import": "math:hypot"}}
    assert decode(data)["function"] == UserCode("math:hypot")
    assert decode(data, lambda kind, reference: import_path(reference))["function"] is math.hypot


def test_what_has_no_name_is_handed_back_to_be_pickled():
    class Local:
        pass

    pickled = {}
    data = encode({"a": [1, {"b": Local}]}, "", pickled)
    assert data == {"a": [1, {"b": {"$pickle": "a.1.b"}}]}
    assert pickled == {"a.1.b": Local}
    with pytest.raises(TypeError, match=r"a.1.b must be plain data, but it is <class .*Local"):
        encode({"a": [1, {"b": Local}]})


class Named:
    """An object that JSON cannot hold, and that is itself alone as a key."""

    def __init__(self, name):
        self.name = name


def shown(value):
    """The names of all such objects, in the order and depth of their containers."""
    if isinstance(value, Named):
        return value.name
    if isinstance(value, dict):
        return [(shown(key), shown(item)) for key, item in value.items()]
    return [shown(each) for each in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize(
    "value",
    [
        {Named("first"): 0.3, Named("second"): 0.7},
        {1: Named("number"), "1": Named("text")},
        {"a.b": Named("dotted"), "a": {"b": Named("nested")}},
        {(1,): Named("tuple"), "(1,)": Named("text")},
        {Named("key"): {Named("inner"): Named("value")}, Named("other"): [Named("one"), Named("two")]},
    ],
)
def test_each_pickled_object_comes_back_in_its_own_place(value):
    pickled = {}
    data = json.loads(json.dumps(encode(value, "x", pickled)))
    assert shown(decode(data, lambda kind, reference: pickled[reference])) == shown(value)


@pytest.mark.parametrize("target", [lambda: 0, object(), 5, math])
def test_what_cannot_be_imported_has_no_path(target):
    assert importable_path(target) is None


def test_a_path_that_leads_nowhere_is_told():
    with pytest.raises(ValueError, match="nowhere:Env cannot be imported here: No module named 'nowhere'"):
        import_path("nowhere:Env")
    with pytest.raises(ValueError, match="math:hippo cannot be imported here"):
        import_path("math:hippo")


@pytest.mark.parametrize(
    "path",
    [
        "os:system",
        "rllib.metrics:Metrics",
        "rllib.__main__:Main",
        "rllib.storage.encoding:encode",
        "rllib:PPO",
        "a.b:C",
    ],
)
def test_objects_are_made_of_known_classes_alone(path):
    with pytest.raises(ValueError, match="no class whose objects this version of rllib makes"):
        decode({"$object": {"class": path, "arguments": {}}})


def test_an_unknown_kind_of_value_is_refused():
    with pytest.raises(ValueError, match="a newer one has written it"):
        decode({"$quaternion": [1, 0, 0, 0]})


def test_encoding_imports_no_gymnasium():
    code = (
        "from rllib.storage.encoding import *; import sys; encode({'a': (1, max)}); print('gymnasium' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
