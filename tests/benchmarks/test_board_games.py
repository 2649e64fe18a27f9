"""The benchmark of self-play: games side by side, points of a tournament, and the order of copies."""

import board_games
import numpy as np
import pytest

from rllib.env.tasks.board_players import ConnectFourOneAhead, TicTacToeMinimax
from rllib.env.tasks.connect_four import ConnectFour
from rllib.env.tasks.tic_tac_toe import TicTacToe
from rllib.hand_written import RandomPolicy


def chooser(kind, env, seed=0):
    return kind(env.observation_space, env.action_space, {"seed": seed}).compute_actions


def in_column(column):
    return lambda observations: [column] * len(observations)


def test_wins_are_those_of_the_seat():
    # Four in a column come before the opponent's fourth, whoever begins.
    assert board_games.returns(ConnectFour, (in_column(0), in_column(1)), 3).tolist() == [1, 1, 1]
    first = board_games.played(ConnectFour, in_column(0), in_column(1), 0, 3)
    second = board_games.played(ConnectFour, in_column(0), in_column(1), 1, 3)
    assert (first.tolist(), second.tolist()) == ([3, 0, 0], [0, 0, 3])


@pytest.mark.parametrize("seat", [0, 1])
def test_games_of_different_lengths_are_played_to_their_ends(seat):
    random = chooser(RandomPolicy, TicTacToe)
    won, drawn, lost = board_games.played(TicTacToe, chooser(TicTacToeMinimax, TicTacToe), random, seat, 50)
    assert lost == 0 and won > 25 and won + drawn == 50


class Players:
    """In the place of an algorithm: its policies are players of a known strength."""

    def __init__(self, **choosers):
        self.choosers = choosers

    def compute_actions(self, observations, policy_id, explore):
        assert explore
        return self.choosers[policy_id](observations)


def test_a_tournament_finds_the_stronger_one():
    algo = Players(
        random=chooser(RandomPolicy, ConnectFour, 1),
        other=chooser(RandomPolicy, ConnectFour, 2),
        ahead=chooser(ConnectFourOneAhead, ConnectFour, 3),
    )
    points = board_games.tournament(algo, ConnectFour, ["random", "ahead", "other"], 10)
    assert points.sum() == 6 * 10 and points.argmax() == 1


def test_rank_correlation():
    assert board_games.rank_correlation(np.array([1.0, 2.0, 10.0, 11.0])) == pytest.approx(1)
    assert board_games.rank_correlation(np.array([4.0, 3.0, 2.0])) == pytest.approx(-1)
    # Two neighbours out of order: 1 - 6 * 2 / (4 * 15).
    assert board_games.rank_correlation(np.array([1.0, 3.0, 2.0, 4.0])) == pytest.approx(0.8)


def test_a_league_trains_by_the_settings_of_the_example():
    game = board_games.GAMES["connect_four"]
    with board_games.trained(game, seed=1, steps=1) as algo:
        assert set(algo.learners) == {"main"} and algo.config.train_batch_size == 4096
        assert algo.callbacks.opponents == ["random"]
        assert board_games.league_cells(game, algo, 1) == ["0", "-", "-"]
