"""From spaces and model settings to a policy's description, and what is refused."""

import json
import pickle

import gymnasium as gym
import numpy as np
import pytest
from torch import nn

from rllib import PPOConfig, SACConfig
from rllib.models.architectures import spec_from_json
from rllib.models.attention.spec import Attention
from rllib.models.catalog.catalog import policy_spec
from rllib.models.distributions.standard import Categorical, DiagGaussian, MultiCategorical
from rllib.models.memory.spec import Memory
from rllib.models.model_settings import ModelSettings
from rllib.models.observations.encoders import BoxEncoder, FlatEncoder, OneHotEncoder

BOX = gym.spaces.Box(-1, 1, (4,))
DISCRETE = gym.spaces.Discrete(2)
PIXELS = gym.spaces.Box(0, 255, (2, 2), np.uint8)


@pytest.mark.parametrize(
    ("space", "encoder"),
    [
        (BOX, BoxEncoder((4,))),
        (gym.spaces.Box(-1, 1, (2, 3)), BoxEncoder((2, 3))),
        (gym.spaces.Box(0, 255, (2, 2), np.uint8), BoxEncoder((2, 2), 1 / 255)),
        (gym.spaces.Box(0, 9, (2, 2), np.uint8), BoxEncoder((2, 2))),
        (gym.spaces.Box(0, 255, (128,), np.uint8), BoxEncoder((128,))),
        (gym.spaces.Dict(a=gym.spaces.Box(0, 255, (3,), np.uint8), b=PIXELS), FlatEncoder(7, ((3, 7),))),
        (gym.spaces.Discrete(16), OneHotEncoder(16)),
        (gym.spaces.Discrete(5, start=-2), OneHotEncoder(5, -2)),
        (gym.spaces.MultiDiscrete([2, 3]), BoxEncoder((5,))),
        (gym.spaces.MultiBinary(3), BoxEncoder((3,))),
        (gym.spaces.Dict(a=BOX, b=DISCRETE), BoxEncoder((6,))),
        (gym.spaces.Tuple((BOX, gym.spaces.MultiBinary(2))), BoxEncoder((6,))),
        (gym.spaces.Dict(a=BOX, b=gym.spaces.Dict(c=PIXELS)), FlatEncoder(8, ((4, 8),))),
    ],
    ids=str,
)
def test_encoder_of_an_observation_space(space, encoder):
    assert policy_spec(space, DISCRETE).encoder == encoder


def test_pixels_reach_the_network_between_0_and_1_unless_a_filter_scales_them():
    space = gym.spaces.Box(0, 255, (2, 2), np.uint8)
    encoded = np.ones((1, 5), np.float32)
    policy_spec(space, DISCRETE).encoder.encode(np.full((1, 2, 2), 255, np.uint8), encoded)
    np.testing.assert_allclose(encoded, 1.0)
    assert policy_spec(space, DISCRETE, observation_filter="MeanStdFilter").encoder == BoxEncoder((2, 2))


def test_pixels_among_other_parts_reach_the_network_between_0_and_1_too():
    space = gym.spaces.Dict(a=BOX, b=PIXELS)
    encoded = np.ones((2, 9), np.float32)
    rows = np.tile(np.array([1, -1, 0.5, 0, 0, 51, 102, 255], np.float32), (2, 1))
    policy_spec(space, DISCRETE).encoder.encode(rows, encoded)
    np.testing.assert_allclose(encoded, [[1, -1, 0.5, 0, 0, 0.2, 0.4, 1, 1]] * 2)
    assert policy_spec(space, DISCRETE, observation_filter="MeanStdFilter").encoder == BoxEncoder((8,))


@pytest.mark.parametrize(
    ("space", "distribution"),
    [
        (gym.spaces.Discrete(4), Categorical(4)),
        (gym.spaces.Discrete(4, start=1), Categorical(4)),
        (gym.spaces.MultiDiscrete([2, 3]), MultiCategorical((2, 3), (2,))),
        (gym.spaces.MultiBinary(2), MultiCategorical((2, 2), (2,))),
        (gym.spaces.Box(-1, 2, (), np.int8), MultiCategorical((4,), ())),
        (gym.spaces.Box(-1, 1, (3,)), DiagGaussian((3,))),
        (gym.spaces.Box(-np.inf, np.inf, (2, 2), np.float64), DiagGaussian((2, 2))),
    ],
    ids=str,
)
def test_distribution_of_an_action_space(space, distribution):
    spec = policy_spec(BOX, space)
    assert spec.distribution == distribution
    assert spec.distribution.action_shape == space.shape


def test_defaults_are_those_of_the_ecosystem():
    spec = policy_spec(BOX, DISCRETE)
    assert (spec.hiddens, spec.activations) == ((256, 256), ("tanh", "tanh"))
    assert spec.vf_share_layers
    assert not spec.free_log_std
    assert not spec.layer_norm
    assert {"fcnet_hiddens", "fcnet_activation", "vf_share_layers", "free_log_std"} <= set(ModelSettings.settings)


@pytest.mark.parametrize(("given", "used"), [
    *((None, "linear"), ("silu", "swish"), ("relu", "relu"), ("elu", "elu"), (nn.Tanh, "tanh"), (nn.ReLU, "relu")),
    *((nn.SiLU, "swish"), (nn.GELU, "gelu"), (nn.ELU, "elu"), (nn.LeakyReLU, "leaky_relu"), (nn.Sigmoid, "sigmoid")),
    (nn.Identity, "linear"),
])  # fmt: skip
def test_names_of_activations(given, used):
    assert policy_spec(BOX, DISCRETE, {"fcnet_activation": given}).activations == (used, used)


def test_a_class_of_torch_is_a_name_in_the_settings():
    """So that files and checkpoints hold no code."""
    config = PPOConfig().training(model={"fcnet_activation": nn.GELU})
    assert config.rl_module(model_config={"conv_activation": nn.ELU}).model == {
        "vf_share_layers": False, "fcnet_activation": "gelu", "conv_activation": "elu"
    }  # fmt: skip
    actor = SACConfig().training(policy_model_config={"fcnet_activation": nn.Tanh}).policy_model_config
    assert actor["fcnet_activation"] == "tanh"
    with pytest.raises(ValueError, match=r"fcnet_activation=<class 'torch\.nn"):
        policy_spec(BOX, DISCRETE, {"fcnet_activation": nn.Mish})


def test_layers_behind_others_come_last():
    spec = policy_spec(BOX, DISCRETE, {"fcnet_hiddens": [8], "post_fcnet_hiddens": [4]})
    assert (spec.hiddens, spec.activations) == ((8, 4), ("tanh", "tanh"))
    spec = policy_spec(BOX, DISCRETE, {"fcnet_hiddens": [], "post_fcnet_hiddens": [4]})
    assert (spec.hiddens, spec.activations) == ((4,), ("relu",))


@pytest.mark.parametrize("space", [gym.spaces.Discrete(3, start=1), gym.spaces.Dict(a=BOX, b=PIXELS)], ids=str)
@pytest.mark.parametrize("action_space", [DISCRETE, gym.spaces.MultiDiscrete([2, 3]), BOX], ids=str)
def test_description_survives_json_and_pickle(space, action_space):
    model = {"fcnet_hiddens": [8], "vf_share_layers": True, "layer_norm": True}
    spec = policy_spec(space, action_space, model)
    assert spec_from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert hash(spec) == hash(spec_from_json(spec.to_json()))


def test_a_description_with_one_activation_for_all_layers_is_read():
    """Checkpoints had that before each layer had its own."""
    spec = policy_spec(BOX, DISCRETE, {"fcnet_hiddens": [8, 4], "fcnet_activation": "relu"})
    old = {**spec.to_json(), "activation": "relu"}
    del old["activations"]
    assert spec_from_json(old) == spec


def test_observation_filter():
    assert policy_spec(BOX, DISCRETE, observation_filter="MeanStdFilter").make_filter().filters
    old_name = policy_spec(BOX, DISCRETE, observation_filter="ConcurrentMeanStdFilter")
    assert old_name == policy_spec(BOX, DISCRETE, observation_filter="MeanStdFilter")
    assert not policy_spec(BOX, DISCRETE).make_filter().filters
    one_of_n = policy_spec(DISCRETE, DISCRETE, observation_filter="MeanStdFilter")
    assert not one_of_n.make_filter().filters
    with pytest.raises(ValueError, match="'Kalman'"):
        policy_spec(BOX, DISCRETE, observation_filter="Kalman")


def test_settings_of_parts_that_are_off_are_taken():
    """Published configs carry all of Ray's keys."""
    model = {"use_lstm": False, "lstm_cell_size": 64, "max_seq_len": 20, "attention_dim": 32, "_time_major": False}
    assert ModelSettings(model) == ModelSettings.defaults() | {"lstm_cell_size": 64, "attention_dim": 32}
    with pytest.raises(ValueError, match="encoder_latent_dim=8 is not available yet"):
        ModelSettings({**model, "encoder_latent_dim": 8})


def test_a_memory():
    """Policy and value have one each unless the model says otherwise; vf_share_layers has no say."""
    model = {"use_lstm": True, "lstm_cell_size": 8, "post_lstm_hiddens": [4], "vf_share_layers": True}
    spec = policy_spec(BOX, DISCRETE, model)
    assert spec.memory == Memory("lstm", 8, 20, (4,), "relu") and not spec.vf_share_layers
    assert spec.state_shapes == ((8,),) * 4 and spec.state_size == 32
    assert spec_from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert policy_spec(BOX, DISCRETE, {**model, "vf_share_memory": True}).state_shapes == ((8,), (8,))


def test_attention():
    model = {"use_attention": True, "attention_dim": 8, "attention_memory_inference": 5, "attention_memory_training": 5}
    spec = policy_spec(BOX, DISCRETE, {**model, "attention_num_transformer_units": 2, "fcnet_hiddens": [16]})
    assert spec.memory == Attention(num_units=2, size=8, window=5) and not spec.vf_share_layers
    assert spec.state_shapes == ((5, 8),) * 4 + ((1,),) and spec.state_size == 161
    assert spec_from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert policy_spec(BOX, DISCRETE, {**model, "vf_share_memory": True}).state_size == 41


def test_settings_that_ask_for_nothing_are_taken():
    assert policy_spec(BOX, DISCRETE, {"use_lstm": False, "conv_filters": None}) == policy_spec(BOX, DISCRETE)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"fcnet_hidden": [64]}, "Did you mean 'fcnet_hiddens'"),
        ({"net_arch": [64]}, "Did you mean 'fcnet_hiddens'"),
        ({"features_extractor_class": object}, "Did you mean 'custom_model'"),
        ({"zzz": 1}, "there is no 'zzz', only fcnet_hiddens"),
        ({"use_lstm": True, "use_gru": True}, "use_lstm=True and use_gru=True"),
        ({"use_lstm": True, "lstm_cell_size": 0}, "lstm_cell_size=0 must be an integer >= 1"),
        ({"use_gru": True, "layer_norm": True}, "layer_norm=True and use_gru=True"),
        ({"lstm_use_prev_action": True}, "needs use_lstm or use_gru or use_attention"),
        ({"use_attention": True, "use_lstm": True}, "a network has one memory"),
        ({"use_attention": True, "layer_norm": True}, "layer_norm=True and use_attention=True"),
        ({"use_attention": True, "attention_dim": 0}, "attention_dim=0 must be an integer >= 1"),
        ({"use_attention": True, "attention_memory_training": 20}, r"\{'attention_memory_training': 50\}"),
        ({"use_attention": True, "attention_use_n_prev_actions": 3}, "=3 must be an integer >= 0 and <= 1"),
        ({"use_attention": True, "attention_init_gru_gate_bias": "2"}, "_bias='2' must be a finite number"),
        ({"attention_use_n_prev_rewards": 1}, "needs use_lstm or use_gru or use_attention"),
        ({"fcnet_hiddens": 64}, "must be a list of integers >= 1"),
        ({"fcnet_hiddens": [64, 0]}, "must be a list of integers >= 1"),
        ({"fcnet_hiddens": [64.5]}, "must be a list of integers >= 1"),
        ({"fcnet_activation": "mish"}, "'tanh' or 'relu'"),
        ({"vf_share_layers": "yes"}, "must be True or False"),
        ({"layer_norm": 1}, "must be True or False"),
        ({"free_log_std": True}, "needs continuous actions"),
    ],
    ids=str,
)
def test_wrong_settings_say_what_to_do(model, message):
    with pytest.raises(ValueError, match=message):
        policy_spec(BOX, DISCRETE, model)


@pytest.mark.parametrize(
    ("observation_space", "action_space", "message"),
    [
        (gym.spaces.Text(5), DISCRETE, "observation_space is Text.*not supported"),
        (gym.spaces.Sequence(BOX), DISCRETE, "observation_space is Sequence"),
        (gym.spaces.Dict(a=gym.spaces.Sequence(BOX)), DISCRETE, r"observation_space\['a'\] is Sequence"),
        (gym.spaces.Discrete(10**6), DISCRETE, "too large for one-hot"),
        (gym.spaces.Box(-1, 1, (0,)), DISCRETE, "holds no number"),
        (gym.spaces.Dict(), DISCRETE, "holds no number"),
        (gym.spaces.Dict(a=gym.spaces.Discrete(10**6)), DISCRETE, r"observations\['a'\].*too large for one-hot"),
        (BOX, gym.spaces.Text(5), "action_space is Text.*not supported"),
        (BOX, gym.spaces.Dict(a=gym.spaces.Graph(BOX, None)), r"action_space\['a'\] is Graph"),
        (BOX, gym.spaces.Box(0, 10_000, (2,), np.int64), r"one of the numbers has 10,001 values.*a Box of floats"),
        (BOX, gym.spaces.Box(-(2**31), 2**31 - 1, (2,), np.int32), "has 4,294,967,296 values"),
        (BOX, gym.spaces.Box(-1, 1, (2, 0)), "at least one number"),
    ],
    ids=str,
)
def test_spaces_without_a_network_are_refused(observation_space, action_space, message):
    with pytest.raises(ValueError, match=message):
        policy_spec(observation_space, action_space)


def test_one_hot_encoding_subtracts_the_start():
    out = np.full((3, 4), 7, np.float32)
    out[:, -1] = 1
    OneHotEncoder(3, -1).encode(np.array([-1, 1, 0]), out)
    assert np.array_equal(out, [[1, 0, 0, 1], [0, 0, 1, 1], [0, 1, 0, 1]])


@pytest.mark.parametrize("value", [-2, 2])
def test_one_hot_encoding_refuses_what_is_outside(value):
    with pytest.raises(ValueError, match=r"outside of -1 \.\.\. 1"):
        OneHotEncoder(3, -1).encode(np.array([0, value]), np.ones((2, 4), np.float32))
