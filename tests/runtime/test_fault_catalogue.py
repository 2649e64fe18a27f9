"""docs/faults.md names tests; they are there."""

import fnmatch
import re
from pathlib import Path

HERE = Path(__file__).parent
CATALOGUE = HERE.parents[1] / "docs" / "faults.md"
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
LOCAL = {*range(1, 53), *range(57, 64)}  # faults that concern one machine


def test_every_test_that_the_catalogue_names_exists():
    rows = [row for row in ROW.findall(CATALOGUE.read_text()) if "`" in row[2]]
    assert {int(number) for number, _, _ in rows if number.isdigit()} >= LOCAL
    missing = []
    for number, fault, tests in rows:
        file = names = None
        for word in re.findall("`([^`]+)`", tests):
            if word.endswith(".py"):
                file = HERE / word
                names = re.findall(r"^def test_(\w+)", file.read_text(), re.MULTILINE) if file.exists() else None
                if names is None:
                    missing.append(f"{number}, {fault}: {word}")
            elif not fnmatch.filter(names or (), word.removeprefix("test_")):
                missing.append(f"{number}, {fault}: {word} in {file and file.name}")
    assert not missing
