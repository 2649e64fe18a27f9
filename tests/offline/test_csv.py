"""CSV files as simulators and robots write them: what is read, how columns are told apart, and what is refused."""

import gzip

import numpy as np
import pytest

from rllib.offline.dataset import Dataset
from rllib.offline.larger_than_memory import dataset_on_disk

HEADER = "episode,position,speed,action,reward,end\n"
ROWS = "0,0.5,1,0,1.0,0\n0,0.75,2,1,1.0,1\n1,0.25,3,1,0.5,0\n1,0.125,4,0,0.5,1\n"
OBS = {"obs": ["position", "speed"]}


@pytest.fixture
def write(tmp_path):
    def write(text, name="log.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_columns_of_numbers_become_the_observation_that_the_user_says(write):
    data = Dataset.from_path(write(HEADER + ROWS), schema=OBS)
    np.testing.assert_array_equal(data.columns["obs"], [[0.5, 1], [0.75, 2], [0.25, 3], [0.125, 4]])
    np.testing.assert_array_equal(data.columns["new_obs"][[0, 2]], data.columns["obs"][[1, 3]])
    assert data.columns["actions"].tolist() == [0, 1, 1, 0] and str(data.action_space) == "Discrete(2)"
    assert data.columns["terminateds"].tolist() == [False, True, False, True] and data.returns.tolist() == [2, 1]


@pytest.mark.parametrize(
    "names", ["obs_0,obs_1", "obs0,obs1", "obs[0],obs[1]", "observation_1,observation_2", "obs 0,obs 1"]
)
def test_numbered_columns_are_found_by_themselves(write, names):
    data = Dataset.from_path(write(f"{names},action\n1,2,0\n3,4,1\n"))
    assert data.columns["obs"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("names", ["obs_0,obs_2", "obs_2,obs_3"])
def test_numbers_that_leave_some_out_are_no_vector(write, names):
    with pytest.raises(ValueError, match="has no obs"):
        Dataset.from_path(write(f"{names},action\n1,2,0\n3,4,1\n"))


@pytest.mark.parametrize("text", [
    "\ufeff;obs;action;end\r\n0;[1, 2];0;false\r\n1;[3.5 4];1;True\r\n",  # Excel's mark, pandas' index, NumPy's lists
    "obs\taction\tend\n[1,2]\t0\t0\n\n\"[3.5,4]\"\t1\t1\n",
])  # fmt: skip
def test_what_other_programs_write_is_read(write, text):
    data = Dataset.from_path(write(text))
    assert data.columns["obs"].tolist() == [[1, 2], [3.5, 4]] and data.columns["actions"].tolist() == [0, 1]
    assert data.columns["terminateds"].tolist() == [False, True]


def test_episodes_may_have_names_and_other_texts_are_left_out(write):
    data = Dataset.from_path(write("episode,note,obs_0,action\nmonday,ok,1,0\nmonday,,2,1\ntuesday,ok,3,0\n"))
    assert data.lengths.tolist() == [2, 1] and "note" not in data.columns


def test_a_packed_file_is_read_in_place(write):
    path = write(gzip.compress((HEADER + ROWS).encode()), "log.csv.gz")
    assert len(Dataset.from_path(path, schema=OBS)) == 4


def test_the_rows_are_the_same_in_pieces(write, tmp_path, monkeypatch):
    monkeypatch.setattr("rllib.offline.formats.csv_files._CELLS", 18)  # three rows at once
    rng = np.random.default_rng(0)
    lines = [
        f"{n // 7},{n / 8},{rng.integers(9)},{rng.integers(2)},{n if n > 20 else n + 0.5},{int(n % 7 == 6)}\n"
        for n in range(50)
    ]
    path = write(HEADER + "".join(lines))
    whole = Dataset.from_path(path, schema=OBS)
    parts = dataset_on_disk(path, storage=str(tmp_path), piece_bytes=200, schema=OBS)
    assert len(whole) == 50
    for name, column in whole.columns.items():
        np.testing.assert_array_equal(parts.columns[name], column, err_msg=name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: its first line has to name the columns"),
        ("1,2,3\n4,5,6\n", "its first line has to name the columns, as in"),
        ("obs_0,obs_0,action\n1,2,0\n", "has 2 columns with the name obs_0"),
        ("obs_0,action\n1,0\n2\n", "line 3: it has 1 cells, but the first line names 2 columns"),
        ("obs_0,action\n1,0\nx,1\n", "line 3: obs_0 is 'x', which is no number"),
        ("obs_0,action\n1,0\n\n2,\n", "line 4: action is empty"),
        ('obs_0,action\n1,0\n"2,1\n', "line 3"),
        (b"obs_0,action\n1,\xff\n", "is no text in UTF-8"),
        ("obs,action\n[1 2],0\n[1 2 3],1\n", "line 3: obs is '[1 2 3]', which is no list of 2 numbers"),
        ("obs_0,action\n1,nan\n", "action"),
        ("obs_0,action\n", "has no rows"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_line(write, text, message):
    with pytest.raises(ValueError, match=message.replace("[", r"\[").replace("]", r"\]")):
        Dataset.from_path(write(text))


def test_columns_that_nothing_tells_are_named(write):
    with pytest.raises(ValueError, match=r"has no obs.*Nothing says what position, speed are.*\['position', 'speed'\]"):
        Dataset.from_path(write(HEADER + ROWS))
    with pytest.raises(ValueError, match="input_read_schema names the columns 'sped'"):
        Dataset.from_path(write(HEADER + ROWS), schema={"obs": ["position", "sped"]})
    with pytest.raises(ValueError, match="2 columns for rewards, which is one number a row"):
        Dataset.from_path(write(HEADER + ROWS), schema=OBS | {"rewards": ["reward", "speed"]})


def test_lines_that_cannot_be_read_are_skipped_where_that_is_asked_for(write):
    text = HEADER + ROWS.replace("0,0.75,2,1,1.0,1", "0,broken,2,1,1.0,1")
    data = Dataset.from_path(write(text), schema=OBS, on_error="skip")
    assert len(data) == 3 and any("1 lines of" in notice and "line 3" in notice for notice in data.notices)
    assert not data.has_next[0]  # what followed it was left out


def test_choices_written_as_floats_are_pointed_out(write):
    data = Dataset.from_path(write("obs_0,action\n1,0.0\n2,1.0\n"))
    assert str(data.action_space).startswith("Box") and any("Discrete(2)" in notice for notice in data.notices)


def test_a_table_of_any_source_has_its_numbered_columns_joined():
    data = Dataset.from_columns(
        {"x": np.arange(4.0), "y": np.ones(4), "actions": [0, 1, 0, 1]}, schema={"obs": ["x", "y"]}
    )
    assert data.columns["obs"].shape == (4, 2)
    data = Dataset.from_columns({"obs_0": np.arange(4.0), "action_0": np.arange(4.0), "action_1": np.ones(4)})
    assert data.columns["obs"].shape == (4, 1) and data.columns["actions"].shape == (4, 2)
