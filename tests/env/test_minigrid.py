"""MiniGrid's tasks as vectors."""

import sys

import pytest

from rllib.env.tasks.minigrid_tasks import FlatMiniGrid


def test_without_minigrid_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "minigrid.wrappers", None)
    with pytest.raises(ValueError, match=r"pip install .*\[minigrid\]'"):
        FlatMiniGrid({"id": "MiniGrid-DoorKey-5x5-v0"})


@pytest.mark.extras("minigrid")
def test_a_task_is_a_vector():
    with pytest.raises(ValueError, match="needs a task"):
        FlatMiniGrid({})
    env = FlatMiniGrid({"id": "MiniGrid-DoorKey-5x5-v0"})
    observation, _ = env.reset(seed=0)
    assert observation.shape == env.observation_space.shape == (2835,)
