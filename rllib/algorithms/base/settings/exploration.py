"""Types and settings of exploration_config; algorithms name the types that they can explore by.

Each type is a class in the folder exploration: its fields are the settings, with the defaults of Ray 2.6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real

import msgspec
from gymnasium import spaces

from rllib.config.conflicts import Mistake, Unfit
from rllib.exploration import action_noise, epsilon
from rllib.exploration.explorers import Exploration, StochasticSampling
from rllib.exploration.intrinsic.settings import RND, Curiosity
from rllib.exploration.network_noise import ParameterNoise
from rllib.models.observations.flat_spaces import parts
from rllib.notices import shortened

_TYPES = (
    *(StochasticSampling, epsilon.EpsilonGreedy, epsilon.PerWorkerEpsilonGreedy, epsilon.SoftQ, ParameterNoise),
    *(action_noise.GaussianNoise, action_noise.OrnsteinUhlenbeckNoise, action_noise.Random),
    *(action_noise.PerWorkerGaussianNoise, action_noise.PerWorkerOrnsteinUhlenbeckNoise),
    *(RND, Curiosity),
)
KINDS: Mapping[str, type[Exploration]] = {each.__name__: each for each in _TYPES}
# By the values of discrete actions.
OF_VALUES = ("EpsilonGreedy", "PerWorkerEpsilonGreedy", "SoftQ", "ParameterNoise", "Random")
# By the values of each part of an action: numbers that the distribution draws by, so actions may have any form.
OF_JOINT_VALUES = ("EpsilonGreedy", "PerWorkerEpsilonGreedy", "SoftQ")
# Around a deterministic policy's continuous actions.
OF_ACTIONS = (
    *("GaussianNoise", "OrnsteinUhlenbeckNoise", "PerWorkerGaussianNoise", "PerWorkerOrnsteinUhlenbeckNoise"),
    "Random",
)
# By a reward for what is new, which the driver adds to the advantages of train batches.
OF_NOVELTY = ("RND", "Curiosity")


def of_epsilon(value) -> dict:
    """The exploration_config of Ray 2.10+'s `epsilon`: a number, or [(0, initial), (timesteps, final)].

    Raises:
        TypeError: if it is neither.
    """
    if isinstance(value, Real):
        return {"type": "EpsilonGreedy", "initial_epsilon": value, "final_epsilon": value, "epsilon_timesteps": 0}
    try:
        (start, initial), (end, final) = value
        if start != 0:
            raise ValueError
    except (TypeError, ValueError):
        raise TypeError(
            f"epsilon={shortened(value)} must be a number, or two points [(0, initial), (timesteps, final)]. Use "
            ".exploration(exploration_config={'type': 'EpsilonGreedy', 'initial_epsilon': 1.0, 'final_epsilon': 0.02, "
            "'epsilon_timesteps': 10000})."
        ) from None
    return {"type": "EpsilonGreedy", "initial_epsilon": initial, "final_epsilon": final, "epsilon_timesteps": end}


def _of_key(key: str):
    """Makes an alias: a separate setting in another era, a key of exploration_config here."""
    return "exploration_config", lambda value: {key: value}


# Ray 0.8 writes the length of a schedule as a product of two settings; see `exploration_settings`.
_SCHEDULE_OF_0_8 = {name: _of_key(name) for name in ("exploration_fraction", "schedule_max_timesteps")}
# Names of other eras that mean an exploration_config where actions are chosen by their values.
EPSILON_ALIASES = {
    "epsilon": ("exploration_config", of_epsilon),
    "exploration_initial_eps": _of_key("initial_epsilon"),
    "exploration_final_eps": _of_key("final_epsilon"),
    **_SCHEDULE_OF_0_8,
    "per_worker_exploration": (
        "exploration_config", lambda value: {"type": "PerWorkerEpsilonGreedy" if value else "EpsilonGreedy"}
    ),
}  # fmt: skip
# The same for noise on continuous actions.
NOISE_ALIASES = {
    "pure_exploration_steps": _of_key("random_timesteps"),
    "exploration_final_scale": _of_key("final_scale"),
    "exploration_ou_noise_scale": _of_key("ou_base_scale"),
    "exploration_ou_theta": _of_key("ou_theta"),
    "exploration_ou_sigma": _of_key("ou_sigma"),
    "exploration_gaussian_sigma": _of_key("stddev"),
    **_SCHEDULE_OF_0_8,
    "per_worker_exploration": (
        "exploration_config",
        lambda value: {"type": f"{'PerWorker' if value else ''}OrnsteinUhlenbeckNoise"},
    ),
}

# Why a type does not go with an algorithm that has none of its group.
_REASONS = {
    **dict.fromkeys(OF_VALUES, "it chooses among actions by their values"),
    **dict.fromkeys(
        OF_ACTIONS, "it changes continuous actions, and then their probabilities under a policy mean nothing"
    ),
    **dict.fromkeys(OF_NOVELTY, "its rewards are added to the advantages of PPO's and A2C's train batches"),
}


def exploration_settings(config: Mapping, default: Mapping) -> dict:
    """All settings of an exploration_config: those given, then the algorithm's defaults, then the type's."""
    kind = config.get("type", default["type"])
    if not (isinstance(kind, str) or _is_user_class(kind)):
        kind = getattr(kind, "__name__", repr(kind))
    described = KINDS.get(kind, kind)
    fields = () if isinstance(described, str) else msgspec.structs.fields(described)
    of_type = {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}
    of_algorithm = default if kind == default["type"] else {}
    settings = {**of_type, **of_algorithm, **config, "type": kind}
    if settings.keys() >= _SCHEDULE_OF_0_8.keys():
        length = settings.pop("exploration_fraction") * settings.pop("schedule_max_timesteps")
        settings["epsilon_timesteps" if "epsilon_timesteps" in of_type else "scale_timesteps"] = int(length)
    return settings


def _is_user_class(kind) -> bool:
    """Whether a type is a class of the user's, derived from Exploration."""
    return isinstance(kind, type) and issubclass(kind, Exploration) and kind not in _TYPES


def make_exploration(config: Mapping, default: Mapping, action_space: spaces.Space) -> Exploration:
    """Makes the exploration that a checked exploration_config describes, for these actions.

    Raises:
        ValueError: if it cannot explore with actions of several parts.
    """
    settings = exploration_settings(config, default)
    kind = settings.pop("type")
    if kind in _REASONS and kind not in (*OF_JOINT_VALUES, *OF_NOVELTY) and parts(action_space) is not None:
        raise Unfit(
            f"exploration_config: {kind} changes actions that are one array, but the action space is {action_space}.",
            "Use StochasticSampling, or let the environment take all parts of an action in one array.",
            {"exploration_config": dict(default)},
        )
    made = kind(**settings) if _is_user_class(kind) else KINDS[kind](**KINDS[kind].keys()(settings))
    return made.for_actions(action_space)


def exploration_mistake(config: Mapping, default: Mapping, kinds: Sequence[str]) -> Mistake | None:
    """The first rule that the exploration_config breaks; None if there is none."""
    settings = exploration_settings(config, default)
    kind = settings.pop("type")
    right = {"exploration_config": dict(default)}

    def wrong(problem: str) -> Mistake:
        return Mistake(problem, ("exploration_config",), (right,))

    if _is_user_class(kind):
        try:
            kind(**settings)
        except (TypeError, ValueError) as error:
            return wrong(f"exploration_config: {kind.__name__} cannot be made of {settings}: {error}.")
        return None
    if kind not in kinds:
        reason = f" ({kind}: {_REASONS[kind]})" if kind in _REASONS else ""
        return wrong(
            f"exploration_config={shortened(config)} is not available: this algorithm explores by "
            f"{' or '.join(kinds)}{reason}, or by a class of your own derived from Exploration."
        )
    if _SCHEDULE_OF_0_8.keys() & settings.keys():
        return wrong(
            "exploration_config: exploration_fraction and schedule_max_timesteps are two factors of one number of "
            "steps, and one is missing. It is epsilon_timesteps (or scale_timesteps, for noise on continuous actions)."
        )
    mistake = KINDS[kind].keys().mistake(settings)
    if mistake is None:
        return None
    # The settings as they are but for the wrong ones.
    ends = ({**config, "type": kind, **remedy["exploration_config"]} for remedy in mistake.remedies)
    return replace(mistake, remedies=(*({"exploration_config": each} for each in ends), right))
