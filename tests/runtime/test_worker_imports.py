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


class Marked:
    """Arrives as True in a process that is marked, and fails to arrive in any other."""

    def __reduce__(self):
        return eval, ("__import__('sys').marked_by_import",)


def test_they_come_before_a_function_and_before_what_it_calls(fresh, imported_first):
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


@pytest.mark.parametrize("max_concurrency", [1, 2])
@pytest.mark.parametrize("is_put", [False, True], ids=["by_value", "put_before"])
def test_they_come_before_arguments_of_tasks_constructors_and_methods(fresh, imported_first, is_put, max_concurrency):
    @runtime.remote
    def task(first, further):
        return first, further

    @runtime.remote(max_concurrency=max_concurrency)
    class Actor:
        def __init__(self, first, further):
            self.given = first, further

        def method(self, first, further):
            return *self.given, first, further

    fresh("zeromq")
    first = runtime.put(Marked()) if is_put else Marked()
    assert runtime.get(task.remote(first, further=Marked()), timeout=60) == (True, True)
    actor = Actor.remote(first, further=Marked())
    assert runtime.get(actor.method.remote(first, further=Marked()), timeout=60) == (True,) * 4


def test_a_session_that_runs_already_learns_of_them(fresh, imported_first):
    @runtime.remote
    class Actor:
        def is_marked(self):
            return sys.marked_by_import

    fresh("zeromq")
    assert runtime.get(Actor.remote().is_marked.remote(), timeout=60)
