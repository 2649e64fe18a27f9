"""Formats of recorded steps: each is read as the steps that were written, and refused where it is damaged."""

import json
import tracemalloc
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box, Discrete

from rllib.offline.dataset import Dataset
from rllib.offline.files import record_pieces, size_of_files
from rllib.offline.larger_than_memory import dataset_on_disk
from rllib.offline.options import read_options
from rllib.storage.encoding import space_to_json

DATA = Path(__file__).parents[1] / "data" / "offline"
CORE = ("obs", "new_obs", "actions", "rewards", "terminateds", "truncateds")


def steps(lengths=(3, 4), size=2):
    """Columns of episodes whose observations count the steps of all; the first is terminated, others truncated."""
    total, ends = sum(lengths), np.cumsum(lengths) - 1
    flags = np.zeros((2, total), bool)
    flags[0, ends[0]], flags[1, ends[1:]] = True, True
    obs = np.arange(total, dtype=np.float32)[:, None] + np.repeat(np.arange(len(lengths)), lengths)[:, None]
    return {
        "obs": np.repeat(obs, size, 1),
        "new_obs": np.repeat(obs + 1, size, 1),
        "actions": np.arange(total) % 3,
        "rewards": np.arange(total, dtype=np.float32),
        "terminateds": flags[0],
        "truncateds": flags[1],
        "eps_id": np.repeat(np.arange(len(lengths)) + 5, lengths),
    }


def assert_same(found: Dataset, columns, names=CORE):
    wanted = Dataset.from_columns(columns)
    assert found.starts.tolist() == wanted.starts.tolist()
    for name in names:
        np.testing.assert_array_equal(found.columns[name], wanted.columns[name], err_msg=name)


# ---------------------------------------------------------------------- Parquet


def parquet():
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    return pyarrow


def write_parquet(path, columns, metadata=None, **more):
    pyarrow = parquet()
    arrays = {}
    for name, column in columns.items():
        if isinstance(column, np.ndarray) and column.ndim == 2:
            values = pyarrow.array(column.reshape(-1))
            arrays[name] = pyarrow.FixedSizeListArray.from_arrays(values, column.shape[1])
        else:
            arrays[name] = pyarrow.array(column)
    table = pyarrow.table(arrays)
    if metadata:
        table = table.replace_schema_metadata({"rllib": json.dumps(metadata)})
    pyarrow.parquet.write_table(table, path, **more)
    return path


def test_parquet_files_of_ray_are_the_steps_of_their_json_files():
    parquet()
    found = Dataset.from_path(DATA / "cartpole-v1_large")
    whole = Dataset.from_path(DATA / "cartpole_large.json.gz")
    rows = len(found)
    assert 70 < rows < 90
    for name in ("obs", "actions", "rewards"):
        np.testing.assert_allclose(found.columns[name], whole.columns[name][:rows], rtol=1e-6)
    assert found.num_episodes == np.searchsorted(whole.starts, rows)


def test_tensors_of_ray_are_plain_columns():
    parquet()
    dataset = Dataset.from_path(DATA / "pendulum-v1_enormous")
    assert dataset.columns["obs"].shape[1:] == (3,) and dataset.columns["actions"].shape[1:] == (1,)
    np.testing.assert_allclose((dataset.columns["obs"][:, :2] ** 2).sum(1), 1, atol=1e-5)


def test_parquet_with_metadata_says_spaces_and_units(tmp_path):
    columns = steps() | {"actions": np.linspace(-1, 1, 7)[:, None]}
    space = Box(-2, 2, (1,))
    metadata = {"env": "Mine-v0", "actions": "normalized", "action_space": space_to_json(space), "version": 1}
    dataset = Dataset.from_path(write_parquet(tmp_path / "a.parquet", columns, metadata))
    assert dataset.action_space == space and dataset.metadata["env"] == "Mine-v0"
    np.testing.assert_allclose(dataset.columns["actions"][:, 0], np.linspace(-2, 2, 7), rtol=1e-6)


@pytest.mark.parametrize("fixed", [False, True])
def test_images_are_bytes_with_a_description(tmp_path, fixed):
    pyarrow = parquet()
    images = np.random.default_rng(0).integers(0, 256, (8, 4, 4, 3), dtype=np.uint8)
    rows = [each.tobytes() for each in images[:7]]
    rows = pyarrow.array(rows, pyarrow.binary(48)) if fixed else rows
    columns = {"obs": rows, "actions": np.zeros(7, int), "eps_id": np.zeros(7, int)}
    metadata = {"columns": {"obs": {"shape": [4, 4, 3], "dtype": "uint8"}}}
    dataset = Dataset.from_path(write_parquet(tmp_path / "a.parquet", columns, metadata))
    np.testing.assert_array_equal(dataset.columns["obs"], images[:7])
    if fixed:
        return
    columns["obs"][3] = b"short"
    with pytest.raises(ValueError, match="row 3: obs has 5 bytes"):
        Dataset.from_path(write_parquet(tmp_path / "b.parquet", columns, metadata))


def test_parts_of_dict_observations_have_columns_of_their_own(tmp_path):
    columns = steps()
    leaves = {"obs.near": columns.pop("obs"), "new_obs.near": columns.pop("new_obs")}
    leaves |= {"obs.which": np.arange(7) % 3, "new_obs.which": np.arange(1, 8) % 3}
    space = spaces.Dict({"near": Box(-10, 10, (2,)), "which": Discrete(3)})
    path = write_parquet(tmp_path / "a.parquet", {**columns, **leaves}, {"observation_space": space_to_json(space)})
    dataset = Dataset.from_path(path)
    assert dataset.observation_space == space
    np.testing.assert_array_equal(dataset.columns["obs"][:, 2:].argmax(1), np.arange(7) % 3)


@pytest.mark.parametrize("kept", [0, 4, 100, -1])
def test_a_parquet_file_that_was_cut_off_is_refused(tmp_path, kept):
    path = write_parquet(tmp_path / "a.parquet", steps())
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"a\.parquet is no whole Parquet file"):
        Dataset.from_path(path)


def test_rows_of_other_lengths_and_empty_ones_are_named(tmp_path):
    columns = steps()
    ragged = {**columns, "obs": [[1.0, 2.0]] * 4 + [[1.0]] + [[1.0, 2.0]] * 2}
    with pytest.raises(ValueError, match=r"row 4: obs has 1 numbers, but 2"):
        Dataset.from_path(write_parquet(tmp_path / "a.parquet", ragged))
    with pytest.raises(ValueError, match="row 2 has no rewards"):
        Dataset.from_path(write_parquet(tmp_path / "b.parquet", {**columns, "rewards": [1.0, 2.0, None, 4, 5, 6, 7]}))


# ---------------------------------------------------------------------- Ray's episodes


def packed_array(array):
    """A numpy array as msgpack_numpy writes it."""
    return {b"nd": True, b"type": array.dtype.str, b"kind": b"", b"shape": array.shape, b"data": array.tobytes()}


def ray_episode(observations, actions, rewards, lookback=0, **more):
    def buffer(values):
        return {"data": packed_array(np.asarray(values)), "lookback": lookback, "finalized": True, "space": None}

    infos = {b"nd": True, b"type": "|O", b"kind": b"O", b"shape": (1,), b"data": b"cos\nsystem\n(S'touch owned'\ntR."}
    state = {
        "id_": "abc", "agent_id": None, "observations": buffer(observations), "actions": buffer(actions),
        "rewards": buffer(rewards), "infos": {"data": infos, "lookback": 0}, "extra_model_outputs": None,
        "is_terminated": True, "is_truncated": False, "t_started": 0, "t": len(rewards), **more,
    }  # fmt: skip
    return msgspec.msgpack.encode(state)


def write_items(path, items):
    pyarrow = parquet()
    pyarrow.parquet.write_table(pyarrow.table({"item": pyarrow.array(items, pyarrow.binary())}), path)
    return path


def test_episodes_of_ray_have_one_observation_more_than_steps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = ray_episode(np.arange(8.0).reshape(4, 2), np.array([0, 1, 1]), np.array([1.0, 2, 3]))
    second = ray_episode(
        np.arange(6.0).reshape(3, 2), np.array([9, 0]), np.array([9.0, 4]), lookback=1,
        is_terminated=False, is_truncated=True,
    )  # fmt: skip
    dataset = Dataset.from_path(write_items(tmp_path / "a.parquet", [first, second]))
    assert dataset.starts.tolist() == [0, 3, 4] and dataset.has_next.all()
    assert dataset.columns["new_obs"][:, 0].tolist() == [2, 4, 6, 4]
    assert dataset.columns["actions"].tolist() == [0, 1, 1, 0]
    assert dataset.columns["terminateds"].tolist() == [False, False, True, False]
    assert not Path("owned").exists()


NAMES = {"named": lambda file, number: f"{file}-{number}", "unnamed": lambda file, number: None}


def short_episodes_of_ray(file, name, rng):
    """30 episodes of one or two steps, of which many are equal."""
    for number in range(30):
        actions = (rng.random(rng.integers(1, 3)) < 0.8).astype(int) if number else np.ones(1, int)
        observations = np.arange(len(actions) + 1.0)[:, None]
        yield ray_episode(observations, actions, np.ones(len(actions)), id_=name(file, number))


@pytest.mark.parametrize("encoding", ["dictionary", "DELTA_BINARY_PACKED", "strings", "bytes"])
def test_the_size_of_parquet_is_that_of_its_arrays(tmp_path, encoding, monkeypatch):
    """A few values, and how often each comes, are a fraction of a bit each."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows, long = 200_000, 500
    columns = {"obs": np.zeros(rows), "actions": np.zeros(rows, np.int64), "rewards": np.zeros(rows)}
    table = {name: arrow.array(column) for name, column in columns.items()}
    needed = rows * 8 * 3
    if encoding in ("strings", "bytes"):
        value = "x" * long if encoding == "strings" else b"x" * long
        table["more"] = arrow.DictionaryArray.from_arrays(np.zeros(rows, np.int32), arrow.array([value, value[:1]]))
        needed += rows * long
    packed = {"actions": encoding} if encoding.startswith("DELTA") else None
    dictionary = [name for name in table if not packed or name not in packed]
    path = tmp_path / "steps.parquet"
    parquet.write_table(
        arrow.table(table), path, compression="zstd", use_dictionary=dictionary, column_encoding=packed,
        row_group_size=rows, store_schema=False,
    )  # fmt: skip
    assert path.stat().st_size < needed / 20
    assert needed <= size_of_files(path) <= 1.2 * needed
    monkeypatch.setattr("rllib.offline.dataset.free_bytes", lambda: needed)
    with pytest.raises(ValueError, match="takes about"):
        Dataset.from_path(path)
    pieces = [len(piece) for piece in record_pieces(path, read_options({}), 1 << 20)]
    assert sum(pieces) == rows and max(pieces) <= rows * (1 << 20) / needed + 1


@pytest.mark.parametrize("read", [Dataset.from_path, lambda path: dataset_on_disk(path, piece_bytes=1)])
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_equal_episodes_of_rays_files_are_all_read(tmp_path, name, read):
    rng = np.random.default_rng(0)
    files = [list(short_episodes_of_ray(file, name, rng)) for file in range(2)]
    alone = [Dataset.from_path(write_items(tmp_path / f"{file}.parquet", items)) for file, items in enumerate(files)]
    dataset = read(tmp_path)
    assert dataset.columns["actions"].tolist() == [action for each in alone for action in each.columns["actions"]]
    assert dataset.num_episodes == 60


@pytest.mark.parametrize("read", [Dataset.from_path, lambda path: dataset_on_disk(path, piece_bytes=1)])
def test_files_of_ray_with_all_earlier_episodes_are_read_once(tmp_path, read):
    """The last of them goes on in the next file, as a part of its own."""
    items = list(short_episodes_of_ray(0, NAMES["named"], np.random.default_rng(0)))
    parts = {"id_": "cut", "is_terminated": False}
    items.append(ray_episode(np.zeros((3, 1)), np.zeros(2, int), np.ones(2), **parts))
    items.append(ray_episode(np.ones((3, 1)), np.ones(2, int), np.ones(2), **parts, t_started=2))
    for file, stop in enumerate([10, 31, 32, 32]):
        write_items(tmp_path / f"{file}.parquet", items[:stop])
    last = Dataset.from_path(tmp_path / "3.parquet")
    dataset = read(tmp_path)
    assert dataset.starts.tolist() == last.starts.tolist() and dataset.num_episodes == 32
    for each in CORE:
        np.testing.assert_array_equal(dataset.columns[each], last.columns[each])


@pytest.mark.parametrize("item", [b"", b"\x93\x01", msgspec.msgpack.encode({"a": 1}), b"\xff" * 20])
def test_what_is_no_episode_of_ray_is_refused(tmp_path, item):
    with pytest.raises(ValueError, match=r"a\.parquet: episode 0 cannot be read"):
        Dataset.from_path(write_items(tmp_path / "a.parquet", [item]))


def test_an_episode_that_lacks_its_last_observation_is_refused(tmp_path):
    item = ray_episode(np.zeros((3, 2)), np.array([0, 1, 1]), np.array([1.0, 2, 3]))
    with pytest.raises(ValueError, match="obs has 3 rows, but 3 steps have 4 observations"):
        Dataset.from_path(write_items(tmp_path / "a.parquet", [item]))


# ---------------------------------------------------------------------- named arrays


D4RL = {"obs": "observations", "rewards": "rewards", "actions": "actions"}
D4RL |= {"terminateds": "terminals", "truncateds": "timeouts"}


def test_d4rl_files_have_next_observations_by_shifting(tmp_path):
    h5py = pytest.importorskip("h5py")
    columns = steps()
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for ours, theirs in D4RL.items():
            file[theirs] = columns[ours]
        file["infos/qpos"] = np.zeros((7, 5))
        file["infos/action_log_probs"] = np.full(7, -0.5)
        file["metadata/algorithm"] = "SAC"
    dataset = Dataset.from_path(tmp_path / "a.hdf5")
    assert dataset.starts.tolist() == [0, 3, 7]
    assert dataset.has_next.tolist() == [True, True, False, True, True, True, False]
    assert dataset.is_transition.tolist() == [True] * 6 + [False]
    assert dataset.columns["action_logp"].tolist() == [-0.5] * 7
    assert "infos/qpos" not in dataset.columns
    more = Dataset.from_path(tmp_path / "a.hdf5", schema={"qpos": "infos/qpos"})
    assert more.columns["qpos"].shape == (7, 5)


def test_hdf5_files_may_say_spaces_and_units(tmp_path):
    h5py = pytest.importorskip("h5py")
    space = Box(-2, 2, (1,))
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for name, column in (steps() | {"actions": np.linspace(-1, 1, 7)[:, None]}).items():
            file[name] = column
        about = {"env": "Mine-v0", "actions": "normalized", "action_space": space_to_json(space)}
        file.attrs["rllib"] = json.dumps(about)
    dataset = Dataset.from_path(tmp_path / "a.hdf5")
    assert dataset.action_space == space and dataset.metadata["env"] == "Mine-v0"
    np.testing.assert_allclose(dataset.columns["actions"][:, 0], np.linspace(-2, 2, 7), rtol=1e-6)


def test_hdf5_files_lead_nowhere_else(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for name, column in steps().items():
            file[name] = column
        file["secret"] = h5py.ExternalLink(str(tmp_path / "b.hdf5"), "/x")
    with pytest.raises(ValueError, match="'secret' is a link"):
        Dataset.from_path(tmp_path / "a.hdf5")


@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_an_hdf5_file_that_was_cut_off_is_refused(tmp_path, share):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for name, column in steps().items():
            file[name] = column
    content = (tmp_path / "a.hdf5").read_bytes()
    (tmp_path / "a.hdf5").write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"a\.hdf5 is no whole HDF5 file"):
        Dataset.from_path(tmp_path / "a.hdf5")


def test_ogbench_files_have_a_row_more_than_steps_in_each_trajectory(tmp_path):
    terminals = np.array([0, 0, 1, 0, 0, 0, 1], bool)
    observations = np.arange(7.0)[:, None]
    actions = np.where(terminals, np.nan, 0.5)[:, None]
    np.savez(tmp_path / "a.npz", observations=observations, actions=actions, terminals=terminals)
    dataset = Dataset.from_path(tmp_path / "a.npz")
    assert dataset.starts.tolist() == [0, 2, 5] and dataset.has_next.all()
    assert dataset.columns["new_obs"][:, 0].tolist() == [1, 2, 4, 5, 6]
    assert np.flatnonzero(dataset.columns["truncateds"]).tolist() == [1, 4]
    np.savez(tmp_path / "b.npz", observations=observations[:-1], actions=actions[:-1], terminals=terminals[:-1])
    with pytest.raises(ValueError, match="may have been cut off"):
        Dataset.from_path(tmp_path / "b.npz")


def test_npz_files_of_objects_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", obs=np.array([{}, {}]), actions=np.zeros(2))
    with pytest.raises(ValueError, match=r"no whole \.npz file of numbers"):
        Dataset.from_path(tmp_path / "a.npz")


# ---------------------------------------------------------------------- Minari


@pytest.fixture
def minari_root(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return minari


def episode_buffer(number, observations, terminated):
    from minari.data_collector import EpisodeBuffer

    flags = [False, False, True]
    return EpisodeBuffer(
        id=number, observations=observations, actions=np.array([0, 1, 0]), rewards=[1.0, 2.0, 3.0],
        terminations=flags if terminated else [False] * 3, truncations=[False] * 3 if terminated else flags,
    )  # fmt: skip


def test_minari_has_all_observations_and_says_what_it_is(minari_root):
    buffer = [episode_buffer(n, np.arange(16, dtype=np.float32).reshape(4, 4) / 100 + n, n == 0) for n in range(2)]
    scores = {"ref_min_score": 0.0, "ref_max_score": 9.0}
    minari_root.create_dataset_from_buffers("cartpole/mine-v0", buffer=buffer, env="CartPole-v1", **scores)
    dataset = Dataset.from_minari("cartpole/mine-v0")
    assert dataset.starts.tolist() == [0, 3, 6] and dataset.has_next.all()
    np.testing.assert_allclose(dataset.columns["new_obs"][2], np.arange(12, 16) / 100, rtol=1e-6)
    assert dataset.columns["terminateds"].tolist() == [False, False, True] + [False] * 3
    assert dataset.action_space == Discrete(2)
    assert {**dataset.metadata} == {
        "env": "CartPole-v1", "max_episode_steps": 500, "ref_min_score": 0.0, "ref_max_score": 9.0
    }  # fmt: skip
    pieces = dataset_on_disk("minari:cartpole/mine-v0", piece_bytes=1)
    np.testing.assert_array_equal(pieces.columns["obs"], dataset.columns["obs"])


def test_minari_with_dict_observations(minari_root):
    space = spaces.Dict({"a": Box(-9, 9, (2,)), "b": spaces.Tuple((Box(-9, 9, (1,)), Discrete(3)))})
    observations = {
        "a": np.zeros((4, 2), np.float32), "b": (np.arange(4, dtype=np.float32)[:, None], np.array([0, 1, 2, 0]))
    }  # fmt: skip
    buffer, of = [episode_buffer(0, observations, True)], {"observation_space": space, "action_space": Discrete(2)}
    minari_root.create_dataset_from_buffers("mine/dict-v0", buffer=buffer, **of)
    dataset = Dataset.from_path("minari:mine/dict-v0")
    assert dataset.observation_space == space
    np.testing.assert_array_equal(dataset.columns["obs"][:, 2:], [[0, 1, 0, 0], [1, 0, 1, 0], [2, 0, 0, 1]])


def test_minari_is_not_downloaded(minari_root):
    with pytest.raises(FileNotFoundError, match="minari download mine/none-v0"):
        Dataset.from_minari("mine/none-v0")


def test_names_of_d4rl_lead_to_minari():
    with pytest.raises(ValueError, match="minari:D4RL"):
        Dataset.from_path("d4rl.hopper-medium-v0")


# ---------------------------------------------------------------------- tables and arrays


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_tables_are_known_without_their_library(library):
    module = pytest.importorskip(library)
    columns = steps()
    lists = {name: column.tolist() for name, column in columns.items()}
    table = module.table(lists) if library == "pyarrow" else module.DataFrame(lists)
    assert_same(Dataset.from_columns(table), columns)


def test_rows_of_a_table_need_equal_shapes():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"obs": [[1.0, 2.0], [1.0]], "actions": [0, 1]})
    with pytest.raises(ValueError, match=r"row 1: obs has the shape \(1,\)"):
        Dataset.from_columns(table)


def test_dicts_of_arrays_may_have_parts():
    columns = steps()
    nested = {"far": (columns["obs"], np.arange(7) % 2), "near": columns["obs"][:, :1]}
    dataset = Dataset.from_columns({**columns, "obs": nested, "new_obs": nested}, check=False)
    assert isinstance(dataset.observation_space["far"], spaces.Tuple)
    assert dataset.columns["obs"].shape == (7, 2 + 2 + 1)
    actions = {"kind": np.arange(7) % 2, "how": np.zeros((7, 2), np.float32)}
    dataset = Dataset.from_columns({**columns, "actions": actions})
    assert dataset.columns["actions"].shape == (7, 3)


def test_parts_that_the_space_has_must_be_there():
    space = spaces.Dict({"near": Box(-9, 9, (2,)), "far": Box(-9, 9, (2,))})
    with pytest.raises(ValueError, match=r"has no obs\.far"):
        Dataset.from_columns({"obs": {"near": np.zeros((3, 2))}, "actions": np.zeros(3, int)}, observation_space=space)


def test_data_of_another_environment_is_refused(tmp_path):
    metadata = {"env": "Other-v0", "observation_space": space_to_json(Box(-1, 1, (2,)))}
    path = write_parquet(tmp_path / "a.parquet", steps(), metadata)
    with pytest.raises(ValueError, match="of Other-v0, but it is to be"):
        Dataset.from_path(path, observation_space=Box(-1, 1, (3,)))


# ---------------------------------------------------------------------- larger than memory


def json_lines(path, columns, rows=2):
    total = len(columns["obs"])
    with path.open("w") as file:
        for first in range(0, total, rows):
            line = {name: column[first : first + rows].tolist() for name, column in columns.items()}
            print(json.dumps({"type": "SampleBatch", **line}), file=file)
    return path


WRITERS = {
    "parquet": lambda path, columns: write_parquet(path / "a.parquet", columns, row_group_size=2),
    "json": lambda path, columns: json_lines(path / "a.json", columns),
    "npz": lambda path, columns: np.savez(path / "a.npz", **columns),
    "files": lambda path, columns: [
        json_lines(path / f"{first:02}.json", {name: column[first : first + 3] for name, column in columns.items()})
        for first in range(0, len(columns["obs"]), 3)
    ],
}


@pytest.mark.parametrize("ids", ["numbers", "flags", "steps"])
@pytest.mark.parametrize("writer", WRITERS)
def test_pieces_give_the_episodes_of_the_whole(tmp_path, monkeypatch, writer, ids):
    monkeypatch.setattr("rllib.offline.formats.json_lines._AT_ONCE", 1)
    columns = steps((3, 1, 7, 2))
    if ids != "numbers":
        del columns["eps_id"]
    if ids == "steps":
        columns["t"] = np.array([0, 1, 2, 0, *range(7), 0, 1])
        del columns["terminateds"], columns["truncateds"], columns["new_obs"]
    WRITERS[writer](tmp_path, columns)
    whole, pieces = Dataset.from_path(tmp_path), dataset_on_disk(tmp_path, piece_bytes=150)
    assert whole.starts.tolist() == pieces.starts.tolist() == [0, 3, 4, 11, 13]
    np.testing.assert_array_equal(whole.has_next, pieces.has_next)
    for name in CORE:
        np.testing.assert_array_equal(whole.columns[name], pieces.columns[name], err_msg=name)


def test_flags_that_come_late_do_not_cut_episodes(tmp_path, monkeypatch):
    monkeypatch.setattr("rllib.offline.formats.json_lines._AT_ONCE", 1)
    columns = steps((5, 3))
    del columns["eps_id"]
    json_lines(tmp_path / "a.json", columns, rows=2)
    with pytest.raises(ValueError, match=r"input_config=\{'ends': 'flags'\}"):
        dataset_on_disk(tmp_path, piece_bytes=1)
    assert dataset_on_disk(tmp_path, piece_bytes=1, ends="flags").starts.tolist() == [0, 5, 8]


def test_a_file_without_ids_and_flags_is_one_episode_in_pieces_as_well(tmp_path):
    parquet()
    columns = {name: steps((6,))[name] for name in ("obs", "actions", "rewards")}
    write_parquet(tmp_path / "a.parquet", columns, row_group_size=2)
    write_parquet(tmp_path / "b.parquet", columns, row_group_size=2)
    for read in (Dataset.from_path, lambda path: dataset_on_disk(path, piece_bytes=1)):
        assert read(tmp_path).starts.tolist() == [0, 6, 12]


def test_pieces_are_not_in_memory_together(tmp_path):
    h5py = pytest.importorskip("h5py")
    columns = steps((1000,) * 200, size=16)
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for name, column in columns.items():
            file[name] = column
    size = sum(column.nbytes for column in columns.values())
    del columns, column
    tracemalloc.start()
    try:
        dataset = dataset_on_disk(tmp_path, piece_bytes=size // 50)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(dataset) == 200_000 and dataset.num_episodes == 200
    assert peak < size / 3


def test_resets_at_the_end_of_a_piece_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("rllib.offline.formats.json_lines._AT_ONCE", 1)
    columns = steps((3, 3, 3)) | {"terminateds": np.zeros(9, bool)}
    columns["truncateds"][[2, 5, 8]] = True
    columns["new_obs"][[2, 5]] = columns["obs"][[3, 6]]
    json_lines(tmp_path / "a.json", columns, rows=3)
    # Behind the last end nothing is recorded; it is like the others.
    assert dataset_on_disk(tmp_path, piece_bytes=1).has_next.tolist() == [True, True, False] * 3


def test_interleaved_episodes_cannot_be_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("rllib.offline.formats.json_lines._AT_ONCE", 1)
    columns = steps((4, 4))
    order = np.array([0, 4, 1, 5, 2, 6, 3, 7])
    mixed = {name: column[order] for name, column in columns.items()} | {"t": np.repeat(np.arange(4), 2)}
    json_lines(tmp_path / "a.json", mixed)
    assert Dataset.from_path(tmp_path).starts.tolist() == [0, 4, 8]
    with pytest.raises(ValueError, match="Sort the rows by eps_id"):
        dataset_on_disk(tmp_path, piece_bytes=1)


def test_units_are_decided_by_the_first_piece(tmp_path, monkeypatch):
    monkeypatch.setattr("rllib.offline.formats.json_lines._AT_ONCE", 1)
    columns = steps((4, 4)) | {"actions": np.full((8, 1), 0.5), "unroll_id": np.zeros(8, int)}
    columns["actions"][6:] = 1.7
    json_lines(tmp_path / "a.json", columns)
    with pytest.raises(ValueError, match="Set actions_in_input_normalized"):
        dataset_on_disk(tmp_path, piece_bytes=1, action_space=Box(-2, 2, (1,)))


def test_files_that_do_not_fit_are_refused_before_they_are_read(tmp_path, monkeypatch):
    json_lines(tmp_path / "a.json", steps())
    monkeypatch.setattr("rllib.offline.dataset.free_bytes", lambda: 100)
    monkeypatch.setattr("rllib.offline.dataset.read_records", None)
    with pytest.raises(ValueError, match=r"GiB are free.*'storage': 'disk'"):
        Dataset.from_path(tmp_path)


# ---------------------------------------------------------------------- names of episodes


@pytest.mark.parametrize("form", ["json", "parquet", "pandas", "pieces"])
def test_episodes_may_be_named_by_texts(tmp_path, form):
    columns = steps((3, 4))
    del columns["terminateds"], columns["truncateds"]
    columns["eps_id"] = np.repeat(["9f2c", "0a77"], [3, 4])
    lists = {name: column.tolist() for name, column in columns.items()}
    if form == "pandas":
        dataset = Dataset.from_columns(pytest.importorskip("pandas").DataFrame(lists))
    elif form == "parquet":
        dataset = Dataset.from_path(write_parquet(tmp_path / "a.parquet", {**columns, "eps_id": lists["eps_id"]}))
    else:
        json_lines(tmp_path / "a.json", columns)
        read = Dataset.from_path if form == "json" else lambda path: dataset_on_disk(path, piece_bytes=1)
        dataset = read(tmp_path / "a.json")
    assert dataset.starts.tolist() == [0, 3, 7]


def test_a_step_a_line_needs_no_rewards(tmp_path):
    lines = [json.dumps({"obs": [float(n), 0.0], "actions": n % 2}) for n in range(4)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert Dataset.from_path(tmp_path / "a.jsonl").columns["obs"][:, 0].tolist() == [0, 1, 2, 3]


# ---------------------------------------------------------------------- archives and pipes


def test_members_of_an_archive_are_read_in_place_and_in_order(tmp_path):
    columns = steps((4, 4))
    halves = [{name: column[part] for name, column in columns.items()} for part in (slice(0, 4), slice(4, 8))]
    for number, half in enumerate(halves):
        json_lines(tmp_path / f"{number}.json", half)
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.write(tmp_path / "1.json", "../outside/1.json")
        archive.write(tmp_path / "0.json", "../outside/0.json")
    before = sorted(tmp_path.parent.rglob("*"))
    assert_same(Dataset.from_path(tmp_path / "data.zip"), columns)
    assert sorted(tmp_path.parent.rglob("*")) == before


def test_a_pipe_is_not_waited_for(tmp_path):
    import os

    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(ValueError, match="no regular file"):
        Dataset.from_path(tmp_path / "a.json")


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_minari_has_the_very_images(minari_root, channels):
    space = Box(0, 255, (40, 36, channels), np.uint8)
    rng = np.random.default_rng(0)
    columns = {"obs": rng.integers(256, size=(6, *space.shape), dtype=np.uint8), "actions": np.arange(6) % 2}
    columns |= {"rewards": np.zeros(6), "terminateds": np.arange(6) % 3 == 2}
    written = Dataset.from_columns(columns, observation_space=space, action_space=Discrete(2))
    written.save("minari:mine/images-v0")
    np.testing.assert_array_equal(Dataset.from_minari("mine/images-v0").columns["obs"], columns["obs"])


@pytest.mark.parametrize("missing", [None, {"a": None}, {"a": {"b": None}}])
def test_a_struct_without_a_value_is_named(missing):
    arrow = pytest.importorskip("pyarrow")
    rows = [{"a": {"b": 1.0}}, missing, {"a": {"b": 3.0}}]
    with pytest.raises(ValueError, match=r"row 1 has no obs\.a\.b"):
        Dataset.from_columns(arrow.table({"obs": rows, "actions": [0, 1, 0]}))
