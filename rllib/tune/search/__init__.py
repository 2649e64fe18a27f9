"""Searchers, which suggest configurations, by name."""

from functools import partial

from rllib.lazy_names import lazy_names
from rllib.tune.search.base import Searcher, made_by_name
from rllib.tune.search.basic_variant import BasicVariant
from rllib.tune.search.optuna_search import BayesOptSearch, OptunaSearch
from rllib.tune.search.wrappers import ConcurrencyLimiter, Repeater

__all__ = [
    "BasicVariant", "BasicVariantGenerator", "BayesOptSearch", "ConcurrencyLimiter", "OptunaSearch", "Repeater",
    "Searcher", "create_searcher",
]  # fmt: skip

BasicVariantGenerator = BasicVariant
_SEARCHERS = {
    **dict.fromkeys(("random", "variant_generator", "grid"), BasicVariant),
    "optuna": OptunaSearch,
    "tpe": partial(OptunaSearch, sampler="tpe"),
    "gp": partial(OptunaSearch, sampler="gp"),
    "bayesopt": partial(OptunaSearch, sampler="gp"),
    "nsga2": partial(OptunaSearch, sampler="nsga2"),
    "cmaes": partial(OptunaSearch, sampler="cmaes"),
    "qmc": partial(OptunaSearch, sampler="qmc"),
}


# Searchers of Ray that are not here: what to use instead.
_INSTEAD = {
    **dict.fromkeys(
        (
            *("HyperOptSearch", "AxSearch", "HEBOSearch", "NevergradSearch", "ZOOptSearch", "SkOptSearch"),
            "DragonflySearch",
        ),
        "use OptunaSearch, whose sampler may be 'tpe', 'gp', 'nsga2', 'cmaes' or 'qmc'",
    ),
    **dict.fromkeys(("TuneBOHB", "BlendSearch", "CFO", "SigOptSearch"), "use OptunaSearch with the scheduler 'asha'"),
    **dict.fromkeys(("SearchAlgorithm", "SearchGenerator"), "derive from Searcher"),
}

__getattr__, __dir__ = lazy_names(globals(), why=_INSTEAD.get)


def create_searcher(search_alg, *, default_seed: int | None = None, **kwargs) -> Searcher:
    """Makes the searcher of a name; returns a given searcher.

    Args:
        search_alg: the name, or a searcher; None: grid and random search.
        default_seed: seed of a searcher made by name whose arguments have none; None: it chooses one.
        kwargs: arguments of a searcher made by name.

    Raises:
        ValueError: if the name is unknown, with the known ones.
        TypeError: if it is neither a name nor a searcher.
    """
    if search_alg is None or isinstance(search_alg, str):
        return made_by_name("searcher", search_alg or "random", _SEARCHERS, kwargs, default_seed)
    if not callable(getattr(search_alg, "suggest", None)):
        raise TypeError(f"search_alg must be a name or a Searcher, but got {search_alg!r}")
    return search_alg
