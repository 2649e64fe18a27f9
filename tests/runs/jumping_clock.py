"""Clocks that can be set forward. To be imported before anything that reads a clock by its name alone."""

import time

_jumped_ns = 0


def jump(seconds: float) -> None:
    """Has this process's clocks show so much more from now on. Waits of the system's keep their length."""
    global _jumped_ns
    _jumped_ns += round(seconds * 1e9)


def _shifted(name: str):
    true, unit = getattr(time, name), 1 if name.endswith("_ns") else 1e-9
    return lambda: true() + _jumped_ns * unit


for _clock in ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns"):
    setattr(time, _clock, _shifted(_clock))
