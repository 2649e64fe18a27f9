"""Runs with a copy in remote storage on the command line: train, resume, evaluate, upload."""

import json
import shutil

import click
import pytest

pytest.importorskip("fsspec")

import runtime
from rllib.cli import command
from rllib.remote import mirror
from tests.storage_fakes import Shaky, at_once, content_of

TRAIN = ("train", "PPO", "CartPole-v1", "num_rollout_workers=0", "train_batch_size=64", "sgd_minibatch_size=32",
         "num_sgd_iter=1", "model.fcnet_hiddens=[8]", "--seed", "1", "--storage-path",
         "shaky://bucket/runs")  # fmt: skip


@pytest.fixture(autouse=True)
def storage(monkeypatch):
    Shaky.begin(loss=0.05)
    at_once(monkeypatch)
    yield
    assert Shaky.faults == []


def files_of(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_run_continues_on_another_machine(rllib_command, tmp_path):
    done = rllib_command(*TRAIN, "--name", "first", "--stop", "iterations=2")
    assert done.exit_code == 0, done.output
    assert "storage     shaky://bucket/runs/first\n" in done.output
    assert content_of("shaky://bucket/runs/first") == files_of(tmp_path / "results" / "first")
    shutil.rmtree(tmp_path / "results")  # the other machine

    done = rllib_command("train", "--resume", "shaky://bucket/runs/first", "--stop", "iterations=4")
    assert done.exit_code == 0, done.output
    here = tmp_path / "results" / "first"
    lines = [json.loads(line)["training_iteration"] for line in (here / "result.json").read_text().splitlines()]
    assert lines == [1, 2, 3, 4]
    assert content_of("shaky://bucket/runs/first") == files_of(here)
    assert sorted(path.name for path in here.glob("checkpoint_*")) == ["checkpoint_000004"]

    shutil.rmtree(tmp_path / "results")
    done = rllib_command("evaluate", "shaky://bucket/runs/first", "--episodes", "2")
    assert done.exit_code == 0 and done.output.startswith("return"), done.output
    assert not (tmp_path / "results").exists()


def test_several_seeds_have_a_copy_of_their_folder(rllib_command, tmp_path):
    runtime.init(engine="local", ignore_reinit_error=True)
    done = rllib_command(*TRAIN, "--name", "all", "--stop", "iterations=1", "--seeds", "2")
    assert done.exit_code == 0, done.output
    folder = tmp_path / "results" / "all"
    copy = content_of("shaky://bucket/runs/all")
    assert copy == files_of(folder) and "seeds.json" in copy and "seed_2/checkpoint_000001/manifest.json" in copy
    again = ("--stop", "iterations=2", "--storage-path", "shaky://bucket/runs")
    done = rllib_command("train", "--resume", "results/all", *again)
    assert done.exit_code == 0, done.output
    assert content_of("shaky://bucket/runs/all") == files_of(folder)


def test_a_run_on_this_machine_goes_on_from_its_directory(rllib_command, tmp_path):
    assert rllib_command(*TRAIN, "--name", "first", "--stop", "iterations=1").exit_code == 0
    done = rllib_command("train", "--resume", "shaky://bucket/runs/first", "--stop", "iterations=2")
    assert done.exit_code == 0, done.output
    assert content_of("shaky://bucket/runs/first") == files_of(tmp_path / "results" / "first")
    done = rllib_command("train", "--resume", "results/first", "--stop", "iterations=3")  # without its copy
    assert done.exit_code == 0 and "storage " not in done.stdout
    assert "checkpoint_000002/manifest.json" in content_of("shaky://bucket/runs/first")
    done = rllib_command("upload", "results/first", "shaky://bucket/runs/first")
    assert done.exit_code == 0, done.output
    assert content_of("shaky://bucket/runs/first") == files_of(tmp_path / "results" / "first")


def test_what_has_not_arrived_is_said(rllib_command, tmp_path, monkeypatch):
    monkeypatch.setattr(mirror, "_LAST_WAIT_S", 0.2)
    Shaky.loss = 0.0
    whole = mirror.Mirror._look

    def breaks_off(self):
        Shaky.refuses = ConnectionError("the cable is out")
        whole(self)

    monkeypatch.setattr(mirror.Mirror, "_look", breaks_off)
    done = rllib_command(*TRAIN, "--name", "first", "--stop", "iterations=1")
    assert done.exit_code == 1
    assert "storage     shaky://bucket/runs/first (incomplete)" in done.output
    assert "have not arrived at shaky://bucket/runs/first" in done.stderr and "the cable is out" in done.stderr
    Shaky.refuses = None
    monkeypatch.setattr(mirror.Mirror, "_look", whole)
    assert rllib_command("upload", "results/first", "shaky://bucket/runs/first").exit_code == 0
    assert content_of("shaky://bucket/runs/first") == files_of(tmp_path / "results" / "first")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--storage-path", "memry://runs"), "fsspec knows no protocol 'memry'"),
        (("--storage-path", "hf://org/name"), "rllib push writes there"),
        (("--storage-path", "a", "--results-dir", "b"), "both name a directory of this machine"),
    ],
)
def test_a_place_that_cannot_be_is_refused_before_training(rllib_command, tmp_path, arguments, message):
    done = rllib_command(*TRAIN[:3], *arguments)
    assert done.exit_code == 2 and message in done.stderr
    assert list(tmp_path.iterdir()) == []


LOGIN = "oci://me:hunter2@bucket/runs"


def takes_text(parameter):
    return not getattr(parameter, "is_flag", False) and parameter.name != "verbose"


@pytest.mark.parametrize("more", [(), ("-v",)])
@pytest.mark.parametrize("verb", sorted(command.commands))
def test_no_command_shows_a_password(rllib_command, monkeypatch, verb, more):
    """Each argument and option in turn is a URL with a login."""
    parameters = command.commands[verb].params
    given = [LOGIN for each in parameters if isinstance(each, click.Argument)]
    options = [each.opts[-1] for each in parameters if isinstance(each, click.Option) and takes_text(each)]
    for words in ((), *((option, LOGIN) for option in options)):
        done = rllib_command(verb, *given, *words, *more)
        assert "hunter2" not in done.output, (words, done.output)
        assert done.exit_code or not given, (words, done.output)


@pytest.mark.parametrize(
    "words",
    [("train", "PPO", "CartPole-v1", f"input_={LOGIN}"), ("train", "PPO", "CartPole-v1", f"output={LOGIN}"),
     ("train", "PPO", LOGIN), ("train", "BC", f"input_={LOGIN}"), ("serve", LOGIN, "--watch"),
     ("serve", LOGIN, "--learn"), ("client-example", "--address", "http://me:hunter2@host:1")],
)  # fmt: skip
def test_no_message_has_a_password(rllib_command, words):
    done = rllib_command(*words)
    assert done.exit_code in (1, 2) and "hunter2" not in done.output, done.output


def test_a_name_that_is_taken_in_storage_is_refused(rllib_command, tmp_path):
    assert rllib_command(*TRAIN, "--name", "first", "--stop", "iterations=1").exit_code == 0
    shutil.rmtree(tmp_path / "results")
    done = rllib_command(*TRAIN, "--name", "first", "--stop", "iterations=1")
    assert done.exit_code == 2 and "shaky://bucket/runs/first exists already" in done.stderr


def test_a_path_of_this_machine_is_the_results_directory(rllib_command, tmp_path):
    done = rllib_command(*TRAIN[:-1], f"file://{tmp_path}/elsewhere", "--name", "first", "--stop", "iterations=1")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "elsewhere" / "first" / "result.json").exists() and "storage " not in done.output


def test_only_a_run_that_has_ended_is_uploaded(rllib_command, tmp_path):
    (tmp_path / "empty").mkdir()
    done = rllib_command("upload", "empty", "shaky://bucket/runs/first")
    assert done.exit_code == 2 and "is no directory of a run or an experiment" in done.stderr
    done = rllib_command("train", "--resume", "shaky://bucket/runs/nothing")
    assert done.exit_code == 2 and "there is no run at shaky://bucket/runs/nothing: it has no run.json" in done.stderr
