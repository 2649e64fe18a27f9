"""Readers of files that others may have written, on real ones with changes at random.

Whatever a run, a checkpoint, an experiment or a YAML file holds: it is read, or refused with a ValueError; no code of
it runs, and nothing beside it changes.
"""

import base64
import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import runtime
from rllib import Algorithm, tune
from rllib.cli import command
from rllib.cli.failures import Mistake
from rllib.cli.run_directory import RunDirectory
from rllib.cli.spec import is_search, load_spec, make_spec
from rllib.dashboard.journals import Experiment
from rllib.runs.files import read_results
from rllib.serving.loaded_policy import load_policy
from rllib.storage.checkpoint import read_checkpoint
from rllib.storage.foreign_files import printable
from rllib.tune.experiment.spec import ExperimentSpec
from rllib.tune.reporting.analysis import ExperimentAnalysis
from rllib.tune.reporting.runs import read_runs
from rllib.tune.running.build import prepare
from rllib.tune.schedulers import create_scheduler
from tests.damage import rewrite


class Owned:
    """Leaves a file where it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("owned"),)


PICKLED = base64.b64encode(pickle.dumps(Owned())).decode()
BOX = {"type": "Box", "shape": [3_000_000_000], "dtype": "float32", "low": 0.0, "high": 1.0}
STRANGE = [
    None, True, -1, 0, 2**70, 1e308, 0.5, "", "x", "../victim", "/dev/zero", "\x1b]0;x\x07", "\0", [], {}, [[]], [None],
    {"": {}}, "os:system", {"$import": "os:system"}, {"$pickle": "env"}, {"$float": []}, {"$tuple": 3}, {"$none": 1},
    {"$dict": [[[], 1]]}, {"$array": {"dtype": "f4,,", "shape": [1], "data": [0]}}, {"$space": BOX}, {"$space": {}},
    {"exact": {"$pickle": "x"}, "pickle": {"x": {"name": "x", "data": PICKLED}}}, {"config": {}, "pickle": PICKLED},
    {"rllib.tune": "Choice", "attributes": 3}, json.loads("[" * 400 + "]" * 400),
]  # fmt: skip


@st.composite
def changed_json(draw, value):
    """The value with another one at a random place, or without what is there."""
    if isinstance(value, dict | list) and value and draw(st.integers(0, 9)):
        keys = sorted(value) if isinstance(value, dict) else range(len(value))
        key, copy = draw(st.sampled_from(keys)), value.copy()
        if not draw(st.integers(0, 9)):
            del copy[key]
        else:
            copy[key] = draw(changed_json(value[key]))
        return copy
    return draw(st.sampled_from(STRANGE))


@st.composite
def changed_bytes(draw, content: bytes):
    """The content with a piece of it cut out, or replaced."""
    start = draw(st.integers(0, len(content)))
    end = draw(st.integers(start, min(len(content), start + 40)))
    return content[:start] + draw(st.binary(max_size=8)) + content[end:]


@st.composite
def changed(draw, name: str, content: bytes):
    """The content of a file with a change; of a file of JSON lines, of one line."""
    if name.endswith("safetensors"):
        start = 8 + int.from_bytes(content[:8], "little")
        if draw(st.booleans()):
            header = json.dumps(draw(changed_json(json.loads(content[8:start])))).encode()
            return len(header).to_bytes(8, "little") + header + content[start:]
    elif name.endswith("json") and draw(st.integers(0, 3)):
        if name.startswith(("result", "experiment_state")):
            lines = content.splitlines()
            number = draw(st.integers(0, len(lines) - 1))
            lines[number] = json.dumps(draw(changed_json(json.loads(lines[number])))).encode()
            return b"\n".join([*lines, b""])
        return json.dumps(draw(changed_json(json.loads(content)))).encode()
    return draw(changed_bytes(content))


class Climber(tune.Trainable):
    def step(self):
        return {"height": self.iteration * self.config["rate"]}

    def save_checkpoint(self, checkpoint_dir):
        return {"height": 1.0}

    def load_checkpoint(self, checkpoint):
        pass


def experiment(storage: Path, **more) -> ExperimentSpec:
    scheduler = create_scheduler("asha", metric="height", mode="max", max_t=4, grace_period=1, reduction_factor=2)
    return ExperimentSpec(
        trainable=Climber, config={"rate": tune.grid_search([1.0, 2.0]), "fixed": print}, scheduler=scheduler, name="e",
        storage_path=storage, checkpoint_freq=1, verbose=0, tensorboard=False, **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A directory with a run "r" and an experiment "e"; beside it nothing is to change."""
    path = tmp_path_factory.mktemp("originals")
    words = ("num_rollout_workers=0", "train_batch_size=64", "sgd_minibatch_size=64", "num_sgd_iter=1")
    small = ("model.fcnet_hiddens=[4]", "--stop", "iterations=2", "--checkpoint-freq", "1")
    done = CliRunner().invoke(
        command, ["train", "PPO", "CartPole-v1", *words, *small, "--name", "r", "--results-dir", str(path), "-q"]
    )
    assert done.exit_code == 0, done.output
    runtime.init(num_cpus=2, preload=["numpy", "rllib.tune.running.actor"])
    runner, _ = prepare(experiment(path))
    runner.run()
    # As a driver that was killed leaves it: one trial has not ended.
    journal = next((path / "e").glob("experiment_state-*"))
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b'"status":"TERMINATED"' not in line or b"_00000" in line))
    (path / "e" / "search_state.json").unlink()
    yield path
    runtime.shutdown()


def read(reader, *allowed) -> None:
    """Calls a reader, which may refuse."""
    try:
        reader()
    except (ValueError, Mistake, *allowed) as error:
        assert str(error)


def fuzz(originals, tmp_path_factory, data, folder: str, pattern: str, *readers) -> None:
    """Changes one file of a copy, and has it read."""
    place = tmp_path_factory.mktemp("copy")
    copy = place / folder
    shutil.copytree(originals / folder, copy)
    victim = place / "victim" / "checkpoint_000001"
    victim.mkdir(parents=True)
    file = data.draw(st.sampled_from(sorted(copy.glob(pattern))), "file")
    content = data.draw(changed(file.name, file.read_bytes()), "content")
    checkpoint = next((above for above in file.parents if (above / "manifest.json").exists()), None)
    if checkpoint and file.name != "manifest.json":
        rewrite(checkpoint, str(file.relative_to(checkpoint)), content)
    else:
        file.write_bytes(content)
    before = os.getcwd()
    os.chdir(place)
    try:
        for reader in readers:
            # A setting of the wrong type is a TypeError, as if the user had given it.
            read(lambda reader=reader: reader(copy), *([TypeError] if reader is restored else []))
        assert not Path("owned").exists() and victim.is_dir() and sorted(os.listdir()) == sorted([folder, "victim"])
    finally:
        os.chdir(before)
        shutil.rmtree(place)


def resumed(path: Path) -> None:
    runner, _ = prepare(experiment(path.parent, resume=True))
    runner.directory.journal.close()


def restored(path: Path) -> None:
    Algorithm.from_checkpoint(path / "checkpoint_000002").stop()


CHECKPOINT = "checkpoint_000002/**/*.*"
CASES = {
    "policy": ("r", CHECKPOINT, load_policy, lambda path: read_checkpoint(path / "checkpoint_000002")),
    "algorithm": ("r", CHECKPOINT, restored),
    "results": ("r", "result.json", read_results),
    "run": ("r", "run.json", lambda path: RunDirectory(path).read_spec()),
    "params": ("r", "params.json", read_runs),
    "journal": ("e", "experiment_state-*", ExperimentAnalysis, lambda path: Experiment(path, "e").refresh(),
                lambda path: tune.Tuner.restore(path, Climber), resumed),
    "trial": ("e", "Climber*/checkpoint_*/.tune.json", resumed),
}  # fmt: skip
SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=15, derandomize=True, database=None, **SETTINGS)
@given(data=st.data())
def test_changed_files_are_read_or_refused(originals, tmp_path_factory, case, data):
    fuzz(originals, tmp_path_factory, data, *CASES[case])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", CASES)
@settings(max_examples=500, **SETTINGS)
@given(data=st.data())
def test_many_changed_files_are_read_or_refused(originals, tmp_path_factory, case, data):
    fuzz(originals, tmp_path_factory, data, *CASES[case])


YAML = b"""a-run:
  run: PPO
  env: CartPole-v1
  stop: {training_iteration: 3, episode_reward_mean: 150}
  num_samples: 1
  config: &own
    lr: 1.0e-4
    model: {fcnet_hiddens: [64, 64]}
    since: 2001-01-01
    again: [&list [1, 2], *list, ~, !!str 3]
"""


def of_a_file(path: Path) -> None:
    keys = load_spec(path)
    is_search(keys)
    make_spec(keys, {}, str(path))


PIECES = [
    b"!!python/object/apply:os.system ['touch owned']", b"[" * 500, b"&a [*a]", b"? []", b"2001-99-99", b"!!int x",
    b"\xff", b"\x1b", b"<<: 3", b"*own", b"-", b"~",
]  # fmt: skip


@pytest.mark.parametrize("content", [
    "config: &own {again: [*own]}",
    "x0: &x0 [1, 1, 1]\n" + "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]\n" for n in range(1, 30)),
    "config: " + "[" * 10_000,
], ids=["circle", "bomb", "depth"])  # fmt: skip
def test_a_yaml_file_takes_no_more_than_its_size(tmp_path, content):
    (tmp_path / "file.yaml").write_text(content)
    with pytest.raises(ValueError, match=r"file.yaml is not YAML"):
        load_spec(tmp_path / "file.yaml")


@st.composite
def yaml_files(draw):
    content = YAML
    for _ in range(draw(st.integers(1, 3))):
        start, piece = draw(st.integers(0, len(content))), draw(st.sampled_from(PIECES))
        content = content[:start] + piece + content[draw(st.integers(start, min(len(content), start + 20))) :]
    return content


def fuzz_yaml(tmp_path_factory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("yaml") / "file.yaml"
    path.write_bytes(content)
    read(lambda: of_a_file(path), TypeError)
    assert os.listdir(path.parent) == ["file.yaml"]


@settings(max_examples=50, derandomize=True, database=None, **SETTINGS)
@given(content=yaml_files())
def test_changed_yaml_files_are_read_or_refused(tmp_path_factory, content):
    fuzz_yaml(tmp_path_factory, content)


@pytest.mark.slow
@settings(max_examples=3000, **SETTINGS)
@given(content=yaml_files())
def test_many_changed_yaml_files_are_read_or_refused(tmp_path_factory, content):
    fuzz_yaml(tmp_path_factory, content)


@given(st.text())
def test_a_printable_text_keeps_lines_and_does_nothing_to_a_terminal(text):
    shown = printable(text)
    assert all(char.isprintable() or char in "\n\t\u200d\xa0" for char in shown)
    assert shown.count("\n") == text.count("\n")
