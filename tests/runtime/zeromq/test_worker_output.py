"""The pipes of workers, what the node reads from them and when; lines that workers print alike."""

import math
import os
import select

import pytest

from runtime.engines import zeromq
from runtime.engines.zeromq.node.worker_output import (
    HINT,
    LARGEST_COUNT,
    WINDOW_S,
    RepeatedLines,
    ShownLines,
    WorkerOutput,
)

ENGINE = os.path.dirname(zeromq.__file__)


@pytest.fixture
def shown():
    return []


@pytest.fixture
def poll():
    with select.epoll() as poll:
        yield poll


@pytest.fixture
def output(poll, shown):
    output = WorkerOutput(poll, lambda process, number, lines: shown.append((process, number, lines)))
    yield output
    output.close_all()


def test_all_that_workers_have_written_is_read_at_once(output, shown):
    """At the end of a session no line may wait in a pipe: those printed alike would be counted in two parts."""
    pipes = {process: output.open(process) for process in (3, 4, 5)}
    for process, (stdout, stderr) in pipes.items():
        os.write(stdout, b"x" * 40_000 + b"\n")
        os.write(stderr, b"trouble\n" if process == 4 else b"")
    output.read_all()
    assert sorted(shown) == sorted([(process, 1, ["x" * 40_000]) for process in pipes] + [(4, 2, ["trouble"])])
    for ends in pipes.values():
        for end in ends:
            os.close(end)


def test_the_end_of_a_worker_leaves_the_pipes_of_a_newer_one(poll, output, shown):
    """The kernel gives the numbers of pipes that were read to their end to the next worker's pipes."""
    ends = output.open(1)
    os.write(ends[1], b"last words\n")
    for end in ends:
        os.close(end)
    for pipe, _ in poll.poll():
        while output.read(pipe):
            continue
    stdout, stderr = output.open(2)
    assert list(output.close(1)) == ["last words"]
    os.write(stdout, b"hello\n")
    os.write(stderr, b"there\n")
    output.read_all()
    assert shown == [(1, 2, ["last words"]), (2, 1, ["hello"]), (2, 2, ["there"])]
    for end in (stdout, stderr):
        os.close(end)


def test_of_a_crash_neither_the_frames_below_user_code_nor_the_modules_are_shown(output, shown):
    """faulthandler writes the innermost frame first. Those of the engine are of interest if the crash is in there."""
    crash = f"""before

Fatal Python error: Aborted

Current thread 0x1 (most recent call first):
  File "{ENGINE}/mailbox.py", line 1 in wait
  File "/user.py", line 3 in get
  File "{ENGINE}/task_runner.py", line 71 in run
  File "{ENGINE}/boot.py", line 53 in <module>

Extension modules: numpy.linalg._umath_linalg (total: 1)
"""
    ends = output.open(1)
    for part in (crash[:50], crash[50:]):
        os.write(ends[1], part.encode())
        output.read_all()
    for end in ends:
        os.close(end)
    crash = [
        "Fatal Python error: Aborted",
        "Current thread 0x1 (most recent call first):",
        f'  File "{ENGINE}/mailbox.py", line 1 in wait',
        '  File "/user.py", line 3 in get',
    ]
    assert list(output.close(1)) == ["before", "", *crash]
    assert [line for _, _, lines in shown for line in lines] == ["before", "", *crash]


def test_the_first_worker_is_shown_and_the_others_are_counted():
    lines = RepeatedLines()
    assert lines.add(1, 1, ["episode 3 is over", "other"], 0.0) == ["episode 3 is over", "other"]
    assert lines.next_due == math.inf
    for process in (2, 3, 2):
        assert lines.add(process, 1, [f"episode {process} is over"], 1.0) == []
    assert lines.next_due == WINDOW_S and lines.due(4.9) == []
    assert lines.due(WINDOW_S) == [(1, f"episode 2 is over [repeated 3x by 3 processes{HINT}]")]
    assert lines.next_due == math.inf
    assert lines.add(2, 1, ["episode 4 is over"], 5.1) == ["episode 4 is over"]


def test_nothing_is_kept_of_a_driver_that_has_ended():
    sent = []
    shown = ShownLines(lambda process, frame: sent.append(process), lambda process: (9, "(f) "), True, True)
    shown.driver_joined(9)
    shown.show(1, 1, ["over"])
    shown.show(2, 1, ["over"])
    assert sent == [9] and shown.next_due < math.inf
    shown.show_all_of(9)
    shown.driver_ended(9)
    for process in (3, 4):
        shown.show(process, 1, ["over"])
    assert shown.next_due == math.inf


def test_the_hint_comes_once():
    lines = RepeatedLines()
    texts = []
    for start in (0.0, 10.0):
        for process in range(3):
            lines.add(process, 2, ["warning"], start)
        texts += [text for _, text in lines.due(start + WINDOW_S)]
    assert [text.count(HINT) for text in texts] == [1, 0]


def test_a_single_repetition_is_shown_as_it_is():
    lines = RepeatedLines()
    lines.add(1, 1, ["loaded /tmp/1"], 0.0)
    assert lines.add(2, 2, ["loaded /tmp/2"], 0.1) == []
    assert lines.due(math.inf) == [(2, "loaded /tmp/2")]


def test_a_worker_that_repeats_itself_is_shown():
    lines = RepeatedLines()
    assert [lines.add(1, 1, ["."], t) for t in (0.0, 0.1, 0.2)] == [["."]] * 3


def test_numbers_alone_are_never_alike():
    lines = RepeatedLines()
    assert [lines.add(process, 1, [f"{process}.5 3"], 0.0) for process in range(3)] == [["0.5 3"], ["1.5 3"], ["2.5 3"]]


def test_memory_is_bounded():
    lines = RepeatedLines()
    for number in range(3 * LARGEST_COUNT):
        lines.add(1, 1, ["x" * (number + 1)], 0.0)
    assert len(lines._seen) <= LARGEST_COUNT
