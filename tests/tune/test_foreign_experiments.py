"""Experiments of others: data is read, code runs on request alone, and nothing outside of the folder changes."""

import json
import os
import random
from functools import partial
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from climber import Climber

from rllib import Algorithm, DefaultCallbacks, DQNConfig, PPOConfig, tune
from rllib.compat.methods.ray_rllib.settings import OVERRIDES
from rllib.errors import CheckpointError, DamagedFileError
from rllib.policies import PolicySpec
from rllib.storage.signatures import join_run, run_key
from rllib.tune.experiment.directory import described, for_header
from rllib.tune.experiment.files import adopt
from rllib.tune.experiment.journal_values import ValueReader, written
from rllib.tune.experiment.spec import SAVED, ExperimentSpec, make_spec
from rllib.tune.experiment.trial import Trial, TrialCheckpoint
from rllib.tune.running.build import prepare
from rllib.tune.running.runner import TrialRunner
from rllib.tune.running.tuner import with_saved_settings
from rllib.tune.schedulers import AsyncHyperBandScheduler, PopulationBasedTraining
from rllib.tune.search import BasicVariant, ConcurrencyLimiter, OptunaSearch, Repeater
from rllib.tune.search.domains import Domain
from rllib.tune.search.space import holds_domains
from rllib.tune.search.wrappers import Seeded
from rllib.tune.trainables.pickles import write_pickle

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


# How an entry of a checkpoint may lead out of it.
LINKS = {
    "file": lambda checkpoint, secret: (checkpoint / "weights").symlink_to(secret / "key"),
    "directory": lambda checkpoint, secret: (checkpoint / "parts" / "more").symlink_to(secret),
    "the checkpoint": lambda checkpoint, secret: (
        checkpoint.rename(checkpoint.with_name("real")) and checkpoint.symlink_to(secret)
    ),
    "pipe": lambda checkpoint, secret: os.mkfifo(checkpoint / "pipe"),
}


def trials_with_a_checkpoint(path: Path) -> tuple[Trial, Trial, Path]:
    """A trial, one whose newest checkpoint it may take over, and that checkpoint."""
    trial, source = (Trial(str(i), i, "f", {}, experiment_dir=path) for i in (1, 2))
    source.checkpoints.append(TrialCheckpoint("checkpoint_000003", 3, {"loss": 1.0}))
    checkpoint = Path(source.checkpoint_path(source.checkpoint))
    (checkpoint / "parts").mkdir(parents=True)
    (checkpoint / "parts" / "run.sh").write_text("true")
    (checkpoint / "parts" / "run.sh").chmod(0o750)
    Path(trial.logdir).mkdir()
    return trial, source, checkpoint


def test_a_checkpoint_is_taken_over_whole(tmp_path):
    trial, source, _ = trials_with_a_checkpoint(tmp_path)
    taken = adopt(trial, source)
    script = Path(trial.checkpoint_path(taken)) / "parts" / "run.sh"
    assert (taken.name, taken.metrics, script.read_text()) == ("checkpoint_000003", {"loss": 1.0}, "true")
    assert script.stat().st_mode & 0o777 == 0o750
    assert adopt(trial, source).name != taken.name


@pytest.mark.parametrize("kind", LINKS)
def test_links_in_a_checkpoint_are_not_taken_over(kind, tmp_path):
    """Neither by another trial nor by `Checkpoint.to_directory`."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("private")
    trial, source, checkpoint = trials_with_a_checkpoint(tmp_path / "e")
    LINKS[kind](checkpoint, secret)
    with pytest.raises(DamagedFileError, match=r"link, which is not followed|no regular file"):
        adopt(trial, source)
    if kind != "the checkpoint":  # the user has named it
        with pytest.raises(DamagedFileError, match=r"link, which is not followed|no regular file"):
            tune.Checkpoint(checkpoint).to_directory(tmp_path / "copy")
    copies = [*Path(trial.logdir).rglob("*"), *(tmp_path / "copy").rglob("*")]
    assert not any(path.is_symlink() or (path.is_file() and "private" in path.read_text()) for path in copies)


def journal(directory: Path) -> Path:
    return next(directory.glob("experiment_state-*"))


def write(directory: Path, records: list[dict]) -> None:
    journal(directory).write_text("".join(json.dumps(record, default=repr) + "\n" for record in records))


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
    with pytest.raises(ValueError, match=r"link that leads out of|no regular file"):
        go_on(directory)
    assert sorted(map(str, tmp_path.rglob("*"))) == before


@pytest.mark.parametrize("target", ["run-1", "missing"])
def test_links_inside_of_an_experiment_are_its_own(tmp_path, target):
    """As those of trackers in the directories of trials."""
    directory, records = interrupted(tmp_path)
    trial = directory / next(record["dir"] for record in records if record["type"] == "trial")
    (trial / "wandb" / "run-1").mkdir(parents=True)
    (trial / "wandb" / "latest-run").symlink_to(target)
    go_on(directory)


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
        tune.TrialPlateauStopper("height", num_results=3),
        OptunaSearch(sampler="gp", seed=3),
        tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 2}]),
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


def test_the_file_of_a_study_comes_from_no_journal(tmp_path):
    """It would be written to."""
    record = json.loads(json.dumps(written(OptunaSearch(storage=tmp_path / "study.log")), default=repr))
    with pytest.raises(ValueError, match=r"holds code, which is loaded only on request: .*:OptunaSearch"):
        ValueReader()(record)
    named = json.loads(json.dumps(written(OptunaSearch(seed=1))["exact"]))
    named["attributes"]["_storage"] = str(tmp_path / "study.log")
    with pytest.raises(DamagedFileError, match="OptunaSearch with _storage"):
        ValueReader()({**record, "exact": named, "pickle": {}})
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- pickled checkpoints


class KeepsAnObject(Climber):
    """Whose checkpoint is no data."""

    def save_checkpoint(self, checkpoint_dir):
        return {"height": self.height, "other": complex(1)}


def counting(config):
    """A function whose checkpoint is no data."""
    checkpoint = tune.get_checkpoint()
    step = checkpoint.to_dict()["step"] if checkpoint else 0
    while True:
        step += 1
        tune.report({"step": step}, checkpoint=tune.Checkpoint.from_dict({"step": step, "other": complex(1)}))


@pytest.fixture
def another_run():
    """A function after which this process is another one as far as pickles go."""
    before = run_key()
    yield lambda: join_run(b"another")
    join_run(before)


REFUSED = r"checkpoint_00000\d/checkpoint.pkl is a pickle that this run has not written.*load_user_code=True"


def test_a_pickled_checkpoint_of_this_run_is_loaded(tmp_path):
    directory, _ = interrupted(tmp_path, KeepsAnObject)
    assert go_on(directory, KeepsAnObject).trials[0].last_result["height"] == 3.0


def test_a_pickled_checkpoint_of_another_run_is_loaded_on_request_alone(tmp_path, another_run):
    directory, _ = interrupted(tmp_path, KeepsAnObject)
    another_run()
    before = sorted(map(str, directory.rglob("*")))
    with pytest.raises(ValueError, match=REFUSED):
        go_on(directory, KeepsAnObject)
    assert sorted(map(str, directory.rglob("*"))) == before
    assert go_on(directory, KeepsAnObject, load_user_code=True).trials[0].last_result["height"] == 3.0


@pytest.mark.parametrize("trainable", [KeepsAnObject, counting])
def test_trials_start_from_a_pickle_of_another_run_on_request_alone(tmp_path, another_run, trainable):
    def run(**settings):
        config = {"rate": 1.0} if trainable is KeepsAnObject else {}
        more = {"checkpoint_at_end": True} if trainable is KeepsAnObject else {}
        return tune.run(trainable, storage_path=tmp_path, verbose=0, tensorboard=False, config=config, **more,
                        stop={"training_iteration": 2}, **settings)  # fmt: skip

    trial = run().trials[0]
    saved = trial.checkpoint_path(trial.checkpoint)
    iterations = 2 if trainable is counting else 1  # a function's iterations begin anew
    assert run(restore=saved).trials[0].last_result["training_iteration"] >= iterations
    another_run()
    before = sorted(map(str, tmp_path.rglob("*")))
    with pytest.raises(ValueError, match=REFUSED):
        run(restore=saved)
    assert sorted(map(str, tmp_path.rglob("*"))) == before
    run(restore=saved, load_user_code=True)


def test_no_reader_of_a_checkpoint_runs_code_of_another_run(tmp_path, another_run):
    """With its signature, and without one, as earlier versions wrote them."""
    trial = Path(interrupted(tmp_path, KeepsAnObject)[0])
    saved = next(trial.glob("*/checkpoint_*"))
    owned = tmp_path / "owned"
    write_pickle(saved, "checkpoint.pkl", Owned(owned))
    another_run()
    climber = KeepsAnObject({"rate": 1.0})
    with pytest.raises(ValueError, match=REFUSED):
        climber.restore(saved)
    with pytest.raises(ValueError, match=REFUSED):
        tune.Checkpoint(saved).to_dict()
    (saved / "checkpoint.pkl.mac").unlink()
    with pytest.raises(ValueError, match=REFUSED):
        climber.restore(saved)
    assert not owned.exists()
    tune.Checkpoint(saved).to_dict(load_user_code=True)
    assert owned.exists()


def test_a_changed_pickle_is_of_no_run(tmp_path):
    saved = Path(tune.Checkpoint.from_dict({"x": complex(1)}).to_directory(tmp_path / "saved"))
    assert tune.Checkpoint(saved).to_dict() == {"x": complex(1)}
    (saved / "checkpoint.pkl").write_bytes(cloudpickle.dumps(Owned(tmp_path / "owned")))
    with pytest.raises(ValueError, match="has not written"):
        tune.Checkpoint(saved).to_dict()
    assert not (tmp_path / "owned").exists()


def test_data_of_another_run_is_read(tmp_path, another_run):
    """Whatever its size; what torch's modules and optimizers save is data."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.BatchNorm1d(300))
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(4, 300)).sum().backward()
    optimizer.step()
    data = {"module": module.state_dict(), "optimizer": optimizer.state_dict(), "weights": np.ones((300, 300)),
            "scalars": [np.float32(0.1), np.bool_(True), float("nan")], "random": random.Random(1).getstate(),
            "numpy": np.random.default_rng(1).bit_generator.state,
            3: (1, {2}, frozenset({"a"}), b"\x00", None)}  # fmt: skip
    saved = tune.Checkpoint.from_dict(data)
    another_run()
    read = saved.to_dict()
    assert read["module"]._metadata == data["module"]._metadata
    torch.testing.assert_close(dict(read["module"]), dict(data["module"]), rtol=0, atol=0)
    torch.testing.assert_close(read["optimizer"]["state"], data["optimizer"]["state"], rtol=0, atol=0)
    module.load_state_dict(read["module"])
    optimizer.load_state_dict(read["optimizer"])
    for key in ("weights", "scalars", "random", "numpy", 3):
        np.testing.assert_equal(read[key], data[key])
    assert [type(each) for each in read["scalars"]] == [np.float32, np.bool_, float]


@pytest.mark.parametrize(
    "text",
    ['{"$tensor": {"name": "9"}}', '{"$tensor": {"name": "0", "device": "meta"}}', '{"$set": [[]]}',
     '{"$bytes": "?"}', '{"$ordered": {}}', "[" * 99_999],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("name", ["checkpoint.json", "checkpoint.safetensors"])
def test_damaged_data_is_said_to_be_damaged(tmp_path, text, name):
    saved = Path(tune.Checkpoint.from_dict({"weights": np.ones(3)}).to_directory(tmp_path / "saved"))
    (saved / name).write_text(f'{{"x": {text}}}')
    with pytest.raises(DamagedFileError, match=name):
        tune.Checkpoint(saved).to_dict()


def test_a_checkpoint_that_says_its_content_lies_elsewhere_is_not_loaded(tmp_path):
    directory, records = interrupted(tmp_path)
    trial = directory / next(record["dir"] for record in records if record["type"] == "trial")
    elsewhere = {"kind": "path", "path": "../../../elsewhere"}
    for metadata in trial.glob("checkpoint_*/.tune.json"):
        metadata.write_text(json.dumps({**json.loads(metadata.read_text()), **elsewhere}))
    with pytest.raises(tune.TuneError, match="would lie outside"):
        go_on(directory)


def test_the_program_restores_what_its_trials_have_written(own_checkpoints, tmp_path):
    class Callbacks(DefaultCallbacks):
        pass

    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0).callbacks(Callbacks)
    config.training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
    run = tune.RunConfig(storage_path=tmp_path, name="trials", stop={"training_iteration": 1}, verbose=0)
    run.checkpoint_config = tune.CheckpointConfig(checkpoint_at_end=True)
    results = tune.Tuner("PPO", param_space=config, run_config=run).fit()
    with Algorithm.from_checkpoint(results[0].checkpoint) as restored:
        assert restored.config.callbacks_class.__name__ == "Callbacks"


def reporting(config):
    for step in range(3):
        tune.report({"step": step})


@pytest.mark.parametrize("trainable", [Climber, reporting])
@pytest.mark.parametrize("where", ["space", "trial"])
def test_keys_of_a_trainable_of_ones_own_are_no_settings(tmp_path, trainable, where):
    """Whatever settings of algorithms have their names."""
    own = {"output": "/elsewhere", "wandb": {"project": "p"}, "mlflow": False, "teacher": "s3://bucket/run",
           "listen": "0.0.0.0:9900", "replay_buffer_config": {"storage": "/elsewhere"}}  # fmt: skip
    config = {"rate": 1.0, **own}
    tune.run(trainable, name="e", storage_path=tmp_path, verbose=0, tensorboard=False, stop={"training_iteration": 2},
             config=config if where == "space" else {"rate": 1.0})  # fmt: skip
    records = [json.loads(line) for line in journal(tmp_path / "e").read_text().splitlines()]
    if where == "trial":
        records = [
            {**each, "config": {**each["config"], **own}} if each["type"] == "trial" else each for each in records
        ]
    write(tmp_path / "e", records[:-1])
    (trial,) = tune.Tuner.restore(tmp_path / "e", trainable).fit()
    assert trial.metrics["training_iteration"] == 2 and trial.config == config


# Setting that names a place -> (the form in which a program gives it, forms of a file), by the place.
FORMS = {
    "output": lambda place: (
        {"output": place},
        {"offline_data": {"output": place}},
        {"output": tune.grid_search(["logdir", place])},
        {"offline_data": {"output": tune.choice([None, place])}, "gamma": tune.randn()},
        {"offline_data": tune.grid_search([{}, {"output": place}])},
    ),
    "output_config": lambda place: (
        {"output": "dataset", "output_config": {"path": place}},
        {"offline_data": {"output": "dataset", "output_config": {"path": place}}},
        {"output": tune.choice([None, "dataset"]), "output_config": tune.choice([{}, {"path": place}])},
        {"output": "dataset", "output_config": {"path": tune.grid_search([place])}},
    ),
    "replay_buffer_config": lambda place: (
        {"replay_buffer_config": {"storage": place}},
        {"training": {"replay_buffer_config": {"storage": place}}},
        {"replay_buffer_config": {"storage": place}, "buffer_size": 100},
        {"replay_buffer_kwargs": {"storage": place}},
        {"training": {"replay_buffer_config": {"storage": tune.choice(["memory", place]), "capacity": tune.randn()}}},
        {"policies": {"a": PolicySpec(config={"training": {"replay_buffer_config": {"storage": place}}})}},
        {"policies": ["a"], OVERRIDES: {"a": {"replay_buffer_config": {"storage": place}}}},
    ),
    "log_dir": lambda place: ({"log_dir": place}, {"reporting": {"log_dir": place}}),
    "wandb": lambda place: (
        {"wandb": {"dir": place}},
        {"reporting": {"wandb": {"dir": place}}},
        {"wandb": tune.grid_search([None, {"dir": place}])},
    ),
}


def of_dqn(directory: Path, records: list[dict], space: dict, trial: dict, **more) -> None:
    """Makes the journal one of DQN, with this search space and these settings of its trial."""
    header = {**records[0], "trainable": "DQN", "space": for_header(space), "described": described(space)}
    records = changed(records[1:], "trial", trainable="DQN", **for_header(trial))
    write(directory, [header, *records, *([more] if more else [])])


@pytest.mark.parametrize("setting, form", [(name, i) for name, of in FORMS.items() for i in range(len(of("/x")))])
def test_a_place_is_seen_in_every_form(tmp_path, monkeypatch, setting, form):
    """And given again in any."""
    directory, records = interrupted(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(TrialRunner, "run", lambda runner: runner.directory.close())
    monkeypatch.setattr("rllib.tune.running.build.check_package", lambda tracker: None)
    forms, own = FORMS[setting](str(tmp_path / "elsewhere")), {"env": "CartPole-v1"}
    plain, foreign = {**own, **forms[0]}, {**own, **forms[form]}
    refused = rf"{directory} has {setting}=.*elsewhere.*give {setting} again"
    of_dqn(directory, records, foreign, own)
    with pytest.raises(CheckpointError, match="the search space of " + refused):
        tune.Tuner.restore(directory, "DQN").fit()
    with_saved_settings(ExperimentSpec(trainable=DQNConfig().update_from_dict(forms[0])), directory)
    with pytest.raises(CheckpointError, match="the search space of " + refused):  # tune.run
        tune.run("DQN", name="e", storage_path=tmp_path, resume=True, verbose=0)
    # Nothing is written where somebody looks at the results.
    assert [trial.config["env"] for trial in tune.Tuner.restore(directory, "DQN").get_results()] == ["CartPole-v1"]
    if setting == "log_dir":  # Tune gives its trials their own
        return
    record = {"type": "exploit", "id": next(each["id"] for each in records if each["type"] == "trial"), "time": 1.0}
    for trial in (foreign, own) if not holds_domains(foreign) else ():
        more = {**record, "source": record["id"], **for_header(foreign)} if trial is own else {}
        of_dqn(directory, records, own, trial, **more)
        with pytest.raises(CheckpointError, match="a trial of " + refused):
            tune.Tuner.restore(directory, "DQN").fit()
        of_dqn(directory, records, plain, trial, **more)
        tune.Tuner.restore(directory, "DQN", param_space=plain).fit()
    of_dqn(directory, records, foreign, plain)
    tune.Tuner.restore(directory, "DQN", param_space=foreign).fit()


def test_a_scheduler_of_an_experiment_draws_no_place(tmp_path):
    directory, records = interrupted(tmp_path)
    place, own = str(tmp_path / "elsewhere"), {"env": "CartPole-v1"}
    of_dqn(directory, records, own, own)
    header, *records = map(json.loads, journal(directory).read_text().splitlines())
    for mutated in ({"output": [place, "logdir"]}, {"offline_data": {"output": [place]}}):
        scheduler = PopulationBasedTraining(hyperparam_mutations=mutated, time_attr="training_iteration")
        settings = {**header["settings"], "scheduler": for_header(scheduler)}
        write(directory, [{**header, "settings": settings}, *records])
        for given in (None, own):
            with pytest.raises(CheckpointError, match=f"the scheduler of {directory} has output=.*elsewhere"):
                tune.Tuner.restore(directory, "DQN", param_space=given).fit()
        with_saved_settings(ExperimentSpec(trainable="DQN", scheduler=scheduler), directory)
        with_saved_settings(ExperimentSpec(trainable="DQN", config={"output": tune.choice([None, place])}), directory)


# ---------------------------------------------------------------------- settings of the experiment


def with_setting(records: list[dict], name: str, value) -> list[dict]:
    """Records whose header has this setting."""
    header = {**records[0], "settings": {**records[0]["settings"], name: for_header(value)}}
    return [json.loads(json.dumps(each, default=repr)) for each in (header, *records[1:])]


@pytest.mark.parametrize(
    "name, value",
    [("load_user_code", True), ("config", {"rate": 2.0}), ("trainable", "PPO"), ("run", "PPO"), ("resume", "AUTO"),
     ("storage_path", "elsewhere"), ("local_dir", "elsewhere"), ("upload_dir", "s3://elsewhere"), ("name", "other"),
     ("of_no_version", 1)],
)  # fmt: skip
@pytest.mark.parametrize("again", [{}, {"param_space": {"rate": 1.0}}])
def test_a_header_has_saved_settings_alone(tmp_path, name, value, again):
    """Others come from the program: consent above all."""
    assert name not in SAVED
    directory, records = interrupted(tmp_path)
    owned = for_header({"rate": Owned(tmp_path / "owned")})
    write(directory, with_setting([records[0], *changed(records[1:], "trial", **owned)], name, value))
    with pytest.raises(DamagedFileError, match=rf"experiment_state-.*its settings have {name}, which no experiment"):
        tune.Tuner.restore(directory, Climber, **again).fit()
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("place", ["{}/victim", "../../../victim", "below/victim", ".."])
@pytest.mark.parametrize("form", [str, lambda name: ("out", name), lambda name: [name, "err"]])
def test_output_of_trials_is_written_into_their_directories(tmp_path, place, form):
    directory, records = interrupted(tmp_path)
    write(directory, with_setting(records, "log_to_file", form(place.format(tmp_path))))
    (tmp_path / "victim").touch()
    with pytest.raises(ValueError, match=r"log_to_file must be .* without a directory, .* but got .*\.\.|victim"):
        tune.Tuner.restore(directory, Climber).fit()
    assert (tmp_path / "victim").read_bytes() == b""


def test_output_of_trials_follows_no_link(tmp_path):
    def with_a_link(trial):
        (tmp_path / "e" / "linked").mkdir()
        (tmp_path / "e" / "linked" / "stdout").symlink_to(tmp_path / "victim")
        return "linked"

    (trial,) = tune.run(Climber, config={"rate": 1.0}, name="e", storage_path=tmp_path, verbose=0, log_to_file=True,
                        trial_dirname_creator=with_a_link, raise_on_failed_trial=False,
                        stop={"training_iteration": 1}).trials  # fmt: skip
    assert trial.status == "ERROR" and "stdout" in trial.error
    assert not (tmp_path / "victim").exists()


def population(mutations: dict) -> PopulationBasedTraining:
    return PopulationBasedTraining("training_iteration", "height", "max", hyperparam_mutations=mutations)


# ---------------------------------------------------------------------- what is looked at is what is built


@pytest.fixture
def restore(monkeypatch):
    """A function that restores an experiment of DQN and makes its trials, which do not run."""

    def restore(directory: Path, **more):
        monkeypatch.setattr(TrialRunner, "run", lambda runner: runner.directory.close())
        return tune.Tuner.restore(directory, "DQN", **more).fit()

    return restore


LITERAL = {
    "like a grid": lambda place: {"output": place, "learner_config_dict": {"grid_search": [1]}},
    "like a grid with more keys": lambda place: {
        "output": "dataset", "output_config": {"path": place, "grid_search": [{}]}
    },
    "like a section in a grid": lambda place: {"output": place, "env_config": {"grid_search": []}},
    "refused as a whole": lambda place: {"output": place, "model": 1},
    "refused in a section": lambda place: {"offline_data": {"output": place, "output_config": 1}},
    "given twice": lambda place: {"output": place, "offline_data": {"output": "logdir"}},
}  # fmt: skip


@pytest.mark.parametrize("form", LITERAL)
@pytest.mark.parametrize("status", ["RUNNING", "TERMINATED"])
def test_a_drawn_configuration_is_read_as_its_trial_reads_it(tmp_path, restore, form, status):
    """Not as a search space; and of trials that have ended, too, since a population may take over their settings."""
    directory, records = interrupted(tmp_path, num_samples=2)
    own = {"env": "CartPole-v1"}
    foreign = {**own, **LITERAL[form](str(tmp_path / "elsewhere"))}
    of_dqn(directory, records, own, own)
    records = [json.loads(line) for line in journal(directory).read_text().splitlines()]
    (ended,) = (each["id"] for each in records if each.get("status") == "TERMINATED")
    (other,) = {each["id"] for each in records if each["type"] == "trial"} - {ended}
    chosen = ended if status == "TERMINATED" else other
    write(directory, [{**each, **for_header(foreign)} if each["type"] == "trial" and each["id"] == chosen else each
                      for each in records])  # fmt: skip
    with pytest.raises(CheckpointError, match=rf"a trial of {directory} has output.*elsewhere"):
        restore(directory)


PLACE = "/elsewhere"
FORGED = {
    "choice": (tune.choice(["a"]), {"values": {"$dict": [[0, PLACE]]}}),
    "choice of a set": (tune.choice(["a"]), {"values": {"rllib.tune": "Counter", "attributes": {"$dict": [["a", 1]]}}}),
    "choice of nothing": (tune.choice(["a"]), {"values": []}),
    "uniform": (tune.uniform(0, 1), {"_bounds": [0, PLACE]}),
    "quniform": (tune.quniform(0, 1, 0.5), {"q": PLACE}),
    "loguniform": (tune.loguniform(1, 2), {"_bounds": [-1, 2]}),
    "randint": (tune.randint(0, 3), {"_bounds": [PLACE, PLACE]}),
    "qrandint": (tune.qrandint(1, 3), {"q": PLACE}),
    "lograndint": (tune.lograndint(1, 3), {"_ends": [PLACE, PLACE], "_bounds": None}),
    "randn": (tune.randn(), {"mean": PLACE}),
    "qrandn": (tune.qrandn(0, 1, 1), {"q": PLACE}),
}


@pytest.mark.parametrize("kind", FORGED)
@pytest.mark.parametrize("where", ["space", "mutations"])
def test_domains_of_a_journal_are_such_as_a_program_can_make(tmp_path, restore, kind, where):
    directory, records = interrupted(tmp_path)
    domain, attributes = FORGED[kind]
    space = {"env": "CartPole-v1", **({"output": domain} if where == "space" else {})}
    of_dqn(directory, records, space, {"env": "CartPole-v1"})
    header, *records = [json.loads(line) for line in journal(directory).read_text().splitlines()]
    if where == "mutations":
        header, *records = with_setting([header, *records], "scheduler", population({"output": domain}))
        saved = header["settings"]["scheduler"]["exact"]["attributes"]["_mutations"]["output"]
    else:
        saved = header["space"]["exact"]["output"]
    assert attributes.keys() <= saved["attributes"].keys()
    saved["attributes"] |= attributes
    write(directory, [header, *records])
    with pytest.raises(DamagedFileError, match=rf"{journal(directory)} is damaged: its first record"):
        restore(directory)


@pytest.mark.parametrize(
    "name, value",
    [("_mutations", {"output": {"$set": [PLACE]}}), ("_mutations", {"output": PLACE}), ("_mutations", [PLACE]),
     ("_factors", [PLACE]), ("_factors", [])],
)  # fmt: skip
def test_populations_of_a_journal_are_such_as_a_program_can_make(tmp_path, name, value):
    directory, records = interrupted(tmp_path)
    header, *records = with_setting(records, "scheduler", population({"rate": [1.0]}))
    assert name in header["settings"]["scheduler"]["exact"]["attributes"]
    header["settings"]["scheduler"]["exact"]["attributes"][name] = value
    write(directory, [header, *records])
    with pytest.raises(DamagedFileError, match=rf"{journal(directory)} is damaged: its first record: .*scheduler: "):
        tune.Tuner.restore(directory, Climber)


@pytest.mark.parametrize(
    "domain",
    [tune.choice([1, (2, 3)]), tune.uniform(0, 1), tune.quniform(0.05, 1, 0.1), tune.loguniform(1e-5, 1),
     tune.qloguniform(1, 9, 0.5), tune.randint(0, 9), tune.qrandint(0, 9, 2), tune.lograndint(1, 9),
     tune.qlograndint(1, 9, 2), tune.randn(1, 2), tune.qrandn(0, 1, 0.5), tune.uniform(0, 1).quantized(0.25),
     tune.randint(0, 9).quantized(3)],
    ids=repr,
)  # fmt: skip
def test_a_domain_is_the_same_after_it_was_written(domain):
    read = ValueReader()(json.loads(json.dumps(written(domain), default=repr)))
    assert vars(read) == vars(domain) and repr(read) == repr(domain)
    assert read.sample(size=9, random_state=1) == domain.sample(size=9, random_state=1)


# ---------------------------------------------------------------------- places of the program


def of_height(place: str) -> OptunaSearch:
    return OptunaSearch(space={"output": tune.choice([place, "logdir"])}, metric="height", mode="max", seed=1)


PARTS = {
    "scheduler": lambda place: population({"output": [place, "logdir"]}),
    "scheduler, in a section": lambda place: population({"offline_data": {"output": tune.choice([place])}}),
    "search_alg": of_height,
    "search_alg, wrapped": lambda place: ConcurrencyLimiter(of_height(place), 2),
}


@pytest.mark.parametrize("kind", PARTS)
def test_places_of_a_scheduler_or_searcher_that_is_given_again_are_taken(tmp_path, restore, kind):
    """Of trials that it has changed; of the experiment's own they are refused."""
    directory, records = interrupted(tmp_path)
    place, own = str(tmp_path / "elsewhere"), {"env": "CartPole-v1"}
    make, (name, *_) = PARTS[kind], kind.split(",")
    of_dqn(directory, records, own, {**own, "output": place})
    before = journal(directory).read_text()
    for given in ({}, {"param_space": own}):
        with pytest.raises(CheckpointError, match=r"has output=.*elsewhere.*give output again"):
            restore(directory, **given)
        restore(directory, tune_config=tune.TuneConfig(**{name: make(place)}), **given)
        journal(directory).write_text(before)
    tune.run("DQN", config=own, name="e", storage_path=tmp_path, resume=True, verbose=0, **{name: make(place)})
    records = [json.loads(line) for line in before.splitlines()]
    write(directory, with_setting(records, name, make(place)))
    who = {"scheduler": "scheduler", "search_alg": "searcher"}[name]
    for given in ({}, {"param_space": own}):
        with pytest.raises(CheckpointError, match=f"the {who} of {directory} has output=.*elsewhere"):
            restore(directory, **given)


@pytest.mark.parametrize("wrap", [lambda repeater: repeater, lambda repeater: Seeded(repeater, 1)])
def test_a_searcher_repeats_no_configuration_with_a_place(tmp_path, restore, wrap):
    """Which its state holds, in search_state.json."""
    directory, records = interrupted(tmp_path)
    own, place = {"env": "CartPole-v1"}, str(tmp_path / "elsewhere")
    of_dqn(directory, records, own, own)
    searcher = wrap(Repeater(BasicVariant(), repeat=3))
    searcher.set_search_properties("episode_reward_mean", "max", own)
    state = searcher.get_state()
    (state if "newest" in state else state["searcher"]).update(
        newest=["t", {**own, "output": place}], given=1, scores={"t": []}
    )
    saved = {"position": len(records), "searcher": state, "scheduler": {}, "stopper": None, "verdicts": {}}
    config = tune.TuneConfig(search_alg=searcher, metric="episode_reward_mean", mode="max")
    restore(directory, tune_config=config)
    (directory / "search_state.json").write_text(json.dumps(saved))
    with pytest.raises(CheckpointError, match=rf"a trial of {directory} has output=.*elsewhere"):
        restore(directory, tune_config=config)


class Folders(Domain):
    """A domain of the user's."""

    def __init__(self, parent: Path, says: bool):
        self.parent = parent
        if says:
            self.__class__ = FoldersThatSay

    def draw(self, rng):
        return f"{self.parent}/{rng.randint(0, 9)}"


class FoldersThatSay(Folders):
    def contains(self, value):
        return Path(value).parent == self.parent


def functions(parent: Path) -> dict:
    """Space -> whether the program can tell its own places."""
    by_gamma = tune.sample_from(lambda spec: f"{parent}/{spec.config.gamma}")
    return {
        "of settings": ({"output": by_gamma, "gamma": tune.grid_search([0.5, 0.9])}, True),
        "a lambda": ({"output": lambda spec: f"{parent}/{spec.config.gamma}", "gamma": tune.uniform(0, 1)}, True),
        "in a choice": ({"output": tune.choice(["logdir", by_gamma]), "gamma": tune.choice([0.5])}, True),
        "in a section": ({"offline_data": {"output": tune.sample_from(lambda spec: f"{parent}/0.5")}}, True),
        "of chance": ({"output": tune.sample_from(lambda spec: f"{parent}/{os.urandom(8).hex()}")}, False),
        "a domain that says what it draws": ({"output": Folders(parent, says=True)}, True),
        "a domain": ({"output": Folders(parent, says=False)}, False),
    }


@pytest.mark.parametrize("kind", functions(Path("/x")))
def test_places_that_the_programs_functions_return_are_taken(tmp_path, restore, kind):
    """They are called again; what they do not return could be anybody's."""
    directory, records = interrupted(tmp_path)
    parent, own = tmp_path / "elsewhere", {"env": "CartPole-v1", "gamma": 0.5}
    space, tells = functions(parent)[kind]
    space = {"env": "CartPole-v1", **space}

    def written_by(place: str, **more) -> Path:
        """The experiment with a trial of this place."""
        of_dqn(directory, records, space, {**own, "output": place, **more})
        return directory

    more = {} if "gamma" in space else {"gamma": 0.99}
    for place, is_own in ((f"{parent}/0.5", tells), (f"{parent}/../victim", False), (str(tmp_path / "victim"), False)):
        if is_own:
            restore(written_by(place, **more), param_space=space)
            continue
        with pytest.raises(CheckpointError, match=rf"a trial of {directory} has output="):
            restore(written_by(place, **more), param_space=space)
    if kind == "of settings":  # what it depends on is not to be had from the file either
        with pytest.raises(CheckpointError, match=rf"a trial of {directory} has output="):
            restore(written_by(f"{parent}/../victim", gamma="../victim"), param_space=space)
    restore(written_by(f"{parent}/0.5"), param_space=space, load_user_code=True)


@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("where", ["space", "trial", "scheduler"])
def test_relative_places_lead_from_where_a_trial_works(tmp_path, monkeypatch, restore, moves, where):
    """Which is its directory, and only without chdir_to_trial_dir the driver's."""
    directory, records = interrupted(tmp_path)
    deep = directory / "a" / "b" / "c"
    deep.mkdir(parents=True)
    own = {"env": "CartPole-v1"}
    for cwd, place, is_inside in (
        (tmp_path, "steps", moves),
        (tmp_path, "../steps", moves),
        (tmp_path, "../../steps", False),
        (deep, "../../steps", not moves),
        (deep, "steps", True),
        (deep, "~/steps", False),
    ):
        monkeypatch.chdir(cwd)
        config = {**own, "output": place}
        of_dqn(directory, records, config if where == "space" else own, config if where != "scheduler" else own)
        header, *rest = [json.loads(line) for line in journal(directory).read_text().splitlines()]
        if where == "scheduler":
            header, *rest = with_setting([header, *rest], "scheduler", population({"output": [place]}))
        write(directory, with_setting([header, *rest], "chdir_to_trial_dir", moves))
        if not is_inside:
            with pytest.raises(CheckpointError, match=f"has output='{place}', .* outside of {directory}"):
                restore(directory)
        if is_inside or where == "space":
            restore(directory, **({} if is_inside else {"param_space": config}))
