"""What restores algorithms, policies and experiments takes paths and settings, and refuses other kinds of arguments."""

from functools import partial

import pytest

from rllib import Algorithm, PPOConfig, load_policy, tune
from rllib.policy import Policy

READERS = {
    "Algorithm.from_checkpoint": Algorithm.from_checkpoint,
    "Algorithm.restore": lambda path: Algorithm.restore(None, path),
    "Policy.from_checkpoint": Policy.from_checkpoint,
    "load_policy": load_policy,
    "Tuner.restore": lambda path: tune.Tuner.restore(path, "PPO"),
    "ExperimentAnalysis": tune.ExperimentAnalysis,
}


@pytest.mark.parametrize("given", [None, 5, [1], {"lr": 1}], ids=str)
@pytest.mark.parametrize("reader", READERS)
def test_what_reads_a_path_says_what_a_path_is(reader, given):
    with pytest.raises(TypeError, match=r"a path must be a string or a pathlib.Path, .* but got"):
        READERS[reader](given)


@pytest.mark.parametrize("given", [5, [1], "PPO", {1}], ids=str)
def test_what_takes_settings_says_what_they_are(given):
    takers = [partial(Algorithm.from_checkpoint, "checkpoint", **{name: given}) for name in ("overrides", "config")]
    takers += [partial(tune.Tuner, "PPO", **{name: given}) for name in ("param_space", "tune_config", "run_config")]
    for take in (*takers, partial(PPOConfig.from_dict, given), partial(PPOConfig().update_from_dict, given)):
        with pytest.raises(TypeError, match=r"(must be|takes) a (dict of|tune\.).* but got"):
            take()


def test_a_config_as_overrides_changes_what_it_was_given(tmp_path):
    config = PPOConfig().environment("CartPole-v1").training(lr=0.5, model={"fcnet_hiddens": [4]})
    with config.build() as algorithm:
        checkpoint = algorithm.save(tmp_path / "checkpoint")
    with Algorithm.from_checkpoint(checkpoint, PPOConfig().training(gamma=0.5)) as algorithm:
        assert (algorithm.config.lr, algorithm.config.gamma) == (0.5, 0.5)
