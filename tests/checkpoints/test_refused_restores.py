"""A checkpoint that does not fit is refused with the settings that it fits to, and the algorithm stays as it was.

Others change without a refusal.
"""

import numpy as np
import pytest

from rllib import Algorithm, ApexDQNConfig, BCConfig, DQNConfig, PPOConfig, SACConfig
from rllib.config.conflicts import Unfit
from tests.multi_agent import NameTheSignal

LATER = {"num_steps_sampled_before_learning_starts": 8, "train_batch_size": 8}


def built(cls, **settings):
    config = cls().environment("CartPole-v1").rollouts(num_rollout_workers=0).debugging(seed=1)
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=100)
    own = {
        PPOConfig: {"train_batch_size": 40, "sgd_minibatch_size": 20, "num_sgd_iter": 1},
        DQNConfig: LATER,
        ApexDQNConfig: {**LATER, "num_replay_buffer_shards": 1, "num_rollout_workers": 1},
    }[cls]
    return config.training(model={"fcnet_hiddens": [4]}).update_from_dict({**own, **settings}).build()


def with_previous(env, spaces, device):
    """Connectors of observations."""
    from rllib.core import PrevActionsPrevRewards

    return [PrevActionsPrevRewards()]


STORED = {"store_buffer_in_checkpoints": True}
# Class, settings of the saved run, others of the one that is to go on, and the setting that the remedy names.
REFUSED = {
    "optimizer": (PPOConfig, {}, {"opt_type": "sgd"}, "opt_type"),
    "filter": (PPOConfig, {}, {"observation_filter": "MeanStdFilter"}, "observation_filter"),
    "observations": (PPOConfig, {}, {"env_wrappers": ["TimeAwareObservation"]}, "env_wrappers"),
    "connectors": (PPOConfig, {}, {"env_to_module_connector": with_previous}, "env_to_module_connector"),
    "network": (PPOConfig, {}, {"model": {"fcnet_hiddens": [5]}}, "model"),
    "rows": (DQNConfig, {**STORED, "n_step": 3, "gamma": 0.9}, {"gamma": 0.5}, "gamma"),
    "novelty": (
        PPOConfig,
        {"exploration_config": {"type": "RND", "embed_dim": 8, "distill_net_config": {"fcnet_hiddens": [8]}}},
        {"exploration_config": {"type": "RND", "embed_dim": 6, "distill_net_config": {"fcnet_hiddens": [8]}}},
        "exploration_config",
    ),
    "a key of a network": (PPOConfig, {}, {"model": {"use_lstm": True, "lstm_cell_size": 4}}, "model"),
    "capacity of shards": (
        ApexDQNConfig,
        {**STORED, "replay_buffer_config": {"capacity": 100}},
        {"replay_buffer_config": {"capacity": 70}},
        "replay_buffer_config",
    ),
    "capacity": (DQNConfig, STORED, {"replay_buffer_config": {"capacity": 70}}, "replay_buffer_config"),
}


def numbers(algorithm) -> dict:
    """All numbers of a run that learn, count, or are drawn."""
    state = algorithm.get_state()
    learned = {name: files for name, files in state.items() if name.endswith(".safetensors")}
    if "num_replay_buffer_shards" in algorithm.config:  # its workers go on meanwhile
        return {name: files for name, files in learned.items() if "replay" not in name}
    return {**learned, "counts": state["algorithm.json"]["metrics"], "random": state["rng.json"]}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_checkpoint_changes_nothing(name, tmp_path):
    cls, saved, own, setting = REFUSED[name]
    with built(cls, **saved) as saving:
        saving.train()
        path = saving.save(tmp_path / "run")
    with built(cls, **{**saved, **own}) as algorithm:
        algorithm.train()
        before = numbers(algorithm)
        with pytest.raises(Unfit) as failure:
            algorithm.restore(path)
        np.testing.assert_equal(numbers(algorithm), before)
        assert algorithm.train()["training_iteration"] == 2
    with pytest.raises(Unfit) as failure:
        Algorithm.from_checkpoint(path, own)
    remedy = failure.value.mistake.remedies[0]
    assert setting in remedy
    with Algorithm.from_checkpoint(path, {**own, **remedy}) as algorithm:
        assert algorithm.train()["training_iteration"] == 2


@pytest.mark.parametrize("saved", [True, False])
def test_a_filter_of_recorded_data_is_refused_by_the_setting_it_follows_from(tmp_path, saved):
    with built(PPOConfig, output=str(tmp_path / "steps")) as algorithm:
        algorithm.train()
    config = BCConfig().environment("CartPole-v1").training(train_batch_size=20, model={"fcnet_hiddens": [4]})
    with config.offline_data(input_=str(tmp_path / "steps"), normalize_observations=saved).build() as algorithm:
        path = algorithm.save(tmp_path / "run")
    with pytest.raises(Unfit) as failure:
        Algorithm.from_checkpoint(path, {"normalize_observations": not saved})
    assert failure.value.mistake.remedies == ({"normalize_observations": saved},)
    assert "observation_filter" not in str(failure.value)


@pytest.mark.parametrize("policies", [["other", "unused"], ["first", "other"]])
def test_a_checkpoint_of_other_policies_changes_none(policies, tmp_path):
    def several(policies, mapping):
        config = PPOConfig().environment(NameTheSignal, env_config={"sizes": (3, 3)}).rollouts(num_rollout_workers=0)
        config.training(train_batch_size=40, sgd_minibatch_size=20, num_sgd_iter=1).debugging(seed=1)
        return config.multi_agent(policies=policies, policy_mapping_fn=mapping).build()

    with several(policies, policies[0]) as saving:
        path = saving.save(tmp_path / "run")
    with several(["first", "second"], "first") as algorithm:
        algorithm.add_policy("new", policy_mapping_fn="new", policies_to_train=["first", "new"])
        algorithm.train()
        before, there = numbers(algorithm), list(algorithm.policies)
        with pytest.raises(ValueError, match="the checkpoint has no policy"):
            algorithm.restore(path)
        assert list(algorithm.policies) == there and sorted(algorithm.learners) == ["first", "new"]
        np.testing.assert_equal(numbers(algorithm), before)
        assert algorithm.train()["training_iteration"] == 2


@pytest.mark.parametrize(
    ("saved", "own"), [("normalize_returns", "scale_rewards"), ("scale_rewards", "normalize_returns")]
)
def test_statistics_of_returns_go_on_where_they_scale_otherwise(saved, own, tmp_path):
    """Both divide by the deviation of returns, before rewards are stored or when they are learned from."""
    config = SACConfig().environment("Pendulum-v1").rollouts(num_rollout_workers=0).training(**LATER)
    config.training(model={"fcnet_hiddens": [4]}).update_from_dict(
        {saved: True, "seed": 1, "min_time_s_per_iteration": 0}
    )
    with config.build() as saving:
        saving.train()
        path, scale = saving.save(tmp_path / "run"), saving.trainees["default_policy"].return_scale
    with Algorithm.from_checkpoint(path, {saved: False, own: True}) as algorithm:
        restored = algorithm.trainees["default_policy"].return_scale
        assert restored.variance == scale.variance > 0
        assert getattr(restored, "largest", 1) > 0
        assert algorithm.train()["training_iteration"] == 2


KINDS = ["EpsilonGreedy", "Random", "ParameterNoise", "SoftQ"]


@pytest.mark.parametrize(
    ("saved", "own"), [(a, b) for a in KINDS for b in KINDS if "ParameterNoise" in (a, b) and a != b]
)
def test_a_run_goes_on_with_another_exploration(saved, own, tmp_path):
    with built(DQNConfig, exploration_config={"type": saved}) as saving:
        saving.train()
        path = saving.save(tmp_path / "run")
    with Algorithm.from_checkpoint(path, {"exploration_config": {"type": own}}) as algorithm:
        assert algorithm.train()["training_iteration"] == 2
