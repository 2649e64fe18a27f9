"""Weights & Biases and MLflow, in the modes that need no server."""

import json
import sqlite3
import struct
import sys
import time
import zipfile

import pytest

import runtime
from rllib import PPOConfig, tune
from rllib.runs.trackers import TRACKERS


def config(**reporting):
    settings = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0).reporting(**reporting)
    return settings.training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1, gamma=0.9).debugging(seed=1)


def train(settings, iterations=2):
    with settings.build() as algo:
        return [algo.train() for _ in range(iterations)]


def reports(settings):
    for number in range(3):
        tune.report(score=settings["x"] * number)


@pytest.fixture
def one_cpu():
    runtime.init(num_cpus=1)
    yield
    runtime.shutdown()


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_is_named_before_anything_starts(monkeypatch, name):
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, TRACKERS[name].package, raising=False)
    with pytest.raises(ImportError, match=rf"logging to {name} needs its package: pip install .*\[{name}\]'"):
        config(**{name: {}}).build()


@pytest.mark.parametrize(
    ("name", "options", "advice"),
    [
        ("comet", {"api_key": "word"}, "COMET_API_KEY"),
        ("mlflow", {"tracking_uri": "https://me:word@host"}, "MLFLOW_TRACKING_PASSWORD"),
        ("trackio", {"hf_token": "word"}, "HF_TOKEN"),
    ],
)
def test_a_login_among_the_settings_is_refused(name, options, advice):
    with pytest.raises(ValueError, match=f"{name}: .* would be written to params.json .*{advice}") as raised:
        config(**{name: options}).build()
    assert "word" not in str(raised.value).replace("PASSWORD", "")


def logged(content: bytes):
    """The records of a file in LevelDB's log format, as wandb writes it: blocks of 32 KiB, and a head of 7 bytes."""
    at, record = 7, b""
    while at < len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


@pytest.fixture
def wandb_runs(tmp_path, monkeypatch):
    """Options for runs offline, and what they have written: settings, rows and exit code of each."""
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_SILENT", "true")
    (tmp_path / "wandb").mkdir()

    def read():
        found = []
        for path in sorted(tmp_path.glob("wandb/offline-run-*/*.wandb")):
            run = {"settings": {}, "rows": [], "exit": None, "project": None}
            for data in logged(path.read_bytes()):
                record = wandb_internal_pb2.Record.FromString(data)
                if record.HasField("run"):
                    run["project"] = record.run.project
                    run["settings"] |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
                elif record.HasField("history"):
                    items = record.history.item
                    run["rows"].append(
                        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
                    )
                elif record.HasField("exit"):
                    run["exit"] = record.exit.exit_code
            found.append(run)
        return found

    def read_ended():
        """wandb's own process writes the end of a run after finish() has returned."""
        deadline = time.monotonic() + 30
        found = read()
        while any(run["exit"] is None for run in found) and time.monotonic() < deadline:
            time.sleep(0.05)
            found = read()
        return found

    return {"project": "cart", "mode": "offline", "dir": str(tmp_path)}, read_ended


@pytest.mark.extras("wandb")
def test_wandb_has_settings_and_results_by_steps(wandb_runs):
    options, read = wandb_runs
    results = train(config(wandb=options))
    (run,) = read()
    assert run["project"] == "cart" and run["exit"] == 0
    assert run["settings"]["gamma"] == 0.9 and run["settings"]["seed"] == 1
    assert [row["_step"] for row in run["rows"]] == [result["timesteps_total"] for result in results]
    assert [row["episode_len_mean"] for row in run["rows"]] == [result["episode_len_mean"] for result in results]


@pytest.mark.extras("wandb")
def test_wandb_is_told_that_a_run_has_failed(wandb_runs):
    options, read = wandb_runs
    with pytest.raises(RuntimeError), config(wandb=options).build() as algo:
        algo.train()
        raise RuntimeError
    assert [run["exit"] for run in read()] == [1]


@pytest.mark.extras("wandb")
def test_each_trial_is_a_run_of_wandb(wandb_runs, tmp_path, one_cpu):
    options, read = wandb_runs
    callback = tune.WandbLoggerCallback(**options)
    tune.run(reports, config={"x": tune.grid_search([1, 2])}, storage_path=tmp_path, verbose=0, callbacks=[callback])
    found = {run["settings"]["x"]: [row["score"] for row in run["rows"]] for run in read()}
    assert found == {1: [0, 1, 2], 2: [0, 2, 4]}


@pytest.fixture
def mlflow_runs(tmp_path):
    """Options for a store in a file, and what is in it."""
    import mlflow

    options = {"tracking_uri": f"sqlite:///{tmp_path}/runs.db", "experiment_name": "cart"}
    client = mlflow.MlflowClient(options["tracking_uri"])

    def read():
        runs = client.search_runs([client.get_experiment_by_name("cart").experiment_id])
        return [
            (run.info.status, run.data.params, lambda key, run=run: client.get_metric_history(run.info.run_id, key))
            for run in runs
        ]

    return options, read


@pytest.mark.extras("mlflow")
def test_mlflow_has_settings_and_results_by_steps(mlflow_runs):
    options, read = mlflow_runs
    results = train(config(mlflow=options))
    ((status, params, history),) = read()
    assert status == "FINISHED" and params["gamma"] == "0.9" and params["model/vf_share_layers"] == "False"
    found = sorted((point.step, point.value) for point in history("episode_len_mean"))
    assert found == [(result["timesteps_total"], result["episode_len_mean"]) for result in results]


@pytest.mark.extras("mlflow")
def test_mlflow_is_told_that_a_run_has_failed(mlflow_runs):
    options, read = mlflow_runs
    with pytest.raises(RuntimeError), config(mlflow=options).build() as algo:
        algo.train()
        raise RuntimeError
    assert [status for status, _, _ in read()] == ["FAILED"]


@pytest.mark.extras("mlflow")
def test_each_trial_is_a_run_of_mlflow(mlflow_runs, tmp_path, one_cpu):
    options, read = mlflow_runs
    callback = tune.MLflowLoggerCallback(**options)
    tune.run(reports, config={"x": tune.grid_search([1, 2])}, storage_path=tmp_path, verbose=0, callbacks=[callback])
    found = {params["x"]: sorted(point.value for point in history("score")) for _, params, history in read()}
    assert found == {"1": [0, 1, 2], "2": [0, 2, 4]}


# ---------------------------------------------------------------------- trackers without a server of their own


@pytest.fixture
def trackio_rows(tmp_path, monkeypatch):
    """The rows of every run that Trackio has kept: name -> [(step, numbers)]."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    monkeypatch.setattr("trackio.utils.TRACKIO_DIR", tmp_path, raising=False)
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path, raising=False)

    def read():
        with sqlite3.connect(tmp_path / "cart.db") as database:
            rows = database.execute("select run_name, step, metrics from metrics order by step").fetchall()
        found = {}
        for name, step, numbers in rows:
            found.setdefault(name, []).append((step, json.loads(numbers)))
        return found

    return read


@pytest.mark.extras("trackio")
def test_trackio_has_runs_beside_one_another(trackio_rows):
    runs = {name: TRACKERS["trackio"]({"lr": 0.1}, name, project="cart") for name in ("first", "second")}
    for step in (1, 2):
        for name, run in runs.items():
            run.on_result({"timesteps_total": 10 * step, "score": step + len(name)})
    runs["first"].close()
    runs["second"].close(failed=True)
    found = trackio_rows()
    assert [(step, row["score"]) for step, row in found["first"]] == [(10, 6), (20, 7)]
    assert [step for step, _ in found["second"]] == [10, 20, 20] and found["second"][-1][1] == {"failed": 1}


@pytest.mark.extras("comet_ml")
def test_comet_writes_an_archive_for_each_run(tmp_path):
    run = TRACKERS["comet"](
        {"lr": 0.1}, "first", online=False, experiment_config=_comet_config(tmp_path), project_name="cart"
    )
    run.on_result({"timesteps_total": 10, "score": 5})
    run.close(failed=True)
    (archive,) = tmp_path.glob("*.zip")
    with zipfile.ZipFile(archive) as file:
        content = file.read("messages.json").decode()
    assert all(word in content for word in ('"lr"', '"score"', '"failed"'))


def _comet_config(directory):
    import comet_ml

    return comet_ml.ExperimentConfig(offline_directory=str(directory), log_code=False, log_env_details=False)


@pytest.mark.extras("clearml")
def test_clearml_writes_an_archive(tmp_path, monkeypatch):
    monkeypatch.setenv("CLEARML_CACHE_DIR", str(tmp_path))
    run = TRACKERS["clearml"]({"lr": 0.1}, "first", offline=True, project_name="cart")
    run.on_result({"timesteps_total": 10, "score": 5})
    run.close()
    assert list(tmp_path.rglob("offline-*.zip"))
