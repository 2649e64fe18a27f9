"""The cooperative game in which mixing values pays: give it by "rllib.env.tasks.two_step_game:TwoStepGame"."""

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from rllib.env.multi_agent.multi_agent_env import ENV_STATE, GroupedEnv, MultiAgentEnv

# Rewards of state 2B, by the actions of both agents.
_PAYOFF_B = ((0.0, 1.0), (1.0, 8.0))
_PAYOFF_A = 7.0


class TwoStepGame(MultiAgentEnv):
    """Two agents, two steps: the first agent's action chooses state 2A, worth 7 to both together, or 2B.

    In 2B the reward is [[0, 1], [1, 8]] by the actions of both. An observation is the state one-hot, with the agent's
    number one-hot behind it, [5] float32. Both get half of the common reward. (Rashid et al., arXiv:1803.11485,
    section 5.)

    Args:
        config: the item "separate_state_space": observations are dicts of that, "obs", and the state one-hot, "state",
            [3] float32, for algorithms that mix values by the state.
    """

    possible_agents = ("agent_0", "agent_1")
    action_space = Discrete(2)

    def __init__(self, config=None):
        super().__init__()
        self._shows_state = bool((config or {}).get("separate_state_space", False))
        self.observation_space = Box(0, 1, (5,), np.float32)
        if self._shows_state:
            parts = {"obs": self.observation_space, ENV_STATE: Box(0, 1, (3,), np.float32)}
            self.observation_spaces = dict.fromkeys(self.possible_agents, Dict(parts))
        self._state = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._state, self.agents = 0, list(self.possible_agents)
        return self._observations(), {}

    def step(self, action_dict):
        first, second = (int(action_dict[agent]) for agent in self.possible_agents)
        if self._state == 0:
            self._state, reward, is_over = 1 + first, 0.0, False
        else:
            reward, is_over = (_PAYOFF_A if self._state == 1 else _PAYOFF_B[first][second]), True
            self.agents = []
        rewards = dict.fromkeys(self.possible_agents, reward / 2)
        return self._observations(), rewards, {"__all__": is_over}, {"__all__": False}, {}

    def _observations(self) -> dict:
        rows = np.zeros((2, 5), np.float32)
        rows[:, self._state] = 1
        rows[[0, 1], [3, 4]] = 1
        seen = [{"obs": row, ENV_STATE: row[:3].copy()} for row in rows] if self._shows_state else rows
        return dict(zip(self.possible_agents, seen))


class TwoStepGameWithGroupedAgents(GroupedEnv):
    """The game with both agents as one group, "agents", for QMIX and VDN.

    Args:
        config: as for TwoStepGame, but observations have the state unless "separate_state_space" is False.
    """

    def __init__(self, config=None):
        game = TwoStepGame({"separate_state_space": True, **(config or {})})
        super().__init__(game, {"agents": game.possible_agents})
