"""Suites by name: which there are, what is missing, and what a name or env_config gets wrong."""

import sys

import pytest

from rllib import PPOConfig
from rllib.env import resolve
from rllib.env.suites.refusals import refuse_unknown_keys, unknown_id
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
