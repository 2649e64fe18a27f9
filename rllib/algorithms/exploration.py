"""What exploration_config may say, by type; algorithms name the types that they can explore by."""

from collections.abc import Mapping, Sequence
from numbers import Real

from rllib.algorithms.setting_types import shortened

# type -> its keys with their defaults, those of Ray 2.6
KINDS: Mapping[str, Mapping] = {
    "StochasticSampling": {},
    "EpsilonGreedy": {
        "initial_epsilon": 1.0,
        "final_epsilon": 0.05,
        "epsilon_timesteps": 10_000,
        "warmup_timesteps": 0,
    },
}


def exploration_settings(config: Mapping, default: Mapping) -> dict:
    """All settings of an exploration_config: what it says, the algorithm's defaults, then those of the type."""
    kind = config.get("type", default["type"])
    of_algorithm = default if kind == default["type"] else {}
    return {**KINDS.get(kind, {}), **of_algorithm, **config, "type": kind}


def exploration_problem(config: Mapping, default: Mapping, kinds: Sequence[str]) -> str | None:
    """Which rule the exploration_config breaks, with what to do; None if it keeps them all."""
    settings = exploration_settings(config, default)
    kind = settings.pop("type")
    advice = f"Use .exploration(exploration_config={dict(default)!r})."
    if kind not in kinds:
        return (
            f"exploration_config={shortened(config)} is not available: this algorithm explores by "
            f"{' or '.join(kinds)}. {advice}"
        )
    unknown = settings.keys() - KINDS[kind].keys()
    if unknown:
        known = ", ".join(KINDS[kind]) or "nothing else"
        return f"exploration_config: {kind} takes {known}, not {', '.join(sorted(map(str, unknown)))}. {advice}"
    for name, value in settings.items():
        if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value < float("inf"):
            never = ": a schedule that never ends" if name == "epsilon_timesteps" else ""
            return f"exploration_config: {name}={value!r} must be a finite number >= 0{never}. {advice}"
    return _epsilon_problem(settings, advice) if kind == "EpsilonGreedy" else None


def _epsilon_problem(settings: Mapping, advice: str) -> str | None:
    initial, final = settings["initial_epsilon"], settings["final_epsilon"]
    if not final <= initial <= 1:
        return (
            f"exploration_config: final_epsilon={final} must be at most initial_epsilon={initial}, and both at most 1. "
            f"{advice}"
        )


def epsilon_points(settings: Mapping) -> list:
    """The schedule [[timestep, epsilon], ...] of EpsilonGreedy settings."""
    initial, final = settings["initial_epsilon"], settings["final_epsilon"]
    start, length = settings["warmup_timesteps"], settings["epsilon_timesteps"]
    points = [[0, initial]] if start or length else []
    if start and length:
        points.append([start, initial])
    return [*points, [start + length, final]]
