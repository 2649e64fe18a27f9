"""Faults that validation finds are the ones at which reading stops, and no others."""

from importlib.util import find_spec

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from rllib.offline.dataset import Dataset
from rllib.offline.options import ReadOptions
from rllib.offline.validation import faults


def saved(path, space, obs):
    columns = {"obs": obs, "actions": np.array([0, 1, 0]), "terminateds": np.arange(3) == 2}
    Dataset.from_columns(columns, observation_space=space, action_space=Discrete(2)).save(path)


def test_parts_of_dicts_are_no_missing_columns(tmp_path):
    space = Dict({"position": Box(-1, 1, (2,)), "speed": Box(-1, 1, (1,))})
    obs = {"position": np.zeros((3, 2)), "speed": np.zeros((3, 1))}
    np.savez(
        tmp_path / "a.npz", **{f"obs.{key}": column for key, column in obs.items()}, actions=np.array([0, 1, 0]),
        terminateds=np.array([False, False, True]),
    )  # fmt: skip
    assert len(Dataset.from_path(tmp_path / "a.npz")) == 3
    assert faults([tmp_path / "a.npz"], ReadOptions()) == []
    assert faults([tmp_path / "a.npz"], ReadOptions(), space, Discrete(2)) == []


def test_spaces_may_have_other_bounds(tmp_path):
    saved(tmp_path / "a.npz", Box(-1, 1, (1,)), np.zeros((3, 1), np.float32))
    assert faults([tmp_path / "a.npz"], ReadOptions(), Box(-2, 2, (1,)), Discrete(2)) == []
    (fault,) = faults([tmp_path / "a.npz"], ReadOptions(), Box(-1, 1, (1,)), Discrete(3))
    assert "was recorded with the action_space Discrete(2)" in fault


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("s3://bucket/a.json", "not on this machine"),
        ("d4rl.hopper", "package, which is not used"),
        ("minari:NO/such-v0", "minari download NO/such-v0" if find_spec("minari") else "pip install"),
    ],
)
def test_paths_that_cannot_be_read_are_faults(path, message):
    (fault,) = faults([path], ReadOptions())
    assert message in fault
