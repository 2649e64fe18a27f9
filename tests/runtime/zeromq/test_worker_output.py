"""The pipes of workers: what the node reads from them, and when."""

import os
import select

import pytest

from runtime.engines.zeromq.worker_output import WorkerOutput


@pytest.fixture
def shown():
    return []


@pytest.fixture
def output(shown):
    with select.epoll() as poll:
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
