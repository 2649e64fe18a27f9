"""docs/project/faults.md names tests; they are there."""

from pathlib import Path

from tests.catalogue import missing_tests, rows

HERE = Path(__file__).parent
CATALOGUE = HERE.parents[1] / "docs" / "project" / "faults.md"
LOCAL = {*range(1, 53), *range(57, 64)}  # faults that concern one machine


def test_every_test_that_the_catalogue_names_exists():
    assert {int(number) for number, _, _ in rows(CATALOGUE) if number.isdigit()} >= LOCAL
    assert not missing_tests(CATALOGUE, HERE)
