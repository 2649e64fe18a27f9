"""Arguments of tune.run that Ray 0.8 had: loggers, export_formats, and those without effect here."""

import inspect
import logging
from pathlib import Path

import pytest

from rllib import PPO, tune
from rllib.models.architectures import spec_from_json
from rllib.policy import Policy
from rllib.runs.files import CsvLogger, read_results
from rllib.storage.checkpoint import read_checkpoint

pytestmark = pytest.mark.usefixtures("two_cpus")


def reports(config):
    if config.get("fails"):
        raise ValueError("as it was told")
    for i in range(3):
        tune.report(loss=config["a"] * i)


# ---------------------------------------------------------------------- loggers


class Remembers(tune.Logger):
    """Writes what it hears into a file of the trial's directory."""

    def _init(self):
        self.file = open(Path(self.logdir) / "heard", "a")  # noqa: SIM115 (closed in close())
        self.file.write(f"a={self.config['a']} {self.trial.trial_id[-5:]}\n")

    def on_result(self, result):
        self.file.write(f"{result['training_iteration']} {result['loss']} {result['config']['a']}\n")

    def flush(self):
        self.file.flush()

    def close(self):
        self.file.write("closed\n")
        self.file.close()


class Plain:
    """Of no base class, with two arguments."""

    seen: list = []  # noqa: RUF012

    def __init__(self, config, logdir):
        self.seen.append((config["a"], Path(logdir).name))

    def on_result(self, result):
        self.seen.append(result["loss"])


def test_old_logger_classes_hear_every_result(run):
    Plain.seen.clear()
    trials = run(
        reports, config={"a": tune.grid_search([1, 2])}, loggers=[*tune.DEFAULT_LOGGERS, CsvLogger, Remembers, Plain],
        max_concurrent_trials=1,
    ).trials  # fmt: skip
    for trial in trials:
        a = trial.config["a"]
        heard = Path(trial.logdir, "heard").read_text().splitlines()
        assert heard == [f"a={a} 0000{a - 1}", *(f"{i + 1} {a * i} {a}" for i in range(3)), "closed"]
        assert Path(trial.logdir, "progress.csv").exists() and Path(trial.logdir, "result.json").exists()
    assert Plain.seen == [(1, Path(trials[0].logdir).name), 0, 1, 2, (2, Path(trials[1].logdir).name), 0, 2, 4]


def test_experiment_dicts_may_have_loggers(tmp_path, monkeypatch):
    monkeypatch.setenv("RLLIB_RESULTS_DIR", str(tmp_path))
    (trial,) = tune.run_experiments(
        {"x": {"run": reports, "config": {"a": 1}, "loggers": [Remembers]}}, verbose=0, tensorboard=False
    )
    assert Path(trial.logdir, "heard").read_text().endswith("closed\n")


@pytest.mark.parametrize("given", [["csv"], [dict], [3]])
def test_what_is_no_logger_is_refused(run, given):
    with pytest.raises(TypeError, match=r"loggers takes classes with a method on_result\(result\)"):
        run(reports, config={"a": 1}, loggers=given)


# ---------------------------------------------------------------------- exports

TINY = {"env": "CartPole-v1", "num_workers": 0, "train_batch_size": 100, "sgd_minibatch_size": 50, "num_sgd_iter": 1}


def test_algorithms_export_policy_and_checkpoint(run):
    (trial,) = run("PPO", config=TINY, stop={"training_iteration": 1}, export_formats=["model", "checkpoint"]).trials
    restored = PPO.from_checkpoint(Path(trial.logdir) / "checkpoint")
    model = read_checkpoint(Path(trial.logdir) / "model")
    policy = Policy(spec_from_json(model["policy.json"]["spec"]))
    policy.set_state(model["weights.safetensors"])
    assert policy.weights.tolist() == restored.policy.weights.tolist() and restored.metrics.iteration == 1
    assert sorted(model) == ["policy.json", "weights.safetensors"]
    restored.stop()


class Exports(tune.Trainable):
    def step(self):
        return {"loss": 1.0}

    def _export_model(self, export_formats, export_dir):
        path = Path(export_dir) / "network.onnx"
        path.write_text(",".join(export_formats))
        return {"onnx": str(path)}


def test_classes_export_what_they_know_when_they_end_well(run):
    analysis = run(Exports, stop={"training_iteration": 2}, export_formats=["onnx"])
    assert Path(analysis.trials[0].logdir, "network.onnx").read_text() == "onnx"


class ExportsAnything(tune.Trainable):
    def step(self):
        return {"loss": 1.0}

    def export_model(self, export_formats, export_dir=None):
        Path(self.logdir, "weights").write_text(",".join(export_formats))
        return {}


@pytest.mark.parametrize(("cls", "written"), [(Exports, "network.onnx"), (ExportsAnything, "weights")])
def test_a_class_may_have_formats_of_its_own(run, cls, written):
    (trial,) = run(cls, stop={"training_iteration": 1}, export_formats=["gguf", "safetensors"]).trials
    assert Path(trial.logdir, written).read_text() == "gguf,safetensors"


@pytest.mark.parametrize(
    ("trainable", "formats", "message"),
    [
        ("PPO", ["onnx"], 'an algorithm is exported as "checkpoint" or "model", but not as \'onnx\''),
        ("PPO", ["pdf"], 'an algorithm is exported as "checkpoint" or "model", but not as \'pdf\''),
        (reports, ["model"], "Functions save their own state"),
        (tune.Trainable, ["model"], r"Trainable cannot be exported as model: it has no _export_model"),
    ],
)
def test_formats_that_do_not_exist_are_refused_before_anything_runs(run, tmp_path, trainable, formats, message):
    with pytest.raises(ValueError, match=message):
        run(trainable, config={"env": "CartPole-v1"}, export_formats=formats)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- track


def tracks(config):
    with tune.track.init(experiment_name="ignored in a trial"):
        for i in range(2):
            tune.track.log(loss=config["a"] * i)
    tune.track.log(loss=10.0)
    tune.track.shutdown()


def test_track_init_and_shutdown_leave_a_trial_alone(run):
    (trial,) = run(tracks, config={"a": 1.0}).trials
    assert [result["loss"] for result in read_results(Path(trial.logdir))] == [0.0, 1.0, 10.0]


def test_track_outside_an_experiment_writes_files(tmp_path):
    for _ in range(2):
        tune.track.init("mine", trial_name="first", trial_config={"lr": 0.1}, log_dir=tmp_path)
        tune.track.init("mine", log_dir=tmp_path)  # goes on
        with pytest.raises(RuntimeError, match=r"call tune\.track\.shutdown"):
            tune.track.init(ignore_reinit_error=False)
        tune.track.log(loss=1.0)
        tune.track.log(loss=0.5)
        directory = Path(tune.track.trial_dir)
        tune.track.shutdown()
        tune.track.shutdown()
        assert [(r["training_iteration"], r["loss"]) for r in read_results(directory)] == [(1, 1.0), (2, 0.5)]
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["first", "first_2"]
    assert '"lr": 0.1' in (tmp_path / "mine" / "first" / "params.json").read_text()


# ---------------------------------------------------------------------- the rest


def test_arguments_without_effect_are_taken(run, caplog):
    caplog.set_level(logging.INFO, logger="rllib")
    trials = run(reports, config={"a": 1}, queue_trials=True, ray_auto_init=True, return_trials=True, sync_config=1)
    assert [trial.last_result["loss"] for trial in trials] == [2]
    levels = {r.getMessage().split(" has no effect")[0]: r.levelname for r in caplog.records if "no effect" in r.msg}
    assert levels == {"queue_trials": "INFO", "ray_auto_init": "INFO", "sync_config": "WARNING"}
    with pytest.raises(TypeError, match=r"no argument 'log_to_fil'\. Did you mean log_to_file"):
        run(reports, log_to_fil=True)


def test_the_settings_of_run_are_those_of_the_tuners_configs():
    settings = inspect.signature(tune.run).parameters
    for config in (tune.TuneConfig, tune.RunConfig):
        for name, parameter in inspect.signature(config).parameters.items():
            assert settings[name].default == parameter.default


@pytest.mark.parametrize(
    ("given", "files"), [("all", {"all"}), (("out", "err"), {"out", "err"}), (True, {"stdout", "stderr"})]
)
def test_log_to_file_takes_one_name_or_two(run, given, files):
    (trial,) = run(reports, config={"a": 1}, log_to_file=given).trials
    assert files <= {path.name for path in Path(trial.logdir).iterdir()}


@pytest.mark.parametrize(
    "given",
    [3, ("a", "b", "c"), ["a"], {"config": "a"}, "/a", "../a", "a/b", "..", ".", ("a", "/b"), ["../a", "b"], ("a", "")],
)
def test_log_to_file_refuses_the_rest(run, given):
    with pytest.raises(ValueError, match="log_to_file must be True, False, a file's name, or two"):
        run(reports, config={"a": 1}, log_to_file=given)
