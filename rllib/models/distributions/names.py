"""Names of the user's networks and action distributions, for the `model` settings custom_model and custom_action_dist.

The process that builds an algorithm looks a name up; its workers get the class itself.
"""

from collections.abc import Callable

from rllib.did_you_mean import did_you_mean
from rllib.registered import ACTION_DISTRIBUTIONS, MODELS

_REGISTRIES = {"custom_model": MODELS, "custom_action_dist": ACTION_DISTRIBUTIONS}


def register_model(name: str, model: Callable) -> None:
    """Registers a network for model={"custom_model": name}; a later call with the same name replaces it.

    Args:
        name: any string.
        model: class of a torch.nn.Module, as docs/guide/networks.md describes it.

    Raises:
        TypeError: if name is no string, or the model cannot be called.
    """
    MODELS.register(name, model)


def register_action_dist(name: str, distribution: Callable) -> None:
    """Registers an action distribution for model={"custom_action_dist": name}; arguments and errors as above."""
    ACTION_DISTRIBUTIONS.register(name, distribution)


def resolved(setting: str, given) -> Callable:
    """The class that the user gave for a setting, itself or by its name.

    Raises:
        ValueError: for a name that nothing is registered under or whose class cannot be sent to this process, or
            anything else that cannot be called.
    """
    if isinstance(given, str):
        registry = _REGISTRIES[setting]
        if given in registry:
            return registry.get(given)
        known = list(registry)
        names = f"registered are {', '.join(known)}." if known else "nothing is registered."
        raise ValueError(
            f"model[{setting!r}]={given!r} is no registered name; {names}{did_you_mean(given, known)} Use "
            f"rllib.{registry.function}({given!r}, {registry.example}) before, or give the class itself."
        )
    if not callable(given):
        raise ValueError(f"model[{setting!r}] must be a class, or a registered name of one, but got {given!r:.80}")
    return given
