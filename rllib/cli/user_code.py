"""The user's own code, which runs for names that were typed and for files that the user trusts.

Only for these does a command import modules of the current directory. A file, a run or a checkpoint may come from
another user, so it may name installed modules only.
"""

import os
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder

import click

from rllib.algorithms.base.registry import register_typed_algorithm
from rllib.env.factories.registry import is_registered, module_of, register_typed_function

FLAG = "--load-user-code"


def load_user_code_option(where: str):
    """Option --load-user-code of a command, for the files that its argument or option `where` names."""
    return click.option(
        FLAG,
        is_flag=True,
        callback=_trusts,
        help=f"Run functions, pickled code and modules of the current directory that {where} names.",
    )


def typed(*keys) -> None:
    """Allows the algorithm and environment that typed specifications name to be the user's own code.

    A value that is no mapping, or names neither, is left to later checks.
    """
    for each in (each for each in keys if isinstance(each, Mapping)):
        env, algorithm = each.get("env"), each.get("algorithm")
        if isinstance(env, str) and module_of(env):
            trust_current_directory()
            register_typed_function(env)
        if isinstance(algorithm, str) and ":" in algorithm:
            trust_current_directory()
            register_typed_algorithm(algorithm)


def trust_current_directory() -> None:
    """Makes modules of the current directory importable, after installed ones of the same name."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)


def flag_for(env: str | None, algorithm: str = "") -> str:
    """Flag that a command needs when it reads these names from a file: " --load-user-code", or ""."""
    if ":" in algorithm:
        return f" {FLAG}"
    if env is None:
        return ""
    here, package = os.getcwd(), module_of(env).partition(".")[0]
    elsewhere = [entry for entry in sys.path if entry != here]
    is_user_code = package and (is_registered(env) or PathFinder.find_spec(package, elsewhere) is None)
    return f" {FLAG}" if is_user_code else ""


def _trusts(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    if value:
        trust_current_directory()
    return value
