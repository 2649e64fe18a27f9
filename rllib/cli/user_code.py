"""Code of the user's, and when it runs: names that were typed, and files that they said to trust.

A command imports modules of the current directory for these alone. What stands in a file, a run or a checkpoint comes
from somebody else perhaps, and may name what is installed.
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
    """The option --load-user-code of a command, for what its argument or option `where` names."""
    return click.option(
        FLAG,
        is_flag=True,
        callback=_trusts,
        help=f"Run functions, pickled code and modules of the current directory that {where} names.",
    )


def typed(*keys) -> None:
    """Lets algorithm and environment that keys of a specification name be code of the user's, who has typed them.

    Keys that are no mapping, or name neither, are left to the checks that come later.
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
    """Lets modules of the current directory be imported, where nothing that is installed has their name."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)


def flag_for(env: str, algorithm: str = "") -> str:
    """What has to follow a command that reads these names from a file: " --load-user-code", or "" if nothing has to."""
    if ":" in algorithm:
        return f" {FLAG}"
    here, package = os.getcwd(), module_of(env).partition(".")[0]
    elsewhere = [entry for entry in sys.path if entry != here]
    is_own = package and (is_registered(env) or PathFinder.find_spec(package, elsewhere) is None)
    return f" {FLAG}" if is_own else ""


def _trusts(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    if value:
        trust_current_directory()
    return value
