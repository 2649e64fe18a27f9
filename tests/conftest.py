"""What holds for all tests."""

import signal

import pytest

import runtime


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard():
    """Shells start background jobs with Ctrl-C ignored, and children inherit that: the tests of Ctrl-C would hang."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module", autouse=True)
def no_session_left(ctrl_c_is_heard):
    """Ends the session that the tests of a module have started and share."""
    yield
    runtime.shutdown()
