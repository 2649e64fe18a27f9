"""What kill -9 of the driver leaves behind, at any moment, and what becomes of it."""

import shutil
from pathlib import Path

import pytest

import runtime
from rllib import tune
from rllib.tune.schedulers import create_scheduler
from rllib.tune.searchers import create_searcher


@pytest.fixture(scope="module", autouse=True)
def two_cpus():
    runtime.init(num_cpus=2, preload=["numpy", "rllib.tune.trial_actor"])
    yield
    runtime.shutdown()


class Climber(tune.Trainable):
    def setup(self, config):
        self.height = 0.0

    def step(self):
        self.height += self.config["rate"]
        return {"height": self.height, "rate": self.config["rate"]}

    def save_checkpoint(self, checkpoint_dir):
        return {"height": self.height}

    def load_checkpoint(self, checkpoint):
        self.height = checkpoint["height"]


class CopiesEverything(tune.Callback):
    """At every event, what a driver that is killed now leaves on the disk."""

    def __init__(self, experiment: Path, copies: Path):
        self.experiment, self.copies, self.paths = experiment, copies, []

    def copy(self, **info):
        self.paths.append(self.copies / f"at_{len(self.paths)}")
        shutil.copytree(self.experiment, self.paths[-1])

    on_trial_start = on_trial_result = on_trial_save = on_checkpoint = on_trial_complete = copy


def outcome(analysis):
    return [(t.config, t.status, t.stopped_by, t.last_result["training_iteration"], t.last_result["height"])
            for t in analysis.trials]  # fmt: skip


RATES = tune.grid_search([4.0, 1.0, 3.0, 5.0, 2.0])
SEARCHES = {
    "asha": lambda: {
        "scheduler": create_scheduler("asha", max_t=9, grace_period=1, reduction_factor=2),
        "checkpoint_freq": 2,
    },
    "asha without checkpoints": lambda: {
        "scheduler": create_scheduler("asha", max_t=6, grace_period=1, reduction_factor=2),
    },
    "median": lambda: {
        "scheduler": create_scheduler(
            "median_stopping", time_attr="training_iteration", grace_period=2, min_samples_required=2
        ),
        "stop": {"training_iteration": 5},
        "checkpoint_freq": 3,
    },
    "hyperband": lambda: {"scheduler": create_scheduler("hyperband", max_t=9, reduction_factor=3)},
    "pbt": lambda: {
        "scheduler": create_scheduler(
            "pbt", time_attr="training_iteration", perturbation_interval=2, seed=3,
            hyperparam_mutations={"rate": [1.0, 2.0, 3.0, 4.0, 5.0]},
        ),
        "stop": {"training_iteration": 8},
    },
    "tpe": lambda: {
        "config": {"rate": tune.uniform(0, 5)},
        "num_samples": 8,
        "search_alg": create_searcher("optuna", seed=1, n_startup_trials=3),
        "stop": {"training_iteration": 2},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SEARCHES)
def test_a_killed_experiment_ends_as_it_would_have(tmp_path, monkeypatch, name):
    # What is not in the first state of searcher and scheduler is in the journal alone.
    monkeypatch.setattr("rllib.tune.experiment._SNAPSHOT_SHARE", 10**9)
    if name == "tpe":
        pytest.importorskip("optuna")

    def run(directory, **more):
        return tune.run(Climber, **{"name": directory.name, "storage_path": directory.parent, "metric": "height",
                        "mode": "max", "config": {"rate": RATES}, "max_concurrent_trials": 1, "verbose": 0,
                        "tensorboard": False, **SEARCHES[name](), **more})  # fmt: skip

    copies = CopiesEverything(tmp_path / "whole", tmp_path)
    expected = outcome(run(tmp_path / "whole", callbacks=[copies]))
    chosen = copies.paths[:: max(len(copies.paths) // 6, 1)]
    for path in chosen:
        assert outcome(run(path, resume=True)) == expected, f"killed at event {path.name} of {len(copies.paths)}"


class Records(tune.schedulers.TrialScheduler):
    needs_metric = False

    def __init__(self):
        super().__init__()
        self.iterations = []

    def on_trial_result(self, runner, trial, result):
        self.iterations.append(result["training_iteration"])
        return self.CONTINUE


class FailsOnce(Climber):
    def step(self):
        marker = Path(self.logdir, "failed")
        if self.iteration == 5 and not marker.exists():
            marker.touch()
            raise RuntimeError("once")
        return super().step()


def test_results_that_come_again_after_a_failure_are_judged_once(tmp_path):
    scheduler = Records()
    [trial] = tune.run(FailsOnce, config={"rate": 1.0}, stop={"training_iteration": 8}, checkpoint_freq=3, verbose=0,
                       scheduler=scheduler, max_failures=1, storage_path=tmp_path, tensorboard=False).trials  # fmt: skip
    assert trial.last_result["height"] == 8.0 and trial.num_failures == 1
    assert scheduler.iterations == [1, 2, 3, 4, 5, 6, 7]


def test_a_restart_of_errored_trials_forgets_their_checkpoints(tmp_path):
    settings = {"name": "x", "storage_path": tmp_path, "stop": {"training_iteration": 8}, "config": {"rate": 1.0},
                "checkpoint_freq": 3, "verbose": 0, "tensorboard": False}  # fmt: skip
    tune.run(FailsOnce, raise_on_failed_trial=False, **settings)
    [trial] = tune.run(FailsOnce, resume="RESTART_ERRORED", **settings).trials
    assert trial.last_result["iterations_since_restore"] == 8 and trial.status == "TERMINATED"
