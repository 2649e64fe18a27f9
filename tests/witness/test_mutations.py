"""The witness sees: each fault that is put in on purpose is found by its case, and by nothing else than a check."""

import functools
import traceback
from pathlib import Path

import pytest

from tests.witness.cases import CASES, OF_ARRAYS
from tests.witness.doors.scripted import BrokenRuleError
from tests.witness.mutations import MUTATIONS

WITNESS = str(Path(__file__).parent)


@functools.cache
def check_unmutated(case: str, path: Path) -> None:
    """Runs a case without a fault, once for all mutations that it has to find."""
    (CASES | OF_ARRAYS)[case](path)


@pytest.fixture(scope="session")
def unmutated_path(tmp_path_factory):
    return tmp_path_factory.mktemp("unmutated")


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_is_found(name, tmp_path, unmutated_path):
    mutation = MUTATIONS[name]
    check_unmutated(mutation.found_by, unmutated_path / mutation.found_by)
    with mutation.applied(), pytest.raises((AssertionError, BrokenRuleError)) as found:
        (CASES | OF_ARRAYS)[mutation.found_by](tmp_path)
    raised_in = traceback.extract_tb(found.value.__traceback__)[-1].filename
    assert raised_in.startswith(WITNESS), f"{raised_in} raised it, not the witness"
    print(f"{name} -> {mutation.found_by}: {str(found.value).splitlines()[0]:.160}")
