"""The files for a public host's continuous integration: they can be read, and type what the Makefile has."""

import itertools
import re
from pathlib import Path

import bounds
import pytest
import yaml

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][a-z -]*):(?!=)", (ROOT / "Makefile").read_text(), re.M))
TARGETS = {name for names in TARGETS for name in names.split()}


def commands(job: dict) -> list[str]:
    """What a job types, for each of its variants."""
    matrix = job.get("strategy", {}).get("matrix", {})
    variants = [dict(zip(matrix, values)) for values in itertools.product(*matrix.values())]
    return [
        re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda found: str(variant[found[1]]), step["run"])  # noqa: B023
        for variant in variants
        for step in job["steps"]
        if "run" in step
    ]


def jobs():
    return [(path.name, name, job) for path in FILES for name, job in yaml.safe_load(path.read_text())["jobs"].items()]


@pytest.mark.parametrize(("file", "name", "job"), jobs(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_job_types_targets_of_the_makefile_and_ends(file, name, job):
    assert job["timeout-minutes"] <= 240 and job["runs-on"]
    typed = commands(job)
    assert typed
    for line in typed:
        assert line == "rm -r results" or line.removeprefix("make ") in TARGETS, f"{file}, {name}: {line}"


def test_each_python_that_the_metadata_names_is_tested():
    tests = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    named = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert tests["jobs"]["linux"]["strategy"]["matrix"]["python"] == named


def test_the_oldest_dependencies_are_the_bounds():
    found = dict(line.split("==") for line in bounds.oldest())
    assert found["numpy"] == "2.0" and found["rich"] == "13.0" and "torch" in found
    assert len(found) == len(bounds.tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
