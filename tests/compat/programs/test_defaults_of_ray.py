"""Ray's params.json: what it writes for the defaults of each algorithm, of several versions, is accepted and trains."""

import copy
import json
from collections import defaultdict
from pathlib import Path

import pytest

from rllib.algorithms.base.registry import get_algorithm_config

DEFAULTS = json.loads((Path(__file__).parents[2] / "data" / "ray" / "defaults.json").read_text())
FILES: dict = defaultdict(dict)
for version, names in DEFAULTS.items():
    for name, entries in names.items():
        for value, algorithms in entries:
            for algorithm in algorithms.split():
                FILES[algorithm, version][name] = value
# What a file of defaults leaves to the user, or to the machine.
GIVEN = {"env": "CartPole-v1", "num_gpus": 0, "num_gpus_per_learner": 0}
OFFLINE = ("BC", "CQL", "MARWIL")


@pytest.mark.parametrize("algorithm, version", FILES)
def test_a_file_of_defaults_is_accepted(algorithm, version):
    config = get_algorithm_config(algorithm)
    config.update_from_dict(copy.deepcopy(FILES[algorithm, version]) | GIVEN)
    found = [mistake.problem for mistake in config.mistakes()]
    assert found == ([f"{algorithm} learns from recorded data, but input_='sampler'."] if algorithm in OFFLINE else [])


@pytest.mark.parametrize(
    "algorithm, version",
    [each if each[1] == "2.40.0" else pytest.param(*each, marks=pytest.mark.slow) for each in FILES],
)
def test_each_default_is_accepted_by_itself(algorithm, version):
    before = {mistake.problem for mistake in get_algorithm_config(algorithm).mistakes()}
    for name, value in FILES[algorithm, version].items():
        config = get_algorithm_config(algorithm)
        config.update_from_dict({name: copy.deepcopy(value)})
        mistakes = {mistake.problem for mistake in config.mistakes()} - before
        assert not mistakes or name in (*GIVEN, "input"), (name, value)


def test_a_file_of_defaults_trains():
    file = {**FILES["PPO", "2.40.0"], **GIVEN, "num_env_runners": 0, "train_batch_size": 200, "minibatch_size": 100}
    with get_algorithm_config("PPO").update_from_dict(file).build() as algorithm:
        assert algorithm.train()["training_iteration"] == 1
        assert algorithm.config.sgd_minibatch_size == 100


@pytest.mark.parametrize(
    "name, value",
    [("lr", -1), ("gamma", -1), ("num_workers", -2), ("callbacks", "<class 'mine.MyCallbacks'>"), ("_is_mine", None),
     ("train_batch_size", None), ("lambda", -1.0), ("worker_cls", "mine.Worker"), ("burn_in", -2)],
)  # fmt: skip
def test_what_ray_does_not_write_by_itself_is_refused(name, value):
    with pytest.raises((TypeError, ValueError)):
        get_algorithm_config("PPO").environment("CartPole-v1").update_from_dict({name: value}).validate()


def test_a_value_that_a_setting_can_have_counts():
    assert get_algorithm_config("PPO").update_from_dict({"lambda": 1.0}).lambda_ == 1.0
    config = get_algorithm_config("DQN").update_from_dict({"target_network_update_freq": 2})
    assert config.target_network_update_freq == 2
