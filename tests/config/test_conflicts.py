"""Every rule about settings, of every algorithm, is broken by a config that is found from the declarations; the mistake
names settings, and each of its remedies ends it.

A new rule is looked at without an edit here, unless it is about a setting whose declaration does not say what a value
looks like (`SAMPLES`).
"""

import contextlib
import itertools
import pickle
from dataclasses import dataclass, field
from typing import Any

import pytest

from rllib import PPOConfig
from rllib.algorithms.base.registry import algorithm_names, get_algorithm_config
from rllib.algorithms.base.settings import updates
from rllib.config.config_object import ConfigObject, relation, rules_of
from rllib.config.conflicts import DEFAULT, Mistake, SettingsError, conflict, needs, surrounded
from tests.config.probes import candidates

# Values that break rules, of settings which take anything or dicts.
SAMPLES: dict[str, list] = {
    "actions_in_input_normalized": [True],
    "auxiliary_losses": [{"some": 1}],
    "callbacks_class": [int],
    "custom_loss": ["no function"],
    "disturbances": [
        {"action_delay": 1, "observation_delay": 1},
        {"parameters": {"gravity": [8, 12]}, "adapt": {"high": 1, "low": 0, "start": {"gravity": 10}}},
    ],
    "env": [None, "CartPole-v1"],
    "env_config": [{1: 2}],
    "env_task_fn": [print],
    "hiddens": [[0], [16]],
    "lr": [{"type": "kl_adaptive", "initial": 1e-3, "desired_kl": 0.01}],
    "model": [
        *({key: True} for key in ("some", "use_lstm", "use_sde", "free_log_std")),
        *({"network": "simba"}, {"network": "xqc"}, {"custom_model": "own"}, {"output_layer_use_bias": False}),
        {"use_lstm": True, "post_lstm_hiddens": [16], "post_lstm_activation": "tanh"},
        {"use_lstm": True, "custom_model": "own"},
    ],
    "noise_size": [10**15],
    "num_aggregation_workers": [100],
    "param_resets": [[3, 2], [10]],
    "policy_model_config": [{"custom_model": "own"}, {"use_sde": True}, {"network": "simba"}],
    "q_model_config": [{"layer_norm": True}, {"conv_filters": [[16, [8, 8], 4]]}, {"custom_model": "own"}],
    "replay_buffer_config": [
        *({"type": "HindsightReplayBuffer"}, {"storage": "gpu"}, {"frame_stack_axis": -1}, {"capacity": 3}),
        *({"replay_burn_in": 3}, {"replay_sequence_length": -1}),
    ],
    "env_to_module_connector": ["no function"],
    "env_wrappers": [["NoSuchWrapper"], ["NormalizeObservation"]],
    "evaluation_config": [{"lr": 1}, {"explore": 1}, {"explor": True}],
    "exploration_config": [{"type": "NoSuch"}, {"type": "RND"}, {"type": "StochasticSampling", "random_timesteps": 9}],
    "framework": ["tf2"],
    "ignore_observation_keys": [["action_mask"]],
    "info_columns": [{"cost": {"shape": "wide"}}],
    "input_": ["sampler", "some.json", {"some.json": 0.5, "sampler": 0.4}, {"a.json": 0.5, "b.json": 0.5}, "dataset"],
    "input_config": [{"some": 1}],
    "learner_class": [int],
    "listen": [lambda context: None, "nowhere"],
    "offline_memory": [-1],
    "discriminator_inputs": [["actions"]],
    "gamma": [1.0],
    "off_policy_estimation_methods": [{"is": {"type": "is"}}, {"is": 1}],
    "output": ["out", 3, "dataset", "s3://some/where"],
    "output_config": [{"format": "xls"}],
    "sgd_minibatch_size": [10**6],
    "teacher": [None, 3, {"one": "some"}, "some"],
    "teacher_mapping_fn": [print],
    "teacher_observation_keys": [["mass"]],
    "num_learners": [10**6],
    "rollout_fragment_length": [333, "auto"],
    "train_batch_size": [100, 1],
}
# Settings whose mistakes no other setting ends: what is missing only the user has.
ONLY_ADVICE = {("env", "observation_space", "action_space"), ("input_",), ("teacher",), ("demonstrations",)}


# Configs that are tried for a rule of one algorithm: before one has broken it, and afterwards.
MOST_DRAWN, FEW_DRAWN = 1000, 20


@dataclass
class Found:
    """A rule, and for each algorithm that breaks it: the config and the mistake."""

    check: Any
    names: tuple[str, ...]
    broken: list[tuple[ConfigObject, Mistake]] = field(default_factory=list)
    values: list[dict] = field(default_factory=list)


def _values(config, name) -> list:
    """Values of a setting that are right by themselves, its present one first."""
    setting, found = config.settings[name], [config[name]]
    for value in (*SAMPLES.get(name, ()), setting.default, *candidates(setting.type, setting.default, setting)):
        with contextlib.suppress(TypeError):
            value = setting.converted(value)
            if setting.mistake(value) is None and not any(value is each or value == each for each in found):
                found.append(value)
    return found[:12]


def _drawn(config, names):
    """Values of the settings by name: those of the config, then ones that differ in one of them, in two, in three."""
    values = {name: _values(config, name) for name in names}
    for count in range(4):
        for changed in itertools.combinations(names, count):
            for each in itertools.product(*(values[name][1:] for name in changed)):
                yield {name: values[name][0] for name in names} | dict(zip(changed, each))


def _breaking(config, rule: Found):
    """Configs with other values of the rule's settings that break it, and the mistakes, each kind of them once."""
    settings = [name for name in rule.names if name in config.settings]
    known = [
        values
        for values in rule.values
        if values.keys() <= config.settings.keys()
        and not any(config.settings[name].mistake(value) for name, value in values.items())
    ]
    drawn = _drawn(config, settings)
    kinds = set()
    few = FEW_DRAWN if hasattr(rule.check, "__relates__") else 0  # a method may tell of several mistakes
    for values in (*known, *itertools.islice(drawn, few if known else MOST_DRAWN)):
        changed, mistake = config.copy().apply(values), None
        with contextlib.suppress(Exception):  # values that the rule need not understand, as other rules refuse them
            mistake = rule.check(changed)
        if mistake and (kind := (mistake.names, *map(tuple, mistake.remedies))) not in kinds:
            kinds.add(kind)
            if values not in known:
                rule.values.append(values)
            yield changed, mistake


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
    never = [key for (key, _), rule in rules.items() if not rule.broken]
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
                assert _ends(check, config.copy().apply(remedy), mistake), (type(config).__name__, mistake, remedy)


def _ends(check, config, mistake) -> bool:
    """Whether a config keeps the rule, or breaks another part of it, which remedies end without this mistake."""
    found = None
    for _ in range(4):
        found = check(config)
        if found is None or found.problem == mistake.problem:
            break
        config = config.copy().apply(found.remedies[0])
    return found is None


def test_only_what_is_missing_has_no_remedy(rules):
    mistakes = [mistake for rule in rules.values() for _, _, mistake in rule.broken]
    assert {mistake.names for mistake in mistakes if not mistake.remedies} == ONLY_ADVICE


def test_a_message_says_what_ends_the_mistake(rules):
    for rule in rules.values():
        for _, config, mistake in rule.broken:
            message = str(config.error(mistake))
            assert mistake.problem in message
            assert mistake.advice is None or len(message) > len(mistake.problem) + len("PPOConfig: Leave it out.")


# ---------------------------------------------------------------------- the parts


def shown(*remedies, examples=(), names=("lr", "lr_schedule"), **more) -> str:
    message = str(PPOConfig().error(Mistake("It is so.", names, remedies, examples=examples, **more)))
    return message.removeprefix("PPOConfig: It is so. ")


def test_remedies_are_joined_in_words():
    assert shown({"lr": 0.1}) == "Use .training(lr=0.1)."
    assert shown({"lr": 0.1, "gamma": 0.9}) == "Use .training(lr=0.1, gamma=0.9)."
    assert shown({"lr": 0.1, "explore": False}) == "Use .training(lr=0.1).exploration(explore=False)."
    assert shown({"lr": 0.1}, {"gamma": 0.9}) == "Use .training(lr=0.1) or .training(gamma=0.9)."
    assert shown({"lr_schedule": None}, {"lr": 0.1}) == "Leave lr_schedule out, or use .training(lr=0.1)."
    assert shown({"lr": 0.1}, {"grad_clip": None, "seed": None}) == (
        "Use .training(lr=0.1), or leave grad_clip and seed out."
    )
    assert shown({"lr": 0.1, "seed": None}, {"lr": 0.2}) == (
        "Use .training(lr=0.1) and leave seed out, or use .training(lr=0.2)."
    )
    assert shown({"env": "CartPole-v1"}) == "Use .environment('CartPole-v1')."
    assert shown({"seed": None}, examples=[{"input_": "PATH"}]) == (
        "Leave seed out, or use .offline_data(input_='PATH')."
    )
    assert shown({"lr": 0.1}, note="It is slow.") == "Use .training(lr=0.1). It is slow."
    assert shown({"lr": 0.1}, advice="Think.", note="It is slow.") == "Think. It is slow."


def test_the_only_setting_of_a_mistake_gets_the_value_that_is_right():
    """Left out are those of several, and dicts to which section methods would only add."""
    assert shown({"seed": None}, names=("seed",)) == "Use .debugging(seed=None)."
    assert shown({"env_config": {}}, names=("env_config",)) == "Leave env_config out."


def test_a_mistake_about_the_environment_alone_is_one_that_no_setting_ends():
    assert Mistake("It is so.", ("env",), advice="Use another.").no_setting_ends_it
    assert not Mistake("It is so.", ("env",), ({"env": "CartPole-v1"},)).no_setting_ends_it
    assert not Mistake("It is so.", ("env", "lr"), advice="Use another.").no_setting_ends_it


def test_a_mistake_says_what_ends_it():
    with pytest.raises(TypeError, match="nothing says what ends this mistake"):
        Mistake("It is so.", ("lr",))
    with pytest.raises(TypeError, match="must be a tuple"):
        Mistake("It is so.", "lr", advice="Leave it.")


def test_an_error_keeps_its_mistakes_in_another_process_and_with_more_text():
    config = PPOConfig().environment("CartPole-v1").training(lr=-1, sgd_minibatch_size=9000)
    with pytest.raises(SettingsError) as raised:
        config.validate()
    error = raised.value
    for other in (pickle.loads(pickle.dumps(error)), surrounded(error, "In a file: ", "Look there.")):
        assert isinstance(other, SettingsError) and other.mistakes == error.mistakes
    assert str(other) == f"In a file: {error} Look there."
    assert str(pickle.loads(pickle.dumps(other))) == str(other)
    assert str(surrounded(ValueError("no."), "In a file: ", "Look there.")) == "In a file: no. Look there."


def test_a_number_asks_for_something_where_none_is_asked_for_by_none():
    """A limit of 0 is a limit; a coefficient of 0 is none."""
    config = PPOConfig().environment("CartPole-v1").training(recompute_advantages=True, cost_limit=0)
    (mistake,) = config.mistakes()
    assert mistake.names == ("recompute_advantages", "cost_limit") and "cost_limit=0.0" in mistake.problem


def test_a_remedy_adds_to_dicts_that_are_added_to_and_defaults_replace_them():
    config = PPOConfig().training(model={"fcnet_hiddens": [4]}).environment(env_config={"size": 3})
    config.apply({"model": {"use_lstm": True}, "env_config": {}})
    assert config.model == {"fcnet_hiddens": [4], "use_lstm": True, "vf_share_layers": False}
    assert config.env_config == {}


def test_a_relation_returns_no_text():
    class Telling(PPOConfig):
        @relation("lr")
        def _check_rate(self):
            return "lr is wrong."

    with pytest.raises(TypeError, match="_check_rate is a relation, which returns a Mistake or None, not 'lr is wrong"):
        Telling().environment("CartPole-v1").validate()


class Ruled(PPOConfig):
    conflicts = (
        needs(("batch_mode", "complete_episodes"), "fits_a_value", why="it is an example", remedies=[{"gamma": 0.5}]),
        conflict("seed", ("gamma", 0.5), why=lambda config: f"of {config.lr}"),
        conflict("grad_clip", why="never", remedies=[{"grad_clip": DEFAULT}, {"gamma": lambda config: config.lr}]),
    )
    refuses = {"num_learners": "there is one"}  # noqa: RUF012


def test_rules_are_checked_where_their_settings_and_properties_are():
    config = Ruled().environment("CartPole-v1").rollouts(batch_mode="complete_episodes").training(use_critic=False)
    told = [mistake.problem for mistake in config.training(use_gae=False).mistakes()]
    assert told == [
        "batch_mode='complete_episodes' needs fits_a_value, but fits_a_value=False: it is an example.",
    ]
    config = Ruled().environment("CartPole-v1").debugging(seed=0).training(gamma=0.5, grad_clip=1)
    first, second, third = config.learners(num_learners=1).mistakes()
    assert first.problem == "seed=0 and gamma=0.5: of 5e-05." and first.remedies == ({"seed": None}, {"gamma": 0.99})
    assert second.remedies == ({"grad_clip": None}, {"gamma": 5e-5})
    assert third.problem == "num_learners=1: there is one." and third.remedies == ({"num_learners": 0},)


def test_each_rule_that_is_code_says_itself():
    for name in algorithm_names():
        rows = type(get_algorithm_config(name)).describe_rules()
        assert [row for row in rows if row.rule.startswith("see ")] == [], name


def test_a_table_lists_the_rules():
    rows = {row.rule: row for row in Ruled.describe_rules()}
    assert rows["`seed` and `gamma=0.5`"].ends == "`seed` left out, or `gamma` left out"
    assert rows["`grad_clip`"].ends == "`grad_clip` left out, or another `gamma`"
    assert rows["`num_learners` keeps its default"].why == "there is one"
    assert rows["`sgd_minibatch_size` is at most `train_batch_size`"].why == ""
