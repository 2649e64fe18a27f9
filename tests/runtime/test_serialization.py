"""Serializers of the user's own, and the search for what cannot be pickled."""

import copyreg
import io
import threading

import numpy as np
import pytest
from runtime_support import unsettled, wait_until

import runtime
from runtime.util import deregister_serializer, inspect_serializability, register_serializer


class Locked:
    def __init__(self, value):
        self.value, self.lock = value, threading.Lock()


@runtime.remote
def value_of(locked):
    assert locked.lock.acquire(timeout=1)
    return locked.value


@pytest.fixture
def registered():
    register_serializer(Locked, serializer=lambda locked: locked.value, deserializer=lambda value: Locked(value))
    yield
    deregister_serializer(Locked)


def test_a_registered_class_travels(engine, registered):
    assert runtime.get(value_of.remote(Locked(3))) == 3
    assert runtime.get(runtime.put([Locked(4)]))[0].value == 4


def test_after_deregistering_it_does_not(engine, registered):
    deregister_serializer(Locked)
    deregister_serializer(Locked)
    with pytest.raises(TypeError, match=r"args\[0\]\.lock cannot be pickled"):
        value_of.remote(Locked(3))


def test_a_serializer_that_was_there_before_comes_back(registered):
    copyreg.pickle(dict, before := lambda value: (dict, ()))
    try:
        register_serializer(dict, serializer=list, deserializer=dict)
        assert copyreg.dispatch_table[dict] is not before
        deregister_serializer(dict)
        assert copyreg.dispatch_table[dict] is before
    finally:
        del copyreg.dispatch_table[dict]


@pytest.mark.parametrize("wrong", [{"cls": 3}, {"serializer": 3}, {"deserializer": None}])
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(TypeError, match=r"class|function"):
        register_serializer(**{"cls": Locked, "serializer": str, "deserializer": str, **wrong})


def test_the_parts_that_cannot_be_pickled_are_found():
    first, second = Locked(1), threading.Lock()
    out = io.StringIO()
    good, failures = inspect_serializability({"a": [first], "b": second, "c": 1}, name="settings", print_file=out)
    assert not good and {f.name for f in failures} == {"settings['a'][0].lock", "settings['b']"}
    assert {id(f.obj) for f in failures} == {id(first.lock), id(second)}
    assert next(f.parent for f in failures if f.obj is first.lock) is first
    assert "settings['b'] cannot be pickled: it is a _thread.lock" in out.getvalue()


def test_what_can_be_pickled_and_how_deep_the_search_goes():
    assert inspect_serializability([1, "a"], print_file=io.StringIO()) == (True, set())
    lock = threading.Lock()

    def function():
        return lock

    good, failures = inspect_serializability(function, print_file=io.StringIO())
    assert not good and [f.obj for f in failures] == [lock]
    _, [failure] = inspect_serializability([[[[lock]]]], depth=1, print_file=io.StringIO())
    assert failure.name == "list[0]"


def test_inspecting_keeps_no_reference(engine):
    ref = runtime.remote(lambda: np.zeros(10**6)).remote()
    runtime.get(ref)
    assert inspect_serializability({"ref": ref, "list": [ref]}, print_file=io.StringIO()) == (True, set())
    del ref
    wait_until(lambda: not unsettled())
