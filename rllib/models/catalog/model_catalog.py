"""RLlib's name for the registry of the user's networks and action distributions."""

from collections.abc import Callable

from rllib.models.distributions.names import register_action_dist, register_model


class ModelCatalog:
    """Registers classes for the `model` settings."""

    @staticmethod
    def register_custom_model(model_name: str, model_class: Callable) -> None:
        """Same as `register_model`: model={"custom_model": model_name} then builds this class."""
        register_model(model_name, model_class)

    @staticmethod
    def register_custom_action_dist(action_dist_name: str, action_dist_class: Callable) -> None:
        """Same as `register_action_dist`: model={"custom_action_dist": action_dist_name} then uses this class."""
        register_action_dist(action_dist_name, action_dist_class)
