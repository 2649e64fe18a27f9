"""The labels of a teacher belong to the observations of their rows: pairs of doors, settings and algorithms.

Where several agents act, policies have teachers of their own.
"""

import pytest

from tests.witness.arrays import covering, parameters
from tests.witness.doors import AGENTS
from tests.witness.grid import AXES, COSTLY, RULES, run
from tests.witness.taught import ANSWERS

# A teacher is asked where the library steps environments, which are no tensors.
STEPPED = ("single", "legacy", "vector", *AGENTS)
DOORS = tuple(door for door in AXES["door"] if door.startswith(STEPPED))
TAUGHT = {
    **AXES,
    "door": DOORS,
    "algorithm": ("PPO", "A2C", "IMPALA"),
    "n_step": (1,),
    "envs": (1, 3),
    # Workers in processes of their own, and their deaths, are the same to a teacher: test_teacher_labels.py has some.
    "workers": (0,),
    "killed": (False,),
    "ends": ("flags", "limit", "limit ends", "crashes", "resets"),
    "beta": (0.0, 0.5, 1.0),
    "answer": ANSWERS,
}
_AXES = {name: set(values) for name, values in TAUGHT.items()}


def _known(rule):
    """The part of a rule about the axes' values that are here; None: it is about none."""
    axis, values, others = rule
    values = tuple(value for value in values if value in _AXES[axis])
    kept = {name: tuple(value for value in allowed if value in _AXES[name]) for name, allowed in others.items()}
    return (axis, values, {name: allowed for name, allowed in kept.items() if allowed}) if values else None


CASES = covering(TAUGHT, rules=[rule for rule in map(_known, RULES) if rule], costly=COSTLY)


@pytest.mark.parametrize("case", parameters(CASES, "beta", every=4))
def test_pairs_with_a_teacher(case, tmp_path):
    run(case, tmp_path)
