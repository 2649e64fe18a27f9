"""Every number of every batch, computed again from scripts: all pairs of doors, settings and algorithms."""

import itertools

import pytest

from tests.witness.arrays import Combinations, covering, parameters
from tests.witness.grid import AXES, COSTLY, RULES, run

pytestmark = pytest.mark.usefixtures("workers_know_the_module")

PAIRS = covering(AXES, rules=RULES, costly=COSTLY)


@pytest.mark.parametrize("case", parameters(PAIRS, "policies"))
def test_pairs(case, tmp_path):
    run(case, tmp_path)


def test_all_pairs_are_there_that_go_together():
    """But for those that fit no value of a third axis."""
    rules = Combinations(AXES, RULES)
    for a, b in itertools.combinations(AXES, 2):
        there = {(case[a], case[b]) for case in PAIRS}
        for pair in itertools.product(AXES[a], AXES[b]):
            places = tuple(zip((a, b), pair))
            fits = rules.fit(places)
            assert fits or pair not in there
            others = [name for name in AXES if name not in (a, b)]
            stranded = any(not any(rules.fit((*places, (name, value))) for value in AXES[name]) for name in others)
            assert pair in there or not fits or stranded, f"{a}={pair[0]} and {b}={pair[1]}"


def test_an_environment_that_fails_before_agents_that_learn_have_come(tmp_path):
    """Its only episode counts, and is known from its return alone: no row of a policy that learns tells its serial."""
    several = {"door": "pettingzoo-turns", "algorithm": "PPO", "policies": "frozen", "actions": "multidiscrete"}
    sampled = {"ends": "resets", "batch_mode": "complete_episodes", "fragment": 20, "envs": 3, "workers": 0}
    run({**several, **sampled, "restore": True, "seed": 20261928}, tmp_path)
