"""`runtime_env`: the environment variables and the working directory of tasks and actors.

Engines pass on an *environment*, a string: the checked dict as JSON with sorted keys, so that equal ones are the same
string. The empty string is the session's own. A driver that has joined the session has a "namespace" in its own.
"""

from __future__ import annotations

import json
import os

KEYS = ("env_vars", "working_dir")


def check_runtime_env(name: str, value) -> dict:
    """A dict with the keys of KEYS that were given, the directory absolute.

    Raises:
        TypeError, ValueError: not a dict, another key, no strings, no name of a variable, no directory of this machine.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"{name} must be a dict, got {value!r}")
    for key in value:
        if key not in KEYS:
            raise ValueError(
                f"{name}={{{key!r}: ...}} is not available; there are {' and '.join(map(repr, KEYS))}. Workers run the "
                "driver's Python: install packages there before init()."
            )
    checked = {}
    if value.get("env_vars"):
        checked["env_vars"] = check_env_vars(f"{name}['env_vars']", value["env_vars"])
    if value.get("working_dir") is not None:
        checked["working_dir"] = _directory(f"{name}['working_dir']", value["working_dir"])
    return checked


def check_env_vars(name: str, value) -> dict[str, str]:
    """A dict of str -> str that an environment can have.

    Raises:
        TypeError: it is not one of str -> str.
        ValueError: no environment can have such a name or value.
    """
    if not isinstance(value, dict) or not all(isinstance(x, str) for pair in value.items() for x in pair):
        raise TypeError(f"{name} must be a dict of str -> str, got {value!r}")
    for variable, content in value.items():
        if not variable or "=" in variable or "\0" in variable + content or not _has_bytes(variable + content):
            raise ValueError(
                f"{name}={{{variable!r}: {content!r:.100}}}: a name must not be empty or have '=' in it, and neither "
                "name nor value may have NUL characters or ones that UTF-8 cannot encode"
            )
    return dict(value)


def _has_bytes(text):
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _directory(name, value):
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} must be the path of a directory, got {value!r}")
    path = os.path.abspath(os.fspath(value))
    if not os.path.isdir(path):
        raise ValueError(
            f"{name}={value!r} must be a directory of this machine; it is used in place and not copied, so archives "
            "and addresses are not available"
        )
    return path


def merged(outer: str, runtime_env: dict) -> str:
    """The environment of calls made within `outer`: variables are added, a directory replaces the outer one.

    Args:
        outer: environment of the caller.
        runtime_env: as `check_runtime_env` gives it.
    """
    if not runtime_env:
        return outer
    before = environment_dict(outer)
    variables = {**before.get("env_vars", {}), **runtime_env.get("env_vars", {})}
    together = {**before, **runtime_env, **({"env_vars": variables} if variables else {})}
    return json.dumps(together, sort_keys=True)


def only_names(environment: str) -> bool:
    """Whether an environment says nothing but what namespace names are in."""
    return environment_dict(environment).keys() == {"namespace"}


def environment_dict(environment: str) -> dict:
    """The dict of an environment; empty for the session's own."""
    return json.loads(environment) if environment else {}
