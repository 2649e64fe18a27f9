"""Ctrl-C before a command runs: while its module is imported, and while its words are read."""

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
