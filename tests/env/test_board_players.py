"""Players of board games: strength against random moves, and the moves that their rules demand."""

import numpy as np
import pytest

from rllib.env.tasks.board_players import ConnectFourOneAhead, TicTacToeMinimax, best_squares
from rllib.env.tasks.connect_four import ConnectFour
from rllib.env.tasks.tic_tac_toe import TicTacToe
from rllib.hand_written import RandomPolicy


def results(env, players, games):
    """Return of the first player in each game; players act by seat."""
    by_agent, returns = dict(zip(env.possible_agents, players)), []
    for _ in range(games):
        (observations, _), is_over = env.reset(), False
        while not is_over:
            actions = {agent: by_agent[agent].compute_actions([seen])[0] for agent, seen in observations.items()}
            observations, rewards, terminateds, _, _ = env.step(actions)
            is_over = terminateds["__all__"]
        returns.append(rewards[env.possible_agents[0]])
    return np.array(returns)


def player(policy_class, env, seed, **config):
    return policy_class(env.observation_space, env.action_space, {"seed": seed, **config})


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("seat", [0, 1])
def test_minimax_never_loses(seat, deterministic):
    env = TicTacToe()
    players = [player(RandomPolicy, env, 1), player(RandomPolicy, env, 1)]
    players[seat] = player(TicTacToeMinimax, env, 2, deterministic=deterministic)
    returns = results(env, players, 300) * (1, -1)[seat]
    assert returns.min() >= 0
    assert returns.mean() > 0.7


def test_perfect_players_draw():
    env = TicTacToe()
    assert not results(env, [player(TicTacToeMinimax, env, seed) for seed in (1, 2)], 100).any()


def test_best_squares():
    assert best_squares(0, 0) == list(range(9))  # all openings are a draw
    assert best_squares(0b000000011, 0b000011000) == [2]  # wins
    assert best_squares(0b000010000, 0b000000011) == [2]  # must block
    assert best_squares(0, 0b000010000) == [0, 2, 6, 8]  # against the centre: a corner


def test_random_players_of_tic_tac_toe_win_as_often_as_all_games_say():
    env = TicTacToe()
    returns = results(env, [player(RandomPolicy, env, seed) for seed in (1, 2)], 3000)
    # Exact: .585, .127, .288; the standard error is below .01.
    np.testing.assert_allclose([(returns == value).mean() for value in (1, 0, -1)], [0.585, 0.127, 0.288], atol=0.04)


def after(columns):
    """Observation of the mover after these moves of connect-four."""
    env = ConnectFour()
    observations, _ = env.reset()
    for column in columns:
        observations = env.step({next(iter(observations)): column})[0]
    return next(iter(observations.values()))


@pytest.mark.parametrize(
    ("columns", "answer"),
    [
        ([0, 6, 1, 6, 2, 5], 3),  # wins in the bottom row
        ([4, 0, 4, 1, 4, 1], 4),  # wins in a column
        ([0, 6, 1, 6, 2], 3),  # blocks
        ([0, 6, 1, 6, 2, 6], 3),  # wins rather than blocks
        ([0, 1, 1, 2, 3, 2, 2, 3, 3, 6], 3),  # the rising diagonal
        ([6, 5, 5, 4, 3, 4, 4, 3, 3, 0], 3),  # the falling one
    ],
)
def test_one_ahead_wins_or_blocks(columns, answer):
    env = ConnectFour()
    for seed in range(5):
        assert player(ConnectFourOneAhead, env, seed).compute_actions([after(columns)]) == [answer]


def test_one_ahead_beats_random_moves_in_both_seats():
    env = ConnectFour()
    ahead, random = player(ConnectFourOneAhead, env, 1), player(RandomPolicy, env, 2)
    assert results(env, [ahead, random], 200).mean() > 0.8
    assert results(env, [random, ahead], 200).mean() < -0.7
