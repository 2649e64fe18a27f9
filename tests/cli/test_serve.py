"""`rllib serve` that cannot begin says why, in one line."""

import socket
from pathlib import Path

import click
import pytest

from rllib.cli.verbs.serve import command

CHECKPOINT = Path(__file__).parents[1] / "checkpoints" / "format_1_ppo"


def refused(rllib_command, *arguments) -> str:
    result = rllib_command("serve", *arguments)
    assert result.exit_code == 2, result.output
    lines = [line for line in result.stderr.splitlines() if line]
    assert len(lines) == 1, lines
    return lines[0]


def test_a_port_in_use(rllib_command):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refused(rllib_command, CHECKPOINT, "--port", port)
        assert f"127.0.0.1:{port}: Address already in use; choose another --port" in said


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.test"])
def test_an_address_for_others_needs_a_token(rllib_command, host):
    assert "a token is needed: set RLLIB_SERVE_TOKEN" in refused(rllib_command, CHECKPOINT, "--host", host)


def test_an_empty_token(rllib_command):
    assert "the token is empty" in refused(rllib_command, CHECKPOINT, "--token", "")


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid"])
def test_an_address_of_another_machine(rllib_command, host):
    said = refused(rllib_command, CHECKPOINT, "--host", host, "--token", "secret", "--port", 0)
    assert f"cannot listen at {host}:0" in said and "choose another --host" in said


def test_without_the_package(rllib_command, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "[serve]'" in refused(rllib_command, CHECKPOINT)


def test_no_checkpoint(rllib, tmp_path):
    (tmp_path / "run").mkdir()
    code, output = rllib("serve", "run", "--port", "0")
    assert code == 2 and output.startswith("Error: ") and "is no checkpoint of this library" in output
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "lr=1e-3", "--margin", "1"], "--set and --margin would have no effect without --learn"),
        (["--learn", "--policy", "a"], "leave out --policy"),
        (["--learn", "--learn-to", "."], "holds other files than checkpoints: give a new directory"),
        (["--learn", "--learn-to", "notes"], "cannot be written: File exists"),
        (["--learn", "--learn-to", "new", "--set", "lr"], "'lr'"),
    ],
)
def test_options_of_learning(rllib_command, tmp_path, options, message):
    (tmp_path / "notes").write_text("mine")
    assert message in refused(rllib_command, CHECKPOINT, *options)


def test_a_share_of_more_than_half(rllib_command):
    result = rllib_command("serve", CHECKPOINT, "--learn", "--canary-share", "0.6")
    assert result.exit_code == 2 and "0.6 is not in the range 0<x<=0.5" in result.stderr


# What a server that does not learn reads.
OF_EACH = {
    "host", "port", "workers", "max_batch", "max_wait_us", "max_queue", "token", "watch", "learn", "policy_id",
    "load_user_code", "verbose", "help",
}  # fmt: skip


@pytest.mark.parametrize(
    "option", [each for each in command.params if isinstance(each, click.Option) and each.name not in OF_EACH],
    ids=lambda option: option.name,
)  # fmt: skip
def test_options_of_learning_need_it(rllib_command, option, tmp_path):
    value = "lr=1" if option.name == "words" else tmp_path / "new" if option.name == "learn_to" else "0.25"
    value = "7" if isinstance(option.type, click.IntRange) else value
    with socket.create_server(("127.0.0.1", 0)) as other:  # so that no server would begin
        said = refused(rllib_command, CHECKPOINT, option.opts[0], value, "--port", other.getsockname()[1])
    assert f"{option.opts[0]} would have no effect without --learn" in said
