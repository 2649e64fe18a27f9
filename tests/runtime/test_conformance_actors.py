"""Remote classes, their handles and lifetimes, on every engine."""

import copy
import functools
import os
import pickle
import time

import cloudpickle
import numpy as np
import pytest
from runtime_support import wait_until

import runtime


class PlainCounter:
    """Counts."""

    unit = "steps"

    def __init__(self, start=0):
        self.value = start

    def add(self, amount=1):
        self.value += amount
        return self.value

    def get(self):
        return self.value

    @runtime.method(num_returns=2)
    def both(self):
        return self.value, self.unit

    @staticmethod
    def twice(x):
        return 2 * x

    @classmethod
    def label(cls):
        return cls.unit

    def __call__(self, x):
        return self.value * x

    def _private(self):
        return "private"

    def fail(self):
        raise ArithmeticError("in fail")

    def pid(self):
        return os.getpid()


Counter = runtime.remote(PlainCounter)


@runtime.remote
class Keeper:
    """Keeps what it is given."""

    def __init__(self, *kept):
        self.kept = list(kept)

    def keep(self, value):
        self.kept.append(value)

    def give(self, index=-1):
        return self.kept[index]

    def get_first_of(self, index=-1):
        return runtime.get(self.kept[index][0])

    def fail_with(self, *args):
        raise ArithmeticError(*args)

    def call_kept(self, index=-1):
        return runtime.get(self.kept[index].add.remote())


@runtime.remote
def add_to(counter, amount):
    return runtime.get(counter.add.remote(amount))


@runtime.remote
def slow(value, seconds=0.2):
    import time

    time.sleep(seconds)
    return value


def test_state_lasts_between_calls(engine):
    counter = Counter.remote(10)
    assert [runtime.get(counter.add.remote()) for _ in range(3)] == [11, 12, 13]


def test_calls_run_in_the_order_they_were_made(engine):
    counter = Counter.remote()
    assert runtime.get([counter.add.remote() for _ in range(500)]) == list(range(1, 501))


def test_actors_are_separate(engine):
    counters = [Counter.remote(i) for i in range(3)]
    runtime.get([c.add.remote(10) for c in counters])
    assert runtime.get([c.get.remote() for c in counters]) == [10, 11, 12]


def test_references_as_constructor_arguments(engine):
    keeper = Keeper.remote(runtime.put(1), [runtime.put(2)])
    assert runtime.get(keeper.give.remote(0)) == 1
    assert runtime.get(keeper.get_first_of.remote(1)) == 2


def test_references_as_method_arguments(engine):
    counter = Counter.remote()
    assert runtime.get(counter.add.remote(counter.add.remote(2))) == 4


def test_an_argument_that_is_not_there_yet_keeps_the_order(engine):
    counter = Counter.remote()
    first = counter.add.remote(slow.remote(5))
    second = counter.add.remote(1)
    assert runtime.get([first, second]) == [5, 6]


def test_keyword_arguments(engine):
    assert runtime.get(Counter.remote(start=3).add.remote(amount=4)) == 7


def test_several_return_values(engine):
    counter = Counter.remote(1)
    assert runtime.get(counter.both.remote()) == [1, "steps"]
    assert runtime.get(counter.both.options(num_returns=1).remote()) == (1, "steps")
    assert counter.get.options(num_returns=0).remote() is None


def test_options_of_a_method(engine):
    counter = Counter.remote(1)
    assert runtime.get(counter.get.options(name="read").remote()) == 1
    assert runtime.get(counter.both.options(name="read").remote()) == [1, "steps"]
    assert runtime.get(counter.get.options(max_task_retries=0, concurrency_group=None).remote()) == 1
    with pytest.raises(ValueError, match=r"unknown option 'num_return' of a method. Did you mean 'num_returns'"):
        counter.get.options(num_return=2)
    with pytest.raises(ValueError, match=r"concurrency_group='io', but its class has no concurrency groups"):
        counter.get.options(concurrency_group="io")
    with pytest.raises(TypeError, match="num_returns must be an integer"):
        runtime.method(num_returns="2")


def test_static_class_private_and_call_methods(engine):
    counter = Counter.remote(3)
    assert runtime.get(counter.twice.remote(4)) == 8
    assert runtime.get(counter.label.remote()) == "steps"
    assert runtime.get(counter._private.remote()) == "private"
    assert runtime.get(counter.__call__.remote(5)) == 15


def test_inheritance(engine):
    class Doubling(PlainCounter):
        def add(self, amount=1):
            return super().add(2 * amount)

    assert runtime.get(runtime.remote(Doubling).remote(1).add.remote(3)) == 7


def test_deriving_from_a_remote_class_is_refused(engine):
    with pytest.raises(TypeError, match="before @remote"):

        class Wrong(Counter):
            pass


def test_a_class_without_constructor(engine):
    @runtime.remote
    class Empty:
        def hello(self):
            return "hello"

    assert runtime.get(Empty.remote().hello.remote()) == "hello"
    with pytest.raises(TypeError):
        Empty.remote(1)


def test_wrong_constructor_arguments_are_refused_at_once(engine):
    with pytest.raises(TypeError, match="unexpected keyword argument 'begin'"):
        Counter.remote(begin=1)


class Signatures:
    """Methods with all kinds of parameters; each returns what it was given."""

    def optional(self, a, b=2):
        return a, b

    def keyword_only(self, a, /, *, b):
        return a, b

    def variable(self, *args, **kwargs):
        return args, kwargs

    def without_self(*args):
        return args[1:]

    @staticmethod
    def static(a):
        return a

    @classmethod
    def of_class(cls, a):
        return a

    @functools.lru_cache  # noqa: B019
    def cached(self, a):
        return a

    bound = functools.partial(max, 3)

    def _injected(method):
        @functools.wraps(method)
        def wrapper(self, *args):
            return method(self, "injected", *args)

        return wrapper

    @_injected
    def decorated(self, first, second):
        return first, second


@pytest.mark.parametrize(
    "method, args, kwargs, expected",
    [
        ("optional", (1,), {}, (1, 2)),
        ("optional", (), {"b": 1, "a": 3}, (3, 1)),
        ("keyword_only", (1,), {"b": 2}, (1, 2)),
        ("variable", (1, 2), {"c": 3}, ((1, 2), {"c": 3})),
        ("without_self", (1, 2), {}, (1, 2)),
        ("static", (1,), {}, 1),
        ("of_class", (1,), {}, 1),
        ("cached", (1,), {}, 1),
        ("bound", (4,), {}, 4),
        ("decorated", (1,), {}, ("injected", 1)),
    ],
)
def test_method_arguments_that_fit_are_not_refused(engine, method, args, kwargs, expected):
    actor = runtime.remote(Signatures).remote()
    for _ in range(2):  # a shape that has fitted is not bound again
        assert runtime.get(getattr(actor, method).remote(*args, **kwargs)) == expected


@pytest.mark.parametrize(
    "method, args, kwargs, message",
    [
        ("optional", (), {}, r"Signatures\.optional\(a, b=2\): missing a required argument: 'a'"),
        ("optional", (1, 2, 3), {}, "too many positional"),
        ("optional", (1,), {"c": 3}, "unexpected keyword argument 'c'"),
        ("optional", (1,), {"a": 3}, "multiple values"),
        ("keyword_only", (1, 2), {}, "argument"),
        ("static", (), {}, "'a'"),
        ("of_class", (1, 2), {}, "too many"),
    ],
)
def test_wrong_method_arguments_are_refused_at_once(engine, method, args, kwargs, message):
    actor = runtime.remote(Signatures).remote()
    kept = Keeper.remote(actor)
    for handle in (actor, runtime.get(kept.give.remote())):
        with pytest.raises(TypeError, match=message):
            getattr(handle, method).remote(*args, **kwargs)
    assert runtime.get(actor.static.remote(1)) == 1


def test_an_attribute_of_the_instance_does_not_hide_a_method(engine):
    @runtime.remote
    class Hidden:
        def __init__(self):
            self.v = False
            self.static = None

        def v(self):
            return self.__dict__["v"]

        @staticmethod
        def static():
            return "static"

    actor = Hidden.remote()
    assert runtime.get([actor.v.remote(), actor.static.remote()]) == [False, "static"]


def test_class_attributes_and_static_methods_of_a_remote_class(engine):
    assert Counter.unit == "steps" and Counter.twice(2) == 4 and Counter.label() == "steps"
    with pytest.raises(AttributeError, match="remote class PlainCounter has no attribute 'units'"):
        Counter.units  # noqa: B018

    @runtime.remote
    class Names:
        limit = 3

        @staticmethod
        def parse(text):
            return int(text) + Names.limit

        def run(self):
            return Names.limit, Names.parse("4")

    assert runtime.get(Names.remote().run.remote()) == (3, 7)


def test_a_class_that_creates_actors_of_its_own(engine):
    @runtime.remote
    class Tree:
        def __init__(self, depth, value="leaf"):
            self.depth, self.value = depth, value

        def grow(self):
            if self.depth == 0:
                return [self.value]
            return [self.depth, *runtime.get(Tree.remote(self.depth - 1).grow.remote())]

    assert runtime.get(Tree.remote(2).grow.remote()) == [2, 1, "leaf"]


def test_unknown_methods(engine):
    counter = Counter.remote()
    with pytest.raises(AttributeError, match="Did you mean 'add'"):
        counter.ad.remote()
    with pytest.raises(AttributeError, match="reached by a method"):
        counter.value  # noqa: B018
    assert not hasattr(counter, "__len__")


def test_direct_calls(engine):
    with pytest.raises(TypeError, match=r"PlainCounter\.remote"):
        Counter()
    counter = Counter.remote()
    with pytest.raises(TypeError, match=r"add\.remote"):
        counter.add()


def test_handles_have_methods_to_complete(engine):
    assert {"add", "both", "twice"} <= set(dir(Counter.remote()))


def test_an_error_leaves_the_actor_alive(engine):
    counter = Counter.remote(1)
    failing, after = counter.fail.remote(), counter.add.remote()
    with pytest.raises(ArithmeticError, match="in fail"):
        runtime.get(failing)
    assert runtime.get(after) == 2


def test_a_failing_constructor(engine):
    class BrokenEnvironment(Exception):
        pass

    @runtime.remote
    class Fails:
        def __init__(self):
            raise BrokenEnvironment("no such level")

        def work(self):
            return 1

    actor = Fails.remote()
    for _ in range(2):
        with pytest.raises(BrokenEnvironment, match="no such level") as caught:
            runtime.get(actor.work.remote(), timeout=30)
        assert isinstance(caught.value, runtime.ActorDiedError)
        assert isinstance(caught.value, runtime.TaskError)
        assert "in __init__" in str(caught.value)


def test_a_constructor_whose_argument_failed(engine):
    @runtime.remote
    def fail():
        raise ZeroDivisionError("argument")

    keeper = Keeper.remote(fail.remote())
    with pytest.raises((ZeroDivisionError, runtime.ActorDiedError), match="argument"):
        runtime.get(keeper.give.remote(), timeout=30)


def settings_with(actor, ref):
    return {"actor": actor, "nested": {"refs": [ref, ref], "call": actor.add, "several": actor.both}}


def test_copies_of_handles_and_references_in_settings_are_themselves(engine):
    counter, ref = Counter.remote(1), runtime.put(5)
    for settings in (copy.deepcopy(settings_with(counter, ref)), copy.copy(settings_with(counter, ref))):
        assert settings["actor"] is counter and settings["nested"]["refs"][1] is ref
        runtime.get(settings["nested"]["call"].remote(1))
    assert runtime.get(counter.get.remote()) == 3


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_handles_and_references_may_be_pickled_by_anybody(engine, dumps):
    counter, pending = Counter.remote(1), slow.remote(7)
    data = dumps([settings_with(counter, runtime.put(np.arange(100_000))), pending])
    assert runtime.get(pickle.loads(data)[0]["actor"].add.remote()) == 2

    @runtime.remote
    def use(data):
        settings, pending = pickle.loads(data)
        nested = settings["nested"]
        first, second = runtime.get(nested["refs"])
        assert np.shares_memory(first, second) and first[-1] == 99_999
        assert runtime.get(nested["several"].remote()) == [2, "steps"]
        return runtime.get([settings["actor"].add.remote(), nested["call"].remote(10), pending])

    assert runtime.get(use.remote(data)) == [3, 13, 7]
    runtime.kill(counter)  # a pickle keeps it until then


def test_what_was_pickled_in_another_process_can_be_used_here(engine):
    @runtime.remote
    class Maker:
        def make(self):
            self.counter = Counter.remote(4)
            return pickle.dumps((self.counter, runtime.put("value"), slow.remote("later")))

    maker = Maker.remote()
    counter, *refs = pickle.loads(runtime.get(maker.make.remote()))
    assert runtime.get([counter.get.remote(), *refs]) == [4, "value", "later"]
    runtime.kill(counter)


def test_handles_in_messages_keep_no_actor(engine):
    counter = Counter.options(num_cpus=1).remote(1)
    keeper = Keeper.remote([counter, counter.add])
    with pytest.raises(ArithmeticError):
        runtime.get(keeper.fail_with.remote(counter))
    wait_until(lambda: runtime.available_resources()["CPU"] == 3)
    del counter, keeper
    wait_until(lambda: runtime.available_resources()["CPU"] == 4)


def test_defaults_of_options_that_are_not_available_may_be_given(engine):
    neutral = {"accelerator_type": None, "placement_group": "default", "runtime_env": None}
    counter = Counter.options(**neutral, scheduling_strategy=None, enable_task_events=True).remote(3)
    assert runtime.get(counter.get.remote()) == 3
    with pytest.raises(ValueError, match="not available; leave it out, or give its default"):
        Counter.options(accelerator_type="A100")


def test_kill(engine):
    counter = Counter.remote()
    assert runtime.get(counter.add.remote()) == 1
    runtime.kill(counter)
    with pytest.raises(runtime.ActorDiedError, match="kill"):
        runtime.get(counter.add.remote(), timeout=30)
    runtime.kill(counter)


def test_kill_before_it_started(engine):
    counter = Counter.remote()
    runtime.kill(counter)
    with pytest.raises(runtime.ActorDiedError):
        runtime.get(counter.add.remote(), timeout=30)


def test_kill_takes_handles_only(engine):
    with pytest.raises(TypeError, match="handle"):
        runtime.kill(runtime.put(1))


def test_results_outlive_their_actor(engine):
    keeper = Keeper.remote(np.arange(300_000))
    ref = keeper.give.remote()
    runtime.wait([ref], timeout=30)
    runtime.kill(keeper)
    assert runtime.get(ref)[-1] == 299_999


def test_a_handle_as_argument_of_a_task(engine):
    counter = Counter.remote()
    assert sorted(runtime.get([add_to.remote(counter, 1) for _ in range(6)])) == [1, 2, 3, 4, 5, 6]
    assert runtime.get(counter.get.remote()) == 6


def test_a_handle_inside_an_argument(engine):
    @runtime.remote
    def use(container):
        return runtime.get(container["counters"][0].add.remote(7))

    assert runtime.get(use.remote({"counters": [Counter.remote()]})) == 7


def test_a_handle_in_a_closure(engine):
    counter = Counter.remote()

    @runtime.remote
    def use():
        return runtime.get(counter.add.remote(2))

    assert runtime.get(use.remote()) == 2
    assert runtime.get(counter.get.remote()) == 2
    runtime.kill(counter)  # the session keeps what closures hold


def test_a_handle_as_argument_of_an_actor(engine):
    counter, keeper = Counter.remote(), Keeper.remote()
    runtime.get(keeper.keep.remote(counter))
    assert runtime.get(keeper.call_kept.remote()) == 1
    assert runtime.get(counter.get.remote()) == 1


def test_a_handle_as_constructor_argument(engine):
    counter = Counter.remote()
    assert runtime.get(Keeper.remote(counter).call_kept.remote()) == 1


def test_a_handle_as_result(engine):
    @runtime.remote
    def start():
        return [Counter.remote(5)]

    [counter] = runtime.get(start.remote())
    assert runtime.get(counter.add.remote()) == 6


def test_a_handle_in_put(engine):
    counter = Counter.remote(1)
    [same] = runtime.get(runtime.put([counter]))
    assert same == counter and hash(same) == hash(counter)
    assert runtime.get(same.add.remote()) == 2


def test_an_actor_starts_actors(engine):
    @runtime.remote
    class Parent:
        def __init__(self):
            self.children = [Counter.remote(i) for i in range(2)]

        def total(self):
            return sum(runtime.get([c.add.remote() for c in self.children]))

    assert runtime.get(Parent.remote().total.remote()) == 3


def test_an_actor_starts_tasks(engine):
    @runtime.remote
    class Boss:
        def work(self):
            return runtime.get([slow.remote(i, 0) for i in range(3)])

    assert runtime.get(Boss.remote().work.remote()) == [0, 1, 2]


def test_references_kept_by_an_actor(engine):
    keeper = Keeper.remote()
    ref = runtime.put(np.ones(200_000))
    runtime.get(keeper.keep.remote([ref]))
    del ref
    junk = [runtime.put(np.zeros(200_000)) for _ in range(5)]
    assert float(runtime.get(keeper.get_first_of.remote()).sum()) == 200_000
    [ref] = runtime.get(keeper.give.remote())
    assert float(runtime.get(ref).sum()) == 200_000
    del junk


def test_a_call_on_a_handle_nobody_keeps(engine):
    assert runtime.get(Counter.remote(4).add.remote()) == 5
    refs = [Counter.remote(i).add.remote() for i in range(3)]
    assert runtime.get(refs) == [1, 2, 3]


def test_a_method_keeps_its_actor(engine):
    add = Counter.remote(1).add
    assert runtime.get(add.remote()) == 2
    assert runtime.get(add.remote()) == 3


def test_the_last_handle_ends_the_actor(engine):
    counter = Counter.options(num_cpus=1).remote()
    runtime.get(counter.add.remote())
    copy = runtime.get(runtime.put([counter]))
    del counter
    assert runtime.get(copy[0].add.remote()) == 2
    wait_until(lambda: runtime.available_resources()["CPU"] == 3)
    del copy
    wait_until(lambda: runtime.available_resources()["CPU"] == 4)


def test_an_actor_held_by_an_actor_lives_as_long(engine):
    keeper = Keeper.remote()
    counter = Counter.options(num_cpus=1).remote()
    runtime.get(keeper.keep.remote(counter))
    del counter
    assert runtime.get(keeper.call_kept.remote()) == 1
    wait_until(lambda: runtime.available_resources()["CPU"] == 3)
    runtime.kill(keeper)
    del keeper
    wait_until(lambda: runtime.available_resources()["CPU"] == 4)


def test_an_actor_waiting_for_itself_times_out(engine):
    @runtime.remote
    class Narcissus:
        def call(self, me):
            return runtime.get(me.answer.remote(), timeout=0.3)

        def answer(self):
            return 1

    actor = Narcissus.remote()
    with pytest.raises(runtime.GetTimeoutError):
        runtime.get(actor.call.remote(actor), timeout=30)
    assert runtime.get(actor.answer.remote(), timeout=30) == 1


def test_a_call_to_itself_runs_after_the_present_one(engine):
    @runtime.remote
    class Steps:
        def __init__(self):
            self.log = []

        def start(self, me):
            ref = me.note.remote("second")
            self.log.append("first")
            return [ref]

        def note(self, text):
            self.log.append(text)
            return list(self.log)

    actor = Steps.remote()
    [ref] = runtime.get(actor.start.remote(actor))
    assert runtime.get(ref, timeout=30) == ["first", "second"]


def test_environment_variables(engine):
    @runtime.remote
    class Environment:
        def get(self, name):
            return os.environ.get(name)

    actor = Environment.options(env_vars={"RUNTIME_TEST_X": "é 1"}).remote()
    assert runtime.get(actor.get.remote("RUNTIME_TEST_X")) == "é 1"
    assert "RUNTIME_TEST_X" not in os.environ
    assert runtime.get(Environment.remote().get.remote("RUNTIME_TEST_X")) is None


def test_the_name_shows_in_messages(engine):
    counter = Counter.options(name="score keeper").remote()
    with pytest.raises(ArithmeticError, match="score keeper"):
        runtime.get(counter.fail.remote())


def test_an_actor_sees_where_it_runs(engine):
    @runtime.remote
    class Where:
        def __init__(self):
            self.born = runtime.get_runtime_context().get_actor_id()

        def ids(self):
            context = runtime.get_runtime_context()
            return self.born, context.get_actor_id(), context.get_task_id(), context.get_actor_name()

    a, b = Where.remote(), Where.options(label="b").remote()
    (born, actor, task1, name), (_, other, _, other_name) = runtime.get([a.ids.remote(), b.ids.remote()])
    _, _, task2, _ = runtime.get(a.ids.remote())
    assert born == actor and actor != other and task1 != task2
    assert "Where" in name and other_name == "b"


def test_an_actor_hands_itself_to_others(engine):
    @runtime.remote
    class Node:
        def __init__(self, previous=None):
            self.value = []
            if previous is not None:
                previous.follow.remote(runtime.get_runtime_context().current_actor)

        def follow(self, other):
            self.value.append(other)

        def followers(self):
            return self.value

        def forget(self):
            self.value.clear()

    first = Node.remote()
    second = Node.remote(first)
    assert runtime.get(second.followers.remote()) == []
    # Calls of two callers come in any order: the second actor's call to the first may be later than this process's.
    deadline = time.monotonic() + 60
    while not (followers := runtime.get(first.followers.remote())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert followers == [second]
    runtime.get(first.forget.remote())
    with pytest.raises(RuntimeError, match="this is not an actor"):
        runtime.get_runtime_context().current_actor  # noqa: B018


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"num_cpu": 1}, ValueError, "num_cpus"),
        ({"max_restarts": -2}, ValueError, "max_restarts must be >= -1"),
        ({"max_restarts": False}, TypeError, "max_restarts must be an integer"),
        ({"max_task_retries": 1.5}, TypeError, "max_task_retries must be an integer"),
        ({"max_pending_calls": 0}, ValueError, "at least 1, or -1"),
        ({"max_concurrency": 0}, ValueError, "max_concurrency must be >= 1"),
        ({"concurrency_groups": {"io": 0}}, ValueError, "concurrency_groups\\['io'\\] must be >= 1"),
        ({"concurrency_groups": ["io"]}, TypeError, "dict of group -> number"),
        ({"lifetime": "forever"}, ValueError, "'detached' or 'non_detached', got 'forever'"),
        ({"name": ""}, ValueError, "name must not be the empty string"),
        ({"name": 3}, TypeError, "name must be a string"),
        ({"namespace": ""}, ValueError, "namespace must not be the empty string"),
        ({"get_if_exists": 1}, TypeError, "get_if_exists must be True or False"),
        ({"num_returns": 1}, ValueError, "unknown option 'num_returns' of a remote class"),
        ({"oversubscribe": 1}, TypeError, "oversubscribe"),
        ({"env_vars": {"A": 1}}, TypeError, "env_vars"),
    ],
)
def test_options_are_checked_when_given(engine, options, error, message):
    with pytest.raises(error, match=message):
        Counter.options(**options)


@runtime.remote
class Leaving:
    def __init__(self):
        self.calls = 0

    def count(self):
        self.calls += 1
        return self.calls

    def leave(self):
        try:
            runtime.exit_actor()
        except Exception:
            return "still here"


def test_exit_actor_ends_the_actor_after_its_earlier_calls(engine):
    actor = Leaving.remote()
    earlier = [actor.count.remote() for _ in range(3)]
    with pytest.raises(runtime.ActorDiedError, match="exit_actor"):
        runtime.get(actor.leave.remote())
    assert runtime.get(earlier) == [1, 2, 3]
    with pytest.raises(runtime.ActorDiedError, match="exit_actor"):
        runtime.get(actor.count.remote())


def test_exit_actor_outside_of_an_actor(engine):
    with pytest.raises(TypeError, match="not an actor"):
        runtime.exit_actor()


def test_methods_that_every_actor_has(engine):
    actor = Leaving.remote()
    assert runtime.get(actor.__ray_ready__.remote()) is True
    earlier = [actor.count.remote() for _ in range(3)]
    assert runtime.get(actor.__ray_call__.remote(lambda own, by, *, more: own.calls + by + more, 5, more=2)) == 10
    with pytest.raises(TypeError, match="function"):
        actor.__ray_call__.remote()
    with pytest.raises(runtime.ActorDiedError, match="__ray_terminate__"):
        runtime.get(actor.__ray_terminate__.remote())
    assert runtime.get(earlier) == [1, 2, 3]
    with pytest.raises(AttributeError, match="Its methods: count, leave"):
        _ = actor.other


def test_a_class_may_define_the_built_in_methods(engine):
    @runtime.remote
    class Own:
        def __ray_ready__(self, value):
            return value

    assert runtime.get(Own.remote().__ray_ready__.remote(3)) == 3


def test_attributes_of_ray_that_are_not_here_say_what_to_use(engine):
    actor = Leaving.remote()
    for owner in (Leaving, actor.count, runtime.remote(len)):
        with pytest.raises(AttributeError, match="'bind': call tasks and methods one after the other"):
            _ = owner.bind
        assert not hasattr(owner, "other")
    with pytest.raises(AttributeError, match=r"get_actor_id\(\)"):
        _ = actor._actor_id
    ref = actor.count.remote()
    assert not ref.is_nil()
    with pytest.raises(AttributeError, match=r"has the methods binary\(\)"):
        ref.task_id()
    for owner in (ref, runtime.ObjectRef):
        with pytest.raises(AttributeError, match=r"'nil': references come from \.remote\(\.\.\.\) and put\(\) alone"):
            owner.nil()
        assert not hasattr(owner, "other")


@runtime.remote(num_cpus=0)
class Creator:
    def create(self):
        return Counter.options(num_cpus=0).remote()


@pytest.mark.parametrize("end", ["kill", "last handle"])
def test_an_actor_ends_with_the_actor_that_created_it(engine, end):
    creator = Creator.remote()
    created = runtime.get(creator.create.remote())
    assert runtime.get(created.add.remote()) == 1
    if end == "kill":
        runtime.kill(creator)
    del creator

    def has_ended():
        try:
            runtime.get(created.get.remote(), timeout=20)
        except runtime.ActorDiedError as error:
            return error
        return None

    wait_until(has_ended, 30)
