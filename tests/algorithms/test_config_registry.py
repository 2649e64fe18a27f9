import importlib
import re
import subprocess
import sys

import pytest

import rllib
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.registry import ABSENT, algorithm_names, get_algorithm_class, get_algorithm_config
from rllib.algorithms.ppo import PPO, PPOConfig
from rllib.tune.trainables.resolve import resolve_trainable


def test_algorithms_are_found_by_name_in_any_case():
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


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_a_known_algorithm_that_is_absent_is_told_with_what_to_use(name):
    assert name.lower() not in map(str.lower, algorithm_names())
    for ask in (get_algorithm_config, AlgorithmConfig, resolve_trainable):
        with pytest.raises(ValueError, match="there is no algorithm") as raised:
            ask(name.lower())
        assert str(raised.value) == f"there is no algorithm {name.lower()!r}: {ABSENT[name]}."
    for imported in (name, f"{name}Config", f"{name}Trainer"):
        with pytest.raises(ImportError) as raised:
            exec(f"from rllib import {imported}")
        assert str(raised.value) == f"cannot import name {imported!r} from 'rllib': {ABSENT[name]}."


SECTIONS = re.compile(r"\buse (\w+)(?: with|,.*? with)? ?(\.\w+\(.*?\))(?=[:,. ]|$)")


@pytest.mark.parametrize(("name", "advice"), [(name, text) for name, text in ABSENT.items() if SECTIONS.search(text)])
def test_the_settings_of_that_advice_are_taken(name, advice):
    used, words = SECTIONS.search(advice).groups()
    values = {"v_min=...": "v_min=-10", "v_max=...": "v_max=10"}
    words = re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], words)
    eval(f"get_algorithm_config({used!r}).environment('CartPole-v1'){words}").validate()


@pytest.mark.parametrize(
    ("package", "name", "told"),
    [
        ("rllib", "EvalCallback", ": use from rllib.callbacks import EvalCallback."),
        ("rllib", "PP0Config", ". Did you mean PPOConfig"),
        ("rllib.tune", "Tunerr", ". Did you mean Tuner"),
    ],
)
def test_a_name_that_is_not_there_is_told_with_what_is(package, name, told):
    module = importlib.import_module(package)
    with pytest.raises(ImportError) as raised:
        exec(f"from {package} import {name}")
    assert f"cannot import name {name!r} from {package!r}{told}" in str(raised.value)
    with pytest.raises(AttributeError) as raised:
        getattr(module, name)
    assert f"module {package!r} has no attribute {name!r}{told}" in str(raised.value)
    assert not hasattr(module, name)


def test_a_trainer_of_earlier_versions_is_the_algorithm():
    import rllib

    for name in algorithm_names():
        assert getattr(rllib, f"{name}Trainer") is getattr(rllib, name)
    assert not hasattr(rllib, "PPOOTrainer")


def test_modules_are_imported_from_the_package():
    from rllib import did_you_mean, tune

    assert (did_you_mean.__name__, tune.__name__) == ("rllib.did_you_mean", "rllib.tune")


def test_the_registry_loads_no_algorithm_by_itself():
    code = (
        "import rllib.algorithms.base.registry, sys; "
        "print('rllib.algorithms.ppo' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("algorithm", ["PPO", PPO])
def test_a_config_of_no_algorithm_becomes_that_of_the_one_it_is_given(algorithm):
    config = AlgorithmConfig(algo_class=algorithm).environment("CartPole-v1").training(clip_param=0.1)
    assert type(config) is PPOConfig
    assert config.lr == PPOConfig().lr
    with config.rollouts(num_rollout_workers=0).build() as algo:
        assert type(algo) is PPO


class OwnPPO(PPO):
    pass


def test_an_own_algorithm_has_a_default_config_that_builds_it():
    assert type(PPO.get_default_config()) is PPOConfig
    config = OwnPPO.get_default_config().rollouts(num_rollout_workers=0)
    with config.build(env="CartPole-v1") as algo:
        assert type(algo) is OwnPPO


class WithDefaults(PPO):
    @classmethod
    def get_default_config(cls):
        return super().get_default_config().training(lr=0.1, model={"fcnet_hiddens": [4]})


def test_a_subclass_may_override_its_default_config():
    for given, lr in ((None, 0.1), ({"gamma": 0.5}, 0.1), ({"lr": 0.2}, 0.2), (PPOConfig(), PPOConfig().lr)):
        with WithDefaults(given, env="CartPole-v1") as algo:
            assert algo.config.lr == lr
            assert (algo.config.model.get("fcnet_hiddens") == [4]) == (given is None or isinstance(given, dict))


class OwnConfig(PPOConfig):
    pass


class OwnPPOWithConfig(PPO):
    config_class = OwnConfig


def test_a_config_builds_the_algorithm_that_names_it():
    with OwnConfig().rollouts(num_rollout_workers=0).build(env="CartPole-v1") as algo:
        assert type(algo) is OwnPPOWithConfig
    assert OwnConfig.algo_class is OwnPPOWithConfig and PPOConfig.algo_class is PPO


def test_what_a_run_claims_is_told_for_tune():
    config = {"num_workers": 3, "evaluation_num_workers": 1, "num_cpus_per_worker": 2, "num_gpus_per_worker": 0.5}
    expected = {"cpu": 1, "gpu": 0, "extra_cpu": 8, "extra_gpu": 2, "extra_custom_resources": {}}
    assert PPO.default_resource_request(config) == expected
    assert PPO.default_resource_request(PPOConfig.from_dict(config)) == expected


def test_overrides_are_a_dict_of_checked_names():
    assert PPOConfig.overrides(explore=False, num_workers=2) == {"explore": False, "num_rollout_workers": 2}
    with pytest.raises(TypeError, match=r"has no setting 'explor'. Did you mean .exploration\(explore=...\)"):
        PPOConfig.overrides(explor=False)
