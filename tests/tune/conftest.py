"""Helpers of the tests of whole experiments."""

import pytest

import runtime
from rllib import tune


@pytest.fixture(scope="module")
def two_cpus(request):
    """A session with two CPUs for all tests of a module; tests/conftest.py ends it.

    Its processes are forked with the module, and with pytest: else each trial imports them for its function.
    """
    runtime.init(num_cpus=2, preload=["numpy", "rllib.tune.running.actor", request.module.__name__])


@pytest.fixture
def run(tmp_path):
    """tune.run into a directory of the test's own, without a word."""

    def run(trainable, **settings):
        return tune.run(trainable, **{"storage_path": tmp_path, "verbose": 0, "tensorboard": False, **settings})

    return run
