"""The Tune programs of the source documents, with other import lines and small numpy models."""

import json
from pathlib import Path

import numpy as np
import pytest

from rllib import tune
from rllib.tune import run_experiments
from rllib.tune.reporting.analysis import ExperimentAnalysis
from rllib.tune.reporting.reporters import CLIReporter
from tests.envs import SimpleCorridor

pytestmark = pytest.mark.usefixtures("two_cpus")


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path, monkeypatch):
    monkeypatch.setenv("RLLIB_RESULTS_DIR", str(tmp_path))


def train_mnist(config):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(200, 5))
    labels = inputs @ np.arange(5.0) > 0
    weights = np.zeros(5)
    for _ in range(10):
        predictions = 1 / (1 + np.exp(-inputs @ weights))
        weights += config["lr"] * inputs.T @ (labels - predictions)
        acc = float(((inputs @ weights > 0) == labels).mean())
        tune.track.log(mean_accuracy=acc)


def test_the_first_program_of_seed_000():
    analysis = tune.run(train_mnist, config={"lr": tune.grid_search([0.001, 0.01, 0.1])})
    assert analysis.get_best_config(metric="mean_accuracy")["lr"] in (0.001, 0.01, 0.1)
    assert [trial.last_result["training_iteration"] for trial in analysis.trials] == [10, 10, 10]
    pandas = pytest.importorskip("pandas")
    df = analysis.dataframe()
    assert isinstance(df, pandas.DataFrame) and list(df["config/lr"]) == [0.001, 0.01, 0.1]


def test_simple_corridor_of_seed_000():
    analysis = tune.run(
        "PPO",
        config={"env": SimpleCorridor, "num_workers": 1, "env_config": {"corridor_length": 5}, "train_batch_size": 400,
                "rollout_fragment_length": 200, "sgd_minibatch_size": 100, "num_sgd_iter": 2},
        stop={"training_iteration": 2}, checkpoint_at_end=True,
    )  # fmt: skip
    (trial,) = analysis.trials
    assert trial.name == "PPO_SimpleCorridor_0"
    assert trial.last_result["timesteps_total"] == 800 and trial.last_result["num_healthy_workers"] == 1
    assert trial.checkpoint.iteration == 2
    assert json.loads((Path(trial.logdir) / "params.json").read_text())["seed"] == trial.seed > 0, "it was drawn"
    loaded = ExperimentAnalysis(analysis.experiment_path, default_metric="episode_reward_mean", default_mode="max")
    assert loaded.best_checkpoint.path == trial.checkpoint_path(trial.checkpoint)
    from rllib import Algorithm

    with Algorithm.from_checkpoint(loaded.best_checkpoint.path, {"num_rollout_workers": 0}) as algorithm:
        assert algorithm.train()["training_iteration"] == 3


def train_func(config, reporter):  # add a reporter arg
    for idx in range(4):
        reporter(timesteps_total=idx, mean_accuracy=10 * idx * config["alpha"] * config["beta"])


def test_run_experiments_of_a_registered_function():
    tune.register_trainable("my_func", train_func)
    assert tune.get_trainable_cls("my_func") is train_func
    all_trials = run_experiments({
        "my_experiment_name": {
            "run": "my_func",
            "stop": {"mean_accuracy": 20},
            "config": {"alpha": tune.grid_search([0.2, 0.4, 0.6]), "beta": tune.grid_search([1, 2])},
        },
    })  # fmt: skip
    assert len(all_trials) == 6
    assert [trial.last_result["mean_accuracy"] for trial in all_trials] == pytest.approx([6, 12, 18, 12, 24, 24])


def test_run_experiments_of_the_slides(capsys):
    trials = tune.run_experiments({
        "my_experiment": {
            "run": "PPO",
            "env": "CartPole-v0",
            "stop": {"episode_reward_mean": 200, "training_iteration": 1},
            "config": {
                "num_gpus": 0,
                "num_workers": 1,
                "train_batch_size": 200,
                "sgd_minibatch_size": 100,
                "num_sgd_iter": 1,
                "sgd_stepsize": tune.grid_search([0.01, 0.001, 0.0001]),
            },
        },
    }, progress_reporter=CLIReporter(max_report_frequency=0.0))  # fmt: skip
    assert [trial.name for trial in trials] == [
        f"PPO_CartPole-v0_{index}_sgd_stepsize={lr}" for index, lr in enumerate(("0.01", "0.001", "0.0001"))
    ]
    assert [trial.last_result["config"]["sgd_stepsize"] for trial in trials] == [0.01, 0.001, 0.0001]
    text = capsys.readouterr().out
    for part in (
        "== Status ==\nUsing FIFO scheduling algorithm.\nResources requested: 2/2 CPUs, 0/0 GPUs\nResult logdir: ",
        "my_experiment\nPENDING trials:\n",
        "- PPO_CartPole-v0_2_sgd_stepsize=0.0001:    PENDING\nRUNNING trials:\n",
        "- PPO_CartPole-v0_0_sgd_stepsize=0.01:      RUNNING [pid=",
        "TERMINATED trials:\n",
    ):
        assert part in text, text[:2000]


def test_an_unknown_setting_of_the_algorithm_is_refused_before_anything_runs():
    with pytest.raises(TypeError, match="no setting 'learning_rat'"):
        tune.run("PPO", config={"env": "CartPole-v1", "learning_rat": 0.1}, verbose=0)
