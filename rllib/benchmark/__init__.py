"""Benchmarks: suites of tasks with published scores, and what algorithms have reached on them.

    from rllib.benchmark import read_suite, read_standings

`rllib benchmark` (rllib/cli/benchmark) trains; this package reads its directories.
"""

from rllib.benchmark.standings import Standings, read_standings
from rllib.benchmark.suite import Suite, read_suite, suite_names

__all__ = ["Standings", "Suite", "read_standings", "read_suite", "suite_names"]
