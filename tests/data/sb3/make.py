"""Makes the models in this folder with Stable-Baselines3, and what they answer.

Run with the interpreter of an environment that has stable-baselines3 2.x:  python make.py

Each model has learned for a moment, so that its parameters, temperature and targets are not those of the beginning. The
answers in golden.npz are to observations at random: actions, and the values that the model gives (of PPO and A2C the
value of an observation, of DQN those of all actions, of the others those of both critics for an action at random).
"""

import zipfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import stable_baselines3 as sb3
import torch
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

HERE = Path(__file__).parent
ROWS = 16
# Parts of the zip that the import does not read; they would be most of its bytes.
UNREAD = ["_last_obs", "_last_original_obs", "_last_episode_starts", "ep_info_buffer", "ep_success_buffer",
          "rollout_buffer_class", "replay_buffer_class"]  # fmt: skip


class Parts(gym.Env):
    """Reaches a goal in two parts of an observation; switches as actions."""

    observation_space = spaces.Dict(
        {
            "goal": spaces.Box(-1, 1, (2,), np.float32),
            "at": spaces.Box(-1, 1, (3,), np.float32),
            "mode": spaces.Discrete(2),
        }
    )
    action_space = spaces.MultiBinary(3)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), float(np.sum(action)), self.np_random.random() < 0.1, False, {}


class Choices(Parts):
    """Several choices at once, of one of five states."""

    observation_space = spaces.Discrete(5)
    action_space = spaces.MultiDiscrete([3, 2])


START = {"learning_starts": 20}


def small(**more) -> dict:
    return {"net_arch": [8, 8], **more}


MODELS = {
    "ppo_cartpole": (sb3.PPO, "MlpPolicy", "CartPole-v1", {"n_steps": 32, "batch_size": 16, "n_epochs": 2}, small()),
    "ppo_pendulum": (sb3.PPO, "MlpPolicy", "Pendulum-v1", {"n_steps": 64, "gae_lambda": 0.9, "learning_rate": 1e-3},
                     {"net_arch": {"pi": [8], "vf": [6, 4]}, "activation_fn": torch.nn.ELU}),
    "ppo_sde": (sb3.PPO, "MlpPolicy", "Pendulum-v1", {"n_steps": 64, "use_sde": True, "sde_sample_freq": 4}, small()),
    "ppo_parts": (sb3.PPO, "MultiInputPolicy", Parts, {"n_steps": 32}, small()),
    "ppo_choices": (sb3.PPO, "MlpPolicy", Choices, {"n_steps": 32}, small(net_arch=[])),
    "a2c_cartpole": (sb3.A2C, "MlpPolicy", "CartPole-v1", {"n_steps": 8, "ent_coef": 0.01}, small()),
    "dqn_cartpole": (sb3.DQN, "MlpPolicy", "CartPole-v1", {**START, "target_update_interval": 30}, small()),
    "sac_pendulum": (sb3.SAC, "MlpPolicy", "Pendulum-v1", START, small()),
    "sac_sde": (sb3.SAC, "MlpPolicy", "Pendulum-v1", {**START, "use_sde": True, "ent_coef": 0.2}, small()),
    "td3_pendulum": (sb3.TD3, "MlpPolicy", "Pendulum-v1", START, {"net_arch": {"pi": [8, 8], "qf": [6]}}),
    "ddpg_pendulum": (sb3.DDPG, "MlpPolicy", "Pendulum-v1", START, small()),
}  # fmt: skip


def observations_of(space: spaces.Space, rng: np.random.Generator):
    """ROWS observations at random; unbounded numbers are within 2."""
    if isinstance(space, spaces.Dict):
        return {key: observations_of(part, rng) for key, part in space.items()}
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.n, size=ROWS)
    return rng.uniform(np.maximum(space.low, -2), np.minimum(space.high, 2), (ROWS, *space.shape)).astype(np.float32)


def values_of(model, observations, rng: np.random.Generator) -> dict[str, np.ndarray]:
    given, _ = model.policy.obs_to_tensor(observations)
    with torch.no_grad():
        if hasattr(model.policy, "predict_values"):
            return {"values": model.policy.predict_values(given).numpy()[:, 0]}
        if hasattr(model, "q_net"):
            return {"values": model.q_net(given).numpy(), "target_values": model.q_net_target(given).numpy()}
        actions = rng.uniform(-1, 1, (ROWS, *model.action_space.shape)).astype(np.float32)
        judged = {"values": model.critic, "target_values": model.critic_target}
        found = {name: critic(given, torch.from_numpy(actions)) for name, critic in judged.items()}
        return {name: torch.cat(each, 1).numpy() for name, each in found.items()} | {"judged": actions}


def compressed(path: Path) -> None:
    """Writes the zip anew, smaller and without optimizers, whose files are not read."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist() if "optimizer" not in name}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, 9)


def main() -> None:
    golden = {}
    for name, (kind, policy, env, settings, policy_kwargs) in MODELS.items():
        model = kind(policy, make_vec_env(env, 2), seed=1, device="cpu", policy_kwargs=policy_kwargs, **settings)
        model.learn(64)
        rng = np.random.default_rng(3)
        observations = observations_of(model.observation_space, rng)
        answers = {"actions": model.predict(observations, deterministic=True)[0], **values_of(model, observations, rng)}
        named = observations if isinstance(observations, dict) else {"": observations}
        golden |= {f"{name}/obs/{key}": each for key, each in named.items()}
        golden |= {f"{name}/{key}": each for key, each in answers.items()}
        model.save(HERE / f"{name}.zip", exclude=UNREAD)
        compressed(HERE / f"{name}.zip")
    normalized = VecNormalize(make_vec_env("Pendulum-v1", 2), clip_obs=5.0, epsilon=1e-6)
    model = sb3.PPO("MlpPolicy", normalized, n_steps=64, seed=1, device="cpu", policy_kwargs=small())
    model.learn(200)
    normalized.save(HERE / "vecnormalize.pkl")
    rng = np.random.default_rng(3)
    observations = observations_of(normalized.observation_space, rng) * 3
    seen = normalized.normalize_obs(observations)
    golden |= {
        "ppo_normalized/obs/": observations,
        "ppo_normalized/actions": model.predict(seen, deterministic=True)[0],
    }
    golden |= values_of(model, seen, rng) and {"ppo_normalized/values": values_of(model, seen, rng)["values"]}
    golden["ppo_normalized/reward"] = normalized.normalize_reward(np.array([-3.0]))
    model.save(HERE / "ppo_normalized.zip", exclude=UNREAD)
    compressed(HERE / "ppo_normalized.zip")
    np.savez_compressed(HERE / "golden.npz", **golden)


if __name__ == "__main__":
    main()
