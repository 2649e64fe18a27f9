"""Runs that are killed at each of their changes of files, and resumed: they end as the one that was never killed.

For each k the run is killed at the k-th call that opens, writes, synchronises, renames or removes a file (crashes.py).
What is there then is read; the run is resumed as a user would; results, checkpoints and names of files are those of the
run that was not killed.
"""

import csv
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file

import runtime
from rllib import tune
from rllib.algorithms.pg import PGConfig
from rllib.cli import command
from rllib.offline.dataset import Dataset
from rllib.runs.files import read_params, read_results
from rllib.serving.learning.progress import Progress, prepare_directory
from rllib.serving.learning.results import LearnerResults
from rllib.serving.learning.settings import LearningSettings
from rllib.starts import STARTS, read_starts
from rllib.storage.checkpoint import checkpoints_in, newest_checkpoint, read_checkpoint, write_checkpoint
from tests.crashes import crash_at

# Of results and files: what depends on the clock, the machine or the process.
OF_A_PROCESS = (
    "time",
    "timestamp",
    "date",
    "pid",
    "hostname",
    "node_ip",
    "since_restore",
    "perf",
    "timers",
    "_ms",
    "per_s",
    "episode_id",
    "restores",
)
EVERY = [37, pytest.param(1, marks=pytest.mark.slow)]


def rllib(*arguments) -> None:
    """Runs a command of the shell in this process.

    Raises:
        AssertionError: if it fails.
    """
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output


def kills(
    below: Path, run: Callable[[Path], object], every: int, begun: Path | None = None
) -> Iterator[tuple[int, Path]]:
    """(k, directory) of runs that were killed at their call k, which the reader removes; that of 0 was not killed.

    Args:
        below: directory of all.
        run: function of the directory.
        every: step between two k.
        begun: directory of which each begins as a copy; None: as an empty one.
    """

    def make(directory: Path) -> None:
        directory.mkdir(parents=True)
        if begun is not None:
            shutil.copytree(begun, directory, dirs_exist_ok=True)

    make(below / "0")
    calls = crash_at(0, below / "0", lambda: run(below / "0"))
    yield 0, below / "0"
    assert len(calls) > 2, calls
    chosen = range(1, len(calls) + 1, every)
    for k in sorted({*chosen, len(calls)}):
        directory = below / str(k)
        make(directory)
        made = crash_at(k, directory, lambda directory=directory: run(directory))
        # An experiment writes its state by the clock: the numbers of calls differ by some.
        assert made is None or k > 0.7 * len(calls), f"not killed at call {k} of {len(calls)}"
        print(f"killed at call {k} of {len(calls)}: {calls[k - 1]}")
        yield k, directory
        shutil.rmtree(directory, ignore_errors=True)


def without_times(value):
    """A value of JSON without all that depends on the clock or the process."""
    if isinstance(value, dict):
        return {
            key: without_times(each) for key, each in value.items() if not any(part in key for part in OF_A_PROCESS)
        }
    return [without_times(each) for each in value] if isinstance(value, list) else value


def files_of(directory: Path) -> dict[str, object]:
    """Each file by its name, with its content as values that can be compared."""
    found: dict[str, object] = {}
    for path in sorted(directory.rglob("*")):
        if path.is_dir():
            continue
        name = str(path.relative_to(directory))
        if path.name == "result.json":
            found[name] = [without_times(json.loads(line)) for line in path.read_text().splitlines()]
        elif path.name == STARTS:
            found[name] = bool(read_starts(path.parent))  # one for each time that it was begun
        elif path.suffix == ".json" and path.name != "manifest.json":
            found[name] = without_times(json.loads(path.read_text()))
        elif path.suffix == ".safetensors":
            found[name] = {key: (array.shape, array.tobytes()) for key, array in load_file(path).items()}
        elif path.suffix == ".csv":
            rows = list(csv.DictReader(path.open(newline="")))
            found[name] = [without_times(row) for row in rows]
        else:
            found[name] = None
    return found


def differences(ours, theirs, place: str = "") -> list[str]:
    """Places of values that differ, or that one of both has alone."""
    if type(ours) is type(theirs) and isinstance(ours, dict):
        both = [(key, ours.get(key, "missing"), theirs.get(key, "too much")) for key in {**ours, **theirs}]
    elif type(ours) is type(theirs) and isinstance(ours, list) and len(ours) == len(theirs):
        both = [(at, *pair) for at, pair in enumerate(zip(ours, theirs))]
    else:
        return [] if ours == theirs else [f"{place}: {ours!r:.60} is not {theirs!r:.60}"]
    return [found for key, *pair in both for found in differences(*pair, f"{place}/{key}")]


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory):
    """Imports what the forked processes need, by a run in this one."""
    below = tmp_path_factory.mktemp("warm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rllib.runs.sidecar.Sidecar.start", lambda self: None)
        rllib(*TRAIN, "--results-dir", below, "--name", "run")
        rllib("record", below / "run", "--to", below / "steps.npz", "--steps", 5)


# ---------------------------------------------------------------------- rllib train

TRAIN = (
    "train", "PG", "tests.envs:DelayedReward", "train_batch_size=40", "rollout_fragment_length=40",
    "num_rollout_workers=0", "model.fcnet_hiddens=[4]", "--seed", "4", "--checkpoint-freq", "1",
    "--stop", "iterations=3", "-q",
)  # fmt: skip
KEPT = {"all": (), "newest and best": ("--keep-checkpoints-num", "1", "--keep-best")}


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("kept", KEPT)
def test_a_run_that_is_killed_at_any_call_goes_on_to_the_same(tmp_path, kept, every):
    expected = None
    for k, directory in kills(
        tmp_path, lambda directory: rllib(*TRAIN, *KEPT[kept], "--results-dir", directory, "--name", "run"), every
    ):
        run = directory / "run"
        if k:
            has_begun = (run / "run.json").exists() and newest_checkpoint(run) is not None
            for checkpoint in checkpoints_in(run).values() if run.exists() else ():
                assert read_checkpoint(checkpoint), "a checkpoint is not whole"
            if run.exists():
                read_params(run)
                assert [each["training_iteration"] for each in read_results(run)] in ([], [1], [1, 2], [1, 2, 3])
            if not has_begun:  # it says so, and that another name is to be given
                shutil.rmtree(run, ignore_errors=True)
                again = (*TRAIN, *KEPT[kept], "--results-dir", directory, "--name", "run")
            else:
                again = ("train", "--resume", run, "-q", *KEPT[kept][2:])
            crash_at(0, directory, lambda again=again: rllib(*again))
        found = files_of(run)
        expected = expected or found
        assert not differences(found, expected), k


def seeds(*arguments) -> None:
    runtime.init(engine="local")
    rllib(*arguments)


def results_of_seeds(folder: Path) -> dict[str, list]:
    """Results by the name of a seed's directory, without the id of its trial, which is drawn."""
    found = {path.parent.name: read_results(path.parent) for path in folder.glob("*/result.json")}
    return {name: [without_times({**each, "trial_id": ""}) for each in results] for name, results in found.items()}


@pytest.mark.parametrize("every", [97, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_seeds_that_are_killed_at_any_call_go_on_to_the_same(tmp_path, every):
    expected = None

    def train(directory: Path) -> None:
        seeds(*TRAIN, "--seeds", 2, "--results-dir", directory, "--name", "run")

    for k, directory in kills(tmp_path, train, every):
        folder = directory / "run"
        if k and (folder / "seeds.json").exists():
            crash_at(0, directory, lambda folder=folder: seeds("train", "--resume", folder, "-q"))
        elif k:
            shutil.rmtree(folder, ignore_errors=True)
            crash_at(0, directory, lambda directory=directory: train(directory))
        results = results_of_seeds(folder)
        expected = expected or results
        assert len(results) == 2 and not differences(results, expected), k
        # That of the searcher's state is replaced when a seed continues, and here all may have ended.
        assert {path.name for path in folder.rglob("*tmp*")} <= {".search_state.json.tmp"}, k


@pytest.mark.parametrize("every", [37, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_seeds_whose_resumption_is_killed_at_any_call_go_on_to_the_same(tmp_path, every):
    """With another stop criterion and another setting: both hold for all seeds, or for none."""
    expected, begun = None, tmp_path / "begun"
    begun.mkdir()
    crash_at(0, begun, lambda: seeds(*TRAIN, "--seeds", 2, "--results-dir", begun, "--name", "run"))
    more = ("--stop", "iterations=5", "lr=0.1", "-q")

    def resume(directory: Path) -> None:
        seeds("train", "--resume", directory / "run", *more)

    for k, directory in kills(tmp_path / "runs", resume, every, begun):
        if k:
            crash_at(0, directory, lambda directory=directory: resume(directory))
        results = results_of_seeds(directory / "run")
        expected = expected or results
        assert len(results) == 2 and not differences(results, expected), k


# ---------------------------------------------------------------------- steps that are recorded


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_recorded_steps_of_a_killed_command_are_whole_or_not_there(tmp_path, every):
    checkpoint = tmp_path / "checkpoint"
    crash_at(0, tmp_path / "none", lambda: PGConfig().environment("CartPole-v1").build().save(checkpoint))
    expected = None

    def record(directory: Path) -> None:
        rllib("record", checkpoint, "--to", directory / "steps.npz", "--steps", 60, "--seed", 1)

    for k, directory in kills(tmp_path / "runs", record, every):
        if k and (directory / "steps.npz").exists():
            Dataset.from_path(directory / "steps.npz")
        if k:
            crash_at(0, directory, lambda directory=directory: record(directory))
        assert [path.name for path in directory.iterdir()] == ["steps.npz"], k
        columns = Dataset.from_path(directory / "steps.npz").columns
        expected = expected or columns
        assert all(np.array_equal(columns[name], expected[name]) for name in ("obs", "actions", "rewards")), k


@pytest.mark.parametrize("every", EVERY)
def test_steps_that_a_killed_run_has_recorded_are_whole(tmp_path, every):
    """A file has its name when it is whole; steps of the file that was open are lost."""
    expected = None
    for k, directory in kills(
        tmp_path,
        lambda directory: rllib(*TRAIN, f"output={directory}/steps", "--results-dir", directory, "--name", "run"),
        every,
    ):
        steps, run = directory / "steps", directory / "run"
        rows = [len(Dataset.from_path(file)) for file in steps.glob("output*")] if k else []
        if k and not (run.exists() and newest_checkpoint(run)):
            continue
        if k:
            again = ("train", "--resume", run, f"output={steps}", "-q")
            crash_at(0, directory, lambda again=again: rllib(*again))
        found = files_of(run)["result.json"]
        expected = expected or found
        assert not differences(found, expected), k
        assert sum(len(Dataset.from_path(file)) for file in steps.glob("output*")) >= sum(rows), k


# ---------------------------------------------------------------------- tune


def tuned(directory: Path, **more) -> None:
    runtime.init(engine="local")
    config = {"env": "tests.envs:DelayedReward", "train_batch_size": 40, "rollout_fragment_length": 40, "seed": 1,
              "num_rollout_workers": 0, "lr": tune.grid_search([0.01, 0.1])}  # fmt: skip
    analysis = tune.run(
        "PG", config=config, stop={"training_iteration": 2}, checkpoint_freq=1, local_dir=str(directory), name="tuned",
        verbose=0, **more,
    )  # fmt: skip
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 2


@pytest.mark.parametrize("every", [97, pytest.param(1, marks=pytest.mark.slow)])
def test_an_experiment_that_is_killed_at_any_call_goes_on_to_the_same(tmp_path, every):
    expected = None
    for k, directory in kills(tmp_path, tuned, every):
        place, finished = directory / "tuned", {}
        if k:
            if list(place.glob("experiment_state-*.json")):
                finished = {path.parent.name: path.read_text() for path in place.glob("*/result.json")
                            if path.read_text().count("\n") == 2}  # fmt: skip
            resume = {"resume": True} if _has_begun(place) else {}
            if not resume:
                shutil.rmtree(place, ignore_errors=True)
            crash_at(0, directory, lambda directory=directory, resume=resume: tuned(directory, **resume))
        trials = {}
        for path in place.glob("*/params.json"):
            files = files_of(path.parent)
            assert not [name for name in files if "tmp" in name], (k, list(files))
            results = [{**each, "trial_id": 0, "experiment_tag": 0} for each in files["result.json"]]
            weights = [content for name, content in files.items() if "checkpoint_000002" in name and "weights" in name]
            trials[json.loads(path.read_text())["lr"]] = results, weights, sorted(files)
        expected = expected or trials
        assert trials == expected, k
        assert not [path for path in place.iterdir() if "tmp" in path.name]
        for name, text in finished.items():
            assert (place / name / "result.json").exists() and text, "a finished trial is lost"


def _has_begun(place: Path) -> bool:
    """Whether an experiment has its first record; else tune says that there is none."""
    return any(file.read_bytes().count(b"\n") for file in place.glob("experiment_state-*.json"))


# ---------------------------------------------------------------------- rllib serve --learn


def served(directory: Path, checkpoint: Path) -> None:
    """What a learner does with its files: two candidates, the second of which is promoted; in two lives."""
    for _ in range(2):
        settings = LearningSettings(directory=str(directory / "learned"))
        first = prepare_directory(settings.path, checkpoint)
        files, tree = Progress(settings), read_checkpoint(first, load_user_code=True)
        results = LearnerResults(settings.path, {"algorithm": "DQN", "env": "CartPole-v1"})
        files.history(0)
        write_checkpoint(settings.candidate, tree)
        files.drop_candidate()
        write_checkpoint(settings.candidate, tree)
        files.promote()
        files.write_history(1, [1.0, 2.0])
        results.add(_stats(), 0.1, has_event=True)
        results.close()


def _stats() -> dict:
    served = {"version": 1, "mean_return": 1.0}
    rows = {"waiting": 0, "held": 0}
    return {"served": served, "candidate": None, "rows": rows, "promoted": 1, "dropped": 1, "paused": False,
            "learner": {"version": 1, "steps": 10}}  # fmt: skip


@pytest.mark.parametrize("every", EVERY)
def test_a_learner_that_is_killed_at_any_call_goes_on_from_a_whole_checkpoint(tmp_path, every):
    checkpoint, most = tmp_path / "checkpoint", 0
    crash_at(0, tmp_path / "none", lambda: PGConfig().environment("CartPole-v1").build().save(checkpoint))
    names = None
    for k, directory in kills(tmp_path / "runs", lambda directory: served(directory, checkpoint), every):
        learned = directory / "learned"
        found = checkpoints_in(learned) if learned.exists() else {}
        for path in found.values():
            assert read_checkpoint(path), "a checkpoint is not whole"
        most = max(most, len(found))
        if k:
            crash_at(0, directory, lambda directory=directory: served(directory, checkpoint))
            assert len(checkpoints_in(learned)) == max(len(found), 1) + 2, k
        left = {path.name for path in learned.iterdir() if not path.name.startswith("checkpoint_")}
        names = names or left
        assert left == names, k
    assert most == 3
