"""What all sides of the replay benchmark do alike: rows as those of CartPole, and rates over some time."""

import time

import numpy as np

GAMMA = 0.99


def rows(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Transitions of CartPole's size, [count, ...] each."""
    rng = np.random.default_rng(seed)
    return {
        "obs": rng.normal(size=(count, 4)).astype(np.float32),
        "new_obs": rng.normal(size=(count, 4)).astype(np.float32),
        "actions": rng.integers(2, size=count),
        "rewards": np.ones(count, np.float32),
        "terminateds": rng.random(count) < 0.01,
    }


def rate(function, rows_per_call: int, seconds: float) -> float:
    """Rows a second of calls that move so many rows each, after a tenth of the time for warming up."""
    _calls(function, seconds / 10)
    calls, elapsed = _calls(function, seconds)
    return calls * rows_per_call / elapsed


def _calls(function, seconds: float) -> tuple[int, float]:
    calls, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        for _ in range(5):
            function()
        calls += 5
    return calls, elapsed
