"""How population based training changes hyperparameters (arXiv:1711.09846, section 3, "explore")."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rllib.tune.domains import Choice, Domain, Float, Integer, Normal


def check_mutations(mutations: Mapping, path: str = "") -> None:
    """Refuses hyperparam_mutations that say nothing.

    Raises:
        ValueError: with the path of what is wrong.
    """
    for key, how in mutations.items():
        name = f"{path}{key}"
        if isinstance(how, Mapping):
            check_mutations(how, f"{name}/")
        elif not isinstance(how, (list, tuple, Domain)) and not callable(how):
            raise ValueError(
                f"hyperparam_mutations: {name} needs a list of values, a search space domain, a function without "
                f"arguments or a dict of these, but got {how!r}"
            )
        elif isinstance(how, (list, tuple)) and not how:
            raise ValueError(f"hyperparam_mutations: {name} has no values")


def filled(config: Mapping, mutations: Mapping, rng: random.Random) -> dict[str, Any]:
    """The configuration with first values for the hyperparameters that it leaves out."""
    config = dict(config)
    for key, how in mutations.items():
        if isinstance(how, Mapping):
            config[key] = filled(config.get(key) or {}, how, rng)
        elif key not in config:
            config[key] = _resampled(how, rng)
    return config


def explore(
    config: Mapping, mutations: Mapping, resample: float, factors: Sequence[float], rng: random.Random
) -> tuple[dict[str, Any], dict[str, str]]:
    """A changed copy of the configuration.

    Each hyperparameter is drawn anew with probability `resample`. Otherwise numbers are multiplied by one of the
    factors (within the bounds of their domain; whole numbers stay whole), and of lists the value next to it is taken.

    Returns:
        the configuration, and for each changed path how it was changed.
    """
    new, how_changed = dict(config), {}
    for key, how in mutations.items():
        if isinstance(how, Mapping):
            new[key], inner = explore(config[key], how, resample, factors, rng)
            how_changed.update({f"{key}/{path}": words for path, words in inner.items()})
            continue
        values = how.values if isinstance(how, Choice) else how
        if isinstance(values, (list, tuple)):
            new[key], how_changed[key] = _next_to(config[key], list(values), resample, rng)
        elif rng.random() < resample or not _is_number(config[key]):
            new[key], how_changed[key] = _resampled(how, rng), "drawn anew"
        else:
            factor = rng.choice(list(factors))
            new[key], how_changed[key] = _times(config[key], factor, how), f"* {factor:g}"
    return new, how_changed


def _next_to(value, values: list, resample: float, rng) -> tuple[Any, str]:
    if rng.random() < resample or value not in values:
        return rng.choice(values), "drawn anew"
    step = rng.choice([-1, 1])
    index = min(max(values.index(value) + step, 0), len(values) - 1)
    return values[index], "shifted left" if step < 0 else "shifted right"


def _resampled(how: Domain | Sequence | Callable, rng) -> Any:
    if isinstance(how, Domain):
        return how.draw(rng)
    return how() if callable(how) else rng.choice(list(how))


def _times(value, factor: float, how):
    new = value * factor
    is_whole = isinstance(value, int) and not isinstance(how, (Float, Normal))
    if is_whole:
        new = round(new)
        if new == value:  # 2 * 1.2 is 2 again: small numbers would never change
            new += (factor > 1) - (factor < 1)
    q = getattr(how, "q", None)
    if q is not None:
        new = round(round(new / q) * q, 12)
    if isinstance(how, (Float, Integer)):
        new = min(max(new, how.low), how.high)
    return new


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
