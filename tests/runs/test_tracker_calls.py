"""Trackers whose packages the tests do not have: what is asked of stand-ins for them."""

import importlib.machinery
import sys
import types

import pytest

from rllib import tune
from rllib.runs.curve_groups import in_groups
from rllib.runs.trackers import TRACKERS

PARAMS = {"lr": 0.1, "model": {"fcnet_hiddens": [8]}, "env": None}
RESULTS = [{"timesteps_total": 100 * i, "training_iteration": i, "info": {"loss": float(i)}} for i in (1, 2)]


class Calls:
    """Records every call, by name with arguments."""

    def __init__(self):
        self.made = []

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.made.append((name, arguments, options))
            return self

        return call

    def of(self, name):
        return [(arguments, options) for made, arguments, options in self.made if made == name]


@pytest.fixture
def calls(monkeypatch):
    """Puts a stand-in instead of a package, and returns what is called on it and on what it returns."""

    def install(package, **attributes):
        recorded, module = Calls(), types.ModuleType(package)
        module.__spec__ = importlib.machinery.ModuleSpec(package, None)
        module.__getattr__ = lambda name: attributes[name](recorded) if name in attributes else getattr(recorded, name)
        monkeypatch.setitem(sys.modules, package, module)
        return recorded

    return install


def tracked(name, failed=False, **options):
    run = TRACKERS[name](PARAMS, "first", **options)
    for result in RESULTS:
        run.on_result(result)
    run.close(failed)


@pytest.mark.parametrize("failed", [False, True])
def test_trackio(calls, failed):
    recorded = calls("trackio")
    tracked("trackio", failed, project="poles")
    ((_, options),) = recorded.of("init")
    assert options["project"] == "poles" and options["name"] == "first"
    assert options["config"] == {"lr": 0.1, "model/fcnet_hiddens": "[8]", "env": None}
    steps = [options["step"] for _, options in recorded.of("log")]
    assert steps == [100, 200] + [200] * failed
    assert recorded.of("log")[1][0][0] == {"timesteps_total": 200, "training_iteration": 2, "info/loss": 2.0}
    assert len(recorded.of("finish")) == 1


@pytest.mark.parametrize("failed", [False, True])
def test_comet(calls, failed):
    recorded = calls("comet_ml")
    tracked("comet", failed, project_name="poles", online=False, tags=["fast"])
    assert recorded.of("start") == [((), {"mode": "create", "project_name": "poles", "online": False})]
    assert recorded.of("set_name") == [(("first",), {})] and recorded.of("add_tags") == [((["fast"],), {})]
    assert recorded.of("log_parameters")[0][0][0]["lr"] == 0.1
    assert [options for _, options in recorded.of("log_metrics")] == [{"step": 100}, {"step": 200}]
    assert recorded.of("log_other") == [(("status", "failed" if failed else "finished"), {})]
    assert len(recorded.of("end")) == 1


@pytest.mark.parametrize("failed", [False, True])
def test_clearml(calls, failed):
    recorded = calls("clearml", Task=lambda recorded: recorded)
    tracked("clearml", failed, project_name="poles", tags=["fast"])
    assert recorded.of("create") == [((), {"project_name": "poles", "task_name": "first"})]
    assert recorded.of("add_tags") == [((["fast"],), {})] and len(recorded.of("close")) == 1
    assert recorded.of("set_parameters")[0][0][0]["model/fcnet_hiddens"] == "[8]"
    assert (("info", "loss", 2.0), {"iteration": 200}) in recorded.of("report_scalar")
    assert (("training_iteration", "training_iteration", 1), {"iteration": 100}) in recorded.of("report_scalar")
    assert (len(recorded.of("mark_completed")), len(recorded.of("mark_failed"))) == (not failed, failed)


def test_mlflow_gets_names_that_it_takes(calls):
    """It refuses a whole result for one name such as "success (%)"."""
    recorded = calls("mlflow")
    recorded.get_experiment_by_name = lambda name: types.SimpleNamespace(experiment_id="1")
    recorded.create_run = lambda *_, **__: types.SimpleNamespace(info=types.SimpleNamespace(run_id="2"))
    entity = lambda recorded: lambda key, *_: key  # noqa: E731
    calls("mlflow.entities", Metric=entity, Param=entity)
    run = TRACKERS["mlflow"]({"env": {"a (b)": 1}}, "first")
    run.on_result(
        {"training_iteration": 1, "custom_metrics": {"success (%)": 1.0, "b//c": 2.0, "..": 3.0, "größe": 4.0}}
    )
    sent = [options for _, options in recorded.of("log_batch")]
    assert sent[0] == {"params": ["env/a _b_"]}
    of_results = {f"custom_metrics/{name}" for name in ("success ___", "b/_/c", "_", "größe")}
    assert set(sent[1]["metrics"]) == {"training_iteration", *of_results}


PACKAGES = {"wandb": "wandb", "trackio": "trackio", "comet": "comet_ml", "clearml": "clearml"}


# Names of parameters here, any of which may be one of an option of the tracker.
@pytest.mark.parametrize("option", ["settings", "library", "params", "self", "options"])
@pytest.mark.parametrize("name", PACKAGES)
def test_an_option_may_have_any_name(calls, name, option):
    recorded = calls(PACKAGES[name], Task=lambda recorded: recorded)
    TRACKERS[name](PARAMS, "first", **{option: 5}).close()
    (made,) = [options for method in ("init", "start", "create") for _, options in recorded.of(method)]
    assert made[option] == 5


@pytest.mark.parametrize("name", PACKAGES)
def test_a_fault_of_a_tracker_is_a_warning(calls, caplog, monkeypatch, name):
    calls(PACKAGES[name], Task=lambda recorded: recorded)
    sent = []

    def refuses(run, numbers, step):
        sent.append(step)
        raise ConnectionError("no answer")

    def cannot_end(run, failed):
        raise ConnectionError("no answer either")

    monkeypatch.setattr(TRACKERS[name], "_send", refuses)
    monkeypatch.setattr(TRACKERS[name], "_end", cannot_end)
    run = TRACKERS[name](PARAMS, "first")
    for step in range(1, 9):
        run.on_result({"timesteps_total": step})
    run.close()
    assert sent == [1, 2, 3], "each try may wait for a server"
    messages = [record.getMessage() for record in caplog.records if record.name == "rllib.runs.trackers"]
    assert len(messages) == 4 and all(f"{PACKAGES[name]}, first: " in message for message in messages)
    assert "no further results" in messages[2] and "could not be closed" in messages[3]


def test_each_trial_is_a_run_of_its_own(calls):
    recorded = calls("trackio")
    callback = tune.TrackioLoggerCallback(project="poles")
    for number in (1, 2):
        trial = types.SimpleNamespace(trial_id=str(number), config={"x": number})
        callback.log_trial_start(trial)
        callback.log_trial_result(1, trial, RESULTS[0])
    assert [options["config"] for _, options in recorded.of("init")] == [{"x": 1}, {"x": 2}]


@pytest.mark.parametrize("name", ["CometLoggerCallback", "ClearMLLoggerCallback", "TrackioLoggerCallback"])
def test_a_missing_package_is_named(monkeypatch, name):
    monkeypatch.setattr(sys, "path", [])
    for package in ("comet_ml", "clearml", "trackio"):
        monkeypatch.delitem(sys.modules, package, raising=False)
    with pytest.raises(ImportError, match=r"needs its package: pip install .*\["):
        getattr(tune, name)()


def test_curves_have_the_names_of_stable_baselines():
    learner = "info/learner/default_policy/learner_stats"
    assert in_groups({
        "episode_reward_mean": 1.0,
        "episode_reward_max": 2.0,
        "evaluation/episode_reward_mean": 3.0,
        "evaluation/episode_len_max": 4.0,
        "num_env_steps_sampled_throughput_per_sec": 5.0,
        f"{learner}/vf_loss": 6.0,
        f"{learner}/entropy": 7.0,
        "info/learner/p1/learner_stats/cur_lr": 8.0,
        "custom_metrics/height_mean": 9.0,
        "timers/sample_time_ms": 10.0,
    }) == {
        "rollout/ep_rew_mean": 1.0,
        "rollout/episode_reward_max": 2.0,
        "eval/mean_reward": 3.0,
        "eval/episode_len_max": 4.0,
        "time/fps": 5.0,
        "train/value_loss": 6.0,
        "train/entropy": 7.0,
        "train/p1/learning_rate": 8.0,
        "rollout/custom_metrics/height_mean": 9.0,
        "time/timers/sample_time_ms": 10.0,
    }  # fmt: skip
