"""model={"custom_model": ...}: networks of the user's in the algorithms, their workers and their checkpoints."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from rllib import A2C, DQN, ES, PPO, PQN, Algorithm, AlgorithmConfig, Policy, register_model
from rllib.algorithms.dqn import Rainbow
from rllib.errors import CheckpointError
from tests.algorithms.test_recall import Recall
from tests.envs import MaskedProbe, MatchObservation


class Net(nn.Module):
    def __init__(self, observation_space, action_space, num_outputs, width=16):
        super().__init__()
        self.first = nn.Linear(observation_space.shape[0], width)
        self.policy, self.value = nn.Linear(width, num_outputs), nn.Linear(width, 1)

    def forward(self, observation):
        h = torch.tanh(self.first(observation))
        return self.policy(h), self.value(h).squeeze(-1)


class Q(nn.Module):
    """Action values alone."""

    def __init__(self, observation_space, action_space, num_outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(observation_space.shape[0], 16), nn.ReLU(), nn.Linear(16, num_outputs))

    def forward(self, observation):
        return self.layers(observation)


class Cell(nn.Module):
    """Remembers by an LSTM, whose state are two tensors."""

    def __init__(self, observation_space, action_space, num_outputs, size=16):
        super().__init__()
        self.cell, self.size = nn.LSTMCell(observation_space.shape[0], size), size
        self.policy, self.value = nn.Linear(size, num_outputs), nn.Linear(size, 1)

    def initial_state(self):
        return [torch.zeros(self.size), torch.zeros(self.size)]

    def forward(self, observation, state):
        h, c = self.cell(observation, tuple(state))
        return self.policy(h), self.value(h).squeeze(-1), [h, c]


@pytest.fixture(autouse=True)
def one_thread():
    """Operations this small are slower on several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def config(algorithm, model, env=MatchObservation, **training) -> AlgorithmConfig:
    config = AlgorithmConfig(algo_class=algorithm).environment(env).debugging(seed=3)
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=8, rollout_fragment_length=20)
    config.training(model=model, **{"train_batch_size": 160, "lr": 0.02, "gamma": 0.9, **training})
    return config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=160)


PPO_SETTINGS = {"sgd_minibatch_size": 80, "num_sgd_iter": 5}


def test_a_registered_model_learns_in_workers_with_one_thread_each():
    register_model("net", Net)
    model = {"custom_model": "net", "custom_model_config": {"width": 8}}
    settings = config(PPO, model, **PPO_SETTINGS).rollouts(num_rollout_workers=2, num_envs_per_worker=4)
    with settings.build() as algo:
        for _ in range(8):
            algo.train()
        assert algo.workers.foreach_worker(lambda worker: torch.get_num_threads()) == [1, 1]
        assert algo.policy.parameters()["first.weight"].shape == (8, 1)
        assert algo.evaluate(100)["episode_reward_mean"] > 0.9


@pytest.mark.parametrize(
    ("algorithm", "training"),
    [(DQN, {"num_steps_sampled_before_learning_starts": 100, "hiddens": []}), (DQN, {"num_atoms": 5}), (PQN, {})],
)
def test_action_values_need_no_value(algorithm, training):
    with config(algorithm, {"custom_model": Q}, **training).build() as algo:
        assert algo.policy.gives_values
        algo.train()
        assert algo.compute_single_action(np.zeros(1, np.float32)) in (0, 1)


class OfMasked(nn.Module):
    """Reads MaskedProbe, and gives action values alone."""

    def __init__(self, observation_space, action_space, num_outputs):
        super().__init__()
        self.layer = nn.Linear(5, num_outputs)

    def forward(self, observation):
        return self.layer(torch.cat([observation["action_mask"].float(), observation["observations"]], 1))


@pytest.mark.parametrize(
    ("algorithm", "training"),
    [
        (DQN, {"num_quantiles": 5}),
        (DQN, {"munchausen_alpha": 0.9, "double_q": False}),
        (Rainbow, {"noisy": False, "v_min": 0.0, "v_max": 3.0}),
    ],
)
def test_action_values_of_dicts_with_masks(algorithm, training):
    """An illegal action raises."""
    start = {"num_steps_sampled_before_learning_starts": 40, "train_batch_size": 32}
    with config(algorithm, {"custom_model": OfMasked}, MaskedProbe, **start, **training).build() as algo:
        before = algo.policy.weights.copy()
        algo.train()
        assert (algo.policy.weights != before).any()


def test_a_memory_of_several_tensors_answers_right():
    training = {"train_batch_size": 640, "lr": 0.01, "sgd_minibatch_size": 160, "num_sgd_iter": 6}
    settings = config(PPO, {"custom_model": Cell}, Recall, **training, entropy_coeff=0.01)
    with settings.rollouts(num_envs_per_worker=16).build() as algo:
        for _ in range(12):
            algo.train()
        assert algo.evaluate(200)["episode_reward_mean"] > 0.95


@pytest.mark.parametrize(
    ("algorithm", "model", "training", "match"),
    [
        (PPO, Q, {}, r"the custom model Q cannot be used: forward\(\) must return \(dist_inputs, values\)"),
        (Rainbow, Q, {}, "noisy=True puts noise into layers of the built-in network"),
        (DQN, Cell, {}, "cannot train a policy with a memory"),
        (PPO, Net, {"learner": "numpy"}, "without one. Use learner='torch'"),
        (PPO, "nothing", {}, "'nothing' is no registered name"),
    ],
)
def test_what_cannot_be_built(algorithm, model, training, match):
    with pytest.raises(ValueError, match=match):
        config(algorithm, {"custom_model": model}, **training).build()


def test_evolution_is_refused():
    settings = AlgorithmConfig(algo_class=ES).environment(MatchObservation).training(model={"custom_model": Net})
    with pytest.raises(ValueError, match="ES perturbs the built-in fully connected networks"):
        settings.build()


class Spoils(Net):
    """Its values are NaN for observations of 1."""

    def forward(self, observation):
        dist_inputs, values = super().forward(observation)
        return dist_inputs, values.where(observation[:, 0] != 1, torch.nan)


def test_values_that_are_not_finite_are_named_where_they_arise():
    settings = config(PPO, {"custom_model": Spoils}, **PPO_SETTINGS)
    match = r"vf_preds of environment . .*nan; Spoils overflowed"
    with settings.build() as algo, pytest.raises(ValueError, match=match):
        algo.train()


def test_parameter_noise_is_refused():
    settings = config(PQN, {"custom_model": Q}).exploration(exploration_config={"type": "ParameterNoise"})
    with pytest.raises(ValueError, match="Use another exploration than ParameterNoise"):
        settings.build()


def test_checkpoints(tmp_path):
    with config(A2C, {"custom_model": Net}).build() as algo:
        algo.train()
        saved, alone = algo.save(tmp_path / "whole"), algo.export_policy_model(tmp_path / "alone")
        weights = algo.policy.weights.copy()
        with config(A2C, {"custom_model": Net}).build() as other:
            other.restore(saved)
            np.testing.assert_array_equal(other.policy.weights, weights)
    with pytest.raises(CheckpointError, match=r"model\['custom_model'\].*Net.*load_user_code=True"):
        Algorithm.from_checkpoint(saved)
    with Algorithm.from_checkpoint(saved, load_user_code=True) as other:
        np.testing.assert_array_equal(other.policy.weights, weights)
        other.train()
    with pytest.raises(CheckpointError, match=r"code of yours \(class=.*model=.*Net.*load_user_code=True"):
        Policy.from_checkpoint(alone)
    policy = Policy.from_checkpoint(alone, load_user_code=True)
    rows = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(policy.dist_inputs(rows), algo.policy.dist_inputs(rows))


def test_a_checkpoint_of_a_registered_model_needs_its_name_alone(tmp_path):
    register_model("saved net", Net)
    with config(A2C, {"custom_model": "saved net"}).build() as algo:
        saved = algo.save(tmp_path)
    with Algorithm.from_checkpoint(saved) as other:
        np.testing.assert_array_equal(other.policy.weights, algo.policy.weights)


def test_a_filter_and_images_and_continuous_actions():
    class Pixels(gym.Env):
        observation_space = gym.spaces.Box(0, 255, (6, 6, 1), np.uint8)
        action_space = gym.spaces.Box(-1, 1, (2,))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action):
            return self.observation_space.sample(), float(-np.square(action).sum()), False, True, {}

    class OfPixels(Net):
        def forward(self, observation):
            assert observation.shape[1:] == (6, 6, 1)
            return super().forward(observation.float().mean((1, 2)) / 255)

        def __init__(self, observation_space, action_space, num_outputs):
            super().__init__(gym.spaces.Box(0, 1, (1,)), action_space, num_outputs)

    for observation_filter in ("NoFilter", "MeanStdFilter"):
        settings = config(PPO, {"custom_model": OfPixels}, Pixels, **PPO_SETTINGS)
        with settings.rollouts(observation_filter=observation_filter).build() as algo:
            assert np.isfinite(algo.train()["info"]["learner"]["default_policy"]["learner_stats"]["total_loss"])
