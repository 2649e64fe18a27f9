"""docs/project/external_faults.md names tests; they are there."""

from pathlib import Path

from tests.catalogue import missing_tests, rows

TESTS = Path(__file__).parents[1]
CATALOGUE = TESTS.parent / "docs" / "project" / "external_faults.md"


def test_every_test_that_the_catalogue_names_exists():
    numbers = {number for number, _, _ in rows(CATALOGUE)}
    assert numbers >= {f"S{n}" for n in range(1, 12) if n != 6} | {f"F{n}" for n in range(1, 18)}
    assert not missing_tests(CATALOGUE, TESTS)
