import subprocess
import sys

import pytest

import rllib
from rllib.algorithms.registry import algorithm_names, get_algorithm_class, get_algorithm_config


def test_algorithms_are_found_by_name_in_any_case():
    from rllib.algorithms.ppo import PPO, PPOConfig

    assert get_algorithm_class("PPO") is get_algorithm_class("ppo") is PPO
    assert type(get_algorithm_config("PPO")) is PPOConfig


def test_every_name_leads_to_an_algorithm_and_its_config():
    for name in algorithm_names():
        assert get_algorithm_class(name).__name__ == name
        assert get_algorithm_config(name).build.__self__ is not None


def test_the_package_has_every_algorithm_and_its_config():
    for name in algorithm_names():
        assert getattr(rllib, name) is get_algorithm_class(name)
        assert getattr(rllib, f"{name}Config") is type(get_algorithm_config(name))
        assert {name, f"{name}Config"} <= set(rllib.__all__)


@pytest.mark.parametrize("name", ["XYZ", "P P O", "nothing", None, 3])
def test_an_unknown_name_is_refused_and_the_known_ones_are_told(name):
    for function in (get_algorithm_class, get_algorithm_config):
        with pytest.raises(ValueError, match=rf"there is no algorithm {name!r}\.") as caught:
            function(name)
        assert str(caught.value).endswith(f"There are: {', '.join(algorithm_names())}.")


def test_a_misspelt_name_is_told_the_nearest():
    with pytest.raises(ValueError, match=r"Did you mean 'PPO'( or 'APPO')?\?"):
        get_algorithm_class("PPOO")


def test_the_registry_loads_no_algorithm_by_itself():
    code = "import rllib.algorithms.registry, sys; print('rllib.algorithms.ppo' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "False"]
