"""The tuned examples: each is a valid run of an algorithm that exists."""

import pytest

from rllib.algorithms.base.registry import get_algorithm_config
from rllib.cli.spec import load_spec, make_spec
from rllib.cli.tuned_examples import TUNED_EXAMPLES
from tests.gpu import HAS_GPU

FILES = sorted(path for path in TUNED_EXAMPLES.glob("*/*.yaml") if path.parent.name != "tune")


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_tuned_example_has_valid_settings(path):
    spec = make_spec(load_spec(path), {}, str(path))
    config = get_algorithm_config(spec.algorithm).environment(spec.env).update_from_dict(spec.config)
    if not HAS_GPU:
        config.resources(num_gpus=0, num_gpus_per_worker=0)
    config.validate()
    assert spec.stop["timesteps_total"] > 0
