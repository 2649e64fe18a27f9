"""Connect four in turns: give it by "rllib.env.tasks.connect_four:ConnectFour"."""

from typing import ClassVar

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv

ROWS, COLUMNS = 6, 7
# The marks of a player are the bits of an int, column by column from the bottom. The seventh bit of a column stays
# empty, so that no line continues from the top of one column at the bottom of the next.
BITS_OF_COLUMN = ROWS + 1
# Distances of neighbours in a line: upwards, to the right, and both diagonals.
_DIRECTIONS = (1, BITS_OF_COLUMN, BITS_OF_COLUMN - 1, BITS_OF_COLUMN + 1)
_FULL = ROWS * COLUMNS


def has_four(marks: int) -> bool:
    """Whether there are four in a line among the marks of a player."""
    for step in _DIRECTIONS:
        pairs = marks & (marks >> step)
        if pairs & (pairs >> 2 * step):
            return True
    return False


class ConnectFour(MultiAgentEnv):
    """Two players drop marks into seven columns in turn; the one with four in a line gets 1, the other -1.

    The player whose turn it is observes `observation`, its own and the other's marks [6, 7, 2] with the top row first,
    and `action_mask`, the columns that are not full [7], both int8. At the end both observe. An illegal move ends the
    game, and costs its player 1. Observations, rewards and ends are those of PettingZoo's connect_four_v3.

    Args:
        config: the `env_config`; "render_mode" may be "ansi".
    """

    possible_agents = ("player_0", "player_1")
    observation_space = Dict(
        action_mask=Box(0, 1, (COLUMNS,), np.int8), observation=Box(0, 1, (ROWS, COLUMNS, 2), np.int8)
    )
    action_space = Discrete(COLUMNS)
    metadata: ClassVar = {"render_modes": ["ansi"]}

    def __init__(self, config=None):
        super().__init__()
        self.render_mode = (config or {}).get("render_mode")
        self._start()

    def _start(self) -> None:
        self._board = np.zeros((ROWS, COLUMNS, 2), np.int8)
        self._marks, self._heights, self._turn = [0, 0], [0] * COLUMNS, 0
        self._is_legal = np.ones(COLUMNS, np.int8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._start()
        self.agents = list(self.possible_agents)
        return {self.possible_agents[0]: self._observation(0)}, {}

    def step(self, action_dict):
        turn = self._turn
        mover, other = self.possible_agents[turn], self.possible_agents[1 - turn]
        column = int(action_dict[mover])
        height = self._heights[column]
        rewards = {mover: 0.0, other: 0.0}
        if height == ROWS:
            rewards[mover], is_over = -1.0, True
        else:
            self._board[ROWS - 1 - height, column, turn] = 1
            self._marks[turn] |= 1 << (column * BITS_OF_COLUMN + height)
            self._heights[column] = height + 1
            if height + 1 == ROWS:
                self._is_legal[column] = 0
            has_won = has_four(self._marks[turn])
            if has_won:
                rewards[mover], rewards[other] = 1.0, -1.0
            is_over = has_won or sum(self._heights) == _FULL
            self._turn = 1 - turn
        if is_over:
            self.agents = []
        observing = (0, 1) if is_over else (self._turn,)
        observations = {self.possible_agents[player]: self._observation(player) for player in observing}
        terminateds = {mover: is_over, other: is_over, "__all__": is_over}
        return observations, rewards, terminateds, dict.fromkeys(terminateds, False), {}

    def render(self) -> str:
        """The board as text: X of player_0, O of player_1, and the actions below their columns."""
        signs = np.where(self._board[..., 0], "X", np.where(self._board[..., 1], "O", "."))
        return "\n".join(map(" ".join, [*signs.tolist(), map(str, range(COLUMNS))])) + "\n"

    def _observation(self, player: int) -> dict:
        board = self._board[..., ::-1] if player else self._board
        legal = self._is_legal.copy() if player == self._turn else np.zeros(COLUMNS, np.int8)
        return {"action_mask": legal, "observation": board.copy()}
