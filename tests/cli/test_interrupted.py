"""Ctrl-C before a command runs: while its module is imported, and while its words are read; and output that cannot be
written."""

import errno
import importlib

import click
import pytest

from rllib.cli import LazyGroup, command


def interrupted(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "where, name", [(importlib, "import_module"), (click.Group, "invoke"), (click.Group, "parse_args")]
)
def test_an_early_ctrl_c_is_one_that_every_command_knows(rllib_command, monkeypatch, where, name):
    assert isinstance(command, LazyGroup)
    monkeypatch.setattr(where, name, interrupted)
    result = rllib_command("train", "--help")
    assert result.exit_code == 130 and result.output == "Interrupted.\n"


@pytest.mark.parametrize("words", [["config", "PPO"], ["client-example"]])
def test_output_that_cannot_be_written_is_an_error_in_words(rllib_command, monkeypatch, words):
    def full(text=None, err=False, **_):
        if not err:
            raise OSError(errno.ENOSPC, "No space left on device")
        echo(text, err=True)

    echo = click.echo
    monkeypatch.setattr(click, "echo", full)
    result = rllib_command(*words)
    assert result.exit_code == 1 and "Traceback" not in result.output
    assert result.output.endswith("Error: OSError: [Errno 28] No space left on device\n")
