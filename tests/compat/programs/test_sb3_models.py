"""Models of programs for Stable-Baselines3, in this process: what a program reads, sets, saves and records."""

import csv
import io
import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rllib.callbacks import BaseCallback, StopTrainingOnMaxEpisodes
from rllib.compat.programs.sb3 import models, tokens
from rllib.compat.programs.sb3.environments import check_env, make_vec_env
from rllib.compat.programs.sb3.environments_of_examples import FakeImageEnv, InvalidActionEnvDiscrete
from rllib.compat.programs.sb3.extractors import BaseFeaturesExtractor
from rllib.compat.programs.sb3.logger import Figure, HParam, Logger, TensorBoardOutputFormat, configure
from rllib.compat.programs.sb3.noise import (
    NormalActionNoise,
    OrnsteinUhlenbeckActionNoise,
    VectorizedActionNoise,
)
from rllib.compat.programs.sb3.tools import TrainFreq, TrainFrequencyUnit

SMALL = {"learning_starts": 20, "batch_size": 8, "policy_kwargs": {"net_arch": [8]}}
MODELS = {
    "PPO": ("CartPole-v1", {"n_steps": 32}),
    "A2C": ("CartPole-v1", {}),
    "TRPO": ("CartPole-v1", {"n_steps": 32}),
    "DQN": ("CartPole-v1", SMALL),
    "QRDQN": ("CartPole-v1", SMALL),
    **dict.fromkeys(("SAC", "TD3", "DDPG", "TQC", "CrossQ"), ("Pendulum-v1", SMALL)),
}


def made(name, **words):
    env, usual = MODELS[name]
    return getattr(models, name)("MlpPolicy", env, **{"seed": 0, **usual, **words})


class Steps(BaseCallback):
    """Notes what a program reads in its callbacks."""

    def __init__(self):
        super().__init__()
        self.rounds, self.seen = [], []

    def _on_step(self):
        model = self.model
        self.seen.append((model.num_timesteps, model._total_timesteps, model._current_progress_remaining))
        assert self.locals["env"] is model.get_env() and self.locals["reset_num_timesteps"] in (True, False)
        return True

    def _on_rollout_end(self):
        self.rounds.append(self.num_timesteps)


# ---------------------------------------------------------------------- steps


@pytest.mark.parametrize("name", ["DQN", "SAC", "TD3", "TQC"])
def test_callbacks_come_every_hundred_steps(name):
    steps = Steps()
    with made(name) as model:
        model.learn(450, callback=steps)
    assert len(steps.rounds) >= 4 and max(np.diff([0, *steps.rounds])) <= 200  # the last ones may be joined


def test_what_a_callback_reads_of_the_run():
    steps = Steps()
    with made("PPO") as model:
        assert model._last_obs is None and model._current_progress_remaining == 1.0
        model.learn(64, callback=steps)
        assert steps.seen[0] == (1, 64, 1 - 1 / 64) and steps.seen[-1] == (64, 64, 0.0)
        assert model._last_obs.shape == (1, 4) and model._episode_num == model.metrics.episodes_total
        model.learn(32, callback=steps, reset_num_timesteps=False)
        assert steps.seen[-1] == (96, 96, 0.0) and model._num_timesteps_at_start == 64


@pytest.mark.parametrize("name", ["PPO", "DQN"])
def test_a_loaded_model_counts_on_from_the_same_number(tmp_path, name):
    with made(name, verbose=1) as model:
        model.learn(96)
        model.learn(64)
        model.save(tmp_path / "model")
    with getattr(models, name).load(tmp_path / "model", env=MODELS[name][0]) as loaded:
        assert loaded.num_timesteps == 64 and loaded.timesteps == 160 and loaded.verbose == 1
        loaded.learn(32, reset_num_timesteps=False, log_interval=None)
        assert loaded.num_timesteps == 96


# ---------------------------------------------------------------------- keywords as attributes


@pytest.mark.parametrize("arch", [{}, {"net_arch": [16]}])
def test_the_layer_behind_convolutions_of_dqn(arch):
    kwargs = {"features_extractor_kwargs": {"features_dim": 32}, **arch}
    with models.DQN("CnnPolicy", FakeImageEnv(), buffer_size=50, policy_kwargs=kwargs) as model:
        parameters = model.get_parameters()["policy"]
        assert len(parameters["shared.hidden_0.bias"]) == 32
        assert ("shared.hidden_1.bias" in parameters) == bool(arch)
    for policy, given in (("CnnPolicy", {"cnn_output_dim": 3}), ("MlpPolicy", {"features_dim": 3})):
        with pytest.raises(ValueError, match=next(iter(given))):
            models.DQN(policy, FakeImageEnv(), policy_kwargs={"features_extractor_kwargs": given})


class Features(BaseFeaturesExtractor):
    def __init__(self, observation_space, features_dim=4):
        super().__init__(observation_space, features_dim)
        self.layer = torch.nn.Linear(4, features_dim)

    def forward(self, observations):
        return self.layer(observations)


def test_an_extractor_of_ones_own_has_the_usual_layers_behind_it_and_no_other_network(caplog):
    with made("PPO", policy_kwargs={"features_extractor_class": Features}) as model:
        assert model.config.model["custom_model_config"]["net_arch"] == [64, 64]
    assert "have no part in the custom model" not in caplog.text


@pytest.mark.parametrize("name", MODELS)
def test_a_keyword_that_is_set_counts(name):
    with made(name) as model:
        model.learn(40)
        before, steps = model.get_parameters()["policy"], model.num_timesteps
        rows = None if model.replay_buffer is None else model.replay_buffer.size()
        model.gamma = 0.9
        assert model.gamma == model.config.gamma == 0.9 and model.num_timesteps == steps
        assert rows is None or model.replay_buffer.size() == rows
        for parameter, value in model.get_parameters()["policy"].items():
            np.testing.assert_array_equal(value, before[parameter])
        model.learn(32, reset_num_timesteps=False)


def test_a_keyword_is_not_set_while_learn_runs():
    def during(variables, _):
        with pytest.raises(AttributeError, match="while learn runs"):
            variables["self"].gamma = 0.5

    with made("PPO") as model:
        model.learn(32, callback=during)


def test_a_keyword_that_is_set_before_a_schedule_is_known_keeps_it():
    lasts = []
    for gamma in (0.9, 0.99):
        with made("PPO", learning_rate=lambda remaining: 1e-3 * remaining) as model:
            model.gamma = gamma
            model.learn(64)
            assert model.config.gamma == gamma
            lasts.append(model.config.lr)
    assert lasts[0] == lasts[1]


@pytest.mark.parametrize("name", MODELS)
def test_a_function_that_is_set_is_of_the_next_learn(name, tmp_path):
    def function(left):
        return 1e-3 * left**2

    def check(model, first, length):
        schedule = model.config.get_schedule("lr")
        values = [schedule(first + share * length) for share in (0.0, 0.5, 1.0, 2.0)]
        assert values == pytest.approx([1e-3, 0.25e-3, 0.0, 0.0])

    with made(name) as model:
        path = model.learn(64).save(tmp_path / "model")
        rows = None if model.replay_buffer is None else model.replay_buffer.size()
        first, model.learning_rate = model.timesteps, function
        assert model.learning_rate is function and model.num_timesteps == first
        model.learn(32)
        check(model, first, 32)
        assert rows is None or model.replay_buffer.size() == rows + 32
        steps, model.learning_rate = model.num_timesteps, function  # the same one begins once more
        model.learn(32, reset_num_timesteps=False)
        check(model, first, steps + 32)
    with getattr(models, name).load(path, MODELS[name][0], learning_rate=function) as loaded:
        assert loaded.learning_rate is function
        check(loaded.learn(32), first, 32)


def test_clip_range_is_a_function():
    with made("PPO", clip_range_vf=0.3) as model:
        assert model.clip_range(0.5) == 0.2 and model.clip_range_vf(1.0) == 0.3
    with made("PPO", clip_range=lambda remaining: 0.1 * remaining) as model:
        assert model.clip_range(0.5) == 0.05 and model.clip_range_vf is None


def test_updates_alone_are_refused():
    model = made("DQN")
    with pytest.raises(TypeError, match="one iteration, which samples and updates"):
        model.train(gradient_steps=10, batch_size=8)
    with pytest.raises(AttributeError, match=r"get_vec_normalize_env\(\)"):
        _ = model._vec_normalize_env
    model.stop()


def test_env_is_set_as_by_set_env():
    with made("PPO") as model:
        model.learn(32)
        model.env = env = make_vec_env("CartPole-v1")
        assert model.get_env() is env
        model.learn(32)


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_is_set_to_as_many_environments_as_it_had(name, tmp_path):
    with made(name) as model:
        path = model.save(tmp_path / "model")
        env, more = model.get_env(), model.n_envs + 1
    message = f"samples from {more - 1} environments, and the other one has {more}"
    with getattr(models, name).load(path) as loaded, pytest.raises(ValueError, match=message):
        loaded.set_env(make_vec_env(env.envs[0].spec.id, n_envs=more))


def test_the_optimizer_of_tensorflow_is_named_by_its_class():
    kwargs = {"optimizer_class": tokens.RMSpropTFLike, "optimizer_kwargs": {"eps": 1e-4}}
    with made("A2C", policy_kwargs=kwargs) as model:
        assert model.config.opt_type == "rmsprop" and model.config.rmsprop_epsilon == pytest.approx(1e-2)


# ---------------------------------------------------------------------- files


def test_a_missing_file_is_not_found(tmp_path):
    for path in (tmp_path / "nothing", tmp_path / "nothing.zip", tmp_path / "no" / "folder"):
        with pytest.raises(FileNotFoundError, match="no model"):
            models.PPO.load(path)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_only_acts_is_loaded_with_functions_of_zero(tmp_path, name):
    with made(name) as model:
        path = model.save(tmp_path / "model")
    functions = {"lr_schedule": lambda _: 0.0, "clip_range": lambda _: 0.0}
    with getattr(models, name).load(path, custom_objects={"learning_rate": 0.0, **functions}) as loaded:
        assert loaded.learning_rate == 0.0
        assert name != "PPO" or loaded.clip_range(1.0) == 0.0
        loaded.predict(loaded.observation_space.sample())


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_taken_from_whatever_load_takes(tmp_path, name):
    with made(name) as model:
        model.learn(40)
        path, file, expected = model.save(tmp_path / "model"), io.BytesIO(), model.get_parameters()["policy"]
        model.save(file)
        file.seek(0)
        assert model.device == torch.device("cpu")
    for given in (path, tmp_path / "model", str(tmp_path / "model"), file):
        with made(name, seed=1) as other:
            other.set_parameters(given)
            assert other.num_timesteps == 0
            for parameter, value in other.get_parameters()["policy"].items():
                np.testing.assert_array_equal(value, expected[parameter])


def test_a_policy_is_loaded_by_its_class(tmp_path):
    with made("SAC") as model:
        model.policy.save(tmp_path / "policy")
        observation = np.full(3, 0.1, np.float32)
        expected, _ = model.predict(observation, deterministic=True)
    for kind in (tokens.MlpPolicy, tokens.BasePolicy, type(model.policy)):
        np.testing.assert_allclose(kind.load(tmp_path / "policy").predict(observation, deterministic=True)[0], expected)


# ---------------------------------------------------------------------- masks


def test_an_environment_without_masks_is_refused():
    with (
        models.MaskablePPO("MlpPolicy", "CartPole-v1", n_steps=16) as model,
        pytest.raises(ValueError, match="ActionMasker"),
    ):
        model.learn(16)


def test_without_masks_all_actions_are_legal():
    env = make_vec_env(lambda: InvalidActionEnvDiscrete(dim=6, n_invalid_actions=3), 3)
    with models.MaskablePPO("MlpPolicy", env, n_steps=16, batch_size=16, seed=0) as model:
        actions, _ = model.predict(np.arange(3), deterministic=True)
        every, _ = model.predict(np.arange(3), deterministic=True, action_masks=np.ones((3, 6), bool))
        np.testing.assert_array_equal(actions, every)
        assert model.predict(2, deterministic=True)[0] == every[2]


def test_a_masked_model_is_loaded_without_an_environment(tmp_path):
    env = InvalidActionEnvDiscrete(dim=6, n_invalid_actions=3)
    with models.MaskablePPO("MlpPolicy", env, n_steps=16, batch_size=16, seed=0) as model:
        model.learn(16)
        model.save(tmp_path / "masked")
        mask = np.array([False, True, False, True, True, False])
        expected = [model.predict(index, action_masks=mask, deterministic=True)[0] for index in range(6)]
    with models.MaskablePPO.load(tmp_path / "masked") as loaded:
        actions = [loaded.predict(index, action_masks=mask, deterministic=True)[0] for index in range(6)]
    np.testing.assert_array_equal(actions, expected)
    assert mask[actions].all()


# ---------------------------------------------------------------------- replay


def test_the_replay_counts_steps_of_each_environment():
    with models.DQN("MlpPolicy", make_vec_env("CartPole-v1", 2), buffer_size=80, **SMALL) as model:
        model.learn(60)
        replay = model.replay_buffer
        assert (replay.size(), replay.pos, replay.full, replay.buffer_size) == (32, 32, False, 40)
        rows = replay.sample(16)
        assert rows.observations.shape == rows.next_observations.shape == (16, 4)
        assert rows.actions.shape == rows.rewards.shape == rows.dones.shape == (16, 1)
        model.learn(60, reset_num_timesteps=False)
        assert replay.full
    for name in ("add", "reset", "observations"):
        with pytest.raises(AttributeError, match=r"size\(\)"):
            getattr(replay, name)


# ---------------------------------------------------------------------- torch


def test_parameters_can_be_counted_and_do_not_learn():
    with made("PPO") as model:
        parameters = list(model.policy.parameters())
        assert sum(each.numel() for each in parameters if each.requires_grad) == 9155
        observations = torch.zeros(4, 4)
        for index in range(3):  # values, log-probabilities, entropies
            computed = model.policy.evaluate_actions(observations, torch.zeros(4))[index]
            with pytest.raises(RuntimeError, match="custom_loss"):
                computed.mean().backward()
        with torch.no_grad():
            assert not model.policy.predict_values(observations).requires_grad


def _computed(weights, name, rows, activation):
    """What a network's head computes in float64, by the parameters of its layers."""
    prefix = "shared" if "shared.hidden_0.weight" in weights else name.partition(".")[0]
    rows, index = np.asarray(rows, np.float64), 0
    while f"{prefix}.hidden_{index}.weight" in weights:
        layer = f"{prefix}.hidden_{index}"
        rows = activation(rows @ weights[f"{layer}.weight"].numpy().T + weights[f"{layer}.bias"].numpy())
        index += 1
    return rows @ weights[f"{name}.weight"].numpy().T + weights[f"{name}.bias"].numpy()


def _relu(rows):
    return np.maximum(rows, 0)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_a_policy_says_what_its_network_computes(env):
    with models.PPO("MlpPolicy", env, seed=0, n_steps=32) as model:
        policy = model.learn(64).policy
        observations = np.stack([model.observation_space.sample() for _ in range(5)])
        tensors, several = policy.obs_to_tensor(observations)
        weights, actions = policy.state_dict(), policy._predict(tensors).numpy()
        outputs = _computed(weights, "policy.head", observations, np.tanh)
        if env == "CartPole-v1":
            probabilities = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
            log_probs = np.log(probabilities)
            log_prob, entropy = log_probs[range(5), actions], -(probabilities * log_probs).sum(axis=1)
            most_likely = outputs.argmax(axis=1)
        else:
            deviation = np.exp(weights["policy.log_std"].numpy())
            log_prob = -0.5 * ((actions - outputs) / deviation) ** 2 - np.log(deviation * np.sqrt(2 * np.pi))
            log_prob = log_prob[:, 0]
            entropy = np.full(5, np.log(deviation * np.sqrt(2 * np.pi * np.e)))
            most_likely = outputs
        with torch.no_grad():
            values, of_actions, entropies = policy.evaluate_actions(tensors, torch.as_tensor(actions))
            assert several and torch.equal(policy.predict_values(tensors), values)
            expected = _computed(weights, "value.head", observations, np.tanh)
            for computed, right in ((values, expected), (of_actions, log_prob), (entropies, entropy)):
                np.testing.assert_allclose(computed.numpy(), right, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(policy._predict(tensors, deterministic=True), most_likely, atol=1e-4)


@pytest.mark.parametrize("name", ["PPO", "DQN", "QRDQN", "SAC"])
def test_networks_that_a_model_has_not_say_what_to_use(name):
    has = {"DQN": {"q_net"}, "SAC": {"actor"}}.get(name, set())
    with getattr(models, name)("MlpPolicy", "Pendulum-v1" if name == "SAC" else "CartPole-v1") as model:
        for network in ("actor", "critic", "critic_target", "q_net", "q_net_target", "quantile_net"):
            for owner in (model, model.policy):
                assert hasattr(owner, network) == (network in has)
                if network not in has:
                    with pytest.raises(AttributeError, match=rf"'{network}'.*: use .*get_policy\(\)\.model"):
                        getattr(owner, network)


@pytest.mark.parametrize("name", ["SAC", "TQC", "CrossQ", "TD3", "DDPG"])
def test_actions_are_squashed_and_scaled(name):
    space = spaces.Box(np.float32([-1, 0, 3]), np.float32([1, 4, 5]))
    env = FakeImageEnv(4, 40, 40, 1, discrete=False)
    env.observation_space, env.action_space = spaces.Box(-1, 1, (4,)), space
    env.reset = lambda **_: (np.zeros(4, np.float32), {})
    with getattr(models, name)("MlpPolicy", env, seed=0, policy_kwargs={"net_arch": [8]}) as model:
        policy, observations = model.policy, np.random.default_rng(0).uniform(-1, 1, (500, 4)).astype(np.float32)
        observations[100:] = observations[0]  # samples of one distribution
        best = policy._predict(policy.obs_to_tensor(observations)[0], deterministic=True).numpy()
        drawn = policy._predict(policy.obs_to_tensor(observations)[0]).numpy()
        assert policy.squash_output and best.shape == (500, 3)
        np.testing.assert_array_equal(model.actor(torch.as_tensor(observations), deterministic=True), best)
        with pytest.raises(AttributeError, match="has no 'mu'"):
            _ = model.actor.mu
        np.testing.assert_allclose(
            policy.unscale_action(best), model.predict(observations, deterministic=True)[0], atol=1e-5
        )
        if name in ("TD3", "DDPG"):
            np.testing.assert_array_equal(drawn, best)
            np.testing.assert_array_equal(
                model.predict(observations)[0], model.predict(observations, None, None, True)[0]
            )
            expected = np.tanh(_computed(policy.state_dict(), "policy.head", observations, _relu))
            np.testing.assert_allclose(best, expected, atol=1e-4)
        elif name != "CrossQ":  # whose layers are normalised
            outputs = _computed(policy.state_dict(), "policy.head", observations[:1], _relu)[0]
            np.testing.assert_allclose(best[0], np.tanh(outputs[:3]), atol=1e-4)
            normal = (np.arctanh(drawn[100:].astype(np.float64)) - outputs[:3]) / np.exp(outputs[3:])
            assert np.abs(normal.mean(axis=0)).max() < 0.2 and np.abs(normal.std(axis=0) - 1).max() < 0.15
        corners = np.float32([[-1, 0, 3], [1, 4, 5], [0, 2, 4]])
        np.testing.assert_array_equal(policy.scale_action(corners), [[-1] * 3, [1] * 3, [0] * 3])
        np.testing.assert_array_equal(policy.unscale_action(policy.scale_action(corners)), corners)


def test_the_values_of_actions_of_dqn():
    with made("DQN") as model:
        observations = np.stack([model.observation_space.sample() for _ in range(5)])
        tensors, _ = model.policy.obs_to_tensor(observations)
        with torch.no_grad():
            values = model.q_net(tensors)
        expected = _computed(model.policy.state_dict(), "policy.head", observations, _relu)
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-4)
        for given in (True, False):
            assert model.policy._predict(tensors, deterministic=given).tolist() == expected.argmax(axis=1).tolist()
        with pytest.raises(ValueError, match="Discrete"):
            model.policy.scale_action(np.zeros(1))
        for name in ("get_distribution", "evaluate_actions"):
            with pytest.raises(AttributeError, match="q_net"):
                getattr(model.policy, name)(tensors, *([torch.zeros(5)] if name == "evaluate_actions" else []))
    with made("PPO") as model, pytest.raises(AttributeError, match="no 'q_net'"):
        _ = model.policy.q_net


@pytest.mark.parametrize("name", ["TD3", "DDPG"])
@pytest.mark.parametrize("kind", [NormalActionNoise, OrnsteinUhlenbeckActionNoise])
def test_noise_of_several_environments_is_that_of_each(name, kind):
    base = kind(np.zeros(1), 0.1 * np.ones(1))
    configs = [made(name, action_noise=noise).config for noise in (base, VectorizedActionNoise(base, 2))]
    assert configs[0].exploration_config == configs[1].exploration_config


@pytest.mark.parametrize("name", ["PPO", "DQN", "SAC"])
def test_parameters_are_one_array(name):
    with made(name) as model:
        vector = model.policy.parameters_to_vector()
        flat = np.concatenate([each.detach().numpy().reshape(-1) for each in model.policy.parameters()])
        np.testing.assert_array_equal(vector, flat)
        model.policy.load_from_vector(vector + 1)
        np.testing.assert_array_equal(model.policy.parameters_to_vector(), vector + 1)
        with pytest.raises(ValueError, match="has 3 numbers"):
            model.policy.load_from_vector(np.zeros(3))


# ---------------------------------------------------------------------- logger


def test_outputs_get_each_name_with_what_it_is_kept_from():
    class Output:
        def write(self, key_values, key_excluded, step=0):
            written.append((set(key_values), set(key_excluded), step))

    written = []
    with made("SAC") as model:
        model.set_logger(Logger(None, [Output()]))
        model.learn(420, log_interval=1)
    assert len(written) == 2 and all(values == excluded for values, excluded, _ in written)
    assert "rollout/ep_rew_mean" in written[-1][0]


def test_a_value_waits_for_the_next_table(tmp_path):
    def early(variables, _):
        model = variables["self"]
        if model.num_timesteps == 32:
            model.logger.record("mine/early", 3)

    with made("PPO") as model:
        model.set_logger(configure(str(tmp_path), ["csv"]))
        model.learn(96, callback=early, log_interval=3)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "progress.csv").read_text())))
    assert len(rows) == 1 and rows[0]["mine/early"] == "3"


def test_figures_and_settings_reach_tensorboard(tmp_path):
    figure = pytest.importorskip("matplotlib.figure").Figure()
    seen = []

    class Draws(BaseCallback):
        def _on_training_start(self):
            (output,) = [e for e in self.logger.output_formats if isinstance(e, TensorBoardOutputFormat)]
            output.writer.add_text("mine/text", "hello", 0)
            kept_from = ("stdout", "log", "json", "csv")
            self.logger.record("hparams", HParam({"gamma": 0.9}, {"time/fps": 0.0}), exclude=kept_from)
            seen.append(output)

        def _on_step(self):
            if self.n_calls == 1:
                self.logger.record("mine/figure", Figure(figure, close=True), exclude=("stdout", "log", "json", "csv"))

    with made("PPO", tensorboard_log=str(tmp_path)) as model:
        model.learn(32, callback=Draws())
        model.logger.close()
    events = b"".join(file.read_bytes() for file in (tmp_path / "PPO_1").rglob("events.out.tfevents*"))
    assert b"mine/text" in events and b"mine/figure" in events and b"_hparams_" in events and len(seen) == 1


def test_tables_of_ars_are_by_iterations(tmp_path):
    with models.ARS("LinearPolicy", "CartPole-v1", n_delta=2, seed=0) as model:
        model.set_logger(configure(str(tmp_path), ["json"]))
        model.learn(300, log_interval=1)
        rows = [json.loads(line) for line in (tmp_path / "progress.json").read_text().splitlines()]
    assert [row["train/iterations"] for row in rows] == list(range(len(rows))) and len(rows) >= 2
    assert rows[0]["train/delta_std"] == 0.05 and rows[0]["train/learning_rate"] == pytest.approx(0.02)


# ---------------------------------------------------------------------- check_env


def test_check_env_takes_its_arguments(recwarn):
    class Endless(gym.Env):
        observation_space, action_space = spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return np.zeros(1, np.float32), 0.0, False, False, {}

    check_env(Endless(), warn=False)
    assert not recwarn
    with pytest.warns(UserWarning, match="no episode"):
        check_env(Endless(), warn=True, skip_render_check=True)
    with pytest.raises(AssertionError, match="gymnasium"):
        check_env(3)


def test_tables_show_the_clip_range_of_the_update(tmp_path):
    """The number of a schedule, at the steps at which the update has read it."""
    model = made("PPO", clip_range=lambda left: 0.2 * left, clip_range_vf=lambda left: 0.4 * left)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(96, log_interval=1)
    with (tmp_path / "progress.csv").open() as lines:
        first, *rows = csv.DictReader(lines)
    assert first["train/clip_range"] == ""
    assert [float(row["train/clip_range"]) for row in rows] == pytest.approx([0.2, 0.2 * 2 / 3])
    assert [float(row["train/clip_range_vf"]) for row in rows] == pytest.approx([0.4, 0.4 * 2 / 3])


def test_a_learn_after_the_end_of_its_schedule_is_warned_of(caplog):
    model = made("PPO", learning_rate=lambda left: 1e-3 * left)
    model.learn(64, log_interval=None)
    assert "learning_rate" not in caplog.text
    model.learn(64, log_interval=None, reset_num_timesteps=False)
    assert "learning_rate has come to 0 after 64 steps" in caplog.text
    caplog.clear()
    model = made("PPO")
    for _ in range(2):
        model.learn(32, log_interval=None)
    assert "learning_rate" not in caplog.text


@pytest.mark.parametrize(("seed", "start_index"), [(3, 0), (3, 2), (0, 5)])
def test_first_resets_have_the_seeds_of_stable_baselines3(seed, start_index):
    seeds = []

    class Noting(gym.Wrapper):
        def reset(self, *, seed=None, options=None):
            seeds.append(seed)
            return super().reset(seed=seed, options=options)

    make_vec_env("CartPole-v1", 2, seed=seed, start_index=start_index, wrapper_class=Noting).reset()
    assert seeds == [seed, seed + 1], "start_index is a part of the names of files, and of the spaces' seeds"


@pytest.mark.parametrize("unit", TrainFrequencyUnit)
def test_a_frequency_is_the_pair_that_it_holds(unit):
    words = {"learning_starts": 8, "batch_size": 4, "buffer_size": 100, "gradient_steps": -1}
    given, pair = TrainFreq(2, unit), (2, unit.value)
    configs = []
    for frequency in (given, pair):
        with models.DQN("MlpPolicy", "CartPole-v1", train_freq=frequency, **words) as model:
            configs.append({name: value for name, value in model.config.to_dict().items() if name != "env"})
            assert model.train_freq == given and model.train_freq.unit is unit
            model.learn(20)
    assert configs[0] == configs[1]


@pytest.mark.parametrize("name", ["PPO", "DQN"])
def test_callbacks_end_at_the_step_that_ends_the_last_episode(name):
    steps, enough = Steps(), StopTrainingOnMaxEpisodes(2)
    with made(name) as model:
        model.learn(200, callback=[enough, steps])
        lengths = [episode["l"] for episode in model.ep_info_buffer]
    assert steps.n_calls == sum(lengths[:2]) and enough.n_episodes == 2
