"""Suites by name: which there are, what is missing, and what a name or env_config gets wrong."""

import contextlib
import sys
import types

import numpy as np
import pytest

from rllib import PPOConfig
from rllib.env import resolve
from rllib.env.factories.registry import EnvContext
from rllib.env.suites.refusals import refuse_unknown_keys, refuse_wrong_values, unknown_id
from rllib.env.suites.table import SUITES


@pytest.mark.parametrize("word", SUITES)
def test_without_its_package_a_suite_names_its_extra(monkeypatch, word):
    monkeypatch.setitem(sys.modules, SUITES[word].maker.partition(":")[0], None)
    remedy = SUITES[word].install or rf"pip install .*\[{SUITES[word].extra}\]"
    with pytest.raises(ValueError, match=rf"'{word}:Some-v1' needs {SUITES[word].package}: {remedy}"):
        PPOConfig().environment(f"{word}:Some-v1").build()


def test_a_factory_of_a_suite_is_pickled_and_named():
    factory = resolve("gymnax:CartPole-v1")
    assert factory.name == "gymnax:CartPole-v1" and factory == resolve("gymnax:CartPole-v1")


def test_an_unknown_id_gets_the_nearest_ones():
    assert 'Did you mean "gymnax:CartPole-v1"?' in str(
        unknown_id("gymnax", "CartPol-v1", ["CartPole-v1", "Acrobot-v1"])
    )
    assert "It has Acrobot-v1, CartPole-v1." in str(unknown_id("gymnax", "zzz", ["CartPole-v1", "Acrobot-v1"]))


def test_an_unknown_key_of_env_config_gets_the_nearest_ones():
    refuse_unknown_keys("gymnax:CartPole-v1", {"gravity": 1}, ["gravity"])
    with pytest.raises(
        ValueError, match=r"env_config has 'gravty'.*Did you mean 'gravity'\? It takes gravity, length\."
    ):
        refuse_unknown_keys("gymnax:CartPole-v1", {"gravty": 1}, ["gravity", "length"])


@pytest.mark.parametrize("word", [word for word, suite in SUITES.items() if not suite.has_agents])
def test_the_number_of_environments_is_the_runs(word):
    with pytest.raises(ValueError, match=r"env_config has 'num_envs', but the run says .*num_envs_per_worker=N"):
        PPOConfig().environment(f"{word}:Some-v1", env_config={"num_envs": 4}).build()


@pytest.mark.parametrize("word", SUITES)
def test_what_is_not_drawn_says_so(monkeypatch, word):
    """`rllib record`, `rllib play` and evaluation_videos make an environment with a render_mode."""
    monkeypatch.setitem(sys.modules, SUITES[word].maker.partition(":")[0], None)
    said = "needs" if SUITES[word].draws else r"are not drawn here.*rllib record RUN --env ID"
    with pytest.raises(ValueError, match=said):
        resolve(f"{word}:Some-v1").make(EnvContext({"render_mode": "rgb_array"}))


@pytest.mark.parametrize(("name", "meant"), [
    *((f"{word[:-1]}:A-v1", f"{word}:A-v1") for word in SUITES if len(word) > 4), ("EnvPool:A-v1", "envpool:A-v1"),
    ("pettingzo:mpe2.simple_spread_v3", "pettingzoo:mpe2.simple_spread_v3"), ("godt:port=11008", "godot:port=11008"),
])  # fmt: skip
def test_a_misspelt_word_gets_the_nearest_one(name, meant):
    with pytest.raises(ValueError, match=f'cannot be found .* Did you mean "{meant}"'):
        resolve(name)


@pytest.mark.parametrize(("name", "like"), [
    ("dm_control:cartpole-balance", "shimmy:dm_control/cartpole-balance-v0"),
    ("minatar:Breakout-v1", "rllib.env.tasks.minatar_games:MinAtar/Breakout-v1"),
])  # fmt: skip
@pytest.mark.parametrize("is_installed", [False, True])
def test_a_package_without_ids_names_those_that_there_are(monkeypatch, name, like, is_installed):
    module = name.partition(":")[0]
    monkeypatch.setitem(sys.modules, module, types.ModuleType(module) if is_installed else None)
    with pytest.raises(ValueError, match=f'names are like "{like}" here, with pip install'):
        resolve(name)


@pytest.mark.parametrize(("default", "value", "problem"), [
    (0, 2, None), (0, 2.5, None), (0, True, None), (0.5, np.float32(1), None), (1, np.zeros(()), None), (-1, -2, None),
    (0.5, -1, None), (None, "a", None), ((1, 2), [3], None), ("a", "b", None), (False, True, None),
    (0, "one", "a number"), (0, None, "a number"), (9.8, [1, 2], "a number"), (True, "yes", "a number"),
    (0, -1, "no negative number"), (500, -1.0, "no negative number"), ("a", 3, "a text"),
])  # fmt: skip
def test_a_value_of_another_kind_than_the_default_is_refused(default, value, problem):
    expected = pytest.raises(ValueError, match=f"takes {problem} for it") if problem else contextlib.nullcontext()
    with expected:
        refuse_wrong_values("suite:Some-v1", {"key": value, "another": 1}, {"key": default})
