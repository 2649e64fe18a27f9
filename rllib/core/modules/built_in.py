"""The built-in networks by the names of RLlib's classes for them, where a description of a module names one."""

from typing import Any

_ADVICE = (
    "A network of your own derives from TorchRLModule (with ValueFunctionAPI for values), and makes its layers in "
    "setup(). Masks of actions are built in (docs/guide/action_spaces.md)."
)


class BuiltInRLModule:
    """Represents DefaultPPOTorchRLModule and its like: the built-in network of an algorithm, made by `model_config`.

    It is for RLModuleSpec(module_class=...) alone. It has no layers, so objects of it, and of classes that derive from
    it, cannot be made.

    Raises:
        TypeError: by the constructor.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        raise TypeError(without_layers(type(self)))


class BuiltInCatalog:
    """Represents PPOCatalog and its like, the default of RLModuleSpec(catalog_class=...); it has no methods."""


def without_layers(kind: type[BuiltInRLModule]) -> str:
    """Why no module of the class can be made, and what to do."""
    if kind is BuiltInRLModule:
        return f"the default module of an algorithm is made by a run alone: algo.get_module(). {_ADVICE}"
    return f"{kind.__name__} derives from the default module of an algorithm, which has no layers here. {_ADVICE}"
