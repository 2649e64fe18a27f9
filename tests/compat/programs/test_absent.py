"""Stand-ins for names of Ray that are not here: which operations need the value and raise, and which do not."""

import copy
import dataclasses
import doctest
import enum
import inspect
import logging
import pdb
import pickle
import pprint
import sys
import types
import typing
import warnings
from io import StringIO

import cloudpickle
import pytest

from rllib.compat.programs.absent import Absent, NotServedError, absent, place_in_program

FLAG = absent("ray.nowhere.FLAG", "it is a constant of this test")
Thing = absent("ray.nowhere.Thing")
MissingError = absent("ray.nowhere.MissingError")
Strange = absent("ray.exceptions.Strange")
MissingWarning = absent("ray.nowhere.MissingWarning")


class Derived(Thing):
    pass


class DerivedError(MissingError):
    pass


@pytest.mark.parametrize(
    "use",
    """
    FLAG == 3; 3 == FLAG; FLAG != 3; FLAG == FLAG; FLAG < 3; 3 < FLAG; max(FLAG, 1); FLAG in (1, 2); FLAG in {"a": 1}
    {FLAG: 1}; {FLAG}; {"a": 1}.get(FLAG); hash(FLAG); bool(FLAG); not FLAG; 1 if FLAG else 2; FLAG or 1; FLAG and 1
    str(FLAG); print(FLAG); f"{FLAG}"; f"{FLAG:5}"; "%s" % FLAG; "{}".format(FLAG); FLAG + 1; 1 + FLAG; "a" + FLAG
    -FLAG; 2 * FLAG; FLAG & 1; len(FLAG); int(FLAG); float(FLAG); range(FLAG); [1, 2][FLAG]; round(FLAG); open(FLAG)
    3 in FLAG; FLAG[1]; FLAG.x; FLAG(); list(FLAG); Derived(); MissingError("x"); MissingError.x; Strange()
    DerivedError(); setattr(FLAG, "x", 1); sorted([FLAG, FLAG])
    """.replace(";\n", "; ")
    .strip()
    .replace("\n", ";")
    .split(";"),
)
def test_what_needs_the_value_raises(use):
    with pytest.raises(NotServedError, match=r"is not here"):
        eval(use.strip(), globals())


def test_the_error_says_where_and_why():
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(NotServedError) as raised:
        assert FLAG == "flag"
    assert str(raised.value) == f"{__file__}:{line}: ray.nowhere.FLAG is not here: it is a constant of this test."
    assert raised.value.name == "ray.nowhere.FLAG" and place_in_program().startswith(__file__)


def test_annotations_name_it():
    kept = [
        typing.Optional[Thing],  # noqa: UP045
        typing.Union[Thing, int, None],  # noqa: UP007
        typing.Callable[[Thing], int],
        typing.Optional[list[Thing]],  # noqa: UP045
        typing.Dict[str, Thing],  # noqa: UP006
        list[Thing] | None,
        Thing | None,
        None | Thing,
        int | Thing,
    ]
    assert all(kept)

    @dataclasses.dataclass
    class Settings:
        thing: Thing = None
        flag: int = FLAG

    class Options(enum.Enum):
        FIRST = FLAG
        SECOND = 2

    def function(thing: Thing = FLAG) -> "Thing | None":
        pass

    assert Settings() == Settings() and "ray.nowhere.FLAG" in repr(Settings())
    assert Options.FIRST.value is FLAG
    assert "ray.nowhere.FLAG" in str(inspect.signature(function)) and typing.get_type_hints(function)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("stand_in", [FLAG, MissingError, MissingWarning])
def test_copies_stand_for_the_same_name(stand_in, copied):
    assert repr(copied([stand_in])) == repr([stand_in])
    assert repr(cloudpickle.loads(cloudpickle.dumps({"a": stand_in}))) == repr({"a": stand_in})


def test_derived_classes_are_pickled_by_their_own_name():
    assert pickle.loads(pickle.dumps(DerivedError)) is DerivedError
    assert repr(DerivedError) == f"<class '{__name__}.DerivedError'>"


def test_tools_that_show_any_object_show_it(capsys):
    assert repr(FLAG) == pprint.pformat(FLAG) == "<ray.nowhere.FLAG, which is not here>"
    assert "__reduce__" in dir(FLAG) and not inspect.isclass(FLAG) and inspect.unwrap(FLAG) is FLAG
    module = types.ModuleType("with_stand_ins", "Text.\n\n>>> FLAG\n<ray.nowhere.FLAG, which is not here>\n")
    module.FLAG, module.MissingError = FLAG, MissingError
    assert inspect.getmembers(module, inspect.isfunction) == []
    assert doctest.testmod(module) == (0, 1)
    record = logging.LogRecord("a", logging.INFO, "a.py", 1, "got %s", (FLAG,), None)
    assert record.getMessage() == "got <ray.nowhere.FLAG, which is not here>"
    debugger = pdb.Pdb(stdin=StringIO("p FLAG\npp [FLAG]\nwhatis FLAG\nc\n"), stdout=StringIO())
    debugger.use_rawinput = False
    before = sys.gettrace()
    debugger.runcall(lambda: FLAG)
    sys.settrace(before)
    assert debugger.stdout.getvalue().count("<ray.nowhere.FLAG, which is not here>") == 2


def test_nothing_is_an_instance_and_nothing_is_caught():
    assert not isinstance(3, Thing) and not issubclass(int, Thing) and not isinstance(ValueError(), MissingError)
    with pytest.raises(ZeroDivisionError):
        try:
            raise ZeroDivisionError
        except (ValueError, MissingError, Strange, DerivedError):
            raise AssertionError from None
    with pytest.raises(NotServedError, match=r"ray.nowhere.MissingError is not here"):
        raise MissingError
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=MissingWarning)
    assert isinstance(absent("ray.nowhere.error"), Absent) and isinstance(absent("ray.tune.Errors"), Absent)
