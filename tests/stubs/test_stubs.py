"""Stubs and declarations are in step, and editors complete every setting."""

import jedi
import pytest
from generate import ROOT, STUBS, stubs

import rllib


def test_every_stub_is_as_generated():
    made = stubs()
    assert {path for path in STUBS.rglob("*") if path.is_file()} == set(made)
    assert not list(ROOT.glob("rllib/**/*.pyi")), "stubs belong in rllib-stubs/"
    stale = [str(path.relative_to(ROOT)) for path, text in made.items() if path.read_text() != text]
    assert not stale, f"run `python tests/stubs/generate.py`: {stale}"


@pytest.mark.parametrize("name", ["PPO", "DQN", "IMPALA"])
def test_completion_lists_every_setting_of_every_section(name):
    """By jedi, which knows nothing but the files: what other editors' completion finds, too."""
    config_class = getattr(rllib, f"{name}Config")
    environment = jedi.InterpreterEnvironment()
    for section in config_class.sections.values():
        code = f"from rllib import {name}Config\n{name}Config().environment('CartPole-v1').{section.name}("
        found = {each.name for each in jedi.Script(code, environment=environment).complete()}
        assert {f"{setting}=" for setting in section.names} <= found, section.name
