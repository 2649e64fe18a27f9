"""Schedulers, which stop, pause and change trials, by name."""

from collections.abc import Collection, Mapping
from typing import Any

from rllib.lazy_names import lazy_names
from rllib.tune.schedulers.async_hyperband import ASHAScheduler, AsyncHyperBandScheduler
from rllib.tune.schedulers.base import FIFOScheduler, TrialScheduler
from rllib.tune.schedulers.hyperband import HyperBandScheduler
from rllib.tune.schedulers.median_stopping import MedianStoppingRule
from rllib.tune.schedulers.pb2 import PB2
from rllib.tune.schedulers.pbt import PopulationBasedTraining, PopulationBasedTrainingReplay
from rllib.tune.search.base import made_by_name
from rllib.tune.search.domains import Domain, Float, Integer
from rllib.tune.search.space import changeable, is_grid

__all__ = [
    "PB2", "ASHAScheduler", "AsyncHyperBandScheduler", "FIFOScheduler", "HyperBandScheduler", "MedianStoppingRule",
    "PopulationBasedTraining", "PopulationBasedTrainingReplay", "TrialScheduler", "create_scheduler",
]  # fmt: skip

_SCHEDULERS = {
    "fifo": FIFOScheduler,
    "asha": AsyncHyperBandScheduler,
    "async_hyperband": AsyncHyperBandScheduler,
    "hyperband": HyperBandScheduler,
    "median_stopping": MedianStoppingRule,
    "medianstopping": MedianStoppingRule,
    "pbt": PopulationBasedTraining,
    "pb2": PB2,
    "pbt_replay": PopulationBasedTrainingReplay,
}
# Arguments by which a population knows what it may change, and the domains that it can change.
_CHANGES = {"pbt": ("hyperparam_mutations", Domain), "pb2": ("hyperparam_bounds", Float | Integer)}
# Settings with which alone a checkpoint continues.
OF_CHECKPOINTS = ("teacher", "teacher_mapping_fn")
# Settings that a population leaves as they are, unless they are given: weights need a network of the same shape, and a
# student's its teacher.
_KEPT = ("env", "model", "seed", *OF_CHECKPOINTS)
_NOT_BUILT = {
    **dict.fromkeys(("hb_bohb", "bohb"), "no maintained library offers it apart from Ray"),
    "resource_changing": "trials keep the resources that they start with",
}


# Schedulers of Ray that are not here: what to use instead.
_INSTEAD = {
    "HyperBandForBOHB": "no maintained library offers it apart from Ray; use AsyncHyperBandScheduler",
    "ResourceChangingScheduler": "trials keep the resources that they start with",
}

__getattr__, __dir__ = lazy_names(globals(), why=_INSTEAD.get)


def _without(space: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A search space without these settings, of its policies too; its sections are without those of checkpoints."""
    found = {key: value for key, value in space.items() if key not in names}
    for key, value in found.items():
        if isinstance(value, Mapping) and not is_grid(value):
            if key == "policies":
                found[key] = {i: _without(own, names) if isinstance(own, Mapping) else own for i, own in value.items()}
            else:
                found[key] = _without(value, OF_CHECKPOINTS)
    return found


def create_scheduler(
    scheduler, *, default_seed: int | None = None, space: Mapping[str, Any] | None = None, **kwargs
) -> TrialScheduler:
    """Makes the scheduler of a name; returns a given scheduler.

    Args:
        scheduler: the name, or a scheduler; None: trials run in their order, each to its end.
        default_seed: seed of a scheduler made by name that draws and whose arguments have none; None: it chooses one.
        space: the search space; "pbt" and "pb2" change its settings, but for env, model, seed and teacher, if their
            arguments do not say what to change.
        kwargs: arguments of a scheduler made by name.

    Raises:
        ValueError: if the name is unknown, with the known ones.
        TypeError: if it is neither a name nor a scheduler.
    """
    if isinstance(scheduler, str) and scheduler in _NOT_BUILT:
        raise ValueError(f"There is no scheduler {scheduler!r}: {_NOT_BUILT[scheduler]}. Use 'pbt' or 'asha'.")
    if isinstance(scheduler, str) and scheduler in _CHANGES and space and "custom_explore_fn" not in kwargs:
        argument, kind = _CHANGES[scheduler]
        kwargs = {argument: changeable(_without(space, _KEPT), kind), **kwargs}
    if scheduler is None or isinstance(scheduler, str):
        return made_by_name("scheduler", scheduler or "fifo", _SCHEDULERS, kwargs, default_seed)
    if not callable(getattr(scheduler, "on_trial_result", None)):
        raise TypeError(f"scheduler must be a name or a TrialScheduler, but got {scheduler!r}")
    return scheduler
