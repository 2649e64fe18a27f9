"""Games of Godot: spaces and episodes of their agents, and what is said of a game that misbehaves."""

import socket
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from fake_godot_game import FakeGame
from gymnasium.spaces import Box, Dict, Discrete

from rllib import PPOConfig
from rllib.cli.user_code import typed
from rllib.env.engines import godot
from rllib.env.engines.godot import GodotEnv
from rllib.env.engines.godot_game import GodotGame
from rllib.env.factories.registry import resolve
from rllib.registered import ENVIRONMENTS

GAME = Path(__file__).with_name("fake_godot_game.py")


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "a game.x86_64"  # with a blank
    path.write_text(f'#!/bin/sh\nexec {sys.executable} "{GAME}" "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def port():
    """A port on which a game of this process plays, as in the editor."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]

    def play():
        for _ in range(2000):
            try:
                return FakeGame(number, num_agents=1).play()
            except ConnectionRefusedError:
                threading.Event().wait(0.01)

    player = threading.Thread(target=play, daemon=True)
    player.start()
    yield number
    godot._close_kept()
    player.join(20)
    assert not player.is_alive()


def test_agents_of_a_game(program):
    env = GodotEnv(program=program, seed=3, timeout_s=30)
    try:
        assert env.possible_agents == ["über_0", "über_1"]
        assert env.observation_spaces["über_0"] == Dict(
            obs=Box(-np.inf, np.inf, (2,)), camera_2d=Box(0, 255, (1, 2, 2), np.uint8)
        )
        assert env.action_spaces["über_1"] == Dict(move=Discrete(2), aim=Box(-1, 1, (1,)))
        seen, _ = env.reset()
        assert seen["über_1"]["obs"].tolist() == [0.0, 0.5]
        assert seen["über_0"]["camera_2d"].tolist() == [[[0, 255], [0, 255]]]
        action = {"move": np.int64(1), "aim": np.array([0.5], np.float32)}
        alive = []
        for _ in range(5):
            seen, rewards, terminateds, truncateds, _ = env.step(dict.fromkeys(seen, action))
            assert rewards == dict.fromkeys(seen, 1.0) and not truncateds["__all__"]
            alive.append([agent for agent in seen if not terminateds[agent]])
            seen = {agent: seen[agent] for agent in alive[-1]}
        assert alive == [["über_0", "über_1"]] * 3 + [["über_0"], []] and terminateds["__all__"]
        assert env.reset()[0].keys() == {"über_0", "über_1"}
    finally:
        env.close()
    assert env._game is None


def test_a_game_in_the_editor_stays_for_the_next_environment(port):
    first = resolve(f"godot:port={port}").make(_context())
    first.reset()
    first.close()
    second = GodotEnv(port=port, timeout_s=20)
    assert second.reset()[0]["über_0"]["obs"].tolist() == [0.0, 0.5]
    second.close()


def test_it_is_learned_in(program, monkeypatch):
    monkeypatch.setenv("FAKE_AGENTS", "1")
    config = PPOConfig().environment(lambda config: GodotEnv(program=program, timeout_s=30))
    config.rollouts(num_rollout_workers=0).training(train_batch_size=50, sgd_minibatch_size=25, num_sgd_iter=1)
    with config.build() as algorithm:
        result = algorithm.train()
    assert result["episode_len_mean"] == 5 and result["timesteps_total"] >= 50


@pytest.mark.parametrize(
    "fault, error, message",
    [
        ("never", ConnectionError, "has ended before it connected, exit code 3; its last output: seed 0: no display"),
        ("idle", TimeoutError, "has not connected to port"),
        ("silent", TimeoutError, "has not answered 'action' for"),
        ("quits", ConnectionError, "has hung up, exit code 7; its last output: no scene is left"),
        ("short", ConnectionError, "must answer with 'obs' of 2 agents"),
    ],
)
def test_a_game_that_misbehaves_is_named(program, fault, error, message):
    # Those that answer in time have plenty of it.
    timeout_s = 2.0 if fault in ("idle", "silent") else 30.0
    with pytest.raises(error, match=message):
        env = GodotEnv(program=program, arguments=[f"--fault={fault}"], timeout_s=timeout_s)
        try:
            seen, _ = env.reset()
            env.step({agent: {"move": 0, "aim": [0.0]} for agent in seen})
        finally:
            env._game._process.kill()
            env.close()


def test_nobody_connects():
    with pytest.raises(TimeoutError, match=r"no game has connected to port \d+ .* Press Play"):
        GodotGame(0, timeout_s=0.2)
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="another program, has it"):
        GodotGame(other.getsockname()[1], timeout_s=0.2)


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="port of a running game, or the program"):
        GodotEnv(port=1, program="x")
    with pytest.raises(ValueError, match="is no program"):
        GodotEnv(program=tmp_path / "none")


def test_a_name_starts_no_program(program):
    """Names come from files and checkpoints; what was typed is the user's own wish."""
    for name in (f"godot:{program}", "godot:port=many"):
        with pytest.raises(ValueError, match="A name may start no program"):
            resolve(name)
    for name in ("rllib.env.engines.godot:GodotEnv", "rllib.env.engines.unity.Unity3DEnv"):
        with pytest.raises(ValueError, match="starts the program that its config names"):
            resolve(name)
    try:
        typed({"env": f"godot:{program}", "algorithm": "PPO"})
        env = resolve(f"godot:{program}").make(_context())
        env.close()
    finally:
        ENVIRONMENTS._values.pop(f"godot:{program}", None)


def test_one_game_is_one_environment():
    with pytest.raises(ValueError, match="num_rollout_workers=0"):
        resolve("godot:port=11008").make(_context(worker_index=1))


def _context(**where):
    from rllib.env.factories.registry import EnvContext

    return EnvContext({}, **where)
