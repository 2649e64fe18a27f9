"""`rllib convert`: the difference, edits in place, and names that are not here."""

import pytest


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "mine.py"
    path.write_bytes(b"from ray.rllib.algorithms.ppo import PPOConfig\r\nprint(PPOConfig)\r\n")
    return path


def test_the_difference_is_shown(rllib_command, program):
    before = program.read_bytes()
    shown = rllib_command("convert", str(program))
    assert shown.exit_code == 0, shown.output
    assert "-from ray.rllib.algorithms.ppo import PPOConfig" in shown.output
    assert "+from rllib.algorithms.ppo import PPOConfig" in shown.output
    assert program.read_bytes() == before


def test_files_of_a_directory_are_edited(rllib_command, program):
    shown = rllib_command("convert", "--write", str(program.parent))
    assert "mine.py: 1 lines changed" in shown.output
    assert program.read_bytes() == b"from rllib.algorithms.ppo import PPOConfig\r\nprint(PPOConfig)\r\n"


def test_missing_names_are_listed_with_file_and_line(rllib_command, program):
    program.write_text("import os\nfrom ray.tune.schedulers.hb_bohb import HyperBandForBOHB\n")
    shown = rllib_command("convert", str(program))
    assert shown.exit_code == 1
    assert f"{program}:2: ray.tune.schedulers.hb_bohb.HyperBandForBOHB is not here: use ASHAScheduler" in shown.stderr


def test_what_is_no_python_is_refused(rllib_command, program):
    program.write_text("import ray from\n")
    shown = rllib_command("convert", str(program))
    assert shown.exit_code == 2
    assert "mine.py:1: this is no Python" in shown.output + shown.stderr


def test_nothing_is_edited_through_links(rllib_command, program, tmp_path):
    other = tmp_path / "other.py"
    other.write_text(program.read_text())
    program.unlink()
    program.symlink_to(other)
    before = other.read_text()
    for given in (program, program.parent):
        result = rllib_command("convert", "--write", given)
        assert result.exit_code == 2 and "leads to another place" in result.output
        assert other.read_text() == before
    assert rllib_command("convert", program).output.startswith("---")
