"""Arguments of hooks by the names of RLlib's new API stack, for the hooks that name them.

Hooks are called with RLlib 2.6's arguments. A hook that names one of the later ones (`env_runner`, `metrics_logger`,
`rl_module`, ...) gets those of its arguments that it names; no other hook is touched, and none pays for it.
"""

import contextlib
import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from types import CodeType
from typing import TYPE_CHECKING, Any

from rllib.evaluation.hooks.env_runner import EnvRunnerNames

if TYPE_CHECKING:
    from rllib.core.metrics.metrics_logger import Call, MetricsLogger


_IN_WORKER: Mapping[str, Callable[[dict, "LaterArguments"], Any]] = {
    "env_runner": lambda given, later: EnvRunnerNames(given["worker"]),
    "metrics_logger": lambda given, later: later.logger,
}
_OF_EPISODE = {
    **_IN_WORKER,
    "env": lambda given, later: given["base_env"],
    "rl_module": lambda given, later: later.module_of(given["worker"]),
    "prev_episode_chunks": lambda given, later: [],
}
_IN_DRIVER = {"metrics_logger": lambda given, later: given["algorithm"].metrics.logger}
# Hook -> its later arguments, and what makes the value of each from those that it is called with.
LATER: Mapping[str, Mapping[str, Callable[[dict, "LaterArguments"], Any]]] = {
    **dict.fromkeys(("on_algorithm_init", "on_train_result", "on_evaluate_start", "on_evaluate_end"), _IN_DRIVER),
    **dict.fromkeys(("on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end"), _OF_EPISODE),
    "on_sample_end": _IN_WORKER,
    "on_environment_created": {"metrics_logger": lambda given, later: later.logger},
}

_LATER_NAMES = frozenset(name for of_hook in LATER.values() for name in of_hook)


class LaterArguments:
    """Values of hook arguments that later versions of RLlib introduced (metrics_logger, env_runner and others).

    Attributes:
        remembers_episodes: whether a hook of episodes is one of the later versions, so that they keep all their steps.
    """

    def __init__(self):
        self.remembers_episodes = False
        # Policies of the worker, and the module that hooks get of them.
        self._policies: tuple = ()
        self._module: Any = None

    @cached_property
    def logger(self) -> "MetricsLogger":
        """Values that hooks in this worker log."""
        from rllib.core.metrics.metrics_logger import MetricsLogger

        return MetricsLogger(records=True)

    def module_of(self, worker: Any) -> Any:
        """The module of a worker's policy; with several policies, those by id."""
        policies = tuple(worker.policies.values())
        if policies != self._policies:
            from rllib.core.modules.module_of_policy import module_of, modules_of

            several = len(policies) > 1
            self._policies, self._module = policies, modules_of(worker.policies) if several else module_of(policies[0])
        return self._module

    def pop_calls(self) -> "list[Call] | None":
        """Calls of the logger since the last time; None without any."""
        return self.logger.pop_calls() or None if "logger" in vars(self) else None


def adapt(callbacks: Any, hooks: tuple[str, ...], later: LaterArguments) -> None:
    """Makes the hooks of an object that name later arguments callable with those of RLlib 2.6.

    Args:
        callbacks: the object, whose attributes are changed.
        hooks: names of the hooks that it defines.
        later: the values of this process.
    """
    for hook in hooks:
        method = getattr(callbacks, hook)
        names, takes_any = named_arguments(method)
        added = {name: value for name, value in LATER.get(hook, {}).items() if name in names}
        if (added or is_new_style(method)) and hook.startswith("on_episode"):
            later.remembers_episodes = True
        if added:
            setattr(callbacks, hook, _called(method, names, takes_any, added, later))


def is_new_style(method: Callable) -> bool:
    """Whether a method takes arguments of RLlib 2.6 that its signature does not name (functions.py says so)."""
    return getattr(method, "is_new_style", False)


def named_arguments(method: Callable) -> tuple[set[str], bool]:
    """Names of the arguments that a method takes by keyword, and whether it takes any others.

    Of one that takes any, the names are those of its texts as well, as in kwargs["metrics_logger"], and those of a
    function that it wraps.
    """
    parameters = inspect.signature(method).parameters.values()
    names = {each.name for each in parameters if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    return names | (_read_of_any(inspect.unwrap(method)) if takes_any else set()), takes_any


def code_of(method: Any) -> CodeType | None:
    """The code of a function, or of a method of any kind; None of what has no Python code."""
    return getattr(getattr(method, "__func__", method), "__code__", None)


def _read_of_any(function: Callable) -> set[str]:
    if (code := code_of(function)) is None:
        return set()
    texts = {each for each in code.co_consts if each in _LATER_NAMES}
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # a variable of the function around it that has no value yet
            wrapped = None if name == "__class__" else cell.cell_contents
            # The hook may call it with other values, under any names.
            texts |= named_arguments(wrapped)[0] & _LATER_NAMES if inspect.isfunction(wrapped) else set()
    return texts


def _called(method: Callable, names: set[str], takes_any: bool, added: Mapping, later: LaterArguments) -> Callable:
    def call(**given):
        more = {name: value(given, later) for name, value in added.items()}
        own = given if takes_any else {name: value for name, value in given.items() if name in names}
        return method(**own, **more)

    return call
