"""Keys of settings that are dicts: they are declared, checked and described as settings are, and conflicts end."""

import itertools
from typing import Annotated

import pytest

from rllib import DQNConfig, PPOConfig
from rllib.algorithms.base.settings.exploration import KINDS
from rllib.config.conflicts import SettingsError
from rllib.config.nested import NestedSettings
from rllib.config.sections import at_least, section
from rllib.models.model_settings import MEMORIES, ModelSettings
from rllib.replay.replay_settings import (
    R2D2ReplaySettings,
    ReplaySettings,
    SequenceReplaySettings,
    ShardedReplaySettings,
)
from tests.config.probes import other_value


class Sizes(NestedSettings, setting="sizes"):
    width: Annotated[int, "how wide", at_least(1)] = 4
    names: Annotated[list[str], "of all"] = []  # noqa: RUF012


class WiderSizes(Sizes):
    width = 8


def test_keys_are_attributes_and_items_with_their_defaults():
    sizes = Sizes({"width": 2.0})
    assert (sizes.width, sizes["width"], sizes.names) == (2, 2, [])
    assert dict(sizes) == {"width": 2, "names": []} and sizes.changes() == {"width": 2}
    assert WiderSizes().width == 8 and Sizes().width == 4
    Sizes().names.append("one")
    assert Sizes().names == []
    assert [row.name for row in Sizes.describe()] == ["width", "names"]


@pytest.mark.parametrize(
    ("given", "problem", "remedies"),
    [
        ({"width": 0}, "sizes: width=0 must be an integer >= 1 (how wide).", ({"sizes": {"width": 4}},)),
        ({"names": [1]}, "sizes: names=[1] must be a list of strings.", ({"sizes": {"names": []}},)),
        ({"widht": 3}, "sizes: there is no 'widht'. Did you mean 'width'?", ()),
    ],
)
def test_a_wrong_key_is_a_mistake_of_the_setting(given, problem, remedies):
    mistake = Sizes.mistake(given)
    assert (mistake.problem, mistake.names, mistake.remedies) == (problem, ("sizes",), remedies)


def test_build_checks_the_keys_of_model():
    with pytest.raises(SettingsError) as raised:
        PPOConfig().environment("CartPole-v1").training(model={"dim": 0}).validate()
    (mistake,) = raised.value.mistakes
    assert mistake.names == ("model",) and mistake.remedies == ({"model": {"dim": 84}},)


def test_keys_are_checked_when_all_are_there():
    config = PPOConfig().environment("CartPole-v1").training(model={"vf_hiddens": [3], "vf_share_layers": True})
    config.training(model={"vf_share_layers": False}).validate()
    config.training(model={"vf_share_layers": True})
    with pytest.raises(SettingsError, match="vf_hiddens"):
        config.validate()


def test_a_setting_with_another_declaration_keeps_its_keys():
    class Mine(PPOConfig):
        @section
        def training(self, *, model: Annotated[dict, "my network"] = {}): ...  # noqa: B006

    assert Mine.settings["model"].keys.of is ModelSettings and Mine.settings["model"].of_policy


def test_the_name_of_a_key_that_was_given_last_counts():
    config = DQNConfig().training(replay_buffer_config={"alpha": -1.0})
    (mistake,) = [each for each in config.mistakes() if each.names == ("replay_buffer_config",)]
    assert config.apply(mistake.remedies[0]).replay_settings().prioritized_replay_alpha == 0.6
    config.training(replay_buffer_config={"alpha": 0.3})
    assert config.replay_settings().prioritized_replay_alpha == 0.3


# ------------------------------------------------------------------ the keys of the settings that have some

CLASSES = (
    *(ModelSettings, ReplaySettings, SequenceReplaySettings, R2D2ReplaySettings, ShardedReplaySettings),
    *(kind.keys() for kind in KINDS.values()),
)


@pytest.mark.parametrize("cls", CLASSES)
def test_defaults_are_right(cls):
    assert cls.mistake(cls.defaults()) is None
    assert dict(cls()) == cls.defaults()
    assert all(row.meaning for row in cls.describe())


OWN = type("Own", (), {})
# Values of keys whose declaration does not say what one looks like, or which make more rules break.
VALUES = {
    "custom_model": [OWN],
    "custom_action_dist": [OWN],
    "conv_filters": ["impala", "nature"],
    "fcnet_hiddens": [[], [8, 4]],
    "orthogonal_gains": [{"policy": 1.0}],
    "final_epsilon": [0.9],
    "initial_epsilon": [0.1],
}


def values_of(setting):
    return [setting.default, *(VALUES.get(setting.name) or [other_value(setting)])]


def unchecked(cls, given):
    """The settings, whatever is wrong with them."""
    settings = cls()
    list(settings._take(given))
    return settings


@pytest.mark.parametrize(
    ("cls", "rule"),
    [(cls, rule) for cls in CLASSES for rule in vars(cls).get("conflicts", ())],
    ids=lambda each: getattr(each, "__name__", None) or f"{each.rule}: {each.why}"[:60],
)
def test_every_rule_breaks_and_each_remedy_ends_it(cls, rule):
    keys = [key for key in rule.names if key not in MEMORIES] + [key for key in MEMORIES if key in rule.names]
    for context in ({}, {"use_attention": True}) if cls is ModelSettings else ({},):
        for values in itertools.product(*(values_of(cls.settings[key]) for key in keys)):
            settings = unchecked(cls, given := {**context, **dict(zip(keys, values))})
            if mistake := rule.mistake(settings):
                assert cls.mistake(given)
                assert mistake.remedies
                for remedy in mistake.remedies:
                    assert rule.mistake(unchecked(cls, {**given, **remedy})) is None
                return
    raise AssertionError("no settings break the rule")


@pytest.mark.parametrize(
    ("cls", "key"),
    [(cls, key) for cls in CLASSES for key in cls.settings if cls is not ModelSettings or key not in VALUES],
)
def test_a_wrong_value_of_any_key_is_refused_with_a_value_that_is_right(cls, key):
    mistake = cls.mistake({key: object})
    assert mistake.remedies
    assert [cls.mistake(remedy[cls.setting]) for remedy in mistake.remedies] == [None] * len(mistake.remedies)
