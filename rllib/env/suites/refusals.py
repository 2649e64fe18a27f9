"""Errors about names and settings of a suite's environments, with what there is instead."""

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

import numpy as np

from rllib.did_you_mean import did_you_mean

_LISTED = 30


def unknown_id(suite: str, env_id: str, ids: Iterable[str]) -> ValueError:
    """Builds the error for an id that a suite does not have.

    Args:
        suite: the word that its names begin with.
        env_id: what was given.
        ids: ids of the suite's environments.
    """
    ids = sorted(ids)
    listed = f"It has {', '.join(ids[:_LISTED])}{', ...' if len(ids) > _LISTED else ''}."
    hint = did_you_mean(env_id, ids, lambda near: f'"{suite}:{near}"', otherwise=listed)
    return ValueError(f"there is no environment '{suite}:{env_id}'.{hint}")


def refuse_unknown_keys(name: str, env_config: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises a ValueError for a key of env_config that an environment does not take.

    Args:
        name: name of the environment, "gymnax:CartPole-v1".
        env_config: the user's dict.
        known: keys that it takes.
    """
    known = sorted(known)
    if unknown := [key for key in env_config if key not in known]:
        hint = did_you_mean(unknown[0], known, repr)
        taken = f"It takes {', '.join(known)}." if known else "It takes none."
        raise ValueError(f"env_config has {unknown[0]!r}, but {name!r} takes no such argument.{hint} {taken}")


def refuse_wrong_values(name: str, env_config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raises a ValueError for a value of env_config where the default is a number or a text and the value is none.

    A negative one is refused where the default is an integer that is not: EnvPool ends the process for some.

    Args:
        name: name of the environment, "gymnax:CartPole-v1".
        env_config: the user's dict.
        defaults: key -> the suite's default; other keys are not looked at.
    """
    for key in env_config.keys() & defaults.keys():
        value, default = env_config[key], defaults[key]
        if isinstance(default, Real):  # also bools
            is_right = isinstance(value, Real | np.bool_) or getattr(value, "shape", None) == ()
            is_negative = is_right and isinstance(default, int) and default >= 0 > value
        else:
            is_right, is_negative = not isinstance(default, str) or isinstance(value, str), False
        if not is_right or is_negative:
            needed = "no negative number" if is_negative else "a number" if isinstance(default, Real) else "a text"
            raise ValueError(
                f"env_config has {key}={value!r}, but {name!r} takes {needed} for it; its default is {default!r}."
            )
