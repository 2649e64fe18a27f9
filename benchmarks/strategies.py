"""Exploitability of strategies in rock, paper, scissors: what an opponent who knows them can win of a round."""

import numpy as np

from rllib.env.tasks.rock_paper_scissors import NOTHING

# Reward of the row's player, by both choices: rock, paper, scissors.
PAYOFF = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], float)


def exploitability(strategy: np.ndarray, rounds: int = 10) -> float:
    """Mean reward of a round for the best response to a strategy: 0 against the equilibrium, 1 against a pure choice.

    The response knows the strategy, and with it what its own choice brings about in the next round; it is found by
    dynamic programming from the last round on.

    Args:
        strategy: [4, 3], probabilities of the choices by the other's last one, the last row before the first round.
        rounds: of a game.
    """
    wins = PAYOFF @ strategy.T  # [own choice, state of the strategy]
    ahead = np.zeros(4)
    for _ in range(rounds):
        ahead = (wins + ahead[:3, None]).max(axis=0)
    return float(ahead[NOTHING]) / rounds


def strategy_of(policy) -> np.ndarray:
    """The probabilities [4, 3] of a policy's choices by the other's last one."""
    logits = policy.dist_inputs(np.arange(4))
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


class Exploitability:
    """The most that an opponent can win from the learning policies, each played at the mean of its last strategies.

    Strategies that learn against each other go round the equilibrium, so that the last ones say little; the means of
    those of the run's second half, one of each iteration, are near it.

    Args:
        steps: that the run has.
    """

    def __init__(self, steps: int):
        self._steps, self._seen = steps, {}

    def on_iteration(self, algo) -> None:
        """Takes the strategies of an iteration."""
        if algo.timesteps > self._steps / 2:
            for policy_id in algo.learners:
                self._seen.setdefault(policy_id, []).append(strategy_of(algo.get_policy(policy_id)))

    def final(self, algo) -> float:
        """The greatest exploitability of the policies' mean strategies."""
        return max(exploitability(np.mean(strategies, axis=0)) for strategies in self._seen.values())
