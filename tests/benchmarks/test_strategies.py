"""Exploitability of strategies in rock, paper, scissors."""

import numpy as np
import pytest
from strategies import Exploitability, exploitability, strategy_of

from rllib import PPOConfig
from rllib.env.tasks.rock_paper_scissors import NOTHING, PAPER, ROCK, SCISSORS, AlwaysSame, BeatLast, RockPaperScissors

UNIFORM = np.full((4, 3), 1 / 3)
PURE = np.eye(3)


@pytest.mark.parametrize("rounds", [1, 10])
def test_the_equilibrium_and_a_pure_choice(rounds):
    assert exploitability(UNIFORM, rounds) == pytest.approx(0)
    assert exploitability(PURE[[ROCK] * 4], rounds) == 1
    # A strategy that copies the other's last choice is known, too.
    assert exploitability(PURE[[ROCK, PAPER, SCISSORS, ROCK]], rounds) == 1


def test_the_best_response_looks_ahead():
    """After paper the strategy plays rock, else at random: nothing is lost by paper, and a round is won after it."""
    strategy = UNIFORM.copy()
    strategy[PAPER] = PURE[ROCK]
    assert exploitability(strategy, 1) == pytest.approx(0)
    assert exploitability(strategy, 3) == pytest.approx(2 / 3)


def test_means_are_of_the_second_half():
    config = (
        PPOConfig()
        .environment(RockPaperScissors)
        .rollouts(num_rollout_workers=0)
        .multi_agent(policies="own")
        .training(train_batch_size=20, sgd_minibatch_size=20, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
    )
    measured = Exploitability(steps=80)
    with config.build() as algo:
        while algo.timesteps < 80:
            algo.train()
            measured.on_iteration(algo)
        strategies = [strategy_of(policy) for policy in algo.policies.values()]
        assert [len(seen) for seen in measured._seen.values()] == [2, 2]
        assert measured.final(algo) == pytest.approx(max(map(exploitability, strategies)), abs=0.01)


def test_players_with_a_rule():
    same, beats = AlwaysSame(config={"seed": 1}), BeatLast(config={"seed": 1})
    first, state, _ = same.compute_actions([NOTHING] * 30, [np.array([NOTHING] * 30)])
    assert set(first) == {ROCK, PAPER, SCISSORS}
    assert same.compute_actions([ROCK] * 30, state)[0] == first
    assert beats.compute_actions([ROCK, PAPER, SCISSORS]) == [PAPER, SCISSORS, ROCK]
    assert set(beats.compute_actions([NOTHING] * 30)) == {ROCK, PAPER, SCISSORS}
