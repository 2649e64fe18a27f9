"""Checkpoints: whole or not at all, and everything comes back."""

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rllib import PPOConfig
from rllib.errors import CheckpointError
from rllib.serving.loaded_policy import load_policy
from rllib.storage import checkpoint, file_locks, whole
from rllib.storage.checkpoint import UserCode, read_checkpoint, read_manifest, write_checkpoint
from rllib.storage.tensor_file import TensorFile, tensors_of
from tests.damage import rewrite

GOLDEN = Path(__file__).parent / "checkpoints" / "format_1"
WEIGHTS = "policies/default_policy/weights.safetensors"


def a_tree() -> dict:
    return {
        "algorithm.json": {"algorithm": "PPO", "seed": 7, "observation_space": spaces.Box(-np.inf, 1.0, (2,))},
        "config.json": {"env": "CartPole-v1", "lr": [[0, 0.1], [10, 0.0]], "vf_clip_param": float("inf")},
        "rng.json": {"learner": np.random.default_rng(1).bit_generator.state},
        WEIGHTS: {"weights": np.arange(6, dtype=np.float32), "steps": np.array(3)},
        "learner.safetensors": {"m": np.arange(6.0).reshape(2, 3).T},
    }


def assert_same(one: dict, other: dict) -> None:
    assert one.keys() == other.keys()
    for name, content in one.items():
        assert content.keys() == other[name].keys()
        for key, value in content.items():
            if isinstance(value, np.ndarray):
                assert (value.dtype, value.shape) == (other[name][key].dtype, other[name][key].shape)
                assert np.array_equal(value, other[name][key], equal_nan=True)
            else:
                assert value == other[name][key]


# ---------------------------------------------------------------------- there and back


def test_a_tree_comes_back(tmp_path):
    path = write_checkpoint(tmp_path / "new" / "checkpoint", a_tree())
    assert path == tmp_path / "new" / "checkpoint"
    assert_same(read_checkpoint(path), a_tree())
    assert (path / WEIGHTS).is_file()


def test_arrays_come_back_writable(tmp_path):
    path = write_checkpoint(tmp_path / "c", a_tree())
    read_checkpoint(path)[WEIGHTS]["weights"] += 1


arrays = hnp.arrays(
    st.sampled_from(["float16", "float32", "float64", "int8", "int64", "uint8", "uint32", "bool"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)


@settings(deadline=None, max_examples=30)
@given(st.dictionaries(st.text("abc._/", min_size=1), arrays, max_size=3), st.booleans())
def test_arrays_of_all_types_and_layouts_come_back(tmp_path_factory, columns, transposed):
    columns = {name: array.T if transposed else array for name, array in columns.items()}
    path = write_checkpoint(tmp_path_factory.mktemp("c") / "c", {"x.safetensors": columns})
    assert_same(read_checkpoint(path), {"x.safetensors": columns})


@settings(deadline=None, max_examples=30)
@given(st.dictionaries(st.text('aä"._/', min_size=1), arrays, max_size=3))
def test_files_of_arrays_are_those_of_safetensors(columns):
    content = b"".join(TensorFile(columns).parts())
    assert_same({"x": safetensors.numpy.load(content)}, {"x": columns})
    copied = {name: array.copy(order="C") for name, array in columns.items()}
    assert_same({"x": tensors_of(safetensors.numpy.save(copied, {"made": "elsewhere"}))}, {"x": columns})


def test_large_arrays_are_copied_neither_when_they_are_written_nor_when_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "MAPPED", 2**20)
    large = np.arange(2**20)
    tracemalloc.start()
    try:
        path = write_checkpoint(tmp_path / "c", {"x.safetensors": {"large": large}})
        found = read_checkpoint(path)["x.safetensors"]["large"]
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, large)
    found[:] = 0
    np.testing.assert_array_equal(read_checkpoint(path)["x.safetensors"]["large"], large)


def test_a_part_can_be_read_alone_even_if_another_is_damaged(tmp_path):
    path = write_checkpoint(tmp_path / "c", a_tree())
    (path / "learner.safetensors").write_bytes(b"")
    assert read_checkpoint(path, only="policies/default_policy/").keys() == {WEIGHTS}
    with pytest.raises(CheckpointError):
        read_checkpoint(path)


def test_a_checkpoint_can_be_moved(tmp_path):
    write_checkpoint(tmp_path / "here", a_tree())
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert_same(read_checkpoint(tmp_path / "there"), a_tree())


def test_a_relative_path_is_that_of_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert write_checkpoint("c", a_tree()) == tmp_path / "c"
    assert_same(read_checkpoint("c"), a_tree())


def test_the_manifest_names_versions_files_and_user_code(tmp_path):
    path = write_checkpoint(tmp_path / "c", {"config.json": {"env": lambda config: None}})
    manifest = read_manifest(path)
    assert manifest["format_version"] == checkpoint.FORMAT_VERSION
    assert {"rllib", "python", "numpy", "gymnasium"} <= manifest["versions"].keys()
    assert manifest["user_code"] == ["user_code/0.pkl"]
    on_disk = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    assert on_disk == {*manifest["files"], "manifest.json"}


def test_a_checkpoint_of_the_first_format_is_read_for_ever():
    tree = read_checkpoint(GOLDEN, load_user_code=True)
    assert tree["config.json"] == {
        "env": OrderedDict,
        "lr": [[0, 0.1], [100, 0.0]],
        "env_config": {"size": (1, 2), 3: float("-inf")},
    }
    assert tree["algorithm.json"]["observation_space"] == spaces.Dict(
        {"position": spaces.Box(-np.inf, np.array([1, 2], np.float32)), "kind": spaces.Discrete(3, start=-1)}
    )
    assert tree["algorithm.json"]["counters"] == {"num_env_steps_sampled": 128, "mean": np.float32(0.1)}
    assert np.array_equal(tree[WEIGHTS]["weights"], np.linspace(-1, 1, 5, dtype=np.float32))
    assert np.array_equal(tree["learner.safetensors"]["m"], np.arange(6.0).reshape(2, 3))
    generator = np.random.default_rng()
    generator.bit_generator.state = tree["rng.json"]["learner"]
    assert generator.integers(1000, size=3).tolist() == np.random.default_rng(1).integers(1000, size=3).tolist()


# ---------------------------------------------------------------------- user code


def test_user_code_is_loaded_on_request_alone(tmp_path):
    class LocalEnv:
        size = 5

    tree = {"config.json": {"env": LocalEnv, "space": spaces.Box, "env_config": {"reward": [lambda x: x + 1]}}}
    path = write_checkpoint(tmp_path / "c", tree)
    config = read_checkpoint(path)["config.json"]
    assert config == {
        "env": UserCode("env"),
        "space": UserCode("gymnasium.spaces.box:Box"),
        "env_config": {"reward": [UserCode("env_config.reward.0")]},
    }
    config = read_checkpoint(path, load_user_code=True)["config.json"]
    assert config["env"].size == 5
    assert config["space"] is spaces.Box
    assert config["env_config"]["reward"][0](1) == 2


def test_user_code_works_in_a_process_that_does_not_know_it(tmp_path):
    script = (
        "from rllib.storage.checkpoint import write_checkpoint\n"
        "class Env:\n    size = 5\n"
        f"write_checkpoint({str(tmp_path / 'c')!r}, {{'config.json': {{'env': Env}}}})"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert read_checkpoint(tmp_path / "c", load_user_code=True)["config.json"]["env"].size == 5


def test_what_was_not_loaded_cannot_be_written_again(tmp_path):
    path = write_checkpoint(tmp_path / "c", {"config.json": {"env": lambda: None}})
    with pytest.raises(TypeError, match="has not been loaded"):
        write_checkpoint(tmp_path / "d", read_checkpoint(path))


def test_a_value_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"config.json: env_config.lock cannot be written into a checkpoint"):
        write_checkpoint(tmp_path / "c", {"config.json": {"env_config": {"lock": threading.Lock()}}})
    assert list(tmp_path.iterdir()) == []


def test_user_code_that_cannot_be_loaded_is_named(tmp_path):
    path = write_checkpoint(tmp_path / "c", {"config.json": {"env": Unloadable()}})
    with pytest.raises(CheckpointError, match=r"env of the checkpoint's config.json .*cannot be loaded here"):
        read_checkpoint(path, load_user_code=True)
    assert read_checkpoint(path)["config.json"] == {"env": UserCode("env")}


class Unloadable:
    def __reduce__(self):
        return int, ("no number",)


# ---------------------------------------------------------------------- in one step


def test_an_existing_checkpoint_is_replaced_whole(tmp_path):
    write_checkpoint(tmp_path / "c", a_tree())
    path = write_checkpoint(tmp_path / "c", {"algorithm.json": {"seed": 8}})
    assert read_checkpoint(path) == {"algorithm.json": {"seed": 8}}
    assert os.listdir(tmp_path) == ["c"]
    assert not (path / WEIGHTS).exists()


def test_it_is_replaced_where_the_system_cannot_exchange(tmp_path, monkeypatch):
    monkeypatch.setattr(whole, "_exchange", lambda first, second: False)
    test_an_existing_checkpoint_is_replaced_whole(tmp_path)


def test_an_empty_directory_is_taken(tmp_path):
    (tmp_path / "c").mkdir()
    assert_same(read_checkpoint(write_checkpoint(tmp_path / "c", a_tree())), a_tree())


def test_other_things_are_never_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="holds other files than a checkpoint, which would be lost"):
        write_checkpoint(tmp_path, a_tree())
    with pytest.raises(ValueError, match=r"a checkpoint is a directory, but .*thesis.tex is a file"):
        write_checkpoint(tmp_path / "thesis.tex", a_tree())
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_failure_on_the_way_leaves_the_old_one_and_nothing_else(tmp_path, monkeypatch):
    path = write_checkpoint(tmp_path / "c", a_tree())

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "_manifest", full)
    with pytest.raises(OSError, match="No space left"):
        write_checkpoint(path, {"algorithm.json": {"seed": 8}})
    assert os.listdir(tmp_path) == ["c"]
    assert_same(read_checkpoint(path), a_tree())


def test_a_process_killed_while_it_writes_leaves_a_whole_checkpoint(tmp_path):
    path = tmp_path / "c"
    script = (
        "import itertools, numpy as np\n"
        "from rllib.storage.checkpoint import write_checkpoint\n"
        "for i in itertools.count():\n"
        f"    write_checkpoint({str(path)!r}, {{'a.json': {{'i': i}}, 'b.safetensors': {{'i': np.full(1000, i)}}}})\n"
        "    print(i, flush=True)"
    )
    for delay_s in (0.0, 0.001, 0.003, 0.01):
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
            for _ in range(3):
                process.stdout.readline()
            time.sleep(delay_s)  # a kill at a random moment is the point here
            process.send_signal(signal.SIGKILL)
        tree = read_checkpoint(path)
        assert (tree["b.safetensors"]["i"] == tree["a.json"]["i"]).all()


def test_the_next_save_removes_what_a_killed_writer_left(tmp_path):
    """Of this checkpoint or another one beside it; what a living process writes stays, and what is not ours."""
    script = (
        "import os, signal, sys\n"
        "from rllib import checkpoint\n"
        "def stop(*_):\n"
        "    print('writing', flush=True)\n"
        "    signal.pause()\n"
        "checkpoint.put_in_place = stop\n"
        "checkpoint.write_checkpoint(sys.argv[1], {'a.json': {'i': 1}})\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", script, tmp_path / name], stdout=subprocess.PIPE) for name in "cde"
    ]
    for writer in writers:
        assert writer.stdout.readline() == b"writing\n"
    for writer in writers[:2]:
        writer.kill()
        writer.wait()
    (foreign := tmp_path / ".x.tmp-0123abcd").mkdir()
    (foreign / "notes.txt").write_text("mine")
    assert len(list(tmp_path.iterdir())) == 4
    write_checkpoint(tmp_path / "c", a_tree())
    (left,) = tmp_path.glob(".e.tmp-*")
    assert {path.name for path in tmp_path.iterdir()} == {"c", left.name, foreign.name}
    writers[2].kill()
    writers[2].wait()
    for writer in writers:
        writer.stdout.close()


def test_the_next_save_removes_what_was_killed_before_its_first_file(tmp_path):
    (tmp_path / ".c.tmp-0123abcd").mkdir()
    (tmp_path / ".d.tmp-0123abcd" / "policies").mkdir(parents=True)
    write_checkpoint(tmp_path / "e", a_tree())
    assert [path.name for path in tmp_path.iterdir()] == ["e"]


@pytest.mark.parametrize("moment", ["before it is opened", "before it is locked", "while it is locked by the other"])
def test_a_new_directory_that_another_writer_takes_for_abandoned_is_made_again(tmp_path, monkeypatch, moment):
    """The other comes between its making and its locking."""
    others, name = [], "open" if moment == "before it is opened" else "flock"
    module = file_locks.os if name == "open" else file_locks.fcntl
    real = getattr(module, name)

    def comes_between(*arguments, **options):
        if not others and (found := list(tmp_path.glob(".c.tmp-*"))):
            others.extend(found)
            if moment == "while it is locked by the other":
                raise BlockingIOError
            shutil.rmtree(found[0])
        return real(*arguments, **options)

    monkeypatch.setattr(module, name, comes_between)
    path = write_checkpoint(tmp_path / "c", a_tree())
    monkeypatch.undo()
    assert others and read_checkpoint(path)["algorithm.json"]["seed"] == 7


def test_a_full_disk_is_named_with_the_path(tmp_path, monkeypatch):
    path = write_checkpoint(tmp_path / "c", a_tree())

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.*before is unchanged.*/c") as caught:
        write_checkpoint(path, {"config.json": {}})
    assert caught.value.errno == errno.ENOSPC and caught.value.filename == str(path)
    assert_same(read_checkpoint(path), a_tree())
    assert [found.name for found in tmp_path.iterdir()] == ["c"]


# ---------------------------------------------------------------------- what is refused


def _truncate(path):
    (path / WEIGHTS).write_bytes((path / WEIGHTS).read_bytes()[:-1])


def _change(path):
    (path / "config.json").write_text((path / "config.json").read_text().replace("CartPole-v1", "CartPole-v0"))


def _remove(path):
    (path / "learner.safetensors").unlink()


def _truncate_manifest(path):
    (path / "manifest.json").write_text((path / "manifest.json").read_text()[:100])


def _empty_manifest(path):
    (path / "manifest.json").write_text("{}")


def _manifest_without_files(path):
    (path / "manifest.json").write_text(json.dumps({"format": checkpoint.FORMAT, "format_version": 1}))


def _remove_manifest(path):
    (path / "manifest.json").unlink()


def _newer_format(path):
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "format_version": 99}))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (_truncate, r"is damaged: policies/default_policy/weights.safetensors: it has 159 bytes instead of 160"),
        (_change, "is damaged: config.json: its content has changed since it was written"),
        (_remove, r"is damaged: learner.safetensors: it cannot be read \(No such file"),
        (_truncate_manifest, "is damaged: manifest.json: it is not JSON"),
        (_empty_manifest, "is no checkpoint of this library: its manifest.json belongs to something else"),
        (_manifest_without_files, "is damaged: manifest.json: it lists no files"),
        (_remove_manifest, "is no checkpoint of this library: it has no manifest.json"),
        (_newer_format, "has format_version 99, but this rllib reads up to 2"),
    ],
)
def test_a_damaged_or_foreign_checkpoint_is_one_clear_error(tmp_path, harm, message):
    path = write_checkpoint(tmp_path / "c", a_tree())
    harm(path)
    with pytest.raises(ValueError, match=message):
        read_checkpoint(path)


def test_a_missing_checkpoint_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"there is no checkpoint .*nowhere. Give the directory of a checkpoint"):
        read_checkpoint(tmp_path / "nowhere")
    write_checkpoint(tmp_path / "releases/v1", a_tree())
    with pytest.raises(ValueError, match=r"there is no checkpoint .*relaeses/v1. Did you mean .*releases/v1\?"):
        read_checkpoint(tmp_path / "relaeses/v1")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="a checkpoint is a directory"):
        read_checkpoint(tmp_path / "file")


def test_the_directory_of_a_run_is_answered_with_the_checkpoints_in_it(tmp_path):
    write_checkpoint(tmp_path / "checkpoint_000010", a_tree())
    with pytest.raises(ValueError, match="Give one of those within: checkpoint_000010"):
        read_checkpoint(tmp_path)


def test_a_run_without_a_checkpoint_is_called_so(tmp_path):
    (tmp_path / "params.json").write_text("{}")
    with pytest.raises(ValueError, match="a run that has saved no checkpoint yet"):
        read_checkpoint(tmp_path)


def test_a_directory_of_runs_is_answered_with_the_newest(tmp_path):
    for age, name in enumerate(("new", "newer", "old", "older")):
        path = write_checkpoint(tmp_path / name / "checkpoint_000010", a_tree())
        os.utime(path / "manifest.json", (10.0 - age, 10.0 - age))
    with pytest.raises(ValueError, match="holds runs, the newest first: new, newer, old and 1 more"):
        read_checkpoint(tmp_path)


def test_one_that_was_being_replaced_is_pointed_to(tmp_path):
    write_checkpoint(tmp_path / ".c.old-0123", a_tree())
    with pytest.raises(ValueError, match=r"being replaced: rename .*/\.c\.old-0123 to .*/c"):
        read_checkpoint(tmp_path / "c")


@pytest.mark.parametrize(
    "name", ["weights.npy", "weights", "/etc/x.json", "../x.json", "manifest.json", "user_code/x.json"]
)
def test_file_names_that_make_no_sense_are_refused(tmp_path, name):
    with pytest.raises(ValueError):
        write_checkpoint(tmp_path / "c", {name: {}})


def test_only_arrays_of_numbers_go_into_safetensors(tmp_path):
    for wrong in ([1, 2], np.array(["a"]), np.array([None])):
        with pytest.raises(TypeError, match="takes arrays of numbers, but 'x' is"):
            write_checkpoint(tmp_path / "c", {"a.safetensors": {"x": wrong}})


def test_checkpoints_need_no_torch_and_no_gymnasium():
    code = (
        "import sys; from rllib.storage.checkpoint import read_checkpoint\n"
        f"read_checkpoint({str(GOLDEN)!r}, only='rng')\n"
        "print(sorted({'torch', 'gymnasium'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------------- of others


def with_entry(path: Path, name: str, entry) -> Path:
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"][name] = entry
    (path / "manifest.json").write_text(json.dumps(manifest))
    return path


@pytest.mark.parametrize("name", ["/dev/zero", "../outside.json", "x/../../outside.json", "a\0b", "x" * 300, ".", ""])
def test_a_manifest_names_no_file_that_lies_elsewhere(tmp_path, name):
    (tmp_path / "outside.json").write_text("{}")
    path = write_checkpoint(tmp_path / "c", a_tree())
    entry = {"size_bytes": 2, "sha256": hashlib.sha256(b"{}").hexdigest()}
    with pytest.raises(CheckpointError, match="is damaged"):
        read_checkpoint(with_entry(path, name, entry))


@pytest.mark.parametrize("name", ["config.json", WEIGHTS, "manifest.json"])
@pytest.mark.parametrize("kind", ["link", "pipe", "linked directory"])
def test_neither_links_are_followed_nor_pipes_waited_for(tmp_path, name, kind):
    path = write_checkpoint(tmp_path / "c", a_tree())
    file = path / name
    if kind == "linked directory":
        directory = path / "policies"
        directory.rename(tmp_path / "policies")
        directory.symlink_to(tmp_path / "policies")
    else:
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere") if kind == "link" else os.mkfifo(file)
    with pytest.raises(CheckpointError, match="is damaged"):
        read_checkpoint(path)


def test_sizes_are_compared_before_anything_is_read(tmp_path):
    path = write_checkpoint(tmp_path / "c", a_tree())
    with open(path / "config.json", "r+b") as file:
        file.truncate(2**40)  # takes no place on the disk
    with pytest.raises(CheckpointError, match="1099511627776 bytes instead of"):
        read_checkpoint(path)


@pytest.mark.parametrize("entry", [5, None, [], {}, {"size_bytes": 3}, {"size_bytes": "3", "sha256": 1}])
def test_an_entry_of_another_form_is_said_to_be_damaged(tmp_path, entry):
    path = write_checkpoint(tmp_path / "c", a_tree())
    with pytest.raises(CheckpointError, match=r"is damaged: (manifest|config)\.json"):
        read_checkpoint(with_entry(path, "config.json", entry))


def tensors(**entry) -> bytes:
    header = json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **entry}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(8)


@pytest.mark.parametrize(
    "name, content",
    [
        ("config.json", b"[" * 200_000),
        ("config.json", b'{"a":' * 900 + b"1" + b"}" * 900),
        ("config.json", b"[]"),
        ("config.json", b'{"$tuple": []}'),
        ("config.json", b'{"a": {"$array": {"dtype": "f4,,", "shape": [1], "data": [0]}}}'),
        ("config.json", b'{"a": {"$array": {"dtype": "S1000000000", "shape": [1], "data": [""]}}}'),
        ("config.json", b'{"a": {"$space": {"type": "Box"}}}'),
        (WEIGHTS, tensors(dtype="F99")),
        (WEIGHTS, tensors(shape=[-1])),
        (WEIGHTS, tensors(shape=[10**12])),
        (WEIGHTS, tensors(data_offsets=[4, 12])),
        (WEIGHTS, tensors(data_offsets="x")),
        (WEIGHTS, b"\xff" * 16),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_content_of_another_form_is_said_to_be_damaged(tmp_path, name, content):
    path = write_checkpoint(tmp_path / "c", a_tree())
    rewrite(path, name, content)
    with pytest.raises(CheckpointError, match=f"is damaged: {name}"):
        read_checkpoint(path)


def test_arrays_that_share_their_place_take_no_more_memory_than_the_file(tmp_path):
    size = 2**20
    entry = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
    header = json.dumps({str(number): entry for number in range(100)}).encode()
    path = write_checkpoint(tmp_path / "c", a_tree())
    rewrite(path, WEIGHTS, len(header).to_bytes(8, "little") + header + bytes(size))
    with pytest.raises(CheckpointError, match="does not fit into the file"):
        read_checkpoint(path)


@pytest.mark.parametrize("number", [1, 1000])
def test_spaces_take_memory_in_proportion_to_the_file(tmp_path, number):
    box = {"type": "Box", "shape": [3_000_000_000 // number], "dtype": "float32", "low": 0.0, "high": 1.0}
    space = {"type": "Tuple", "spaces": [box] * number}
    path = write_checkpoint(tmp_path / "c", a_tree())
    tracemalloc.start()
    try:
        for content in ({"space": {"$space": space}}, {"spaces": [{"$space": box}] * number}):
            rewrite(path, "config.json", json.dumps(content).encode())
            with pytest.raises(CheckpointError, match=r"config.json: its spaces have more than 16,777,216 numbers"):
                read_checkpoint(path)
        assert tracemalloc.get_traced_memory()[1] < 2**29
    finally:
        tracemalloc.stop()


def test_names_in_messages_do_nothing_to_a_terminal(tmp_path):
    path = write_checkpoint(tmp_path / "c", a_tree())
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(with_entry(path, "\x1b]0;title\x07", {"size_bytes": 0, "sha256": ""}))
    assert r"\x1b]0;title\x07" in str(caught.value) and str(caught.value).isprintable()


def test_a_network_that_its_weights_do_not_fit_is_not_made(tmp_path):
    with PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0).build() as algo:
        path = algo.export_policy_model(tmp_path / "policy")
    description = json.loads((path / "policy.json").read_text())
    description["spec"]["hiddens"] = [10**7, 10**7]
    rewrite(path, "policy.json", json.dumps(description).encode())
    with pytest.raises(CheckpointError, match=r"is damaged: the policy's .* weights are not of its network"):
        load_policy(path)
