"""Programs and files that Stable-Baselines3 and this library share: run and read by both."""

import os
import subprocess
import sys

import numpy as np
import pytest

from rllib.compat.programs.sb3 import environments_of_examples, models
from rllib.compat.programs.sb3.environments import make_vec_env
from rllib.env.vec_env.vec_normalize import VecNormalize
from tests.compat.programs.test_sb3_programs import EXAMPLES, keys_of_tables, other_lines
from tests.peers.peer import ROOT, VENVS

SMALL = {"policy_kwargs": {"net_arch": {"pi": [8], "qf": [6, 4]}}, "learning_starts": 10, "batch_size": 8}
# What Stable-Baselines3 says of itself.
_SAID = ("Creating environment", "Using ", "Wrapping ", "Logging to", "Eval num", "New best")


@pytest.mark.parametrize(
    ("name", "env", "words"),
    [
        ("PPO", "CartPole-v1", {"n_steps": 16, "policy_kwargs": {"net_arch": {"pi": [8], "vf": [6, 4]}}}),
        ("PPO", "Pendulum-v1", {"n_steps": 16, "batch_size": 16}),
        ("A2C", "CartPole-v1", {}),
        ("TRPO", "Pendulum-v1", {"n_steps": 32}),
        ("DQN", "CartPole-v1", {"learning_starts": 10}),
        ("SAC", "Pendulum-v1", SMALL),
        ("SAC", "Pendulum-v1", {**SMALL, "ent_coef": 0.2}),
        ("TQC", "Pendulum-v1", SMALL),
        ("TD3", "Pendulum-v1", SMALL),
        ("DDPG", "Pendulum-v1", SMALL),
    ],
)
def test_they_load_what_we_save(sb3, tmp_path, name, env, words):
    with getattr(models, name)("MlpPolicy", env, seed=0, **words) as model:
        model.learn(32)
        model.save(tmp_path / "model")
        observations = np.random.default_rng(0).uniform(-0.2, 0.2, (9, *model.observation_space.shape))
        observations = observations.astype(np.float32)
        expected, _ = model.predict(observations, deterministic=True)
        steps = model.num_timesteps
    theirs = sb3.call(
        "from_sb3.load_and_continue",
        {"algorithm": name, "path": str(tmp_path / "model"), "env": env},
        observations=observations,
    )
    np.testing.assert_allclose(theirs["actions"], expected, atol=1e-5)
    assert theirs["steps"].tolist() == [steps] and theirs["continued"] > steps


ROUND = {"n_steps": 16, "batch_size": 16, "n_epochs": 1}
OF_FEATURES = {"features_extractor_kwargs": {"features_dim": 8}}
USUAL = {**SMALL, "policy_kwargs": {}, "buffer_size": 200}


@pytest.mark.parametrize(
    ("name", "policy", "kind", "of_env", "words"),
    [
        ("PPO", "CnnPolicy", "FakeImageEnv", {}, ROUND),
        ("PPO", "CnnPolicy", "FakeImageEnv", {"channel_first": True, "n_channels": 3},
         {**ROUND, "policy_kwargs": {"share_features_extractor": False, **OF_FEATURES}}),
        ("A2C", "CnnPolicy", "FakeImageEnv", {"discrete": False}, {}),
        ("DQN", "CnnPolicy", "FakeImageEnv", {}, USUAL),
        ("PPO", "MultiInputPolicy", "BitFlippingEnv", {"n_bits": 4}, ROUND),
        ("DQN", "MultiInputPolicy", "BitFlippingEnv", {"n_bits": 4}, USUAL),
        ("SAC", "MultiInputPolicy", "BitFlippingEnv", {"n_bits": 4, "continuous": True}, SMALL),
        ("TD3", "MultiInputPolicy", "BitFlippingEnv", {"n_bits": 4, "continuous": True}, SMALL),
        ("MaskablePPO", "MlpPolicy", "InvalidActionEnvDiscrete", {"dim": 6, "n_invalid_actions": 2}, ROUND),
        ("MaskablePPO", "MlpPolicy", "InvalidActionEnvMultiDiscrete", {"dims": [3, 4], "n_invalid_actions": 2}, ROUND),
        ("PPO", "MlpPolicy", "IdentityEnvMultiBinary", {"dim": 3}, ROUND),
    ],
)  # fmt: skip
def test_they_load_images_dicts_masks_and_switches(sb3, tmp_path, name, policy, kind, of_env, words):
    env = getattr(environments_of_examples, kind)(**of_env)
    with getattr(models, name)(policy, env, seed=0, **words) as model:
        model.learn(32)
        model.save(tmp_path / "model")
        env.observation_space.seed(0)
        observations = [env.observation_space.sample() for _ in range(5)]
        expected = [model.predict(observation, deterministic=True)[0] for observation in observations]
        steps = model.num_timesteps
    if isinstance(observations[0], dict):
        columns = {key: np.stack([observation[key] for observation in observations]) for key in observations[0]}
    else:
        columns = {"observations": np.stack(observations)}
    settings = {"algorithm": name, "path": str(tmp_path / "model"), "class": kind, "words": of_env}
    theirs = sb3.call("from_sb3.load_and_continue", settings, **columns)
    np.testing.assert_allclose(theirs["actions"], np.stack(expected), atol=1e-4)
    assert theirs["steps"].tolist() == [steps] and theirs["continued"] > steps


def test_we_load_what_they_save_by_the_same_line(sb3, tmp_path):
    observations = np.random.default_rng(0).uniform(-0.2, 0.2, (9, 4)).astype(np.float32)
    theirs = sb3.call(
        "from_sb3.save", {"path": str(tmp_path / "model"), "env": "CartPole-v1"}, observations=observations
    )
    with models.PPO.load(tmp_path / "model", env="CartPole-v1") as model:
        actions, _ = model.predict(observations, deterministic=True)
        np.testing.assert_array_equal(actions, theirs["actions"])
        assert model.num_timesteps == theirs["steps"]
        model.learn(64, reset_num_timesteps=False)


def test_they_load_our_statistics(sb3, tmp_path):
    venv = VecNormalize(make_vec_env("Pendulum-v1", n_envs=2, seed=0))
    venv.reset()
    for _ in range(9):
        venv.step(np.zeros((2, 1), np.float32))
    venv.save(tmp_path / "statistics.pkl")
    theirs = sb3.call("from_sb3.statistics", {"path": str(tmp_path / "statistics.pkl"), "env": "Pendulum-v1"})
    np.testing.assert_array_equal(theirs["mean"], venv.obs_rms.mean)
    np.testing.assert_array_equal(theirs["var"], venv.obs_rms.var)
    assert theirs["returns"] == venv.ret_rms.var


@pytest.mark.parametrize("program", ["ppo_pendulum", "sac_her", "callbacks", "load_and_continue"])
def test_programs_print_the_same_tables(sb3, tmp_path, program):
    texts = []
    for command in ([str(VENVS / "sb3" / "bin" / "python")], [sys.executable, "-m", "rllib.as_sb3"]):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT) if len(command) > 1 else ""}
        done = subprocess.run(
            [*command, str(EXAMPLES / f"{program}.py")], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    theirs, ours = texts
    # How many tables come before the first update differs: ours learns after its rounds of steps.
    assert set(keys_of_tables(ours)) <= set(keys_of_tables(theirs)) and keys_of_tables(ours)
    assert keys_of_tables(ours)[-1] == keys_of_tables(theirs)[-1]
    said = [[line for line in other_lines(text) if not line.startswith(_SAID)] for text in (ours, theirs)]
    assert said[0] == said[1]
