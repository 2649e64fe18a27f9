"""Modules that worker processes import before they load a driver's code."""

import sys

import pytest

import runtime
from runtime import worker_imports


@pytest.fixture
def imported_first(tmp_path, monkeypatch):
    """A module that marks the process which imports it."""
    tmp_path.joinpath("imported_first_by_workers.py").write_text("import sys\nsys.marked_by_import = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(worker_imports, "_names", [])
    worker_imports.add("imported_first_by_workers")


def test_they_come_before_a_function_and_before_what_it_calls(fresh, imported_first):
    class Marked:
        def __reduce__(self):
            return eval, ("__import__('sys').marked_by_import",)  # fails in a process that is not marked

    marked = Marked()

    @runtime.remote
    def inner():
        return sys.marked_by_import

    @runtime.remote
    def outer():
        return marked, runtime.get(inner.remote())

    fresh("zeromq")
    assert runtime.get(outer.remote(), timeout=60) == (True, True)
    assert not hasattr(sys, "marked_by_import")


def test_a_session_that_runs_already_learns_of_them(fresh, imported_first):
    @runtime.remote
    class Actor:
        def is_marked(self):
            return sys.marked_by_import

    fresh("zeromq")
    assert runtime.get(Actor.remote().is_marked.remote(), timeout=60)
