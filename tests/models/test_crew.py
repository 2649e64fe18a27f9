"""Threads that help to compute: nobody waits for one that is late, and errors come back."""

import os
import threading

import pytest

from rllib.models.arithmetic.crew import Crew, crew


def nothing():
    """A helper begins at once."""


@pytest.mark.parametrize("num_helpers", [0, 1, 3])
@pytest.mark.parametrize("num_tasks", [0, 1, 2, 50])
def test_each_task_is_run_once(num_helpers, num_tasks):
    helped, counts = Crew(num_helpers, nothing), [0] * num_tasks

    def task(number):
        counts[number] += 1

    for _ in range(20):
        helped.run([lambda number=number: task(number) for number in range(num_tasks)])
    assert counts == [20] * num_tasks


def test_tasks_are_run_at_the_same_time():
    together = threading.Barrier(3)
    Crew(2, nothing).run([lambda: together.wait(30)] * 3)


def test_helpers_that_are_late_are_not_waited_for():
    comes, done = threading.Event(), []
    late = Crew(1, lambda: comes.wait(60))
    for _ in range(3):
        late.run([lambda: done.append(threading.current_thread().name)] * 2)
    assert done == [threading.current_thread().name] * 6
    comes.set()
    together = threading.Barrier(2)
    late.run([lambda: together.wait(30)] * 2)  # now it helps


@pytest.mark.parametrize("wrong", [0, 1])
def test_an_error_is_raised_when_the_others_have_ended(wrong):
    together, done = threading.Barrier(2), []

    def task(number):
        together.wait(30)  # one in each thread
        if number == wrong:
            raise ZeroDivisionError(number)
        done.append(number)

    helped = Crew(1, nothing)
    with pytest.raises(ZeroDivisionError):
        helped.run([lambda number=number: task(number) for number in (0, 1)])
    assert done == [1 - wrong]
    helped.run([lambda: done.append(2)])
    assert done[-1] == 2


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_has_a_crew_of_its_own():
    before = crew(1, nothing)
    child = os.fork()
    if not child:
        together = threading.Barrier(2)
        try:
            crew(1, nothing).run([lambda: together.wait(30)] * 2)
        finally:
            os._exit(int(together.broken or crew(1, nothing) is before))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert crew(1, nothing) is before
