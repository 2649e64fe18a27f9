"""The dicts of defaults that programs for Ray 0.8 to 2.x copy and change: `config = ppo.DEFAULT_CONFIG.copy()`.

`default_configs.PPO` is PPO's dict; `Common` has the settings that all algorithms share, `Model` the keys of `model`.
"""

import copy
from typing import Any

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.registry import ALGORITHMS, get_algorithm_config
from rllib.models.model_settings import ModelSettings


class Defaults(dict):
    """Changes to an algorithm's settings; a setting that is read has its default until it is set.

    The dict is empty at first: an algorithm adds the defaults itself, and a setting that the program sets by an older
    name would otherwise be in the dict twice, with its default under the present name.

    Args:
        config: config with the defaults.
    """

    def __init__(self, config: AlgorithmConfig, *changes):
        super().__init__(*changes)
        self._config = config

    def __missing__(self, name: str) -> Any:
        try:
            value = copy.deepcopy(getattr(self._config, name))
        except AttributeError as error:
            raise KeyError(str(error)) from None
        if isinstance(value, dict):  # the program may change it in place
            self[name] = value
        return value

    def copy(self) -> "Defaults":
        """A separate dict with the same defaults."""
        return copy.deepcopy(self)

    def __deepcopy__(self, memo):
        return Defaults(self._config, copy.deepcopy(dict(self), memo))

    def __reduce__(self):
        return dict, (dict(self),)


Common = Defaults(AlgorithmConfig())
Model = ModelSettings.defaults()


def __getattr__(name: str) -> Defaults:
    if name not in ALGORITHMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return Defaults(get_algorithm_config(name))
