"""A game of signals: give it by "rllib.env.tasks.guess_the_number:GuessTheNumber"."""

from gymnasium.spaces import Discrete

from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv


class GuessTheNumber(MultiAgentEnv):
    """The speaker sees a number and says one of `words` words; the listener hears it and guesses the number.

    They act in turn, one step each, and have spaces of their own. Both get 1 for a right guess, else 0. With as many
    words as numbers the best return of each is 1; guesses by chance give 1 / numbers.

    Args:
        config: the `env_config`, with the items "numbers" (4) and "words" (as many as numbers).
    """

    possible_agents = ("speaker", "listener")

    def __init__(self, config=None):
        super().__init__()
        self.numbers = (config or {}).get("numbers", 4)
        words = (config or {}).get("words", self.numbers)
        self.observation_spaces = {"speaker": Discrete(self.numbers), "listener": Discrete(words)}
        self.action_spaces = {"speaker": Discrete(words), "listener": Discrete(self.numbers)}
        self._number = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.agents, self._number = list(self.possible_agents), int(self.np_random.integers(self.numbers))
        return {"speaker": self._number}, {}

    def step(self, action_dict):
        if "speaker" in action_dict:
            heard = {"listener": int(action_dict["speaker"])}
            return heard, {}, {"__all__": False}, {"__all__": False}, {}
        self.agents = []
        reward = float(action_dict["listener"] == self._number)
        return {}, dict.fromkeys(self.possible_agents, reward), {"__all__": True}, {"__all__": False}, {}
