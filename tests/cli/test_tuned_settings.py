"""`rllib train ALGO ENV` takes the settings of a tuned example, and says so."""

import json

import pytest
from fake_algorithm import FakeAlgorithm

from rllib.cli import tuned_examples
from rllib.cli.spec import load_spec
from rllib.cli.tuned_examples import TUNED_EXAMPLES, tuned_settings

TRAIN = ("train", "PPO", "CartPole-v1", "--name", "run")
ONCE = ("--stop", "iterations=1")
CARTPOLE = load_spec(TUNED_EXAMPLES / "ppo" / "cartpole.yaml")["config"]
TAKEN = "of ppo/cartpole (there is also ppo/cartpole_cleanrl); --defaults for RLlib's"


def params_of(tmp_path) -> dict:
    return json.loads((tmp_path / "results" / "run" / "params.json").read_text())


def test_the_example_gives_settings_and_stop_criterion_but_no_seed(rllib_command, behaviour, tmp_path):
    result = rllib_command(*TRAIN)
    assert result.exit_code == 0, result.output
    assert params_of(tmp_path) == {**CARTPOLE, "env": "CartPole-v1", "seed": 5}, "5 is what the algorithm has drawn"
    assert result.stderr.count(f"settings and stop {TAKEN}") == 1
    assert "until episode_reward_mean >= 475 or timesteps_total >= 1,000,000" in result.output
    assert "episode_reward_mean 480 >= 475" in result.output
    resumed = json.loads((tmp_path / "results" / "run" / "run.json").read_text())
    assert resumed["config"] == CARTPOLE and resumed["stop"]["episode_reward_mean"] == 475


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (["lr=0.5"], {"lr": 0.5}),
        (["num_workers=3"], {"num_rollout_workers": 3}),
        (["model.fcnet_activation=relu"], {"model": {"fcnet_hiddens": [64, 64], "fcnet_activation": "relu"}}),
        (["--framework", "torch"], {"framework": "torch"}),
    ],
)
def test_a_setting_on_the_command_line_replaces_that_setting_alone(rllib_command, behaviour, tmp_path, words, changed):
    assert rllib_command(*TRAIN, *words, *ONCE).exit_code == 0
    assert params_of(tmp_path) == {**CARTPOLE, **changed, "env": "CartPole-v1", "seed": 5}


def test_a_stop_criterion_replaces_the_whole_one_of_the_example(rllib_command, behaviour):
    result = rllib_command(*TRAIN, "--stop", "return=50")
    assert "until episode_reward_mean >= 50\n" in result.output
    assert f"settings {TAKEN}" in result.stderr and "and stop" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [*TRAIN, "--defaults"],
        [*TRAIN, "--config", "{}"],
        ["train", "--run", "PPO", "--env", "CartPole-v1", "--name", "run"],
        [*TRAIN, "--input", "steps.npz"],
        ["train", "PPO", "Blackjack-v1", "--name", "run"],
    ],
    ids=["--defaults", "--config", "Ray's spelling", "recorded steps", "no example"],
)
def test_else_a_run_has_the_defaults(rllib_command, behaviour, tmp_path, arguments):
    result = rllib_command(*arguments, *ONCE)
    assert result.exit_code == 0, result.output
    assert params_of(tmp_path).keys() - {"env", "seed", "input_"} == {"num_rollout_workers"}  # FakeConfig's default
    assert "--defaults" not in result.output


@pytest.mark.parametrize("words", [["--num-samples", "2"], ["lr={grid_search: [0.1, 0.2]}"]])
def test_a_search_has_the_defaults(rllib_command, behaviour, monkeypatch, words):
    asked = []
    monkeypatch.setattr("rllib.cli.verbs.tune.search", lambda keys, *_: asked.append(keys))
    assert rllib_command(*TRAIN, *words, *ONCE).exit_code == 0
    assert asked[0]["config"].keys() <= {"lr"}


def test_quiet_hides_where_settings_come_from(rllib_command, behaviour, tmp_path):
    assert "ppo/cartpole" not in rllib_command(*TRAIN, *ONCE, "--quiet").output
    assert params_of(tmp_path)["train_batch_size"] == CARTPOLE["train_batch_size"]


def test_a_mistake_comes_after_the_line_that_says_whose_settings_there_are(rllib_command, behaviour):
    result = rllib_command(*TRAIN, "lrr=1")
    assert result.exit_code == 2 and "unknown setting 'lrr'" in result.stderr.partition(TAKEN)[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-f", "ppo/cartpole", "--defaults"], "--defaults is for ALGO ENV"),
        (["--resume", "results/run", "--defaults"], "leave out --defaults"),
        (["PPOO", "CartPole-v1", "--defaults"], "there is no algorithm 'PPOO'"),
        (["PPOO", "CartPole-v1"], "there is no algorithm 'PPOO'"),
        (["PPO", "--defaults"], "say what to train"),
    ],
)
def test_mistakes_are_one_message_and_exit_2(rllib_command, behaviour, arguments, message):
    result = rllib_command("train", *arguments)
    assert result.exit_code == 2 and message in result.output and "Traceback" not in result.output, result.output


# ---------------------------------------------------------------------- which example


@pytest.fixture
def examples(tmp_path, monkeypatch):
    """Writes examples "folder/name": (algorithm, environment) in place of the library's."""
    monkeypatch.setattr(tuned_examples, "TUNED_EXAMPLES", tmp_path)

    def write(**files):
        for name, (algorithm, env) in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"algorithm: {algorithm}\nenv: {env}\nconfig: {{lr: 0.25}}\nstop: {{timesteps_total: 9}}\n")

    return write


CHAIN = ("DQN", "Chain-v0")


def test_the_plain_example_is_taken_and_the_others_are_listed(examples):
    examples(c51__chain=CHAIN, dqn__chain=CHAIN, dqn__chain_long=CHAIN, dqn__a_chain=("DQN", "Chain-v1"))
    found = tuned_settings("dqn", "Chain-v0")
    assert (found.name, found.others) == ("dqn/chain", ("c51/chain", "dqn/chain_long"))
    assert (found.config, found.stop) == ({"lr": 0.25}, {"timesteps_total": 9})
    assert found.notice(has_stop=False) == (
        "settings and stop of dqn/chain (there is also c51/chain, dqn/chain_long); --defaults for RLlib's"
    )


def test_the_only_example_is_the_plain_one_by_any_name(examples):
    examples(apex_dqn__a=("ApexDQN", '"Chain-v0"'))
    found = tuned_settings("APEX", "Chain-v0")
    assert (found.name, found.others) == ("apex_dqn/a", ())
    assert found.notice(has_stop=True) == "settings of apex_dqn/a; --defaults for RLlib's"


@pytest.mark.parametrize("names", [("dqn__long_chain", "dqn__short_chain"), ("c51__chain", "rainbow__chain")])
def test_where_none_is_plain_none_is_taken_and_all_are_listed(examples, names):
    examples(**dict.fromkeys(names, CHAIN))
    found = tuned_settings("DQN", "Chain-v0")
    first, second = (name.replace("__", "/") for name in names)
    assert (found.name, found.config, found.stop) == (None, {}, {})
    assert found.notice(False) == f"RLlib's defaults; there are settings in {first} and {second}: -f {first}"


def test_examples_of_others_are_not_taken(examples):
    examples(ppo__chain=("PPO", "Chain-v0"), dqn__chains=("DQN", "Chain-v01"))
    examples(offline__dqn_chain=CHAIN, tune__dqn=CHAIN)
    assert tuned_settings("DQN", "Chain-v0") is None
    assert tuned_settings("my_module:PPO", "Chain-v0") is None, "a class of one's own by the same name"


def test_none_is_taken_where_no_examples_are_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(tuned_examples, "TUNED_EXAMPLES", tmp_path / "nowhere")
    assert tuned_settings("PPO", "CartPole-v1") is None


def test_every_example_is_taken_or_listed():
    for path in sorted(TUNED_EXAMPLES.glob("*/*.yaml")):
        if path.parent.name not in ("tune", "offline"):
            keys = load_spec(path)
            found = tuned_settings(keys["algorithm"], keys["env"])
            assert tuned_examples.example_name(path) in (found.name, *found.others)


# ---------------------------------------------------------------------- long updates

ADVICE = "of the time goes into updates. Fewer and larger gradient steps take less time"
SMALL_STEPS = ("--defaults", "sgd_minibatch_size=128", "train_batch_size=4000")


@pytest.fixture
def updates_take(monkeypatch):
    """Makes updates take this share of each iteration."""

    def take(share):
        timers = {"training_iteration_time_ms": 10.0, "sample_time_ms": 1.0, "learn_time_ms": 10 * share}
        train = FakeAlgorithm.train
        monkeypatch.setattr(FakeAlgorithm, "train", lambda self: {**train(self), "timers": timers})

    return take


def test_long_updates_in_small_steps_are_told_once(rllib_command, behaviour, updates_take):
    updates_take(0.9)
    result = rllib_command(*TRAIN, *SMALL_STEPS, "--stop", "iterations=5")
    assert result.output.count(ADVICE) == 1
    line = next(line for line in result.output.splitlines() if ADVICE in line)
    assert line.startswith("90% of the time") and "sgd_minibatch_size=512 instead of 128, or a smaller num_sgd" in line


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.8, SMALL_STEPS),
        (0.9, ("--defaults", "sgd_minibatch_size=256", "train_batch_size=4000")),
        (0.9, ("--defaults", "sgd_minibatch_size=128", "train_batch_size=128")),
        (0.9, ("--defaults",)),
        (0.9, ("sgd_minibatch_size=64",)),
        (0.9, (*SMALL_STEPS, "--quiet")),
    ],
    ids=["short", "large steps", "one step", "no such setting", "tuned", "quiet"],
)
def test_else_nothing_is_advised(rllib_command, behaviour, updates_take, share, words):
    updates_take(share)
    result = rllib_command(*TRAIN, *words, "--stop", "iterations=5")
    assert result.exit_code == 0 and ADVICE not in result.output


def test_files_of_tuned_examples_get_no_advice(rllib_command, behaviour, updates_take, tmp_path):
    updates_take(0.9)
    words = ("sgd_minibatch_size=64", "--stop", "iterations=3")
    assert ADVICE not in rllib_command("train", "-f", "ppo/cartpole", *words).output
    (tmp_path / "mine.yaml").write_text((TUNED_EXAMPLES / "ppo" / "cartpole.yaml").read_text())
    assert ADVICE in rllib_command("train", "-f", "mine.yaml", *words).output
