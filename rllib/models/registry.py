"""Names for networks and action distributions of the user's, as the `model` settings take them.

The process that builds an algorithm looks a name up; its workers get the class itself.
"""

import pickle
from collections.abc import Callable
from dataclasses import dataclass

import cloudpickle

from rllib.did_you_mean import did_you_mean

_registered: dict[str, dict[str, Callable]] = {"custom_model": {}, "custom_action_dist": {}}
_REGISTERS = {"custom_model": "register_model", "custom_action_dist": "register_action_dist"}


def register_model(name: str, model: Callable) -> None:
    """Registers a network for model={"custom_model": name}; a later call with the same name replaces it.

    Args:
        name: any string.
        model: class of a torch.nn.Module, as docs/networks.md describes it.

    Raises:
        TypeError: if name is no string, or the model cannot be called.
    """
    _register("custom_model", name, model)


def register_action_dist(name: str, distribution: Callable) -> None:
    """Registers an action distribution for model={"custom_action_dist": name}; arguments and errors as above."""
    _register("custom_action_dist", name, distribution)


def resolved(setting: str, given) -> Callable:
    """The class that the user gave for a setting, itself or by its name.

    Raises:
        ValueError: for a name that nothing is registered under, or anything else that cannot be called.
    """
    if isinstance(given, str):
        known = _registered[setting]
        if given not in known:
            names = f"registered are {', '.join(known)}." if known else "nothing is registered."
            raise ValueError(
                f"model[{setting!r}]={given!r} is no registered name; {names}{did_you_mean(given, known)} Use "
                f"rllib.{_REGISTERS[setting]}({given!r}, MyClass) before, or give the class itself."
            )
        return known[given]
    if not callable(given):
        raise ValueError(f"model[{setting!r}] must be a class, or a registered name of one, but got {given!r:.80}")
    return given


def _register(setting: str, name: str, value: Callable) -> None:
    function = _REGISTERS[setting]
    if not isinstance(name, str):
        raise TypeError(f"{function} needs a string as name, but got {name!r}")
    if not callable(value):
        raise TypeError(f"{function}({name!r}, ...) needs a class, but got {value!r:.80}")
    _registered[setting][name] = value


@dataclass(frozen=True)
class RegisteredCode:
    """An entry that can be sent to another process; `pickled` is None where its value cannot be."""

    setting: str
    name: str
    pickled: bytes | None

    def register(self) -> None:
        """Registers it in this process."""
        if self.pickled is not None:
            _registered[self.setting][self.name] = pickle.loads(self.pickled)


def registered_code() -> list[RegisteredCode]:
    """All entries, to be registered in another process."""
    return [
        RegisteredCode(setting, name, _pickled(value))
        for setting, entries in _registered.items()
        for name, value in entries.items()
    ]


def _pickled(value: Callable) -> bytes | None:
    try:
        return cloudpickle.dumps(value)
    except Exception:  # whatever a user's object raises; the name is then unknown in the other process
        return None
