"""What the tuned examples reach on CartPole-v1: five seeds, the final policy, deterministic."""

from pathlib import Path

import numpy as np
import pytest

import runtime
from rllib.algorithms.registry import get_algorithm_config
from rllib.cli.spec import load_spec

TUNED = Path(__file__).parents[2] / "tuned_examples"
SEEDS = range(1000, 1005)


@pytest.fixture(autouse=True)
def session():
    yield
    runtime.shutdown()


def final_return(spec: dict, seed: int) -> float:
    config = get_algorithm_config(spec["algorithm"]).environment(spec["env"])
    config.update_from_dict(spec["config"]).debugging(seed=seed)
    with config.build() as algo:
        while algo.timesteps < spec["stop"]["timesteps_total"]:
            algo.train()
        return algo.evaluate(100)["episode_reward_mean"]


@pytest.mark.learning
@pytest.mark.parametrize(
    ("example", "gate"), [("pqn", 475), ("a2c", 460), ("a3c", 350), ("pg", 350), ("impala", 450), ("appo", 470)]
)
def test_cartpole_is_learned(example, gate):
    """TARGETS A06 to A11."""
    spec = load_spec(TUNED / example / "cartpole.yaml")
    returns = [final_return(spec, seed) for seed in SEEDS]
    assert np.mean(returns) >= gate, returns
