"""Exceptions of user code and arguments that cannot travel, on every engine."""

import logging
import os
import pickle
import platform
import threading
import traceback
import types

import numpy as np
import pytest
from runtime_support import wait_until

import runtime


class CustomInit(Exception):
    def __init__(self, code, *, reason):
        super().__init__(f"code {code}")
        self.code, self.reason = code, reason


class NoArguments(Exception):
    def __init__(self):
        super().__init__()
        self.extra = "kept"


class Slots(Exception):
    __slots__ = ("left", "right")

    def __init__(self, left):
        super().__init__("slots")
        self.left = left


class ReadOnlyArgs(Exception):
    @property
    def args(self):
        return ("read", "only")


class OwnNew(Exception):
    def __new__(cls, first, second):
        return super().__new__(cls, first)

    def __init__(self, first, second):
        self.first, self.second = first, second


class WithLock(Exception):
    def __init__(self, text):
        super().__init__(text, threading.Lock())
        self.lock, self.text = threading.Lock(), text


class BadText(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class OwnReduce(Exception):
    def __reduce__(self):
        return (_refuse, ())


class OnlyHere(Exception):
    """Pickles, but raises where it is unpickled."""

    def __init__(self):
        super().__init__()
        self.bomb = Bomb()


class Bomb:
    def __reduce__(self):
        return (_refuse, ())


def _refuse():
    raise RuntimeError("cannot be unpickled")


class NoSubclass(Exception):
    def __init_subclass__(cls):
        raise TypeError("final")


@runtime.remote
def call(function):
    return function()


@runtime.remote
def identity(value):
    return value


@runtime.remote
class Actor:
    def call(self, function):
        return function()

    def accept(self, value):
        return value

    def ping(self):
        return "pong"


def raised(function):
    """What the caller gets when a task runs `function`."""
    with pytest.raises(Exception) as caught:
        runtime.get(call.remote(function), timeout=30)
    return caught.value


def throw(make):
    def function():
        raise make()

    return function


def test_an_error_is_both_of_the_user_and_of_the_runtime(engine):
    error = raised(lambda: 1 // 0)
    assert isinstance(error, ZeroDivisionError) and isinstance(error, runtime.TaskError)
    assert isinstance(error, runtime.errors.RuntimeFailure)
    assert "ZeroDivisionError" in type(error).__name__ and "TaskError" in type(error).__name__
    assert isinstance(error.cause, ZeroDivisionError) and not isinstance(error.cause, runtime.TaskError)


def test_the_remote_traceback_is_in_the_text(engine):
    def inner_function():
        raise KeyError("missing key")

    text = str(raised(lambda: inner_function()))
    assert "missing key" in text and "in inner_function" in text and 'raise KeyError("missing key")' in text
    assert "task call()" in text and "in process" in text


@pytest.mark.parametrize(
    "make, cls, attributes",
    [
        (lambda: CustomInit(3, reason="r"), CustomInit, {"code": 3, "reason": "r", "args": ("code 3",)}),
        (NoArguments, NoArguments, {"extra": "kept"}),
        (lambda: Slots([1]), Slots, {"left": [1]}),
        (ReadOnlyArgs, ReadOnlyArgs, {"args": ("read", "only")}),
        (lambda: OwnNew(1, 2), OwnNew, {"first": 1, "second": 2}),
        (lambda: WithLock("t"), WithLock, {"text": "t"}),
        (BadText, BadText, {}),
        (OwnReduce, OwnReduce, {}),
        (lambda: FileNotFoundError(2, "no", "name.txt"), FileNotFoundError, {"errno": 2, "filename": "name.txt"}),
        (lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "why"), UnicodeDecodeError, {"reason": "why", "start": 0}),
        (lambda: StopIteration(5), StopIteration, {"value": 5}),
        (lambda: ImportError("i", name="n"), ImportError, {"name": "n"}),
        (lambda: KeyError(("a", 1)), KeyError, {"args": (("a", 1),)}),
        (lambda: RecursionError("deep"), RecursionError, {}),
        (lambda: MemoryError("big"), MemoryError, {}),
        (lambda: AssertionError(), AssertionError, {"args": ()}),
        (lambda: ExceptionGroup("g", [ValueError(1), CustomInit(1, reason=2)]), ExceptionGroup, {"message": "g"}),
        (lambda: TimeoutError("slow"), TimeoutError, {}),
        (lambda: ValueError("x" * 1_000_000), ValueError, {}),
    ],
    ids=lambda value: getattr(value, "__name__", "") if isinstance(value, type) else "",
)
def test_every_kind_of_exception_can_be_caught_by_its_class(engine, make, cls, attributes):
    error = raised(throw(make))
    assert isinstance(error, cls) and isinstance(error, runtime.TaskError)
    for name, value in attributes.items():
        assert getattr(error, name) == value
    assert "Traceback" in str(error)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FileNotFoundError("there is no data"),
        lambda: FileNotFoundError(2, "no", "name.txt"),
        lambda: OSError(2, "no", "from.txt", None, "to.txt"),
        lambda: OSError(),
        lambda: SyntaxError("invalid"),
        lambda: ImportError("i"),
        lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "why"),
        lambda: SystemError("s"),
        lambda: Slots(None),
    ],
)
def test_the_cause_says_what_was_raised(engine, make):
    """Fields that are empty are not filled with None, which OSError would show."""
    error = raised(throw(make))
    assert str(error.cause) == str(make()) and f": {make()}\n" in str(error)
    assert getattr(error.cause, "left", None) is None


def test_the_parts_of_a_group_keep_their_classes(engine):
    error = raised(throw(lambda: ExceptionGroup("g", [ValueError(1), CustomInit(1, reason=2)])))
    assert [type(e) for e in error.exceptions] == [ValueError, CustomInit]
    assert error.exceptions[1].reason == 2


def test_a_class_defined_in_a_function(engine):
    class Local(Exception):
        pass

    error = raised(throw(lambda: Local("l")))
    assert isinstance(error, Local)
    assert repr(error) == "TaskError(Local)('l')"


def test_a_class_that_cannot_be_combined(engine):
    error = raised(throw(lambda: NoSubclass("final")))
    assert type(error) is runtime.TaskError and isinstance(error.cause, NoSubclass)
    assert "NoSubclass: final" in str(error)


def test_an_exception_that_cannot_travel(engine):
    error = raised(throw(OnlyHere))
    assert isinstance(error, runtime.TaskError) and "OnlyHere" in str(error)


def test_notes_travel(engine):
    def noted():
        error = ValueError("v")
        error.add_note("environment 3")
        raise error

    error = raised(noted)
    assert error.__notes__ == ["environment 3"]
    assert "environment 3" in str(error)


def test_chained_and_circular_causes(engine):
    def chained():
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error

    def circular():
        a, b = ValueError("a"), ValueError("b")
        a.__cause__, b.__cause__ = b, a
        a.self = a
        raise a

    assert "first" in str(raised(chained)) and "direct cause" in str(raised(chained))
    assert isinstance(raised(circular), ValueError)


def test_the_cause_keeps_its_own_cause_and_context(engine):
    def chained():
        try:
            try:
                raise KeyError("first")
            except KeyError as error:
                raise CustomInit(2, reason="r") from error
        except CustomInit:
            raise ValueError("third")  # noqa: B904

    cause = raised(chained).cause
    assert cause.__cause__ is None and not cause.__suppress_context__
    second = cause.__context__
    assert isinstance(second, CustomInit) and second.reason == "r" and second.__suppress_context__
    assert isinstance(second.__cause__, KeyError) and second.__cause__.args == ("first",)

    def unpicklable():
        raise ValueError("kept") from WithLock("text")

    cause = raised(unpicklable).cause
    assert isinstance(cause, ValueError) and cause.__cause__.text == "text"


@pytest.mark.parametrize("make", [lambda: CustomInit(3, reason="r"), WithLock, Slots, lambda x=0: OSError(2, "no")])
def test_a_received_error_can_be_pickled_again(engine, make):
    try:
        make_one = lambda: make("x")  # noqa: E731
        error = raised(throw(make_one if make in (WithLock, Slots) else make))
    finally:
        pass
    error.add_note("seen")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and again.__notes__ == ["seen"]


def test_each_get_raises_a_new_exception(engine):
    ref = call.remote(throw(lambda: ValueError("again")))
    lengths = []
    for _ in range(3):
        with pytest.raises(ValueError) as caught:
            runtime.get(ref, timeout=30)
        lengths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(set(lengths)) == 1


def test_an_exception_as_a_value_is_not_raised(engine):
    value = runtime.get(identity.remote(ValueError("just data")))
    assert type(value) is ValueError and value.args == ("just data",)


def test_an_error_of_an_inner_task_keeps_its_class(engine):
    @runtime.remote
    def outer():
        return runtime.get(call.remote(throw(lambda: CustomInit(1, reason="inner"))))

    with pytest.raises(CustomInit) as caught:
        runtime.get(outer.remote(), timeout=30)
    assert caught.value.reason == "inner"
    assert "task call()" in str(caught.value) and "in outer" in str(caught.value)


def test_an_error_of_the_runtime_inside_a_task(engine):
    @runtime.remote
    def outer(handle):
        runtime.kill(handle[0])
        return runtime.get(handle[0].ping.remote())

    with pytest.raises(runtime.ActorDiedError) as caught:
        runtime.get(outer.remote([Actor.remote()]), timeout=30)
    assert isinstance(caught.value, runtime.TaskError)


def test_dependents_fail_with_the_first_cause_and_never_run(engine, tmp_path):
    @runtime.remote
    def mark(value):
        (tmp_path / "ran").touch()
        return value

    first = call.remote(throw(lambda: CustomInit(7, reason="first")))
    actor = Actor.remote()
    refs = [mark.remote(mark.remote(first)), mark.remote([1]) and mark.remote(first), actor.accept.remote(first)]
    (tmp_path / "ran").unlink(missing_ok=True)
    for ref in refs:
        with pytest.raises(CustomInit) as caught:
            runtime.get(ref, timeout=30)
        assert caught.value.reason == "first"
    assert runtime.get(actor.ping.remote()) == "pong"


def test_dependents_of_an_error_never_run(engine, tmp_path):
    @runtime.remote
    def mark(value):
        (tmp_path / "ran").touch()

    with pytest.raises(ZeroDivisionError):
        runtime.get(mark.remote(mark.remote(call.remote(lambda: 1 // 0))), timeout=30)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("link", ["task", "actor"])
@pytest.mark.parametrize("end", ["raises", "is cancelled", "is killed"])
def test_an_error_reaches_the_end_of_a_long_chain(engine, end, link, tmp_path):
    links = 100 if engine == "ray" else 1500  # more than frames fit on the stack

    @runtime.remote
    class Head:
        def fail(self):
            if engine != "local":  # whose calls have ended when they return
                wait_until(lambda: (tmp_path / "go").exists(), 30)
            raise ZeroDivisionError("at the head")

    head, middle = Head.remote(), Actor.remote()
    task = runtime.remote(lambda: runtime.get(head.fail.remote()))
    first = last = task.remote() if end == "is cancelled" else head.fail.remote()
    for _ in range(links):
        last = (identity if link == "task" else middle.accept).remote(last)
    if end == "is killed":
        runtime.kill(head)
    if end == "is cancelled":
        runtime.cancel(first)
    if end == "raises" or engine == "local":
        (tmp_path / "go").touch()
        expected = ZeroDivisionError
    else:
        expected = runtime.ActorDiedError if end == "is killed" else runtime.TaskCancelledError
    with pytest.raises(expected):
        runtime.get(last, timeout=60)
    (tmp_path / "go").touch()
    assert runtime.get(middle.ping.remote(), timeout=30) == "pong"


def test_sys_exit_in_a_task(engine):
    import sys

    error = raised(lambda: sys.exit(3))
    assert isinstance(error, runtime.WorkerExitedError) and "3" in str(error)
    assert runtime.get(identity.remote(1), timeout=30) == 1


def test_sys_exit_in_an_actor(engine):
    import sys

    actor = Actor.remote()
    with pytest.raises(runtime.ActorDiedError, match="exit"):
        runtime.get(actor.call.remote(lambda: sys.exit(3)), timeout=30)
    with pytest.raises(runtime.ActorDiedError, match="exit"):
        runtime.get(actor.ping.remote(), timeout=30)


def test_generator_exit_is_an_ordinary_error(engine):
    error = raised(throw(lambda: GeneratorExit("g")))
    assert type(error) is runtime.TaskError and "GeneratorExit" in str(error)
    assert runtime.get(identity.remote(1), timeout=30) == 1


def test_endless_recursion(engine):
    def deep():
        return deep()

    assert isinstance(raised(deep), RecursionError)


# -- what cannot be pickled -------------------------------------------------------------------------------------------


class Holder:
    def __init__(self):
        self.items = [1, {"lock": threading.Lock()}]


def test_an_argument_that_cannot_be_pickled_is_named(engine):
    with pytest.raises(TypeError, match=r"args\[1\]\.items\[1\]\['lock'\].*_thread\.lock"):
        call.remote(1, Holder()) if False else runtime.remote(lambda *a: a).remote(1, Holder())
    with pytest.raises(TypeError, match=r"kwargs\['value'\]"):
        identity.remote(value=threading.Lock())
    with pytest.raises(TypeError, match=r"args\[0\].*a builtins\.generator.*list\(\.\.\.\)"):
        identity.remote(value for value in range(3))
    stream = runtime.remote(lambda: (yield 1)).remote()
    text = r"^args\[0\]\.stream cannot be pickled.*ObjectRefGenerator.*as list\(generator\)"
    with pytest.raises(TypeError, match=text):
        identity.remote(types.SimpleNamespace(stream=stream))


def test_the_message_for_a_deep_value_is_short(engine):
    value = threading.Lock()
    for _ in range(300):
        value = [value]
    with pytest.raises(TypeError, match=r"args.* \.\.\. .*_thread\.lock") as error:
        identity.remote(value)
    assert len(str(error.value)) < 1000


def test_an_argument_of_an_actor_that_cannot_be_pickled(engine):
    @runtime.remote
    class Takes:
        def __init__(self, value=None):
            pass

        def take(self, value):
            return value

    with pytest.raises(TypeError, match=r"args\[0\]"):
        Takes.remote(threading.Lock())
    actor = Takes.remote()
    with pytest.raises(TypeError, match=r"args\[0\]\[0\]"):
        actor.take.remote([threading.Lock()])
    assert runtime.get(actor.take.remote(1)) == 1


def test_a_closure_that_cannot_be_pickled(engine):
    lock = threading.Lock()

    @runtime.remote
    def locked():
        return lock

    with pytest.raises(TypeError, match=r"captures lock"):
        locked.remote()


def test_an_attribute_of_a_class_that_cannot_be_pickled(engine):
    @runtime.remote
    class Locked:
        guard = threading.Lock()

    with pytest.raises(TypeError, match=r"guard"):
        Locked.remote()


def test_put_of_what_cannot_be_pickled(engine):
    with pytest.raises(TypeError, match=r"\.items\[1\]\['lock'\]"):
        runtime.put(Holder())


def test_a_result_that_cannot_be_pickled(engine):
    actor = Actor.remote()
    with pytest.raises(TypeError, match=r"the result of .*\[1\]\['lock'\]") as caught:
        runtime.get(actor.call.remote(lambda: Holder()), timeout=30)
    assert isinstance(caught.value, runtime.TaskError)
    assert runtime.get(actor.ping.remote()) == "pong"
    with pytest.raises(TypeError, match="the result of call"):
        runtime.get(call.remote(lambda: (i for i in range(3))), timeout=30)


def test_an_argument_that_cannot_be_unpickled(engine):
    actor = Actor.remote()
    with pytest.raises(RuntimeError, match="cannot be unpickled"):
        runtime.get(actor.accept.remote(Bomb()), timeout=30)
    with pytest.raises(RuntimeError, match="cannot be unpickled"):
        runtime.get(identity.remote([Bomb()]), timeout=30)
    assert runtime.get(actor.ping.remote()) == "pong"


def test_a_value_that_cannot_be_unpickled(engine):
    """The error says that, by whom and under which versions; it is caught by its own class, too."""
    for ref in (runtime.put(Bomb()), runtime.put([runtime.put(1), Bomb()]), call.remote(lambda: Bomb())):
        with pytest.raises(RuntimeError, match=r"cannot be unpickled.*have the modules") as caught:
            runtime.get(ref, timeout=30)
        assert isinstance(caught.value, runtime.TaskError)
        text = str(caught.value)
        assert f"process {os.getpid()} (Python {platform.python_version()}, numpy {np.__version__}" in text


def test_references_among_what_cannot_be_pickled(engine):
    with pytest.raises(TypeError, match=r"args\[0\]\[1\]"):
        identity.remote([runtime.put(1), threading.Lock()])


def test_a_function_that_captures_too_much(engine):
    ballast = bytes(101 * 2**20)

    @runtime.remote
    def heavy():
        return len(ballast)

    with pytest.raises(ValueError, match=r"captures .* MB: ballast .*argument"):
        heavy.remote()


@runtime.remote
def fails(text):
    raise LookupError(text)


@runtime.remote
class Raiser:
    def fail(self, text):
        raise LookupError(text)


@runtime.remote
class FailsToStart:
    def __init__(self, text):
        raise LookupError(text)

    def work(self):
        pass


def unhandled(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "runtime" and "Unhandled error" in r.getMessage()]


def test_an_error_whose_reference_is_dropped_unseen_is_logged_once(engine, caplog):
    fails.remote("dropped at once")
    first, second = fails.options(num_returns=2).remote("dropped when it was there")
    runtime.wait([first])
    del first, second
    actor = FailsToStart.remote("constructor")
    runtime.wait([actor.work.remote(), actor.work.remote()], num_returns=2)
    del actor
    FailsToStart.remote("constructor without handle")
    Raiser.remote().fail.remote("method")
    fails.options(num_returns=0).remote("without reference")
    texts = ["dropped at once", "dropped when it was there", "method", "without reference"]
    if engine != "ray":  # which logs no constructor's
        texts += ["constructor", "constructor without handle"]

    def logged():
        return {text: [m for m in unhandled(caplog) if f"LookupError: {text}\n" in m] for text in texts}

    wait_until(lambda: all(logged().values()), 20, lambda: str(unhandled(caplog)))
    for messages in logged().values():
        assert len(messages) == 1 or engine == "ray"  # which may log an error for each of two references
        assert all("Traceback" in message and "raise LookupError(text)" in message for message in messages)


def test_a_handler_of_lost_errors_may_use_the_runtime(engine):
    refs, handler = [], logging.Handler(logging.ERROR)
    handler.emit = lambda record: refs.append(identity.remote(record.getMessage()))
    logging.getLogger("runtime").addHandler(handler)
    try:
        fails.options(num_returns=0).remote("without reference")
        fails.remote("dropped")
        wait_until(lambda: len(refs) == 2, 20)
    finally:
        logging.getLogger("runtime").removeHandler(handler)
    assert sorted("dropped" in text for text in runtime.get(refs)) == [False, True]


def test_an_error_that_somebody_has_seen_is_not_logged(engine, caplog):
    refs = [fails.remote("seen"), *fails.options(num_returns=2).remote("seen in part")]
    for ref in refs[:2]:
        with pytest.raises(LookupError):
            runtime.get(ref)
    dependent = identity.remote(identity.remote(fails.remote("seen in a dependent")))
    with pytest.raises(LookupError):
        runtime.get(dependent)
    actor = FailsToStart.remote("seen in a call")
    with pytest.raises(LookupError):
        runtime.get(actor.work.remote())
    kept = fails.remote("kept")
    runtime.wait([kept])
    killed = Raiser.remote()
    runtime.kill(killed)
    runtime.wait([killed.fail.remote("never run")])
    del refs, ref, dependent, actor, killed
    fails.remote("the last one")
    logged = ["seen in part", "the last one"] if engine == "ray" else ["the last one"]  # Ray: the second reference
    wait_until(lambda: len(unhandled(caplog)) >= len(logged), 20, lambda: str(unhandled(caplog)))
    assert [any(text in message for message in unhandled(caplog)) for text in logged] == [True] * len(unhandled(caplog))
    with pytest.raises(LookupError):
        runtime.get(kept)


def test_a_task_error_under_the_name_that_ray_has_for_it(engine):
    assert isinstance(raised(throw(lambda: KeyError("k"))).as_instanceof_cause(), KeyError)
