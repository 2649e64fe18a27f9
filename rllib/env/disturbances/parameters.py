"""Parameters of a simulator, such as gravity and masses, by the names under which a run sets them.

A name is given to the environment's method set_parameter(name, value), where it has one. Else it is a dotted path from
the environment inside of its wrappers: attributes, indices of arrays, and with MuJoCo's model the names of its parts:
"gravity", "model.opt.gravity.2", "model.body_mass", "model.body.torso.mass".
"""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib.config.conflicts import Unfit
from rllib.did_you_mean import did_you_mean
from rllib.env.disturbances.settings import Disturbances, Parameter, as_sentence
from rllib.env.streams.first_results import env_name

# Methods of MuJoCo's model that give the part of a name.
_PARTS_OF_MUJOCO = ("body", "geom", "joint", "actuator", "tendon", "site")


class ParameterSetter:
    """Sets parameters of one environment.

    Args:
        env: the environment, in its wrappers.
        disturbances: with the parameters.

    Raises:
        Unfit: (a ValueError) if it has no such parameter, or one that is no number.
    """

    def __init__(self, env: Any, disturbances: Disturbances):
        self._env = getattr(env, "unwrapped", env)
        self._parameters = disturbances.parameters
        self._by_method = callable(getattr(self._env, "set_parameter", None))
        self._own: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            try:
                self._own[name] = self._present(name, parameter)
            except _UnknownError as error:
                raise Unfit(
                    f"disturbances: {env_name(env)} has no parameter {name!r}: {as_sentence(str(error))}",
                    "Name an attribute, a path into MuJoCo's model, or give the environment a method "
                    "set_parameter(name, value).",
                    disturbances.without("parameters", "adapt"),
                ) from None

    def set(self, values: Mapping[str, float]) -> None:
        """Sets parameters for the episode that the next reset begins.

        Args:
            values: name -> number, or factor of the environment's own value.
        """
        for name, number in values.items():
            self._set(name, number * self._own[name] if self._parameters[name].scales else number)
        if values and (mujoco := sys.modules.get("mujoco")) and self._has_model(mujoco):
            # Inverse inertias and the like follow from masses; the state is set by the reset.
            mujoco.mj_setConst(self._env.model, self._env.data)

    def _has_model(self, mujoco) -> bool:
        return isinstance(getattr(self._env, "model", None), mujoco.MjModel) and hasattr(self._env, "data")

    def _present(self, name: str, parameter: Parameter) -> Any:
        """The environment's own value; None where nothing asks for it."""
        if self._by_method:
            if not parameter.scales:
                return None
            if not callable(getattr(self._env, "get_parameter", None)):
                raise _UnknownError("a factor needs a method get_parameter(name) as well as set_parameter")
            value = self._env.get_parameter(name)
        else:
            owner, last = self._place(name)
            value = _part(owner, last)
        numbers = np.asarray(value)
        if numbers.dtype.kind not in "fiu":
            raise _UnknownError(f"it is {value!r:.60}, which is no number")
        if numbers.size != 1 and not parameter.scales:
            raise _UnknownError(f'it is an array of {numbers.size} numbers, which {{"scale": [low, high]}} multiplies')
        if not self._by_method:
            _check_can_be_set(owner, last, value)
        return numbers.astype(np.float64) if numbers.ndim else float(numbers)

    def _set(self, name: str, value: Any) -> None:
        if self._by_method:
            self._env.set_parameter(name, value)
            return
        owner, last = self._place(name)
        present = _part(owner, last)
        if isinstance(present, np.ndarray) and present.ndim:
            present[...] = value
        elif isinstance(owner, np.ndarray):
            owner[int(last)] = value
        else:
            setattr(owner, last, value)

    def _place(self, name: str) -> tuple[Any, str]:
        """What holds a parameter, and its name there."""
        *path, last = name.split(".")
        owner, mujoco = self._env, sys.modules.get("mujoco")
        parts = iter(path)
        for part in parts:
            if mujoco and isinstance(owner, mujoco.MjModel) and part in _PARTS_OF_MUJOCO:
                named = next(parts, None)
                try:
                    owner = getattr(owner, part)(named)
                except (KeyError, TypeError) as error:
                    raise _UnknownError(f"{error}".strip("\"'")) from None
            else:
                owner = _part(owner, part)
        return owner, last


class _UnknownError(Exception):
    """An environment has no parameter of a name; says why."""


def _check_can_be_set(owner: Any, last: str, value: Any) -> None:
    """Raises _UnknownError for a parameter that takes no float: one without a setter, or in an array of integers."""
    array = value if isinstance(value, np.ndarray) and value.ndim else owner if isinstance(owner, np.ndarray) else None
    if array is not None:
        if array.dtype.kind != "f":
            raise _UnknownError(f"arrays of {array.dtype} would cut drawn numbers to integers")
        if not array.flags.writeable:
            raise _UnknownError("its array cannot be written to")
        return
    try:
        setattr(owner, last, float(value))
        setattr(owner, last, value)
    except (AttributeError, TypeError, ValueError) as error:
        raise _UnknownError(f"it cannot be set to a drawn number ({error})".replace("\n", " ")) from None


def _part(owner: Any, name: str) -> Any:
    """An attribute, or an element of an array."""
    if isinstance(owner, np.ndarray):
        if not name.isdecimal() or int(name) >= len(owner):
            raise _UnknownError(f"{name!r} is no index of an array of {len(owner)} numbers")
        return owner[int(name)]
    if not hasattr(owner, name):
        known = [each for each in dir(owner) if not each.startswith("_")]
        raise _UnknownError(f"{type(owner).__name__} has no attribute {name!r}.{did_you_mean(name, known, repr)}")
    return getattr(owner, name)
