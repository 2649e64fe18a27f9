"""Every number of every batch, computed again from scripts: all pairs of doors, settings and algorithms."""

import pytest

from tests.witness.grid import AXES, covering, run


@pytest.mark.parametrize("case", list(covering(AXES)), ids=lambda case: "-".join(map(str, case.values())))
def test_pairs(case, tmp_path):
    run(case, tmp_path)
