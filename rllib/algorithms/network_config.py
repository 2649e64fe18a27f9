"""Settings of the algorithms whose networks the catalog builds."""

from rllib.algorithms.algorithm_config import AlgorithmConfig
from rllib.algorithms.config_object import relation
from rllib.models.catalog import check_model


class NetworkConfig(AlgorithmConfig):
    """Checks `model`; AlgorithmConfig cannot, since the catalog loads gymnasium."""

    @relation("model")
    def _check_model(self):
        try:
            check_model(self.model)
        except ValueError as error:
            return str(error)
