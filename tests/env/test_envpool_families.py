"""One environment of each family of EnvPool, stepped at random."""

import numpy as np
import pytest

from rllib.env import make_stream, resolve
from rllib.env.spaces.batches import batch_of

pytestmark = pytest.mark.extras("envpool")

FAMILIES = {
    "Atari": "Pong-v5",
    "Box2D": "BipedalWalker-v3",
    "classic control": "CartPole-v1",
    "Google Football": "gfootball/academy_empty_goal-v1",
    "Gymnasium-Robotics": "FetchReach-v4",
    "Highway": "Highway-v0",
    "Jumanji": "Snake-v1",
    "DMC": "CheetahRun-v1",
    "Meta-World": "MetaWorld/Reach-v3",
    "MiniGrid": "MiniGrid-Empty-5x5-v0",
    "MuJoCo": "HalfCheetah-v5",
    "MyoSuite": "MyoSuite/myoElbowPose1D6MRandom-v0",
    "Pgx": "Game2048-v1",
    "Playground": "MuJoCoPlayground/PandaPickCube-v1",
    "Procgen": "CoinrunEasy-v0",
    "toy text": "FrozenLake-v1",
    "VizDoom": "D1Basic-v1",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_one_of_each_family_is_stepped(family, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # VizDoom writes its settings where it is started
    num_envs = 2
    try:
        made = make_stream(resolve(f"envpool:{FAMILIES[family]}"), num_envs=num_envs, seeds=[1, 2], check=8)
    except ValueError as error:
        if "lacks a library of the system" not in str(error):  # Procgen's is Qt 5
            raise
        pytest.skip(str(error))
    with made as stream:
        buffers = stream.new_buffers()
        stream.reset(buffers)
        stream.action_space.seed(0)
        for _ in range(12):
            stream.step(batch_of(stream.action_space, [stream.action_space.sample() for _ in range(num_envs)]), buffers)
            assert np.isfinite(buffers.rewards).all() and np.isfinite(buffers.observations).all()
