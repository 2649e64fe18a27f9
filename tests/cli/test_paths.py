"""Paths as users type them: what is written at one is found at it, by every command and every function that reads."""

import os
import shutil

import pytest
from click import BadParameter
from click.testing import CliRunner

import rllib
from rllib import Policy, PPOConfig, tune
from rllib.algorithms.base.algorithm import Algorithm
from rllib.cli import command
from rllib.cli.values import LocalPath
from rllib.cli.verbs import dashboard, serve
from rllib.offline.dataset import Dataset
from rllib.storage.local_path import local_path
from rllib.tune.reporting.runs import read_runs
from rllib.tune.reporting.scores import final_scores
from tests.hub_fake import installed

TRAIN = ("train", "PPO", "CartPole-v1", "num_rollout_workers=0", "train_batch_size=64", "sgd_minibatch_size=64",
         "num_sgd_iter=1", "num_envs_per_worker=1", "model.fcnet_hiddens=[4]", "--seed", "1", "-q")  # fmt: skip
# How a directory is named from a directory beside it; HOME holds both.
FORMS = {
    "relative": "runs/{name}",
    "dots": "../shown/runs/{name}",
    "only dots": "runs/{name}/checkpoint_000001/..",
    "home": "~/shown/runs/{name}",
    "link": "linked_{name}",
    "behind a link": "beside/../{name}",
    "space": "my runs/{name}",
    "URL": "file://{home}/shown/runs/{name}",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The directory HOME/shown, with what `rllib train` and `tune.run` wrote in runs/."""
    shown = tmp_path_factory.mktemp("home") / "shown"
    for name in ("run", "other"):
        done = CliRunner().invoke(
            command, [*TRAIN, "--name", name, "--stop", "iterations=1", f"--results-dir={shown}/runs"]
        )
        assert done.exit_code == 0, done.output
    tune.run(counted, name="search", storage_path=shown / "runs", verbose=0)
    os.symlink("runs", shown / "my runs")
    (shown / "runs" / "inner").mkdir()
    os.symlink("runs/inner", shown / "beside")
    for name in ("run", "search", "new"):
        os.symlink(f"runs/{name}", shown / f"linked_{name}")
    return shown.parent


def counted(config):
    tune.report({"value": config.get("value", 1)})


@pytest.fixture(params=FORMS)
def named(request, home, tmp_path, monkeypatch):
    """A function that gives the path of a directory in runs/, in one form, in a copy of `home`."""
    shutil.copytree(home, tmp_path / "home", symlinks=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "home" / "shown")
    return lambda name: FORMS[request.param].format(name=name, home=tmp_path / "home")


COMMANDS = {
    "evaluate": ("evaluate", "{run}", "--episodes", 1),
    "record": ("record", "{run}", "--to", "{run}.json", "--steps", 5),
    "export": ("export", "{run}", "--format", "safetensors"),
    "plot": ("plot", "{run}", "-o", "{run}.svg", "--kind", "curves"),
    "compare": ("compare", "{run}", "runs/other"),
    "resume": ("train", "--resume", "{run}", "--stop", "iterations=2", "-q"),
    "push": ("push", "{run}", "me/pole", "--seeds", 1, "--episodes", 1, "--no-video"),
    "upload": ("upload", "{run}", "memory://bucket/{number}"),
    "tune": ("tune", "--name", "a/b", "--results-dir={run}", "-q", "--stop", "iterations=1", *TRAIN[1:-1]),
}


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_command_takes_every_form_of_a_path(verb, named, monkeypatch, tmp_path):
    if verb == "push":
        installed(monkeypatch, tmp_path)
    places = {"run": named("run"), "number": tmp_path.name}
    done = CliRunner().invoke(command, [str(word).format(**places) for word in COMMANDS[verb]])
    assert done.exit_code == 0, done.output


def _local_paths(node, words=()):
    for parameter in node.params:
        if isinstance(parameter.type, LocalPath):
            yield pytest.param(parameter, id=" ".join((*words, parameter.human_readable_name)))
    for name, below in getattr(node, "commands", {}).items():
        yield from _local_paths(below, (*words, name))


@pytest.mark.parametrize("parameter", [*_local_paths(command)])
def test_every_path_of_this_machine_refuses_remote_storage(parameter):
    with pytest.raises(BadParameter, match=r"s3://bucket/runs is in remote storage"):
        parameter.type.convert("s3://bucket/runs", parameter, None)


def test_servers_take_every_form_of_a_path(named, monkeypatch):
    seen = []
    monkeypatch.setattr(serve, "Supervisor", lambda asked, *rest: seen.append(asked.path) or Ready())
    monkeypatch.setattr(dashboard, "_server", lambda directory, *rest: seen.append(directory) or Ready())
    for words in (("serve", named("run"), "--port", "0"), ("dashboard", named("run"))):
        done = CliRunner().invoke(command, words)
        assert done.exit_code == 0, done.output
    assert [path.resolve() for path in seen] == [local_path(named("run")).resolve()] * 2


class Ready:
    """A server that ends at once."""

    url = "http://here"

    def run(self, ready=lambda: None):
        ready()


def test_every_loader_takes_every_form_of_a_path(named):
    run = named("run")
    assert rllib.load_policy(run).policy_version and Policy.from_checkpoint(f"{run}/checkpoint_000001")
    with Algorithm.from_checkpoint(run) as algo:
        algo.restore(run)
        assert rllib.load_policy(algo.save(f"{run}/saved")).policy_version
        algo.export_policy_model(f"{run}/policy")
        assert Policy.from_checkpoint(f"{run}/policy").layout.size
    assert len(read_runs(run)) == 1 and final_scores(run)[0] == 64


def test_what_is_written_to_a_path_is_read_there(named):
    new, data = named("new").replace("checkpoint_000001/", "inner/"), f"{named('run')}/data.json"
    os.makedirs("runs/new/inner")
    config = PPOConfig().environment("CartPole-v1").reporting(log_dir=new)
    with config.training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1).build() as algo:
        algo.train()
        assert os.path.samefile(os.path.dirname(algo.save()), "runs/new") and rllib.load_policy(new).policy_version
    assert len(read_runs(new)) == 1
    CliRunner().invoke(command, ["record", named("run"), "--to", data, "--steps", "5"], catch_exceptions=False)
    assert len(Dataset.from_path(data)) == 5


def test_an_experiment_is_resumed_by_every_form_of_its_path(named):
    path = named("search").replace("checkpoint_000001/", "x/")
    os.makedirs("runs/search/x")
    assert tune.Tuner.can_restore(path) and tune.ExperimentAnalysis(path).trials
    assert len(tune.Tuner.restore(path, counted).fit()) == 1


@pytest.mark.parametrize("name", ["plain", "a/b", "a/../c", "with space/x"])
def test_an_experiment_is_resumed_by_its_name(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    given = {"name": name, "storage_path": "~/results", "verbose": 0}
    first = tune.run(counted, **given)
    assert local_path(first.experiment_path) == local_path(f"~/results/{name}")
    for resume in (True, "AUTO"):
        again = tune.run(counted, resume=resume, **given)
        assert again.experiment_path == first.experiment_path
        assert [trial.trial_id for trial in again.trials] == [trial.trial_id for trial in first.trials]


@pytest.mark.parametrize("given", ["../x", "a/../../x", "/x", "..", ".", ""])
def test_a_name_of_an_experiment_does_not_lead_out_of_the_results(given, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    if not given:
        given = "./"
    with pytest.raises(ValueError, match="outside of"):
        tune.run(counted, name=given, storage_path="../here/results", verbose=0)
