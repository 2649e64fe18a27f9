"""Every rule about settings, of every algorithm, is broken by a config that is found from the declarations; the mistake
names settings, and each of its remedies ends it.

A new rule is looked at without an edit here, unless it is about a setting whose declaration does not say what a value
looks like (`SAMPLES`).
"""

import contextlib
import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest

from rllib.algorithms.base.registry import algorithm_names, get_algorithm_config
from rllib.algorithms.base.settings import updates
from rllib.config.config_object import ConfigObject, rules_of
from rllib.config.conflicts import Mistake
from tests.config.probes import candidates

# Values that break rules, of settings which take anything or dicts.
SAMPLES: dict[str, list] = {
    "actions_in_input_normalized": [True],
    "auxiliary_losses": [{"some": 1}],
    "callbacks_class": [int],
    "custom_loss": ["no function"],
    "env": [None, "CartPole-v1"],
    "env_config": [{1: 2}],
    "env_to_module_connector": ["no function"],
    "env_wrappers": [["NoSuchWrapper"], ["NormalizeObservation"]],
    "evaluation_config": [{"lr": 1}, {"explore": 1}, {"explor": True}],
    "exploration_config": [{"type": "NoSuchExploration"}, {"type": "StochasticSampling", "random_timesteps": 9}],
    "framework": ["tf2"],
    "info_columns": [{"cost": {"shape": "wide"}}],
    "input_": ["sampler", "some.json", {"some.json": 0.5, "sampler": 0.4}, {"a.json": 0.5, "b.json": 0.5}, "dataset"],
    "input_config": [{"some": 1}],
    "learner_class": [int],
    "listen": [lambda context: None, "nowhere"],
    "offline_memory": [-1],
    "off_policy_estimation_methods": [{"is": {"type": "is"}}, {"is": 1}],
    "output": ["out", 3, "dataset", "s3://some/where"],
    "output_config": [{"format": "xls"}],
    "sgd_minibatch_size": [10**6],
    "num_learners": [10**6],
    "rollout_fragment_length": [333, "auto"],
    "train_batch_size": [100, 1],
}
# Settings whose mistakes no other setting ends: what is missing only the user has.
ONLY_ADVICE = {("env", "observation_space", "action_space"), ("input_",)}


# Configs that are tried for a rule of one algorithm: before one has broken it, and afterwards.
MOST_DRAWN, FEW_DRAWN = 700, 20


@dataclass
class Found:
    """A rule, and for each algorithm that breaks it: the config and the mistake."""

    check: Any
    names: tuple[str, ...]
    broken: list[tuple[ConfigObject, Mistake]] = field(default_factory=list)
    values: list[dict] = field(default_factory=list)
    tells_text: bool = False


def _values(config, name) -> list:
    """Values of a setting that are right by themselves, its present one first."""
    setting, found = config.settings[name], [config[name]]
    for value in (*SAMPLES.get(name, ()), setting.default, *candidates(setting.type, setting.default, setting)):
        with contextlib.suppress(TypeError):
            value = setting.converted(value)
            if setting.mistake(value) is None and not any(value is each or value == each for each in found):
                found.append(value)
    return found[:9]


def _breaking(config, rule: Found):
    """Configs with other values of the rule's settings that break it, and the mistakes, each kind of them once."""
    settings = [name for name in rule.names if name in config.settings]
    known = [values for values in rule.values if values.keys() <= config.settings.keys()]
    drawn = (dict(zip(settings, each)) for each in itertools.product(*(_values(config, name) for name in settings)))
    kinds = set()
    for values in (*known, *itertools.islice(drawn, FEW_DRAWN if known else MOST_DRAWN)):
        changed, mistake = config.copy().apply(values), None
        with contextlib.suppress(Exception):  # values that the rule need not understand, as other rules refuse them
            mistake = rule.check(changed)
        if isinstance(mistake, Mistake) and (kind := (mistake.names, *map(tuple, mistake.remedies))) not in kinds:
            kinds.add(kind)
            if values not in known:
                rule.values.append(values)
            yield changed, mistake
        rule.tells_text = rule.tells_text or isinstance(mistake, str)


@pytest.fixture(scope="module")
def rules():
    found: dict[Any, Found] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(updates, "why_no_cuda", lambda: "there is no GPU")
        for name in algorithm_names():
            config = get_algorithm_config(name).environment("CartPole-v1")
            for key, (names, check) in rules_of(type(config)).items():
                if not all(config._has(each) for each in names):
                    continue
                rule = found.setdefault((key, names), Found(check, names))
                rule.check = check
                rule.broken += [(check, *broken) for broken in _breaking(config, rule)]
        yield found


def test_every_rule_is_broken_by_a_config_of_some_algorithm(rules):
    assert len(rules) > 60
    never = [key for (key, _), rule in rules.items() if not (rule.broken or rule.tells_text)]
    assert [key if isinstance(key, str) else key.rule for key in never] == []


def test_a_mistake_names_settings(rules):
    for rule in rules.values():
        for _, config, mistake in rule.broken:
            assert mistake.names and config.settings.keys() >= set(mistake.names), mistake


def test_each_remedy_is_made_of_valid_values_and_ends_the_mistake(rules):
    for rule in rules.values():
        for check, config, mistake in rule.broken:
            for remedy in mistake.remedies:
                wrong = {name: value for name, value in remedy.items() if config.settings[name].mistake(value)}
                assert not wrong, (type(config).__name__, mistake, wrong)
                remedied = config.copy().apply(remedy)
                assert check(remedied) is None, (type(config).__name__, mistake, remedy)


def test_only_what_is_missing_has_no_remedy(rules):
    mistakes = [mistake for rule in rules.values() for _, _, mistake in rule.broken]
    assert {mistake.names for mistake in mistakes if not mistake.remedies} == ONLY_ADVICE


def test_a_message_says_what_ends_the_mistake(rules):
    for rule in rules.values():
        for _, config, mistake in rule.broken:
            message = str(config.error(mistake))
            assert mistake.problem in message
            assert mistake.advice is None or len(message) > len(mistake.problem) + len("PPOConfig: Leave it out.")
