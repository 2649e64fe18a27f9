"""Schedulers, Tuner, TensorBoard and resume of many trials, through whole experiments."""

import itertools
import json
import os
import time
from pathlib import Path

import climber
import pytest

from rllib import tune
from rllib.tune.experiment.directory import Journal
from rllib.tune.reporting.analysis import ExperimentAnalysis
from rllib.tune.schedulers import create_scheduler
from tests.runtime.runtime_support import wait_until

pytestmark = pytest.mark.usefixtures("two_cpus")


class Climber(climber.Climber):
    """Its checkpoints are files, not a dict."""

    def save_checkpoint(self, checkpoint_dir):
        Path(checkpoint_dir, "height").write_text(str(self.height))

    def load_checkpoint(self, checkpoint_dir):
        self.height = float(Path(checkpoint_dir, "height").read_text())


class SlowClimber(Climber):
    """Slow enough that all of a population run at the same time."""

    def step(self):
        time.sleep(0.02)
        return super().step()


def climb(config):
    for i in range(1, 17):
        tune.report(height=i * config["rate"])


def lines(trial):
    return [json.loads(line) for line in (Path(trial.logdir) / "result.json").read_text().splitlines()]


def events(directory):
    return b"".join(path.read_bytes() for path in directory.glob("events.out.tfevents*"))


def test_asha_stops_bad_trials(tmp_path):
    analysis = tune.run(
        climb, config={"rate": tune.grid_search([4.0, 3.0, 2.0, 1.0])}, metric="height", mode="max", verbose=0,
        scheduler=create_scheduler("asha", max_t=16, grace_period=1, reduction_factor=4), storage_path=tmp_path,
        max_concurrent_trials=1, tensorboard=False,
    )  # fmt: skip
    iterations = [trial.last_result["training_iteration"] for trial in analysis.trials]
    assert iterations == [16, 1, 1, 1] and analysis.best_config == {"rate": 4.0}
    assert [trial.stopped_by for trial in analysis.trials[1:]] == ["the scheduler"] * 3


def test_hyperband_pauses_trials_and_has_them_go_on(tmp_path):
    analysis = tune.run(
        Climber, config={"rate": tune.grid_search([1.0, 2.0, 3.0, 4.0, 5.0])}, metric="height", mode="max", verbose=0,
        scheduler=create_scheduler("hyperband", max_t=9, reduction_factor=3), storage_path=tmp_path,
        stop={"training_iteration": 9}, tensorboard=False,
    )  # fmt: skip
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"}
    assert analysis.best_config == {"rate": 5.0} and analysis.best_result["height"] == 45.0
    for trial in analysis.trials:
        assert [line["training_iteration"] for line in lines(trial)] == list(range(1, len(lines(trial)) + 1))


def test_population_based_training_copies_weights_and_hyperparameters(tmp_path):
    scheduler = create_scheduler(
        "pbt", time_attr="training_iteration", perturbation_interval=4, resample_probability=0.0,
        hyperparam_mutations={"rate": [1.0, 2.0, 4.0, 8.0]}, quantile_fraction=0.25,
    )  # fmt: skip
    analysis = tune.run(
        SlowClimber, config={"rate": tune.grid_search([1.0, 8.0, 8.0, 8.0])}, metric="height", mode="max", verbose=0,
        scheduler=scheduler, storage_path=tmp_path, stop={"training_iteration": 24}, resources_per_trial={"cpu": 0.5},
        tensorboard=False,
    )  # fmt: skip
    worst = analysis.trials[0]
    results = lines(worst)
    jumps = [b for a, b in itertools.pairwise(results) if b["height"] - a["height"] > 9]
    assert jumps, "the worst trial never took over the weights of another"
    assert worst.config["rate"] > 1.0 and worst.last_result["height"] > 24
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"}
    assert (Path(analysis.experiment_path) / "pbt_global.txt").exists()
    assert "height" in analysis.plot().read_text()


def falls(config):
    """Saves itself at its first and every fourth step; its score falls in training."""
    checkpoint = tune.get_checkpoint()
    step = checkpoint.to_dict()["step"] if checkpoint else 0
    while step < 10:
        step += 1
        saved = {"checkpoint": tune.Checkpoint.from_dict({"step": step})} if step % 4 == 1 else {}
        tune.report({"score": -step * config["rate"], "step": step}, **saved)


def test_population_based_training_of_functions_whose_metric_falls_ends(tmp_path):
    """With more trials than places, so that functions are paused, too."""
    pbt = create_scheduler("pbt", time_attr="training_iteration", perturbation_interval=2, seed=0,
                           hyperparam_mutations={"rate": [1.0, 2.0]})  # fmt: skip
    analysis = tune.run(
        falls, config={"rate": tune.grid_search([1.0, 2.0, 3.0])}, scheduler=pbt, metric="score", mode="max",
        storage_path=tmp_path, verbose=0, tensorboard=False, time_budget_s=60,
    )  # fmt: skip
    assert [(trial.stopped_by, trial.last_result["step"]) for trial in analysis.trials] == [(None, 10)] * 3


def test_a_function_that_was_paused_has_each_result_once(tmp_path):
    heard = []

    class PausesAll(tune.schedulers.TrialScheduler):
        def on_trial_result(self, runner, trial, result):
            heard.append((trial.trial_id, result["step"]))
            return self.PAUSE if result["step"] in (3, 6) else self.CONTINUE

    analysis = tune.run(falls, config={"rate": tune.grid_search([1.0, 2.0])}, scheduler=PausesAll("score", "max"),
                        storage_path=tmp_path, verbose=0, tensorboard=False)  # fmt: skip
    for trial in analysis.trials:
        results = (Path(trial.logdir) / "result.json").read_text().splitlines()
        assert [json.loads(line)["step"] for line in results] == list(range(1, 11))
        assert [step for trial_id, step in heard if trial_id == trial.trial_id] == list(range(1, 11))


def test_a_scheduler_whose_metric_no_result_has(tmp_path):
    with pytest.raises(ValueError, match=r"metric: the results have no hight. Did you mean height\?"):
        tune.run(climb, config={"rate": 1.0}, metric="hight", mode="max", scheduler="asha", verbose=0,
                 storage_path=tmp_path, tensorboard=False)  # fmt: skip
    (path,) = tmp_path.iterdir()
    assert len(ExperimentAnalysis(path).trials) == 1
    with pytest.raises(ValueError, match="mode is missing"):
        tune.run(climb, config={"rate": 1.0}, metric="height", scheduler="asha", verbose=0, storage_path=tmp_path)


def test_tuner_and_its_restore(tmp_path):
    def fails(config):
        marker = tmp_path / "failed"
        if config["a"] == 2 and not marker.exists():
            marker.touch()
            raise ValueError("once")
        return {"loss": config["a"]}

    tuner = tune.Tuner(
        fails, param_space={"a": tune.grid_search([1, 2, 3])}, tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name="x", storage_path=tmp_path / "results", verbose=0),
    )  # fmt: skip
    grid = tuner.fit()
    assert (len(grid), grid.num_errors, grid.num_terminated) == (3, 1, 2)
    assert isinstance(grid.errors[0], ValueError) and grid[1].error is grid.errors[0]
    best = grid.get_best_result()
    assert best.config == {"a": 1} and best.metrics["loss"] == 1 and best.checkpoint is None
    assert tune.Tuner.can_restore(grid.experiment_path) and not tune.Tuner.can_restore(tmp_path)
    again = tune.Tuner.restore(grid.experiment_path, fails, resume_errored=True).fit()
    assert (len(again), again.num_errors) == (3, 0) and again.get_best_result().path == best.path


def test_a_restored_tuner_draws_what_had_not_been_drawn(tmp_path):
    def interrupts(config):
        marker = tmp_path / "interrupted"
        if config["a"] > 2 and not marker.exists():
            marker.touch()
            raise KeyError("stop here")
        return {"loss": config["b"]}

    space = {"a": tune.grid_search(list(range(12))), "b": tune.uniform(0, 1)}
    tuner = tune.Tuner(
        interrupts, param_space=space, tune_config=tune.TuneConfig(max_concurrent_trials=1),
        run_config=tune.RunConfig(name="x", storage_path=tmp_path / "results", verbose=0,
                                  failure_config=tune.FailureConfig(fail_fast="raise")),
    )  # fmt: skip
    with pytest.raises(KeyError):
        tuner.fit()
    path = tmp_path / "results" / "x"
    before = {trial.trial_id: trial.config for trial in ExperimentAnalysis(path).trials}
    grid = tune.Tuner.restore(path, interrupts, resume_errored=True).fit()
    assert [result.config["a"] for result in grid] == list(range(12)) and grid.num_terminated == 12
    assert all(result.trial.config == before.get(result.trial.trial_id, result.trial.config) for result in grid)


def test_checkpoints_that_stay_are_the_best(tmp_path):
    class UpAndDown(Climber):
        def step(self):
            self.height = -abs(self.iteration - 3.0)
            return {"height": self.height}

    analysis = tune.run(
        UpAndDown, stop={"training_iteration": 8}, metric="height", mode="max", verbose=0, storage_path=tmp_path,
        checkpoint_config=tune.CheckpointConfig(2, "height", checkpoint_frequency=1), tensorboard=False,
    )  # fmt: skip
    (trial,) = analysis.trials
    names = sorted(path.name for path in Path(trial.logdir).glob("checkpoint_*"))
    assert names == ["checkpoint_000004", "checkpoint_000005", "checkpoint_000008"]
    assert analysis.best_checkpoint.path.endswith("checkpoint_000004")


@pytest.mark.sidecar
def test_one_process_writes_the_events_of_all_trials(tmp_path):
    analysis = tune.run(climb, config={"rate": tune.grid_search([1.0, 2.0])}, verbose=0, storage_path=tmp_path)
    for trial in analysis.trials:
        wait_until(lambda directory=Path(trial.logdir): events(directory).count(b"height") >= 16, 50)
        wait_until(lambda directory=Path(trial.logdir): b"_hparams_" in events(directory), 50)


def test_a_thousand_finished_trials_are_taken_up_in_two_seconds(tmp_path):
    first = tune.run(
        lambda config: {"loss": config["a"]}, name="x", config={"a": tune.grid_search([1, 2])}, verbose=0,
        storage_path=tmp_path, tensorboard=False,
    )  # fmt: skip
    (file,) = Path(first.experiment_path).glob("experiment_state-*.json")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    of_one = [record for record in records if record.get("id") == first.trials[0].trial_id]
    journal = Journal(file)
    for number in range(2, 1000):
        for record in of_one:
            journal.append({**record, "id": f"{first.trials[0].trial_id[:5]}_{number:05d}", "index": number})
    journal.close()
    state = Path(first.experiment_path, "search_state.json")
    saved = json.loads(state.read_text())
    saved["position"], saved["searcher"]["next"] = len(file.read_text().splitlines()), 1000
    state.write_text(json.dumps(saved))
    began = time.process_time()  # of this process alone: others may be busy
    again = tune.run(
        lambda config: {"loss": config["a"]}, name="x", config={"a": tune.grid_search([1, 2])}, verbose=0,
        storage_path=tmp_path, tensorboard=False, resume=True,
    )  # fmt: skip
    assert time.process_time() - began < 2.0
    assert len(again.trials) == 1000 and len(ExperimentAnalysis(first.experiment_path).trials) == 1000


def test_two_drivers_cannot_run_one_experiment(tmp_path):
    first = tune.run(lambda config: 1.0, name="x", storage_path=tmp_path, verbose=0, tensorboard=False)
    (file,) = Path(first.experiment_path).glob("experiment_state-*.json")
    journal = Journal(file)
    with pytest.raises(ValueError, match="is being run by another process"):
        tune.run(lambda config: 1.0, name="x", storage_path=tmp_path, resume=True, verbose=0)
    journal.close()


def test_what_the_trial_prints_goes_to_its_files(tmp_path):
    def talks(config):
        print("hello from", tune.get_trial_name(), flush=True)
        return {"a": 1}

    (trial,) = tune.run(talks, storage_path=tmp_path, verbose=0, log_to_file=True, tensorboard=False).trials
    assert (Path(trial.logdir) / "stdout").read_text() == f"hello from {trial.name}\n"


def test_with_parameters_and_resources(tmp_path):
    def uses(config, data=None):
        return {"total": sum(data), "cpus": tune.get_trial_resources()["CPU"]}

    trainable = tune.with_resources(tune.with_parameters(uses, data=[1, 2, 3]), {"cpu": 2})
    (trial,) = tune.run(trainable, storage_path=tmp_path, verbose=0, tensorboard=False).trials
    assert (trial.last_result["total"], trial.last_result["cpus"]) == (6, 2) and trial.name == "uses_0"
    other_way_round = tune.with_parameters(tune.with_resources(uses, {"cpu": 2}), data=[1, 2, 3])
    (trial,) = tune.run(other_way_round, storage_path=tmp_path, verbose=0, tensorboard=False).trials
    assert (trial.last_result["total"], trial.last_result["cpus"]) == (6, 2) and trial.name == "uses_0"


def of_one_process(config):
    tune.report(pid_here=os.getpid())


class Resettable(Climber):
    def reset_config(self, new_config):
        self.height = 0.0
        return new_config["rate"] < 3

    def step(self):
        return {**super().step(), "pid_here": os.getpid()}


def test_actors_are_used_again_where_the_trainable_can_start_over(tmp_path):
    settings = {"storage_path": tmp_path, "verbose": 0, "tensorboard": False, "max_concurrent_trials": 1}
    analysis = tune.run(of_one_process, num_samples=4, reuse_actors=True, **settings)
    assert len({trial.last_result["pid_here"] for trial in analysis.trials}) == 1
    assert {trial.last_result["training_iteration"] for trial in analysis.trials} == {1}
    analysis = tune.run(of_one_process, num_samples=4, **settings)
    assert len({trial.last_result["pid_here"] for trial in analysis.trials}) == 4
    analysis = tune.run(Resettable, config={"rate": tune.grid_search([1.0, 2.0, 4.0])}, reuse_actors=True,
                        stop={"training_iteration": 3}, **settings)  # fmt: skip
    assert [trial.last_result["height"] for trial in analysis.trials] == [3.0, 6.0, 12.0]
    first, second, third = (trial.last_result["pid_here"] for trial in analysis.trials)
    assert first == second != third


class AsMuchAsItSays(Resettable):
    @classmethod
    def default_resource_request(cls, config):
        return {"cpu": config["cpu"]}


def test_an_idle_actor_gives_its_resources_to_a_trial_that_needs_others(tmp_path):
    analysis = tune.run(AsMuchAsItSays, config={"rate": 1.0, "cpu": tune.grid_search([2, 1, 2, 1, 1])}, verbose=0,
                        stop={"training_iteration": 3}, reuse_actors=True, max_concurrent_trials=1, time_budget_s=60,
                        storage_path=tmp_path, tensorboard=False)  # fmt: skip
    assert [trial.last_result["height"] for trial in analysis.trials] == [3.0] * 5
    *_, fourth, fifth = (trial.last_result["pid_here"] for trial in analysis.trials)
    assert fourth == fifth
