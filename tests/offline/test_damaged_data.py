"""Files of recorded steps with changes at random: they are read, or refused with a ValueError.

Nothing hangs and no code runs. A file that was cut off is refused, or gives episodes of the whole one, of which the
last may be shorter, and is then marked as truncated.
"""

import gzip
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rllib.offline.dataset import Dataset
from rllib.offline.larger_than_memory import dataset_on_disk
from tests.offline.test_formats import ray_episode, steps, write_items, write_parquet

DATA = Path(__file__).parents[1] / "data" / "offline"
SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True, "database": None}
COLUMNS = steps((6, 5, 7))


def lines(columns, rows=3) -> bytes:
    total, text = len(columns["obs"]), []
    for first in range(0, total, rows):
        line = {name: column[first : first + rows].tolist() for name, column in columns.items()}
        text.append(json.dumps({"type": "SampleBatch", **line}))
    return "\n".join([*text, ""]).encode()


def hdf5(path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for name, column in COLUMNS.items():
            file.create_dataset(name, data=column, compression="gzip", fletcher32=True)


def archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.json", lines(COLUMNS))


def episodes(path: Path) -> None:
    arrays = [np.arange(8.0).reshape(4, 2), np.array([0, 1, 1]), np.array([1.0, 2, 3])]
    write_items(path, [ray_episode(*arrays), ray_episode(*arrays)])


WRITERS = {
    "lines.json": lambda path: path.write_bytes(lines(COLUMNS)),
    "packed.json": lambda path: path.write_bytes((DATA / "pendulum_small.json").read_bytes()),
    "steps.jsonl": lambda path: path.write_bytes((DATA / "cartpole-v1.jsonl").read_bytes()),
    "lines.json.gz": lambda path: path.write_bytes(gzip.compress(lines(COLUMNS), mtime=0)),
    "lines.zip": archive,
    "arrays.npz": lambda path: np.savez(path, **COLUMNS),
    "packed.npz": lambda path: np.savez_compressed(path, **COLUMNS),
    "columns.parquet": lambda path: write_parquet(path, COLUMNS, row_group_size=5),
    "episodes.parquet": episodes,
    "arrays.hdf5": hdf5,
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Name -> content of a whole file, and the dataset in it."""
    directory, found = tmp_path_factory.mktemp("originals"), {}
    for name, write in WRITERS.items():
        try:
            write(directory / name)
            found[name] = (directory / name).read_bytes(), Dataset.from_path(directory / name)
        except (pytest.skip.Exception, ImportError):
            continue
    return found


@st.composite
def damaged(draw, content: bytes) -> bytes:
    """The content with some pieces of it replaced, cut out or repeated."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        end = draw(st.integers(start, min(len(content), start + 200)))
        piece = draw(st.one_of(st.binary(max_size=16), st.just(content[start:end] * 2), st.just(b"\0" * (end - start))))
        content = content[:start] + piece + content[end:]
    return content


def read(path: Path):
    """The datasets that a file is read as, in memory and in pieces; nothing for a refusal."""
    found = []
    for reader in (Dataset.from_path, lambda each: dataset_on_disk(each, piece_bytes=200)):
        try:
            found.append(reader(path))
        except (ValueError, OSError, ImportError) as error:
            assert str(error) and not isinstance(error, UnicodeError)
    return found


def check(originals, tmp_path_factory, data, name: str, content: bytes, is_cut: bool) -> None:
    place = tmp_path_factory.mktemp("damaged")
    (place / name).write_bytes(content)
    before = os.getcwd()
    os.chdir(place)
    try:
        for dataset in read(place / name):
            assert len(dataset) > 0
            last = dataset.starts[1:] - 1
            ends = dataset.columns["terminateds"] | dataset.columns["truncateds"]
            assert np.flatnonzero(ends).tolist() == last.tolist()
            if is_cut:
                assert_begins(dataset, originals[name][1])
        assert os.listdir(place) == [name]
    finally:
        os.chdir(before)


def assert_begins(found: Dataset, whole: Dataset) -> None:
    """Every episode is one of the whole file; but the last may be its beginning, which does not count as its end."""
    rows = len(found)
    np.testing.assert_array_equal(found.columns["obs"], whole.columns["obs"][:rows])
    assert set(found.starts[:-1]) <= set(whole.starts)
    if rows not in whole.starts:
        assert found.columns["truncateds"][-1] and not found.columns["terminateds"][-1]
        assert any("without a flag" in notice for notice in found.notices)


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=25, **SETTINGS)
@given(data=st.data())
def test_damaged_data_is_read_or_refused(originals, tmp_path_factory, name, data):
    if name not in originals:
        pytest.skip("its package is not installed")
    check(originals, tmp_path_factory, data, name, data.draw(damaged(originals[name][0])), is_cut=False)


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=25, **SETTINGS)
@given(data=st.data())
def test_data_that_was_cut_off_gives_no_half_of_an_episode_as_a_whole(originals, tmp_path_factory, name, data):
    if name not in originals:
        pytest.skip("its package is not installed")
    content = originals[name][0]
    kept = data.draw(st.integers(0, len(content) - 1))
    check(originals, tmp_path_factory, data, name, content[:kept], is_cut=True)


@pytest.mark.slow  # the same with more damage: 200 files of each format
@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(data=st.data())
def test_much_damage(originals, tmp_path_factory, name, data):
    if name not in originals:
        pytest.skip("its package is not installed")
    check(originals, tmp_path_factory, data, name, data.draw(damaged(originals[name][0])), is_cut=False)
