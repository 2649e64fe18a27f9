"""Messages of every kind that changes the node's state, well-formed and meaningless, from peers that hold the key.

Serials, processes, keys and sizes come from small pools, so that messages often mean something that exists, in a wrong
order, twice, or from the wrong process. Seeded; a failure names the seed.
"""

import contextlib
import os
import random
import re

import pytest
import zmq
from runtime_support import process_alive

import runtime
from runtime.engines.resources import units
from runtime.engines.zeromq.client import inspection
from runtime.engines.zeromq.node.entities import Close, Grow, Kill, Later, Poke, Send, Spawn
from runtime.engines.zeromq.node.node_agent import Node
from runtime.engines.zeromq.node.state import NodeState
from runtime.engines.zeromq.transport import structs, wire
from runtime.scheduling import GROUP_STRATEGIES, Placement

MB = 2**20
DIGESTS = [bytes([n]) * 32 for n in range(3)]
ENDS = wire.SHUTDOWN, wire.STOP, wire.GOODBYE  # these are meant, whoever sends them
TO_CLIENTS = {
    wire.CALL, wire.REPLY, wire.ITEM, wire.ACTOR_STATE, wire.FAILED, wire.OBJECT, wire.GRANTED, wire.FREED, wire.CLOSED,
    wire.GONE, wire.LOG, wire.NOTICE, wire.COLLECT, wire.NAMED, wire.CANCEL, wire.CREDIT, wire.DEFINE, wire.BATCH,
    wire.CALL_WITH, wire.PACKED_CALLS, wire.PACKED_REPLIES, wire.MOVE, wire.SETTLE,
}  # fmt: skip
TO_THE_NODE = {*range(1, wire.LAST_KIND + 1)} - TO_CLIENTS - {*ENDS} | {wire.CANCEL, wire.CREDIT, wire.DEFINE}


class Peer:
    """Makes messages.

    Args:
        rng: random.
        processes: numbers to choose senders from.
    """

    def __init__(self, rng, processes):
        self.rng, self.processes = rng, processes

    def number(self):
        return self.rng.choice((0, 1, 2, 3, 4, 5, 6, 65536, 131072, 2**31, 2**32 - 1))

    def process(self):
        return self.rng.choice((*self.processes, 0, 77, 2**31 + 5, 2**32 - 1))

    def key(self):
        if self.rng.random() < 0.05:
            return self.rng.randbytes(self.rng.choice((0, 1, 15, 17)))
        return wire.key(self.rng.randrange(8), self.process())

    def some(self, make, most=3):
        return [make() for _ in range(self.rng.randrange(most + 1))]

    def request(self):
        names = self.rng.sample(("CPU", "GPU", "token", "unknown"), self.rng.randrange(3))
        return tuple(sorted((name, self.rng.choice((0, 1, 5000, 10_000, 20_000, -10_000, 10**15))) for name in names))

    def placement(self):
        if self.rng.random() < 0.7:
            return None
        return Placement(self.key(), self.rng.choice((-1, 0, 1, 99)), self.rng.random() < 0.5)

    def value(self):
        value = wire.value(b"N.")
        if self.rng.random() < 0.3:
            value = wire.composed_value(b"N.", self.some(lambda: wire.key(self.rng.randrange(8), 1)), [], [])
        return value

    def body(self, kind):
        rng, key, some = self.rng, self.key, self.some
        text = rng.choice(("", "x", "größe"))
        if kind == wire.SUBMIT:
            retries, calls = rng.choice((-1, 0, 1)), rng.choice((0, 1))
            fields = rng.choice(DIGESTS), "f", self.request(), some(key), retries, b"", calls, rng.choice(("", "{}"))
            return structs.encode(structs.Task(*fields, self.placement()))
        if kind == wire.CREATE:
            fields = rng.choice(DIGESTS), "A", self.request(), self.request(), some(key), "", self.placement()
            return structs.encode(structs.Create(*fields, rng.choice((-1, 0, 1)), rng.random() < 0.3))
        if kind == wire.REFERENCES:
            segment = lambda: (key(), rng.randrange(6))  # noqa: E731
            known = lambda: (key(), rng.choice((None, self.value())), some(key))  # noqa: E731
            holder = lambda: (key(), self.process())  # noqa: E731
            return structs.encode(structs.References(some(segment), some(known), some(holder), some(key)))
        made = {
            wire.WAITING: lambda: structs.Waits(text, some(key)),
            wire.CLAIM_NAME: lambda: structs.Claim("", rng.choice("ab"), key(), rng.random() < 0.5, b"description"),
            wire.FIND_NAME: lambda: structs.Name("", rng.choice("abc")),
            wire.DEFINE: lambda: structs.Define(rng.choice(DIGESTS), wire.value(b"N."), some(key), some(str)),
            wire.NEW_GROUP: lambda: structs.NewGroup(
                "", text, some(self.request), rng.choice(GROUP_STRATEGIES), rng.random() < 0.5
            ),
            wire.CALL_WITH: lambda: structs.CallName(rng.choice(("add", "x")), text, rng.choice((-1, 0, 1)), b""),
            wire.PACKED_CALLS: lambda: structs.PackedCalls(
                rng.choice(("add", "x")), some(lambda: rng.randrange(8)), some(lambda: some(lambda: rng.randrange(2)))
            ),
            wire.PACKED_REPLIES: lambda: structs.PackedReplies(some(lambda: (rng.randrange(8), text))),
            wire.FAILED: lambda: structs.Failed("WorkerCrashedError", text),
        }.get(kind)
        if made is not None:
            return structs.encode(made())
        if kind == wire.MOVE:
            return rng.choice((b"", b'{"namespace": "x"}', b"[]"))
        if kind in (wire.START_FAILED, wire.OBJECT):
            return self.value() if rng.random() < 0.9 else b""
        if kind in (wire.REPLY, wire.ITEM, wire.CALL):
            return (b"add".ljust(16, b"\0") if kind == wire.CALL else b"") + wire.pad(self.value())
        return b"".join(some(lambda: wire.key(1, 1))) if kind == wire.FREED else text.encode()

    def message(self, kind):
        """A frame that every process takes for one of its peers'."""
        rng, body = self.rng, self.body(kind)
        a, b, c = self.number(), self.number(), self.number()
        if kind == wire.CALL_WITH:
            a, c, body = len(body), 1, wire.pad(body) + wire.pad(self.value())
        elif kind in (wire.SUBMIT, wire.CREATE):
            a = len(body) if rng.random() < 0.95 else a
        elif kind == wire.CALL:
            a, b, c = 3, rng.randrange(3), 1
        elif kind == wire.REPLY:
            a = 1
        elif kind == wire.GRANT:
            c = rng.choice((0, 1, 5000, MB, 8 * MB, 70 * MB, 2**63, 2**64 - 1))
        elif kind == wire.INSPECT:
            c = rng.randrange(6)
        elif kind == wire.JOIN:
            c = rng.choice((os.getpid(), 2**22 + 1, c))
        elif kind == wire.BATCH:
            return wire.batch(self.process(), [self.message(wire.CANCEL), self.message(wire.CREDIT)])
        elif rng.random() < 0.8:
            a = self.process()
        source = self.process()
        if kind == wire.JOIN:
            source = rng.choice((source, wire.FIRST_GUEST + rng.randrange(3)))
        flags = rng.randrange(8)
        serial = rng.randrange(8) if rng.random() < 0.9 else self.number()
        return wire.message(kind, source, serial, a, b, c, body, flags)


class Stub:
    """Stands for a part of the node that has nothing to do with its decisions."""

    followers: set = set()  # noqa: RUF012

    def __getattr__(self, name):
        return lambda *args, **kwargs: {}


class UnconnectedNode(Node):
    """The node's handling of messages, with simulated workers: no socket, no process, no segment.

    Attributes:
        answered: (process, kind) of what was sent since the last look.
    """

    def __init__(self, rng):
        self.rng, self.malformed, self.answered = rng, 0, []
        total = units({"CPU": 4, "GPU": 2, "token": 1})
        self._state = NodeState(total, ("0", "1"), 64 * MB, 200, 64 * MB)
        self._output, self._shown = Stub(), Stub()
        self._driver_pids, self._pids, self._guests, self._ending = {0: 1, 1: 1}, {}, {}, False
        self.spawned, self.doomed, self.segments = [], [], set()
        self._handlers = self._table()

    state = property(lambda self: self._state)

    def _send(self, process, frame):
        self.answered.append((process, wire.header(frame)[1]))

    def _poke(self, process):
        pass

    def _guest_joined(self, process, pid):
        if process < wire.FIRST_GUEST or process in self._guests:
            raise wire.Malformed("no number for a guest")
        self._guests[process] = pid
        self._state.driver_joined(process)
        self._send(process, wire.message(wire.JOIN, wire.NODE))

    def _leaving(self, process, why):
        self._state.leaving(process, why)
        if process in self._guests:
            self._guests.pop(process)
            self._state.exited(process, "end of its process")

    def _carry_out(self):
        for instruction in self._state.take():
            kind = type(instruction)
            if kind is Send:
                self._send(instruction.process, instruction.frame)
            elif kind is Spawn:
                self._pids[instruction.process] = instruction.process
                self.spawned.append(instruction.process)
            elif kind is Kill:
                self.doomed.append(instruction.process)
            elif kind is Grow:
                assert instruction.segment not in self.segments
                self.segments.add(instruction.segment)
                if instruction.on_disk and self.rng.random() < 0.3:
                    self.segments.discard(instruction.segment)
                    self._state.disk_refused(instruction, "no room")
            elif kind is Close:
                self.segments.remove(instruction.segment)
            else:
                assert kind in (Later, Poke)
                if kind is Later and self.rng.random() < 0.9:
                    self._state.due(instruction.key, instruction.process)

    def deliver(self, frame):
        """What the node's loop does with a frame; anything but Malformed and its like is a fault."""
        _, kind, _, source, serial, a, _, c = wire.header(frame)
        try:
            handle = self._handlers.get(kind)
            if handle is not None:
                handle(frame, source, serial, a, c)
        except wire.Malformed:
            self.malformed += 1
        while True:
            self._carry_out()
            if not self._state.table._instructions:
                break

    def advance(self):
        """A worker is born, ends, or a second passes."""
        choice = self.rng.random()
        if choice < 0.4 and self.spawned:
            self.deliver(wire.message(wire.READY, self.spawned.pop(0)))
        elif choice < 0.7 and self.doomed:
            self.end(self.doomed.pop(0))
        elif choice < 0.75 and self._pids:
            self.end(self.rng.choice(list(self._pids)))
        elif choice < 0.8:
            self._state.tick()
            self._carry_out()

    def end(self, process):
        if self._pids.pop(process, None) is not None:
            self._state.exited(process, "signal SIGKILL")
            self._carry_out()

    def end_all(self):
        """Guests leave, groups and workers end, what waits is cancelled, until nothing is left."""
        state = self._state
        for _ in range(200):
            for process in [*self._guests]:
                self._leaving(process, "")
            for group in [*state.groups.groups]:
                state.remove_group(group)
            for key in [*state.actors]:
                state.kill(key)
            running = [process.task for process in state.processes.values() if process.task is not None]
            for task in (*state._scheduler.waiting(), *running):
                state.cancel(task.owner, task.serial, task.owner, wire.FORCE)
                task.cancelled = True  # of two with one key, a cancel finds one
            self._carry_out()
            for process in [*self._pids]:
                self.end(process)
            for _ in range(3):
                state.tick()
            self._carry_out()
            if not self._pids and not state._scheduler.waiting():
                return
        waiting = [(task.owner, task.serial, task.cancelled) for task in state._scheduler.waiting()]
        raise AssertionError(f"not ended: processes {node_left(self)}, tasks {waiting}")


def node_left(node):
    return [(p, node.state.processes.get(p)) for p in node._pids]


def fuzz_node(seed, steps):
    rng = random.Random(seed)
    node = UnconnectedNode(rng)
    kinds = [kind for kind in node._handlers if kind not in ENDS]
    peer = Peer(rng, [wire.DRIVER])
    for step in range(steps):
        peer.processes = [wire.DRIVER, *node._pids, *node._guests]
        frame = peer.message(rng.choice(kinds))
        try:
            node.deliver(frame)
            node.advance()
        except Exception as error:
            error.add_note(f"seed {seed}, step {step}, kind {wire.header(frame)[1]}, {wire.header(frame)[2:]}")
            raise
        node.answered.clear()
        if step % 500 == 499:
            honest_client(node, wire.FIRST_GUEST + 1000 + step)
    for what in (inspection.STATUS, inspection.MEMORY, inspection.LOGS, inspection.FOLLOW):
        node.deliver(wire.message(wire.INSPECT, wire.DRIVER, 1, c=what))
    node.end_all()
    state = node.state
    free = {name: amount for name, amount in state.resources.free.items() if amount}
    assert free == state.resources.total, f"seed {seed}: free are {free}"
    assert set(state.processes) == {wire.DRIVER}, f"seed {seed}: {state.processes}"
    assert state.table.files.workers == state.table.files.task_workers == 0
    assert node.segments == {number for number, _ in state.memory.segments()}
    assert node.malformed < steps / 4, "most messages are to mean something"


def honest_client(node, guest):
    """A driver that joins now has its task run, as soon as there is a worker that the others leave alone."""
    digest = b"h" * 32
    node.deliver(wire.message(wire.JOIN, guest, c=1))
    assert (guest, wire.JOIN) in node.answered
    define = structs.encode(structs.Define(digest, wire.value(b"N."), [], []))
    node.deliver(wire.message(wire.DEFINE, guest, body=define))
    task = structs.encode(structs.Task(digest, "honest", (), [], 3, b""))
    node.deliver(wire.message(wire.SUBMIT, guest, 1, len(task), 1, 1, task))
    key = wire.key(1, guest)
    for _ in range(100):
        worker, found = node.state._scheduler._find(key)
        assert found is not None
        if worker is not None and worker.ready:
            break
        node.deliver(wire.message(wire.READY, worker.number) if worker is not None else wire.message(wire.READY, 77))
        node.state.tick()
        node._carry_out()
        for process in list(node.doomed):
            node.doomed.remove(process)
            node.end(process)
    node.deliver(wire.message(wire.DONE, worker.number, 1, guest))
    assert node.state.task(key) is None
    node.deliver(wire.message(wire.LEAVING, guest))


@pytest.mark.parametrize("seed", range(6))
def test_the_node_survives_any_order_of_messages(seed):
    fuzz_node(seed, 3000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_the_node_survives_any_order_of_messages_for_long(seed):
    fuzz_node(seed, 10_000)


@runtime.remote
class Counter:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
        return self.count


HONEST = """
import sys, numpy as np, runtime
runtime.init(address=sys.argv[1])

@runtime.remote(num_cpus=0)
def double(values):
    return 2 * values

@runtime.remote(num_cpus=0)
class Adder:
    def add(self, values):
        return values + 1

adder = Adder.remote()
refs = [adder.add.remote(double.remote(runtime.put(np.full(50_000, n)))) for n in range(10)]
assert [int(values[7]) for values in runtime.get(refs, timeout=40)] == [2 * n + 1 for n in range(10)]
print("served")
"""


def fuzz_session(fresh, script, capfd, seed, count):
    """Messages to the node, and to workers, then a client that joins; the node is the same process before and after."""
    fresh.settles = False
    fresh(num_cpus=2)
    rng, counter = random.Random(seed), Counter.remote()
    assert runtime.get(counter.add.remote()) == 1
    engine, context = runtime.context.current_engine(), zmq.Context()
    for _ in range(count):
        mailboxes = {int(name, 16) for name in os.listdir(engine.session) if re.fullmatch("[0-9a-f]+", name)}
        workers = sorted(mailboxes - {wire.NODE, wire.DRIVER})
        peer = Peer(rng, [wire.DRIVER, *workers])
        receiver = rng.choice((wire.NODE, wire.NODE, wire.DRIVER, *workers))
        kinds = TO_THE_NODE if receiver == wire.NODE else TO_CLIENTS
        socket = context.socket(zmq.PUSH)
        socket.connect(f"ipc://{engine.session}/{receiver:x}")
        for _ in range(50):
            socket.send(peer.message(rng.choice(sorted(kinds))))
        socket.close(500)
    context.term()
    with contextlib.suppress(runtime.RuntimeFailure):  # it was told much that is not so, but does not hang
        runtime.get([counter.add.remote(), runtime.remote(max).remote([1, 2])], timeout=10)
    done = script(HONEST, engine.session, timeout_s=60)
    assert done.stdout == "served\n" and process_alive(engine.node_pid), f"seed {seed}: {done.stderr}"
    assert "node/node_agent.py" not in (errors := capfd.readouterr().err), f"seed {seed}: {errors}"


def test_a_session_serves_honest_clients_after_any_messages(fresh, script, capfd):
    fuzz_session(fresh, script, capfd, seed=1, count=40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 30))
def test_a_session_serves_honest_clients_after_many_messages(fresh, script, capfd, seed):
    fuzz_session(fresh, script, capfd, seed, count=150)
