"""Names for networks and action distributions of the user's, as the `model` settings take them.

The process that builds an algorithm looks a name up; its workers get the class itself.
"""

from collections.abc import Callable

from rllib.did_you_mean import did_you_mean
from rllib.registered import Registered

_registered: dict[str, dict[str, Callable | Registered]] = {"custom_model": {}, "custom_action_dist": {}}
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
        ValueError: for a name that nothing is registered under or whose class cannot be sent to this process, or
            anything else that cannot be called.
    """
    if isinstance(given, str):
        known = _registered[setting]
        if given not in known:
            names = f"registered are {', '.join(known)}." if known else "nothing is registered."
            raise ValueError(
                f"model[{setting!r}]={given!r} is no registered name; {names}{did_you_mean(given, known)} Use "
                f"rllib.{_REGISTERS[setting]}({given!r}, MyClass) before, or give the class itself."
            )
        value = known[given]
        return value.value() if isinstance(value, Registered) else value
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


class RegisteredCode(Registered):
    """An entry that can be sent to another process.

    Args:
        setting: that takes its name.
        name: the registered name.
        value: the registered class.
    """

    def __init__(self, setting: str, name: str, value: Callable):
        remedy = f"Give a class that can be pickled, or call {_REGISTERS[setting]} where the algorithm is built."
        super().__init__(f"model[{setting!r}]={name!r}", value, remedy)
        self._setting, self._name = setting, name

    def register(self) -> None:
        _registered[self._setting][self._name] = self


def registered_code() -> list[RegisteredCode]:
    """All entries, to be registered in another process."""
    return [
        value if isinstance(value, RegisteredCode) else RegisteredCode(setting, name, value)
        for setting, entries in _registered.items()
        for name, value in entries.items()
    ]
