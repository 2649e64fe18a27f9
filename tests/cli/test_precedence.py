"""What is typed takes precedence over a file and over a checkpoint, wherever and under whatever name these have it."""

import json

import pytest

from rllib import PPOConfig
from rllib.cli.folders import Folders
from rllib.cli.spec import load_spec, make_spec
from rllib.cli.verbs.tune import _settings, _spec
from rllib.tune.search.space import holds_domains

FILE = "algorithm: PPO\nenv: CartPole-v1\n"


def searched(tmp_path, content, *words, **options):
    """The config of the trials of `rllib tune -f FILE WORDS`."""
    (tmp_path / "x.yaml").write_text(FILE + content)
    settings = _settings(words, load_spec(tmp_path / "x.yaml"), False, options)
    return _spec(settings, Folders(tmp_path), False, True).config


@pytest.mark.parametrize("name", ["lr", "sgd_stepsize"])
@pytest.mark.parametrize(
    "content",
    [
        "search: {lr: 'log:1e-5:1e-2'}",
        "search: {sgd_stepsize: [0.1, 0.2]}",
        "config: {lr: {grid_search: [0.1, 0.2]}}",
        "config: {sgd_stepsize: 0.1}",
    ],
)
def test_a_typed_value_replaces_what_a_file_searches(tmp_path, content, name):
    config = searched(tmp_path, content, f"{name}=0.5")
    values = {key: value for key, value in config.items() if key in ("lr", "sgd_stepsize")}
    assert list(values.values()) == [0.5]


def test_a_typed_part_of_a_setting_leaves_what_a_file_searches_beside_it(tmp_path):
    content = "search: {model.fcnet_hiddens: [[4], [8]], model.fcnet_activation: [relu, tanh]}"
    model = searched(tmp_path, content, "model.fcnet_hiddens=[2]")["model"]
    assert model["fcnet_hiddens"] == [2] and holds_domains(model["fcnet_activation"])


def test_a_typed_environment_replaces_that_of_a_file(tmp_path):
    assert searched(tmp_path, "", "env=Acrobot-v1")["env"] == "Acrobot-v1"
    assert searched(tmp_path, "search: {env: [a, b]}", "env=Acrobot-v1")["env"] == "Acrobot-v1"


def test_a_typed_seed_replaces_that_of_a_file(tmp_path):
    assert "seed" not in searched(tmp_path, "config: {seed: 1}", seed=3)  # Seeded counts from it
    assert searched(tmp_path, "seed: 1", "seed=3")["seed"] == 3
    for below, above in (
        ({"seed": 1}, {"config": {"seed": 3}}),
        ({"config": {"seed": 1}}, {"seed": 3}),
    ):
        spec = make_spec({"algorithm": "PPO", "env": "CartPole-v1", **below}, above, "here")
        assert (spec.seed or 3, spec.config.get("seed", 3)) == (3, 3)


def test_two_typed_values_are_refused(rllib_command):
    for words in (
        ("tune", "PPO", "CartPole-v1", "--search", "env=CartPole-v1,Acrobot-v1"),
        ("train", "PPO", "CartPole-v1", "--seed", "1", "seed=2"),
        ("train", "PPO", "CartPole-v1", "env=Acrobot-v1"),
    ):
        done = rllib_command(*words)
        assert done.exit_code == 2 and "two values" in done.output and "Give one." in done.output, done.output


def test_a_typed_pattern_of_agents_comes_before_those_of_a_file():
    below = {"algorithm": "PPO", "env": "x", "config": {"policy_mapping_fn": {"agent_*": "p0", "*": "p1"}}}
    spec = make_spec(below, {"config": {"policy_mapping_fn": {"agent_1": "p1"}}}, "here")
    assert list(spec.config["policy_mapping_fn"]) == ["agent_1", "agent_*", "*"]


@pytest.mark.parametrize("name", ["num_workers", "num_rollout_workers"])
def test_a_typed_setting_replaces_what_evaluation_would_choose(rllib_command, name):
    with PPOConfig().environment("CartPole-v1").training(model={"fcnet_hiddens": [4]}).build() as algo:
        algo.save("run")
    done = rllib_command("evaluate", "run", "--episodes", 1, "--config", json.dumps({name: 1}))
    assert done.exit_code == 0, done.output
