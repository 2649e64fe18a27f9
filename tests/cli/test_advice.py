"""Advice in the words of the command that was typed: what it says to do can be typed."""

import re
import shlex

import click
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib import BCConfig, PPOConfig
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.cli.failures import as_typed, message_of, typed_settings
from rllib.cli.values import parse_assignments, parse_mapping
from rllib.config.conflicts import Mistake, SettingsError, asks
from rllib.offline.dataset import Dataset

QUICK = ("num_rollout_workers=0", "train_batch_size=64", "sgd_minibatch_size=64", "num_sgd_iter=1", "--name", "x")


def in_command(name: str, message: str) -> str:
    own = click.Command(name, params=[click.Option(["--load-user-code"], is_flag=True)])
    with click.Context(own):
        return as_typed(message)


SETTINGS = [
    ".training(lr=1e-3)",
    ".rollouts(num_rollout_workers=0)",
    '.training(weight_decay=None, opt_type="adam")',
    ".environment(env_wrappers=[{'FrameStackObservation': {'stack_size': 4}}])",
    ".evaluation(evaluation_config={'input_': 'a b'})",
    '.environment("CartPole-v1")',
    ".training(gamma=0.9, lr=-5.0)",
    ".offline_data(input_='*.json')",
    ".multi_agent(policy_mapping_fn={'*': 'p0'})",
]


@pytest.mark.parametrize("call", SETTINGS)
@pytest.mark.parametrize("command", ["train", "tune", "serve", "evaluate"])
def test_settings_of_a_program_become_what_the_command_takes(command, call):
    """What replaces the call has its meaning when it is typed."""
    message = in_command(command, f"Use {call} or leave it.")
    typed = shlex.split(message.removeprefix("Use ").removesuffix(" or leave it."))
    if command == "evaluate":
        options = dict(zip(typed[::2], typed[1::2]))
        given = parse_mapping(options.pop("--config", "{}"), "--config")
        given |= {name.removeprefix("--"): value for name, value in options.items()}
    else:
        given = parse_assignments([word for word in typed if word != "--set"], "")
    meant = eval(f"config{call}", {"config": AlgorithmConfig()})
    assert AlgorithmConfig().update_from_dict(given).changes() == meant.changes()


@pytest.mark.parametrize(
    "message",
    [
        "Use .training(learner_class=MyLearner).",  # code cannot be typed
        "It was cut off: .training(model={'fcnet_hiddens': [",
        "The file is a.training.yaml (of three).",
    ],
)
def test_what_cannot_be_typed_is_left_as_it_is(message):
    assert in_command("train", message) == message


def test_a_command_without_settings_keeps_the_words_of_a_program():
    assert in_command("play", "Use .training(lr=1.0).") == "Use .training(lr=1.0)."
    assert as_typed("Use .training(lr=1.0).") == "Use .training(lr=1.0)."


MISTAKES = [
    AlgorithmConfig().evaluation(evaluation_videos=1),
    AlgorithmConfig().resources(num_gpus=1).training(learner="numpy"),
    AlgorithmConfig().environment(action_mask_key=None, action_mask_from="info"),
    AlgorithmConfig().evaluation(off_policy_estimation_methods={"is": {"type": "is"}}),
]


@pytest.mark.parametrize("config", MISTAKES)
@pytest.mark.parametrize("command", ["train", "tune", "serve", "evaluate"])
def test_what_ends_a_mistake_in_settings_is_said_as_it_is_typed(command, config):
    config.environment("CartPole-v1")
    with pytest.raises(SettingsError) as raised, click.Context(click.Command(command)):
        config.validate()
    (mistake,) = raised.value.mistakes
    ways = (*mistake.remedies, *mistake.examples)
    remedy = next(each for each in ways if any(asks(value) for value in each.values()))
    with click.Context(click.Command(command)):
        shown = message_of(raised.value)
    typed = shlex.split(re.search(r"(?<=se )(--set [^\s,]+|--config '[^']*'|[^\s,]+)", shown)[0].rstrip("."))
    if command == "evaluate":
        given = parse_mapping(typed[1], "--config")
    else:
        given = parse_assignments([word for word in typed if word != "--set"], "")
    assert AlgorithmConfig().update_from_dict(given)[next(iter(remedy))] == next(iter(remedy.values()))
    assert message_of(raised.value) == str(raised.value)  # outside of a command
    assert "." + AlgorithmConfig.settings[next(iter(remedy))].section not in shown


def test_objects_in_a_remedy_are_said_as_a_program_writes_them():
    config = AlgorithmConfig()
    error = config.error(Mistake("a=1 is wrong.", ("callbacks_class",), ({"callbacks_class": int},)))
    with click.Context(click.Command("train")):
        assert message_of(error) == "AlgorithmConfig: a=1 is wrong. Use .callbacks(<class 'int'>)."


PLAIN = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(allow_nan=False) | st.text(max_size=6)
KEYS = st.from_regex(r"[a-z_]{1,5}", fullmatch=True)


@given(st.recursive(PLAIN, lambda items: st.lists(items, max_size=3) | st.dictionaries(KEYS, items, max_size=3)))
def test_settings_as_they_are_typed_are_read_as_they_were(value):
    assert parse_assignments(shlex.split(typed_settings({"x": value})), "") == {"x": value}


def test_numbers_of_numpy_are_typed_as_plain_ones():
    settings = {"lr": np.float64(1e-05), "n": np.int64(3), "f": [np.float32(0.5)]}
    assert typed_settings(settings) == "lr=1e-05 n=3 'f=[0.5]'"


def test_every_section_is_known():
    with click.Context(click.Command("train")):
        for section in AlgorithmConfig.sections.keys() - {"external", "callbacks"}:  # which take objects
            assert as_typed(f".{section}(x=1)") == "x=1", section


@pytest.mark.parametrize("words", [("evaluate", "x"), ("record", "x", "--to", "a.json"), ("push", "x", "me/x")])
def test_code_of_a_checkpoint_is_asked_for_by_the_flag(rllib_command, tmp_path, words):
    config = PPOConfig().environment("CartPole-v1").callbacks(on_train_result=lambda **more: None)
    with config.build() as algo:
        algo.save(tmp_path / "x")
    done = rllib_command(*words)
    assert done.exit_code == 2 and "load_user_code=True" not in done.output and "from_checkpoint" not in done.output
    assert "--load-user-code" in done.output or words[0] == "push", done.output


@pytest.mark.parametrize("verb", ["train", "tune"])
def test_a_criterion_behind_another_is_named_with_how_it_is_typed(rllib_command, verb):
    done = rllib_command(verb, "PPO", "CartPole-v1", *QUICK, "--stop", "return=5", "steps=20000")
    assert done.exit_code == 2 and "Each criterion needs its own --stop: --stop steps=20000." in done.output
    assert "rllib config PPO lists all settings" in done.output


def test_a_mistake_in_a_setting_says_what_to_type(rllib_command):
    done = rllib_command("train", "PPO", "CartPole-v1", "num_rollout_workers=-1", *QUICK[1:])
    assert done.exit_code == 2 and "Use num_rollout_workers=2." in done.output and ".rollouts" not in done.output


@pytest.mark.parametrize("given, above", [(("a", "b"), "."), (("a/x", "a/y"), "a"), (("a/x", "a"), ".")])
def test_the_dashboard_of_several_directories_is_that_of_the_one_above(rllib_command, tmp_path, given, above):
    (tmp_path / "a" / "x").mkdir(parents=True)
    done = rllib_command("dashboard", *given)
    assert done.exit_code == 2 and f"rllib dashboard {above}\n" in done.output, done.output


@pytest.fixture
def recorded(rllib_command, tmp_path):
    with PPOConfig().environment("CartPole-v1").training(model={"fcnet_hiddens": [4]}).build() as algo:
        algo.save(tmp_path / "ck")
    assert rllib_command("record", "ck", "--to", "d.json", "--steps", 50).exit_code == 0
    assert len(Dataset.from_path(tmp_path / "d.json")) == 50
    few = BCConfig().training(train_batch_size=16).changes()
    return ("train", "BC", "CartPole-v1", "--input", "d.json", "min_train_timesteps_per_iteration=16",
            *(f"{name}={value}" for name, value in few.items()), "--name", "x")  # fmt: skip


def test_a_return_that_a_run_on_recorded_steps_never_has_is_refused(rllib_command, recorded):
    done = rllib_command(*recorded, "--stop", "return=5")
    assert done.exit_code == 2 and "is never reached" in done.output, done.output
    (criterion,) = re.findall(r"Use --stop (\S+) with evaluation_interval=1", done.output)
    done = rllib_command(*recorded, "evaluation_interval=1", "evaluation_duration=1", "--stop", criterion)
    assert done.exit_code == 0 and "return         -" in done.output and " evaluation " in done.output, done.output
