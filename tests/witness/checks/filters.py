"""Statistics of observation filters: all observations, each once; and observations, from filtered ones."""

import itertools
from collections.abc import Iterable, Mapping

import numpy as np

from tests.witness.script import BASE, CRASHED, Family, decoded, episode, observation

# Added to a variance (models/observations/filters.py).
EPSILON = 1e-8


def observed(family: Family, serial: int, num_events: int) -> list[tuple[int, int, int, int]]:
    """Steps whose observations are acted upon in an environment's first events, and in the one that comes next."""
    assert CRASHED not in family.ends, "an environment that fails goes on with another serial"
    seen, left = [], num_events
    for number in itertools.count():
        steps: dict[int, int] = {}
        script = episode(family, serial, number)
        waiting: set[int] = set()
        for event in script.events:
            seen += [(serial, number, agent, steps.get(agent, 0)) for agent in event.acting]
            if not left:
                return seen
            left -= 1
            waiting |= set(event.acting)
            for agent in {*event.seen, *event.terminated} & waiting:
                waiting.discard(agent)
                steps[agent] = steps.get(agent, 0) + 1


def check_statistics(state: Mapping[str, np.ndarray], places: Iterable[tuple[int, int, int, int]]) -> None:
    """Checks count, mean and m2 of a filter.

    Args:
        state: of a filter.
        places: all observations that it has to have counted, each once.
    """
    rows = np.stack([observation(*place) for place in places]).astype(np.float64)
    assert float(state["count"]) == len(rows), f"the filter has counted {float(state['count'])} of {len(rows)}"
    mean = rows.mean(0)
    assert np.allclose(state["mean"], mean, rtol=0, atol=1e-12), f"the filter's mean {state['mean']}, not {mean}"
    m2 = np.square(rows - mean).sum(0)
    assert np.allclose(state["m2"], m2, rtol=1e-9, atol=1e-9), f"the filter's squares {state['m2']}, not {m2}"


class Unfiltered:
    """Decodes observations that were filtered without clipping.

    Args:
        states: statistics of the filter that the workers may have had, the newest first.
    """

    def __init__(self, states: Iterable[Mapping[str, np.ndarray]]):
        self.states = list(states)

    def __call__(self, row: np.ndarray) -> tuple[int, int, int, int]:
        for state in self.states:
            deviation = np.sqrt(np.asarray(state["m2"]) / float(state["count"]) + EPSILON)
            raw = (np.asarray(row, np.float64) * deviation + np.asarray(state["mean"])) * BASE
            digits = np.round(raw)
            # Float32 keeps seven digits of a number, and the first is a unit of a thousandth where it hardly varies.
            if np.abs(raw - digits).max() < 0.01 and digits[-1] == digits[:-1].sum() % BASE:
                return decoded(digits / BASE)
        raise AssertionError(f"no statistics of the filter make an observation of {row}")
