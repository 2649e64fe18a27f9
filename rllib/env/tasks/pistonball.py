"""PettingZoo's pistonball_v6 with small pictures: give it by "rllib.env.tasks.pistonball:Pistonball"."""

import numpy as np
from gymnasium.spaces import Box

from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.env.multi_agent.multi_agent_env import StepResult
from rllib.env.multi_agent.pettingzoo_envs import ParallelPettingZooEnv

# Pixels of PettingZoo's pictures [457, 120, 3] that become one of ours.
_BLOCK = 14, 5
HEIGHT, WIDTH, FRAMES = 32, 24, 3


class Pistonball(ParallelPettingZooEnv):
    """Pistons in a row move up and down and push a ball to the left; all get the same reward.

    Each observes the picture of itself and its neighbours in grey, uint8 [32, 24, 3]: the newest frame and the two
    before it, as one does not show where the ball moves to.

    Args:
        config: arguments of pistonball_v6; by default there are 5 pistons with 3 actions each, for at most 60 steps.

    Raises:
        ValueError: if PettingZoo or the packages of its butterfly environments are not installed.
    """

    def __init__(self, config: dict | None = None):
        try:
            from pettingzoo.butterfly import pistonball_v6
        except ImportError as error:
            raise ValueError('Pistonball needs pymunk and pygame. Use pip install "pettingzoo[butterfly]".') from error
        # Without a render mode PettingZoo 1.27 draws nothing, not even what the pistons observe.
        options = {"n_pistons": 5, "continuous": False, "max_cycles": 60, "render_mode": "rgb_array", **(config or {})}
        super().__init__(pistonball_v6.parallel_env(**options))
        self.observation_spaces = dict.fromkeys(self.possible_agents, Box(0, 255, (HEIGHT, WIDTH, FRAMES), np.uint8))
        self._seen: dict[AgentID, np.ndarray] = {}

    def get_observation_space(self, agent_id: AgentID) -> Box:
        return self.observation_spaces[agent_id]

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        pictures, infos = super().reset(seed=seed, options=options)
        self._seen = {agent: np.repeat(small(picture), FRAMES, axis=2) for agent, picture in pictures.items()}
        return dict(self._seen), infos

    def step(self, action_dict: dict) -> StepResult:
        pictures, *results = super().step(action_dict)
        for agent, picture in pictures.items():
            self._seen[agent] = np.concatenate((self._seen[agent][..., 1:], small(picture)), axis=2)
        return {agent: self._seen[agent] for agent in pictures}, *results


def small(picture: np.ndarray) -> np.ndarray:
    """A picture [457, 120, 3] in grey and smaller, uint8 [32, 24, 1]: means of blocks, without the top nine rows."""
    rows, columns = _BLOCK
    blocks = picture[-HEIGHT * rows :].reshape(HEIGHT, rows, WIDTH, columns * 3)
    return blocks.mean((1, 3)).astype(np.uint8)[..., None]
