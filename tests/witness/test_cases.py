"""Named cases: memories, V-trace, priorities, filters, costs, novelty and actions, on scripted episodes."""

import pytest

from tests.witness.cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_case(name, tmp_path):
    CASES[name](tmp_path)
