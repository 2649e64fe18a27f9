"""Named cases: memories, V-trace, priorities, filters, costs, novelty and actions, on scripted episodes."""

import pytest

from tests.witness.cases import CASES

pytestmark = pytest.mark.usefixtures("workers_know_the_module")


@pytest.mark.parametrize("name", CASES)
def test_case(name, tmp_path):
    CASES[name](tmp_path)
