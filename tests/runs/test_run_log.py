"""`.reporting(log_dir=)`: what an Algorithm writes, when it goes on, and what it does not mix."""

import json
from pathlib import Path

import pytest

from rllib import Algorithm, PPOConfig, tune
from rllib.runs import sidecar
from rllib.runs.files import read_results
from rllib.runs.run_log import RunLog
from rllib.tune.reporting.runs import read_runs
from rllib.tune.trainables.resolve import resolve_trainable


@pytest.fixture
def config(tmp_path):
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1)
        .reporting(log_dir=tmp_path / "run")
    )


def iterations(directory: Path) -> list[int]:
    return [result["training_iteration"] for result in read_results(directory)]


@pytest.mark.sidecar
def test_a_run_has_the_files_of_rllib_train(config, tmp_path):
    run = tmp_path / "run"
    with config.build() as algo:
        assert not run.exists(), "an algorithm that does not train writes nothing"
        algo.train()
        algo.train()
        assert algo.save() == run / "checkpoint_000002"
    assert iterations(run) == [1, 2]
    params = json.loads((run / "params.json").read_text())
    assert (params["algorithm"], params["train_batch_size"]) == ("PPO", 64)
    assert len((run / "progress.csv").read_text().splitlines()) == 3
    assert list(run.glob("events.out.tfevents*")) and (run / "curve.png").exists()
    assert [len(each.results) for each in read_runs(run)] == [2]


@pytest.mark.sidecar
def test_the_process_beside_a_killed_run_is_waited_for(tmp_path, monkeypatch):
    (tmp_path / "result.json").touch()
    earlier = sidecar.SidecarLogger(tmp_path)
    earlier.start()
    log = RunLog(tmp_path)
    monkeypatch.setattr(sidecar, "_CLOSE_S", 0.1)
    with pytest.raises(TimeoutError, match=r"the earlier run in .* was still there after 0\.1 s"):
        log.forget_after(0)
    monkeypatch.undo()
    earlier.finish()  # as the end of its run does
    log.forget_after(0)
    earlier.close()
    log.close()


def test_restoring_takes_later_results_out(config, tmp_path):
    with config.build() as algo:
        algo.train()
        checkpoint = algo.save()
        algo.train()
        algo.restore(checkpoint)
        algo.train()
        algo.train()
    assert iterations(tmp_path / "run") == [1, 2, 3]
    with Algorithm.from_checkpoint(checkpoint) as algo:
        assert iterations(tmp_path / "run") == [1, 2, 3], "it may only be looked at"
        algo.train()
    assert iterations(tmp_path / "run") == [1, 2]


def test_two_runs_are_not_mixed(config, tmp_path):
    with config.build() as algo:
        algo.train()
        checkpoint = algo.save()
        with Algorithm.from_checkpoint(checkpoint) as other, pytest.raises(BlockingIOError, match="by another run"):
            other.train()
        with pytest.raises(ValueError, match=r"holds a run of 1 iteration. Choose another directory"):
            config.copy(copy_frozen=False).build()
    assert iterations(tmp_path / "run") == [1]


def test_the_settings_of_a_worker_can_be_had_beside_a_run(config):
    with config.build() as algo:
        algo.train()
        settings, weights = config.get_rollout_settings()
    assert len(weights) == algo.policy.weights.size and settings.env is not None


def never_called(config):
    raise AssertionError("the first experiment ran")


def test_a_trial_has_its_own_directory(config, tmp_path):
    trainable = resolve_trainable("PPO").cls
    with pytest.raises(ValueError, match="log_dir is for a single run"):
        trainable(config={"env": "CartPole-v1", "log_dir": str(tmp_path / "run")})
    with pytest.raises(ValueError, match="log_dir is for a single run"):
        tune.run("PPO", config={"env": "CartPole-v1", "log_dir": str(tmp_path / "run")}, storage_path=tmp_path / "all")
    with pytest.raises(ValueError, match="log_dir is for a single run"):
        tune.run(config.copy(copy_frozen=False), storage_path=tmp_path / "all")
    second = {"run": "PPO", "config": {"env": "CartPole-v1", "log_dir": str(tmp_path / "run")}}
    with pytest.raises(ValueError, match="log_dir is for a single run"):
        tune.run_experiments({"first": {"run": never_called}, "second": second}, storage_path=tmp_path / "all")
    assert not list(tmp_path.iterdir()), "it is refused before anything is written"
