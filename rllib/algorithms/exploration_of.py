"""From the settings of an exploration_config to what workers explore by."""

from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import spaces

from rllib.algorithms.exploration_config import epsilon_points, exploration_settings
from rllib.evaluation.exploration import (
    EpsilonGreedy,
    Exploration,
    PerWorkerEpsilonGreedy,
    RandomValues,
    SoftQ,
    StochasticSampling,
)
from rllib.evaluation.exploration_noise import GaussianNoise, OrnsteinUhlenbeckNoise, RandomActions
from rllib.evaluation.parameter_noise import ParameterNoise


def make_exploration(settings: Mapping[str, Any], action_space: spaces.Space) -> Exploration:
    """What checked settings, those of `exploration_settings`, describe."""
    settings = dict(settings)
    return _MAKERS[settings.pop("type")](settings, action_space)


def _parameter_noise(settings: Mapping, action_space: spaces.Space) -> ParameterNoise:
    """Where there is no sub_exploration: random actions for random_timesteps, then one in a hundred, as in Ray."""
    sub_exploration = settings["sub_exploration"]
    if sub_exploration is None:
        start = settings["random_timesteps"]
        points = ((0, 1.0), (start, 1.0), (start + 1, 0.01)) if start else ((0, 0.01),)
    else:
        points = epsilon_points(exploration_settings(sub_exploration, {"type": "EpsilonGreedy"}))
    return ParameterNoise(points, settings["initial_stddev"])


_MAKERS: Mapping[str, Callable[[Mapping, spaces.Space], Exploration]] = {
    "StochasticSampling": lambda settings, space: StochasticSampling(),
    "EpsilonGreedy": lambda settings, space: EpsilonGreedy(epsilon_points(settings)),
    "PerWorkerEpsilonGreedy": lambda settings, space: PerWorkerEpsilonGreedy(epsilon_points(settings)),
    "SoftQ": lambda settings, space: SoftQ(**settings),
    "ParameterNoise": _parameter_noise,
    "GaussianNoise": lambda settings, space: GaussianNoise(**settings),
    "OrnsteinUhlenbeckNoise": lambda settings, space: OrnsteinUhlenbeckNoise(**settings),
    "Random": lambda settings, space: RandomActions() if isinstance(space, spaces.Box) else RandomValues(),
}
