"""Schedulers, which stop, pause and change trials, by name."""

import importlib

from rllib.algorithms.sections import nearest
from rllib.tune.schedulers.base import FIFOScheduler, TrialScheduler

# Name -> module, class.
_SCHEDULERS = {
    "fifo": ("base", "FIFOScheduler"),
    "asha": ("async_hyperband", "AsyncHyperBandScheduler"),
    "async_hyperband": ("async_hyperband", "AsyncHyperBandScheduler"),
    "hyperband": ("hyperband", "HyperBandScheduler"),
    "median_stopping": ("median_stopping", "MedianStoppingRule"),
    "medianstopping": ("median_stopping", "MedianStoppingRule"),
    "pbt": ("pbt", "PopulationBasedTraining"),
    "pbt_replay": ("pbt_replay", "PopulationBasedTrainingReplay"),
}
_LAZY = {
    "ASHAScheduler": ("async_hyperband", "AsyncHyperBandScheduler"),
    **{name: (module, name) for module, name in _SCHEDULERS.values()},
}
_NOT_BUILT = {
    "pb2": "no maintained library offers it apart from Ray",
    "hb_bohb": "no maintained library offers it apart from Ray",
    "bohb": "no maintained library offers it apart from Ray",
    "resource_changing": "trials keep the resources that they start with",
}

__all__ = ["FIFOScheduler", "TrialScheduler", "create_scheduler"]


def create_scheduler(scheduler, **kwargs) -> TrialScheduler:
    """A scheduler of its name, or the one given.

    Raises:
        ValueError: if there is no such name, with those there are.
    """
    if scheduler is None:
        scheduler = "fifo"
    if not isinstance(scheduler, str):
        if not callable(getattr(scheduler, "on_trial_result", None)):
            raise TypeError(f"scheduler must be a name or a TrialScheduler, but got {scheduler!r}")
        return scheduler
    if scheduler in _NOT_BUILT:
        raise ValueError(f"There is no scheduler {scheduler!r}: {_NOT_BUILT[scheduler]}. Use 'pbt' or 'asha'.")
    if scheduler not in _SCHEDULERS:
        near = nearest(scheduler, _SCHEDULERS)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ValueError(f"There is no scheduler {scheduler!r}.{hint} There are: {', '.join(_SCHEDULERS)}.")
    module, name = _SCHEDULERS[scheduler]
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)(**kwargs)


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LAZY[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
