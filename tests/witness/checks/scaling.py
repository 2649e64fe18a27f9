"""Rewards divided by the deviation of their discounted returns: G_t = gamma G_{t-1} + r_t, counted once each."""

from collections.abc import Mapping, Sequence

import numpy as np

from rllib import sample_batch as sb
from tests.witness.checks.rows import Columns, check_rows
from tests.witness.checks.steps import Step, Steps, close
from tests.witness.script import Family

EPSILON, CLIP = 1e-8, 10.0


class ReturnsOfEpisodes:
    """Discounted returns so far of each step of one agent, batch by batch.

    Args:
        family: of the scripts.
        gamma: discount per step.

    Attributes:
        steps: those of all batches.
        counted: returns of the steps.
    """

    def __init__(self, family: Family, gamma: float):
        self.family, self.gamma = family, gamma
        self.steps, self.counted = Steps(), []
        self._running: dict[Step, float] = {}

    def check(self, columns: Columns) -> None:
        """Checks the rewards of a batch: scaled by the statistics of the batches before it."""
        variance, new = np.var(self.counted) if self.counted else None, []

        def scaled(step: Step, reward: float) -> float:
            before = self._running.get((*step[:3], step[3] - 1), 0.0)
            assert step[3] == 0 or (*step[:3], step[3] - 1) in self._running, f"{step} comes before the step before it"
            self._running[step] = self.gamma * before + reward
            new.append(self._running[step])
            if variance is None:  # by statistics of this batch, which each environment has for itself
                row = next(i for i, seen in enumerate(columns[sb.OBS]) if np.array_equal(seen, _seen(step)))
                return float(columns[sb.REWARDS][row])
            return float(np.clip(reward / np.sqrt(variance + EPSILON), -CLIP, CLIP))

        check_rows(columns, self.family, self.steps, scaled=scaled)
        self.counted += new


def _seen(step: Step) -> np.ndarray:
    from tests.witness.script import observation

    return observation(*step)


def check_moments(state: Mapping[str, np.ndarray], numbers: Sequence[float]) -> None:
    """Checks count, mean and m2 of statistics of numbers."""
    assert float(state["count"]) == len(numbers), f"{float(state['count'])} returns are counted, of {len(numbers)}"
    close(float(state["mean"][0]), float(np.mean(numbers)), "mean of the returns", 1e-6)
    close(float(state["m2"][0]), float(np.var(numbers) * len(numbers)), "squares of the returns", 1e-6)
