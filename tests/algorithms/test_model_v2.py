"""Networks written for RLlib's TorchModelV2, as its examples have them."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn

from rllib import DQN, PPO, Algorithm, ModelCatalog
from rllib.models.catalog.catalog import policy_spec
from rllib.models.user.model_v2 import FLOAT_MAX, FLOAT_MIN, RecurrentNetwork, TorchFC, TorchModelV2
from rllib.policy import Policy
from tests.algorithms.test_custom_networks import PPO_SETTINGS, config
from tests.algorithms.test_recall import Recall

torch.set_num_threads(1)


class Choose(gym.Env):
    """One step: reward 1 for the slot that holds the vector of the cue; the last slot is never legal, and costs 100."""

    observation_space = Dict(
        {"action_mask": Box(0, 1, (3,)), "avail_actions": Box(-1, 1, (3, 2)), "cart": Box(-1, 1, (1,))}
    )
    action_space = Discrete(3)

    def __init__(self, config=None):
        pass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        cue, self.right = self.np_random.choice([-1.0, 1.0]), int(self.np_random.integers(2))
        slots = np.zeros((3, 2), np.float32)
        slots[self.right], slots[1 - self.right] = (cue, 0), (-cue, 0)
        mask = np.array([1, 1, 0], np.float32)
        self.last = {"action_mask": mask, "avail_actions": slots, "cart": np.array([cue], np.float32)}
        return self.last, {}

    def step(self, action):
        return self.last, -100.0 if action == 2 else float(action == self.right), True, False, {}


class ParametricActions(TorchModelV2, nn.Module):
    """RLlib's example parametric_actions_model.py: logits are products of an intent with the actions' embeddings."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, true_obs_shape=(1,), embed_size=2):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        assert obs_space.original_space["cart"].shape == true_obs_shape and obs_space.shape == (10,)
        self.embed = TorchFC(Box(-1, 1, true_obs_shape), action_space, embed_size, model_config, name + "_embed")

    def forward(self, input_dict, state, seq_lens):
        intent, _ = self.embed({"obs": input_dict["obs"]["cart"]})
        logits = torch.sum(input_dict["obs"]["avail_actions"] * intent.unsqueeze(1), dim=2)
        return logits + torch.clamp(torch.log(input_dict["obs"]["action_mask"]), FLOAT_MIN, FLOAT_MAX), state

    def value_function(self):
        return self.embed.value_function()


class MaskedModel(TorchModelV2, nn.Module):
    """RLlib's example action_mask_model.py."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, **kwargs):
        original = getattr(obs_space, "original_space", obs_space)
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name, **kwargs)
        nn.Module.__init__(self)
        self.internal = TorchFC(original["avail_actions"], action_space, num_outputs, model_config, name + "_internal")
        self.no_masking = model_config["custom_model_config"].get("no_masking", False)

    def forward(self, input_dict, state, seq_lens):
        logits, _ = self.internal({"obs": input_dict["obs"]["avail_actions"]})
        if self.no_masking:
            return logits, state
        return logits + torch.clamp(torch.log(input_dict["obs"]["action_mask"]), min=FLOAT_MIN), state

    def value_function(self):
        return self.internal.value_function()


class Recurrent(RecurrentNetwork, nn.Module):
    """RLlib's example rnn_model.py."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, fc_size=16, lstm_state_size=16):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.lstm_state_size = lstm_state_size
        self.fc1 = nn.Linear(gym.spaces.flatdim(obs_space), fc_size)
        self.lstm = nn.LSTM(fc_size, lstm_state_size, batch_first=True)
        self.action_branch, self.value_branch = nn.Linear(lstm_state_size, num_outputs), nn.Linear(lstm_state_size, 1)
        self._features = None

    def get_initial_state(self):
        return [self.fc1.weight.new(1, self.lstm_state_size).zero_().squeeze(0) for _ in range(2)]

    def value_function(self):
        return torch.reshape(self.value_branch(self._features), [-1])

    def forward_rnn(self, inputs, state, seq_lens):
        assert inputs.shape[1] == 1 and seq_lens.tolist() == [1] * len(inputs)
        x = nn.functional.relu(self.fc1(inputs))
        self._features, [h, c] = self.lstm(x, [torch.unsqueeze(state[0], 0), torch.unsqueeze(state[1], 0)])
        return self.action_branch(self._features), [torch.squeeze(h, 0), torch.squeeze(c, 0)]


def test_parametric_actions():
    ModelCatalog.register_custom_model("parametric", ParametricActions)
    model = {"custom_model": "parametric", "custom_model_config": {"embed_size": 2}, "fcnet_hiddens": [16]}
    with config(PPO, model, Choose, **PPO_SETTINGS).build() as algo:
        for _ in range(12):
            algo.train()
        assert algo.evaluate(100)["episode_reward_mean"] > 0.95


def test_parametric_action_values():
    """As in RLlib's example: without a dueling head the outputs are the action values."""
    training = {"hiddens": [], "dueling": False, "num_steps_sampled_before_learning_starts": 100}
    with config(DQN, {"custom_model": ParametricActions, "fcnet_hiddens": [16]}, Choose, **training).build() as algo:
        algo.train()
        observation, _ = Choose().reset(seed=0)
        assert algo.compute_single_action(observation, explore=False) in (0, 1)


@pytest.mark.parametrize("no_masking", [False, True])
def test_a_mask(no_masking):
    model = {"custom_model": MaskedModel, "custom_model_config": {"no_masking": no_masking}, "fcnet_hiddens": [16]}
    policy = Policy(policy_spec(Choose.observation_space, Choose.action_space, model), rng=np.random.default_rng(0))
    policy.spec.check()
    rows = np.zeros((50, 10), np.float32)
    rows[:, :2] = 1  # the mask comes first, by its name
    batch = policy.distribution.at(policy.dist_inputs(rows))
    assert (batch.probabilities[:, 2] == 0).all() != no_masking and np.isfinite(batch.entropy()).all()


def test_a_memory():
    """The learner makes sure that sequences give the probabilities that acted step by step."""
    with config(PPO, {"custom_model": Recurrent}, Recall, **PPO_SETTINGS).build() as algo:
        assert np.isfinite(algo.train()["info"]["learner"]["default_policy"]["learner_stats"]["total_loss"])
        state = algo.get_policy().get_initial_state()
        _, state, _ = algo.compute_single_action(np.ones(1, np.float32), state)
        assert [part.shape for part in state] == [(16,), (16,)]


def test_one_hot_and_flat_observations():
    class Looks(TorchFC):
        def forward(self, input_dict, state, seq_lens):
            assert input_dict["obs"].shape[1:] == input_dict["obs_flat"].shape[1:] == (4,)
            assert (input_dict["obs"].sum(1) == 1).all() and self.obs_space.original_space == Discrete(4)
            return super().forward(input_dict, state, seq_lens)

    model = {"custom_model": Looks, "fcnet_hiddens": [8], "vf_share_layers": False}
    spec = policy_spec(Discrete(4), Discrete(2), model)
    spec.check()
    policy = Policy(spec, rng=np.random.default_rng(0))
    assert policy.values(np.arange(4)).shape == (4,)
    assert "value_hidden.0.weight" in policy.parameters()


def test_its_own_loss_is_used():
    class Decays(TorchFC):
        def custom_loss(self, policy_loss, loss_inputs):
            assert loss_inputs["obs"].shape[1:] == (1,)
            return [policy_loss + 100 * sum(parameter.square().sum() for parameter in self.parameters())]

    with config(PPO, {"custom_model": Decays, "fcnet_hiddens": [8]}, **PPO_SETTINGS).build() as algo:
        before = np.square(algo.policy.weights).sum()
        for _ in range(5):
            algo.train()
        assert np.square(algo.policy.weights).sum() < 0.1 * before


def test_a_checkpoint_is_restored(tmp_path):
    with config(PPO, {"custom_model": Recurrent}, Recall, **PPO_SETTINGS).build() as algo:
        saved = algo.save(tmp_path)
    with Algorithm.from_checkpoint(saved, load_user_code=True) as other:
        np.testing.assert_array_equal(other.policy.weights, algo.policy.weights)
    (policy,) = Policy.from_checkpoint(saved, load_user_code=True).values()
    assert [part.shape for part in policy.get_initial_state()] == [(16,), (16,)]


def test_what_is_wrong_is_named():
    class NoValue(TorchFC):
        def value_function(self):
            return super().value_function()[:, None]

    spec = policy_spec(Box(-1, 1, (3,)), Discrete(2), {"custom_model": NoValue})
    with pytest.raises(ValueError, match=r"NoValue cannot be used: values must be .*Return values\.squeeze\(-1\)"):
        spec.check()


@pytest.mark.parametrize("reads", ["arguments", "model_config"])
def test_settings_of_its_own_come_as_arguments_or_in_the_model_config(reads):
    class Net(TorchFC):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name, **own):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.extra = nn.Linear(own["width"], 1)

    class NetOfFive(Net):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            own = model_config["custom_model_config"]
            super().__init__(obs_space, action_space, num_outputs, model_config, name, **own)

    class NetWithAName(Net):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name, widht=1):
            super().__init__(obs_space, action_space, num_outputs, model_config, name, width=widht)

    def built(network):
        model = {"custom_model": network, "custom_model_config": {"width": 7}, "fcnet_hiddens": [4]}
        return policy_spec(Box(-1, 1, (3,)), Discrete(2), model).layout().make().extra.in_features

    assert built(Net if reads == "arguments" else NetOfFive) == 7
    with pytest.raises(TypeError, match="width"):
        built(NetWithAName)
