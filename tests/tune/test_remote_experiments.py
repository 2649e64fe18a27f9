"""Experiments with a copy in remote storage: what it holds, and that they continue from it."""

import shutil

import climber
import pytest

pytest.importorskip("fsspec")

from rllib import tune
from tests.storage_fakes import Shaky, at_once, content_of

pytestmark = pytest.mark.usefixtures("two_cpus")
URL = "shaky://bucket/experiments"


@pytest.fixture(autouse=True)
def storage(monkeypatch, tmp_path):
    Shaky.begin(loss=0.03)
    at_once(monkeypatch)
    monkeypatch.setenv("RLLIB_RESULTS_DIR", str(tmp_path / "results"))
    yield
    assert Shaky.faults == []


class BreaksOff(tune.Callback):
    """Ends the driver, as a crash would, when the experiment has this many results for the first time."""

    def __init__(self, after, marker):
        self.left, self.marker = after, marker

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.left -= 1
        if not self.left and not self.marker.exists():
            self.marker.touch()
            raise ConnectionError("the driver's end")


def files_of(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def broken_off(marker, after=3):
    tuner = tune.Tuner(
        climber.Climber,
        param_space={"rate": tune.grid_search([1.0, 2.0])},
        tune_config=tune.TuneConfig(max_concurrent_trials=1, metric="height", mode="max"),
        run_config=tune.RunConfig(
            name="x", storage_path=URL, verbose=0, callbacks=[BreaksOff(after, marker)], stop={"training_iteration": 4},
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1, checkpoint_frequency=1),
        ),
    )  # fmt: skip
    with pytest.raises(Exception, match="the driver's end"):
        tuner.fit()


def test_the_copy_is_the_experiment(tmp_path):
    analysis = tune.run(
        climber.Climber, name="x", storage_path=URL, config={"rate": tune.grid_search([1.0, 2.0])}, verbose=0,
        stop={"training_iteration": 4}, checkpoint_freq=1, keep_checkpoints_num=1, metric="height", mode="max",
    )  # fmt: skip
    assert analysis.experiment_path == str(tmp_path / "results" / "x")
    assert content_of(f"{URL}/x") == files_of(tmp_path / "results" / "x")


def test_an_experiment_continues_on_another_machine(tmp_path):
    broken_off(tmp_path / "broken")
    shutil.rmtree(tmp_path / "results")
    assert tune.Tuner.can_restore(f"{URL}/x") and not tune.Tuner.can_restore(f"{URL}/y")
    results = tune.Tuner.restore(f"{URL}/x", climber.Climber, load_user_code=True).fit()
    assert [result.metrics["training_iteration"] for result in results] == [4, 4] and not results.errors
    assert [result.metrics["height"] for result in results] == [4.0, 8.0]
    assert content_of(f"{URL}/x") == files_of(tmp_path / "results" / "x")
    checkpoints = {name.split("/")[1] for name in content_of(f"{URL}/x") if "/checkpoint_" in name}
    assert checkpoints == {"checkpoint_000004"}


def test_resume_takes_the_directory_here_or_the_copy(tmp_path):
    settings = {
        "name": "x", "storage_path": URL, "config": {"rate": 1.0}, "verbose": 0, "checkpoint_freq": 1,
    }  # fmt: skip
    tune.run(climber.Climber, stop={"training_iteration": 2}, **settings)
    shutil.rmtree(tmp_path / "results")
    analysis = tune.run(climber.Climber, stop={"training_iteration": 2}, resume=True, **settings)
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"]
    analysis = tune.run(climber.Climber, stop={"training_iteration": 2}, resume="AUTO", **settings)
    assert analysis.experiment_path == str(tmp_path / "results" / "x")
    with pytest.raises(ValueError, match=rf"there is no experiment 'y' in .*results or {URL} to resume"):
        tune.run(climber.Climber, resume=True, **{**settings, "name": "y"})


def test_a_name_that_is_taken_in_storage_gets_a_number(tmp_path):
    settings = {"name": "x", "config": {"rate": 1.0}, "verbose": 0, "stop": {"training_iteration": 1}}
    tune.run(climber.Climber, storage_path=URL, **settings)
    shutil.rmtree(tmp_path / "results")
    analysis = tune.run(climber.Climber, upload_dir=URL, local_dir=tmp_path / "mine", **settings)
    assert analysis.experiment_path == str(tmp_path / "mine" / "x_2")
    assert content_of(f"{URL}/x_2") == files_of(tmp_path / "mine" / "x_2")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"local_dir": URL}, "a directory of this machine; storage_path takes URLs"),
        ({"storage_path": "memry://x"}, "fsspec knows no protocol 'memry'"),
        ({"storage_path": "hf://org/name"}, "rllib push writes there"),
    ],
)
def test_a_place_that_cannot_be_is_refused(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        tune.run(climber.Climber, name="x", config={"rate": 1.0}, verbose=0, **settings)
    assert not (tmp_path / "results").exists()
