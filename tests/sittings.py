"""Long tests in sittings: a sitting runs what its list lacks, and adds a line for each test that it has finished.

    python -m pytest -p tests.sittings --list docs/project/long_tests.csv --minutes 60 -m "learning or slow"

A test of several variants is one line, and is not begun again in its middle; a variant that trains for minutes (marked
`learning`) has its own line. To run a test again, remove its line.
"""

import csv
import subprocess
import time
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

FIELDS = ["test", "result", "variants", "seconds", "commit", "day"]


def pytest_addoption(parser):
    parser.addoption("--list", required=True, help="CSV file of what has run")
    parser.addoption("--minutes", type=float, default=float("inf"), help="after which no test but the first is begun")


def pytest_configure(config):
    config.pluginmanager.register(Sitting(Path(config.getoption("--list")), config.getoption("--minutes") * 60))


class Sitting:
    """Runs the tests that the list lacks until the time is over.

    Args:
        path: of the list.
        limit_s: seconds after which no test but the first is begun.
    """

    def __init__(self, path: Path, limit_s: float):
        self._path, self._ends_at = path, time.monotonic() + limit_s
        self._left: Counter[str] = Counter()
        self._outcomes: dict[str, Counter[str]] = {}
        self._seconds: Counter[str] = Counter()
        self._newest = ""
        self._is_over = False

    @pytest.hookimpl(trylast=True)  # after pytest has selected by marks
    def pytest_collection_modifyitems(self, config, items):
        done = {line["test"] for line in read(self._path)}
        chosen = [item for item in items if key_of(item) not in done]
        config.hook.pytest_deselected(items=[item for item in items if key_of(item) in done])
        items[:] = chosen
        self._left.update(map(key_of, chosen))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        if self._newest not in ("", key := key_of(item)) and time.monotonic() > self._ends_at:
            self._is_over = True
            item.session.shouldstop = f"the sitting is over; tests that are left: {len(self._left)}"
            return True
        self._newest = key
        return None

    def pytest_sessionfinish(self, session):
        if self._is_over:  # not an error
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if session.testsfailed else pytest.ExitCode.OK

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report, key = (yield), key_of(item)
        self._seconds[key] += call.duration
        if report.failed or report.skipped or report.when == "call":
            self._outcomes.setdefault(key, Counter())[report.outcome] += 1
        if report.when == "teardown":
            self._left[key] -= 1
            if not self._left[key]:
                del self._left[key]
                self._write(key)
        return report

    def _write(self, key: str) -> None:
        outcomes = self._outcomes[key]
        line = {
            "test": key,
            "result": next(each for each in ("failed", "passed", "skipped") if outcomes[each]),
            "variants": outcomes.total(),
            "seconds": f"{self._seconds[key]:.1f}",
            "commit": commit(),
            "day": date.today().isoformat(),
        }
        lines = sorted([*read(self._path), line], key=lambda line: line["test"])
        with self._path.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)


def key_of(item: pytest.Item) -> str:
    """What has one line: the test's name, with its variant if it trains for minutes."""
    return item.nodeid if item.get_closest_marker("learning") else item.nodeid.partition("[")[0]


def read(path: Path) -> list[dict[str, str]]:
    """The lines of a list; none if there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def commit() -> str:
    """The commit of the checkout."""
    asked = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
