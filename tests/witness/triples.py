"""All triples of doors, settings and algorithms, with new scripts each time: `make faults` runs this.

WITNESS_SEED repeats a run. A failure names its cases, each of which `grid.run` repeats alone.
"""

import functools
import os
import secrets
import traceback

import pytest

from tests.witness.arrays import covering
from tests.witness.grid import AXES, COSTLY, RULES, run

PARTS = 32
SEED = int(os.environ.get("WITNESS_SEED") or secrets.randbits(32))


@functools.cache
def _cases():
    cases = covering(AXES, SEED, strength=3, rules=RULES, costly=COSTLY)
    return [{**case, "seed": SEED + number} for number, case in enumerate(cases)]


@pytest.mark.parametrize("part", range(PARTS))
def test_triples(part, tmp_path):
    failures = []
    for number, case in enumerate(_cases()[part::PARTS]):
        try:
            run(case, tmp_path / str(number))
        except Exception:
            failures.append(f"run({case})\n{traceback.format_exc(limit=-3)}")
    assert not failures, f"WITNESS_SEED={SEED}: {len(failures)} cases fail\n" + "\n".join(failures)
