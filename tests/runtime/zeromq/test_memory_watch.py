"""Which ends of processes are said to be the kernel's doing."""

import pytest

from runtime.engines.zeromq.node import memory_watch


@pytest.fixture
def kernel(monkeypatch):
    """Its count of processes killed for want of memory, and the clock."""
    state = {"kills": 3, "now": 100.0}
    monkeypatch.setattr(memory_watch, "_kernel_kills", lambda: state["kills"])
    monkeypatch.setattr(memory_watch.time, "monotonic", lambda: state["now"])
    return state


def test_each_kill_explains_the_end_of_one_process(kernel):
    watch = memory_watch.MemoryWatch(1.0)
    assert not watch.kernel_has_killed()
    kernel["kills"] += 2  # the second before the first was reported
    assert [watch.kernel_has_killed() for _ in range(3)] == [True, True, False]


def test_a_kill_elsewhere_explains_no_later_end(kernel):
    watch = memory_watch.MemoryWatch(1.0)
    kernel["kills"] += 2
    assert watch.kernel_has_killed()
    kernel["now"] += memory_watch.REPORTED_WITHIN_S
    assert not watch.kernel_has_killed()
