"""Tasks of the learning curves, for our process and the peer's: their environments, which note their returns.

Needs nothing but gymnasium and numpy.
"""

import gymnasium
import numpy as np

# Name -> (algorithm here, theirs, policy, environment, steps, keywords of the constructor of both).
TASKS = {
    "DQN": (
        "DQN", "DQN", "MlpPolicy", "CartPole-v1", 50_000,
        {
            "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000,
            "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128, "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04, "policy_kwargs": {"net_arch": [256, 256]},
        },
    ),
    "PPO": (
        "PPO", "PPO", "MlpPolicy", "Acrobot-v1", 60_000,
        {"n_envs": 8, "n_steps": 128, "batch_size": 256, "n_epochs": 4, "gae_lambda": 0.94, "learning_rate": 1e-3},
    ),
    "SAC": ("SAC", "SAC", "MlpPolicy", "Pendulum-v1", 6_000, {"learning_rate": 1e-3, "learning_starts": 500}),
    "TD3": ("TD3", "TD3", "MlpPolicy", "Pendulum-v1", 8_000, {"learning_rate": 1e-3, "learning_starts": 1000}),
    "recurrent PPO": (
        "PPO", "RecurrentPPO", "MlpLstmPolicy", "CartPole-v1", 60_000,
        {"n_envs": 8, "n_steps": 64, "batch_size": 128, "n_epochs": 6, "gae_lambda": 0.8, "learning_rate": 1e-3},
    ),
}  # fmt: skip
WITHOUT_VELOCITIES = ("recurrent PPO",)
FIFTHS = 5


class Noted(gymnasium.Wrapper):
    """Appends (steps of all such environments, return) to `episodes` after each episode."""

    episodes: list = []  # noqa: RUF012  (of the process)
    steps = 0

    def reset(self, **options):
        self._sum = 0.0
        return self.env.reset(**options)

    def step(self, action):
        Noted.steps += 1
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._sum += float(reward)
        if terminated or truncated:
            self.episodes.append((Noted.steps, self._sum))
        return observation, reward, terminated, truncated, info


class Watched(gymnasium.Wrapper):
    """Takes `before_step(action)` for each action, and begins episodes in states that are the same in all processes."""

    def __init__(self, env, before_step):
        super().__init__(env)
        self._before_step, self._ended, self._has_stepped = before_step, 0, False

    def reset(self, *, seed=None, options=None):
        # A seed for each episode. How often a library resets before a first step is its own affair.
        self._ended += self._has_stepped
        self._has_stepped = False
        return self.env.reset(seed=self._ended, options=options)

    def step(self, action):
        self._has_stepped = True
        return self.env.step(self._before_step(action))


class Positions(gymnasium.ObservationWrapper):
    """CartPole's positions, without its velocities."""

    def __init__(self, env):
        super().__init__(env)
        space = env.observation_space
        self.observation_space = gymnasium.spaces.Box(space.low[[0, 2]], space.high[[0, 2]], dtype=np.float32)

    def observation(self, observation):
        return observation[[0, 2]]


def environment(task: str) -> gymnasium.Env:
    """One of the task's environments, which notes its returns."""
    made = Noted(gymnasium.make(TASKS[task][3]))
    return Positions(made) if task in WITHOUT_VELOCITIES else made


def curve(run) -> np.ndarray:
    """Mean returns of the episodes that end in each fifth of the steps that `run()` makes; nan where none does."""
    Noted.episodes.clear()
    Noted.steps = 0
    run()
    ends, returns = np.array(Noted.episodes, float).reshape(-1, 2).T
    fifths = np.ceil(FIFTHS * ends / Noted.steps) - 1
    return np.array([returns[fifths == fifth].mean() if fifth in fifths else np.nan for fifth in range(FIFTHS)])
