"""Actors by name, on every engine."""

import pytest
from runtime_support import wait_until

import runtime
from runtime.util import list_named_actors


@runtime.remote(num_cpus=0)
class Counter:
    def __init__(self, start=0):
        self.value = start

    def add(self, amount=1):
        self.value += amount
        return self.value

    @runtime.method(num_returns=2)
    def both(self):
        return self.value, runtime.get_runtime_context().get_actor_id()


@runtime.remote(num_cpus=0)
class Other:
    def hello(self):
        return "hello"


def test_a_name_finds_the_actor(engine):
    counter = Counter.options(name="counter").remote(1)
    same = runtime.get_actor("counter")
    assert same == counter and runtime.get([counter.add.remote(), same.add.remote()]) == [2, 3]
    assert runtime.get(same.both.remote())[0] == 3  # its methods have their options
    with pytest.raises(TypeError, match=r"Counter\.add"):
        same.add.remote(1, 2)


def test_a_name_finds_the_actor_in_tasks_and_actors(engine):
    @runtime.remote
    def add():
        return runtime.get(runtime.get_actor("shared").add.remote())

    counter = Counter.options(name="shared").remote()
    assert sorted(runtime.get([add.remote() for _ in range(3)])) == [1, 2, 3]
    assert runtime.get(counter.add.remote()) == 4


def test_a_handle_by_name_keeps_the_actor(engine):
    counter = Counter.options(name="kept").remote()
    runtime.get(counter.add.remote())
    same = runtime.get_actor("kept")
    del counter
    assert runtime.get(same.add.remote()) == 2
    once_more = Counter.options(name="kept", get_if_exists=True).remote()
    del same
    assert runtime.get(once_more.add.remote()) == 3


def test_a_name_is_taken_until_the_actor_has_ended(engine):
    counter = Counter.options(name="once").remote()
    with pytest.raises(ValueError, match="a living actor has the name 'once' in the namespace"):
        Other.options(name="once").remote()
    runtime.kill(counter)
    if engine == "ray":
        wait_until(lambda: "once" not in list_named_actors())
    other = Other.options(name="once").remote()
    assert runtime.get(other.hello.remote()) == "hello"
    del other
    wait_until(lambda: "once" not in list_named_actors())


@pytest.mark.parametrize("has_answered", [True, False])
@pytest.mark.parametrize("max_restarts, no_restart", [(0, True), (2, True), (0, False)])
def test_a_killed_actor_is_not_found_any_more(engine, has_answered, max_restarts, no_restart):
    for _ in range(15):
        killed = Counter.options(name="again", max_restarts=max_restarts).remote()
        if has_answered:
            runtime.get(killed.add.remote())
        runtime.kill(killed, no_restart=no_restart)
        if engine == "ray":  # where a name goes a little later
            wait_until(lambda: "again" not in list_named_actors())
        assert "again" not in list_named_actors()
        with pytest.raises(ValueError, match="no living actor with the name 'again'"):
            runtime.get_actor("again")
        fresh = Counter.options(name="again", get_if_exists=True).remote(10)
        assert fresh != killed and runtime.get(fresh.add.remote()) == 11
        assert runtime.get_actor("again") == fresh  # the end of the killed one's process does not take the name
        del fresh
        wait_until(lambda: "again" not in list_named_actors())


def test_an_actor_that_starts_again_keeps_its_name(engine):
    counter = Counter.options(name="stays", max_restarts=1).remote()
    runtime.get(counter.add.remote())
    runtime.kill(counter, no_restart=False)
    assert runtime.get_actor("stays") == counter and list_named_actors() == ["stays"]


def test_unknown_and_wrong_names(engine):
    counter = Counter.options(name="known").remote()
    with pytest.raises(ValueError, match=r"no living actor with the name 'unknown' .* there: 'known'"):
        runtime.get_actor("unknown")
    with pytest.raises(ValueError, match="in the namespace 'elsewhere'; those with a name there: none"):
        runtime.get_actor("known", namespace="elsewhere")
    for wrong, error in (("", ValueError), (None, TypeError), (b"known", TypeError)):
        with pytest.raises(error, match="name"):
            runtime.get_actor(wrong)
    with pytest.raises(ValueError, match="get_if_exists=True needs a name"):
        Counter.options(get_if_exists=True).remote()
    del counter


def test_get_if_exists(engine):
    assert runtime.get(Counter.options(name="either", get_if_exists=True).remote(5).add.remote()) == 6
    wait_until(lambda: "either" not in list_named_actors())  # its last handle has gone
    first = Counter.options(name="either", get_if_exists=True).remote(10)
    second = Counter.options(name="either", get_if_exists=True).remote(20)
    assert first == second and runtime.get([first.add.remote(), second.add.remote()]) == [11, 12]
    third = Other.options(name="either", get_if_exists=True).remote()
    assert third == first and runtime.get(third.add.remote()) == 13  # the methods are those of the actor


def test_names_belong_to_a_namespace(engine):
    own = runtime.get_runtime_context().namespace
    here, there = Counter.options(name="n").remote(1), Counter.options(name="n", namespace="there").remote(2)
    assert here != there and runtime.get_actor("n") == here and runtime.get_actor("n", namespace="there") == there
    assert runtime.get_actor("n", namespace=own) == here
    assert list_named_actors() == ["n"]
    names = list_named_actors(all_namespaces=True)
    assert sorted((name["namespace"], name["name"]) for name in names) == sorted([(own, "n"), ("there", "n")])

    @runtime.remote
    def namespace():
        return runtime.get_runtime_context().namespace

    assert runtime.get(namespace.remote()) == own


def test_a_detached_actor_outlives_its_handles_and_its_creator(engine):
    @runtime.remote
    def create():
        detached = Counter.options(name="detached", lifetime="detached").remote(7)
        return runtime.get(detached.add.remote())

    assert runtime.get(create.remote()) == 8
    assert runtime.get(runtime.get_actor("detached").add.remote()) == 9
    assert runtime.get(runtime.get_actor("detached").add.remote()) == 10
    runtime.kill(runtime.get_actor("detached"))
    wait_until(lambda: not list_named_actors())


def test_a_name_is_free_when_the_constructor_has_failed(engine):
    @runtime.remote
    def fail():
        raise ArithmeticError("argument")

    @runtime.remote(num_cpus=0)
    class Failing:
        def __init__(self):
            raise ArithmeticError("constructor")

        def add(self):
            return 1

    for actor in (Failing.options(name="fails").remote(), Counter.options(name="fails too").remote(fail.remote())):
        with pytest.raises(ArithmeticError):
            runtime.get(actor.add.remote())
    wait_until(lambda: not list_named_actors())
