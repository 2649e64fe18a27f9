"""The process of a peer, which all tests of a run share."""

import signal

import pytest


def test_an_interrupted_call_is_not_answered_later(rlax):
    def interrupt(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(TimeoutError):
            rlax.call("interrupting.caller")
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(RuntimeError, match="no_such_function"):
        rlax.call("math.no_such_function")


def test_a_process_that_ends_is_replaced(rlax):
    with pytest.raises(RuntimeError, match="has ended"):
        rlax.call("os._exit", 3)
    with pytest.raises(RuntimeError, match="no_such_function"):
        rlax.call("math.no_such_function")
