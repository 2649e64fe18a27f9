"""Fleets: what follows a failure, what is asked again, bounds, and silence; with and without processes."""

import gc
import os
import signal
import time
from types import SimpleNamespace

import pytest
from runtime_support import wait_until

import runtime
from runtime.engines.arrivals import ArrivalsByWaiting
from runtime.errors import ActorDiedError, TaskError
from runtime.util import fleet as fleet_module
from runtime.util.fleet import FaultTolerance, Fleet, SilentActorError

REPLACED, LEFT_OUT, RAISED = "replaced", "left out", "raised"


class Worker:
    """An actor that answers, dies or raises as the test asks."""

    def __init__(self, index, incarnation, fails=False):
        if fails:
            raise ValueError("cannot be made")
        self.index, self.incarnation, self.calls = index, incarnation, 0

    def who(self):
        return self.index, self.incarnation

    def count(self):
        self.calls += 1
        return self.calls

    def raise_error(self):
        raise ValueError("asked to")

    def raise_late(self, seconds, message):
        time.sleep(seconds)
        raise ValueError(message)

    def raise_in_first(self):
        if self.incarnation == 0 and self.index == 1:
            raise ValueError("asked to")
        return self.who()

    def pid(self):
        return os.getpid()

    def exit_in(self, incarnations):
        if self.incarnation in incarnations:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.incarnation

    def sleep(self, seconds):
        time.sleep(seconds)
        return self.who()


def started(index, incarnation):
    return runtime.remote(Worker).options(num_cpus=0).remote(index, incarnation)


def make_fleet(count=2, start=started, ready=None, on_lost=None, hint="", **tolerance) -> Fleet:
    tolerance = FaultTolerance(**{"delay_s": 0.0, **tolerance})
    indices = range(1, count + 1)
    return Fleet(start, indices, kind="worker", tolerance=tolerance, hint=hint, ready=ready, on_lost=on_lost)


def who(actor, index):
    return actor.who.remote()


def kill_actor(fleet, index):
    runtime.kill(fleet.members[index].handle)


class TestAllAtOnce:
    def test_answers_come_in_order(self, engine):
        fleet = make_fleet(3)
        assert list(fleet.ask_all(who).items()) == [(1, (1, 0)), (2, (2, 0)), (3, (3, 0))]
        assert fleet.ask_all(who, [2]) == {2: (2, 0)}
        assert fleet.ask_all(who, []) == {}
        fleet.stop()

    def test_the_dead_are_replaced_and_asked_again(self, engine):
        fleet = make_fleet(3)
        kill_actor(fleet, 2)
        assert fleet.ask_all(who) == {1: (1, 0), 2: (2, 1), 3: (3, 0)}
        assert (fleet.num_restarts, fleet.pop_replaced(), fleet.pop_replaced()) == (1, [2], [])
        assert list(fleet.members) == [1, 2, 3]
        fleet.stop()

    def test_what_was_begun_before_a_replacement_is_asked_again(self, engine):
        fleet = make_fleet()
        kill_actor(fleet, 1)
        collect = fleet.begin(who)
        fleet.ask_all(who)
        assert collect() == {1: (1, 1), 2: (2, 0)}
        assert fleet.num_restarts == 1, "the successor is not blamed for what its predecessor left"
        fleet.stop()

    def test_those_left_out_give_no_answer(self, engine):
        fleet = make_fleet(ignore=True)
        kill_actor(fleet, 1)
        assert fleet.ask_all(who) == fleet.ask_all(who) == {2: (2, 0)}
        assert fleet.num_restarts == 0
        fleet.stop()

    def test_nobody_left(self, engine):
        fleet = make_fleet(1, restart=False, names={"restart": "recreate"})
        kill_actor(fleet, 1)
        with pytest.raises(ActorDiedError):
            fleet.ask_all(who)
        with pytest.raises(ActorDiedError, match="no worker is left; with recreate=True they are replaced"):
            fleet.ask_all(who)

    def test_an_exception_is_the_users_own(self, engine):
        fleet = make_fleet()
        with pytest.raises(ValueError, match="asked to"):
            fleet.ask_all(lambda actor, index: actor.raise_error.remote())
        fleet.stop()

    def test_an_exception_in_what_is_not_work_harms_nobody(self, engine):
        fleet = make_fleet(restart=True)
        with pytest.raises(ValueError, match="asked to"):
            fleet.ask_all(lambda actor, index: actor.raise_error.remote(), is_work=False)
        assert (len(fleet.members), fleet.num_restarts) == (2, 0)
        fleet.stop()

    @pytest.mark.parametrize("is_work", [True, False])
    def test_an_exception_of_all_is_raised_once_and_not_logged(self, engine, caplog, is_work):
        fleet = make_fleet(3)
        with pytest.raises(ValueError, match="asked to"):
            fleet.ask_all(lambda actor, index: actor.raise_late.remote(0.1 * index, "asked to"), is_work=is_work)
        assert (gc.collect(), runtime.get(runtime.put(0)), caplog.text)[1:] == (0, "")
        fleet.stop()
        fleet = make_fleet(3)
        with pytest.raises(ValueError, match="first"):
            fleet.ask_all(lambda actor, index: actor.raise_late.remote(0.0, ["", "first", "then", "then"][index]))
        assert "another worker has failed as well" in caplog.text and "then" in caplog.text
        fleet.stop()

    def test_an_exception_is_tolerated_where_that_is_asked_for(self, engine):
        fleet = make_fleet(restart=True)
        assert fleet.ask_all(lambda actor, index: actor.raise_in_first.remote()) == {1: (1, 1), 2: (2, 0)}
        fleet.stop()

    def test_an_actor_that_cannot_be_made_ends_the_start_and_leaves_none_behind(self, engine):
        def start(index, incarnation):
            return runtime.remote(Worker).options(num_cpus=0).remote(index, incarnation, fails=index == 2)

        with pytest.raises(ValueError, match="cannot be made"):
            make_fleet(start=start, ready=lambda actor: actor.who.remote())

    def test_an_actor_that_cannot_be_made_can_be_left_out(self, engine):
        def start(index, incarnation):
            return runtime.remote(Worker).options(num_cpus=0).remote(index, incarnation, fails=index == 2)

        fleet = make_fleet(start=start, ready=lambda actor: actor.who.remote(), ignore=True)
        assert list(fleet.members) == [1]
        fleet.stop()

    def test_a_fleet_of_none_needs_no_session(self):
        fleet = make_fleet(0, ready=lambda actor: actor.who.remote())
        assert fleet.take(0.0) == [] and fleet.num_in_flight == 0
        fleet.stop()


class TestEachAtItsOwnPace:
    def test_each_has_its_number_of_requests(self, engine):
        fleet = make_fleet()
        for _ in range(3):
            fleet.keep_in_flight(lambda actor, index: actor.count.remote(), 2)
            assert fleet.num_in_flight == 4
            fleet.take(10.0)
        fleet.stop()

    def test_answers_of_each_are_in_order(self, engine):
        fleet, found = make_fleet(), {1: [], 2: []}
        while min(map(len, found.values())) < 4:
            fleet.keep_in_flight(lambda actor, index: actor.count.remote(), 3)
            for answer in fleet.take(10.0):
                found[answer.index].append(answer.value)
        assert all(values == list(range(1, len(values) + 1)) for values in found.values())
        fleet.stop()

    def test_requests_of_the_dead_are_reported_and_made_anew(self, engine):
        lost = []
        fleet = make_fleet(on_lost=lambda index, member: lost.append((index, [tag for tag, _ in member.pending])))
        member = fleet.members[1]
        runtime.kill(member.handle)
        for tag in "ab":
            member.send(member.handle.who.remote(), tag)
        while not lost:
            assert fleet.take(10.0) == []
        assert lost == [(1, ["a", "b"])] and fleet.num_in_flight == 0
        fleet.keep_in_flight(who, 1)
        answers = []
        while len(answers) < 2:
            answers += fleet.take(10.0)
        assert sorted(answers)[0] == (1, (1, 1), None, 1)
        fleet.stop()

    def test_a_failure_that_is_not_tolerated_is_raised(self, engine):
        fleet = make_fleet()
        fleet.keep_in_flight(lambda actor, index: actor.raise_error.remote(), 1)
        with pytest.raises(ValueError, match="asked to"):
            fleet.take(10.0)
        fleet.stop()

    def test_what_is_forgotten_is_not_taken(self, engine):
        fleet = make_fleet()
        fleet.keep_in_flight(who, 2)
        fleet.forget()
        assert fleet.num_in_flight == 0 and fleet.take(0.0) == []
        fleet.stop()


@pytest.fixture
def clock(monkeypatch):
    """Fake handles: a reference is a list that holds its answer, or nothing yet; `clock.now` is the time."""

    class Clock:
        def __init__(self):
            self.now, self.killed = 0.0, []

        def monotonic(self):
            return self.now

        def sleep(self, seconds):
            self.now += seconds

        def wait(self, refs, num_returns=1, timeout=None):
            done = [ref for ref in refs if ref.answer]
            if not done:
                self.now += timeout
            return done[:num_returns], []

        def get(self, ref, timeout=None):
            if not ref.answer:
                self.now += timeout
                raise runtime.errors.GetTimeoutError("not there")
            (answer,) = ref.answer
            if isinstance(answer, Exception):
                raise answer
            return answer

    clock = Clock()
    monkeypatch.setattr(fleet_module, "time", clock)
    monkeypatch.setattr(fleet_module, "wait", clock.wait)
    monkeypatch.setattr(fleet_module, "get", clock.get)
    monkeypatch.setattr(fleet_module, "kill", clock.killed.append)
    monkeypatch.setattr(fleet_module, "engine", lambda: SimpleNamespace(arrivals=lambda: ArrivalsByWaiting(clock.wait)))
    return clock


class Ref:
    def __init__(self, *answer):
        self.answer = list(answer)


def fake_fleet(count=1, **options) -> Fleet:
    return make_fleet(count, start=lambda index, incarnation: (index, incarnation), **options)


def fail(fleet, failure, index=1):
    """The member leaves its request with this failure."""
    fleet.members[index].send(Ref(failure))
    fleet.take(0.0)


@pytest.mark.parametrize(
    ("settings", "after_death", "after_exception"),
    [
        ({}, REPLACED, RAISED),
        ({"restart": True}, REPLACED, REPLACED),
        ({"restart": True, "ignore": True}, REPLACED, REPLACED),
        ({"restart": False}, RAISED, RAISED),
        ({"ignore": True}, LEFT_OUT, LEFT_OUT),
        ({"restart": False, "ignore": True}, LEFT_OUT, LEFT_OUT),
    ],
    ids=str,
)
def test_what_follows_a_failure(clock, settings, after_death, after_exception):
    for kind, expected in ((ActorDiedError, after_death), (TaskError, after_exception)):
        fleet = fake_fleet(2, **settings)
        if expected == RAISED:
            with pytest.raises(kind, match="a reason"):
                fail(fleet, kind("a reason"))
        else:
            fail(fleet, kind("a reason"))
            assert list(fleet.members) == ([1, 2] if expected == REPLACED else [2])
        assert fleet.num_restarts == (expected == REPLACED)
        assert clock.killed.pop() == (1, 0)


def test_failures_in_a_row_are_counted_for_each_actor(clock):
    fleet = fake_fleet(2, max_consecutive_failures=2, names={"max_consecutive_failures": "tolerated"})
    for index in (1, 2, 1, 2):
        fail(fleet, ActorDiedError(), index)
    fleet.members[2].send(Ref("useful"))
    assert [answer.value for answer in fleet.take(0.0)] == ["useful"]
    fail(fleet, ActorDiedError(), 2)
    with pytest.raises(ActorDiedError) as caught:
        fail(fleet, ActorDiedError(), 1)
    (note,) = caught.value.__notes__
    assert note.startswith("worker 1 is not started again: 5 restarts in this run (max_restarts=1000)")
    assert "3 failures in a row without a useful answer (tolerated=2)" in note


def test_an_answer_to_what_is_not_work_forgives_nothing(clock):
    fleet = fake_fleet(max_consecutive_failures=1)
    fail(fleet, ActorDiedError())
    fleet.ask_all(lambda actor, index: Ref("alive"), is_work=False)
    with pytest.raises(ActorDiedError):
        fail(fleet, ActorDiedError())


def test_after_hours_of_work_deaths_count_for_the_whole_fleet_alone(clock):
    fleet = fake_fleet(2, max_restarts=4, max_consecutive_failures=1)
    for index in (1, 2, 1, 2):
        fail(fleet, ActorDiedError(), index)
        fleet.members[index].send(Ref("useful"))
        fleet.take(0.0)
    with pytest.raises(ActorDiedError):
        fail(fleet, ActorDiedError(), 1)


def test_the_last_one_cannot_be_left_out(clock):
    fleet = fake_fleet(ignore=True)
    with pytest.raises(TaskError) as caught:
        fail(fleet, TaskError("a reason"))
    assert "worker 1 was the last one that worked" in caught.value.__notes__[0]


def test_the_second_failure_in_a_row_is_waited_for(clock):
    """The other actors continue in the meantime; `ask_all` waits for the replacement."""
    fleet = fake_fleet(2, delay_s=7.0)
    fail(fleet, ActorDiedError())
    assert list(fleet.members) == [1, 2]
    fail(fleet, ActorDiedError())
    assert list(fleet.members) == [2]
    fleet.members[2].send(Ref("goes on"))
    assert [answer.value for answer in fleet.take(1.0)] == ["goes on"]
    assert clock.now == 0.0
    assert fleet.ask_all(lambda actor, index: Ref(actor)) == {1: (1, 2), 2: (2, 0)}
    assert clock.now == 7.0


def test_a_wait_ends_with_the_replacement(clock):
    fleet = fake_fleet(delay_s=7.0)
    fail(fleet, ActorDiedError())
    fail(fleet, ActorDiedError())
    assert fleet.take(100.0) == [] and clock.now == 7.0
    assert list(fleet.members) == [1]


def test_silence_is_reported_then_ends_the_actor(clock, caplog):
    fleet = fake_fleet(silence_s=2.0, patience=3, hint="does it hang?")
    fleet.keep_in_flight(lambda actor, index: Ref(), 1)
    while fleet.num_restarts == 0:
        assert fleet.take(100.0) == []
    assert clock.now == 6.0
    warnings = [record.getMessage() for record in caplog.records]
    assert warnings[:2] == [f"worker 1 has not answered for {seconds} s; does it hang?" for seconds in (2, 4)]
    assert warnings[2] == "worker 1 is replaced: worker 1 did not answer within 3 x silence_s=2 s; does it hang?"


def test_silence_of_one_that_all_wait_for(clock, caplog):
    """The same clock and the same end."""
    fleet = fake_fleet(2, silence_s=2.0, patience=3)
    refs = {(1, 0): Ref(), (1, 1): Ref("late"), (2, 0): Ref("first")}
    assert fleet.ask_all(lambda actor, index: refs[actor]) == {1: "late", 2: "first"}
    assert clock.now == 6.0 and caplog.text.count("has not answered") == 2


def test_several_that_are_silent_together_are_replaced_together(clock, caplog):
    """They are looked at one after the other, and have been asked at the same time."""
    fleet = fake_fleet(40, silence_s=2.0, patience=3)
    answers = fleet.ask_all(lambda actor, index: Ref(index) if actor[1] else Ref())
    assert answers == {index: index for index in range(1, 41)}
    assert clock.now == 6.0 and fleet.num_restarts == 40


def test_an_answer_that_is_taken_late_is_no_silence(clock):
    fleet = fake_fleet(2, silence_s=2.0, patience=3)
    collect = fleet.begin(lambda actor, index: Ref(index))
    clock.now += 1000
    assert collect() == {1: 1, 2: 2} and fleet.num_restarts == 0


def test_whoever_may_take_forever_is_never_given_up(clock, caplog):
    fleet, ref = fake_fleet(silence_s=2.0, patience=1), Ref()
    collect = fleet.begin(lambda actor, index: ref, patience=float("inf"))
    get = clock.get
    fleet_module.get = lambda ref, timeout: ref.answer.append("done") or "done" if clock.now > 50 else get(ref, timeout)
    assert collect() == {1: "done"}
    assert caplog.text.count("has not answered") == 5  # after 2, 4, 8, 16 and 32 s


def test_the_details_of_a_failure_are_shown_once(clock, caplog):
    fleet = fake_fleet(delay_s=0.0)
    for pid, where in ((11, "here"), (12, "here"), (13, "there")):
        fail(fleet, ActorDiedError(f"actor worker {pid} died.\nThe last lines it wrote:\n    {where} in {pid}"))
        fleet.take(0.0)
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "actor worker 11 died.\nThe last lines it wrote:\n    here in 11",
        "actor worker 12 died, as before",
        "actor worker 13 died.\nThe last lines it wrote:\n    there in 13",
    ]


def test_what_happens_to_many_is_counted(clock, caplog):
    fleet = fake_fleet(50, silence_s=2.0, patience=3)
    fleet.keep_in_flight(lambda actor, index: Ref(), 1)
    for _ in range(3):
        fleet.take(100.0)
    assert fleet.num_restarts == 50
    for seconds in (2, 4):
        assert caplog.text.count(f"has not answered for {seconds} s") == 10
    assert caplog.text.count("is replaced") == 10 and "more" not in caplog.text
    caplog.clear()
    fail(fleet, ActorDiedError("died"))
    clock.now += 100  # what follows is another matter
    fail(fleet, ActorDiedError("died"))
    counted = ["40 more workers have not answered for 2 s", "40 more workers have not answered for 4 s"]
    for line in (*counted, "41 more workers are replaced", "worker 1 is replaced"):
        assert caplog.text.count(line) == 1, line


def test_silence_is_tolerated_once_in_a_row(clock):
    fleet = fake_fleet(silence_s=2.0, patience=1)
    with pytest.raises(SilentActorError, match="1 x silence_s=2 s"):
        fleet.ask_all(lambda actor, index: Ref())
    assert fleet.num_restarts == 1


def test_time_in_which_nobody_looked_is_no_silence(clock):
    """Both requests were answered long ago; the first of them is taken late."""
    fleet = fake_fleet(silence_s=2.0, patience=1)
    for value in "ab":
        fleet.members[1].send(Ref(value))
    clock.now += 1000
    assert [answer.value for answer in fleet.take(0.0) + fleet.take(0.0)] == ["a", "b"]
    assert fleet.num_restarts == 0


class Asked:
    """Requests whose answers the test gives: asked.refs[index] are those of a member, the oldest first."""

    def __init__(self, answers=()):
        self.refs: dict[int, list[Ref]] = {}
        self._answers = answers

    def __call__(self, actor, index):
        ref = Ref(actor) if index in self._answers else Ref()
        self.refs.setdefault(index, []).append(ref)
        return ref


def all_but_one(members: int) -> int:
    return members - 1


def told(answers) -> list[tuple]:
    return [(answer.index, answer.incarnation, answer.tag) for answer in answers]


def test_most_are_waited_for_and_an_answer_that_comes_late_is_taken_once(clock):
    fleet, asked = fake_fleet(3), Asked({1, 2})
    assert told(fleet.ask_most(asked, all_but_one, "first")) == [(1, 0, "first"), (2, 0, "first")]
    assert told(fleet.ask_most(asked, all_but_one, "second")) == [(1, 0, "second"), (2, 0, "second")]
    assert (len(asked.refs[3]), fleet.num_in_flight) == (1, 1), "a member has one request under way"
    asked.refs[3][0].answer.append("late")
    answers = fleet.ask_most(asked, all_but_one, "third")
    assert told(answers) == [(1, 0, "third"), (2, 0, "third"), (3, 0, "first")]
    assert (len(asked.refs[3]), fleet.num_in_flight) == (2, 1), "it is asked again as soon as it has answered"


def test_an_earlier_answer_does_not_count_for_most(clock):
    fleet, asked = fake_fleet(2), Asked({1})
    fleet.ask_most(asked, all_but_one)
    asked.refs[2][0].answer.append("late")
    asked._answers = {2}
    assert told(fleet.ask_most(asked, all_but_one)) == [(2, 0, None)] * 2
    assert (len(asked.refs[1]), fleet.num_in_flight) == (2, 1)


def test_the_dead_count_for_most_when_their_successors_have_answered(clock):
    fleet, asked = fake_fleet(3), Asked({1})
    fleet.members[2].send(Ref(ActorDiedError("gone")), "before")
    fleet.members[3].send(Ref(), "before")
    asked._answers = {1, 2}
    assert told(fleet.ask_most(asked, all_but_one, "now")) == [(1, 0, "now"), (2, 1, "now")]
    assert (fleet.num_restarts, fleet.num_in_flight) == (1, 1)


def test_the_dead_do_not_count_for_most_while_none_replaces_them(clock):
    fleet, asked = fake_fleet(3, ignore=True), Asked({1})
    fleet.members[2].send(Ref(ActorDiedError("gone")))
    assert told(fleet.ask_most(asked, all_but_one)) == [(1, 0, None)]
    assert list(fleet.members) == [1, 3]


def test_most_of_none_are_not_waited_for(clock):
    fleet = fake_fleet(1, restart=False)
    with pytest.raises(ActorDiedError, match="gone"):
        fail(fleet, ActorDiedError("gone"))
    with pytest.raises(ActorDiedError, match="no worker is left"):
        fleet.ask_most(who, all_but_one)


def test_silence_of_most_ends_the_wait(clock):
    fleet = fake_fleet(2, restart=False, silence_s=10)
    with pytest.raises(SilentActorError, match="worker 1 did not answer"):
        fleet.ask_most(Asked(), all_but_one)
    assert clock.now == 100


def test_an_answer_costs_no_look_at_the_other_members(clock):
    """Neither taking it nor asking its actor again: with a thousand members it would cost more than the answer."""

    class Counted(dict):
        looks = 0

        def items(self):
            self.looks += 1
            return super().items()

        values = __iter__ = items

    fleet = fake_fleet(3, silence_s=60.0)
    refs = {index: [Ref(), Ref()] for index in fleet.members}
    fleet.keep_in_flight(lambda actor, index: refs[index][len(fleet.members[index].pending)], 2)
    assert fleet.take(0.0) == []  # the first look at everybody's silence
    fleet.members = members = Counted(fleet.members)
    refs[2][0].answer.append("there")
    assert [answer.value for answer in fleet.take(0.0)] == ["there"]
    asked = []
    fleet.keep_in_flight(lambda actor, index: asked.append(index) or Ref(), 2)
    assert asked == [2] and members.looks == 0


@pytest.fixture
def processes(engine):
    if engine == "local":
        pytest.skip("actors of the local engine are no processes")


class TestProcesses:
    def test_killed_processes_are_replaced_whoever_waits(self, processes):
        fleet = make_fleet(3)
        pids = fleet.ask_all(lambda actor, index: actor.pid.remote())
        fleet.keep_in_flight(lambda actor, index: actor.sleep.remote(0.05), 2)
        for index in (1, 3):
            os.kill(pids[index], signal.SIGKILL)
        found = {}
        while len(found) < 3:
            for answer in fleet.take(10.0):
                found[answer.index] = answer.value
            fleet.keep_in_flight(lambda actor, index: actor.sleep.remote(0.0), 2)
        fleet.forget()
        assert found == {1: (1, 1), 2: (2, 0), 3: (3, 1)}
        os.kill(pids[2], signal.SIGKILL)
        assert fleet.ask_all(who) == {1: (1, 1), 2: (2, 1), 3: (3, 1)}
        assert fleet.num_restarts == 3
        fleet.stop()

    def test_a_process_that_always_dies_ends_the_run_with_its_reason(self, processes):
        fleet = make_fleet(max_consecutive_failures=2)
        with pytest.raises(ActorDiedError, match=r"(?i)sigkill|process was killed") as caught:  # the latter: Ray 2.60
            fleet.ask_all(lambda actor, index: actor.exit_in.remote(range(10)))
        assert "max_consecutive_failures=2" in caught.value.__notes__[0]
        fleet.stop()

    def test_a_stopped_process_is_replaced_while_the_others_go_on(self, engine, processes):
        silence_s = 5.0 if engine == "ray" else 1.0  # in which a process starts; Ray's needs seconds on a busy machine
        fleet = make_fleet(silence_s=silence_s, patience=2, ready=lambda actor: actor.pid.remote())
        os.kill(fleet.ask_all(lambda actor, index: actor.pid.remote())[1], signal.SIGSTOP)
        count = 0
        while fleet.num_restarts == 0:
            fleet.keep_in_flight(who, 1)
            count += len(fleet.take(1.0))
        assert count > 5
        assert fleet.ask_all(who) == {1: (1, 1), 2: (2, 0)}
        fleet.stop()

    def test_stopping_leaves_no_process(self, processes):
        fleet = make_fleet()
        pids = fleet.ask_all(lambda actor, index: actor.pid.remote()).values()
        fleet.keep_in_flight(lambda actor, index: actor.sleep.remote(60.0), 1)
        began = time.monotonic()
        fleet.stop()
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
        assert time.monotonic() - began < 10
        fleet.stop()
