"""Commands that are refused, or fail, leave no file and no directory behind."""

import socket
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from rllib import PPOConfig
from rllib.cli.leftovers import removed_if_unused
from tests.envs import CountingEnv

CHECKPOINT = Path(__file__).parents[1] / "checkpoints" / "format_1_ppo"


class Parts(CountingEnv):
    """Dict observations, from which `serve --learn` cannot learn."""

    observation_space = Dict(near=Box(-9, 9, (1,), np.float32), far=Box(-9, 9, (1,), np.float32))
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, True, False, {}


@pytest.fixture(scope="module")
def of_parts(tmp_path_factory):
    with PPOConfig().environment(Parts).rollouts(num_rollout_workers=0).build() as algo:
        return algo.save(tmp_path_factory.mktemp("saved") / "CK")


def raises(self, action):
    raise RuntimeError("the world is down")


def everything(directory: Path) -> set[Path]:
    return set(directory.rglob("*"))


COMMANDS = {
    "learning from parts": ("serve", "PARTS", "--port", "0", "--learn", "--load-user-code"),
    "learning to a place": ("serve", "PARTS", "--port", "0", "--learn", "--learn-to", "new/place", "--load-user-code"),
    "learning with a wrong setting": ("serve", "OLD", "--port", "0", "--learn", "--learn-to", "new", "--set", "no=1"),
    "learning at a port in use": ("serve", "OLD", "--port", "PORT", "--learn", "--learn-to", "new/place"),
    "exporting no policy": ("export", "OLD", "-o", "new/place/policy.pt2", "--policy", "no"),
    "weights of no policy": ("export", "OLD", "-o", "new/weights", "--format", "safetensors", "--policy", "no"),
    "recording a wrong length": (
        "record",
        "OLD",
        "--to",
        "new/place",
        "--steps",
        "5",
        "--noise",
        "0.1",
        "--random",
        "2",
    ),
    "recording an environment that raises": ("record", "PARTS", "--to", "new/place", "--steps", "5"),
    "recording into a file": ("record", "PARTS", "--to", "new/place/steps.npz", "--steps", "5"),
    "training with a wrong setting": ("train", "--algo", "PPO", "--env", "CartPole-v1", "--set", "lr=fast"),
    "training in no environment": ("train", "--algo", "PPO", "--env", "Nothing-v9"),
    "settings that do not fit": ("train", "--algo", "DQN", "--env", "Pendulum-v1"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_nothing_is_left(command, of_parts, rllib_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Parts, "step", raises)
    beside = everything(of_parts.parent)
    with socket.create_server(("127.0.0.1", 0)) as other:
        words = {"PARTS": str(of_parts), "OLD": str(CHECKPOINT), "PORT": str(other.getsockname()[1])}
        result = rllib_command(*(words.get(word, word) for word in command))
    assert result.exit_code not in (0, None), result.output
    assert not everything(tmp_path) and everything(of_parts.parent) == beside, result.output


def test_what_was_there_before_stays(tmp_path):
    (tmp_path / "old").mkdir()
    for path, used in (("old", False), ("old/new/deep", False), ("a/b/c", True)):
        with pytest.raises(KeyError), removed_if_unused(tmp_path / path):
            (tmp_path / path).mkdir(parents=True, exist_ok=True)
            if used:
                (tmp_path / path / "file").touch()
            raise KeyError
    assert everything(tmp_path) == {tmp_path / each for each in ("old", "a", "a/b", "a/b/c", "a/b/c/file")}
