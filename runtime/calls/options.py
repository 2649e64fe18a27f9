"""Options of `@remote(...)` and `.options(...)`, checked when they are given.

Resources are numbers by name: "CPU", "GPU", "memory" (bytes) and the user's own. Zero entries are left out.
"""

from __future__ import annotations

import difflib
import inspect
import math
from numbers import Integral

import msgspec

from ..errors import UnschedulableError
from ..runtime_env import check_env_vars, check_runtime_env
from ..scheduling import PlacementGroup, PlacementGroupSchedulingStrategy, SchedulingStrategy, check_strategy
from .retries import worth_retrying

# Options of Ray that are not available: the values that ask for what happens anyway. These are accepted, no others.
NOT_YET = {
    "accelerator_type": (None,),
    "allow_out_of_order_execution": (None, False),
    "enable_task_events": (True, False),
    "label_selector": (None, {}),
    "max_calls": (0,),
}
BUILT_IN_RESOURCES = frozenset({"CPU", "GPU", "memory", "object_store_memory"})
RESOURCE_UNITS = 10_000  # quantities are exact to this part, so that fractions add up
# What engines get for num_returns="dynamic" and "streaming"; STREAMING + n: with at most n values ahead of the caller.
DYNAMIC, STREAMING = 2**30, 2**31


class TaskOptions(msgspec.Struct, frozen=True):
    """Options of a remote function.

    Attributes:
        num_cpus: CPUs the task occupies while it runs (fractions allowed).
        num_gpus: GPUs, by number or fraction of one.
        resources: the session's custom resources, name -> quantity.
        memory: bytes that are booked for it, not enforced.
        num_returns: how many values it returns; with 2 or more `.remote()` gives a list of references, with 0 None.
            "streaming", the default for a generator: `.remote()` gives an ObjectRefGenerator, which gets each value as
            it is yielded. "dynamic": one reference, to a DynamicObjectRefGenerator with all of them.
        max_retries: how often it is started again when its process dies; -1: always.
        retry_exceptions: retry on exceptions of the user's code too: True, or a tuple of exception classes.
        max_calls: number of calls after which a worker process that runs the function ends, which frees what
            it leaks; 0: any number. It ends after the tasks, calls and actors that it has started. Without effect in
            the engine "local".
        name: for messages; default the function's name.
        _generator_backpressure_num_objects: how many values a streaming generator may be ahead of its caller, before it
            waits; -1: any number.
        runtime_env: {"env_vars": {...}, "working_dir": path}: environment variables, added to the caller's, and
            the directory in which it runs and from which it imports. Tasks of other environments get other processes.
        scheduling_strategy: "DEFAULT", "SPREAD" (the same on one machine), or one of util.scheduling_strategies. None:
            the caller's placement group if it captures its children, else "DEFAULT".
    """

    num_cpus: float = 1
    num_gpus: float = 0
    resources: dict = {}
    memory: int = 0
    num_returns: int | str = 1
    max_retries: int = 3
    retry_exceptions: bool | tuple = False
    max_calls: int = 0
    name: str | None = None
    _generator_backpressure_num_objects: int = -1
    runtime_env: dict = {}
    scheduling_strategy: SchedulingStrategy = None

    @property
    def returns(self) -> int:
        """See `return_code`."""
        return return_code(self.num_returns, self._generator_backpressure_num_objects)

    def request(self) -> dict[str, float]:
        """Resources that must be free for the task to start, and are held until it ends."""
        return _request(self.num_cpus, self.num_gpus, self.memory, self.resources)

    def retries_on(self, exception: BaseException) -> bool:
        """Whether an exception of the user's code is worth another attempt."""
        return worth_retrying(self.retry_exceptions, exception)


class ActorOptions(msgspec.Struct, frozen=True):
    """Options of a remote class.

    Attributes:
        num_cpus: CPUs the actor occupies for life; None: one must be free to start it, none is held.
        num_gpus, resources, memory: as for tasks, held for life.
        name: by which `get_actor` finds it; no other living actor of the namespace has it.
        namespace: namespace of the name; None: the session's.
        get_if_exists: `.remote()` gives the actor that has the name, if there is one, instead of raising ValueError.
        lifetime: None or "non_detached": it ends with its last handle, or with the process that created it.
            "detached": it lives until it is killed or the session ends.
        label: its name in messages and in the output of its process; default its name, or its class's.
        max_restarts: how often it is started again, by its constructor, when its process dies; -1: always.
        max_task_retries: how often a call that the actor's death has interrupted is made again after the restart; -1:
            always. With 0 such a call raises ActorUnavailableError; it may have run.
        max_concurrency: number of calls that run at a time, in threads or as coroutines; None: 1, or 1000 if a method
            is a coroutine function.
        concurrency_groups: group -> number of calls of its methods that run at a time, in addition to other groups.
        max_pending_calls: largest number of calls of one process that wait for it; -1: no limit.
        oversubscribe: start it even when too few CPUs are free (or exist); the other resources are still needed.
        env_vars: environment variables of its process, short for runtime_env={"env_vars": ...}.
        runtime_env: as for tasks.
        scheduling_strategy: as for tasks.
    """

    num_cpus: float | None = None
    num_gpus: float = 0
    resources: dict = {}
    memory: int = 0
    name: str | None = None
    namespace: str | None = None
    get_if_exists: bool = False
    lifetime: str | None = None
    label: str | None = None
    max_restarts: int = 0
    max_task_retries: int = 0
    max_concurrency: int | None = None
    concurrency_groups: dict = {}
    max_pending_calls: int = -1
    oversubscribe: bool = False
    env_vars: dict = {}
    runtime_env: dict = {}
    scheduling_strategy: SchedulingStrategy = None

    @property
    def environment(self) -> dict:
        """The runtime_env with env_vars in it."""
        if not self.env_vars:
            return self.runtime_env
        return {**self.runtime_env, "env_vars": {**self.runtime_env.get("env_vars", {}), **self.env_vars}}

    @property
    def detached(self) -> bool:
        """Whether it outlives its handles and the process that created it."""
        return self.lifetime == "detached"

    def request(self) -> dict[str, float]:
        """Resources that must be free to start the actor."""
        cpus = 0 if self.oversubscribe else 1 if self.num_cpus is None else self.num_cpus
        return _request(cpus, self.num_gpus, self.memory, self.resources)

    def held(self) -> dict[str, float]:
        """Resources that it occupies as long as it lives; with oversubscribe, its CPUs may exceed the free ones."""
        return _request(self.num_cpus or 0, self.num_gpus, self.memory, self.resources)


class MethodOptions(msgspec.Struct, frozen=True):
    """Options of a method of a remote class.

    Attributes:
        num_returns: as for tasks; None: "streaming" for a generator, else 1.
        max_task_retries: as for the class; None: what the class has. Generators are not called again.
        retry_exceptions: make the call again, as often as max_task_retries says, on exceptions of the user's code too:
            True, or a tuple of exception classes; None: False.
        concurrency_group: in which its calls run; None: the group of all methods without one.
        name: for programs written for Ray; without effect, since messages name the method.
        _generator_backpressure_num_objects: as for tasks.
    """

    num_returns: int | str | None = None
    max_task_retries: int | None = None
    retry_exceptions: bool | tuple | None = None
    concurrency_group: str | None = None
    name: str | None = None
    _generator_backpressure_num_objects: int = -1

    def returns(self, function) -> int:
        """See `return_code`; `function` is the method."""
        num_returns = default_num_returns(function) if self.num_returns is None else self.num_returns
        return return_code(num_returns, self._generator_backpressure_num_objects)


def default_num_returns(function) -> int | str:
    """Default number of values that a function or method returns."""
    return "streaming" if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function) else 1


def return_code(num_returns: int | str, limit: int) -> int:
    """num_returns as engines take it: a number of values, DYNAMIC, or STREAMING (+ limit, if it is not -1)."""
    if isinstance(num_returns, int):
        return num_returns
    return DYNAMIC if num_returns == "dynamic" else STREAMING + max(0, limit)


def updated(options, given: dict):
    """A copy of `options` with the values of `given`, checked.

    Raises:
        ValueError: an unknown option (the message names the nearest), or a value out of range.
        TypeError: a value of the wrong type.
    """
    known = type(options).__struct_fields__
    checked = {}
    if "scheduling_strategy" in known and not _PLACEMENT_OPTIONS.isdisjoint(given):
        given = _with_strategy(given)
    for name, value in given.items():
        if name in known:
            checked[name] = _CHECKS[name](name, value)
        elif not is_neutral(value, NOT_YET.get(name, ())):
            raise ValueError(_unknown(name, value, known, type(options)))
    return msgspec.structs.replace(options, **checked)


def _with_strategy(given):
    """The options with the strategy that Ray's older ones, `placement_group` and its two companions, represent."""
    rest = {name: value for name, value in given.items() if name not in _PLACEMENT_OPTIONS}
    group = given.get("placement_group", "default")
    if given.get("scheduling_strategy") is not None and group not in (None, "default"):
        raise ValueError("give scheduling_strategy or placement_group, not both")
    if group is None:
        return {"scheduling_strategy": "DEFAULT", **rest}
    if group == "default":
        return rest
    if not isinstance(group, PlacementGroup):
        raise TypeError(f"placement_group must be what util.placement_group() returned, got {group!r}")
    return {
        **rest,
        "scheduling_strategy": PlacementGroupSchedulingStrategy(
            group,
            given.get("placement_group_bundle_index", -1),
            given.get("placement_group_capture_child_tasks"),
        ),
    }


def is_neutral(value, neutral: tuple) -> bool:
    """Whether a value is one of `neutral`, of the same type too: max_restarts=False is a mistake."""
    return any(type(value) is type(other) and value == other for other in neutral)


def check_feasible(request: dict[str, float], total: dict[str, float], what: str) -> None:
    """Refuses at once what can never fit.

    Args:
        request: resources asked for.
        total: resources of the session.
        what: "task train()", "actor Counter", for the message.

    Raises:
        UnschedulableError: some quantity asked for exceeds the total.
    """
    lacking = [name for name, quantity in request.items() if quantity > total.get(name, 0)]
    if not lacking:
        return
    asked = ", ".join(written(name, request[name]) for name in lacking)
    have = ", ".join(written(name, quantity) for name, quantity in sorted(total.items())) or "nothing"
    raise UnschedulableError(
        f"{what} asks for {asked}, which this session can never give; it has {have}. Ask for less, or give the session "
        "more: runtime.init(num_cpus=..., num_gpus=..., resources={...})."
    )


def check_resources(name: str, value) -> dict[str, float]:
    """A dict of custom resources, name -> quantity as `check_quantity` gives it.

    Raises:
        TypeError, ValueError: not a dict of str -> number, negative, or the name of a built-in resource.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict of name -> quantity, got {value!r}")
    checked = {}
    for key, quantity in value.items():
        if not isinstance(key, str):
            raise TypeError(f"the names in {name} must be strings, got {key!r}")
        if key in BUILT_IN_RESOURCES:
            raise ValueError(f"{name} may not contain {key!r}; use num_cpus, num_gpus or memory for it")
        checked[key] = check_quantity(f"{name}[{key!r}]", quantity)
    return {key: quantity for key, quantity in checked.items() if quantity}


def check_bundle(name: str, bundle) -> dict[str, float]:
    """The resources of a bundle of a placement group, built-in ones and the user's, by name.

    Raises:
        TypeError, ValueError: not a dict of str -> number, negative, nothing above 0, or a wrong number of GPUs.
    """
    if not isinstance(bundle, dict) or not all(isinstance(key, str) for key in bundle):
        raise TypeError(f"{name} must be a dict of name -> quantity, got {bundle!r}")
    checked = {
        key: (_gpus if key == "GPU" else check_quantity)(f"{name}[{key!r}]", quantity)
        for key, quantity in bundle.items()
    }
    if not any(checked.values()):
        raise ValueError(f"{name} must ask for something, got {bundle!r}")
    return {key: quantity for key, quantity in checked.items() if quantity}


def check_quantity(name: str, value) -> float:
    """A number >= 0, rounded down to a multiple of 1/10,000, so that n shares of 1/n always fit into one.

    Raises:
        TypeError, ValueError: not a number, negative, not finite, or greater than 0 and less than 1/10,000.
    """
    if isinstance(value, bool) or (not isinstance(value, int | float) and not _is_numpy_number(value)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not value >= 0 or math.isinf(value):
        raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")
    value = value.item() if _is_numpy_number(value) else value
    if value == int(value):
        return value
    units = math.floor(value * RESOURCE_UNITS * (1 + 1e-9))  # 0.29 * 10,000 is 2899.9999999999995
    if units == 0:
        raise ValueError(f"{name} must be 0 or at least 1/{RESOURCE_UNITS}, got {value!r}")
    return units / RESOURCE_UNITS


def _is_numpy_number(value) -> bool:
    return type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0 and value.dtype.kind in "iuf"


def _gpus(name, value):
    value = check_quantity(name, value)
    if value > 1 and value != int(value):
        raise ValueError(f"{name} must be a whole number, or a fraction of one GPU (<= 1), got {value!r}")
    return value


def check_count(name: str, value, minimum: int = 0) -> int:
    """An integer >= minimum.

    Raises:
        TypeError, ValueError: otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer >= {minimum}, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be >= {minimum}, got {value!r}")
    return int(value)


def _retry_exceptions(name, value):
    if isinstance(value, bool | None):
        return value
    if isinstance(value, list | tuple) and all(isinstance(c, type) and issubclass(c, BaseException) for c in value):
        return tuple(value)
    raise TypeError(f"{name} must be True, False or a list of exception classes, got {value!r}")


def _num_returns(name, value):
    if isinstance(value, str):
        if value not in ("dynamic", "streaming"):
            raise TypeError(f"{name} must be an integer >= 0, 'dynamic' or 'streaming', got {value!r}")
        return value
    return check_count(name, value)


def _backpressure(name, value):
    if value is None or value == -1:
        return -1
    count = check_count(name, value, minimum=1)
    if count >= DYNAMIC:
        raise ValueError(f"{name} must be less than {DYNAMIC}, got {value!r}")
    return count


def check_name(name: str, value) -> str | None:
    """A string of at least one character, or None.

    Raises:
        TypeError, ValueError: otherwise.
    """
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {value!r}")
    if value == "":
        raise ValueError(f"{name} must not be the empty string; leave it out if there is none")
    return value


def _lifetime(name, value):
    if value not in (None, "detached", "non_detached"):
        raise ValueError(f"{name} must be None, 'detached' or 'non_detached', got {value!r}")
    return value


def _concurrency_groups(name, value):
    if not isinstance(value, dict | None) or not all(isinstance(group, str) and group for group in value or ()):
        raise TypeError(f"{name} must be a dict of group -> number of calls at a time, got {value!r}")
    return {group: check_count(f"{name}[{group!r}]", count, minimum=1) for group, count in (value or {}).items()}


def _max_pending_calls(name, value):
    if value == 0:
        raise ValueError(f"{name} must be at least 1, or -1 for no limit; got 0")
    return check_count(name, value, minimum=-1)


def _flag(name, value):
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


_CHECKS = {
    "num_cpus": lambda name, value: None if value is None else check_quantity(name, value),
    "num_gpus": lambda name, value: 0 if value is None else _gpus(name, value),
    "resources": check_resources,
    "memory": lambda name, value: 0 if value is None else check_quantity(name, value),
    "num_returns": _num_returns,
    "_generator_backpressure_num_objects": _backpressure,
    "max_calls": check_count,
    "max_retries": lambda name, value: check_count(name, value, minimum=-1),
    "retry_exceptions": _retry_exceptions,
    "name": check_name,
    "namespace": check_name,
    "get_if_exists": _flag,
    "lifetime": _lifetime,
    "label": check_name,
    "max_restarts": lambda name, value: check_count(name, value, minimum=-1),
    "max_task_retries": lambda name, value: None if value is None else check_count(name, value, minimum=-1),
    "max_concurrency": lambda name, value: None if value is None else check_count(name, value, minimum=1),
    "concurrency_groups": _concurrency_groups,
    "concurrency_group": check_name,
    "max_pending_calls": _max_pending_calls,
    "oversubscribe": _flag,
    "env_vars": check_env_vars,
    "runtime_env": check_runtime_env,
    "scheduling_strategy": check_strategy,
}
_PLACEMENT_OPTIONS = frozenset(
    {"placement_group", "placement_group_bundle_index", "placement_group_capture_child_tasks"}
)


_WHAT = {TaskOptions: "a remote function", ActorOptions: "a remote class", MethodOptions: "a method"}


def _request(num_cpus, num_gpus, memory, resources) -> dict[str, float]:
    request = {"CPU": num_cpus, "GPU": num_gpus, "memory": memory, **resources}
    return {name: quantity for name, quantity in request.items() if quantity}


def written(name, quantity) -> str:
    return f"memory: {quantity / 1e9:.1f} GB" if name == "memory" else f"{name}: {quantity:g}"


def _unknown(name, value, known, kind) -> str:
    what = _WHAT[kind]
    if name in NOT_YET:
        return (
            f"the option {name}={value!r} of {what} is not available; leave it out, or give its default, "
            f"{NOT_YET[name][0]!r}. There are {', '.join(known)}."
        )
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean {nearest[0]!r}? " if nearest else ""
    return f"unknown option {name!r} of {what}. {hint}There are {', '.join(known)}."
