"""Tic-tac-toe in turns: give it by "rllib.env.tasks.tic_tac_toe:TicTacToe"."""

from typing import ClassVar

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


class TicTacToe(MultiAgentEnv):
    """Two players mark the nine squares in turn; the one with three in a line gets 1, the other -1.

    The player whose turn it is observes `observation`, its own and the other's marks [3, 3, 2], and `action_mask`, the
    free squares [9], both int8. At the end both observe. An illegal move ends the game, and costs its player 1.
    Observations, rewards and ends are as in PettingZoo's tictactoe_v3.

    Args:
        config: the `env_config`; "render_mode" may be "ansi".
    """

    possible_agents = ("player_1", "player_2")
    observation_space = Dict(action_mask=Box(0, 1, (9,), np.int8), observation=Box(0, 1, (3, 3, 2), np.int8))
    action_space = Discrete(9)
    metadata: ClassVar = {"render_modes": ["ansi"]}

    def __init__(self, config=None):
        super().__init__()
        self.render_mode = (config or {}).get("render_mode")
        self._marks, self._turn = np.zeros((2, 9), np.int8), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._marks, self._turn, self.agents = np.zeros((2, 9), np.int8), 0, list(self.possible_agents)
        return {self.possible_agents[0]: self._observation(0)}, {}

    def step(self, action_dict):
        mover, other = self.possible_agents[self._turn], self.possible_agents[1 - self._turn]
        square = int(action_dict[mover])
        rewards = dict.fromkeys(self.possible_agents, 0.0)
        if self._marks[:, square].any():
            rewards[mover], is_over = -1.0, True
        else:
            self._marks[self._turn, square] = 1
            has_won = any(self._marks[self._turn, list(line)].all() for line in LINES)
            if has_won:
                rewards[mover], rewards[other] = 1.0, -1.0
            is_over = has_won or bool(self._marks.any(0).all())
            self._turn = 1 - self._turn
        if is_over:
            self.agents = []
        observing = (0, 1) if is_over else (self._turn,)
        observations = {self.possible_agents[player]: self._observation(player) for player in observing}
        ends = dict.fromkeys(self.possible_agents, is_over) | {"__all__": is_over}
        return observations, rewards, ends, dict.fromkeys(ends, False), {}

    def render(self) -> str:
        """The board as text: X of player_1, O of player_2, and the action of each free square."""
        first, second = self._marks
        signs = ["X" if first[i] else "O" if second[i] else str(i) for i in range(9)]
        return "\n---+---+---\n".join(" " + " | ".join(signs[row : row + 3]) for row in (0, 3, 6)) + "\n"

    def _observation(self, player: int) -> dict:
        marks = np.stack([self._marks[player], self._marks[1 - player]], -1).reshape(3, 3, 2)
        legal = (self._marks == 0).all(0) if player == self._turn else np.zeros(9)
        return {"action_mask": legal.astype(np.int8), "observation": marks}
