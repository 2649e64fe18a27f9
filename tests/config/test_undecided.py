"""Settings that a search draws: what a rule says of them is left to the trials."""

import warnings

import pytest

from rllib import PPOConfig
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.config.config_object import ConfigObject, relation
from rllib.config.conflicts import Mistake, SettingsError
from tests.generated.draw import draw

# Seeds of runs, which have some 10 settings each.
DRAWS = range(1000, 1024)


class _ByAProperty(PPOConfig):
    @property
    def is_greedy(self) -> bool:
        return self.gamma == 0

    @relation("lr")
    def _check_rate(self) -> Mistake | None:
        return Mistake("too greedy.", ("lr",), ({"lr": 1.0},)) if self.is_greedy and self.lr < 1 else None


def test_a_rule_that_reads_a_drawn_setting_by_way_of_a_property_is_left_to_the_trials():
    config = _ByAProperty().environment("CartPole-v1").training(gamma=0.0)
    with pytest.raises(SettingsError, match="too greedy"):
        config.validate()
    ConfigObject.validate(config, {"gamma"})
    ConfigObject.validate(config, {"lr"})
    with pytest.raises(SettingsError, match="too greedy"):
        ConfigObject.validate(config, {"clip_param"})


@pytest.mark.parametrize("seed", DRAWS)
def test_settings_that_fit_together_are_not_refused_if_one_is_searched(seed):
    """As Tune checks them: the searched one has its default, and the others are what trials have."""
    drawn = draw(seed)
    source = {"input_": "steps.csv"} if drawn["world"]["kind"] == "data" else {"env": "CartPole-v1"}
    default = get_algorithm_config(drawn["algorithm"])
    given = _fitting(default, {**drawn["settings"], **source})
    for name in given:
        others = default.copy(copy_frozen=False)
        others.update_from_dict({other: value for other, value in given.items() if other != name})
        ConfigObject.validate(others, {name})


def _fitting(default: ConfigObject, settings: dict) -> dict:
    """The settings, changed by remedies so that they fit together; {} if none does that."""
    config = default.copy(copy_frozen=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            config.update_from_dict(settings)
        except (TypeError, ValueError):
            return {}
        for _ in range(10):
            try:
                ConfigObject.validate(config)
            except SettingsError as error:
                remedy = next((mistake.remedies[0] for mistake in error.mistakes if mistake.remedies), None)
                if remedy is None:
                    return {}
                config.apply(remedy)
            else:
                return config.changes()
    return {}
