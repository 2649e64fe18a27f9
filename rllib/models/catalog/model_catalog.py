"""RLlib's names for the registry of the user's networks and action distributions, and for preprocessors."""

from collections.abc import Callable

import gymnasium

from rllib.models.distributions.names import register_action_dist, register_model
from rllib.models.observations.preprocessors import Preprocessor


class ModelCatalog:
    """Registers classes for the `model` settings, and makes preprocessors."""

    @staticmethod
    def register_custom_model(model_name: str, model_class: Callable) -> None:
        """Same as `register_model`: model={"custom_model": model_name} then builds this class."""
        register_model(model_name, model_class)

    @staticmethod
    def register_custom_action_dist(action_dist_name: str, action_dist_class: Callable) -> None:
        """Same as `register_action_dist`: model={"custom_action_dist": action_dist_name} then uses this class."""
        register_action_dist(action_dist_name, action_dist_class)

    @staticmethod
    def get_preprocessor(env: gymnasium.Env, options: dict | None = None) -> Preprocessor:
        """A preprocessor of the environment's observations."""
        return Preprocessor(env.observation_space, options)

    @staticmethod
    def get_preprocessor_for_space(observation_space: gymnasium.Space, options: dict | None = None) -> Preprocessor:
        """A preprocessor of the observations of a space."""
        return Preprocessor(observation_space, options)
