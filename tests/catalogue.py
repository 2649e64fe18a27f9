"""Catalogues of faults in docs/: tables whose last column names files of tests, and tests in them."""

import fnmatch
import re
from pathlib import Path

_ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def rows(page: Path) -> list[tuple[str, str, str]]:
    """(number, fault, tests) of each row that names tests."""
    return [row for row in _ROW.findall(page.read_text()) if "`" in row[2]]


def missing_tests(page: Path, folder: Path) -> list[str]:
    """The tests that a page names and that are not in their files below a folder."""
    missing = []
    for number, fault, tests in rows(page):
        file = names = None
        for word in re.findall("`([^`]+)`", tests):
            if word.endswith(".py"):
                file = folder / word
                names = re.findall(r"^def test_(\w+)", file.read_text(), re.MULTILINE) if file.exists() else None
                if names is None:
                    missing.append(f"{number}, {fault}: {word}")
            elif not fnmatch.filter(names or (), word.removeprefix("test_")):
                missing.append(f"{number}, {fault}: {word} in {file and file.name}")
    return missing
