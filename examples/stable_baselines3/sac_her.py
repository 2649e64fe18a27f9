"""SAC with hindsight: an environment with goals, whose reward is -1 until a goal is reached.

python -m rllib.as_sb3 examples/stable_baselines3/sac_her.py
"""

import argparse

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3 import SAC, HerReplayBuffer
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise


class Reach(gym.Env):
    """A point in a square moves by at most 0.2 a step, to within 0.2 of a goal."""

    def __init__(self):
        part = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = spaces.Dict(observation=part, achieved_goal=part, desired_goal=part)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = np.zeros(2, np.float32), 0
        self.goal = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self._observation(), {}

    def step(self, action):
        self.place = np.clip(self.place + 0.2 * np.asarray(action, np.float32), -1, 1).astype(np.float32)
        self.steps += 1
        reward = float(self.compute_reward(self.place, self.goal, {}))
        return self._observation(), reward, False, self.steps >= 20, {"is_success": reward == 0.0}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -(np.linalg.norm(np.asarray(achieved_goal) - desired_goal, axis=-1) > 0.2).astype(np.float32)

    def _observation(self):
        return {"observation": self.place.copy(), "achieved_goal": self.place.copy(), "desired_goal": self.goal.copy()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--timesteps", type=int, default=600)
    noise = NormalActionNoise(np.zeros(2), 0.1 * np.ones(2))
    print(noise)
    model = SAC(
        "MultiInputPolicy",
        Monitor(Reach()),
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs=dict(n_sampled_goal=4, goal_selection_strategy="future"),
        learning_starts=100,
        buffer_size=10_000,
        batch_size=64,
        gamma=0.95,
        policy_kwargs=dict(net_arch=[64, 64]),
        verbose=1,
        seed=0,
    )
    model.learn(parser.parse_args().timesteps, log_interval=10)
    observation, _ = model.get_env().envs[0].reset(seed=1)
    action, state = model.predict(observation, deterministic=True)
    print("action:", action.shape, action.dtype, state)
    print("steps:", model.num_timesteps, "learned:", model.num_timesteps > model.learning_starts)
