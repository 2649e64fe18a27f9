"""OpenSpiel's games as MultiAgentEnvs (the extra `openspiel`)."""

from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from rllib.env.multi_agent.agent_spaces import ALL
from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv, StepResult
from rllib.extras import install_hint

# The reward for an illegal action, instead of which a random legal one is played.
ILLEGAL_REWARD = -0.1


class OpenSpielEnv(MultiAgentEnv):
    """A game of OpenSpiel: players take turns, or act at the same time where the game asks for it.

    Agents are the players, 0 to n - 1. An observation is the game's observation tensor, or its information state
    where it has none, float32; with `action_mask` a Dict of it, `observations`, and the legal actions, `action_mask`.
    Rewards are the changes of the game's returns. An illegal action costs its player 0.1 and becomes a random legal
    one. Chance is drawn from `self.np_random`.

    Args:
        game: its name and parameters, such as "connect_four" or "go(board_size=5)", or a game of pyspiel.
        action_mask: whether observations have the mask of legal actions.

    Raises:
        ValueError: if OpenSpiel is not installed, or has no such game.
    """

    metadata: ClassVar = {"render_modes": ["ansi"]}

    def __init__(self, game: Any = "connect_four", action_mask: bool = True):
        if isinstance(game, dict):  # the env_config
            self.render_mode = game.get("render_mode")
            game, action_mask = game.get("game", "connect_four"), game.get("action_mask", action_mask)
        self.game = _load(game) if isinstance(game, str) else game
        self._masks = action_mask
        self._sees_observations = self.game.get_type().provides_observation_tensor
        shape = (
            self.game.observation_tensor_shape()
            if self._sees_observations
            else self.game.information_state_tensor_shape()
        )
        self._shape, self._num_actions = tuple(shape), self.game.num_distinct_actions()
        seen = Box(-np.inf, np.inf, self._shape, np.float32)
        masked = Dict(action_mask=MultiBinary(self._num_actions), observations=seen)
        self.observation_space = masked if action_mask else seen
        self.action_space = Discrete(self._num_actions)
        self.possible_agents = list(range(self.game.num_players()))
        self.agents = list(self.possible_agents)
        self.game_state: Any = None

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        self.game_state = self.game.new_initial_state()
        self.agents = list(self.possible_agents)
        self._play_chance()
        return self._observations(), {}

    def step(self, action_dict: dict[int, Any]) -> StepResult:
        state, before = self.game_state, np.array(self.game_state.returns())
        rewards = np.zeros(len(self.possible_agents))
        actions = {}
        for player, action in action_dict.items():
            legal = state.legal_actions(player)
            if action not in legal:
                rewards[player] += ILLEGAL_REWARD
                action = self.np_random.choice(legal)
            actions[player] = int(action)
        if state.is_simultaneous_node():
            # Players without a choice are not asked.
            state.apply_actions([actions.get(player, 0) for player in self.possible_agents])
        else:
            state.apply_action(actions[state.current_player()])
        self._play_chance()
        rewards += np.array(state.returns()) - before
        is_over = state.is_terminal()
        if is_over:
            self.agents = []
        observations = {} if is_over else self._observations()
        return observations, dict(enumerate(rewards.tolist())), {ALL: is_over}, {ALL: False}, {}

    def render(self) -> str:
        """The state as text."""
        return str(self.game_state)

    def _play_chance(self) -> None:
        while self.game_state.is_chance_node():
            outcomes, probabilities = zip(*self.game_state.chance_outcomes())
            self.game_state.apply_action(int(self.np_random.choice(outcomes, p=probabilities)))

    def _observations(self) -> dict[int, Any]:
        """Observations of the players who act next."""
        state = self.game_state
        players = self.possible_agents if state.is_simultaneous_node() else [state.current_player()]
        return {player: self._observation(player) for player in players if state.legal_actions(player)}

    def _observation(self, player: int) -> Any:
        state = self.game_state
        tensor = state.observation_tensor(player) if self._sees_observations else state.information_state_tensor(player)
        seen = np.asarray(tensor, np.float32).reshape(self._shape)
        if not self._masks:
            return seen
        return {"action_mask": np.asarray(state.legal_actions_mask(player), np.int8), "observations": seen}


def _load(name: str):
    try:
        import pyspiel
    except ImportError as error:
        raise ValueError(
            f"the game {name!r} needs OpenSpiel, which is not installed. Use {install_hint('openspiel')}."
        ) from error
    try:
        return pyspiel.load_game(name)
    except pyspiel.SpielError as error:
        raise ValueError(f"OpenSpiel cannot load the game {name!r}: {str(error).splitlines()[0]}") from None
