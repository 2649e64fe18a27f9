"""Models in Stable-Baselines3's format: read back as its own zips are, and what is not written."""

import json
import zipfile

import gymnasium as gym
import numpy as np
import pytest

import rllib
from rllib import import_sb3, load_policy
from rllib.compat.files.sb3.written import NotWrittenError, entries_of
from rllib.compat.programs.sb3 import environments_of_examples as envs
from rllib.compat.programs.sb3 import models

SMALL = {"policy_kwargs": {"net_arch": {"pi": [8], "qf": [6, 4]}}, "learning_starts": 10, "batch_size": 8}


@pytest.mark.parametrize(
    ("name", "env", "words"),
    [
        ("PPO", "CartPole-v1", {"n_steps": 16, "policy_kwargs": {"net_arch": {"pi": [8], "vf": [6, 4]}}}),
        ("PPO", "Pendulum-v1", {"n_steps": 16, "batch_size": 16}),
        ("A2C", "CartPole-v1", {}),
        ("DQN", "CartPole-v1", {"learning_starts": 10}),
        ("SAC", "Pendulum-v1", SMALL),
        ("SAC", "Pendulum-v1", {**SMALL, "ent_coef": 0.2}),
        ("TQC", "Pendulum-v1", SMALL),
        ("TD3", "Pendulum-v1", SMALL),
        ("DDPG", "Pendulum-v1", SMALL),
    ],
)
def test_what_is_written_is_read_back(tmp_path, name, env, words):
    with getattr(models, name)("MlpPolicy", env, seed=0, gamma=0.9, **words) as model:
        model.learn(32)
        zipped = tmp_path / "model.zip"
        with zipfile.ZipFile(zipped, "w") as archive:
            for entry, content in entries_of(model, name).items():
                archive.writestr(entry, content)
        imported = import_sb3(zipped, tmp_path / "imported", env=env)
        assert imported.algorithm == name and imported.timesteps == model.num_timesteps
        observations = np.random.default_rng(0).uniform(-0.2, 0.2, (9, *model.observation_space.shape))
        expected, _ = model.predict(observations.astype(np.float32), deterministic=True)
        actions, _ = load_policy(imported.path).predict(observations.astype(np.float32), deterministic=True)
        np.testing.assert_allclose(actions, expected, atol=1e-5)
    with rllib.Algorithm.from_checkpoint(imported.path) as again:
        assert again.config.gamma == 0.9
        if name in ("SAC", "TQC"):
            alpha = model.trainees["default_policy"].temperature.alpha
            assert again.config.initial_alpha == pytest.approx(alpha, rel=1e-5)
        if name == "TD3":
            theirs, ours = (each.learners["default_policy"].targets["critics"].weights for each in (model, again))
            np.testing.assert_array_equal(ours, theirs)


ROUND = {"n_steps": 16, "batch_size": 16, "n_epochs": 1}
OWN_IMAGES = {"share_features_extractor": False, "features_extractor_kwargs": {"features_dim": 32}}


@pytest.mark.parametrize(
    ("name", "policy", "env", "words"),
    [
        ("PPO", "CnnPolicy", envs.FakeImageEnv(), ROUND),
        (
            "PPO",
            "CnnPolicy",
            envs.FakeImageEnv(channel_first=True, n_channels=3),
            {**ROUND, "policy_kwargs": OWN_IMAGES},
        ),
        ("A2C", "CnnPolicy", envs.FakeImageEnv(discrete=False), {}),
        ("DQN", "CnnPolicy", envs.FakeImageEnv(n_channels=2), {**SMALL, "buffer_size": 100, "policy_kwargs": {}}),
        ("PPO", "MultiInputPolicy", envs.BitFlippingEnv(4), ROUND),
        ("DQN", "MultiInputPolicy", envs.BitFlippingEnv(4), {**SMALL, "policy_kwargs": {}}),
        ("SAC", "MultiInputPolicy", envs.BitFlippingEnv(4, continuous=True), SMALL),
        ("PPO", "MlpPolicy", envs.IdentityEnvMultiBinary(3), ROUND),
        ("PPO", "MlpPolicy", envs.IdentityEnvMultiDiscrete(3), ROUND),
    ],
)
def test_images_dicts_and_switches_are_read_back(tmp_path, name, policy, env, words):
    with getattr(models, name)(policy, env, seed=0, **words) as model:
        model.learn(32)
        zipped = tmp_path / "model.zip"
        with zipfile.ZipFile(zipped, "w") as archive:
            for entry, content in entries_of(model, name).items():
                archive.writestr(entry, content)
        given = (lambda _: env) if policy == "MultiInputPolicy" else None  # whose space is no plain data there
        imported = load_policy(import_sb3(zipped, tmp_path / "imported", env=given).path)
        env.observation_space.seed(0)
        for _ in range(5):
            observation = env.observation_space.sample()
            expected, _ = model.predict(observation, deterministic=True)
            if policy == "CnnPolicy" and not env.observation_shape[0] <= 3:
                observation = np.moveaxis(observation, -1, 0)  # as it is there
            np.testing.assert_allclose(imported.predict(observation, deterministic=True)[0], expected, atol=1e-5)


def test_excluded_names_are_left_out():
    with models.PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16) as model:
        assert "gamma" in json.loads(entries_of(model, "PPO")["data"])
        assert "gamma" not in json.loads(entries_of(model, "PPO", {"gamma"})["data"])


@pytest.mark.parametrize(
    ("name", "further", "what"),
    [
        ("PPO", {"observation_filter": "MeanStdFilter"}, "VecNormalize"),
        ("DQN", {"dueling": True}, "dueling"),
        ("PPO", {"use_sde": True}, "noise"),
        ("CrossQ", {}, "the format of CrossQ"),
    ],
)
def test_what_the_format_has_not_is_not_written(name, further, what):
    env = "CartPole-v1" if name == "DQN" else "Pendulum-v1"
    with (
        getattr(models, name)("MlpPolicy", gym.make(env), **further) as model,
        pytest.raises(NotWrittenError, match=what),
    ):
        entries_of(model, name)
