"""Environments written for the old gym package, as they stand."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib.env import check_environment, make_stream, resolve
from rllib.env.streams import legacy
from tests.env.transitions import Tape, collect
from tests.envs import SimpleCorridor


@pytest.fixture(autouse=True)
def untold(monkeypatch):
    monkeypatch.setattr(legacy, "_warned", set())


class SimpleCorridorOfGymnasium(SimpleCorridor, gymnasium.Env):
    """The same, with gymnasium.Env instead of gym.Env."""


@pytest.mark.parametrize("env", [SimpleCorridor, SimpleCorridorOfGymnasium])
def test_corridor_of_the_old_introduction(env):
    with make_stream(resolve(env), num_envs=2, seeds=[0, 1], env_config={"corridor_length": 3}) as stream:
        transitions, _ = collect(stream, 7, policy=lambda observation: 1)
    walk = [
        ([0.0], 1, 0.0, [1.0], False, False),
        ([1.0], 1, 0.0, [2.0], False, False),
        ([2.0], 1, 1.0, [3.0], True, False),
    ]
    assert transitions == [(walk * 3)[:7]] * 2


def test_one_notice_in_the_driver_only(caplog):
    factory = resolve(SimpleCorridor)
    config = {"corridor_length": 3}
    for worker_index in (1, 2):
        with make_stream(factory, num_envs=2, seeds=[0, 1], env_config=config, worker_index=worker_index) as stream:
            collect(stream, 5)
    assert not caplog.records
    check_environment(factory, config)
    check_environment(factory, config)
    assert len(caplog.records) == 1
    assert "SimpleCorridor follows the old gym API (reset() returns the observation alone)" in caplog.text


class OldLimited:
    """Four values, seed() as a method, and a time limit told the old way."""

    observation_space = Box(0, 9, (2,), np.float32)
    action_space = Discrete(2)

    def seed(self, seed):
        self.given_seed = seed

    def reset(self):
        self.t = 0
        return self.t, self.given_seed

    def step(self, action):
        self.t += 1
        info = {"TimeLimit.truncated": action == 1} if self.t == 2 else {}
        return (self.t, self.given_seed), 1.0, self.t == 2, info


def test_old_time_limits_truncate_and_pairs_are_observations():
    with make_stream(resolve(OldLimited), num_envs=2, seeds=[4, 5]) as stream:
        tape = Tape(stream)
        assert tape.reset().tolist() == [[0, 4], [0, 5]]
        tape.step([0, 1])
        finals = tape.step([0, 1])
        assert tape.terminated.tolist() == [True, False]
        assert tape.truncated.tolist() == [False, True]
        assert [final.tolist() for _, final in finals] == [[2, 4], [2, 5]]


class NoSeed(gymnasium.Env):
    """The new API but for the seed, which reset() does not take."""

    observation_space = Box(0, 1, (1,), np.float64)
    action_space = Discrete(2)

    def reset(self):
        return [self.np_random.random()], {}

    def step(self, action):
        return [self.np_random.random()], 0.0, True, False, {}


def test_an_environment_without_seed_is_seeded_all_the_same():
    def run(seed):
        with make_stream(resolve(NoSeed), num_envs=1, seeds=[seed]) as stream:
            return collect(stream, 4)[0]

    assert run(1) == run(1)
    assert run(1) != run(2)


class FourValues(gymnasium.Env):
    """The new reset with the old step."""

    observation_space = Box(0, 9, (1,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return [0], {}

    def step(self, action):
        self.t += 1
        return [self.t], 1, self.t == 2, {}


@pytest.mark.parametrize("check", [True, False])
def test_new_reset_with_old_step(check, caplog):
    with make_stream(resolve(FourValues), num_envs=1, seeds=[0], check=check) as stream:
        transitions, _ = collect(stream, 4)
    assert [row[3:] for row in transitions[0]] == [([1.0], False, False), ([2.0], True, False)] * 2
    assert "step() returns 4 values" in caplog.text


def old_space(kind, **attributes):
    """A space as the gym package would define it, without that package."""
    return type(kind, (), {"__module__": f"gym.spaces.{kind.lower()}", **attributes})()


def test_spaces_of_the_old_package_are_converted():
    box = old_space("Box", low=np.zeros(2, np.float32), high=np.ones(2, np.float32), dtype=np.dtype(np.float32))
    discrete = old_space("Discrete", n=np.int64(3))
    parts = {"box": box, "many": old_space("MultiDiscrete", nvec=np.array([2, 3]))}
    both = old_space("Dict", spaces=parts)
    pair = old_space("Tuple", spaces=[discrete, old_space("MultiBinary", n=4)])
    assert legacy.convert_space(both) == gymnasium.spaces.Dict(
        box=Box(0, 1, (2,), np.float32), many=gymnasium.spaces.MultiDiscrete([2, 3])
    )
    assert legacy.convert_space(pair) == gymnasium.spaces.Tuple([Discrete(3), gymnasium.spaces.MultiBinary(4)])

    class Old(SimpleCorridor):
        def __init__(self, config):
            super().__init__({"corridor_length": 1})
            self.observation_space, self.action_space = box, discrete

        def reset(self):
            return [0, 0]

        def step(self, action):
            return [1, 1], 1, True, {}

    assert check_environment(resolve(Old)) == (Box(0, 1, (2,), np.float32), Discrete(3))
