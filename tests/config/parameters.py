"""Parameters of public functions and methods that their code does not read."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import ModuleType


def unread_parameters(module: ModuleType) -> Iterator[tuple[str, str]]:
    """(function, parameter) for each optional parameter of what a module exports that the function does not read.

    Parameters without a default are the form in which the library calls the user's code. Functions without code of
    their own, such as abstract ones and hooks that do nothing, are left out.
    """
    for name in getattr(module, "__all__", dir(module)):
        found = getattr(module, name, None)
        if inspect.isfunction(found):
            yield from _of_function(found, name)
        elif inspect.isclass(found) and found.__module__.startswith(("rllib.", "runtime.")):
            for owner in found.__mro__:
                if owner.__module__.startswith(("rllib.", "runtime.")):
                    for method, member in vars(owner).items():
                        function = getattr(member, "__func__", member)
                        is_public = not method.startswith("_") or method == "__init__"
                        if inspect.isfunction(function) and is_public and not _is_form(owner, method):
                            yield from _of_function(function, f"{owner.__name__}.{method}")


def _is_form(owner: type, method: str) -> bool:
    """Whether the form of a method is that of one which it overrides, or which classes of the library override."""
    overridden = any(method in vars(base) for base in owner.__mro__[1:] if base.__module__.startswith("rllib."))
    return overridden or any(
        method in vars(each) for each in _subclasses(owner) if each.__module__.startswith("rllib.")
    )


def _subclasses(owner: type) -> Iterator[type]:
    for each in owner.__subclasses__():
        yield each
        yield from _subclasses(each)


def unread_parameters_of(function) -> list[tuple[str, str]]:
    """(name, parameter) for each parameter of a function, also without default, that it does not read."""
    return list(_of_function(function, function.__name__, only_optional=False))


def _of_function(function, name: str, only_optional: bool = True) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):  # made by code
        return
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef) or not _has_code(definition):
        return
    read = {node.id for node in ast.walk(definition) if isinstance(node, ast.Name)}
    arguments = definition.args
    by_position = (*arguments.posonlyargs, *arguments.args)
    optional = [*by_position[len(by_position) - len(arguments.defaults) :]]
    optional += [each for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults) if default is not None]
    keywords = () if only_optional else (*by_position, *arguments.kwonlyargs)
    for argument in optional if only_optional else keywords:
        if not argument.arg.startswith("_") and argument.arg not in read:
            yield name, argument.arg


def _has_code(definition) -> bool:
    body = [
        each for each in definition.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
    ]
    return any(not isinstance(each, ast.Pass | ast.Raise) for each in body)
