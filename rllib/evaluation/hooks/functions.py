"""Hooks that are functions: `.callbacks(on_episode_end=f)`, and the dicts of Ray 0.8, whose functions take `info`."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rllib.evaluation.hooks.arguments import named_arguments

# Hooks of Ray 0.8 that are called something else today.
_EARLIER_HOOKS = {"on_postprocess_traj": "on_postprocess_trajectory"}
# Names in the `info` of Ray 0.8 -> today's arguments.
_OF_INFO = {
    "env": "base_env",
    "policy": "policies",
    "trainer": "algorithm",
    "post_batch": "postprocessed_batch",
    "all_pre_batches": "original_batches",
}
# Arguments of today that may be a function's only one.
_ARGUMENTS = ("episode", "algorithm", "result", "samples", "worker", "env_runner", "policy", "env")
_POSITIONAL, _KEYWORD = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.KEYWORD_ONLY
_REST = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)

Given = Mapping[str, Callable | Sequence[Callable]]


def methods_of(functions: Given) -> dict[str, Callable]:
    """Hook -> a method that calls the functions which were given for it, in their order."""
    by_hook: dict[str, list[Callable]] = {}
    for hook, function in _each(functions):
        by_hook.setdefault(hook, []).append(function)
    return {hook: _method(several) for hook, several in by_hook.items()}


def functions_problem(functions: Any, hooks: Sequence[str]) -> str | None:
    """Sentence on the mistake in functions that are given for hooks; None if they are right.

    Args:
        functions: hook -> a function, or a list of them.
        hooks: names of all hooks.
    """
    if not isinstance(functions, Mapping):
        return f"callback_functions={functions!r:.80} must be a dict, {{'on_episode_end': function}}."
    for hook, function in _each(functions):
        if hook not in hooks:
            return f"callback_functions: there is no hook {hook!r}. The hooks are {', '.join(hooks)}."
        if not callable(function):
            return (
                f"{hook}={function!r:.80} must be a function, or a list of them. Use .callbacks({hook}=function) with "
                f"def function(*, {'episode' if 'episode' in hook else 'algorithm'}, **kwargs)."
            )
    return None


def takes_info(function: Callable) -> bool:
    """Whether a function is one of Ray 0.8's, with a single argument, a dict."""
    parameters = list(inspect.signature(function).parameters.values())
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len(parameters) == 1 and parameters[0].kind in kinds and parameters[0].name not in _ARGUMENTS


def _each(functions: Given) -> Iterator[tuple[str, Any]]:
    for hook, given in functions.items():
        for function in given if isinstance(given, list | tuple) else [given]:
            yield _EARLIER_HOOKS.get(hook, hook), function


def _method(functions: Sequence[Callable]) -> Callable:
    """A method that calls each of some functions with the arguments that it names.

    Its signature has the names of all, since hooks are called with what they name (arguments.py).
    """
    calls = [_with_info(function) if takes_info(function) else _with_its_arguments(function) for function in functions]

    def call(self, **given):
        for each in calls:
            each(given)

    named = {}
    for function in functions:
        if not takes_info(function):
            call.is_new_style = True
            named |= {name: inspect.Parameter(name, _KEYWORD) for name in named_arguments(function)[0]}
            named |= inspect.signature(function).parameters
    keywords = [each.replace(kind=_KEYWORD) for each in named.values() if each.kind not in _REST]
    own, rest = inspect.Parameter("self", _POSITIONAL), inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)
    call.__signature__ = inspect.Signature([own, *keywords, rest])
    return call


def _with_its_arguments(function: Callable) -> Callable[[Mapping], Any]:
    parameters = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return lambda given: function(**given)
    return lambda given: function(**{name: value for name, value in given.items() if name in parameters})


def _with_info(function: Callable) -> Callable[[Mapping], Any]:
    """Calls a function of Ray 0.8."""

    def call(given: Mapping) -> Any:
        info = {**given, **{old: given[new] for old, new in _OF_INFO.items() if new in given}}
        if "original_batches" in given:
            _, policy, batch = given["original_batches"][given["agent_id"]]
            info["pre_batch"] = policy, batch
        return function(info)

    return call
