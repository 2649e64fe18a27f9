"""Searchers, which suggest configurations, by name."""

import importlib

from rllib.algorithms.sections import nearest
from rllib.tune.searchers.base import Searcher

# Name -> module, class, arguments that the name implies.
_SEARCHERS = {
    "random": ("basic_variant", "BasicVariant", {}),
    "variant_generator": ("basic_variant", "BasicVariant", {}),
    "grid": ("basic_variant", "BasicVariant", {}),
    "optuna": ("optuna_search", "OptunaSearch", {}),
    "tpe": ("optuna_search", "OptunaSearch", {"sampler": "tpe"}),
    "gp": ("optuna_search", "OptunaSearch", {"sampler": "gp"}),
    "bayesopt": ("optuna_search", "OptunaSearch", {"sampler": "gp"}),
    "cmaes": ("optuna_search", "OptunaSearch", {"sampler": "cmaes"}),
    "qmc": ("optuna_search", "OptunaSearch", {"sampler": "qmc"}),
}
_LAZY = {
    "BasicVariant": "basic_variant",
    "BasicVariantGenerator": "basic_variant",
    "OptunaSearch": "optuna_search",
    "BayesOptSearch": "optuna_search",
    "ConcurrencyLimiter": "limiter",
    "Repeater": "repeater",
}

__all__ = ["Searcher", "create_searcher"]


def create_searcher(search_alg, **kwargs) -> Searcher:
    """A searcher of its name, or the one given.

    Raises:
        ValueError: if there is no such name, with those there are.
    """
    if search_alg is None:
        search_alg = "random"
    if not isinstance(search_alg, str):
        if not callable(getattr(search_alg, "suggest", None)):
            raise TypeError(f"search_alg must be a name or a Searcher, but got {search_alg!r}")
        return search_alg
    if search_alg not in _SEARCHERS:
        near = nearest(search_alg, _SEARCHERS)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ValueError(f"There is no searcher {search_alg!r}.{hint} There are: {', '.join(_SEARCHERS)}.")
    module, name, implied = _SEARCHERS[search_alg]
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)(**{**implied, **kwargs})


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_LAZY[name]}")
    return getattr(module, "BasicVariant" if name == "BasicVariantGenerator" else name)
