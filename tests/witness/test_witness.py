"""Every number of every batch, computed again from scripts: all pairs of doors, settings and algorithms."""

import itertools

import pytest

from tests.witness.arrays import Combinations, covering
from tests.witness.grid import AXES, COSTLY, RULES, run

PAIRS = covering(AXES, rules=RULES, costly=COSTLY)


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: "-".join(map(str, case.values())).replace(" ", "_"))
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
