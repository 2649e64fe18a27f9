"""Which runs there are, and what their files prove of their state."""

import base64
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
from dashboard_support import RunOnDisk

from rllib import PGConfig, tune
from rllib.cli.run_directory import RunDirectory
from rllib.dashboard import index as index_module
from rllib.dashboard import journals
from rllib.dashboard import run as run_module
from rllib.dashboard.details import describe, logs, tail
from rllib.dashboard.index import Index
from rllib.tune.experiment.directory import ExperimentDirectory
from rllib.tune.experiment.records import status_record, trial_record
from rllib.tune.experiment.trial import Trial


def _row(index: Index, id: str) -> dict:
    index.refresh()
    while index.is_behind:
        index.refresh()
    return index.runs[id].row


def test_a_run_while_it_trains_and_when_it_has_reached_its_goal(results):
    run, index = RunOnDisk(results, "first", stop={"timesteps_total": 300}, lr=0.01), Index(results)
    row = _row(index, "first")
    assert (row["status"], row["steps"], row["best"], row["spark"]) == ("running", None, None, [])
    run.report(5.0, 9.0)
    row = _row(index, "first")
    assert row["status"] == "running"
    assert (row["algorithm"], row["env"], row["seed"]) == ("PPO", "CartPole-v1", 3)
    assert (row["steps"], row["iteration"], row["rate"]) == (200, 2, 200.0)
    assert (row["best"], row["last"], row["spark"]) == (9.0, 9.0, [5.0, 9.0])
    run.report(None, 7.0)
    run.end()
    row = _row(index, "first")
    assert (row["status"], row["best"], row["last"], row["results"]) == ("finished", 9.0, 7.0, 4)
    assert row["reason"] == "timesteps_total 400 >= 300"


def test_runs_that_ended_before_their_goal(results):
    saved, killed = (RunOnDisk(results, name, stop={"timesteps_total": 1e9}) for name in ("saved", "killed"))
    for run in (saved, killed):
        run.report(1.0)
    saved.save()
    saved.end()
    killed.end()
    index = Index(results)
    assert _row(index, "saved")["status"] == _row(index, "killed")["status"] == "stopped"
    assert "saved at iteration 1" in _row(index, "saved")["reason"]
    assert "killed" in _row(index, "killed")["reason"]


def test_a_failed_run_and_its_next_try(results):
    run, index = RunOnDisk(results, "first"), Index(results)
    run.report(1.0)
    run.save()
    (run.path / "error.txt").write_text("Traceback ...\nValueError: no\n")
    run.end()
    assert _row(index, "first")["status"] == "failed"
    resumed = RunDirectory.taken_up(run.path, run.path.parent)
    resumed.write_spec(run.spec)
    later = os.stat(run.path / "error.txt").st_mtime + 5
    os.utime(run.path / "run.json", (later, later))
    assert _row(index, "first")["status"] == "running"
    resumed.log.close()
    assert _row(index, "first")["status"] == "stopped"


def test_without_run_json_the_state_is_unknown(results):
    (results / "own").mkdir()
    (results / "own" / "result.json").write_text('{"episode_reward_mean": 2.0, "timesteps_total": 10}\n')
    row = _row(Index(results), "own")
    assert (row["status"], row["last"], row["algorithm"]) == ("unknown", 2.0, "")


def test_a_setting_named_algorithm_is_shown(results):
    (results / "own").mkdir()
    (results / "own" / "result.json").write_text('{"score": 2.0}\n')
    (results / "own" / "params.json").write_text('{"algorithm": "sarsa", "lr": 0.1}')
    index = Index(results)
    assert (_row(index, "own")["algorithm"], _row(index, "own")["status"]) == ("", "unknown")
    settings = {each["key"]: each["value"] for each in describe(index.runs["own"])["config"]}
    assert settings == {"algorithm": "sarsa", "lr": 0.1}


def test_a_run_of_log_dir_runs_until_its_algorithm_stops(results):
    config = PGConfig().environment("CartPole-v1").training(train_batch_size=32).reporting(log_dir=results / "own")
    index = Index(results)
    with config.build() as algo:
        algo.train()
        row = _row(index, "own")
        assert (row["status"], row["algorithm"], row["env"]) == ("running", "PG", "CartPole-v1")
    assert _row(index, "own")["status"] == "stopped"
    settings = {each["key"]: each for each in describe(index.runs["own"])["config"]}
    assert settings["train_batch_size"]["differs"] and "algorithm" not in settings


def test_a_run_that_does_not_change_is_not_locked_for_a_look(results, monkeypatch):
    run = RunOnDisk(results, "first")
    run.report(1.0)
    run.end()
    index = Index(results)
    _row(index, "first")

    def refuse(path):
        raise AssertionError("the lock was taken")

    monkeypatch.setattr(run_module, "lock_held", refuse)
    monkeypatch.setattr(journals, "lock_held", refuse)
    index.refresh()


def test_damage_is_shown_beside_what_can_be_read(results):
    run = RunOnDisk(results, "first")
    run.report(4.0)
    run.end()
    with open(run.path / "result.json", "ab") as file:
        file.write(b'nonsense\n{"episode_reward_mean": 6.0}\n{"episode_rew')
    (run.path / "params.json").write_text("{")
    index = Index(results)
    row = _row(index, "first")
    assert (row["best"], row["results"]) == (6.0, 2)
    assert "1 line of result.json cannot be read; line 2: " in row["damage"]
    assert "cut off after 13 bytes" in row["damage"]
    assert any(problem.startswith("params.json: ") for problem in row["problems"])
    assert describe(index.run("first"))["config"] == []  # and not the defaults
    (run.path / "run.json").write_text("[]")
    row = _row(index, "first")
    assert row["status"] == "unknown" and any(problem.startswith("run.json: ") for problem in row["problems"])


@pytest.mark.parametrize("name", ["result.json", "params.json", "run.json", "error.txt", "progress.csv", "journal"])
@pytest.mark.parametrize("kind", ["pipe", "link", "directory"])
def test_what_is_no_regular_file_is_not_read(results, name, kind):
    damaged, whole = RunOnDisk(results, "damaged"), RunOnDisk(results, "whole")
    for run in (damaged, whole):
        run.report(5.0)
        run.end()
    path = damaged.path / name
    if name == "journal":
        path = results / "other" / "experiment_state-0.json"
        path.parent.mkdir()
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    index = Index(results)
    assert _row(index, "whole")["best"] == 5.0
    described = describe(index.runs["damaged"])
    if name.endswith(".json"):
        assert any(name in problem for problem in described["row"]["problems"])


def test_what_has_changed_since_a_version(results):
    RunOnDisk(results, "one").report(1.0)
    two = RunOnDisk(results, "two")
    index = Index(results)
    _row(index, "two")
    whole = index.changes()
    assert whole["whole"] and {row["id"] for row in whole["runs"]} == {"one", "two"}
    assert index.changes(whole["version"]) is None
    two.report(3.0)
    _row(index, "two")
    news = index.changes(whole["version"])
    assert [row["last"] for row in news["runs"]] == [3.0] and not news["whole"] and not news["removed"]
    two.path.rename(results / "three")
    _row(index, "three")
    news = index.changes(news["version"])
    assert [row["id"] for row in news["runs"]] == ["three"] and news["removed"] == ["two"]


def test_links_hidden_directories_and_checkpoints_are_left_out(results, tmp_path):
    outside = RunOnDisk(tmp_path, "outside")
    outside.report(1.0)
    (results / "link").symlink_to(outside.path)
    for name in (".hidden", "checkpoint_000001"):
        (results / name).mkdir()
        (results / name / "result.json").write_text("{}\n")
    inner = RunOnDisk(results / "group" / "sub", "run")
    inner.report(1.0)
    index = Index(results)
    index.refresh()
    assert set(index.runs) == {"group/sub/run"}


def test_the_directory_may_be_a_run_itself(results):
    RunOnDisk(results, "first").report(2.0)
    row = _row(Index(results / "first"), ".")
    assert (row["name"], row["last"]) == ("first", 2.0)


# ---------------------------------------------------------------------- trials


def _objective(config):
    if config["x"] == 3:
        raise RuntimeError("three is too much")
    for step in range(3):
        tune.report(loss=config["x"] ** 2 + step)


def test_trials_of_tune(results):
    tune.run(_objective, config={"x": tune.grid_search([1, 2, 3])}, metric="loss", mode="min", name="search",
             storage_path=results, raise_on_failed_trial=False, verbose=0)  # fmt: skip
    index = Index(results)
    index.refresh()
    while index.is_behind:
        index.refresh()
    rows = sorted((run.row for run in index.runs.values()), key=lambda row: row["params"]["x"])
    assert [row["status"] for row in rows] == ["finished", "finished", "failed"]
    assert [(row["best"], row["last"], row["mode"]) for row in rows[:2]] == [(1.0, 3.0, "min"), (4.0, 6.0, "min")]
    assert rows[2]["reason"] == "RuntimeError: three is too much"
    (experiment,) = index.changes()["experiments"]
    assert (experiment["status"], experiment["counts"]) == ("finished", {"finished": 2, "failed": 1})
    failed = describe(index.runs[rows[2]["id"]])
    assert [log["name"] for log in failed["logs"]] == ["error.txt"]
    assert "three is too much" in tail(logs(index.runs[rows[2]["id"]])[0])[0]
    described = describe(index.runs[rows[0]["id"]])
    assert "loss" in described["metrics"] and described["newest"]["loss"] == 3.0
    assert [(each["key"], each["value"], each["differs"]) for each in described["config"]] == [("x", 1, None)]


def _return(config):
    tune.report(episode_reward_mean=config["x"])


def test_trials_compared_by_a_name_of_later_versions(results):
    metric = "env_runners/episode_return_mean"
    tune.run(_return, config={"x": 2.0}, metric=metric, name="search", storage_path=results, verbose=0)
    index = Index(results)
    index.refresh()
    (run,) = index.runs.values()
    assert (run.row["metric"], run.row["best"], run.row["last"], run.row["spark"]) == (metric, 2.0, 2.0, [2.0])
    assert metric in describe(run)["metrics"]


@pytest.fixture
def experiment(results):
    """An experiment whose journal is written by hand, open as long as the test."""
    directory = ExperimentDirectory.create(results / "search", {"name": "search", "trainable": "f", "id": "a"})
    yield directory
    directory.journal.close()


def _trial(number: int, **more) -> Trial:
    return Trial(f"a_{number}", number, "f", {"x": number}, {"x": number}, **more)


def test_trials_while_their_experiment_runs_and_when_its_process_is_gone(results):
    experiment = ExperimentDirectory.create(results / "search", {"name": "search", "trainable": "f", "id": "a"})
    first, second = _trial(0), _trial(1)
    for trial in (first, second):
        experiment.journal.append(trial_record(trial))
    first.status = "RUNNING"
    experiment.journal.append(status_record(first))
    index = Index(results)
    assert [_row(index, f"search/{trial.dirname}")["status"] for trial in (first, second)] == ["running", "waiting"]
    assert index.changes()["experiments"][0]["status"] == "running"
    experiment.journal.close()
    assert [_row(index, f"search/{trial.dirname}")["status"] for trial in (first, second)] == ["stopped", "stopped"]
    assert index.changes()["experiments"][0]["status"] == "stopped"


def test_a_journal_that_grows_and_is_damaged(results, experiment):
    index = Index(results)
    experiment.journal.append(trial_record(_trial(0)))
    index.refresh()
    assert len(index.runs) == 1
    with open(experiment.journal.path, "ab") as file:
        file.write(b'{"type": "trial"}\nnonsense\n')
    experiment.journal.append(trial_record(_trial(1)))
    index.refresh()
    assert len(index.runs) == 2
    assert "cannot be read" in index.changes()["experiments"][0]["problem"]


def test_a_journal_cannot_lead_elsewhere_or_run_code(results, tmp_path, experiment):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "result.json").write_text('{"episode_reward_mean": 1}\n')

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "was run"),)

    pickled = base64.b64encode(pickle.dumps(Evil())).decode()
    experiment.journal.append({**trial_record(_trial(0)), "dir": "../../secret"})
    experiment.journal.append({**trial_record(_trial(1)), "config": {"env": "x"}, "pickle": pickled})
    index = Index(results)
    index.refresh()
    assert "would lie outside" in index.changes()["experiments"][0]["problem"]
    (run,) = index.runs.values()
    assert run.path is None and describe(run)["metrics"] == [] and logs(run) == []
    assert not (tmp_path / "was run").exists()


# ---------------------------------------------------------------------- one run


def test_settings_are_compared_with_the_defaults(results):
    run = RunOnDisk(results, "first", lr=0.25, model={"fcnet_hiddens": [8]})
    run.report(1.0)
    run.save()
    run.end()
    index = Index(results)
    _row(index, "first")
    described = describe(index.runs["first"])
    differ = {each["key"]: (each["value"], each["default"]) for each in described["config"] if each["differs"]}
    assert differ["lr"] == (0.25, 5e-05) and differ["model/fcnet_hiddens"][0] == [8]
    assert {each["key"] for each in described["config"]} > {"gamma", "lambda_"} and "gamma" not in differ
    (checkpoint,) = described["checkpoints"]
    assert (checkpoint["name"], checkpoint["iteration"], checkpoint["size"]) == ("checkpoint_000001", 1, 500)
    assert "info/learner/default_policy/learner_stats/kl" in described["metrics"]


def test_metrics_that_only_some_results_have_are_known(results):
    run = RunOnDisk(results, "first")
    run.report(1.0, evaluation={"episode_reward_mean": 3.0})
    run.report(2.0)
    index = Index(results)
    _row(index, "first")
    assert "evaluation/episode_reward_mean" in describe(index.runs["first"])["metrics"]


def test_logs_are_the_run_s_own_text_files(results, tmp_path):
    run = RunOnDisk(results, "first")
    (tmp_path / "secret.txt").write_text("secret")
    (run.path / "link.txt").symlink_to(tmp_path / "secret.txt")
    (run.path / "stdout").write_text("".join(f"line {n}\n" for n in range(20_000)))
    index = Index(results)
    _row(index, "first")
    (path,) = logs(index.runs["first"])
    text, skipped = tail(path)
    assert path.name == "stdout" and text.endswith("line 19999\n") and text.startswith("line ")
    assert skipped + len(text) == path.stat().st_size and len(text) <= 64 << 10


def test_a_run_that_is_just_being_found_is_given_with_its_row(results, monkeypatch):
    """A page may ask for a run while another request's refresh has found it but not yet read its files."""
    RunOnDisk(results, "first")
    index, asked = Index(results), []
    refresh = run_module.Run.refresh
    with ThreadPoolExecutor() as others:

        def refresh_while_asked(run):
            asked.append(others.submit(lambda: dict(index.run(run.id).row)))
            with pytest.raises(TimeoutError):
                asked[-1].result(timeout=0.2)
            return refresh(run)

        monkeypatch.setattr(run_module.Run, "refresh", refresh_while_asked)
        index.refresh()
        assert asked[0].result(timeout=10)["algorithm"] == "PPO"


def test_many_runs_are_shown_as_they_are_read(results, monkeypatch):
    """The page opens with those that are known; what follows does not look for all the others again."""
    names = [f"run_{number}" for number in range(6)]
    for name in names:
        RunOnDisk(results, name).report(1.0)
    monkeypatch.setattr(index_module, "_LOOK_S", 0.0)
    index = Index(results)
    index.refresh(older_than_s=60.0)
    first = index.changes()
    assert len(first["runs"]) == 1 and index.is_behind
    unread = next(name for name in names if name != first["runs"][0]["id"])
    assert index.run(unread).row["algorithm"] == "PPO"
    monkeypatch.setattr(Index, "_find", None)
    while index.is_behind:
        index.refresh(older_than_s=60.0)
    assert {run["id"] for run in index.changes()["runs"]} == set(names)
    assert all(run["best"] == 1.0 for run in index.changes()["runs"])
