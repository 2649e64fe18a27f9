"""Teachers of Secretive (taught_worlds.py), each made once for all tests of teachers."""

import pytest

from tests.algorithms.taught_worlds import GRU, made_teacher


@pytest.fixture(scope="session")
def teacher(tmp_path_factory):
    return made_teacher(tmp_path_factory.mktemp("teachers") / "plain")


@pytest.fixture(scope="session")
def other_teacher(tmp_path_factory):
    return made_teacher(tmp_path_factory.mktemp("teachers") / "other", model={"fcnet_hiddens": [8]})


@pytest.fixture(scope="session")
def teacher_with_memory(tmp_path_factory):
    return made_teacher(tmp_path_factory.mktemp("teachers") / "memory", model=GRU)
