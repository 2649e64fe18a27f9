"""The node's decisions, driven without processes."""

import logging

import pytest

from runtime.engines.resources import quantities, units
from runtime.engines.zeromq.node.actor_table import BACK_OFF_S, STEADY_S
from runtime.engines.zeromq.node.entities import Close, Grow, Kill, Later, Poke, Send, Spawn
from runtime.engines.zeromq.node.process_table import PROCESS_FILES, SEGMENT_FILES
from runtime.engines.zeromq.node.reports import memory_report
from runtime.engines.zeromq.node.shared_items import SETTLE
from runtime.engines.zeromq.node.state import NodeState
from runtime.engines.zeromq.transport import structs, wire
from runtime.scheduling import Placement

DIGEST = bytes(32)
CPU = (("CPU", 10_000),)


class Driven:
    """A state, and short ways to send it events."""

    def __init__(self, gpu_ids=(), quota=2**20, files=2**20, disk_quota=0, **resources):
        resources = {"CPU": 2, **resources}
        self.state = NodeState(units(resources), gpu_ids, quota, files, disk_quota)
        self.serial = 100
        self.state.define(1, structs.Define(DIGEST, b"code", [], []), b"definition")

    def take(self, kind=None):
        taken = self.state.take()
        return taken if kind is None else [i for i in taken if type(i) is kind]

    def submit(self, request=CPU, source=1, name="f", items=(), max_retries=3, environment="", placement=None):
        self.serial += 1
        task = structs.Task(DIGEST, name, request, list(items), max_retries, b"", 0, environment, placement)
        self.state.submit(source, self.serial, task, f"task {self.serial}".encode())
        return self.serial

    def new_group(self, *bundles, source=1, name="", detached=False):
        self.serial += 1
        new = structs.NewGroup("", name, [units(bundle) for bundle in bundles], "PACK", detached)
        self.state.new_group(source, self.serial, new)
        return wire.key(self.serial, source)

    def create(self, request=(), held=(), source=1, name="A", items=(), **options):
        self.serial += 1
        create = structs.Create(DIGEST, name, request, held, list(items), "", **options)
        self.state.create(source, self.serial, create, b"create")
        return wire.key(self.serial, source)

    def start_actor(self, **kwargs):
        """(key, process) of an actor that lives."""
        key = self.create(**kwargs)
        process = self.take(Spawn)[-1].process
        self.state.ready(process)
        self.state.alive(process)
        self.take()
        return key, process

    @property
    def free(self):
        return quantities(self.state.resources.free)


def frames(instructions, process=None):
    return [i.frame for i in instructions if type(i) is Send and process in (None, i.process)]


def kinds(instructions, process=None):
    return [wire.header(frame)[1] for frame in frames(instructions, process)]


def text(frame):
    return frame[wire.HEADER_BYTES :].decode()


def failure(frame):
    return structs.decode(structs.Failed, frame)


def test_a_task_gets_a_worker_and_keeps_it_warm():
    d = Driven()
    first = d.submit()
    [spawn] = d.take()
    d.state.ready(spawn.process)
    assert frames(d.take()) == [b"definition", f"task {first}".encode()]
    d.state.done(spawn.process, first, 1)
    second = d.submit()
    assert d.take() == [Send(spawn.process, f"task {second}".encode())]
    d.state.done(spawn.process, second, 1)
    assert d.free == {"CPU": 2}


def test_tasks_wait_for_resources_in_order():
    d = Driven()
    serials = [d.submit() for _ in range(4)]
    spawns = d.take(Spawn)
    assert len(spawns) == 2 and d.free == {"CPU": 0}
    for spawn in spawns:
        d.state.ready(spawn.process)
    d.take()
    d.state.done(spawns[1].process, serials[1], 1)
    assert frames(d.take()) == [f"task {serials[2]}".encode()]


def test_a_small_task_passes_one_that_does_not_fit():
    d = Driven()
    d.submit()
    d.submit(request=(("CPU", 20_000),))
    d.submit(request=(("CPU", 5_000),))
    assert len(d.take(Spawn)) == 2 and d.free == {"CPU": 0.5}


def test_a_crashed_task_is_tried_again_and_then_blamed():
    d = Driven()
    serial = d.submit(max_retries=1)
    for _ in range(2):
        [spawn] = d.take(Spawn)
        d.state.ready(spawn.process)
        d.take()
        d.state.exited(spawn.process, "signal SIGSEGV", "    boom")
    [frame] = frames(d.take())
    assert wire.header(frame)[1] == wire.FAILED and wire.header(frame)[4] == serial
    assert failure(frame).error == "WorkerCrashedError"
    assert "2 attempts" in failure(frame).text and "SIGSEGV" in failure(frame).text and "boom" in failure(frame).text
    assert d.free == {"CPU": 2} and not d.state.refcounts.items


def test_done_twice_or_by_a_stranger_changes_nothing():
    d = Driven()
    serial = d.submit()
    [spawn] = d.take()
    d.state.ready(spawn.process)
    for process, number in (
        (99, serial),
        (spawn.process, serial + 1),
        (spawn.process, serial),
        (spawn.process, serial),
    ):
        d.state.done(process, number, 1)
    assert d.free == {"CPU": 2}


def test_blocked_tasks_lend_their_cpus():
    d = Driven(CPU=1)
    outer = d.submit()
    [spawn] = d.take()
    d.state.ready(spawn.process)
    inner = d.submit(source=spawn.process)
    d.take()
    d.state.blocked(spawn.process)
    [second] = d.take(Spawn)
    d.state.ready(second.process)
    d.state.unblocked(spawn.process)
    assert d.free == {"CPU": -1}
    d.state.done(second.process, inner, spawn.process)
    d.state.done(spawn.process, outer, 1)
    assert d.free == {"CPU": 1}


def test_a_blocked_worker_that_dies_gives_back_what_it_had_left():
    d = Driven(CPU=1, a=1)
    d.submit(request=(("CPU", 10_000), ("a", 10_000)), max_retries=0)
    [spawn] = d.take()
    d.state.ready(spawn.process)
    d.state.blocked(spawn.process)
    d.state.exited(spawn.process, "signal SIGKILL")
    assert d.free == {"CPU": 1, "a": 1}


def test_a_blocked_actor_that_dies_gives_back_what_it_had_left():
    d = Driven(CPU=2, a=1)
    _, process = d.start_actor(held=(("CPU", 10_000), ("a", 10_000)))
    d.state.blocked(process)
    assert d.free == {"CPU": 2, "a": 0}
    d.state.exited(process, "signal SIGKILL")
    assert d.free == {"CPU": 2, "a": 1}


def test_an_actor_that_takes_long_to_leave_keeps_no_cpu():
    d = Driven(CPU=1, a=1)
    _, process = d.start_actor(held=(("CPU", 10_000), ("a", 10_000)))
    d.state.leaving(process, "ended")
    assert d.free == {"CPU": 1, "a": 0}
    d.state.blocked(process)  # its destructor waits for something
    d.state.unblocked(process)
    assert d.free == {"CPU": 1, "a": 0}
    d.state.exited(process, "exit code 0")
    assert d.free == {"CPU": 1, "a": 1}


def test_an_idle_worker_that_leaves_gets_no_task():
    d = Driven()
    serial = d.submit()
    [spawn] = d.take()
    d.state.ready(spawn.process)
    d.state.done(spawn.process, serial, 1)
    d.state.leaving(spawn.process, "ended by a signal handler")
    d.take()
    d.submit()
    assert len(d.take(Spawn)) == 1
    d.state.exited(spawn.process, "exit code 0")
    assert d.free == {"CPU": 1}


def test_children_run_before_new_work():
    d = Driven(CPU=1)
    d.submit(name="outer")
    [spawn] = d.take()
    d.state.ready(spawn.process)
    d.submit(name="later")
    child = d.submit(source=spawn.process, name="child")
    d.take()
    d.state.blocked(spawn.process)
    [second] = d.take(Spawn)
    d.state.ready(second.process)
    assert f"task {child}".encode() in frames(d.take())


def test_a_chain_longer_than_the_workers_fails_instead_of_hanging():
    d = Driven(CPU=1)
    d.state.table.largest_worker_count = 3
    source = 1
    for _ in range(3):
        d.submit(source=source)
        source = d.take(Spawn)[0].process
        d.state.ready(source)
        d.state.blocked(source)
    d.take()
    d.submit(source=source, name="one too many")
    [frame] = frames(d.take())
    assert failure(frame).error == "ResourceDeadlockError" and "one too many" in failure(frame).text


def test_actor_life():
    d = Driven()
    key = d.create(request=CPU, held=CPU)
    [spawn] = d.take()
    assert spawn.name == "A" and spawn.held == {"CPU": 1} and d.free == {"CPU": 1}
    d.state.ready(spawn.process)
    assert frames(d.take(), spawn.process) == [b"definition", b"create"]
    d.state.alive(spawn.process)
    [frame] = frames(d.take(), 1)
    assert wire.header(frame)[2] == wire.ACTOR_ALIVE and wire.header(frame)[6] == spawn.process
    d.state.references(1, structs.References([], [], [], [key]))  # the last handle
    assert kinds(d.take(), spawn.process) == [wire.STOP]
    d.state.leaving(spawn.process, "ended")
    assert kinds(d.take()) == [wire.GOODBYE]
    d.state.exited(spawn.process, "exit code 0")
    assert d.free == {"CPU": 2} and not d.state.actors and not d.state.refcounts.items


def test_a_killed_actor_says_so():
    d = Driven()
    key, process = d.start_actor()
    d.state.kill(key)
    assert d.take() == [Kill(process)]
    d.state.exited(process, "signal SIGKILL")
    [frame] = [f for f in frames(d.take(), 1) if wire.header(f)[1] == wire.ACTOR_STATE]
    assert wire.header(frame)[2] == wire.ACTOR_DEAD and text(frame) == "actor A was killed by runtime.kill()"


def test_an_actor_that_dies_says_why_to_all_who_know_it():
    d = Driven()
    key, process = d.start_actor()
    _, other = d.start_actor(name="B")
    d.state.watch(other, key)
    d.take()
    d.state.exited(process, "signal SIGABRT", "    last words")
    told = d.take()
    for watcher in (1, other):
        states = [f for f in frames(told, watcher) if wire.header(f)[1] == wire.ACTOR_STATE]
        assert "SIGABRT" in text(states[0]) and "last words" in text(states[0])
    d.state.watch(other, key)
    assert "SIGABRT" in text(frames(d.take(), other)[0]), "a process that asks later learns it as well"


def test_a_waiting_actor_can_be_killed():
    d = Driven()
    d.create(request=(("CPU", 20_000),), held=(("CPU", 20_000),))
    key = d.create(request=CPU, held=CPU)
    d.take()
    d.state.kill(key)
    [frame] = frames(d.take())
    assert wire.header(frame)[2] == wire.ACTOR_DEAD


def test_more_actors_than_cpus_with_one_notice():
    d = Driven(CPU=1)
    for _ in range(3):
        d.create(request=(), held=CPU)
    taken = d.take()
    assert len([i for i in taken if type(i) is Spawn]) == 3
    assert kinds(taken) == [wire.NOTICE] and d.free == {"CPU": -2}
    assert wire.header(frames(taken)[0])[2] == logging.INFO  # it is so with every small machine: no warning


def test_an_actor_that_the_limit_of_open_files_forbids_fails():
    d = Driven(files=3 * PROCESS_FILES + SEGMENT_FILES)
    actors = [d.start_actor() for _ in range(2)]
    d.create(held=CPU, name="third")
    [frame] = frames(d.take())
    assert wire.header(frame)[2] == wire.ACTOR_DEAD and "third could not be started" in text(frame)
    assert "ulimit -n" in text(frame) and d.free == {"CPU": 2}
    d.state.exited(actors[0][1], "exit code 0")
    d.create(name="fourth")
    assert [i.name for i in d.take(Spawn)] == ["fourth"]


def test_there_is_always_room_for_the_worker_of_a_task():
    d = Driven(files=3 * PROCESS_FILES + SEGMENT_FILES)
    for _ in range(2):
        d.start_actor()
    for serial in range(SEGMENT_FILES + 1):
        d.state.grant(1, serial, 10)
    assert len(d.take(Grow)) == SEGMENT_FILES
    serial = d.submit()
    [spawn] = d.take(Spawn)
    waiting = d.submit()
    assert d.take(Spawn) == []
    d.state.ready(spawn.process)
    d.state.done(spawn.process, serial, 1)
    assert f"task {waiting}".encode() in frames(d.take(), spawn.process)


def test_segments_count_among_open_files():
    d = Driven(files=PROCESS_FILES + 2)
    for serial in range(3):
        d.state.grant(1, serial, 10)
    taken = d.take()
    assert len([i for i in taken if type(i) is Grow]) == 2 and kinds(taken) == [wire.CLOSED]
    d.state.returned(1, 1)
    assert len(d.take(Grow)) == 1


def test_shared_memory_gets_the_files_of_a_process_that_ended():
    d = Driven(files=2 * PROCESS_FILES)
    serials = [d.submit() for _ in range(2)]
    ended, _ = d.take(Spawn)
    d.state.grant(1, serials[0], 10)
    assert d.take(Grow) == []
    d.state.done(ended.process, serials[0], 1)
    d.state.exited(ended.process, "exit code 0")
    assert len(d.take(Grow)) == 1


def test_what_a_dead_process_wanted_is_void():
    d = Driven(CPU=1)
    key, owner = d.start_actor()
    _, process = d.start_actor(source=owner)
    d.submit(source=owner)
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    d.submit(source=owner)
    d.take()
    d.state.exited(owner, "signal SIGKILL")
    assert {i.process for i in d.take(Kill)} == {process, spawn.process}
    d.state.exited(process, "signal SIGKILL")
    d.state.exited(spawn.process, "signal SIGKILL")
    assert d.take(Spawn) == [] and d.free == {"CPU": 1}
    d.state.references(1, structs.References([], [], [], [key]))
    assert not d.state.refcounts.items


def test_calls_that_wait_for_one_another_are_named_once():
    d = Driven()
    first, first_process = d.start_actor(name="A")
    second, second_process = d.start_actor(name="B")
    serial = d.submit(source=second_process, request=())
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    d.take()
    task = wire.key(serial, second_process)
    d.state.waiting(first_process, structs.Waits("A.ask()", [second]))
    d.state.waiting(second_process, structs.Waits("B.ask()", [wire.key(999, 1), task]))
    assert d.take() == []
    d.state.waiting(spawn.process, structs.Waits("f()", [first]))
    [frame] = frames(d.take(), 1)
    assert wire.header(frame)[1:3] == (wire.NOTICE, logging.WARNING)
    assert "f(), which waits for A.ask(), which waits for B.ask(), which waits for f()." in text(frame)


def test_a_call_that_waits_for_its_own_actor_is_named():
    d = Driven()
    key, process = d.start_actor()
    d.state.waiting(process, structs.Waits("A.ask()", [key]))
    assert "A.ask(), which waits for A.ask()." in text(frames(d.take(), 1)[0])


def test_who_has_stopped_waiting_closes_no_circle():
    d = Driven()
    first, first_process = d.start_actor(name="A")
    second, second_process = d.start_actor(name="B")
    d.state.waiting(first_process, structs.Waits("A.ask()", [second]))
    d.state.waiting(first_process, structs.Waits("", []))
    d.state.waiting(second_process, structs.Waits("B.ask()", [first]))
    d.state.waiting(99, structs.Waits("stranger()", [first]))
    assert d.take() == []


def test_the_value_of_a_published_object():
    d = Driven()
    _, reader = d.start_actor()
    key, inner = wire.key(5, 1), wire.key(6, 1)
    d.state.references(1, structs.References([(inner, 0)], [(key, None, [])], [(key, reader)], []))
    d.state.subscribe(reader, key)
    assert d.take() == []
    value = wire.composed_value(b"pickle", [inner], [], [])
    d.state.references(1, structs.References([], [(key, value, [inner])], [], [key, inner]))
    [frame] = frames(d.take(), reader)
    assert wire.header(frame)[1] == wire.OBJECT and frame[wire.HEADER_BYTES :] == value
    assert d.state.refcounts.held_by(reader) == {key: 1, inner: 1}
    d.state.references(reader, structs.References([], [], [], [inner, key]))
    assert not d.state.refcounts.items or list(d.state.refcounts.items) == [wire.key(101, 1)]


def test_the_owner_of_a_pending_object_dies():
    d = Driven()
    _, owner = d.start_actor()
    key = wire.key(5, owner)
    d.state.references(owner, structs.References([], [(key, None, [])], [(key, 1)], []))
    d.state.subscribe(1, key)
    d.take()
    d.state.exited(owner, "signal SIGKILL")
    lost = [f for f in frames(d.take(), 1) if wire.header(f)[1] == wire.OBJECT]
    assert wire.header(lost[0])[2] == wire.LOST


def test_memory_is_granted_up_to_the_quota():
    d = Driven(quota=100)
    d.state.grant(1, 7, 60)
    assert d.take() == [Grow(1, 7, 1, 60)]
    d.state.grant(1, 8, 60)
    assert kinds(d.take()) == [wire.CLOSED], "processes that have segments are asked to return idle ones"
    d.state.returned(1, 1)
    assert d.take() == [Close(1), Grow(1, 8, 2, 60)]
    d.state.grant(1, 9, 101)
    [frame] = frames(d.take())
    assert wire.header(frame)[5] == 0 and "more than" in text(frame)


def test_garbage_is_collected_when_memory_stays_short():
    d = Driven(quota=100)
    _, actor = d.start_actor()
    d.state.grant(1, 7, 60)
    for serial, segment, creator in ((8, 1, 1), (9, 2, actor)):
        d.state.grant(actor, serial, 60)
        d.take()
        assert d.state.needs_ticks
        d.state.tick()
        assert d.take() == []
        for _ in range(8):
            d.state.tick()
        taken = d.take()
        assert kinds(taken, 1) == kinds(taken, actor) == [wire.COLLECT], "once, and anew when memory is short again"
        d.state.returned(creator, segment)
        d.take()
        assert not d.state.needs_ticks


def test_blocks_outlive_their_creator():
    d = Driven()
    _, creator = d.start_actor()
    d.state.grant(creator, 1, 100)
    [grow] = d.take()
    key = wire.key(9, creator)
    d.state.references(creator, structs.References([(key, grow.segment)], [], [(key, 1)], [key]))
    d.state.exited(creator, "signal SIGKILL")
    assert d.take(Close) == []
    d.state.references(1, structs.References([], [], [], [key]))
    taken = d.take()
    assert Close(grow.segment) in taken and d.state.memory.size_bytes == 0
    assert kinds(taken, 1) == [wire.CLOSED], "the reader forgets its mapping"


class Replied:
    """A worker that has made two blocks and told the node that the driver gets both in replies."""

    def __init__(self):
        self.driven = d = Driven()
        _, self.worker = d.start_actor()
        d.state.grant(self.worker, 1, 100)
        [grow] = d.take()
        self.keys = [wire.key(serial, self.worker) for serial in (9, 10)]
        blocks, reply = [(key, grow.segment) for key in self.keys], [(key, 1) for key in self.keys]
        d.state.references(self.worker, structs.References(blocks, [], [], self.keys, reply=reply))

    def release(self, *keys):
        replied = [(key, self.worker) for key in keys]
        self.driven.state.references(1, structs.References([], [], [], [], release_replied=replied))

    def end(self):
        """Kills the worker; whether its callers are to be asked later."""
        self.driven.state.exited(self.worker, "signal SIGKILL")
        return any(later.key == SETTLE and later.process == self.worker for later in self.driven.take(Later))

    def held(self):
        """The keys that somebody holds."""
        return set(self.driven.state.refcounts.items) & set(self.keys)


@pytest.mark.parametrize("arrived", [0, 1, 2])
def test_what_a_killed_worker_could_not_send_is_freed(arrived):
    replied = Replied()
    assert replied.end() and replied.held() == set(replied.keys), "what has arrived is not known yet"
    d = replied.driven
    d.state.due(SETTLE, replied.worker)
    [frame] = frames(d.take(), 1)
    assert wire.header(frame)[1] == wire.SETTLE and wire.header(frame)[5] == replied.worker
    d.state.settled(1, replied.worker, replied.keys[:arrived])
    assert replied.held() == set(replied.keys[:arrived])
    d.state.settled(1, replied.worker, replied.keys)  # a second answer changes nothing
    assert replied.held() == set(replied.keys[:arrived])
    d.state.references(1, structs.References([], [], [], replied.keys[:arrived]))
    assert not replied.held()


def test_replies_may_be_released_before_and_after_the_end_of_their_worker():
    replied = Replied()
    replied.release(replied.keys[0])
    assert replied.end() and replied.held() == {replied.keys[1]}
    replied.release(replied.keys[1])
    assert not replied.held()
    replied.driven.state.settled(1, replied.worker, [])
    assert not replied.held()


def test_a_release_may_overtake_the_reply_that_it_releases():
    d = Driven()
    _, worker = d.start_actor()
    key = wire.key(9, worker)
    d.state.references(1, structs.References([], [], [], [], release_replied=[(key, worker)]))
    d.state.references(worker, structs.References([(key, 0)], [], [], [key], reply=[(key, 1)]))
    assert key not in d.state.refcounts.items


def test_an_account_ends_with_its_caller():
    d = Driven()
    _, caller = d.start_actor()
    _, worker = d.start_actor()
    key = wire.key(9, worker)
    d.state.references(worker, structs.References([(key, 0)], [], [], [key], reply=[(key, caller)]))
    assert key in d.state.refcounts.items
    d.state.exited(caller, "signal SIGKILL")
    assert key not in d.state.refcounts.items
    d.take()
    d.state.exited(worker, "signal SIGKILL")
    assert not [later for later in d.take(Later) if later.key == SETTLE], "nobody is left to be asked"


def test_what_a_process_releases_after_its_end_does_not_count():
    d = Driven()
    _, worker = d.start_actor()
    key = wire.key(9, worker)
    d.state.references(worker, structs.References([(key, 0)], [], [], []))
    d.state.exited(worker, "exit code 0")
    assert key not in d.state.refcounts.items
    d.state.references(worker, structs.References([], [], [], [key]))
    assert key not in d.state.refcounts.items


def test_only_what_a_process_got_from_one_that_has_ended_is_settled():
    replied = Replied()
    state, keys = replied.driven.state, set(replied.keys)
    state.settled(1, replied.worker, [])
    assert replied.held() == keys, "it lives"
    replied.end()
    state.settled(7, replied.worker, list(keys))
    assert replied.held() == keys, "7 has got nothing from it"


def test_freed_blocks_go_back_to_their_creator():
    d = Driven()
    d.state.grant(1, 1, 100)
    _, reader = d.start_actor()
    key = wire.key(9, 1)
    d.state.references(1, structs.References([(key, 1)], [], [(key, reader)], [key]))
    assert d.take() == []
    d.state.references(reader, structs.References([], [], [], [key]))
    [frame] = frames(d.take(), 1)
    assert wire.header(frame)[1] == wire.FREED and wire.keys(frame, wire.HEADER_BYTES) == [key]


def test_a_queued_task_holds_its_arguments():
    d = Driven(CPU=1)
    key = wire.key(9, 1)
    d.submit()
    [spawn] = d.take()
    d.state.grant(1, 1, 100)
    d.state.references(1, structs.References([(key, 1)], [], [], []))
    serial = d.submit(items=[key])
    d.state.references(1, structs.References([], [], [], [key]))
    d.take()
    d.state.ready(spawn.process)
    d.state.done(spawn.process, 101, 1)
    assert d.state.refcounts.held_by(spawn.process) == {key: 1}
    d.state.done(spawn.process, serial, 1)
    d.take()
    d.state.references(spawn.process, structs.References([], [], [], [key]))
    assert kinds(d.take(), 1) == [wire.FREED]


def test_a_result_that_is_known_before_its_task_is_done_keeps_what_it_holds():
    d, argument, inner = Driven(), wire.key(9, 1), wire.key(10, 1)
    d.state.references(1, structs.References([(argument, 0), (inner, 0)], [], [], []))
    serial = d.submit(items=[argument])
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    result, value = wire.key(serial, 1), wire.composed_value(b"pickle", [inner], [], [])
    d.state.references(1, structs.References([], [(result, value, [inner])], [], [inner, argument]))
    d.state.done(spawn.process, serial, 1)
    assert d.state.refcounts.held_by(result) == {inner: 1}
    assert d.state.refcounts.holders()[argument] == [spawn.process]
    d.state.references(1, structs.References([], [], [], [result]))
    assert inner not in d.state.refcounts.items


def test_gpus_go_to_workers_of_their_own():
    d = Driven(gpu_ids=("3", "5"), GPU=2)
    serial = d.submit(request=(("CPU", 10_000), ("GPU", 10_000)))
    [spawn] = d.take()
    assert spawn.gpu_ids == ("3",)
    d.state.ready(spawn.process)
    d.take()
    d.state.done(spawn.process, serial, 1)
    assert kinds(d.take(), spawn.process) == [wire.STOP], "its CUDA context must not stay"


def test_a_long_wait_for_resources_is_explained_once():
    d = Driven(CPU=1)
    d.submit()
    d.submit(name="late")
    d.take()
    for _ in range(30):
        assert d.state.needs_ticks
        d.state.tick()
    [frame] = frames(d.take(), 1)
    assert wire.header(frame)[1] == wire.NOTICE and "late" in text(frame) and "CPU: 1" in text(frame)
    assert wire.header(frame)[2] == logging.WARNING


def test_idle_workers_beyond_the_cpus_end():
    d = Driven(CPU=1)
    serials = [d.submit(request=()) for _ in range(3)]
    spawns = d.take(Spawn)
    for spawn, serial in zip(spawns, serials):
        d.state.ready(spawn.process)
        d.state.done(spawn.process, serial, 1)
    d.take()
    for _ in range(100):
        d.state.tick()
    assert len({i.process for i in d.take(Kill)}) == 2


@pytest.mark.parametrize("process", [0, 99])
def test_strangers_are_ignored(process):
    d = Driven()
    d.submit(source=process)
    d.create(source=process)
    d.state.grant(process, 1, 10)
    for event in (d.state.ready, d.state.alive, d.state.blocked, d.state.unblocked):
        event(process)
    d.state.exited(process, "exit code 0")
    assert d.take() == [] and d.free == {"CPU": 2}


def test_a_cancelled_task_that_waits_is_left_out():
    d = Driven(CPU=1)
    running, cancelled, last = (d.submit() for _ in range(3))
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    d.take()
    for _ in range(2):  # the second time changes nothing
        d.state.cancel(1, cancelled, 1, wire.RECURSIVE)
    [frame] = frames(d.take())
    assert wire.header(frame)[4] == cancelled and failure(frame).error == "TaskCancelledError"
    d.state.done(spawn.process, running, 1)
    assert frames(d.take()) == [f"task {last}".encode()]
    d.state.cancel(1, running, 1, wire.RECURSIVE)
    assert d.take() == []


def test_a_running_task_is_interrupted_once_and_then_ended_by_force():
    d = Driven(CPU=1)
    serial = d.submit(max_retries=3)
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    d.take()
    d.state.cancel(1, serial, 1, 0)
    d.state.cancel(1, serial, 1, 0)
    sent, poke = d.take()
    assert wire.header(sent.frame)[1:6] == (wire.CANCEL, wire.RUNS, wire.NODE, serial, 1)
    assert poke == Poke(spawn.process)
    d.state.cancel(1, serial, 1, wire.FORCE)
    kill, told = d.take()
    assert kill == Kill(spawn.process) and failure(told.frame).error == "TaskKilledError"
    d.state.exited(spawn.process, "signal SIGKILL")
    assert d.take() == [] and d.free == {"CPU": 1} and not d.state.refcounts.items


def test_an_interrupted_task_whose_process_dies_is_not_tried_again():
    d = Driven(CPU=1)
    serial = d.submit(max_retries=3)
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    d.state.cancel(1, serial, 1, 0)
    d.take()
    d.state.exited(spawn.process, "exit code 1")
    [frame] = frames(d.take())
    assert failure(frame).error == "TaskCancelledError" and d.free == {"CPU": 1}


@pytest.mark.parametrize("gpu_ids", [(), ("0",)])
def test_a_task_is_cancelled_before_its_worker_is_ready(gpu_ids):
    d = Driven(CPU=1, gpu_ids=gpu_ids, **({"GPU": 1} if gpu_ids else {}))
    free = d.free
    serial = d.submit(request=(*CPU, *((("GPU", 10_000),) if gpu_ids else ())))
    [spawn] = d.take(Spawn)
    d.state.cancel(1, serial, 1, wire.FORCE)
    assert [failure(f).error for f in frames(d.take()) if wire.header(f)[1] == wire.FAILED] == ["TaskCancelledError"]
    d.state.ready(spawn.process)
    other = d.submit()
    process = d.take(Spawn)[0].process if gpu_ids else spawn.process
    d.state.ready(process)
    d.state.done(process, other, 1)
    d.state.exited(spawn.process, "signal SIGKILL") if gpu_ids else d.state.done(spawn.process, other, 1)
    assert d.free == free


def test_a_task_of_another_process_is_cancelled_through_its_owner():
    d = Driven(CPU=1)
    serial = d.submit()
    d.state.cancel(77, serial, 1, wire.RECURSIVE)
    assert wire.CANCEL in kinds(d.take(), 1)


def test_workers_of_different_environments_are_not_mixed():
    d = Driven(CPU=1)
    processes = {}
    for environment in ("", '{"env_vars": {"A": "1"}}', "", '{"env_vars": {"A": "1"}}'):
        serial = d.submit(environment=environment)
        spawned = d.take(Spawn)
        if environment not in processes:
            [spawn] = spawned
            assert spawn.environment == environment
            processes[environment] = spawn.process
            d.state.ready(spawn.process)
        assert len(spawned) == (serial <= 102)
        d.take()
        d.state.done(processes[environment], serial, 1)
    assert d.state.needs_ticks
    for _ in range(70):
        d.state.tick()
    assert Kill(processes['{"env_vars": {"A": "1"}}']) in d.take(Kill), "it is not kept for ever"


def test_an_idle_worker_makes_place_for_one_of_another_environment():
    d = Driven(CPU=1)
    d.state.table.largest_worker_count = 1
    serial = d.submit()
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    d.state.done(spawn.process, serial, 1)
    d.take()
    d.submit(environment="{}")
    assert d.take() == [Kill(spawn.process)]
    d.state.exited(spawn.process, "signal SIGKILL")
    assert [i.environment for i in d.take(Spawn)] == ["{}"]


def group_states(d):
    return [group.state for group in d.state.group_table()]


def test_a_group_is_booked_at_once_or_waits_before_all_others():
    d = Driven(CPU=2)
    running = d.submit()
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    d.new_group({"CPU": 1})
    d.new_group({"CPU": 1})
    assert group_states(d) == ["CREATED", "PENDING"] and d.free == {"CPU": 0} and d.state.needs_ticks
    d.submit()
    d.state.done(spawn.process, running, 1)
    assert group_states(d) == ["CREATED", "CREATED"] and not d.take(Spawn), "the group comes before the task"


def test_a_task_in_a_group_waits_for_the_group_and_then_for_its_bundle():
    d = Driven(CPU=3)
    first, second = d.new_group({"CPU": 2}), d.new_group({"CPU": 1}, {"CPU": 1})
    d.submit(placement=Placement(second, 1, False))
    d.submit(placement=Placement(second, 1, False))
    assert not d.take(Spawn)
    d.state.remove_group(first)
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    assert d.free == {"CPU": 1}, "the task has its CPU from the bundle"
    d.submit(placement=Placement(second, -1, False))
    [other] = d.take(Spawn)
    d.state.blocked(spawn.process)
    [third] = d.take(Spawn)
    assert len({spawn.process, other.process, third.process}) == 3, "a blocked task lends the CPU of its bundle"


def test_bundles_of_a_removed_group_are_free_when_nothing_runs_in_them():
    d = Driven(CPU=2)
    group = d.new_group({"CPU": 1}, {"CPU": 1})
    running, queued = (d.submit(placement=Placement(group, 0, False)) for _ in range(2))
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    actor = d.create(CPU, CPU, placement=Placement(group, 1, False))
    d.take()
    d.state.remove_group(group)
    taken = d.take()
    failed = {wire.header(frame)[4]: failure(frame).error for frame in frames(taken, 1)}
    assert failed == dict.fromkeys((running, queued), "TaskPlacementGroupRemoved")
    assert len([i for i in taken if type(i) is Kill]) == 2 and d.free == {"CPU": 0}
    d.state.exited(spawn.process, "signal SIGKILL")
    assert d.free == {"CPU": 1} and not d.take(Spawn), "a task of a removed group is not tried again"
    d.state.exited(d.state.actors[actor].process, "signal SIGKILL")
    assert d.free == {"CPU": 2}


def test_calls_into_a_removed_group_or_a_small_bundle_fail():
    d = Driven(CPU=2)
    group = d.new_group({"CPU": 1})
    d.submit(units({"CPU": 2}), placement=Placement(group, -1, True))
    d.state.remove_group(group)
    d.submit(placement=Placement(group, -1, True))
    d.create(CPU, placement=Placement(group, -1, True))
    assert kinds(d.take()) == [wire.NEW_GROUP, wire.FAILED, wire.FAILED, wire.ACTOR_STATE]
    assert d.free == {"CPU": 2}


def test_a_group_ends_with_the_actor_that_made_it_unless_detached():
    d = Driven(CPU=3)
    _, process = d.start_actor()
    d.new_group({"CPU": 1}, source=process)
    d.new_group({"CPU": 1}, source=process, detached=True)
    d.new_group({"CPU": 1})
    d.state.exited(process, "exit code 0")
    assert group_states(d) == ["REMOVED", "CREATED", "CREATED"] and d.free == {"CPU": 1}


def test_a_name_of_a_group_is_free_after_its_removal():
    d = Driven(CPU=3)
    first = d.new_group({"CPU": 1}, name="a")
    d.new_group({"CPU": 1}, name="a")
    assert [text(frame) for frame in frames(d.take())] == [
        "",
        "there is a placement group named 'a' in the namespace '' already",
    ]
    d.state.remove_group(first)
    d.new_group({"CPU": 1}, name="a")
    assert [text(frame) for frame in frames(d.take())] == [""]


def test_what_waits_for_a_group_is_said():
    d = Driven(CPU=1)
    d.new_group({"CPU": 1})
    d.new_group({"CPU": 1}, name="learners")
    d.take()
    for _ in range(10):
        d.state.tick()
    [frame] = frames(d.take())
    assert "placement group learners has waited 2 s for resources: it needs CPU: 1" in text(frame)


def test_what_waits_for_a_task_is_said_later_than_what_waits_for_actors():
    d = Driven(CPU=2)
    d.start_actor(request=CPU, held=CPU, name="Holder")
    d.submit()
    d.create(request=CPU, held=CPU, name="Late")
    d.take()
    for _ in range(10):
        assert not frames(d.take())
        d.state.tick()
    [frame] = frames(d.take())
    assert text(frame) == "actor Late has waited 10 s for resources: it needs CPU: 1; free are nothing"
    d = Driven(CPU=1)
    d.start_actor(request=CPU, held=CPU, name="Holder")
    d.create(request=CPU, held=CPU, name="Late")
    d.take()
    for _ in range(20):
        d.state.tick()
    [frame] = frames(d.take())
    assert text(frame) == (
        "actor Late has waited 2 s for resources: it needs CPU: 1; free are nothing. The rest is held by actors, which "
        "keep it until they end: Holder"
    )


GUEST = wire.FIRST_GUEST + 5


def test_the_end_of_a_further_driver_ends_what_is_its_own():
    d = Driven(CPU=3)
    d.state.driver_joined(GUEST)
    mine, process = d.start_actor(held=CPU)
    _, its_process = d.start_actor(held=CPU, source=GUEST)
    assert d.state.driver_of(process) == wire.DRIVER and d.state.driver_of(its_process) == GUEST
    d.submit(source=GUEST)
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    assert d.state.driver_of(spawn.process) == GUEST
    d.submit(source=GUEST)
    d.new_group({"CPU": 3}, source=GUEST)
    d.take()
    d.state.exited(GUEST, "end of its process")
    assert {i.process for i in d.take(Kill)} == {its_process, spawn.process}
    d.state.exited(its_process, "signal SIGKILL")
    d.state.exited(spawn.process, "signal SIGKILL")
    assert d.free == {"CPU": 2} and not d.take(Spawn) and group_states(d) == ["REMOVED"]
    assert d.state.actors[mine].state.value == "alive" and d.state.driver_of(spawn.process) == wire.DRIVER


def of_a_worker_that_is_idle(d):
    """A worker that has done a task of the guest, and a task and an actor that it has started, which run."""
    first = d.submit(source=GUEST)
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    d.submit(source=spawn.process, request=())
    [child] = d.take(Spawn)
    d.state.ready(child.process)
    _, actor = d.start_actor(source=spawn.process)
    d.state.done(spawn.process, first, GUEST)
    d.take()
    return spawn.process, child.process, actor


def test_what_an_idle_worker_has_started_ends_with_its_driver():
    d = Driven(CPU=3)
    d.state.driver_joined(GUEST)
    worker, child, actor = of_a_worker_that_is_idle(d)
    waiting = d.submit(source=worker, request=(("CPU", 40_000),))
    d.state.exited(GUEST, "end of its process")
    assert {i.process for i in d.take(Kill)} == {child, actor}
    assert d.state.task(wire.key(waiting, worker)) is None


def test_the_driver_of_a_worker_stays_the_one_whose_work_it_did():
    """Also when the worker that has started it serves another driver, and when the driver has ended."""
    d = Driven(CPU=3)
    d.state.driver_joined(GUEST)
    worker, child, actor = of_a_worker_that_is_idle(d)
    d.submit()  # of the first driver
    assert d.state.driver_of(worker) == wire.DRIVER
    d.submit(source=worker, request=())
    [its] = d.take(Spawn)
    d.state.ready(its.process)
    drivers = {process: d.state.driver_of(process) for process in (child, actor, its.process)}
    assert drivers == {child: GUEST, actor: GUEST, its.process: wire.DRIVER}
    d.state.exited(GUEST, "end of its process")
    assert d.state.driver_of(child) == GUEST, "its last lines are not those of another driver"


def test_a_detached_actor_is_of_the_driver_that_stays():
    d = Driven()
    d.state.driver_joined(GUEST)
    _, process = d.start_actor(source=GUEST, detached=True)
    assert d.state.driver_of(process) == wire.DRIVER
    d.state.exited(GUEST, "end of its process")
    assert not d.take(Kill)


def test_notices_go_to_the_drivers_that_they_concern():
    d = Driven()
    d.state.driver_joined(GUEST)
    d.start_actor(held=(("CPU", 20_000),), source=GUEST)
    d.submit(source=GUEST)
    d.state.tick()
    d.state.tick()
    sent = [i for i in d.take(Send) if wire.header(i.frame)[1] == wire.NOTICE]
    assert {i.process for i in sent} == {wire.DRIVER, GUEST}, "of resources, which they share"


def test_a_worker_that_is_to_end_waits_for_what_it_has_started():
    d = Driven(gpu_ids=("0",), CPU=2, GPU=1)
    first = d.submit(request=(("GPU", 10_000),))
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    key, actor = d.start_actor(source=spawn.process)
    child = d.submit(source=spawn.process)
    [its] = d.take(Spawn)
    d.state.ready(its.process)
    d.state.done(spawn.process, first, 1)
    d.state.done(its.process, child, spawn.process)
    d.state.tick()
    assert d.free == {"CPU": 2, "GPU": 1} and wire.STOP not in kinds(d.take(), spawn.process)
    assert d.state.needs_ticks
    d.state.kill(key)
    d.state.exited(actor, "signal SIGKILL")
    d.state.tick()
    assert kinds(d.take(), spawn.process)[-1] == wire.STOP
    d.state.exited(spawn.process, "exit code 0")
    assert not d.state.needs_ticks


def retiring(d, source=1):
    """A worker whose task is done, which is to end, and a task that it has started."""
    serial = d.submit(request=(("GPU", 10_000),), source=source)
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    child = d.submit(source=spawn.process)
    [its] = d.take(Spawn)
    d.state.ready(its.process)
    d.state.done(spawn.process, serial, source)
    return spawn.process, its.process, child


def stops(d, process):
    """The flags of the messages that ask a worker to end."""
    heads = [wire.header(i.frame) for i in d.take(Send) if i.process == process]
    return [head[2] for head in heads if head[1] == wire.STOP]


def test_a_worker_that_is_to_end_is_asked_again_as_only_it_knows_of_calls_that_wait():
    d = Driven(gpu_ids=("0",), CPU=2, GPU=1)
    process, its, child = retiring(d)
    d.state.done(its, child, process)
    for _ in range(2):
        d.state.tick()
        assert stops(d, process) == [0]
    later = d.submit(source=process)
    d.take()
    d.state.tick()
    assert not stops(d, process), "it has refused, and sent a task since then"
    d.state.done(its, later, process)
    d.state.tick()
    assert stops(d, process) == [0]


def test_a_worker_that_is_to_end_ends_with_its_driver():
    d = Driven(gpu_ids=("0",), CPU=2, GPU=1)
    d.state.driver_joined(GUEST)
    process, its, _ = retiring(d, GUEST)
    d.state.exited(GUEST, "end of its process")
    d.state.exited(its, "signal SIGKILL")
    d.state.tick()
    assert stops(d, process) == [wire.FORCE], "what waits for the ended tasks will never be done"
    d.state.exited(process, "exit code 0")
    assert not d.state.needs_ticks


def test_a_worker_that_is_to_end_makes_room_only_if_no_task_does():
    d = Driven(gpu_ids=("0",), CPU=2, GPU=1, files=2 * PROCESS_FILES)
    process, its, _ = retiring(d)
    d.submit(source=its, request=())
    assert not stops(d, process), "the running task will make room"
    d.state.blocked(its)
    assert stops(d, process) == [wire.FORCE]


def test_nothing_starts_for_a_driver_that_has_ended():
    """A thread that a task of it has left in an idle worker may still call."""
    d = Driven()
    d.state.driver_joined(GUEST)
    serial = d.submit(source=GUEST)
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    d.state.done(spawn.process, serial, GUEST)
    d.state.exited(GUEST, "end of its process")
    d.take()
    d.submit(source=spawn.process)
    [frame] = frames(d.take(), spawn.process)
    assert wire.header(frame)[1] == wire.FAILED and b"driver" in frame
    d.create(source=spawn.process)
    assert not d.take(Spawn) and not d.state.waiting_for_resources()
    key, _ = d.start_actor(source=spawn.process, detached=True)
    assert key in d.state.actors


def test_a_group_of_a_task_ends_with_the_driver_of_the_task():
    d = Driven(CPU=3)
    d.state.driver_joined(GUEST)
    serial = d.submit(source=GUEST)
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    d.new_group({"CPU": 1}, source=spawn.process)
    d.state.done(spawn.process, serial, GUEST)
    assert group_states(d) == ["CREATED"]
    d.state.exited(GUEST, "end of its process")
    assert group_states(d) == ["REMOVED"]


@pytest.mark.parametrize("environment", ['{"namespace": "x"}', '{"env_vars": {"A": "1"}, "namespace": "x"}'])
def test_idle_workers_serve_drivers_that_join(environment):
    d = Driven()
    serial = d.submit()
    [spawn] = d.take()
    d.state.ready(spawn.process)
    d.state.done(spawn.process, serial, 1)
    d.state.driver_joined(GUEST)
    d.take()
    serial = d.submit(source=GUEST, environment=environment)
    taken = d.take()
    if "env_vars" in environment:
        assert [type(i) for i in taken] == [Spawn]
        return
    assert kinds(taken[:1], spawn.process) == [wire.MOVE] and text(taken[0].frame) == environment
    assert taken[1:] == [Send(spawn.process, f"task {serial}".encode())]
    d.state.done(spawn.process, serial, GUEST)
    again = d.submit(source=GUEST, environment=environment)
    assert d.take() == [Send(spawn.process, f"task {again}".encode())], "it is at home there now"
    d.submit()
    assert len(d.take(Spawn)) == 1


def test_segments_go_to_the_disk_when_the_memory_is_full():
    d = Driven(quota=100, disk_quota=150)
    for serial in range(3):
        d.state.grant(1, serial, 80)
    taken = d.take()
    assert [(i.segment, i.on_disk) for i in taken if type(i) is Grow] == [(1, False), (2, True)]
    assert kinds(taken, 1).count(wire.NOTICE) == 1 and wire.CLOSED in kinds(taken, 1)
    assert (d.state.memory.size_bytes, d.state.memory.disk_bytes) == (80, 80)
    d.state.returned(1, 2)
    assert [(i.segment, i.on_disk) for i in d.take(Grow)] == [(3, True)]
    d.state.returned(1, 1)
    d.state.grant(1, 9, 150)
    assert d.take(Grow) == [], "it fits on the disk alone, which is taken"
    d.state.grant(1, 10, 151)
    assert "more than" in text(frames(d.take(), 1)[-1])


def test_a_disk_that_refuses_is_tried_again():
    d = Driven(quota=100, disk_quota=1000)
    d.state.grant(1, 1, 100)
    d.state.grant(1, 2, 50)
    grow = d.take(Grow)[-1]
    d.state.disk_refused(grow, "no space left")
    assert d.state.memory.disk_bytes == 0 and d.state.needs_ticks
    assert "the disk takes no more: no space left" in memory_report(d.state)
    d.take()
    d.state.tick()
    [again] = d.take(Grow)
    assert again.on_disk and again.serial == 2


def test_what_only_a_full_disk_could_take_holds_up_no_other():
    d = Driven(quota=100, disk_quota=1000)
    d.state.grant(1, 1, 500)
    d.state.disk_refused(d.take(Grow)[0], "no space left")
    d.state.grant(1, 2, 80)
    assert [(i.serial, i.on_disk) for i in d.take(Grow)] == [(2, False)]
    d.state.grant(1, 3, 80)
    d.state.grant(1, 4, 10)
    assert d.take(Grow) == [], "what waits for memory is not overtaken"


def test_a_request_for_memory_that_is_given_up_is_forgotten():
    d = Driven(quota=100)
    d.state.grant(1, 1, 80)
    d.state.grant(1, 2, 90)
    d.state.grant(1, 3, 10)
    d.take()
    assert d.state.needs_ticks
    d.state.grant(1, 2, 0)
    assert [i.serial for i in d.take(Grow)] == [3] and not d.state.needs_ticks


def test_a_report_of_the_memory_names_the_holders():
    d = Driven(quota=1000)
    _, process = d.start_actor(name="Learner")
    d.state.grant(process, 1, 400)
    [grow] = d.take(Grow)
    block = wire.key(7, process)
    d.state.references(process, structs.References([(block, grow.segment)], [], [(block, 1)], [block]))
    d.submit(request=(("CPU", 90_000),), items=[block], name="train")
    report = memory_report(d.state)
    assert f"actor Learner (process {process:x}) has made 0.0 MB in 1 segments" in report
    assert "driver 1 holds 1 blocks" in report and "the arguments of task train() holds 1 blocks" in report


def states(instructions, process=1):
    """Flags of the messages about actors that a process gets."""
    headers = [wire.header(frame) for frame in frames(instructions, process)]
    return [head[2] for head in headers if head[1] == wire.ACTOR_STATE]


def live_again(d, key):
    """An actor that waits for its next life gets it; its process."""
    [spawn] = d.take(Spawn)
    d.state.ready(spawn.process)
    d.state.alive(spawn.process)
    return spawn.process


def test_an_actor_is_restarted_as_often_as_it_may():
    d = Driven()
    _, process = d.start_actor(held=CPU, max_restarts=2)
    for restarts in (1, 2):
        d.state.exited(process, "signal SIGKILL", "    last words")
        taken = d.take()
        pauses = [i for i in taken if type(i) is Later]
        assert states(taken) == [wire.ACTOR_RESTARTING] and d.free == {"CPU": 1 if not pauses else 2}
        for later in pauses:
            d.state.due(later.key, later.process)
            taken += d.take()
        [spawn] = [i for i in taken if type(i) is Spawn]
        assert spawn.restarts == restarts
        process = spawn.process
        d.state.ready(process)
        d.state.alive(process)
        assert states(d.take())[-1] == wire.ACTOR_ALIVE
    d.state.exited(process, "exit code 1")
    taken = d.take()
    assert states(taken) == [wire.ACTOR_DEAD] and not [i for i in taken if type(i) in (Spawn, Later)]
    assert d.free == {"CPU": 2}


def test_pauses_before_restarts_grow_until_the_actor_lives_for_a_while():
    d = Driven()
    _, process = d.start_actor(max_restarts=-1)
    pauses = []
    for _ in range(7):
        d.state.exited(process, "exit code 1")
        taken = d.take()
        later = [i for i in taken if type(i) is Later]
        pauses += [i.seconds for i in later] or [0.0]
        for i in later:
            assert not [other for other in taken if type(other) is Spawn]
            d.state.due(i.key, i.process)
            d.state.due(i.key, i.process)  # once is enough
            taken += d.take()
        [process] = [i.process for i in taken if type(i) is Spawn]
    assert pauses == [*BACK_OFF_S, BACK_OFF_S[-1], BACK_OFF_S[-1]]
    d.state.ready(process)
    d.state.alive(process)
    [steady] = d.take(Later)
    assert steady.seconds == STEADY_S
    d.state.due(steady.key, steady.process)
    d.state.exited(process, "exit code 1")
    assert [type(i) for i in d.take() if type(i) in (Later, Spawn)] == [Spawn]


@pytest.mark.parametrize("why", ["leaves", "is killed", "has no handle", "fails to start", "loses its owner"])
def test_an_actor_that_is_meant_to_end_is_not_restarted(why):
    d = Driven()
    owner = d.start_actor()[1]
    key, process = d.start_actor(max_restarts=-1, source=owner)
    if why == "leaves":
        d.state.leaving(process, "called exit_actor()")
    elif why == "is killed":
        d.state.kill(key)
    elif why == "has no handle":
        d.state.references(owner, structs.References([], [], [], [key]))
    elif why == "fails to start":
        d.state.start_failed(process, b"failure")
    else:
        d.state.exited(owner, "signal SIGKILL")
    d.take()
    d.state.exited(process, "exit code 0")
    assert not d.take(Spawn)


def test_kill_with_restart_and_without():
    d = Driven()
    key, process = d.start_actor(max_restarts=1)
    d.state.kill(key, restart=True)
    assert d.take(Kill) == [Kill(process)]
    d.state.exited(process, "signal SIGKILL")
    taken = d.take()
    assert states(taken) == [wire.ACTOR_RESTARTING] and "killed by runtime.kill()" in text(frames(taken, 1)[0])
    d.state.kill(key, restart=True)  # it starts already: nothing is to be done
    [spawn] = [i for i in taken if type(i) is Spawn]
    assert d.take(Kill) == [Kill(spawn.process)]
    d.state.kill(key)
    d.state.exited(spawn.process, "signal SIGKILL")
    assert states(d.take()) == [wire.ACTOR_DEAD]
    lonely, process = d.start_actor()
    d.state.kill(lonely, restart=True)  # it has no restarts: this is its end
    d.state.exited(process, "signal SIGKILL")
    assert states(d.take()) == [wire.ACTOR_DEAD]


def test_an_actor_that_waits_for_its_restart_can_be_killed_and_dropped():
    for end in ("kill", "drop"):
        d = Driven()
        key, process = d.start_actor(held=CPU, max_restarts=-1)
        for _ in range(2):
            d.state.exited(process, "exit code 1")
            taken = d.take()
            process = next((i.process for i in taken if type(i) is Spawn), 0)
        [later] = [i for i in taken if type(i) is Later]
        if end == "kill":
            d.state.kill(key)
            assert states(d.take()) == [wire.ACTOR_DEAD]
        else:
            d.state.references(1, structs.References([], [], [], [key]))
        d.state.due(later.key, later.process)
        assert not d.take(Spawn) and d.free == {"CPU": 2}


def claim(d, name="n", source=1, share=False, namespace="ns", key=b"", description=b"what"):
    """The flag and the body of the answer to a claim."""
    d.serial += 1
    key = key or wire.key(d.serial + 1, source)
    d.state.names.claim(source, d.serial, structs.Claim(namespace, name, key, share, description))
    [frame] = frames(d.take(), source)
    return wire.header(frame)[2], frame[wire.HEADER_BYTES :]


def find(d, name="n", source=1, namespace="ns"):
    d.state.names.find(source, 7, structs.Name(namespace, name))
    [frame] = frames(d.take(), source)
    return wire.header(frame)[2], frame[wire.HEADER_BYTES :]


def test_a_name_has_one_actor_until_it_ends():
    d = Driven()
    other = d.start_actor()[1]
    assert find(d) == (wire.NAME_UNKNOWN, b"")
    assert claim(d) == (wire.NAME_GRANTED, b"")
    key = d.create()
    [spawn] = d.take(Spawn)
    assert claim(d, source=other) == (wire.NAME_TAKEN, b"")
    assert claim(d, source=other, share=True) == (wire.NAME_HELD, key + b"what")
    assert find(d, source=other) == (wire.NAME_HELD, key + b"what")
    assert find(d, namespace="other") == (wire.NAME_UNKNOWN, b"")
    assert d.state.refcounts.held_by(other)[key] == 2
    d.state.ready(spawn.process)
    d.state.alive(spawn.process)
    d.state.exited(spawn.process, "exit code 1")
    d.take()
    assert find(d) == (wire.NAME_UNKNOWN, b"")


def test_a_name_is_free_when_its_actor_has_no_handle_or_no_creator():
    d = Driven()
    creator = d.start_actor()[1]
    claim(d)
    key = d.create()
    d.take()
    d.state.references(1, structs.References([], [], [], [key]))
    d.take()
    assert find(d) == (wire.NAME_UNKNOWN, b"")
    claim(d, source=creator)
    d.state.exited(creator, "signal SIGKILL")  # before it has created the actor
    d.take()
    assert find(d) == (wire.NAME_UNKNOWN, b"")


def test_a_name_is_free_when_its_actor_is_killed_for_good():
    for state in ("on its way", "waits", "starts", "lives"):
        for restart in (False, True):
            d = Driven(CPU=1)
            if state == "waits":
                d.create(held=CPU, request=CPU)
                d.take()
            claim(d)
            key = wire.key(d.serial + 1, 1)
            if state != "on its way":
                assert d.create(held=CPU, request=CPU) == key
            spawned = d.take(Spawn)
            if state == "lives":
                d.state.ready(spawned[-1].process)
                d.state.alive(spawned[-1].process)
            d.state.kill(key, restart=restart)
            d.take()
            is_unknown = state != "on its way" or not restart  # one that is on its way cannot start again
            assert (find(d)[0] == wire.NAME_UNKNOWN) == is_unknown, (state, restart)
            if is_unknown:
                assert claim(d)[0] == wire.NAME_GRANTED
                for spawn in spawned[-1:]:
                    d.state.exited(spawn.process, "signal SIGKILL")
                d.take()
                assert find(d)[0] == wire.NAME_HELD  # the end of the killed one's process leaves it alone


def test_a_name_stays_while_its_actor_can_start_again():
    d = Driven()
    claim(d)
    key = d.create(max_restarts=1)
    [first] = d.take(Spawn)
    d.state.kill(key, restart=True)
    d.take()
    assert find(d)[0] == wire.NAME_HELD
    d.state.exited(first.process, "signal SIGKILL")
    d.take()
    d.state.kill(key, restart=True)  # its last life has begun
    d.take()
    assert find(d)[0] == wire.NAME_UNKNOWN


def test_those_that_know_an_actor_learn_that_it_is_not_created():
    d = Driven()
    other = d.start_actor()[1]
    claim(d)
    key = wire.key(d.serial + 1, 1)
    assert find(d, source=other)[0] == wire.NAME_HELD
    d.state.watch(other, key)
    d.state.not_created(1, d.serial + 1, b"failure")
    taken = d.take()
    assert states(taken, other) == [wire.ACTOR_START_FAILED] and text(frames(taken, other)[-1]) == "failure"
    assert find(d) == (wire.NAME_UNKNOWN, b"")
    for process in (1, other):
        d.state.references(process, structs.References([], [], [], [key]))
    assert key not in d.state.actors and not d.state.refcounts.items.get(key)


def test_a_detached_actor_outlives_handles_and_creator():
    d = Driven()
    creator = d.start_actor()[1]
    key, process = d.start_actor(source=creator, detached=True)
    d.state.references(creator, structs.References([], [], [], [key]))
    d.state.exited(creator, "exit code 0")
    assert not d.take(Kill) and key in d.state.actors
    d.state.kill(key)
    d.state.exited(process, "signal SIGKILL")
    assert key not in d.state.actors and key not in d.state.refcounts.items
