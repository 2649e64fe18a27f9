"""Editors complete every setting, by the stubs that are made when the package is installed."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib

import jedi
import pytest
import stubs

import rllib


@pytest.fixture(scope="module", autouse=True)
def written():
    """The stubs of the settings that there are now."""
    stubs.write()


def test_stubs_of_what_is_gone_go(tmp_path):
    (tmp_path / "algorithms").mkdir()
    (tmp_path / "algorithms" / "of_before.pyi").write_text("")
    stubs.write(tmp_path)
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.pyi")}
    assert made == {path.relative_to(stubs.STUBS) for path in stubs.STUBS.rglob("*.pyi")}
    assert all(ast.parse((tmp_path / path).read_text()) for path in made if (tmp_path / path).stat().st_size)


def test_they_are_made_with_what_a_build_installs(tmp_path):
    """A build has no torch, whose installation takes longer than all else, and no package that it is not given."""
    project = tomllib.loads((stubs.ROOT / "pyproject.toml").read_text())
    build = _distributions(project["tool"]["hatch"]["build"]["hooks"]["custom"]["dependencies"])
    for name, owners in importlib.metadata.packages_distributions().items():
        if {_normal(owner) for owner in owners} & (_distributions(project["project"]["dependencies"]) - build):
            (tmp_path / f"{name}.py").write_text("raise ImportError('a build does not have it')")
    assert (tmp_path / "torch.py").exists() and (tmp_path / "yaml.py").exists()
    program = "import sys; sys.path[:0] = sys.argv[1:]; import stubs; stubs.write(stubs.Path(sys.argv[1], 'made'))"
    subprocess.run([sys.executable, "-c", program, str(tmp_path), str(stubs.ROOT / "tools")], check=True)
    assert (tmp_path / "made" / "algorithms" / "ppo.pyi").exists()


def _distributions(requirements):
    return {_normal(re.match(r"[\w.-]+", each)[0]) for each in requirements}


def _normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("name", ["PPO", "DQN", "IMPALA"])
def test_completion_lists_every_setting_of_every_section(name):
    """By jedi, which knows nothing but the files: what other editors' completion finds, too."""
    config_class = getattr(rllib, f"{name}Config")
    environment = jedi.InterpreterEnvironment()
    for section in config_class.sections.values():
        code = f"from rllib import {name}Config\n{name}Config().environment('CartPole-v1').{section.name}("
        found = {each.name for each in jedi.Script(code, environment=environment).complete()}
        assert {f"{setting}=" for setting in section.names} <= found, section.name
