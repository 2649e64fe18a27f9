"""What restores algorithms, policies and experiments takes paths and settings, and refuses other kinds of arguments."""

from functools import partial

import pytest

from rllib import Algorithm, DQNConfig, PPOConfig, load_policy, tune
from rllib.errors import CheckpointError
from rllib.policies import PolicySpec
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


@pytest.fixture(scope="module")
def of_dqn(tmp_path_factory):
    config = DQNConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    with config.training(model={"fcnet_hiddens": [4]}, hiddens=[], lr=0.1, gamma=0.9).build() as algorithm:
        return algorithm.save(tmp_path_factory.mktemp("dqn") / "checkpoint")


REPLAY = {"replay_buffer_config": {"storage": "disk"}}
# (config, overrides) -> what is set.
BOTH = [
    ({"training": {"gamma": 0.5}}, {"training": {"lr": 0.5}}, {"lr": 0.5, "gamma": 0.5}),
    ({"lr": 0.25, "gamma": 0.5}, {"training": {"lr": 0.5}}, {"lr": 0.5, "gamma": 0.5}),
    ({"training": {"lr": 0.25}}, {"lr": 0.5}, {"lr": 0.5, "gamma": 0.9}),
    (DQNConfig().training(gamma=0.5, lr=0.25), DQNConfig().training(lr=0.5), {"lr": 0.5, "gamma": 0.5}),
    ({"replay_buffer_config": {"prioritized_replay_alpha": 0.9}}, REPLAY, {"storage": "disk", "alpha": 0.9}),
    (REPLAY, {"prioritized_replay_alpha": 0.9}, {"storage": "disk", "alpha": 0.9}),
    ({"buffer_size": 2000}, {"replay_buffer_config": {"capacity": 3000}}, {"capacity": 3000}),
    ({"training": REPLAY}, {"training": {"replay_buffer_config": {"capacity": 3000}}}, {"storage": "disk"}),
]


@pytest.mark.parametrize("config, overrides, expected", BOTH)
def test_overrides_are_applied_after_config(of_dqn, config, overrides, expected):
    with Algorithm.from_checkpoint(of_dqn, overrides, config=config) as algorithm:
        replay = algorithm.config.replay_buffer_config
        have = {**algorithm.config.to_dict(), **replay, "alpha": replay["prioritized_replay_alpha"]}
        assert {name: have[name] for name in expected} == expected


@pytest.mark.parametrize("given", [["default_policy"], {"default_policy"}, "default_policy"], ids=str)
def test_the_only_policy_may_be_named(of_dqn, given):
    with Algorithm.from_checkpoint(of_dqn, policy_ids=given) as algorithm:
        assert list(algorithm.policies) == ["default_policy"] and algorithm.config.policies is None


@pytest.mark.parametrize("given", [["p0"], "p0", [], ["default_policy", "p0"]], ids=str)
def test_another_policy_than_the_only_one_is_refused(of_dqn, given):
    with pytest.raises(CheckpointError, match=r"policy_ids.* default_policy$"):
        Algorithm.from_checkpoint(of_dqn, policy_ids=given)


def test_of_a_config_counts_what_was_set_in_it(tmp_path):
    """In all that takes a config for a dict: values that equal the defaults too, others not."""
    given = PPOConfig().training(lr=PPOConfig().lr)
    meant = {"lr": given.lr}
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0).training(lr=0.5, gamma=0.5)
    with config.training(model={"fcnet_hiddens": [4]}).build() as algorithm:
        checkpoint = algorithm.save(tmp_path / "checkpoint")
    assert PolicySpec(config=given).config == meant
    changed = config.copy(copy_frozen=False).update_from_dict(given)
    assert (changed.lr, changed.gamma, changed.model) == (given.lr, 0.5, config.model)
    assert PPOConfig.from_dict(given).given() == meant
    with Algorithm.from_checkpoint(checkpoint, given) as algorithm:
        assert (algorithm.config.lr, algorithm.config.gamma) == (given.lr, 0.5)
    explores = PPOConfig().exploration(explore=True)
    assert PPOConfig().evaluation(evaluation_config=explores).evaluation_config == {"explore": True}
    of_other = PPOConfig().update_from_dict(DQNConfig().training(gamma=0.5))
    assert of_other.changes() == {"gamma": 0.5}


@pytest.mark.parametrize("lacks", [[], ["env"], ["env", "lr", "gamma"]])
def test_of_a_dict_of_most_settings_count_those_that_are_no_defaults(lacks):
    """For policies and evaluations, where the others belong to the run or cannot be changed."""

    def read(config):
        settings = config.to_dict()
        return PPOConfig.from_dict({name: value for name, value in settings.items() if name not in lacks})

    assert PolicySpec(config=read(PPOConfig().training(entropy_coeff=0.1))).config == {"entropy_coeff": 0.1}
    config = PPOConfig().environment("CartPole-v1")
    config.evaluation(evaluation_config=read(PPOConfig().exploration(explore=False)))
    assert config.evaluation_config == {"explore": False}
    config.validate()
