"""Calls of an actor that run at the same time: when the process may end."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from runtime.engines.zeromq.worker import concurrent_calls
from runtime.engines.zeromq.worker.concurrent_calls import ConcurrentCalls


class Methods:
    def __init__(self):
        self.gate = threading.Event()

    def plain(self):
        self.gate.wait(10)

    async def coroutine(self):
        while not self.gate.is_set():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("method", ["plain", "coroutine"])
def test_an_actor_is_idle_only_when_all_replies_were_sent(monkeypatch, method):
    """A process that is to end goes when it is idle: a reply that was not sent yet would be lost."""
    monkeypatch.setattr(
        concurrent_calls,
        "received_call",
        lambda serial: SimpleNamespace(
            serial=serial, source=1, method=method, group="", frame=b"", start=0, count=0, attempts=lambda: None
        ),
    )
    methods, held, sent, idle_at_sending, idle_at_end = Methods(), [], [], [], []
    is_idle = threading.Event()

    def finish(call, value, raised, hold):
        idle_at_sending.append(calls.idle)
        (held if hold else sent).append(call.serial)

    def send():
        idle_at_sending.append(calls.idle)
        sent.extend(held)
        held.clear()

    def ended():
        idle_at_end.append((calls.idle, len(sent)))
        if calls.idle:
            is_idle.set()

    calls = ConcurrentCalls(
        {"": 4}, lambda name: getattr(methods, name), lambda *_: ((), {}), finish, send, ended, method == "coroutine"
    )
    for serial in range(4):
        calls.start(serial)
    methods.gate.set()
    assert is_idle.wait(10)
    assert not any(idle_at_sending) and sorted(sent) == [0, 1, 2, 3]
    assert idle_at_end[-1] == (True, 4)
