"""What a process has sent before its end is read, however late the node's threads get the processor."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import zmq
from runtime_support import wait_until

import runtime
from runtime.engines.zeromq.node.connections import Connections

SENDER = """
import sys, time, zmq
socket = zmq.Context().socket(zmq.PUSH)
socket.connect(sys.argv[1])
socket.send(b"hello")
print("sent", flush=True)
time.sleep(1000)
"""


@runtime.remote
class Maker:
    def make(self, value):
        array = runtime.empty(8 * 2**20, np.uint8)
        array[:] = value
        return array

    def pid(self):
        return os.getpid()


@pytest.fixture
def mailbox(tmp_path):
    """(address, socket bound to it, its connections)."""
    context, address = zmq.Context(), f"ipc://{tmp_path}/mailbox"
    socket = context.socket(zmq.PULL)
    connections = Connections(context, socket)
    socket.bind(address)
    yield address, socket, connections
    connections.close()
    socket.close(0)
    context.term()


@pytest.fixture
def sender(mailbox):
    process = subprocess.Popen([sys.executable, "-c", SENDER, mailbox[0]], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "sent\n" and mailbox[1].poll(10_000)
    yield process
    process.kill()
    process.wait(10)
    process.stdout.close()


def test_a_connection_ends_with_its_process(mailbox, sender):
    connections = mailbox[2]
    assert not connections.await_end(sender.pid, 0.01), "it lives"
    sender.kill()
    assert connections.await_end(sender.pid, 10)


def test_a_process_that_has_not_connected_is_not_waited_for(mailbox):
    assert mailbox[2].await_end(os.getpid(), 0.0)


def test_the_last_result_of_an_actor_is_not_lost(fresh):
    """The node does not run while the actor answers and is killed; afterwards it learns of both at once."""
    fresh()
    node = runtime.context.current_engine().node_pid
    for value in range(20):
        maker = Maker.remote()
        pid = runtime.get(maker.pid.remote(), timeout=20)
        runtime.get(maker.make.remote(0), timeout=20)  # the next array takes this one's memory
        wait_until(lambda: not runtime.context.current_engine().held().items > 1)
        os.kill(node, signal.SIGSTOP)
        try:
            result = maker.make.remote(value)
            runtime.wait([result], timeout=10)
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)  # until the node's parent of the actor has reported its end
        finally:
            os.kill(node, signal.SIGCONT)
        with pytest.raises(runtime.ActorDiedError):
            runtime.get(maker.pid.remote(), timeout=10)
        assert runtime.get(result, timeout=10)[0] == value
        del result
