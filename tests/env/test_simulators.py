"""EnvPool as the simulator of an id of gymnasium, and the line that says where it would be faster."""

import importlib.util
import logging

import pytest

from rllib import PPOConfig
from rllib.env import resolve
from rllib.env.factories.simulators import faster_simulator, simulated


@pytest.mark.parametrize(("name", "made"), [
    ("CartPole-v1", "envpool:CartPole-v1"), ("CartPole", "envpool:CartPole-v1"), ("envpool:Pong-v5", "envpool:Pong-v5"),
    ("ALE/Pong-v5", "envpool:Pong-v5"),
])  # fmt: skip
def test_an_id_is_made_by_the_simulator(name, made):
    assert simulated(resolve(name), "envpool").name == made
    assert simulated(resolve(name), None) == resolve(name)


def test_a_class_or_another_simulator_is_refused():
    config = PPOConfig().environment(lambda config: None, simulator="envpool")
    with pytest.raises(ValueError, match="simulates ids of gymnasium"):
        config.validate()
    with pytest.raises(ValueError, match="simulator"):
        PPOConfig().environment("CartPole-v1", simulator="mujoco").validate()


@pytest.mark.parametrize("setting", [{"env_wrappers": ["TimeAwareObservation"]}, {"gym_env_vectorize_mode": "async"}])
def test_what_goes_around_single_environments_is_refused(setting):
    config = PPOConfig().environment("CartPole-v1", simulator="envpool")
    with pytest.raises(ValueError, match="simulator"):
        config.update_from_dict(setting).validate()


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


def test_a_faster_simulator_is_named_where_it_is_the_same(installed):
    assert 'simulator="envpool"' in faster_simulator(resolve("CartPole-v1"), {"max_episode_steps": 9})
    assert faster_simulator(resolve("CartPole-v1"), {"sutton_barto_reward": True}) is None
    assert faster_simulator(resolve("FrozenLake-v1"), {}) is None
    assert faster_simulator(resolve("rllib.env.tasks.memory:CartPoleNoVel"), {}) is None


def test_the_log_says_it_once_and_nothing_switches(installed, caplog):
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    config.training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1)
    with caplog.at_level(logging.INFO, "rllib"):
        for _ in range(2):
            with config.build() as algo:
                assert algo.train()["num_env_steps_sampled"] == 64  # by gymnasium: there is no EnvPool here
    assert sum("steps faster" in record.message for record in caplog.records) <= 1


def test_nothing_is_said_where_it_is_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert faster_simulator(resolve("CartPole-v1"), {}) is None
