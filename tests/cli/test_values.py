import math
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from rllib.cli import command
from rllib.cli.values import (
    is_assignment,
    iteration_goal,
    merged,
    parse_assignments,
    parse_value,
    read_file,
    refuse_unknown,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("-2.5E+3", -2500.0),
        ("5", 5),
        ("1_000", 1000),
        (".5", 0.5),
        ("1.", 1.0),
        ("1e6", 1e6),
        (".inf", math.inf),
        ("true", True),
        ("null", None),
        ("", None),
        ("[64, 64]", [64, 64]),
        ("[[0, 1e-3], [1e5, 0.0]]", [[0, 1e-3], [1e5, 0.0]]),
        ("{a: 1e-3}", {"a": 1e-3}),
        ("tanh", "tanh"),
        ("1e", "1e"),
        ("e5", "e5"),
        ("1.2.3", "1.2.3"),
        ("2026-11-21x", "2026-11-21x"),
    ],
)
def test_values_are_yaml_with_floats_as_people_write_them(text, value):
    parsed = parse_value(text)
    assert parsed == value and type(parsed) is type(value)


def test_dots_nest():
    given = ["lr=1e-4", "model.fcnet_hiddens=[64,64]", "model.fcnet_activation=relu", "env_config.a.b=1", "x=a=b"]
    assert parse_assignments(given, "") == {
        "lr": 1e-4,
        "model": {"fcnet_hiddens": [64, 64], "fcnet_activation": "relu"},
        "env_config": {"a": {"b": 1}},
        "x": "a=b",
    }


@pytest.mark.parametrize(
    ("word", "expected"),
    [("lr=1e-3", True), ("a.b={c: 1}", True), ("lr=log:1:2", True), ("PPO", False), ("godot:port=11008", False)],
)
def test_a_name_may_have_an_equals_sign_behind_a_colon(word, expected):
    assert is_assignment(word) is expected


@pytest.mark.parametrize("word", ["lr", "=1"])
def test_settings_need_key_and_value(word):
    with pytest.raises(ValueError, match="key=value, like lr=1e-3, but got"):
        parse_assignments([word], "lr=1e-3")


def test_a_part_of_a_value_cannot_be_set():
    with pytest.raises(ValueError, match="model already has a value"):
        parse_assignments(["model=1", "model.fcnet_hiddens=[1]"], "")


def test_broken_yaml_is_told_with_its_place(tmp_path):
    with pytest.raises(ValueError, match="not a YAML value"):
        parse_value("[64")
    path = tmp_path / "broken.yaml"
    path.write_text("a: 1\nb: [\n")
    with pytest.raises(ValueError, match=r"(?s)broken.yaml is not YAML.*line 3"):
        read_file(path)


def test_keys_of_a_file_that_would_all_be_compared_with_one_another_are_refused(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("".join(f"{number * (2**61 - 1)}: 1\n" for number in range(1, 200)))
    with pytest.raises(ValueError, match="more than 100 of its keys have one hash"):
        read_file(file)


RUN = "algorithm: PG\nenv: CartPole-v1\n"


@pytest.mark.parametrize("verb", ["train", "tune"])
@pytest.mark.parametrize(("file", "words"), [
    (f"{RUN}env: Acrobot-v1\n", []),
    (f"{RUN}config:\n  lr: 1\n  lr: 1\n", []),
    (f"{RUN}config: {{lr: 1, gamma: 0.9, lr: 2}}\n", []),
    (f"{RUN}config: {{model: {{fcnet_hiddens: [8], fcnet_hiddens: [9]}}}}\n", []),
    (f"{RUN}config: {{policies: [{{a: 1, a: 2}}]}}\n", []),
    (f"{RUN}stop: {{iterations: 1, training_iteration: 2}}\n", []),
    ("a: {run: PG, env: CartPole-v1}\na: {run: PG, env: Acrobot-v1}\n", []),
    (RUN, ["lr=1e-3", "gamma=0.9", "lr=1e-4"]),
    (RUN, ["model={fcnet_hiddens: [8], fcnet_hiddens: [9]}"]),
    (RUN, ["model={fcnet_hiddens: [8]}", "model.fcnet_hiddens=[9]"]),
    (RUN, ["model.fcnet_hiddens=[9]", "model={fcnet_hiddens: [8]}"]),
    (RUN, ["model.fcnet_hiddens=[9]", "model=2"]),
    (RUN, ["--stop", "iterations=1", "--stop", "iterations=2"]),
    (RUN, ["--stop", "iterations=1", "--stop", "training_iteration=2"]),
    (RUN, ["--stop", "{iterations: 1}", "--stop", "iterations=2"]),
])  # fmt: skip
def test_no_value_is_lost_since_it_is_given_twice(verb, file, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text(file)
    result = CliRunner().invoke(command, [verb, "-f", "x.yaml", *words])
    said = " ".join(result.output.split())
    assert result.exit_code == 2 and ("twice" in said or "already has" in said), result.output
    assert [path.name for path in tmp_path.iterdir()] == ["x.yaml"]


def test_a_mapping_and_other_parts_of_it_are_joined():
    for words in (["model={a: 1}", "model.b=2", "lr=1", "lr=1"], ["model.b=2", "lr=1", "model={a: 1}"]):
        assert parse_assignments(words, "lr=1") == {"model": {"a": 1, "b": 2}, "lr": 1}


@pytest.mark.parametrize("words", [["lr=1e-3,1e-4", "lr=1e-5"], ["lr="], ["lr=1", "gamma="]])
def test_what_is_searched_is_given_once_and_has_values(words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    arguments = ["tune", "PG", "CartPole-v1", "--search", *words]
    monkeypatch.setattr("sys.argv", ["rllib", *arguments])
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2 and ("twice" in result.output or "no value" in result.output), result.output


@pytest.mark.parametrize("key", ["config", "search", "stop"])
@pytest.mark.parametrize("name", ["5", "true", "null", "1.5", "2020-01-01"])
def test_names_in_files_are_texts(key, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text(f"{RUN}{key}: {{{name}: 1}}\n")
    result = CliRunner().invoke(command, ["tune", "-f", "x.yaml"])
    assert result.exit_code == 2 and "which is no name" in result.output, result.output


@pytest.mark.parametrize("seed", ["true", "-4", "1.5", "word"])
def test_the_seed_of_a_search_is_a_whole_number(seed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text(f"{RUN}stop: {{iterations: 1}}\ntrials: 2\nseed: {seed}\n")
    result = CliRunner().invoke(command, ["tune", "-f", "x.yaml"])
    assert result.exit_code == 2 and "seed must be" in result.output, result.output


def test_the_best_of_a_search_is_not_kept_by_a_flag_of_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(
        command, ["train", "PG", "CartPole-v1", "--num-samples", "2", "--keep-best", "--stop", "steps=1"]
    )
    assert result.exit_code == 2 and "--keep-best is for a single run" in result.output


def test_merged_replaces_all_but_mappings():
    below = {"config": {"lr": 1, "model": {"a": 1, "b": [1, 2]}}, "env": "A"}
    above = {"config": {"model": {"b": [3]}}, "env": "B", "seed": 1}
    assert merged(below, above) == {"config": {"lr": 1, "model": {"a": 1, "b": [3]}}, "env": "B", "seed": 1}
    assert below["config"]["model"] == {"a": 1, "b": [1, 2]}


def test_unknown_keys_are_told_with_the_nearest():
    with pytest.raises(ValueError, match=r"x.yaml: unknown key 'algoritm'. Did you mean 'algorithm'\?"):
        refuse_unknown(["algoritm"], ["algorithm", "env"], "x.yaml")
    with pytest.raises(ValueError, match=r"unknown key 'zzz'. Known are: algorithm, env."):
        refuse_unknown(["zzz"], ["algorithm", "env"], "x.yaml")


@pytest.mark.parametrize(
    ("thresholds", "goal"),
    [
        ({"timesteps_total": 9, "num_env_steps_sampled_lifetime": 5}, {"timesteps": 5}),
        ({"env_runners/episode_return_mean": 150}, {"episode_reward_mean": 150}),
        ({"training_iteration": 3, "evaluation/episode_reward_mean": 4, "info/learner/x": 1}, {}),
    ],
)
def test_goals_that_end_an_iteration(thresholds, goal):
    assert iteration_goal(thresholds) == goal


def _options(of: click.Command, name: str = "rllib") -> Iterator:
    """(command, option) of all commands below one."""
    if isinstance(of, click.Group):
        for each in of.list_commands(click.Context(of)):
            yield from _options(of.get_command(click.Context(of), each), f"{name} {each}")
    for option in of.params:
        if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
            yield pytest.param(option, id=f"{name} {option.opts[-1]}")


# Options that take any number: values of metrics.
_OF_METRICS = ("--goal",)


@pytest.mark.parametrize("option", list(_options(command)))
def test_an_option_takes_numbers_that_mean_something(option):
    """No NaN or infinity anywhere, and no count, seed or duration below 0; -1 where it means "any number"."""
    for wrong in ("nan", "inf", "-inf", *(() if option.opts[-1] in _OF_METRICS else ("-5",))):
        with pytest.raises(click.BadParameter):
            option.type.convert(wrong, option, None)


@pytest.mark.parametrize("option", list(_options(command)))
def test_help_names_no_bound_of_an_option_without_one(option):
    assert "None" not in option.get_help_record(click.Context(command))[1]


@pytest.mark.parametrize("verb", ["train", "tune"])
@pytest.mark.parametrize("stop", ["steps=-5", "iterations=0", "time=-1", "num_env_steps_sampled_lifetime=0"])
def test_a_stop_that_every_result_reaches_is_refused_before_anything_begins(verb, stop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [verb, "PPO", "CartPole-v1", "--stop", "episode_reward_mean=100", "--stop", stop]
    result = CliRunner().invoke(command, words)
    assert result.exit_code == 2 and "must be > 0" in result.output and not list(tmp_path.iterdir())
