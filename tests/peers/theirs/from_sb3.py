"""Stable-Baselines3's and sb3-contrib's numbers."""

import gymnasium
import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from gymnasium.spaces import Box, Discrete
from sb3_contrib.common import envs as envs_of_contrib
from stable_baselines3.common import envs
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize


def advantages(settings, rewards, values, last_values, starts, last_dones):
    """Of a rollout buffer: `starts` [T, B] marks first steps; rewards are bootstrapped at truncations by the caller."""
    steps, envs = rewards.shape
    buffer = RolloutBuffer(
        steps, Box(-1, 1, (1,)), Discrete(2), "cpu", settings["lambda"], settings["gamma"], n_envs=envs
    )
    for t in range(steps):
        nothing = np.zeros((envs, 1))
        buffer.add(nothing, nothing, rewards[t], starts[t], torch.as_tensor(values[t]), torch.zeros(envs))
    buffer.compute_returns_and_advantage(torch.as_tensor(last_values), last_dones)
    return {"advantages": buffer.advantages, "targets": buffer.returns}


MODELS = {}


def made(settings, probe):
    """Makes a model, saves it at settings["path"], and returns its outputs for `probe`."""
    library = stable_baselines3 if hasattr(stable_baselines3, settings["algorithm"]) else sb3_contrib
    words = {name: tuple(value) if isinstance(value, list) else value for name, value in settings["words"].items()}
    torch.set_num_threads(1)
    model = getattr(library, settings["algorithm"])(
        "MlpPolicy", settings["environment"], device="cpu", seed=settings["seed"], **words
    )
    model.set_logger(configure(None, []))
    model._current_progress_remaining = 1.0
    model.save(settings["path"])
    MODELS[settings["path"]] = model
    return outputs(settings, probe)


@torch.no_grad()
def outputs(settings, probe):
    """What a model's networks compute for observations [B, K]."""
    model, observations = MODELS[settings["path"]], torch.as_tensor(probe)
    if hasattr(model, "q_net"):
        return {"q": model.q_net(observations).numpy()}
    if hasattr(model, "quantile_net"):
        return {"q": model.quantile_net(observations).mean(1).numpy()}
    chosen = model.policy.get_distribution(observations).distribution
    values = model.policy.predict_values(observations)[:, 0].numpy()
    if hasattr(chosen, "logits"):
        # Those of a categorical distribution are normalised.
        return {"inputs": chosen.logits.numpy(), "values": values}
    return {"inputs": torch.cat([chosen.mean, chosen.stddev.log()], -1).numpy(), "values": values}


def learned(settings, probe, obs, actions, log_probs, advantages, targets, values):
    """Trains an on-policy model on one rollout [B], and returns its outputs for `probe`."""
    model, buffer = MODELS[settings["path"]], MODELS[settings["path"]].rollout_buffer
    buffer.reset()
    assert len(obs) == buffer.buffer_size * buffer.n_envs, "a rollout is a whole buffer"
    for name, array in {
        "observations": obs, "actions": actions.reshape(len(obs), -1), "log_probs": log_probs,
        "advantages": advantages, "returns": targets, "values": values,
    }.items():  # fmt: skip
        getattr(buffer, name)[:] = array.reshape(getattr(buffer, name).shape)
    buffer.full = True
    model.train()
    return outputs(settings, probe)


def updated(settings, probe, obs, actions, rewards, next_obs, dones):
    """Makes an update of action values for each batch [N, B], and returns the outputs for `probe`."""
    model = MODELS[settings["path"]]
    columns = obs, actions[..., None], next_obs, dones[..., None], rewards[..., None]
    batches = iter([ReplayBufferSamples(*batch) for batch in zip(*map(torch.as_tensor, columns), strict=True)])
    model.replay_buffer.sample = lambda *args, **kwargs: next(batches)
    model.train(len(obs), obs.shape[1])
    return outputs(settings, probe)


def normalized(settings, observations, rewards, dones):
    """VecNormalize's numbers for [T, N] rewards and ends, and observations [T, N, K] after each step."""
    from stable_baselines3.common.vec_env import VecNormalize
    from stable_baselines3.common.vec_env.base_vec_env import VecEnv

    class Scripted(VecEnv):
        """Gives out what it was made of."""

        def __init__(self):
            super().__init__(rewards.shape[1], Box(-np.inf, np.inf, observations.shape[2:]), Discrete(2))
            self.time = 0

        def reset(self):
            return np.zeros_like(observations[0])

        def step_async(self, actions):
            pass

        def step_wait(self):
            t = self.time
            self.time += 1
            return observations[t].copy(), rewards[t].copy(), dones[t], [{} for _ in dones[t]]

        def close(self):
            pass

        def get_attr(self, name, indices=None):
            return [None] * self.num_envs

        def set_attr(self, *_, **__): ...
        def env_method(self, *_, **__): ...
        def env_is_wrapped(self, *_, **__):
            return [False] * self.num_envs

    envs = VecNormalize(Scripted(), gamma=settings["gamma"], clip_obs=np.inf, clip_reward=np.inf)
    envs.reset()
    scaled = np.stack([envs.step(None)[1] for _ in rewards])
    return {
        "rewards": scaled, "variance": envs.ret_rms.var, "returns": envs.returns, "mean": envs.obs_rms.mean,
        "deviation": np.sqrt(envs.obs_rms.var),
    }  # fmt: skip


def trained(settings):
    """The curve of a task's model with a seed (tests/peers/tasks.py)."""
    from stable_baselines3.common.vec_env import DummyVecEnv
    from tasks import TASKS, curve, environment

    torch.set_num_threads(1)
    _, name, policy, _, steps, words = TASKS[settings["task"]]
    words = dict(words)
    envs = DummyVecEnv([lambda: environment(settings["task"])] * words.pop("n_envs", 1))
    library = stable_baselines3 if hasattr(stable_baselines3, name) else sb3_contrib
    model = getattr(library, name)(policy, envs, device="cpu", seed=settings["seed"], **words)
    return {"curve": curve(lambda: model.learn(steps))}


def load_and_continue(settings, **observations):
    """Actions of a model in a file, its steps, and those after it has learned on.

    Args:
        observations: [N, ...]; of a Dict one for each key, and else "observations" alone.
    """
    kind = getattr(stable_baselines3, settings["algorithm"], None) or getattr(sb3_contrib, settings["algorithm"])
    model = kind.load(settings["path"], device="cpu")
    given = observations.get("observations") if observations.keys() == {"observations"} else observations
    actions, _ = model.predict(given, deterministic=True)
    steps = model.num_timesteps
    if name := settings.get("class"):
        model.set_env((getattr(envs, name, None) or getattr(envs_of_contrib, name))(**settings["words"]))
    else:
        model.set_env(gymnasium.make(settings["env"]))
    model.learn(64, reset_num_timesteps=False)
    return {"actions": actions, "steps": np.array([steps]), "continued": np.array(model.num_timesteps)}


def save(settings, observations):
    """Saves a model of PPO; its actions and steps."""
    model = stable_baselines3.PPO("MlpPolicy", settings["env"], n_steps=32, batch_size=32, seed=0).learn(32)
    model.save(settings["path"])
    actions, _ = model.predict(observations, deterministic=True)
    return {"actions": actions, "steps": np.array(model.num_timesteps)}


def statistics(settings):
    """Numbers in a file of VecNormalize."""
    found = VecNormalize.load(settings["path"], make_vec_env(settings["env"]))
    found.training = False
    found.reset()
    return {"mean": found.obs_rms.mean, "var": found.obs_rms.var, "returns": np.array(found.ret_rms.var)}
