"""Files of one dataset that say different things about themselves."""

import json

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib.offline.dataset import Dataset
from rllib.offline.formats import json_lines
from rllib.offline.larger_than_memory import dataset_on_disk
from rllib.offline.writing.step_formats import write_steps

SPACES = {"observation_space": Box(-9, 9, (1,)), "action_space": Box(-2, 2, (1,))}


def steps(first=0, rows=4, actions=0.5, space=SPACES["action_space"]) -> Dataset:
    obs = np.arange(first, first + rows + 1, dtype=np.float32)[:, None]
    columns = {
        "obs": obs[:-1], "new_obs": obs[1:], "actions": np.full((rows, 1), actions, np.float32),
        "rewards": np.ones(rows, np.float32), "terminateds": np.arange(rows) == rows - 1,
    }  # fmt: skip
    return Dataset.from_columns(columns, observation_space=SPACES["observation_space"], action_space=space)


def read_in_pieces(path, **options):
    return dataset_on_disk(path, piece_bytes=1, **options)


@pytest.mark.parametrize("read", [Dataset.from_path, read_in_pieces])
@pytest.mark.parametrize("endings", [("npz", "npz"), ("json", "json"), ("npz", "json"), ("json", "npz")])
@pytest.mark.parametrize("normalized", [(True, False), (False, True)])
def test_files_of_different_units_keep_their_own(tmp_path, normalized, endings, read):
    for index, (is_normalized, ending) in enumerate(zip(normalized, endings)):
        steps(10 * index).save(tmp_path / f"{index}.{ending}", normalized_actions=is_normalized)
    dataset = read(tmp_path, **SPACES)
    np.testing.assert_allclose(dataset.columns["actions"], 0.5, rtol=1e-6)
    assert len(dataset) == 8


def test_a_file_without_units_beside_one_with_them_is_refused(tmp_path):
    steps().save(tmp_path / "0.npz", normalized_actions=True)
    columns = steps(10).columns
    np.savez(tmp_path / "1.npz", **{name: columns[name] for name in ("obs", "new_obs", "actions", "terminateds")})
    with pytest.raises(ValueError, match="nothing says the units of its actions"):
        Dataset.from_path(tmp_path, **SPACES)


def test_lines_of_different_units_keep_their_own(tmp_path):
    for index in range(2):
        steps(10 * index).save(tmp_path / f"{index}.json", normalized_actions=index == 0)
    lines = [(tmp_path / f"{index}.json").read_text() for index in range(2)]
    (tmp_path / "both.json").write_text("".join(lines))
    np.testing.assert_allclose(Dataset.from_path(tmp_path / "both.json", **SPACES).columns["actions"], 0.5, rtol=1e-6)


FLAGS = {"dones": [False, False, True]}, {"terminateds": [False, False, True]}


def flagged(path, first, flags):
    obs = [[first + row] for row in range(3)]
    line = {"type": "SampleBatch", "obs": obs, "actions": [0, 1, 0], "eps_id": [first] * 3, **flags}
    path.write_text(json.dumps(line) + "\n")


@pytest.mark.parametrize("flags", [FLAGS, FLAGS[::-1], (FLAGS[0], {})])
@pytest.mark.parametrize("in_one_file", [False, True])
def test_files_with_different_flags_are_refused(tmp_path, flags, in_one_file):
    for index, each in enumerate(flags):
        flagged(tmp_path / f"{index}.json", 10 * index, each)
    path = tmp_path
    if in_one_file:
        path = tmp_path / "both.json"
        path.write_text("".join((tmp_path / f"{index}.json").read_text() for index in range(2)))
    with pytest.raises(ValueError, match=r"as the flag of ends.*Dataset\.concat"):
        Dataset.from_path(path, action_space=Discrete(2))


def test_truncateds_of_one_file_are_kept(tmp_path):
    flagged(tmp_path / "0.json", 0, {"terminateds": [False] * 3, "truncateds": [False, False, True]})
    flagged(tmp_path / "1.json", 10, FLAGS[1])
    columns = Dataset.from_path(tmp_path, action_space=Discrete(2)).columns
    assert columns["truncateds"].tolist() == [False, False, True, False, False, False]
    assert columns["terminateds"].tolist() == [False] * 5 + [True]


def episode(path, actions):
    """A line of an episode with the number 0, whose observations are the numbers of the steps."""
    rows = len(actions)
    columns = {"obs": [[row] for row in range(rows)], "new_obs": [[row + 1] for row in range(rows)]}
    columns |= {"actions": actions, "terminateds": [False] * (rows - 1) + [True], "rewards": [1.0] * rows}
    columns |= {"eps_id": [0] * rows, "t": list(range(rows))}
    path.write_text(json.dumps({"type": "SampleBatch", **columns}) + "\n")


@pytest.mark.parametrize("read", [Dataset.from_path, read_in_pieces])
@pytest.mark.parametrize("second", [[0, 1, 0, 0], [0, 1, 0, 0, 1], [0, 0]])
def test_episodes_with_the_same_number_and_first_steps_are_kept(tmp_path, second, read):
    episode(tmp_path / "0.json", [0, 1, 1])
    episode(tmp_path / "1.json", second)
    dataset = read(tmp_path, action_space=Discrete(2))
    assert dataset.lengths.tolist() == [3, len(second)]
    assert dataset.columns["actions"].tolist() == [0, 1, 1, *second]


def test_whole_copies_of_an_episode_are_left_out(tmp_path):
    episode(tmp_path / "0.json", [0, 1, 1])
    episode(tmp_path / "1.json", [0, 1, 1])
    assert Dataset.from_path(tmp_path, action_space=Discrete(2)).lengths.tolist() == [3]


@pytest.mark.parametrize("read", [Dataset.from_path, read_in_pieces])
@pytest.mark.parametrize("second", ["json", "npz", "parquet", "hdf5"])
@pytest.mark.parametrize("first", ["json", "npz", "parquet", "hdf5"])
def test_files_with_different_names_of_columns_are_joined(tmp_path, first, second, read):
    """HDF5 has D4RL's names (observations, terminals), the others RLlib's."""
    for package in ("h5py", "pyarrow"):
        pytest.importorskip(package)
    parts = []
    for number, ending in enumerate((first, second)):
        obs = np.arange(6, dtype=np.float32)[:, None] + 10 * number
        ends = np.array([False, False, True] * 2)
        columns = {"obs": obs, "actions": np.arange(6) % 2, "rewards": obs[:, 0], "terminateds": ends}
        columns |= {"eps_id": np.arange(6) // 3 + 2 * number, "t": np.arange(6) % 3}
        parts.append(Dataset.from_columns(columns))
        parts[-1].save(tmp_path / f"{number}.{ending}")
    together, expected = read(tmp_path), Dataset.concat(parts)
    assert together.starts.tolist() == expected.starts.tolist()
    for name, column in expected.columns.items():
        np.testing.assert_array_equal(together.columns[name], column, name)


@pytest.mark.parametrize("ending", ["npz", "parquet", "hdf5"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_file_without_rows_lacks_no_columns(tmp_path, ending, place):
    """A run that ended at once has left one, without new_obs or with other flags."""
    rng = np.random.default_rng(0)
    full = {"obs": rng.normal(size=(6, 2)), "new_obs": rng.normal(size=(6, 2)), "actions": np.arange(6) % 2}
    full |= {"rewards": np.ones(6), "terminateds": np.ones(6, bool)}
    empty = {name: full[name][:0] for name in ("obs", "actions")} | {"dones": np.zeros(0, bool)}
    files = [full, full]
    files.insert(place, empty)
    for number, columns in enumerate(files):
        write_steps(tmp_path / f"{number}.{ending}", columns, np.array([0, len(columns["obs"])]), {})
    dataset = Dataset.from_path(tmp_path)
    assert {"new_obs", "rewards", "terminateds"} <= dataset.columns.keys() and len(dataset) == 12
    np.testing.assert_allclose(dataset.columns["new_obs"], np.tile(full["new_obs"], (2, 1)), rtol=1e-6)


def test_a_notice_about_a_file_is_given_once(tmp_path, monkeypatch):
    """Its lines are made into arrays some at a time."""
    monkeypatch.setattr(json_lines, "_AT_ONCE", 200)
    steps = [{"obs": [float(step)], "actions": step % 2, "rewards": 1.0, "terminateds": True} for step in range(40)]
    lines = [json.dumps(step | ({"more": 1} if number % 2 else {})) for number, step in enumerate(steps)]
    (tmp_path / "a.json").write_text("\n".join(lines))
    notices = Dataset.from_path(tmp_path / "a.json").notices
    assert any("more" in notice for notice in notices) and len(set(notices)) == len(notices)
