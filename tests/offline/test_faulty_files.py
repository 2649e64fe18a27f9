"""Faulty files: each fault is an error that says where and what to do, or is mended and counted."""

import base64
import builtins
import functools
import json
import logging
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary

from rllib.algorithms.base.registry import get_algorithm_config
from rllib.offline.dataset import Dataset
from rllib.offline.larger_than_memory import dataset_on_disk

DATA = Path(__file__).parents[1] / "data" / "offline"


def line(rows=3, first=0, **changed):
    """A line with an episode of some rows; None leaves a column out."""
    obs = [[float(first + row)] for row in range(rows)]
    columns = {
        "type": "SampleBatch", "obs": obs, "new_obs": [[row[0] + 1] for row in obs], "actions": [0] * rows,
        "rewards": [1.0] * rows, "dones": [False] * (rows - 1) + [True], "eps_id": [first] * rows,
    } | changed  # fmt: skip
    return json.dumps({name: column for name, column in columns.items() if column is not None})


@pytest.fixture
def read(tmp_path):
    def read(*lines, **options):
        (tmp_path / "a.json").write_text("\n".join(lines) + "\n")
        return Dataset.from_path(tmp_path / "a.json", **options)

    return read


LINES = {
    "no JSON": ("{'obs': 1}", r"a\.json line 2: not JSON .*cut off.*'on_error': 'skip'"),
    "cut off": (line()[:50], r"line 2: not JSON"),
    "spread": (line().replace(",", ",\n"), r"line 2: not JSON .*several lines"),
    "another value": ("[1, 2]", "line 2: a line is one JSON object, a batch or a step, not list"),
    "unequal columns": (line(rewards=[1.0] * 2), "line 2: .* has 3 rows, rewards 2"),
    "no columns": ('{"type": "SampleBatch"}', "line 2: there is no column"),
    "ragged rows": (line(obs=[[1.0], [2.0, 3.0], [4.0]]), "line 2: rows of obs have different shapes"),
    "another shape": (line(obs=[[1.0, 2.0]] * 3), r"line 2: a row of obs has the shape \(2,\), but in line 1 \(1,\)"),
    "without actions": (line(actions=None), "line 2 has no actions, which other lines have.*'on_error': 'skip'"),
    "without obs": (line(obs=None), "line 2 has no obs, which other lines have"),
    "texts": (line(rewards=["1", "2", "3"]), "line 2: rewards holds no numbers"),
    "nothing": (line(rewards=[1.0, None, 1.0]), "line 2: rewards holds no numbers"),
    "texts as flags": (line(dones=["no", "no", "yes"]), "line 2: dones holds no numbers"),
    "several policies": (
        json.dumps({"type": "MultiAgentBatch", "policy_batches": {"p0": {}, "p1": {}}}),
        "line 2: the batch has several policies, 'p0', 'p1'. .*'policy'",
    ),
    "no base64": (line(obs="BCJNG=!"), "line 2: obs: the packed column is no base64"),
    "no frame": (line(obs=base64.b64encode(b'\x04"M\x18xxxxxxxxxxxxxxxx').decode()), "line 2: obs: the packed column"),
}


@pytest.mark.parametrize(("second", "message"), LINES.values(), ids=LINES)
def test_a_line_that_cannot_be_read_is_named(read, second, message):
    with pytest.raises(ValueError, match=message):
        read(line(), second)


def test_a_file_may_begin_with_a_byte_order_mark(read):
    assert len(read("\ufeff" + line(), line(first=20))) == 6
    assert len(read("\ufeff", line(), line(first=20))) == 6


@pytest.mark.parametrize("name", [name for name in LINES if name != "spread"])
def test_lines_that_cannot_be_read_are_left_out_and_counted_on_demand(read, name):
    dataset = read(line(), LINES[name][0], line(first=20), on_error="skip")
    assert dataset.num_episodes == 2 and len(dataset) == 6
    assert "1 lines of" in " ".join(dataset.notices)


@pytest.mark.parametrize("other", [{"obs": [[1.0, 2.0]] * 3}, {"actions": None}, {"rewards": None}], ids=str)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_lines_unlike_most_are_left_out_wherever_they_are(read, other, at):
    """Also at the beginning; the columns of the others stay."""
    lines = [line(), line(first=20), line(first=40)]
    lines.insert(at, line(first=60, **other))
    dataset = read(*lines, on_error="skip")
    assert sorted(dataset.columns["obs"][dataset.starts[:-1], 0]) == [0, 20, 40] and "rewards" in dataset.columns
    assert "1 lines of" in " ".join(dataset.notices)


def test_blank_lines_are_passed_over(read):
    assert len(read(line(), "", "  ", line(first=20))) == 6


def test_columns_that_some_lines_lack_are_left_out_and_named(read):
    dataset = read(line(q=[1.0] * 3), line(first=20))
    assert "q" not in dataset.columns
    assert "not all lines of" in " ".join(dataset.notices) and "q" in " ".join(dataset.notices)


@pytest.mark.parametrize("name", ["obs", "actions"])
def test_a_column_that_is_always_needed_is_named(read, name):
    with pytest.raises(ValueError, match=rf"has no {name}; it has .*input_read_schema"):
        read(line(**{name: None}))


@pytest.mark.parametrize("number", [1e400, -1e400])
def test_numbers_that_are_not_finite_are_named(read, number):
    text = line(rewards=[1.0, 7.25, 1.0]).replace("7.25", "1e400" if number > 0 else "-1e400")
    with pytest.raises(ValueError):
        read(line(), text)


def test_observations_outside_of_their_bounds_are_counted(read):
    dataset = read(line(rows=5), observation_space=Box(0, 2.5, (1,)))
    assert "2 of 5 observations lie outside" in " ".join(dataset.notices)


@pytest.mark.parametrize("actions", [[0, 1, 2], [0, -1, 0]])
def test_actions_that_there_are_not_are_named(read, actions):
    with pytest.raises(ValueError, match=r"row [12]: the action -?[12] is not in"):
        read(line(actions=actions), action_space=Discrete(2))


def test_a_reward_that_is_no_number_is_named():
    rewards = np.array([1.0, "x", 2.0], object)
    with pytest.raises(ValueError, match="row 1: the reward 'x' is no number"):
        Dataset.from_columns({"obs": np.zeros((3, 1)), "actions": np.zeros(3, int), "rewards": rewards})


STEPS = {
    "obs": [[0.0], [1.0], [2.0], [3.0]], "new_obs": [[1.0], [2.0], [3.0], [4.0]], "actions": [0, 1, 0, 1],
    "rewards": [1.0] * 4, "terminateds": [False, True, False, True], "truncateds": [False] * 4,
    "eps_id": [0, 0, 1, 1], "t": [0, 1, 0, 1], "action_logp": [-0.5] * 4,
}  # fmt: skip
# What a column may hold in place of a number: texts, as of a .csv file, and a row without a value, as after a join.
NO_NUMBERS = {"texts": lambda values: list(map(str, values)), "a gap": lambda values: [values[0], None, *values[2:]]}


def _npz(columns, folder):
    with_numbers = {
        name: np.array([np.nan if each is None else each for each in values]) for name, values in columns.items()
    }
    np.savez(folder / "a.npz", **with_numbers)
    return Dataset.from_path(folder / "a.npz")


def _hdf5(columns, folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "a.hdf5", "w") as file:
        for name, values in columns.items():
            file[name] = [np.nan if each is None else each for each in values]
    return Dataset.from_path(folder / "a.hdf5")


def _parquet(columns, folder):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), folder / "a.parquet")
    return Dataset.from_path(folder / "a.parquet")


def _lines(columns, folder):
    (folder / "a.json").write_text(json.dumps({"type": "SampleBatch", **columns}))
    return Dataset.from_path(folder / "a.json")


FORMS = {
    "arrays": lambda columns, folder: Dataset.from_columns({name: np.array(each) for name, each in columns.items()}),
    "pandas": lambda columns, folder: Dataset.from_columns(pytest.importorskip("pandas").DataFrame(columns)),
    "pyarrow": lambda columns, folder: Dataset.from_columns(pytest.importorskip("pyarrow").table(columns)),
    "npz": _npz,
    "hdf5": _hdf5,
    "parquet": _parquet,
    "json": _lines,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("held", NO_NUMBERS)
def test_a_column_of_steps_without_numbers_is_refused_and_not_left_out(tmp_path, form, held):
    """Without its flags the data is one episode, which goes on behind each end."""
    assert FORMS[form](STEPS, tmp_path).lengths.tolist() == [2, 2]
    for name in ("actions", "rewards", "terminateds", "truncateds", "dones", "t"):
        values = STEPS.get(name, STEPS["terminateds"])
        changed = {**STEPS, name: NO_NUMBERS[held](values)}
        with pytest.raises(ValueError, match=rf"\b{name.removesuffix('s')}") as error:
            FORMS[form](changed, tmp_path)
        assert "np." not in str(error.value)


@pytest.mark.parametrize("form", FORMS)
def test_texts_beside_a_column_of_our_name_are_left_out(tmp_path, form):
    texts = ["left", "right", "left", "right"]
    dataset = FORMS[form]({**STEPS, "action": texts, "reward": texts, "note": texts}, tmp_path)
    assert dataset.columns["actions"].tolist() == STEPS["actions"] and dataset.lengths.tolist() == [2, 2]


@pytest.mark.parametrize("name", ["terminateds", "dones", "truncateds"])
@pytest.mark.parametrize("value", [-1, 2, 0.5, "False", None])
def test_a_flag_is_0_or_1(name, value):
    flags = np.array([0, value, 0, 0], object if value is None else None)
    columns = {each: np.array(column) for each, column in STEPS.items() if each not in ("terminateds", "truncateds")}
    with pytest.raises(ValueError, match=f"row [01]: {name} is .*but a flag is"):
        Dataset.from_columns({**columns, name: flags})


@pytest.mark.parametrize("name", ["terminateds", "truncateds", "eps_id", "t"])
def test_a_column_with_several_values_a_row_is_named(name):
    columns = {each: np.array(column) for each, column in STEPS.items()}
    with pytest.raises(ValueError, match=rf"{name} must be one value a row, but has the shape \(2,\)"):
        Dataset.from_columns({**columns, name: np.stack([columns[name]] * 2, 1)})
    lone = {**columns, name: columns[name][:, None]}
    assert Dataset.from_columns(lone).lengths.tolist() == [2, 2]


LEFT_OUT = {"cut off": lambda step: json.dumps(step)[:20], "texts": lambda step: json.dumps({**step, "rewards": "x"})}


def steps_of_three(columns, order):
    """Three episodes of five steps, whose observation counts the steps; by number of the episode and of the step."""
    numbers = [(episode, t) for episode in range(3) for t in range(5)]
    for episode, t in sorted(numbers, key=lambda number: number[::-1]) if order == "in turns" else numbers:
        obs = 10.0 * episode + t
        step = {"obs": [obs], "actions": t % 2, "rewards": 1.0, "terminateds": t == 4, "eps_id": episode}
        extra = {"t": t, "new_obs": [obs + 1]}
        yield (episode, t), step | {name: extra[name] for name in columns}


@pytest.mark.parametrize("left_out", [{(1, 2)}, {(1, 0)}, {(1, 4)}, {(0, 4), (1, 0), (2, 1), (2, 2)}], ids=str)
@pytest.mark.parametrize("fault", LEFT_OUT)
@pytest.mark.parametrize("columns", [(), ("t",), ("new_obs",), ("t", "new_obs")], ids=str)
@pytest.mark.parametrize("order", ["one by one", "in turns", "in pieces", "files"])
def test_no_step_follows_one_behind_lines_that_were_left_out(tmp_path, left_out, fault, columns, order):
    """An episode is cut where steps of it are missing: 12 does not follow from 10, however its reward is summed up."""
    if order == "in turns" and not columns:
        pytest.skip("nothing says that the rows of an episode belong together")
    lines = [
        LEFT_OUT[fault](step) if at in left_out else json.dumps(step) for at, step in steps_of_three(columns, order)
    ]
    if order == "files":
        for number, text in enumerate(lines):
            (tmp_path / f"{number}.json").write_text(text)
    else:
        (tmp_path / "0.json").write_text("\n".join(lines))
    read = functools.partial(dataset_on_disk, piece_bytes=1) if order == "in pieces" else Dataset.from_path
    dataset = read(tmp_path, on_error="skip")
    assert len(dataset) == 15 - len(left_out) and "after_gap" not in dataset.columns
    obs, following = dataset.columns["obs"][:, 0], dataset.columns["new_obs"][:, 0]
    known = dataset.is_transition & ~dataset.columns["terminateds"]
    np.testing.assert_array_equal(following[known], obs[known] + 1)
    for start, stop in zip(dataset.starts, dataset.starts[1:]):
        np.testing.assert_array_equal(obs[start:stop], obs[start] + np.arange(stop - start))
    # And nothing is cut elsewhere: an episode has as many parts as its steps have runs.
    kept = [[t for t in range(5) if (episode, t) not in left_out] for episode in range(3)]
    assert dataset.num_episodes == sum(1 + int((np.diff(steps) > 1).sum()) for steps in kept)


# ---------------------------------------------------------------------- paths and archives


def test_a_path_that_matches_nothing_has_the_nearest_name(tmp_path):
    (tmp_path / "expert.json").write_text(line())
    with pytest.raises(FileNotFoundError, match=r"Did you mean .*expert\.json"):
        Dataset.from_path(tmp_path / "expret.json")


def test_a_directory_without_data_says_what_it_has(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "_hidden.json").write_text(line())
    with pytest.raises(FileNotFoundError, match=r"has no data files .*\.parquet.*notes\.txt"):
        Dataset.from_path(tmp_path)


def test_paths_on_other_machines_are_refused():
    with pytest.raises(ValueError, match="Download it first"):
        Dataset.from_path("s3://bucket/data.json")


def test_a_file_of_no_known_format_is_refused(tmp_path):
    (tmp_path / "a.xls").write_text("obs,actions\n")
    with pytest.raises(ValueError, match="of no known format"):
        Dataset.from_path(tmp_path / "a.xls")


@pytest.mark.parametrize("name", ["enormous.zip", "cartpole_large.json.gz"])
def test_an_archive_that_was_cut_off_is_refused(tmp_path, name):
    content = (DATA / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="is no whole archive"):
        Dataset.from_path(tmp_path / name)


def test_files_that_cannot_be_read_are_left_out_and_named_on_demand(tmp_path):
    (tmp_path / "a.json").write_text(line() + "\n")
    (tmp_path / "b.npz").write_bytes(b"PK")
    dataset = Dataset.from_path(tmp_path, on_error="skip")
    assert len(dataset) == 3 and "b.npz was left out" in " ".join(dataset.notices)
    (tmp_path / "a.json").unlink()
    with pytest.raises(ValueError, match="no file could be read"):
        Dataset.from_path(tmp_path, on_error="skip")


@pytest.mark.parametrize(
    ("name", "package"),
    [("a.parquet", "pyarrow"), ("a.hdf5", "h5py"), ("minari:a/b-v0", "minari"), ("pendulum_small.json", "lz4")],
)
def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch, name, package):
    (tmp_path / name.replace(":", "").replace("/", "")).write_bytes(b"x")
    path = {"minari": name, "lz4": DATA / name}.get(package, tmp_path / name)

    def missing(wanted, *args, **more):
        if wanted.partition(".")[0] == package:
            raise ImportError(f"No module named {wanted!r}")
        return real(wanted, *args, **more)

    import importlib

    real = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match=rf"needs {package} .*pip install .*\[offline\]'"):
        Dataset.from_path(path)


# ---------------------------------------------------------------------- code in data


class Runs:
    """Calls a function where it is unpickled."""

    def __init__(self, function, *arguments):
        self.given = function, arguments

    def __reduce__(self):
        return self.given


def packed(content: bytes) -> str:
    frames = pytest.importorskip("lz4.frame")
    return base64.b64encode(frames.compress(content)).decode()


ATTACKS = {
    "a function": lambda: pickle.dumps(Runs(Path.touch, Path("owned"))),
    "eval": lambda: pickle.dumps(Runs(eval, "open('owned', 'w')")),
    "a name of another module": lambda: b"cos\nsystem\n(S'touch owned'\ntR.",
    "a builtin": lambda: b'c__builtin__\nexec\n(S\'open("owned", "w")\'\ntR.',
    "within an array": lambda: pickle.dumps([np.zeros(3), Runs(eval, "open('owned', 'w')")]),
    "an array of objects": lambda: pickle.dumps(np.array([Runs(eval, "open('owned', 'w')")], object)),
    "by an attribute": lambda: b"\x80\x04\x8c\x05numpy\x8c\x0fctypeslib.c_int\x93.",
    "an object outside": lambda: b"\x80\x04\x8c\x01xQ.",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_pickle_never_runs_code(read, tmp_path, monkeypatch, attack):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"a\.json line 1: obs: "):
        read(line(obs=packed(ATTACKS[attack]())))
    assert not Path("owned").exists()
    assert builtins.open is open


def test_a_pickle_after_arrays_of_one_form_never_runs_code(read, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arrays = [packed(pickle.dumps(np.full((3, 1), number, np.float32), 5)) for number in (1.0, 2.0)]
    with pytest.raises(ValueError, match="line 3: obs: the packed column asks for"):
        read(*(line(obs=each) for each in [*arrays, packed(ATTACKS["eval"]())]))
    assert not Path("owned").exists()


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int64", "bool"])
def test_packed_arrays_are_the_arrays_that_were_packed(read, protocol, dtype):
    rng = np.random.default_rng(protocol)
    shapes = [(3, 2), (3, 2), (3, 2), (3, 2)]
    arrays = [rng.integers(0, 2, shape).astype(dtype) * (number + 1) for number, shape in enumerate(shapes)]
    arrays = [each.astype(dtype) for each in arrays] + [np.asfortranarray(arrays[0].astype(dtype))]
    texts = [packed(pickle.dumps(each, protocol)) for each in arrays]
    dataset = read(
        *(line(obs=text, new_obs=None, eps_id=[number] * 3) for number, text in enumerate(texts)),
        observation_space=Box(0, 10, (2,), np.float64),
    )
    np.testing.assert_array_equal(dataset.columns["obs"], np.concatenate(arrays).astype(np.float32))


# ---------------------------------------------------------------------- data that an algorithm cannot learn from


def config(name, data):
    return get_algorithm_config(name).environment("CartPole-v1").offline_data(input_=data)


def arrays(rows=40, **changed):
    return {"obs": np.zeros((rows, 4)), "actions": np.zeros(rows, int), "eps_id": np.zeros(rows, int), **changed}


@pytest.mark.parametrize("name", ["MARWIL", "DQN", "IQL"])
def test_an_algorithm_that_reads_rewards_says_that_there_are_none(name):
    with pytest.raises(ValueError, match=f"has no rewards, and {name} learns from them"):
        config(name, arrays()).build()


@pytest.mark.parametrize("shares", [{"a": 0.5, "b": 0.4}, {"a": 1.5, "b": -0.5}, {"a": 0.0, "sampler": 1.0}])
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises((ValueError, TypeError), match="shares above 0 that sum up to 1"):
        config("DQN", shares).build()


def test_ten_tenths_are_one():
    paths = {f"{DATA / 'cartpole_small.json'}{'' if n == 0 else '/' * n}": 0.1 for n in range(1)}
    paths |= {f"no file {n}": 0.1 for n in range(9)}
    with pytest.raises(FileNotFoundError, match="no file"):
        config("DQN", paths).build()


def test_few_rows_are_repeated_which_is_said(caplog):
    with caplog.at_level(logging.WARNING), config("BC", arrays()).build():
        assert "there are 40 recorded steps" in caplog.text


def test_data_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"obs has the shape \(3,\)"):
        config("BC", arrays(obs=np.zeros((40, 3)))).build()


def test_flags_may_be_columns_of_one_number():
    ends = np.array([False, True, False, True])[:, None]
    columns = {"obs": np.zeros((4, 1)), "actions": np.zeros((4, 1), int), "eps_id": np.array([0, 0, 1, 1])}
    for given in ({"terminateds": ends, "truncateds": ~ends & False}, {"dones": ends}):
        dataset = Dataset.from_columns(columns | given, action_space=Discrete(2))
        assert dataset.columns["terminateds"].tolist() == ends[:, 0].tolist()
        assert dataset.columns["truncateds"].shape == (4,)


def test_an_observation_that_only_follows_is_of_the_space():
    columns = {"obs": np.array([0, 1]), "new_obs": np.array([1, 5]), "actions": np.array([0, 1])}
    dataset = Dataset.from_columns(columns | {"terminateds": np.array([False, True])})
    assert dataset.observation_space == Discrete(6) and dataset.columns["new_obs"].tolist() == [1, 5]


def test_numbers_that_are_no_json_are_read(read):
    second = line(first=3, log_std=[float("nan"), float("inf"), -float("inf")])
    dataset = read(line(log_std=[0.0] * 3), second)
    np.testing.assert_array_equal(dataset.columns["log_std"], [0, 0, 0, np.nan, np.inf, -np.inf])
    with pytest.raises(ValueError, match="line 2, row 0: rewards is not finite"):
        read(line(), line(first=3, rewards=[float("nan"), 1.0, 1.0]))


VECTORS = {"obs": [[0.0, 1.0], [2.0, 3.0]], "actions": [[0.1, 0.2], [0.3, 0.4]]}


@pytest.mark.parametrize(
    "named", [{"eps_id": 7}, {"eps_id": "e7"}, {"t": 0}, {"action_logp": -1.0}, {"episode_index": 7}, {"rewards": 1}]
)
def test_a_line_with_one_value_of_a_column_is_a_step(read, named):
    """Also where all its other columns are lists of the same length, which would be rows of a batch."""
    lines = [json.dumps({name: rows[step] for name, rows in VECTORS.items()} | named) for step in range(2)]
    dataset = read(*lines)
    assert len(dataset) == 2
    np.testing.assert_array_equal(dataset.columns["obs"], VECTORS["obs"])


FINE = {"obs": [0.0, 1.0], "actions": 0, "rewards": 1.0, "terminateds": True}


@pytest.mark.parametrize(
    ("space", "column", "wrong"),
    [
        pytest.param(Box(-np.inf, np.inf, (2,), np.float32), "obs", [1e300, 0.0], id="beyond float32"),
        pytest.param(Discrete(2), "obs", [0.3, 0.7], id="not one-hot"),
        pytest.param(Discrete(2), "obs", [0.0, 0.0], id="no choice"),
        pytest.param(MultiBinary(2), "obs", [0, 5], id="no bits"),
        pytest.param(Box(-np.inf, np.inf, (), np.float32), "rewards", 1e300, id="reward beyond float32"),
        pytest.param(Box(0, 9, (2,), np.int64), "actions", [1.5, 2.0], id="part of a whole number"),
        pytest.param(Box(-np.inf, np.inf, (2,), np.float32), "actions", [1e300, 0.0], id="action beyond float32"),
    ],
)
def test_a_value_that_its_space_cannot_hold_is_named_and_not_changed(space, column, wrong):
    """Conversions to the stored dtype round, overflow or choose; none of them does so in silence."""
    given = {name: np.array([value] * 3) for name, value in FINE.items()}
    given[column] = np.array([np.zeros_like(wrong, dtype=float) if space != Discrete(2) else [1.0, 0.0], wrong, wrong])
    name = {"obs": "observation_space", "actions": "action_space"}.get(column)
    with pytest.raises(ValueError, match=rf"row 1: .*{column.removesuffix('s')}"):
        Dataset.from_columns(given, **{name: space} if name else {})


@pytest.mark.parametrize("other", ["README.txt", "__MACOSX/a.json", "logs/.b.json", "_SUCCESS"])
@pytest.mark.parametrize("is_archive", [False, True])
def test_archives_are_read_as_directories(tmp_path, is_archive, other):
    """Files of other kinds, and those below hidden names, are passed over in both."""
    files = {"a.json": line(), "in/c.json": line(first=9), other: "no data"}
    for name, content in files.items():
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text(content)
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    assert len(Dataset.from_path(tmp_path / ("data.zip" if is_archive else "data"))) == 6


@pytest.mark.parametrize("metadata", ["no JSON", "[1]", '{"observation_space": {"type": "Box"}}', "{'obs': 1}"])
def test_metadata_that_cannot_be_read_is_named(tmp_path, metadata):
    given = arrays() | {"metadata": np.frombuffer(metadata.encode(), np.uint8)}
    np.savez(tmp_path / "a.npz", **given)
    with pytest.raises(ValueError, match="metadata"):
        Dataset.from_path(tmp_path / "a.npz")
