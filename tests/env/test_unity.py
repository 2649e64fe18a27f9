"""Unity3DEnv over a stand-in for mlagents_envs, which has the parts of its interface that are used."""

import sys
import types
from typing import ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Tuple

from rllib.env.engines.unity import Unity3DEnv
from rllib.moved import present_name


class Steps:
    def __init__(self, agents=(), seen=(), rewards=(), interrupted=()):
        self.agent_id = np.array(agents, np.int32)
        self.obs = [np.array(seen, np.float32).reshape(len(agents), 2)]
        self.reward, self.interrupted = np.array(rewards, np.float32), np.array(interrupted, bool)


class Game:
    """Two walkers, whose second falls in the third step and comes back with another number; goals count steps."""

    made: ClassVar[list] = []
    taken_ports = frozenset({5005})

    def __init__(self, file_name, worker_id, base_port, seed, no_graphics, timeout_wait):
        if file_name and base_port + worker_id in self.taken_ports:
            raise sys.modules["mlagents_envs.exception"].UnityWorkerInUseException
        self.port, self.actions, self.count, self.is_closed = base_port + worker_id, [], 0, False
        seen = types.SimpleNamespace(shape=(2,))
        action = types.SimpleNamespace(continuous_size=1, discrete_size=1, discrete_branches=(3,))
        self.behavior_specs = {"Walk?team=0": types.SimpleNamespace(observation_specs=[seen], action_spec=action)}
        self.made.append(self)

    def reset(self):
        self.count = 0

    def step(self):
        self.count += 1

    def set_actions(self, name, actions):
        self.actions.append((name, actions))

    def get_steps(self, name):
        seen = [[self.count, 0], [self.count, 1]]
        if self.count == 3:
            return Steps([0, 2], seen, [0.5, 0]), Steps([1], [[3, 9]], [-1], [False])
        return Steps([0, 1 if self.count < 3 else 2], seen, [0.5, 0.25]), Steps()

    def close(self):
        self.is_closed = True


class ActionTuple:
    def __init__(self, continuous=None, discrete=None):
        self.continuous, self.discrete = continuous, discrete


@pytest.fixture
def mlagents(monkeypatch):
    parts = {
        "mlagents_envs": {},
        "mlagents_envs.base_env": {"ActionTuple": ActionTuple},
        "mlagents_envs.environment": {"UnityEnvironment": Game},
        "mlagents_envs.exception": {"UnityWorkerInUseException": type("InUse", (Exception,), {})},
    }
    for name, values in parts.items():
        module = types.ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(Game, "made", [])


def test_agents_come_and_go(mlagents):
    env = Unity3DEnv(episode_horizon=4)
    first, second, third = (f"Walk?team=0_{number}" for number in range(3))
    assert env.get_observation_space(first) == Box(-np.inf, np.inf, (2,))
    assert env.get_action_space(second) == Tuple([Box(-1, 1, (1,)), Discrete(3)])
    seen, _ = env.reset()
    assert list(seen) == [first, second] and seen[second].tolist() == [0, 1]
    acted = {first: (np.array([0.5], np.float32), 2), second: (np.array([-1.0], np.float32), 0)}
    for _ in range(2):
        seen, rewards, terminateds, truncateds, _ = env.step(acted)
        assert rewards == {first: 0.5, second: 0.25} and terminateds == {"__all__": False}
    (name, actions), *_ = Game.made[0].actions
    assert name == "Walk?team=0" and actions.continuous.tolist() == [[0.5], [-1.0]]
    assert actions.discrete.tolist() == [[2], [0]] and actions.discrete.dtype == np.int32
    seen, rewards, terminateds, truncateds, _ = env.step(acted)
    assert terminateds == {second: True, "__all__": False} and rewards[second] == -1
    assert set(env.agents) == {first, third}
    assert seen[second].tolist() == [3, 9] and third in seen and not truncateds["__all__"]
    *_, truncateds, _ = env.step({first: acted[first], third: acted[first]})
    assert truncateds == {"__all__": True}
    env.close()
    assert Game.made[0].is_closed


def test_ports(mlagents):
    Unity3DEnv(), Unity3DEnv("game.x86_64"), Unity3DEnv("game.x86_64", port=6000)
    assert [game.port for game in Game.made] == [5004, 5006, 6000]


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlagents_envs", None)
    with pytest.raises(ImportError, match=r"needs the package mlagents_envs .* 1\.1\.0 .* 0\.28\.0"):
        Unity3DEnv()


def test_rllibs_path():
    assert present_name("rllib.env.wrappers.unity3d_env") == Unity3DEnv.__module__
