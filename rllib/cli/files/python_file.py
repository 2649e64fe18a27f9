"""Python files of settings: a `config` (an AlgorithmConfig), and a `stop`, as in Ray's tuned examples.

The file is imported, so it runs: it has to be one that the user has named on the command line.
"""

import ast
import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.registry import get_algorithm_class, register_typed_algorithm
from rllib.env.factories.registry import register_env


def python_keys(path: Path) -> dict[str, Any]:
    """The keys of a run, from a Python file: algorithm, env, config and stop.

    Classes and functions of the file are named by its module, which workers find next to it.

    Raises:
        ValueError: for a file without a `config` of an algorithm, or with a `stop` that is no dict.
        Exception: what the file raises.
    """
    module = _imported(path)
    config, stop = getattr(module, "config", None), getattr(module, "stop", {})
    if not isinstance(config, AlgorithmConfig) or config.algo_class is None:
        raise ValueError(
            f"{path} must have a variable `config` that is the config of an algorithm, such as PPOConfig(), but it is "
            f"{config!r:.60}."
        )
    if not isinstance(stop, Mapping):
        raise ValueError(f"{path}: stop={stop!r:.60} must be a dict, as in stop = {{'timesteps_total': 100_000}}.")
    settings = config.changes()
    env = settings.pop("env", None)
    keys = {"algorithm": _algorithm_name(config.algo_class), "config": settings, "stop": dict(stop)}
    return {**keys, "env": _environment_name(env)} if env is not None else keys


def _imported(path: Path) -> ModuleType:
    """The module of a file; its directory can then be imported from, in workers as well.

    Raises:
        ValueError: if no module can have its name, or another one has it.
    """
    if "." in path.stem:
        raise ValueError(f"{path} cannot be imported, since its name has a dot. Give the file another name.")
    if (directory := str(path.resolve().parent)) not in sys.path:
        sys.path.append(directory)
    if _imports_ray(path):
        importlib.import_module("rllib.as_ray")  # serves Ray's imports from now on
    with _no_arguments(path):
        module = importlib.import_module(path.stem)
    if Path(module.__file__ or "").resolve() != path.resolve():
        raise ValueError(f"{path} has the name of the module {module.__file__}. Give the file another name.")
    return module


def _imports_ray(path: Path) -> bool:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return False  # importing it raises the error, with its place
    named = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    named += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return any(name.partition(".")[0] == "ray" for name in named)


@contextmanager
def _no_arguments(path: Path) -> Iterator[None]:
    """Hides the arguments of this command from a file that parses its own."""
    before = sys.argv
    sys.argv = [str(path)]
    try:
        yield
    finally:
        sys.argv = before


def _algorithm_name(given: type | str) -> str:
    if isinstance(given, str):
        return given
    try:
        if get_algorithm_class(given.__name__) is given:
            return given.__name__
    except ValueError:  # the user's own
        pass
    name = f"{given.__module__}:{given.__qualname__}"
    register_typed_algorithm(name)
    return name


def _environment_name(env) -> str:
    """The name of an environment; a class or a function is registered under its own."""
    if isinstance(env, str):
        return env
    name = f"{getattr(env, '__module__', 'environment')}:{getattr(env, '__qualname__', type(env).__name__)}"
    register_env(name, env)
    return name
