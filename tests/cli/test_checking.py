"""`rllib check-env`: the report on the screen and as JSON, and the exit codes."""

import json

import pytest
from click.testing import CliRunner

from rllib.cli import command


def run(*arguments):
    return CliRunner().invoke(command, ["check-env", *map(str, arguments)], env={"COLUMNS": "120"})


BROKEN = "tests.env.test_check_env:Reuses"


def test_a_sound_environment_passes():
    result = run("tests.env.test_check_env:Sound", "--steps", 100)
    assert result.exit_code == 0, result.output
    assert "passes  0 errors, 0 warnings, 1 note;" in result.output
    assert "step" in result.output and "observation space" in result.output


def test_warnings_fail_if_strict():
    assert run(BROKEN, "--steps", 100).exit_code == 0
    result = run(BROKEN, "--steps", 100, "--strict")
    assert result.exit_code == 3
    assert "warning" in result.output and "rule" in result.output and "do " in result.output
    assert "fails  0 errors, 2 warnings" in result.output


def test_errors_fail_and_json_has_all():
    result = run("tests.env.test_check_env:Shares", "--steps", 100, "--json")
    assert result.exit_code == 3
    report = json.loads(result.stdout)
    assert report["passes"] is False and report["findings"][0]["check"] == "instances"


def test_config_wrappers_and_several_at_once():
    wrapper = "{TimeLimit: {max_episode_steps: 5}}"
    config = "sutton_barto_reward=true"
    result = run("CartPole-v1", config, "--wrapper", wrapper, "--vector", 2, "--steps", 50, "--json")
    assert result.exit_code == 0, result.output
    measured = json.loads(result.stdout)["measured"]
    assert measured["mean_length"] <= 5 and measured["mean_return_of_random_actions"] <= 0
    assert measured["async_steps_per_second"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["CartPol-v1"], "Did you mean 'CartPole-v1'"),
        (["CartPole-v1", "--wrapper", "TimeAware"], "there is no wrapper 'TimeAware'"),
        (["CartPole-v1", "size"], "key=value"),
        (["CartPole-v1", "--steps", "0"], "0 is not in the range"),
    ],
)
def test_mistakes_end_with_2(arguments, words):
    result = run(*arguments)
    assert result.exit_code == 2 and words in result.output
