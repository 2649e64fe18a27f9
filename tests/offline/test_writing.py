"""Files of recorded steps as our writers leave them: what is in them, when they appear, and what a fault leaves."""

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rllib.env.spaces.observations import observation_column
from rllib.evaluation.sample_batch_builder import SampleBatchBuilder
from rllib.models.observations.flat_spaces import action_form, parts, values_of_leaves
from rllib.offline import Dataset, IOContext, JsonWriter, files
from rllib.offline.larger_than_memory import dataset_on_disk
from rllib.offline.writing import column_files, open_files
from rllib.offline.writing.metadata import metadata_of
from rllib.offline.writing.rolling import RollingWriter
from rllib.sample_batch import MultiAgentBatch, SampleBatch

SPACES = {
    "numbers": (Box(-np.inf, np.inf, (4,)), Discrete(2)),
    "continuous": (Box(-1, 1, (3,)), Box(-2, 2, (1,))),
    "narrow": (Box(-1, 1, (3,)), Box(-0.4, 0.4, (2,))),
    "images": (Box(0, 255, (6, 5, 3), np.uint8), Discrete(3, start=-1)),
    "dicts": (Dict({"near": Box(-1, 1, (2,)), "which": Discrete(3)}), MultiDiscrete([3, 4])),
    "numbered": (Discrete(5), MultiDiscrete([2, 2], start=[1, 0])),
}


def action_row(space, action) -> np.ndarray:
    """An action as batches store it: the numbers of its leaves side by side."""
    if parts(space) is None:
        return action
    return np.concatenate([np.ravel(value) for value in values_of_leaves(space, action)]).astype(action_form(space)[1])


def dataset(kind: str, lengths=(3, 1, 4), **more) -> Dataset:
    """Episodes of random steps; the first terminated, the others truncated."""
    observation_space, action_space = SPACES[kind]
    observation_space.seed(1)
    action_space.seed(2)
    rng = np.random.default_rng(3)
    total, last = sum(lengths), np.cumsum(lengths) - 1
    column = observation_column(observation_space)
    obs, final = (np.stack([column.row(observation_space.sample()) for _ in range(total)]) for _ in range(2))
    following = np.concatenate([obs[1:], final[:1]])
    following[last] = final[last]
    terminateds, truncateds = np.zeros(total, bool), np.zeros(total, bool)
    terminateds[last[0]], truncateds[last[1:]] = True, True
    columns = {
        "obs": obs,
        "new_obs": following,
        "actions": np.stack([action_row(action_space, action_space.sample()) for _ in range(total)]),
        "rewards": rng.standard_normal(total).astype(np.float32),
        "terminateds": terminateds,
        "truncateds": truncateds,
        "eps_id": np.repeat(np.arange(len(lengths)) + (1 << 40), lengths),
        "t": np.concatenate([np.arange(length) for length in lengths]),
        "action_logp": rng.standard_normal(total).astype(np.float32),
    }
    return Dataset.from_columns(columns, observation_space=observation_space, action_space=action_space, **more)


def assert_same(read: Dataset, written: Dataset) -> None:
    assert read.starts.tolist() == written.starts.tolist()
    np.testing.assert_array_equal(read.has_next, written.has_next)
    for name, column in written.columns.items():
        found = read.columns[name]
        if name == "new_obs":
            found, column = found[read.has_next], column[written.has_next]
        assert found.astype(column.dtype).tobytes() == column.tobytes(), name


# ---------------------------------------------------------------------- round trips


PACKAGES = {"npz": "numpy", "json": "msgspec", "parquet": "pyarrow", "hdf5": "h5py"}
# Formats whose files do not say the spaces; one-hot rows and images would be guessed at.
WITHOUT_SPACES = ("json", "hdf5")


@pytest.fixture(params=PACKAGES)
def ending(request):
    """The ending of each format that can be read here."""
    pytest.importorskip(PACKAGES[request.param])
    if f".{request.param}" not in files.FORMATS:
        pytest.skip(f"there is no reader of .{request.param} yet")
    return request.param


@pytest.mark.parametrize("kind", SPACES)
def test_what_was_saved_is_read_to_the_bit(tmp_path, kind, ending):
    written = dataset(kind)
    written.metadata.update(env="MyEnv-v0", max_episode_steps=9)
    written.save(tmp_path / f"steps.{ending}")
    spaces = dict(zip(("observation_space", "action_space"), SPACES[kind])) if ending in WITHOUT_SPACES else {}
    read = Dataset.from_path(tmp_path / f"steps.{ending}", **spaces)
    assert_same(read, written)
    if ending not in WITHOUT_SPACES:
        assert (read.observation_space, read.action_space) == SPACES[kind]
        assert (read.metadata["env"], read.metadata["max_episode_steps"]) == ("MyEnv-v0", 9)
    assert os.listdir(tmp_path) == [f"steps.{ending}"]


@pytest.mark.parametrize("kind", ["continuous", "narrow"])
def test_normalized_actions_are_read_in_units_of_the_environment(tmp_path, kind, ending):
    written = dataset(kind)
    path = tmp_path / f"steps.{ending}"
    written.save(path, normalized_actions=True)
    high = SPACES[kind][1].high
    if ending == "npz":
        np.testing.assert_allclose(np.load(path)["actions"] * high, written.columns["actions"], rtol=1e-6)
    read = Dataset.from_path(path, **dict(zip(("observation_space", "action_space"), SPACES[kind])))
    np.testing.assert_allclose(read.columns["actions"], written.columns["actions"], rtol=1e-6)
    assert not any("actions" in notice for notice in read.notices)


@pytest.mark.parametrize("units", ["environment", "normalized"])
def test_units_of_densities_are_kept(tmp_path, ending, units):
    written = dataset("continuous", densities=units)
    written.save(tmp_path / f"steps.{ending}", normalized_actions=True)
    spaces = dict(zip(("observation_space", "action_space"), SPACES["continuous"]))
    read = Dataset.from_path(tmp_path / f"steps.{ending}", **spaces)
    assert read.metadata["densities"] == units
    np.testing.assert_array_equal(read.columns["action_logp"], written.columns["action_logp"])


def test_densities_of_other_units_are_converted():
    """The bounds span 4, normalized ones 2."""
    ours, theirs = (dataset("continuous", densities=units) for units in ("environment", "normalized"))
    logs = ours.columns["action_logp"]
    for joined, units, change in (((ours, theirs), "environment", -1), ((theirs, ours), "normalized", 1)):
        both = Dataset.concat(joined)
        assert both.metadata["densities"] == units
        expected = np.concatenate([logs, logs + change * np.log(2)])
        np.testing.assert_allclose(both.columns["action_logp"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("in_pieces", [False, True])
def test_files_with_densities_of_different_units_are_joined_in_those_of_the_first(
    tmp_path, ending, in_pieces, monkeypatch
):
    parts = []
    for number, units in enumerate(("environment", "normalized")):
        parts.append(dataset("continuous", densities=units))
        parts[-1].columns["eps_id"] = parts[-1].columns["eps_id"] + 100 * number
        parts[-1].save(tmp_path / f"{number}.{ending}")
    spaces = dict(zip(("observation_space", "action_space"), SPACES["continuous"]))
    if in_pieces:
        read = dataset_on_disk(tmp_path, storage=str(tmp_path), piece_bytes=1, **spaces)
    else:
        read = Dataset.from_path(tmp_path, **spaces)
    assert read.metadata["densities"] == "environment"
    expected = Dataset.concat(parts).columns["action_logp"]
    np.testing.assert_allclose(read.columns["action_logp"], expected, rtol=1e-5, atol=1e-6)


def test_steps_of_which_nobody_knows_what_followed_stay_so(tmp_path, ending):
    columns = dict(dataset("numbers").columns)
    del columns["new_obs"]
    written = Dataset.from_columns(columns)
    assert np.flatnonzero(~written.has_next).tolist() == (written.starts[1:] - 1).tolist()
    written.save(tmp_path / f"steps.{ending}")
    assert_same(Dataset.from_path(tmp_path / f"steps.{ending}"), written)


def counted_from_0(name: str) -> Dataset:
    """Episodes of two files that are joined; each counts its episodes, or the parts of one, from 0."""
    lengths, parts = (2, 3, 1), []
    for number in range(2):
        part = dataset("numbers", lengths)
        columns = part.columns | {"rewards": np.full(len(part), number, np.float32)}
        if name == "eps_id":
            columns |= {"eps_id": np.repeat(np.arange(3), lengths)}
            del columns["t"]
        else:  # a number of the step alone, which goes on in each further part
            columns |= {"t": np.arange(len(part))}
            del columns["eps_id"]
        parts.append(dataclasses.replace(part, columns=columns))
    return Dataset.concat(parts)


@pytest.mark.parametrize("name", ["eps_id", "t"])
def test_episodes_that_share_a_number_stay_apart(tmp_path, ending, name):
    whole = counted_from_0(name)
    chosen = [whole, whole.taking([1, 4]), whole.taking([4, 1, 1]), whole.filter_top(0.5), *whole.split(0.5)]
    for number, written in enumerate(chosen):
        path = tmp_path / f"{number}.{ending}"
        written.save(path)
        for read in (Dataset.from_path(path), dataset_on_disk(path, piece_bytes=1)):
            assert read.starts.tolist() == written.starts.tolist()
            for column in ("obs", "new_obs", "actions", "rewards", "terminateds", "truncateds"):
                np.testing.assert_array_equal(read.columns[column], written.columns[column])
            if name == "eps_id":
                assert len(np.unique(read.columns["eps_id"])) == written.num_episodes


def test_a_known_end_that_is_like_the_next_beginning_stays_known(tmp_path, ending):
    written = dataset("numbers")
    last, first = written.starts[1:-1] - 1, written.starts[1:-1]
    written.columns["new_obs"][last] = written.columns["obs"][first]
    assert written.has_next.all()
    written.save(tmp_path / f"steps.{ending}")
    assert_same(Dataset.from_path(tmp_path / f"steps.{ending}"), written)


def test_only_actions_with_bounds_are_normalized(tmp_path):
    with pytest.raises(ValueError, match="only actions of a Box of floats with bounds"):
        dataset("numbers").save(tmp_path / "steps.npz", normalized_actions=True)


@pytest.mark.parametrize("kind", SPACES)
def test_parquet_files_have_a_row_a_step_and_say_the_spaces(tmp_path, kind):
    parquet = pytest.importorskip("pyarrow.parquet")
    written = dataset(kind)
    written.save(tmp_path / "steps.parquet")
    table = parquet.read_table(tmp_path / "steps.parquet")
    about = json.loads(table.schema.metadata[b"rllib"])
    assert about["version"] == 1 and about["actions"] == "environment"
    units = {"densities": "environment"} if isinstance(SPACES[kind][1], Box) else {}
    assert about == metadata_of(*SPACES[kind]) | units | {name: about[name] for name in ("created", "columns")}
    for name, column in written.columns.items():
        found = table.column(name).combine_chunks()
        if name in about["columns"]:  # images
            described = about["columns"][name]
            found = np.frombuffer(b"".join(found.to_pylist()), described["dtype"]).reshape(-1, *described["shape"])
        elif column.ndim > 1:
            assert found.type.list_size == column.shape[1]
            found = found.flatten().to_numpy(zero_copy_only=False).reshape(column.shape)
        else:
            found = found.to_numpy(zero_copy_only=False)
        assert found.dtype == column.dtype and found.tobytes() == column.tobytes(), name
    assert set(about["columns"]) == ({"obs", "new_obs"} if kind == "images" else set())


def test_hdf5_files_have_the_names_of_d4rl(tmp_path):
    h5py = pytest.importorskip("h5py")
    written = dataset("continuous")
    written.save(tmp_path / "steps.hdf5")
    names = {"observations": "obs", "next_observations": "new_obs", "actions": "actions", "rewards": "rewards"}
    names |= {"terminals": "terminateds", "timeouts": "truncateds", "infos/action_log_probs": "action_logp"}
    with h5py.File(tmp_path / "steps.hdf5") as file:
        for name, ours in names.items():
            assert file[name][:].tobytes() == written.columns[ours].tobytes(), name
        assert json.loads(file.attrs["rllib"])["actions"] == "environment"


@pytest.mark.parametrize("kind", ["numbers", "continuous", "images"])
def test_minari_datasets_have_one_observation_more_than_steps(tmp_path, monkeypatch, kind):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    written = dataset(kind)
    written.save(f"minari:test/{kind}-v0")
    episodes = list(minari.load_dataset(f"test/{kind}-v0"))
    assert [len(episode.rewards) for episode in episodes] == written.lengths.tolist()
    for episode, columns in zip(episodes, written.episodes()):
        np.testing.assert_array_equal(episode.observations[:-1], columns["obs"])
        np.testing.assert_array_equal(episode.observations[-1], columns["new_obs"][-1])
        np.testing.assert_array_equal(episode.actions, columns["actions"])
        np.testing.assert_array_equal(episode.rewards, columns["rewards"])
        np.testing.assert_array_equal(episode.terminations, columns["terminateds"])
        np.testing.assert_array_equal(episode.truncations, columns["truncateds"])


STRUCTURED = Dict(
    {
        "near": Box(-1, 1, (2,)),
        "far": Dict({"pixels": Box(0, 255, (4, 4, 3), np.uint8), "wide": Box(-1, 1, (2,), np.float64)}),
        "which": Discrete(3, start=1),
        "bits": MultiBinary(2),
        "choices": MultiDiscrete([3, 2]),
    }
)


@pytest.mark.parametrize(
    "observation_space", [STRUCTURED, Tuple(STRUCTURED.values()), MultiBinary(3), STRUCTURED["near"]]
)
@pytest.mark.parametrize("action_space", [Tuple([Discrete(3, start=-1), Box(-2, 2, (2,))]), STRUCTURED, Discrete(2)])
def test_minari_datasets_have_the_parts_of_spaces(tmp_path, monkeypatch, observation_space, action_space):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.setitem(SPACES, "parts", (observation_space, action_space))
    written = dataset("parts")
    written.save("minari:test/parts-v0")
    if parts(observation_space):
        for episode in minari.load_dataset("test/parts-v0"):
            for t in range(len(episode.rewards)):
                assert observation_space.contains(at(t, episode.observations))
                if parts(action_space):
                    assert action_space.contains(at(t, episode.actions))
    of = {"action_space": action_space}
    if parts(observation_space):
        of["observation_space"] = observation_space  # as an environment gives it
    again = Dataset.from_path("minari:test/parts-v0", **of)
    for name in ("obs", "new_obs", "actions", "rewards"):
        np.testing.assert_allclose(again.columns[name], written.columns[name], rtol=1e-6, err_msg=name)


def at(t, values):
    """Row t of a batch in the structure of its space."""
    if isinstance(values, dict):
        return {key: at(t, part) for key, part in values.items()}
    return tuple(at(t, part) for part in values) if isinstance(values, tuple) else values[t]


def test_a_termination_after_which_nothing_is_known_keeps_its_step_in_minari(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    columns = dict(dataset("numbers").columns)
    del columns["new_obs"]
    Dataset.from_columns(columns).save("minari:test/ends-v0")
    episodes = list(minari.load_dataset("test/ends-v0"))
    assert [len(episode.rewards) for episode in episodes] == [3, 3]  # of truncated ones the last step is left out
    assert episodes[0].terminations[-1]


def test_steps_that_minari_cannot_hold_are_refused():
    with pytest.raises(ValueError, match="minari:test/some-v0 has actions in units of the environment"):
        dataset("continuous").save("minari:test/some-v0", normalized_actions=True)
    without = dataset("continuous")
    del without.columns["rewards"]
    with pytest.raises(ValueError, match="minari:test/some-v0 needs rewards"):
        without.save("minari:test/some-v0")


def test_a_dataset_of_minari_is_not_replaced(tmp_path, monkeypatch, caplog):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset("numbers").save("minari:test/some-v0")
    assert "no place for action_logp: these columns are left out" in caplog.text
    with pytest.raises(ValueError, match="minari:test/some-v0 is there already"):
        dataset("numbers").save("minari:test/some-v0")


def test_a_name_that_says_no_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match="says no format"):
        dataset("numbers").save(tmp_path / "steps.csv")
    with pytest.raises(ValueError, match="Did you mean parquet"):
        dataset("numbers").save(tmp_path / "steps", "parket")


def test_the_first_steps_end_with_a_truncation():
    whole = dataset("numbers")
    first = whole.first(6)
    assert first.starts.tolist() == [0, 3, 4, 6] and first.columns["truncateds"].tolist()[-1]
    assert not whole.columns["truncateds"][5]
    with pytest.raises(ValueError, match="has 8 steps, of which 9"):
        whole.first(9)


# ---------------------------------------------------------------------- files one after the other


def batch(rows: int, first: int = 0) -> SampleBatch:
    count = np.arange(first, first + rows)
    obs = count[:, None].astype(np.float32)
    return SampleBatch(
        {"obs": obs, "new_obs": obs + 1, "actions": count % 2, "rewards": obs[:, 0], "eps_id": 0 * count}
    )


@pytest.mark.parametrize("format_", ["json", "npz"])
def test_the_next_file_begins_when_one_is_large_enough(tmp_path, format_):
    writer = RollingWriter(tmp_path, format_, metadata_of(*SPACES["numbers"]), worker_index=3, max_rows_per_file=5)
    for number in range(5):
        writer.write(batch(2, 2 * number))
    assert [name.endswith(f"_worker-3_0.{format_}") for name in visible(tmp_path)] == [True]
    writer.close()
    writer.close()
    assert [name.rpartition("_")[2] for name in visible(tmp_path)] == [f"0.{format_}", f"1.{format_}"]
    assert len(os.listdir(tmp_path)) == 2
    sized = RollingWriter(tmp_path, format_, metadata_of(*SPACES["numbers"]), max_file_size=50)
    for number in range(3):
        sized.write(batch(4, 4 * number))
    assert len(visible(tmp_path)) == 5  # beside the files of the writer before


def visible(directory) -> list[str]:
    return sorted(name for name in os.listdir(directory) if not name.startswith("."))


def test_a_process_reads_what_its_open_writers_have_written(tmp_path):
    """RLlib's writers have each batch in the file when it is written, so its programs read without closing any."""
    writer, elsewhere = JsonWriter(tmp_path / "here"), JsonWriter(tmp_path / "elsewhere")
    for count in (1, 2):
        batch = {"obs": np.ones((4, 2)), "new_obs": np.ones((4, 2)), "actions": np.zeros(4), "rewards": np.ones(4)}
        for each in (writer, elsewhere):
            each.write(SampleBatch({**batch, "eps_id": np.full(4, count), "t": np.arange(4)}))
        assert len(Dataset.from_path(tmp_path / "here")) == 4 * count
    assert not list((tmp_path / "elsewhere").glob("*.json"))


def test_a_program_that_ends_without_closing_its_writer_loses_nothing(tmp_path):
    code = (
        "import sys, numpy as np\n"
        "from rllib.offline import JsonWriter\n"
        "from rllib.evaluation.sample_batch_builder import SampleBatchBuilder\n"
        "builder, writer = SampleBatchBuilder(), JsonWriter(sys.argv[1])\n"
        "for t in range(4):\n"
        "    builder.add_values(obs=np.ones(2) * t, new_obs=np.ones(2) * (t + 1), actions=t % 2, rewards=1.0,"
        " eps_id=7, t=t, infos={})\n"
        "writer.write(builder.build_and_reset())\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=100)
    read = Dataset.from_path(tmp_path)
    assert (len(read), read.num_episodes) == (4, 1)
    assert read.columns["obs"][:, 0].tolist() == [0, 1, 2, 3]


def test_a_program_that_ends_writes_its_columns(tmp_path):
    """Where the interpreter ends, modules can no longer be imported."""
    parquet = pytest.importorskip("pyarrow.parquet")
    code = (
        "import sys, numpy as np\n"
        "from rllib.offline.writing.rolling import RollingWriter\n"
        "writer = RollingWriter(sys.argv[1], 'parquet', {'actions': 'environment'})\n"
        "writer.write({'obs': np.ones((3, 2), np.float32), 'truncateds': np.array([False, False, True])})\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and not done.stderr
    (name,) = visible(tmp_path)
    assert parquet.read_table(tmp_path / name).column("truncateds").to_pylist() == [False, False, True]


@pytest.mark.parametrize("format_", ["json", "npz", "parquet"])
def test_a_killed_writer_has_written_what_is_older_than_its_limit(tmp_path, format_):
    if format_ == "parquet":
        pytest.importorskip("pyarrow")
    code = (
        "import os, signal, sys, numpy as np\n"
        "from rllib.offline.writing.rolling import RollingWriter\n"
        "writer = RollingWriter(*sys.argv[1:], {'actions': 'environment'}, max_file_seconds=1e-9)\n"
        "for k in range(3):\n"
        "    obs = np.full((2, 1), k, np.float32)\n"
        "    writer.write({'obs': obs, 'actions': np.zeros(2, int), 'rewards': np.ones(2), 'eps_id': np.full(2, k)})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path), format_], check=False, timeout=100)
    assert killed.returncode == -9
    assert Dataset.from_path(tmp_path).columns["obs"][:, 0].tolist() == [0, 0, 1, 1, 2, 2]


def test_of_a_killed_writer_the_lines_of_json_stay(tmp_path):
    code = (
        "import os, signal, sys, numpy as np\n"
        "from rllib.offline import JsonWriter\n"
        "writer = JsonWriter(sys.argv[1])\n"
        "for k in range(3):\n"
        "    obs = np.full((2, 1), k, np.float32)\n"
        "    writer.write({'obs': obs, 'actions': np.zeros(2, int), 'rewards': np.ones(2), 'eps_id': np.full(2, k)})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=100)
    (name,) = os.listdir(tmp_path)
    assert name.startswith(".output-") and name.endswith("_worker-0_0.json.partial")
    with pytest.raises(FileNotFoundError, match="has no data files"):
        Dataset.from_path(tmp_path)
    with open(tmp_path / name, "ab") as file:
        file.write(b'{"type": "SampleBatch", "obs": [[')
    os.rename(tmp_path / name, tmp_path / "kept.json")
    assert len(Dataset.from_path(tmp_path, on_error="skip")) == 6


def test_the_replacement_of_a_killed_writer_keeps_its_lines(tmp_path):
    killed, new = (RollingWriter(tmp_path, "json", metadata_of(*SPACES["numbers"]), run_id="run") for _ in range(2))
    killed.write(batch(3))
    new.write(batch(2, 3))
    new.close()
    assert sorted(os.listdir(tmp_path)) == [".output-run_worker-0_0.json.partial", "output-run_worker-0_1.json"]
    killed.close()
    assert len(Dataset.from_path(tmp_path)) == 5


def test_a_save_that_fails_leaves_the_file_before(tmp_path, monkeypatch):
    """The second of two lines cannot be written."""
    path = tmp_path / "steps.json"
    dataset("numbers").save(path)
    before, lines = path.read_bytes(), iter([open_files.line_of])
    monkeypatch.setattr(open_files, "line_of", lambda *args: next(lines)(*args))
    with pytest.raises(StopIteration):
        dataset("numbers", (2, 3)).save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == [path.name]


class FullDisk:
    """A file of which only some bytes can be written."""

    def __init__(self, file, room: int):
        self._file, self._room = file, room

    def write(self, content):
        if len(content) > self._room:
            self._file.write(content[: self._room])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._room -= len(content)
        return self._file.write(content)

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self._file.__enter__()

    def __exit__(self, *error):
        return self._file.__exit__(*error)


def test_a_full_disk_is_said_with_the_file_and_leaves_whole_lines(tmp_path):
    writer = RollingWriter(tmp_path, "json", metadata_of(*SPACES["numbers"]))
    writer.write(batch(3))
    (file,) = writer._open
    file._file = FullDisk(file._file, 40)
    with pytest.raises(OSError, match=r"No space left.*recorded steps cannot be written.*worker-0_0.json"):
        writer.write(batch(3, 3))
    writer.close()
    assert len(Dataset.from_path(tmp_path)) == 3


def test_a_file_of_columns_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def fails(path, columns, metadata):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = open_files.ColumnsFile(tmp_path / "steps.npz", {}, fails)
    file.add(batch(3))
    with pytest.raises(OSError, match=r"No space left.*steps\.npz"):
        file.close()
    assert os.listdir(tmp_path) == []


def test_a_batch_of_several_policies_is_refused(tmp_path):
    writer = JsonWriter(tmp_path, IOContext(worker_index=2))
    with pytest.raises(ValueError, match="the steps of one policy, but the batch has 'a', 'b'"):
        writer.write(MultiAgentBatch({"a": batch(2), "b": batch(2)}, 2))
    writer.write(MultiAgentBatch({"a": batch(2)}, 2))
    writer.close()
    assert visible(tmp_path)[0].endswith("_worker-2_0.json")


def test_steps_with_other_columns_are_refused(tmp_path):
    builder = SampleBatchBuilder()
    builder.add_values(obs=1, actions=0)
    with pytest.raises(ValueError, match="need the same columns"):
        builder.add_values(obs=1)
    writer = RollingWriter(tmp_path, "npz", metadata_of(*SPACES["numbers"]))
    writer.write(batch(1))
    with pytest.raises(ValueError, match="need the same columns"):
        writer.write({"obs": np.zeros((1, 1))})
    writer.close()


def test_packed_columns_are_those_of_the_setting(tmp_path):
    pytest.importorskip("lz4")
    JsonWriter(tmp_path / "packed").write(batch(3))
    plain = JsonWriter(tmp_path / "plain", compress_columns=[])
    plain.write(batch(3))
    plain.close()
    (name,) = visible(tmp_path / "plain")
    assert json.loads((tmp_path / "plain" / name).read_text())["obs"] == [[0.0], [1.0], [2.0]]


def test_infinite_logits_are_numbers_that_json_knows(tmp_path):
    file = open_files.LinesFile(tmp_path / "steps.json", {})
    file.add({"actions": np.zeros(1), "action_dist_inputs": np.array([[0, -np.inf]], np.float32)})
    file.close()
    line = json.loads((tmp_path / "steps.json").read_text())
    assert line["action_dist_inputs"] == [[0.0, float(np.finfo(np.float32).min)]]


def test_nan_is_no_number_that_json_knows(tmp_path):
    written = dataset("numbers")
    written.columns["weight"] = np.full(len(written), np.nan)
    with pytest.raises(ValueError, match=r"weight has NaN, which JSON does not know\. Write another format"):
        written.save(tmp_path / "steps.json")
    assert os.listdir(tmp_path) == []
    del written.columns["weight"]
    written.has_next[2], written.columns["new_obs"][2] = False, np.nan  # never read
    written.save(tmp_path / "steps.json")
    assert_same(Dataset.from_path(tmp_path / "steps.json"), written)


def test_names_of_d4rl_are_read_as_ours():
    from rllib.offline.records import our_names

    assert our_names(list(column_files.D4RL_NAMES.values())) == {
        theirs: ours for ours, theirs in column_files.D4RL_NAMES.items()
    }


_KILLED_WHILE_RECORDING = """
import os, signal, sys, time
from rllib import PGConfig

workers, format_, directory = sys.argv[1:]
config = PGConfig().environment("CartPole-v1").rollouts(num_rollout_workers=int(workers)).training(train_batch_size=100)
with config.offline_data(output=directory, output_config={"format": format_}).build() as algorithm:
    algorithm.train()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
"""


@pytest.mark.parametrize("format_", ["json", "parquet"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_that_sigterm_ends_keeps_its_open_file(tmp_path, workers, format_):
    command = [sys.executable, "-c", _KILLED_WHILE_RECORDING, str(workers), format_, str(tmp_path / "out")]
    assert subprocess.run(command, timeout=100, capture_output=True).returncode == 128 + signal.SIGTERM
    (file,) = (tmp_path / "out").iterdir()
    assert len(Dataset.from_path(file)) == 100


_KILLED_WHILE_WRITING = """
import multiprocessing, os, signal, sys, time
import numpy as np
from rllib.offline.writing.rolling import RollingWriter

writer = RollingWriter(sys.argv[1], "json", {})
writer.write({"obs": np.zeros((3, 2), np.float32), "rewards": np.zeros(3, np.float32)})
context = multiprocessing.get_context("fork")
runs = context.Event()
other = context.Process(target=lambda: (runs.set(), time.sleep(60)))
other.start()
runs.wait()  # Python drops signals that come before a fork has begun
other.terminate()  # which has the handler, but must leave the file alone
other.join()
print(len([name for name in os.listdir(sys.argv[1]) if name.endswith(".partial")]), flush=True)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""


def test_sigterm_closes_a_writer_of_ones_own(tmp_path):
    command = [sys.executable, "-c", _KILLED_WHILE_WRITING, str(tmp_path)]
    found = subprocess.run(command, timeout=100, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (-signal.SIGTERM, "1\n")
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


COLUMNS = {
    "float": np.arange(8.0) / 3,
    "square": np.arange(48.0, dtype=np.float32).reshape(8, 2, 3) / 7,
    "single": np.arange(8, dtype=np.int64).reshape(8, 1, 1),
    "pixels": np.arange(8 * 24, dtype=np.uint8).reshape(8, 2, 3, 4),
    "empty": np.zeros((8, 0), np.float32),
    "bits": np.arange(8) % 2 == 0,
    "large": np.arange(8) + (1 << 60),
}
NAMES = (
    *("more", "file", "metadata", "type", "count", "policy_batches", "item", "columns", "arr_0", "a.b", "infos/x", ""),
    *("observations", "action", "timeouts", "rllib", "x.npy", "ü ß"),
)


def saved_and_read(tmp_path, ending, name, column) -> None:
    data = dataset("numbers")
    data.columns[name] = column
    data.save(tmp_path / f"a.{ending}")
    spaces = {"observation_space": data.observation_space, "action_space": data.action_space}
    found = Dataset.from_path(tmp_path / f"a.{ending}", **spaces).columns[name]
    assert found.shape == column.shape
    np.testing.assert_array_equal(found.astype(column.dtype), column)


@pytest.mark.parametrize("form", COLUMNS)
def test_a_column_of_any_shape_comes_back_or_is_refused(tmp_path, ending, form):
    try:
        saved_and_read(tmp_path, ending, "more", COLUMNS[form])
    except ValueError as error:
        assert "no place" in str(error) and form == "empty"


@pytest.mark.parametrize("name", NAMES)
def test_a_column_of_any_name_comes_back_or_is_refused(tmp_path, ending, name):
    try:
        saved_and_read(tmp_path, ending, name, COLUMNS["float"])
    except ValueError as error:
        assert "no place" in str(error) and repr(name) in str(error)
        assert not list(tmp_path.iterdir())


def test_facts_about_data_are_json():
    data = dataset("numbers")
    data.columns |= {"gaps": np.where(np.arange(8) < 3, np.nan, np.arange(8.0)), "nothing": np.full(8, np.inf)}
    facts = json.loads(json.dumps(data.info(), allow_nan=False))["columns"]
    assert (facts["gaps"]["min"], facts["gaps"]["max"], facts["gaps"]["not_finite"]) == (3, 7, 3)
    assert facts["nothing"]["not_finite"] == 8 and "min" not in facts["nothing"]


def test_densities_too_large_for_a_float_are_written_without_a_warning(tmp_path, recwarn):
    steps = {"obs": np.zeros((2, 1)), "actions": np.zeros((2, 1)), "action_logp": np.float32([0.0, 100.0])}
    steps |= {"rewards": np.zeros(2), "terminateds": np.zeros(2, bool), "truncateds": np.array([False, True])}
    writer = RollingWriter(tmp_path, "json", metadata_of(Box(-1, 1, (1,)), Box(-1, 1, (1,))))
    writer.write(SampleBatch(steps))
    writer.close()
    assert Dataset.from_path(tmp_path).columns["action_logp"].tolist() == [0.0, 100.0]
    assert not recwarn.list
