"""Remote functions, on every engine."""

import dataclasses
import functools

import numpy as np
import pytest

import runtime


@runtime.remote
def add(a, b=1):
    """Adds."""
    return a + b


@runtime.remote
def identity(value):
    return value


@dataclasses.dataclass
class Pair:
    left: object
    right: object


def test_a_task_returns_its_value(engine):
    assert runtime.get(add.remote(1)) == 2


def test_positional_and_keyword_arguments(engine):
    assert runtime.get(add.remote(b=10, a=1)) == 11


def test_variable_arguments(engine):
    @runtime.remote
    def collect(*args, **kwargs):
        return args, kwargs

    assert runtime.get(collect.remote(1, 2, x=3)) == ((1, 2), {"x": 3})


def test_a_reference_as_argument_is_replaced_by_its_value(engine):
    assert runtime.get(add.remote(add.remote(1), b=runtime.put(10))) == 12


@pytest.mark.parametrize(
    "wrap", [lambda r: [r], lambda r: {"k": (r,)}, lambda r: Pair(r, 0)], ids=["list", "dict", "object"]
)
def test_a_reference_inside_an_argument_stays_one(engine, wrap):
    @runtime.remote
    def unwrap(container):
        if isinstance(container, list):
            ref = container[0]
        elif isinstance(container, dict):
            ref = container["k"][0]
        else:
            ref = container.left
        assert isinstance(ref, runtime.ObjectRef)
        return runtime.get(ref)

    assert runtime.get(unwrap.remote(wrap(runtime.put(5)))) == 5


def test_a_reference_in_a_closure(engine):
    ref = runtime.put(np.arange(5))

    @runtime.remote
    def total():
        return int(runtime.get(ref).sum())

    assert runtime.get(total.remote()) == 10


def test_a_long_chain(engine):
    ref = runtime.put(0)
    for _ in range(50):
        ref = add.remote(ref)
    assert runtime.get(ref) == 50


def test_a_diamond(engine):
    top = add.remote(1)
    left, right = add.remote(top, 10), add.remote(top, 20)
    assert runtime.get(add.remote(left, right)) == 34


def test_many_results_in_order(engine):
    refs = [add.remote(i) for i in range(300)]
    assert runtime.get(refs) == list(range(1, 301))


def test_one_reference_to_many_tasks(engine):
    data = runtime.put(np.ones(100_000))

    @runtime.remote
    def total(array, factor):
        return float(array.sum() * factor)

    assert runtime.get([total.remote(data, i) for i in range(20)]) == [100_000.0 * i for i in range(20)]


def test_several_return_values(engine):
    @runtime.remote(num_returns=3)
    def three():
        return 1, [2], "three"

    refs = three.remote()
    assert isinstance(refs, list) and runtime.get(refs) == [1, [2], "three"]
    assert runtime.get(refs[1]) == [2]


def test_num_returns_by_options(engine):
    first, second = identity.options(num_returns=2).remote([1, 2])
    assert runtime.get(second) == 2 and runtime.get(first) == 1


def test_no_return_value(engine):
    assert identity.options(num_returns=0).remote(1) is None


@pytest.mark.parametrize("value, error", [((1, 2, 3), ValueError), ((1,), ValueError), (7, TypeError)])
def test_another_number_of_values_than_promised(engine, value, error):
    for ref in identity.options(num_returns=2).remote(value):
        with pytest.raises(error, match="num_returns=2"):
            runtime.get(ref, timeout=30)


def test_any_iterable_of_as_many_values_is_unpacked(engine):
    @runtime.remote(num_returns=2)
    def generator(count, fail=False):
        yield from range(count)
        if fail:
            raise LookupError("after the values")

    @runtime.remote(num_returns=2)
    def array():
        return np.arange(6).reshape(2, 3)

    assert runtime.get(generator.remote(2)) == [0, 1]
    assert [row.tolist() for row in runtime.get(array.remote())] == [[0, 1, 2], [3, 4, 5]]
    assert runtime.get(identity.options(num_returns=2).remote({"a": 1, "b": 2})) == ["a", "b"]
    for count, found in [(1, "1 values"), (3, "more than 2 values"), (10**9, "more than 2 values")]:
        with pytest.raises(ValueError, match=f"num_returns=2, but returned {found}"):
            runtime.get(generator.remote(count), timeout=30)
    for ref in generator.remote(2, fail=True):
        with pytest.raises(LookupError, match="after the values"):
            runtime.get(ref, timeout=30)


def test_an_error_comes_with_each_of_several_references(engine):
    @runtime.remote(num_returns=2)
    def fail():
        raise LookupError("both")

    for ref in fail.remote():
        with pytest.raises(LookupError, match="both"):
            runtime.get(ref, timeout=30)


def test_a_task_starts_tasks(engine):
    @runtime.remote
    def outer(n):
        return sum(runtime.get([add.remote(i) for i in range(n)]))

    assert runtime.get(outer.remote(5)) == 15


def test_a_task_returns_a_reference(engine):
    @runtime.remote
    def outer():
        return add.remote(1), [runtime.put("inner")]

    ref, [inner] = runtime.get(outer.remote())
    assert runtime.get(ref) == 2 and runtime.get(inner) == "inner"


def test_recursion(engine):
    @runtime.remote
    def fib(n):
        return n if n < 2 else sum(runtime.get([fib.remote(n - 1), fib.remote(n - 2)]))

    assert runtime.get(fib.remote(6), timeout=50) == 8


def test_recursion_with_a_default_argument(engine):
    @runtime.remote
    def count(n, step=1):
        return 0 if n <= 0 else 1 + runtime.get(count.remote(n - step))

    assert runtime.get(count.remote(3)) == 3


def test_options_leave_the_function_as_it_was(engine):
    other = identity.options(num_returns=2, name="other")
    assert runtime.get(identity.remote((1, 2))) == (1, 2)
    assert len(other.remote((1, 2))) == 2


def test_options_add_up(engine):
    chained = identity.options(num_returns=2).options(num_cpus=0.5)
    assert runtime.get(chained.remote((1, 2))) == [1, 2]


def test_calling_it_directly(engine):
    with pytest.raises(TypeError, match=r"add\.remote"):
        add(1)


def test_wrong_arguments_are_refused_at_once(engine):
    with pytest.raises(TypeError, match=r"add\(a, b=1\)"):
        add.remote()
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
        add.remote(1, c=2)


def test_the_function_keeps_its_name_and_documentation(engine):
    assert add.__name__ == "add" and add.__doc__ == "Adds."


def test_lambdas_and_partial_results_of_decorators(engine):
    def doubled(function):
        @functools.wraps(function)
        def inner(*args):
            return 2 * function(*args)

        return inner

    @runtime.remote
    @doubled
    def three():
        return 3

    assert runtime.get(runtime.remote(lambda x: x + 1).remote(1)) == 2
    assert runtime.get(three.remote()) == 6


def test_arguments_are_copies(engine):
    @runtime.remote
    def change(items):
        items.append(1)
        return items

    mine = [0]
    assert runtime.get(change.remote(mine)) == [0, 1] and mine == [0]


def test_arguments_are_taken_when_the_call_is_made(engine):
    @runtime.remote
    class Gate:
        def wait_for(self, value):
            return value

    values = {"a": 1}
    ref = Gate.remote().wait_for.remote(values)
    values["a"] = 2
    assert runtime.get(ref) == {"a": 1}


def test_globals_of_the_driver_are_not_shared(engine):
    state = {"count": 0}

    @runtime.remote
    def increment():
        state["count"] += 1
        return state["count"]

    assert runtime.get(increment.remote()) == 1
    assert state["count"] == 0


def test_a_class_defined_here_keeps_its_identity(engine):
    class Local:
        scale = 3

        def value(self):
            return state["x"] * self.scale

    state = {"x": 1}

    @runtime.remote
    def make():
        return Local()

    result = runtime.get(make.remote())
    assert type(result) is Local
    state["x"] = 5  # the method is still the original, which sees this
    assert Local().value() == 15


def test_functions_and_classes_as_arguments(engine):
    @runtime.remote
    def apply(function, cls):
        return function(2), cls(1, 2)

    assert runtime.get(apply.remote(lambda x: x * x, Pair)) == (4, Pair(1, 2))


def test_remote_functions_as_arguments(engine):
    @runtime.remote
    def run(function, value):
        return runtime.get(function.remote(value))

    assert runtime.get(run.remote(add, 4)) == 5
    assert runtime.get(run.remote(identity.options(name="renamed"), 4)) == 4


def test_retry_on_exceptions_when_asked(engine, tmp_path):
    path = tmp_path / "attempts"

    def attempts():
        return len(path.read_text()) if path.exists() else 0

    def flaky():
        with open(path, "a") as file:
            file.write("x")
        if len(path.read_text()) < 3:
            raise ConnectionError("again")
        return "done"

    task = runtime.remote(flaky)
    assert runtime.get(task.options(retry_exceptions=[OSError]).remote(), timeout=30) == "done"
    assert attempts() == 3
    for options in ({}, {"retry_exceptions": [ValueError]}, {"retry_exceptions": True, "max_retries": 0}):
        path.unlink()
        with pytest.raises(ConnectionError):
            runtime.get(task.options(**options).remote(), timeout=30)
        assert attempts() == 1


def test_retries_end(engine, tmp_path):
    path = tmp_path / "attempts"

    @runtime.remote(max_retries=2, retry_exceptions=True)
    def fail():
        with open(path, "a") as file:
            file.write("x")
        raise RuntimeError("always")

    with pytest.raises(RuntimeError, match="always"):
        runtime.get(fail.remote(), timeout=30)
    assert path.read_text() == "xxx"


def test_a_task_sees_where_it_runs(engine):
    @runtime.remote
    def where():
        context = runtime.get_runtime_context()
        return context.get_task_id(), context.get_actor_id(), context.get_session_id(), context.get_task_name()

    (task1, actor, session, name), (task2, *_) = runtime.get([where.remote(), where.options(name="n").remote()])
    assert task1 and task2 and task1 != task2 and actor is None
    assert session == runtime.get_runtime_context().get_session_id()
    assert "where" in name
    assert runtime.get_runtime_context().get_task_id() is None


def test_large_arguments_and_results(engine):
    data = np.random.default_rng(0).random(1_000_000)
    result = runtime.get(identity.remote({"data": data, "rest": ["x"] * 1000}))
    assert np.array_equal(result["data"], data) and len(result["rest"]) == 1000


def test_large_bytes(engine):
    data = bytes(range(256)) * 4096
    assert runtime.get(identity.remote(data)) == data
    assert runtime.get(identity.remote(bytearray(data))) == bytearray(data)


def test_decorating_something_else(engine):
    with pytest.raises(TypeError, match="functions and classes"):
        runtime.remote(3)
    with pytest.raises(TypeError, match="remote already"):
        runtime.remote(add)


def test_async_functions_are_refused(engine):
    async def coroutine():
        return 1

    with pytest.raises(TypeError, match="async"):
        runtime.remote(coroutine)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"num_cpu": 1}, ValueError, "num_cpus"),
        ({"max_retrys": 1}, ValueError, "max_retries"),
        ({"accelerator_type": "A100"}, ValueError, "'A100' of .* is not available; leave it out"),
        ({"runtime_env": {"pip": ["x"]}}, ValueError, "not available"),
        ({"num_returns": -1}, ValueError, "num_returns"),
        ({"num_returns": 1.5}, TypeError, "num_returns"),
        ({"num_returns": True}, TypeError, "num_returns"),
        ({"max_retries": -2}, ValueError, "max_retries"),
        ({"num_cpus": -1}, ValueError, "num_cpus"),
        ({"num_cpus": "2"}, TypeError, "num_cpus"),
        ({"num_cpus": float("nan")}, ValueError, "num_cpus"),
        ({"num_cpus": 0.00001}, ValueError, "at least 1/10000"),
        ({"num_gpus": 1.5}, ValueError, "num_gpus"),
        ({"resources": {"CPU": 1}}, ValueError, "num_cpus"),
        ({"resources": ["a"]}, TypeError, "resources"),
        ({"resources": {"a": -1}}, ValueError, "resources"),
        ({"retry_exceptions": ValueError}, TypeError, "retry_exceptions"),
        ({"max_calls": -1}, ValueError, "max_calls"),
        ({"name": 3}, TypeError, "name"),
    ],
)
def test_options_are_checked_when_given(engine, options, error, message):
    with pytest.raises(error, match=message):
        add.options(**options)
    with pytest.raises(error, match=message):
        runtime.remote(**options)(lambda: None)


def test_defaults_of_options_that_are_not_available_may_be_given(engine):
    neutral = {"runtime_env": None, "scheduling_strategy": None, "max_calls": 0, "accelerator_type": None}
    assert runtime.get(add.options(**neutral).remote(1, 2)) == 3
    assert runtime.get(runtime.remote(runtime_env={}, scheduling_strategy="DEFAULT")(lambda: 4).remote()) == 4
