"""Experiments of others: data is read, code runs on request alone, and nothing outside of the folder changes."""

import json
import os
import random
from functools import partial
from pathlib import Path

import pytest
from climber import Climber

from rllib import tune
from rllib.tune.experiment.journal_values import ValueReader, written
from rllib.tune.experiment.spec import make_spec
from rllib.tune.running.build import prepare
from rllib.tune.schedulers import AsyncHyperBandScheduler, PopulationBasedTraining
from rllib.tune.search import BasicVariant, ConcurrencyLimiter

pytestmark = pytest.mark.usefixtures("two_cpus")


class Owned:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def interrupted(path: Path, trainable=Climber, **settings) -> tuple[Path, list[dict]]:
    """An experiment whose last trial has not ended, and its journal."""
    tune.run(trainable, name="e", storage_path=path, verbose=0, tensorboard=False, checkpoint_freq=1,
             stop={"training_iteration": 2}, **{"config": {"rate": 1.0}, **settings})  # fmt: skip
    directory = path / "e"
    (directory / "search_state.json").unlink()
    records = [json.loads(line) for line in journal(directory).read_text().splitlines()]
    last = records[-1]
    assert last["status"] == "TERMINATED"
    write(directory, records[:-1])
    return directory, records[:-1]


def journal(directory: Path) -> Path:
    return next(directory.glob("experiment_state-*"))


def write(directory: Path, records: list[dict]) -> None:
    journal(directory).write_text("".join(json.dumps(record) + "\n" for record in records))


def go_on(directory: Path, trainable=Climber, **settings):
    return tune.run(trainable, name="e", storage_path=directory.parent, verbose=0, tensorboard=False, resume=True,
                    stop={"training_iteration": 3}, **{"config": {"rate": 1.0}, **settings})  # fmt: skip


# ---------------------------------------------------------------------- what lies elsewhere


def changed(records: list[dict], kind: str, **items) -> list[dict]:
    assert any(record["type"] == kind for record in records)
    return [{**record, **(items if record["type"] == kind else {})} for record in records]


@pytest.mark.parametrize(
    "kind, items",
    [("trial", {"dir": "../victim"}), ("trial", {"dir": "/victim"}), ("trial", {"dir": "."}), ("trial", {"dir": 3}),
     ("checkpoint", {"name": "../x"}), ("checkpoint", {"name": "."}), ("checkpoint", {"id": "unknown"})],
)  # fmt: skip
def test_a_journal_names_no_place_outside_of_its_directory(tmp_path, kind, items):
    directory, records = interrupted(tmp_path)
    victim = tmp_path / "victim" / "checkpoint_000001"
    victim.mkdir(parents=True)
    write(directory, changed(records, kind, **items))
    for read in (lambda: go_on(directory), lambda: tune.ExperimentAnalysis(directory)):
        with pytest.raises(ValueError, match=r"experiment_state-.* is damaged: record"):
            read()
    assert victim.is_dir() and os.listdir(victim.parent) == [victim.name]


@pytest.mark.parametrize("what", ["a trial's directory", "a file", "a pipe", "a file of the experiment"])
def test_links_in_an_experiment_are_not_written_through(tmp_path, what):
    directory, records = interrupted(tmp_path)
    trial = directory / next(record["dir"] for record in records if record["type"] == "trial")
    changes = {"a trial's directory": trial, "a file of the experiment": directory / "search_state.json"}
    place = changes.get(what, trial / "params.json")
    if place.exists():
        place.rename(tmp_path / "elsewhere")
    os.mkfifo(place) if what == "a pipe" else place.symlink_to(tmp_path / "elsewhere")
    before = sorted(map(str, tmp_path.rglob("*")))
    with pytest.raises(ValueError, match="link"):
        go_on(directory)
    assert sorted(map(str, tmp_path.rglob("*"))) == before


# ---------------------------------------------------------------------- code


def test_code_in_a_journal_runs_on_request_alone(tmp_path):
    directory, records = interrupted(tmp_path)
    owned = Owned(tmp_path / "owned")
    harm, stop = ({**written(value), "config": {}} for value in ({"rate": 1.0, "x": owned}, owned))
    header = {**records[0], "space": harm, "settings": {"stop": stop}}
    write(directory, [header, *changed(records[1:], "trial", **harm)])
    for read in (
        lambda **flag: tune.Tuner.restore(directory, Climber, **flag),
        lambda **flag: tune.Tuner.restore(directory, Climber, param_space={"rate": 1.0}, **flag),
        lambda **flag: prepare(make_spec({"trainable": Climber, "name": "e", "storage_path": tmp_path, "resume": True,
                                          "config": {"rate": 1.0}, **flag}, "a test")),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"holds code, which is loaded only on request: .*load_user_code=True"):
            read()
        assert not (tmp_path / "owned").exists()
    tune.ExperimentAnalysis(directory)
    assert not (tmp_path / "owned").exists()
    tune.Tuner.restore(directory, Climber, load_user_code=True)
    assert (tmp_path / "owned").exists()


class One:
    pass


class Two:
    pass


def space():
    class Local:
        pass

    return {
        "rate": 1.0,
        "function": lambda step: 2 * step,
        "partial": partial(max, 1),
        "class": tune.grid_search([One, Two, Local]),
        "nested": [{"x": tune.choice([One])}, (1, One)],
        "number": float("inf"),
    }


def test_the_objects_of_the_program_that_goes_on_take_the_place_of_its_code(tmp_path):
    directory, _ = interrupted(tmp_path, config=space())
    given = space()
    trials = go_on(directory, config=given).trials
    assert [trial.config["class"] for trial in trials] == given["class"]["grid_search"]
    for trial in trials:
        assert trial.config["function"] is given["function"] and trial.config["partial"] is given["partial"]
        assert trial.config["nested"] == [{"x": One}, (1, One)] and trial.config["number"] == float("inf")
        assert trial.status == "TERMINATED"


def test_what_the_program_does_not_give_is_named(tmp_path):
    made = {"rate": 1.0, "x": tune.sample_from(lambda spec: One)}
    directory, _ = interrupted(tmp_path, config=made)
    with pytest.raises(ValueError, match=r"code.*test_foreign_experiments:One.*--load-user-code"):
        go_on(directory, config=made)
    assert go_on(directory, config=made, load_user_code=True).trials[0].config["x"] is One


@pytest.mark.parametrize(
    "value",
    [
        {"a": tune.uniform(0, 1), "b": tune.choice([1, (2, 3)]), "d": tune.qrandn(0, 1, 0.5)},
        tune.grid_search([1, 2]),
        tune.CheckpointConfig(num_to_keep=2, checkpoint_frequency=3),
        tune.FailureConfig(max_failures=1),
        AsyncHyperBandScheduler(metric="height", mode="max", max_t=4),
        tune.CombinedStopper(tune.MaximumIterationStopper(3), tune.TimeoutStopper(9.0)),
        ConcurrencyLimiter(BasicVariant(random_state=3), 1),
        (1, {2: float("nan")}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_librarys_own_objects_are_data(value):
    record = json.loads(json.dumps(written(value), default=repr))
    assert "pickle" not in record
    read = ValueReader()(record)
    assert type(read) is type(value) and json.dumps(written(read), default=str) == json.dumps(record | {
        "config": written(read)["config"]}, default=str)  # fmt: skip


@pytest.mark.parametrize("mutations", [{"rate": lambda: 1.0}, {"rate": [random.Random(1)]}])
def test_code_in_the_librarys_own_objects_is_code(mutations):
    scheduler = PopulationBasedTraining(hyperparam_mutations=mutations, time_attr="training_iteration")
    record = json.loads(json.dumps(written(scheduler), default=repr))
    with pytest.raises(ValueError, match="holds code"):
        ValueReader()(record)
    assert type(ValueReader(load_user_code=True)(record)) is PopulationBasedTraining


class KeepsASet(Climber):
    """Whose checkpoint is no data."""

    def save_checkpoint(self, checkpoint_dir):
        return {"height": self.height, "seen": {1}}


def test_a_pickled_checkpoint_of_another_run_is_loaded_on_request_alone(tmp_path):
    directory, _ = interrupted(tmp_path, KeepsASet)
    before = sorted(map(str, directory.rglob("*")))
    with pytest.raises(ValueError, match=r"code.*checkpoint_00000.*load_user_code=True"):
        go_on(directory, KeepsASet)
    assert sorted(map(str, directory.rglob("*"))) == before
    assert go_on(directory, KeepsASet, load_user_code=True).trials[0].last_result["height"] == 3.0


def test_a_checkpoint_that_says_its_content_lies_elsewhere_is_not_loaded(tmp_path):
    directory, records = interrupted(tmp_path)
    trial = directory / next(record["dir"] for record in records if record["type"] == "trial")
    elsewhere = {"kind": "path", "path": "../../../elsewhere"}
    for metadata in trial.glob("checkpoint_*/.tune.json"):
        metadata.write_text(json.dumps({**json.loads(metadata.read_text()), **elsewhere}))
    with pytest.raises(tune.TuneError, match="would lie outside"):
        go_on(directory)
