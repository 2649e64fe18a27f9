"""Every word that a user can type acts, is refused, or says once that it has no effect, as is observed by probes.py.

A new setting, alias or keyword is looked at without an edit here. Where it is found to do nothing, it has to be made to
act, be declared as acting `only_with` another or as `unused`, or be refused.
"""

import functools
import importlib
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from rllib import cli
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.compat.names import aliases
from rllib.compat.names.stable_baselines3 import settings_from_sb3
from rllib.compat.names.stable_baselines3.algorithms import _NEUTRAL as NEUTRAL
from rllib.compat.names.stable_baselines3.algorithms import _SILENT as SILENT
from rllib.compat.names.stable_baselines3.algorithms import _VOCABULARIES as VOCABULARIES
from rllib.compat.names.stable_baselines3.sampling import KEYS_WITHOUT_EFFECT
from tests.algorithms.test_every_algorithm import NAMES
from tests.config.parameters import unread_parameters, unread_parameters_of
from tests.config.probes import ACTS, NOTHING, base, evidence, messages, run
from tests.config.situations import SITUATIONS, WITH_PROCESSES, Costly


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("words")


@pytest.fixture(scope="module")
def read(place):
    """Function of an algorithm's name that returns the settings which its shortest run reads."""

    @functools.cache
    def of(name):
        outcome = run(base(name), place)
        assert not outcome.refusal, name
        return frozenset(outcome.read)

    return of


@pytest.fixture(scope="module")
def read_elsewhere(place):
    """Function that returns the settings which are read in the other situations, but for those that start processes."""
    return functools.cache(lambda: set().union(*(in_situation(name, SITUATIONS, place) for name in SITUATIONS)))


@pytest.fixture(scope="module")
def read_with_files(place):
    """Function that returns the settings which a run reads that writes files."""
    return functools.cache(lambda: in_situation("files of a run", SITUATIONS, place))


def in_situation(name, situations, place):
    algorithm, change, iterations = situations[name]
    folder = Path(tempfile.mkdtemp(dir=place))
    outcome = run(change(base(algorithm), folder), folder, iterations)
    assert not outcome.refusal, name
    return outcome.read


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_acts_or_is_refused_or_is_told(name, read, read_with_files, place, capsys):
    found, idle = Counter(), []
    for each, setting in get_algorithm_config(name).settings.items():
        acts = each in read(name) or each in read_with_files()  # files are written by log_dir, or by Tune
        outcome = ACTS if acts else evidence(setting, lambda: base(name), place)
        found[outcome] += 1
        idle += [each] if outcome == NOTHING else []
    with capsys.disabled():
        print(f"\n{name}: {found.total()} settings, {dict(found)}")
    assert " ".join(idle) == "", "taken without a word, and nothing reads them"


def test_what_acts_only_with_another_setting_acts_with_it(read, read_elsewhere):
    acts = set().union(*map(read, NAMES), read_elsewhere())
    gated = {each for name in NAMES for each, setting in base(name).settings.items() if setting.only_with}
    processes = {
        *("broadcast_interval", "max_weight_sync_delay", "max_requests_in_flight_per_sampler_worker"),
        "learner_collective",
    }
    assert gated - acts <= processes, "read in no run of situations.py"


@pytest.mark.parametrize("name", WITH_PROCESSES)
def test_what_acts_only_with_processes_acts_with_them(name, place):
    settings = in_situation(name, WITH_PROCESSES, place)
    expected = {
        "environments in processes": {"sub_environment_timeout_s"},
        "learners": {"learner_collective"},
        "IMPALA with workers": {"broadcast_interval", "max_requests_in_flight_per_sampler_worker"},
        "A3C with workers": {"max_requests_in_flight_per_sampler_worker"},
        "Ape-X with workers": {"max_weight_sync_delay", "max_requests_in_flight_per_sampler_worker"},
    }
    assert expected[name] <= settings


# ---------------------------------------------------------------------- other names

# What stands for a value of any form: a name does nothing if none of them changes, is refused or is told.
VALUES = (
    *(True, False, 3, 0.25, 7.5, "other", "ReplayBuffer", {"capacity": 77}, {"some": 1}, ["obs"], len),
    *({"type": "Random"}, [[0, 1.0], [100, 0.5]]),
)


def answers(config, name, before):
    """Whether a name of any era changes the config's settings, is refused, or is told, with one of the values."""
    for value in VALUES:
        with messages() as told:
            try:
                changed = config().update_from_dict({name: value})
            except (TypeError, ValueError):
                return True
        if any(changed[each] is not before[each] and changed[each] != before[each] for each in before):
            return True
        if told.tell_of(name):
            return True
    return False


def test_every_other_name_acts_or_is_refused_or_is_told(capsys):
    classes = {type(get_algorithm_config(name)) for name in NAMES}
    tables = (aliases.ALIASES, aliases.IGNORED, aliases.UNAVAILABLE, aliases.ELSEWHERE, aliases.DICTS_OF_SETTINGS)
    idle, count = [], 0
    for config in sorted(classes, key=lambda each: each.__name__):
        before = config().to_dict()
        for name in {*config.own_aliases, *(each for table in tables for each in table)}:
            count += 1
            if not answers(config, name, before):
                idle.append(f"{config.__name__}: {name}")
    with capsys.disabled():
        print(f"\nother names: {count} of {len(classes)} algorithms, {len(idle)} do nothing")
    assert " ".join(idle) == ""


@pytest.mark.parametrize(
    "name, inner", [(name, key) for name, keys in aliases.DICTS_OF_SETTINGS.items() for key in keys]
)
def test_keys_of_dicts_that_are_passed_over_are_told(name, inner):
    with messages() as told:
        get_algorithm_config("PPO").update_from_dict({name: {inner: "something"}})
    assert told.tell_of(inner)


def test_settings_that_evaluation_ignores_are_told():
    config = base("PPO")
    for name in sorted(config.evaluation_ignores):
        with messages() as told:
            base("PPO").evaluation(evaluation_config={name: config[name]}).validate()
        assert told.tell_of(name), name


# ---------------------------------------------------------------------- Stable-Baselines3

# Words that the constructor of an algorithm reads, or gives, and not the translation.
OF_CONSTRUCTOR = {"verbose", "action_space", "observation_space"}
# What words depend on that act only beside others, and values of words that take objects.
BESIDE = {"learning_rate": "lin_1e-3", "n_timesteps": 1000}
OBJECTS = {
    "policy": "LinearPolicy",
    "normalize": True,
    "noise_type": "normal",
    "noise_std": 0.3,
    "action_space": Costly.action_space,
    "tensorboard_log": "place",
    "learning_rate": 0.03,
    "replay_buffer_kwargs": {"n_sampled_goal": 2},
    "policy_kwargs": {"net_arch": [7]},
    "device": "cuda",
}
FURTHER = {"noise_std": {"noise_type": "normal"}, "replay_buffer_kwargs": {"replay_buffer_class": "HerReplayBuffer"}}
FURTHER |= {"use_sde_at_warmup": {"use_sde": True}, "sde_sample_freq": {"use_sde": True}}


def settings_of_words(algorithm, words):
    try:
        return settings_from_sb3(algorithm, words, defaults=True)
    except ValueError as error:
        return str(error)


def test_every_word_of_stable_baselines3_acts_or_is_refused_or_is_told(capsys):
    idle, count = [], 0
    for algorithm, vocabulary in VOCABULARIES.items():
        for word in sorted({*vocabulary.names, *vocabulary.of_parts, *SILENT, *NEUTRAL}):
            count += 1
            beside = {**BESIDE, **FURTHER.get(word, {})}
            without = {each: value for each, value in beside.items() if each != word}
            values = [OBJECTS[word]] if word in OBJECTS else [0.037, 37, False, True, "other"]
            with messages() as told:
                found = [settings_of_words(algorithm, {**without, word: value}) for value in values]
            acts = any(each != settings_of_words(algorithm, without) for each in found)
            if not acts and not told.tell_of(word) and word not in OF_CONSTRUCTOR:
                idle.append(f"{algorithm}: {word}")
    with capsys.disabled():
        print(f"\nwords of Stable-Baselines3: {count}, {len(idle)} do nothing")
    assert " ".join(idle) == ""


@pytest.mark.parametrize("key", KEYS_WITHOUT_EFFECT)
def test_keys_of_replays_of_stable_baselines3_without_effect_are_told(key):
    with messages() as told:
        settings_from_sb3("SAC", {"replay_buffer_kwargs": {key: 3}}, defaults=False)
    assert told.tell_of(key)


@pytest.mark.parametrize("key, value", [("log_std_init", -1.0), ("share_features_extractor", True)])
def test_keywords_of_networks_without_effect_are_told(key, value):
    with messages() as told:
        settings_from_sb3("SAC", {"policy_kwargs": {key: value}}, defaults=True)
    assert told.tell_of(key)


# ---------------------------------------------------------------------- arguments of functions

MODULES = (
    "rllib",
    "rllib.callbacks",
    "rllib.env",
    "rllib.env.vec_env",
    "rllib.tune",
    "rllib.client",
    "rllib.core",
    "runtime",
)
# Optional parameters of which every value asks for what is so anyway.
MET = {
    **dict.fromkeys((("loguniform", "base"), ("qloguniform", "base")), "the distribution is the same for every base"),
    **dict.fromkeys((("lograndint", "base"), ("qlograndint", "base")), "the distribution is the same for every base"),
    ("wait", "fetch_local"): "results are on this machine",
    ("MetricsLogger.__init__", "root"): "every logger is the whole of its tree",
    ("ConnectorV2.single_agent_episode_iterator", "agents_that_stepped_only"): "there are no episodes of others",
}


def test_every_optional_argument_is_read(capsys):
    unread = {each for module in MODULES for each in unread_parameters(importlib.import_module(module))}
    with capsys.disabled():
        print(f"\noptional arguments that nothing reads: {len(unread)}, of which {len(MET)} are met anyway")
    assert unread - MET.keys() == set()
    assert MET.keys() <= unread, "no longer needed"


def commands(group, name=""):
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name}{word} ")
        else:
            yield f"{name}{word}", command


def test_every_option_of_the_command_is_read():
    unread = [
        f"{word}: {argument}"
        for word, command in commands(cli.command)
        for _, argument in unread_parameters_of(command.callback)
    ]
    assert unread == []
