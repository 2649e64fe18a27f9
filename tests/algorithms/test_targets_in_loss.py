"""Q-learning on GPUs and of images: the loss computes its targets itself, and they are those computed before it."""

import numpy as np
import pytest

from rllib.algorithms.dqn import DQN, DQNConfig
from rllib.algorithms.families.off_policy import OffPolicyTrainee
from rllib.algorithms.families.q_learning import QTrainee
from rllib.losses.td import with_targets
from rllib.sample_batch import REWARDS
from tests.envs import MaskedProbe, MatchPicture, ProbeEnv
from tests.gpu import needs_gpu

KINDS = {
    "plain": {"double_q": False, "dueling": False},
    "double, dueling": {"double_q": True, "dueling": True},
    "squared": {"td_error_loss_fn": "mse"},
    "distributional": {"num_atoms": 21, "v_min": -1.0, "v_max": 6.0},
    "quantiles": {"num_quantiles": 9},
    "munchausen": {"munchausen_alpha": 0.9, "double_q": False, "num_quantiles": 5},
    "noisy": {"noisy": True, "hiddens": [16]},
    "prioritised": {"replay_buffer_config": {"type": "PrioritizedReplayBuffer"}, "n_step": 3},
}


class FiveStates(ProbeEnv):
    """Steps through the states 0, 0.2, ..., 0.8; action 1 is worth 1, action 0 ends the episode with nothing."""

    def follow(self, action):
        return self.t / 5, float(action), action == 0 or self.t == 5, False


class LearnsInLoss(QTrainee):
    """A policy that learns as on a GPU."""

    def whole_loss(self):
        return with_targets(super().whole_loss(), self.config.double_q, self.config.munchausen)

    def add_targets(self, batch):
        raise AssertionError("these targets are computed twice")


class InLoss(DQN):
    """DQN as it is on a GPU."""

    trainee_class = LearnsInLoss


class LearnsInBatch(QTrainee):
    """A policy that learns as without images: the batch brings its targets."""

    def whole_loss(self):
        return OffPolicyTrainee.whole_loss(self)


class InBatch(DQN):
    """DQN as it is without images."""

    trainee_class = LearnsInBatch


def make_config(env=FiveStates, **training):
    settings = {
        "learner": "torch", "lr": 3e-3, "gamma": 0.9, "hiddens": [], "model": {"fcnet_hiddens": [32]},
        "target_network_update_freq": 50, "num_steps_sampled_before_learning_starts": 100,
        "replay_buffer_config": {"type": "ReplayBuffer"}, **training,
    }  # fmt: skip
    return (
        DQNConfig()
        .environment(env)
        .rollouts(rollout_fragment_length=4)
        .training(**settings)
        .reporting(min_sample_timesteps_per_iteration=200)
        .debugging(seed=5)
    )


def trained(algorithm, config):
    """The weights after 75 updates, and the statistics of the last."""
    with algorithm(config) as algo:
        for _ in range(2):
            result = algo.train()
        stats = result["info/learner/default_policy/learner_stats"]
        return algo.get_weights()["default_policy"], [stats[name] for name in ("total_loss", "mean_q", "mean_td_error")]


def assert_equal_runs(ours, other, atol):
    np.testing.assert_allclose(ours[0], other[0], atol=atol)
    np.testing.assert_allclose(ours[1], other[1], rtol=1e-3, atol=atol)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_with_its_targets_trains_as_with_those_of_the_batch(kind):
    config = make_config(**KINDS[kind])
    assert_equal_runs(trained(InLoss, config), trained(DQN, config), atol=2e-5)


@pytest.mark.parametrize("atoms", [{}, {"num_atoms": 11, "v_min": 0.0, "v_max": 2.0}, {"num_quantiles": 5}], ids=str)
def test_illegal_actions_are_not_chosen(atoms):
    config = make_config(MaskedProbe, **atoms)
    assert_equal_runs(trained(InLoss, config), trained(DQN, config), atol=2e-5)


@pytest.mark.parametrize("kind", ["double, dueling", "distributional", "noisy", "prioritised"])
def test_images_train_as_with_the_targets_of_the_batch(kind):
    model = {"conv_filters": [[4, 3, 2]], "fcnet_hiddens": [16]}
    config = make_config(lambda _: MatchPicture({"size": 8, "truncated": True}), **{"model": model, **KINDS[kind]})
    with config.build() as algo:
        assert algo.learner.objectives[0].is_over_modules
    assert_equal_runs(trained(DQN, config), trained(InBatch, config), atol=2e-5)


def test_two_learners_have_the_noise_of_the_target_network():
    config = make_config(noisy=True, hiddens=[16])
    both = config.copy().learners(num_learners=2)
    assert_equal_runs(trained(InLoss, both), trained(DQN, config), atol=2e-5)


def test_a_loss_that_reads_what_its_targets_are_made_of_gets_it_once():
    loss = type("Reads", (), {"columns": (REWARDS, "td_targets", "weights"), "stats": (), "row_stats": ()})()
    assert with_targets(loss, double_q=True).columns == (REWARDS, "weights", "new_obs", "discounts")


@needs_gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_trains_as_the_cpu_does(kind):
    config = make_config(**KINDS[kind])
    on_gpu = config.copy().resources(num_gpus=1)
    with on_gpu.build() as algo:
        assert algo.learner.objectives[0].is_over_modules
    assert_equal_runs(trained(DQN, on_gpu), trained(DQN, config), atol=1e-3)


@needs_gpu
@pytest.mark.parametrize("setting", [{"custom_loss": lambda loss, rows, outputs, model: loss}, {"num_atoms": 1}])
def test_functions_of_the_users_get_the_targets_as_columns_on_a_gpu_too(setting):
    with make_config(**setting).resources(num_gpus=1).build() as algo:
        algo.train()
        assert algo.learner.objectives[0].is_over_modules == ("custom_loss" not in setting)


class LearnsSeven(QTrainee):
    """A policy whose values are fitted to 7."""

    def learn_from(self, batch, *, lr):
        batch["td_targets"] = np.full(len(batch[REWARDS]), 7, np.float32)
        return self.learn_on_batch(batch, lr=lr, shuffle=False)


class OwnTargets(DQN):
    """DQN with targets of its own."""

    trainee_class = LearnsSeven


def test_targets_of_a_subclass_are_those_that_images_are_fitted_to():
    config = make_config(MatchPicture, num_steps_sampled_before_learning_starts=50, model={"fcnet_hiddens": []})
    config.reporting(min_sample_timesteps_per_iteration=400)
    with OwnTargets(config) as algo:
        for _ in range(3):
            result = algo.train()
    stats = result["info"]["learner"]["default_policy"]["learner_stats"]
    assert stats["mean_q"] > 3
