"""Rock, paper, scissors, and players of it that are written by hand.

Give the game by "rllib.env.tasks.rock_paper_scissors:RockPaperScissors".
"""

import numpy as np
from gymnasium.spaces import Discrete

from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv
from rllib.hand_written import HandWrittenPolicy

ROCK, PAPER, SCISSORS, NOTHING = range(4)


class RockPaperScissors(MultiAgentEnv):
    """Two players choose at the same time, `rounds` times (10); the winner of a round gets 1, the loser -1.

    An observation is the other player's last choice, 3 before the first. The last round terminates the episode.

    Args:
        config: the `env_config`, with the item "rounds".
    """

    possible_agents = ("player_0", "player_1")
    observation_space, action_space = Discrete(4), Discrete(3)

    def __init__(self, config=None):
        super().__init__()
        self.rounds = (config or {}).get("rounds", 10)
        self._round = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._round, self.agents = 0, list(self.possible_agents)
        return dict.fromkeys(self.possible_agents, NOTHING), {}

    def step(self, action_dict):
        first, second = (int(action_dict[player]) for player in self.possible_agents)
        outcome = (0.0, 1.0, -1.0)[(first - second) % 3]  # paper beats rock, scissors paper, rock scissors
        self._round += 1
        is_over = self._round >= self.rounds
        if is_over:
            self.agents = []
        seen = {"player_0": second, "player_1": first}
        return seen, {"player_0": outcome, "player_1": -outcome}, {"__all__": is_over}, {"__all__": False}, {}


class AlwaysSame(HandWrittenPolicy):
    """A player of RockPaperScissors that draws a choice at the beginning of an episode, and stays with it."""

    def get_initial_state(self):
        return [np.array(NOTHING)]

    def compute_actions(self, observations, state_batches=None, **kwargs):
        (kept,) = state_batches
        choices = np.where(kept == NOTHING, self.rng.integers(3, size=len(observations)), kept)
        return choices.tolist(), [choices], {}


class BeatLast(HandWrittenPolicy):
    """A player of RockPaperScissors that plays what would have beaten the other's last choice; the first is drawn."""

    def compute_actions(self, observations, state_batches=None, **kwargs):
        return [int(self.rng.integers(3)) if seen == NOTHING else (int(seen) + 1) % 3 for seen in observations]
