"""`rllib train` with a stand-in for the algorithm (conftest.py)."""

import contextlib
import io
import itertools
import json
import logging
import math
import os
import pty
import re
import signal
import subprocess
import sys
import termios

import numpy as np
import pytest
from fake_algorithm import FakeAlgorithm, FakeConfig
from rich.console import Console
from safetensors.numpy import load_file

import rllib.cli.display
from rllib.cli.display import PanelDisplay, line_of, phase_shares, sparkline
from rllib.cli.run_directory import RunDirectory
from rllib.cli.spec import make_spec
from rllib.errors import GpuMemoryError, LearnersLostError, NotFiniteError
from rllib.progress import elapsed, number
from rllib.runs.files import keep_failing_batch

TRAIN = ("train", "PPO", "CartPole-v1", "--defaults", "--name", "run")


@pytest.mark.sidecar
def test_a_run_leaves_its_files_and_says_where_they_are(rllib_command, behaviour, tmp_path):
    result = rllib_command(*TRAIN, "--stop", "episode_reward_mean=50")
    assert result.exit_code == 0, result.output
    run = tmp_path / "results" / "run"
    names = {path.name.partition(".tfevents")[0] for path in run.iterdir()}
    files = {"run.json", "params.json", "result.json", "progress.csv", "events.out", "curve.png", "starts.json"}
    assert names == files | {"checkpoint_000005"}
    assert "episode_reward_mean 50 >= 50 after 5 iterations, 500 steps" in result.output
    assert "curve       results/run/curve.png" in result.output
    assert "rllib evaluate results/run/checkpoint_000005" in result.output
    assert len((run / "result.json").read_text().splitlines()) == 5
    assert FakeAlgorithm.stopped == 1


@pytest.mark.parametrize("error", [LearnersLostError, GpuMemoryError])
def test_a_failure_after_which_a_run_can_go_on_names_the_command(error, rllib_command, behaviour, tmp_path):
    def fail():
        raise error("all 2 have ended.")

    behaviour[3] = fail
    result = rllib_command(*TRAIN, "--checkpoint-freq", 2, "--stop", "iterations=9")
    assert result.exit_code == 1
    assert f"{error.__name__}: all 2 have ended.\nResume from there: rllib train --resume results/run" in result.stderr
    behaviour[1] = fail
    result = rllib_command(*TRAIN[:-1], "other", "--checkpoint-freq", 2, "--stop", "iterations=9")
    assert result.exit_code == 1 and "--resume" not in result.stderr, "there is no checkpoint"


def test_settings_reach_the_config(rllib_command, behaviour, tmp_path):
    words = ["lr=1e-4", "model.fcnet_hiddens=[64,64]", "num_rollout_workers=0", "--seed", 3, "--stop", "iterations=1"]
    assert rllib_command(*TRAIN, *words).exit_code == 0
    params = json.loads((tmp_path / "results/run/params.json").read_text())
    assert params == {
        "env": "CartPole-v1", "lr": 1e-4, "model": {"fcnet_hiddens": [64, 64]}, "num_rollout_workers": 0, "seed": 3,
    }  # fmt: skip


def test_the_seed_that_was_drawn_is_written_down(rllib_command, behaviour, tmp_path):
    rllib_command(*TRAIN, "--stop", "iterations=1")
    assert json.loads((tmp_path / "results/run/params.json").read_text())["seed"] == 5


def test_command_line_takes_precedence_over_the_file(rllib_command, behaviour, tmp_path):
    (tmp_path / "run.yaml").write_text(
        "algorithm: PPO\nenv: CartPole-v1\nseed: 1\nname: filed\nstop: {timesteps_total: 900}\n"
        "config: {lr: 1e-3, model: {fcnet_hiddens: [8], fcnet_activation: relu}}\ncheckpoint_freq: 2\n"
    )
    result = rllib_command("train", "-f", "run.yaml", "model.fcnet_hiddens=[4]", "--seed", 2, "--stop", "iterations=3")
    assert result.exit_code == 0, result.output
    (config,) = behaviour["configs"]
    model = {"fcnet_hiddens": [4], "fcnet_activation": "relu"}
    assert config.settings["lr"] == 1e-3 and config.settings["model"] == model and config.settings["seed"] == 2
    checkpoints = sorted(path.name for path in (tmp_path / "results" / "filed").glob("checkpoint_*"))
    assert checkpoints == ["checkpoint_000002", "checkpoint_000003"]


FOUR = {"fcnet_hiddens": [4]}


@pytest.mark.parametrize(
    ("filed", "typed", "becomes"),
    [
        ("num_workers: 2", "num_rollout_workers=1", {"num_rollout_workers": 1}),
        ("num_rollout_workers: 2", "num_env_runners=1", {"num_rollout_workers": 1}),
        ("sgd_stepsize: 0.5", "lr=0.01", {"lr": 0.01}),
        ("timesteps_per_batch: 100", "train_batch_size=800", {"train_batch_size": 800}),
        ("training: {lr: 0.5}", "lr=0.01", {"lr": 0.01}),
        ("vf_share_layers: true", "model.fcnet_hiddens=[4]", {"model": {"vf_share_layers": True, **FOUR}}),
        ("model: {vf_share_layers: true}", "vf_share_layers=false", {"model": {"vf_share_layers": False}}),
        ("env: Pendulum-v1", "lr=0.01", {"lr": 0.01}),
        ("num_rollout_workers: 2", "env=Acrobot-v1", {"env": "Acrobot-v1"}),
    ],
)
def test_command_line_goes_over_the_file_under_any_name(rllib_command, behaviour, tmp_path, filed, typed, becomes):
    (tmp_path / "run.yaml").write_text(f"algorithm: PPO\nenv: CartPole-v1\nconfig: {{{filed}, gamma: 0.5}}\n")
    result = rllib_command("train", "-f", "run.yaml", typed, "--stop", "iterations=1")
    assert result.exit_code == 0, result.output
    assert behaviour["configs"][0].settings == {
        "num_rollout_workers": 2, "gamma": 0.5, "env": "CartPole-v1", **becomes
    }  # fmt: skip


@pytest.mark.parametrize(
    ("filed", "typed", "becomes"),
    [
        ("env_runners/episode_return_mean", "return", "episode_reward_mean"),
        ("sampler_results/episode_reward_mean", "reward", "episode_reward_mean"),
        ("episode_reward_mean", "env_runners/episode_return_mean", "env_runners/episode_return_mean"),
        ("num_env_steps_sampled_lifetime", "steps", "timesteps_total"),
        ("training_iteration", "iterations", "training_iteration"),
    ],
)
def test_stop_goes_over_the_file_under_any_name(filed, typed, becomes):
    below = {"algorithm": "PPO", "env": "CartPole-v1", "stop": {filed: 9, "time_total_s": 3}}
    spec = make_spec(below, {"stop": {typed: 1}}, "a test")
    assert spec.stop == {becomes: 1, "time_total_s": 3}


def test_key_value_goes_over_config_under_any_name(rllib_command, behaviour):
    result = rllib_command("train", "PPO", "CartPole-v1", "--config", '{"num_workers": 3}', "num_rollout_workers=1",
                           "--stop", "iterations=1")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert behaviour["configs"][0].settings["num_rollout_workers"] == 1


def test_a_file_that_sets_one_setting_twice_is_refused(rllib_command, behaviour, tmp_path):
    (tmp_path / "run.yaml").write_text("algorithm: PPO\nenv: CartPole-v1\nconfig: {lr: 1, sgd_stepsize: 2}\n")
    result = rllib_command("train", "-f", "run.yaml", "lr=3", "--stop", "iterations=1")
    assert result.exit_code == 2 and "lr is given twice, by two of its names" in result.stderr


def test_what_rays_release_tests_expect_is_passed_over(rllib_command, behaviour, tmp_path):
    (tmp_path / "run.yaml").write_text(
        "x: {run: PPO, env: CartPole-v1, stop: {training_iteration: 1}, pass_criteria: {episode_reward_mean: 150}}"
    )
    assert rllib_command("train", "-f", "run.yaml").exit_code == 0


def test_ray_style_files_are_understood(rllib_command, behaviour, tmp_path):
    (tmp_path / "ray.yaml").write_text(
        "cartpole-ppo:\n  env: CartPole-v1\n  run: PPO\n  stop: {training_iteration: 1}\n  config: {num_workers: 1}\n"
    )
    assert rllib_command("train", "-f", "ray.yaml").exit_code == 0
    assert behaviour["configs"][0].settings["num_workers"] == 1
    assert rllib_command("train", "file", "ray.yaml").exit_code == 0, "it can be run again"
    directories = [path.name for path in (tmp_path / "results").iterdir()]
    assert len(directories) == 2 and all(re.match(r"cartpole-ppo_\d{4}-\d\d-\d\d_", name) for name in directories)
    assert rllib_command("train", "-f", "ray.yaml", "--name", "mine").exit_code == 0
    assert (tmp_path / "results" / "mine").is_dir()


def test_a_run_has_one_directory(rllib_command, tmp_path):
    result = rllib_command("train", "PPO", "CartPole-v1", "log_dir=elsewhere", "--stop", "iterations=1")
    assert result.exit_code == 2 and "leave out log_dir, and give --name" in result.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("name", ["ppo/cartpole", "cartpole-ppo", "tuned_examples/ppo/cartpole.yaml"])
def test_tuned_examples_are_found_by_name(rllib_command, behaviour, name):
    assert rllib_command("train", "-f", name, "--stop", "iterations=1").exit_code == 0
    assert behaviour["configs"][0].settings["train_batch_size"] == 1024


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "say what to train: rllib train ALGO ENV"),
        (["train", "PPO"], "say what to train: rllib train ALGO ENV"),
        (["train", "PPOO", "CartPole-v1"], "there is no algorithm 'PPOO'"),
        ([*TRAIN, "lrr=1"], "unknown setting 'lrr'. Did you mean 'lr'?"),
        ([*TRAIN, "lr=[1"], "'[1' is not a YAML value"),
        ([*TRAIN, "--stop", "return=high"], "stop: return='high' must be a number"),
        ([*TRAIN, "--stop", "return"], "--stop episode_reward_mean=475, but got 'return'"),
        ([*TRAIN, "--config", "[1]"], """--config takes a mapping like '{"lr": 0.001}', but got '[1]'"""),
        ([*TRAIN, "--run", "PPO"], "say what to train"),
        (["train", "--run", "PPO"], "say what to train"),
        (["trian", "PPO", "CartPole-v1"], "there is no command 'trian'. Did you mean 'train'? Commands: train, ev"),
        (["frobnicate"], "there is no command 'frobnicate'. Commands: train"),
        (["train", "-f", "nothing.yaml"], "there is no file nothing.yaml, and no tuned example of that name"),
        (["train", "-f", "study"], "there is no file study. Did you mean study.py?"),
        (
            ["train", "-f", "study.py"],
            "study.py must have a variable `config` that is the config of an algorithm, such",
        ),
        (["train", "-f", "unknown.yaml"], "unknown.yaml: unknown key 'algoritm'. Did you mean 'algorithm'?"),
        (["train", "-f", "types.yaml"], "Expected `int | null`, got `str` - at `$.seed`"),
        (["train", "-f", "ppo/cartpol"], "there is no file ppo/cartpol. Did you mean the tuned example ppo/cartpole"),
        (["train", "-f", "missing.yaml"], "missing.yaml does not say which environment. Write it there, as in env: Ca"),
        (["train", "-f", "list.yaml"], "must hold keys like algorithm, env, config and stop"),
        ([*TRAIN, "--checkpoint-freq", "-1"], "-1 is not in the range x>=0"),
        ([*TRAIN, "--sed", "1"], "--seeds"),
        ([*TRAIN, "--lr", "1e-3"], ". Settings have no dashes: lr=VALUE.\n"),
        (["tune", "PPO", "CartPole-v1", "--train-batch-size=1"], "no dashes: train_batch_size=VALUE"),
        ([*TRAIN, "lr", "1e-3"], "'lr' is no setting; a setting is key=value, like lr=1e-3"),
    ],
)
def test_mistakes_are_one_message_and_exit_2(rllib_command, behaviour, tmp_path, arguments, message):
    (tmp_path / "unknown.yaml").write_text("algoritm: PPO\nenv: CartPole-v1\n")
    (tmp_path / "types.yaml").write_text("algorithm: PPO\nenv: CartPole-v1\nseed: x\n")
    (tmp_path / "missing.yaml").write_text("algorithm: PPO\n")
    (tmp_path / "list.yaml").write_text("- PPO\n")
    (tmp_path / "study.py").write_text("")
    result = rllib_command(*arguments)
    assert result.exit_code == 2
    assert message in result.output and "Traceback" not in result.output


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("episode_reward_men=1", "episode_reward_mean"),
        ("retrun=1", "return"),
        ("iteration=1", "iterations"),
        ("timestep_total=1", "timesteps_total"),
        ("evaluaton/episode_reward_mean=1", "evaluation"),
    ],
)
def test_a_misspelt_stop_is_refused_before_anything_is_built(rllib_command, behaviour, typed, near):
    result = rllib_command(*TRAIN, "--stop", typed)
    assert result.exit_code == 2 and not behaviour["configs"], result.output
    assert f"no result has {typed.split('=')[0]!r}. Did you mean" in result.stderr and near in result.stderr


def test_callbacks_may_bring_their_own_stop_key(rllib_command, behaviour):
    result = rllib_command(*TRAIN, "callbacks_class=mine", "--stop", "won=1", "--stop", "iterations=1")
    assert "the results have no won" in result.stderr, "found in the first result"


RAY_FLAGS = ("train", "--run", "PPO", "--env", "CartPole-v1", "--experiment-name", "x", "--local-dir", "there",
             "--checkpoint-at-end", "--num-samples", "1")  # fmt: skip


def test_rays_flags_are_understood(rllib_command, behaviour, tmp_path):
    result = rllib_command(*RAY_FLAGS, "--config", '{"lr": 0.1, "model": {"fcnet_hiddens": [4]}}', "gamma=0.5",
                           "--stop", '{"training_iteration": 2, "timesteps_total": 1e9}')  # fmt: skip
    assert result.exit_code == 0, result.output
    settings = behaviour["configs"][0].settings
    assert (settings["lr"], settings["gamma"], settings["model"]) == (0.1, 0.5, {"fcnet_hiddens": [4]})
    assert (tmp_path / "there" / "x" / "checkpoint_000002").is_dir()


def test_the_environment_may_stand_in_the_config(rllib_command, behaviour):
    result = rllib_command("train", "--algo", "PPO", "--config", "{env: CartPole-v1}", "--stop", "iterations=1")
    assert result.exit_code == 0, result.output
    assert behaviour["configs"][0].settings["env"] == "CartPole-v1"


def test_a_name_is_used_once(rllib_command, behaviour):
    assert rllib_command(*TRAIN, "--stop", "iterations=1").exit_code == 0
    result = rllib_command(*TRAIN, "--stop", "iterations=1")
    assert result.exit_code == 2 and "results/run exists already; give this run another --name" in result.output
    assert len(behaviour["configs"]) == 1 and FakeAlgorithm.stopped == 1


def test_runs_without_a_name_never_share_a_directory(rllib_command, behaviour, tmp_path):
    for _ in range(3):
        assert rllib_command("train", "PPO", "ns/My:Env-v0", "--stop", "iterations=1", "-q").exit_code == 0
    names = [path.name for path in (tmp_path / "results").iterdir()]
    assert len(names) == 3 and all(name.startswith("PPO_ns_My_Env-v0_20") for name in names)


@pytest.mark.sidecar
def test_ctrl_c_saves_a_checkpoint_and_exits_130(rllib_command, behaviour, press_ctrl_c, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    behaviour[3] = press_ctrl_c
    result = rllib_command(*TRAIN)
    assert result.exit_code == 130 and "PPO on CartPole-v1, until Ctrl-C" in result.output
    assert "Finishing this iteration, then saving" in result.output
    assert "interrupted after 3 iterations" in result.output
    assert (tmp_path / "results/run/checkpoint_000003").is_dir() and (tmp_path / "results/run/curve.png").exists()
    assert FakeAlgorithm.stopped == 1 and signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_twice_stops_at_once(rllib_command, behaviour, press_ctrl_c, tmp_path):
    def press_twice():
        press_ctrl_c()
        press_ctrl_c()

    behaviour[2] = press_twice
    result = rllib_command(*TRAIN)
    assert result.exit_code == 130 and "interrupted after 1 iteration, 100 steps" in result.output
    assert not (tmp_path / "results/run/checkpoint_000002").exists() and FakeAlgorithm.stopped == 1
    assert len((tmp_path / "results/run/result.json").read_text().splitlines()) == 1
    said = dict(line.split(maxsplit=1) for line in result.output.splitlines()[-4:])
    assert said["results"].endswith("results/run") and said["checkpoint"].endswith("checkpoint_000001")
    assert said["resume"].startswith("rllib train --resume ") and said["resume"].endswith("results/run")


def test_ctrl_c_twice_before_the_first_checkpoint_says_where_the_results_are(rllib_command, behaviour, press_ctrl_c):
    def press_twice():
        press_ctrl_c()
        press_ctrl_c()

    behaviour[1] = press_twice
    result = rllib_command(*TRAIN)
    assert result.exit_code == 130 and "checkpoint  none" in result.output and "--resume" not in result.output
    assert "\nresults     results/run\n" in result.output


def test_ctrl_c_while_building_exits_130(rllib_command, behaviour, press_ctrl_c, tmp_path):
    behaviour["build"] = press_ctrl_c
    assert rllib_command(*TRAIN).exit_code == 130
    assert not (tmp_path / "results").exists()


def fail():
    raise RuntimeError("the learner is broken")


def users_environment_fails():
    error = KeyError("position")
    error.add_note("environment 3 of rollout worker 2 raised in step()")
    raise error


def test_failures_exit_1_with_one_message_and_keep_the_files(rllib_command, behaviour, tmp_path):
    behaviour[3] = fail
    result = rllib_command(*TRAIN)
    assert result.exit_code == 1
    assert "RuntimeError: the learner is broken" in result.output and "rllib/algorithms/" not in result.output
    assert "the learner is broken" in (tmp_path / "results/run/error.txt").read_text()
    assert len((tmp_path / "results/run/result.json").read_text().splitlines()) == 2
    assert FakeAlgorithm.stopped == 1


def test_a_failed_update_leaves_its_batch_and_names_the_newest_checkpoint(rllib_command, behaviour, tmp_path):
    def diverge():
        error = NotFiniteError("the gradient of critics is not finite.")
        error.batch = {"rewards": np.array([1.0, np.inf], np.float32)}
        raise error

    behaviour[2] = diverge
    result = rllib_command(*TRAIN)
    run = tmp_path / "results/run"
    assert result.exit_code == 1
    for text in (result.output, (run / "error.txt").read_text()):
        assert "the gradient of critics is not finite. The batch is in" in text
        assert "failing_batch.safetensors" in text and "The newest checkpoint is" in text
        assert "checkpoint_000001" in text
    assert load_file(run / "failing_batch.safetensors")["rewards"].tolist() == [1.0, np.inf]
    assert (run / "checkpoint_000001").is_dir()


def test_an_error_is_told_where_its_batch_cannot_be_kept(tmp_path):
    (tmp_path / "failing_batch.safetensors").mkdir()
    error = NotFiniteError("the gradient of critics is not finite.")
    keep_failing_batch(tmp_path, error)
    assert re.fullmatch("the gradient .* The batch could not be kept: .* has no checkpoint yet.", str(error))


def test_verbose_shows_the_traceback(rllib_command, behaviour):
    behaviour[1] = fail
    assert "Traceback" in rllib_command(*TRAIN, "-v").output


@pytest.mark.parametrize("when", ["build", 2])
def test_the_users_own_exception_keeps_its_traceback(rllib_command, behaviour, when):
    behaviour[when] = users_environment_fails
    result = rllib_command(*TRAIN)
    assert result.exit_code == 1
    assert "in users_environment_fails" in result.output and "KeyError: 'position'" in result.output
    assert "environment 3 of rollout worker 2 raised in step()" in result.output
    assert "cli/verbs/train.py" not in result.output


def test_quiet_shows_only_the_end(rllib_command, behaviour):
    result = rllib_command(*TRAIN, "-q", "--stop", "iterations=2")
    assert result.output.startswith("training_iteration 2 >= 2") and "iter " not in result.output


def test_quiet_hides_notices_of_old_names_and_shows_warnings(rllib_command, behaviour):
    def notices():
        logging.getLogger("rllib.compat.names.aliases").info(
            "the setting num_workers is called num_rollout_workers here"
        )
        logging.getLogger("rllib.evaluation").warning("a worker died")

    behaviour["build"] = notices
    for flags, shown in ((["-q"], False), ([], True), (["-q", "-v"], True)):
        output = rllib_command(*TRAIN, *flags, "--name", f"run{len(flags)}", "--stop", "iterations=1").output
        assert ("num_rollout_workers here" in output) == shown and "a worker died" in output


def test_lines_become_fewer_as_time_goes_on(rllib_command, behaviour, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(rllib.cli.display.time, "monotonic", lambda: now[0])

    def time_passes():
        now[0] += 0.5

    behaviour.update({iteration: time_passes for iteration in range(1, 501)})
    output = rllib_command(*TRAIN, "--stop", "iterations=500").output
    iterations = [int(line.split()[1]) for line in output.splitlines() if line.startswith("iter ")]
    assert iterations[:11] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12] and iterations[-1] == 500
    assert 60 < len(iterations) < 160


def test_panel_shows_what_matters():
    display = PanelDisplay()
    display._console.width = 100  # private: a terminal of a known width
    display.start("PPO on CartPole-v1", "episode_reward_mean >= 475", "results/run")
    algorithm = FakeAlgorithm(FakeConfig({}))
    for _ in range(12):
        result = algorithm.train()
        display.on_result(result, result["training_iteration"] / 20)
    display.note("a worker died")
    with display._console.capture() as capture:
        display._console.print(display.render())
    display.close()
    text = capture.get()
    shown = "PPO on CartPole-v1|120.0|▁|█|0.0 to 240.0|1,200|10,000 /s in iteration 12|sample 60%|other 10%|2/2 healthy"
    for part in [*shown.split("|"), "episode_reward_mean >= 475", "60%", "results/run"]:
        assert part in text, text


def test_the_panel_and_lines_show_clients():
    traffic = {
        "clients": 2, "open_episodes": 1, "episodes_lost": 3, "requests_per_s": 1200.4, "act_ms_p50": 0.4,
        "act_ms_p99": 2.1, "rows_waiting": 1, "weights_lag": 1,
    }  # fmt: skip
    result = {**FakeAlgorithm(FakeConfig({})).train(), "external": traffic}
    assert line_of(result).endswith("  clients    2  lost    3")
    assert "clients" not in line_of({**result, "external": None})
    display = PanelDisplay()
    display._result = result
    shown = " ".join(" ".join(shown_at(100, display)).replace("│", " ").split())
    said = "2 clients, 1 episode open, lag 1 update, 3 lost, 1,200 requests/s, wait p50 / p99 0.4 / 2.1 ms, 1 row"
    assert said in shown, shown
    display._result = {**result, "external": {**traffic, "clients": 0, "requests_per_s": 0}}  # a loop in a worker
    shown = " ".join(" ".join(shown_at(100, display)).split())
    assert "1 episode open, lag 1 update" in shown and "lost" not in shown
    display._result = FakeAlgorithm(FakeConfig({})).train()
    assert "clients" not in " ".join(shown_at(100, display))


def shown_at(width, display):
    display._console.width = width  # private: as above
    with display._console.capture() as capture:
        display._console.print(display.render())
    return capture.get().splitlines()


@pytest.mark.parametrize("width", [40, 60, 84, 100, 200])
def test_the_panel_fits_terminals_of_every_width(width):
    display = PanelDisplay()
    directory = "/home/somebody/experiments/results/PPO_CartPole-v1_2030-01-01_00-00-00"
    display.start("PPO on CartPole-v1", "training_iteration >= 20", directory)
    algorithm = FakeAlgorithm(FakeConfig({}))
    for _ in range(12):
        display.on_result({**algorithm.train(), "episode_reward_min": -12345.6}, 0.6)
    lines = shown_at(width, display)
    display.close()
    assert {len(line) for line in lines} == {min(width, 120)}
    assert lines[0][0] + lines[0][-1] + lines[-1][0] + lines[-1][-1] == "╭╮╰╯"
    text = "\n".join(lines)
    for part in ("PPO on CartPole-v1", "120.0", "▁", "-12,345.6 to 240.0", "training_iteration >= 20", "60%"):
        assert part in text, text
    assert directory[-25:] in lines[-1], "the end of the path says which run it is"
    assert (directory in lines[-1]) == (width >= 84)


@pytest.mark.parametrize("goal", ["", "training_iteration >= 20", "training_iteration >= 20 or time_total_s >= 3"])
@pytest.mark.parametrize("large", [{}, {"timesteps_total": 123_456_789, "episode_reward_mean": -1_234_567.8}])
def test_a_terminal_that_is_too_narrow_for_the_panel_ends_no_run(goal, large):
    for width in range(1, 40):
        display = PanelDisplay(Console(file=io.StringIO(), color_system=None, width=width, height=5))
        display.start("PPO on CartPole-v1", goal, "results/run")
        algorithm = FakeAlgorithm(FakeConfig({}))
        for progress in (0.0, 1.0):
            display.on_result({**algorithm.train(), **large}, progress)
            assert max(map(len, shown_at(width, display))) <= width
        display.note("a worker died")
        display.close()


@pytest.mark.parametrize("width", [60, 100, 200])
def test_long_numbers_stay_in_their_column_and_lines_break_between_phrases(width):
    display = PanelDisplay()
    goal = "episode_reward_mean >= 475 or timesteps_total >= 1,000,000,000 or training_iteration >= 100,000"
    display.start("PPO", goal, "results/run")
    gpus = {f"{kind}_util_percent{gpu}": 0.5 for kind in ("vram", "gpu") for gpu in range(8)}
    large = {"timesteps_total": 123_456_789, "training_iteration": 123_456, "episode_reward_mean": -1_234_567.8}
    display.on_result({**FakeAlgorithm(FakeConfig({})).train(), **large, "perf": gpus}, 0.6)
    lines = shown_at(width, display)
    display.close()
    assert {len(line) for line in lines} == {min(width, 120)}
    numbers = [re.match(r"│ (return|length|steps) +\S+", line) for line in lines]
    assert len({found.end() for found in numbers if found}) == 1, lines
    text = "\n".join(lines)
    gpus = (f"GPU {gpu} 50% busy, memory 50%" for gpu in range(8))
    for part in ("10,000 /s in iteration 123,456", *gpus, *goal.split(" or ")):
        assert part in text, text


@pytest.mark.parametrize(
    ("perf", "line"),
    [
        ({}, "idle 70%"),  # 3 of 10 ms are the learn timer's
        ({"learner_util_percent": 0.25, "vram_util_percent1": 0.5}, "idle 75%, GPU 1 memory 50%"),
        ({"vram_util_percent0": 0.5, "gpu_util_percent0": 0.1}, "idle 70%, GPU 0 10% busy, memory 50%"),
    ],
)
def test_the_panel_shows_how_idle_the_learner_is(perf, line):
    display = PanelDisplay()
    display.start("PPO", "", "results/run")
    display.on_result({**FakeAlgorithm(FakeConfig({})).train(), "perf": perf}, 0.0)
    lines = [each for each in shown_at(100, display) if "idle" in each]
    display.close()
    assert len(lines) == 1 and line in re.sub(r" +", " ", lines[0]), lines


@pytest.mark.parametrize(("before", "after", "rows_a_line"), [(100, 50, 2), (100, 33, 4), (100, 99, 2), (60, 100, 1)])
def test_a_narrower_window_leaves_no_half_lines(before, after, rows_a_line):
    """It has broken each line of the last drawing into several rows; all are erased, from the last one upwards."""
    drawn = io.StringIO()
    display = PanelDisplay(Console(file=drawn, force_terminal=True, width=before, height=50))
    display.start("PPO", "", "results/run")
    lines = len(Console(width=before).render_lines(display.render()))
    display._live.refresh()  # private: so that it is drawn now, and not within a second
    display._console.width = after
    drawn.seek(0)
    drawn.truncate()
    display._live.refresh()
    display.close()
    first = drawn.getvalue().partition("╭")[0]
    assert first.count("\x1b[1A") == first.count("\x1b[2K") - 1 == lines * rows_a_line - 1


def test_before_the_first_result_the_panel_does_not_say_where_it_samples():
    display = PanelDisplay()
    display.start("PPO", "", "results/run")
    (before,) = [line for line in shown_at(100, display) if "workers" in line]
    display.on_result(FakeAlgorithm(FakeConfig({})).train(), 0.0)
    (after,) = [line for line in shown_at(100, display) if "workers" in line]
    display.close()
    assert before.split() == ["│", "workers", "-", "│"] and "2/2 healthy" in after


def test_the_panels_clock_is_that_of_the_results():
    display = PanelDisplay()
    display.start("PPO", "", "results/run")
    display.on_result({"time_total_s": 3785.2, "training_iteration": 1}, 0.0)
    display.close()
    assert "1:03:05" in shown_at(100, display)[0]


TORN = """
import signal, sys, time
from rllib.cli.display import PanelDisplay

pressed = []
signal.signal(signal.SIGINT, lambda *_: (pressed.append(1), display.note("Finishing this iteration")))
display = PanelDisplay()
display.start("PPO", "steps >= 1", "results/run")
display.note("ready")
while not pressed:
    time.sleep(0.01)
display.close()
print("over", flush=True)
"""


def test_ctrl_c_leaves_the_panels_border_alone():
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(sys.executable, [sys.executable, "-c", TORN], {**os.environ, "COLUMNS": "60", "TERM": "xterm"})
    shown = b""
    with contextlib.suppress(OSError):  # the child has ended
        while chunk := os.read(terminal, 65536):
            if b"ready" in chunk:
                assert not termios.tcgetattr(terminal)[3] & termios.ECHO
                os.write(terminal, b"\r\x03")
            if b"over" in chunk:
                echoes_again = termios.tcgetattr(terminal)[3] & termios.ECHO
            shown += chunk
    assert os.waitpid(child, 0)[1] == 0, shown.decode()
    assert b"^C" not in shown and b"Finishing this iteration" in shown and echoes_again


@pytest.mark.parametrize("values", list(itertools.product([0.0, 5.0, -1e300, math.inf, -math.inf, math.nan], repeat=3)))
def test_sparkline_of_any_numbers(values):
    for width in range(4):
        assert len(sparkline(list(values), width)) == min(width, sum(map(math.isfinite, values)))


def test_sparkline_averages_stretches():
    assert sparkline([], 10) == ""
    assert sparkline([5.0], 10) == "▁"
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 7, 7], 2) == "▁█"
    assert len(sparkline(range(1000), 36)) == 36


def test_numbers_are_readable():
    assert number(float("nan")) == number(None) == "-"
    assert number(1234567.0, 0) == "1,234,567"
    assert [elapsed(s) for s in (4.21, 185, 3785)] == ["4.2 s", "3:05", "1:03:05"]
    assert phase_shares({}) == {}


def test_a_single_run_does_not_import_the_search():
    code = "import sys, rllib.cli.verbs.train; sys.exit('rllib.cli.verbs.tune' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


class Scripted:
    """Saves directories; the returns of its iterations are given."""

    def save(self, path):
        path.mkdir()


@pytest.mark.parametrize("every", [0, 2])
def test_the_best_and_the_newest_checkpoint_are_kept(tmp_path, every):
    directory = RunDirectory(tmp_path)
    returns = [math.nan, 5.0, 9.0, 3.0, 8.0, 2.0]
    for iteration, value in enumerate(returns, 1):
        directory.save_if_due(Scripted(), iteration, every)
        directory.save_if_best(Scripted(), iteration, {"episode_reward_mean": value}, every)
    directory.save(Scripted(), len(returns))
    directory.log.close()
    kept = {path.name for path in tmp_path.glob("checkpoint_*")}
    assert kept == {f"checkpoint_{number:06}" for number in ((2, 3, 4, 6) if every else (3, 6))}
    assert directory.best == tmp_path / "checkpoint_000003"

    again = RunDirectory(tmp_path)
    assert (again.best, again.best_return) == (directory.best, 9.0)
    again.save_if_best(Scripted(), 7, {"episode_reward_mean": 8.5}, 0)
    assert again.best == directory.best
    again.save_if_best(Scripted(), 8, {"episode_reward_mean": 9.5}, 0)
    again.log.close()
    assert not directory.best.exists() and again.best.name == "checkpoint_000008"


def _kept_as_best(path, returns, first=1):
    """Iteration, return and source of the best after iterations with these returns of (training, evaluation)."""
    directory = RunDirectory(path)
    for iteration, (training, evaluation) in enumerate(returns, first):
        result = {"episode_reward_mean": training}
        if evaluation is not None:
            result["evaluation"] = {"episode_reward_mean": evaluation}
        directory.save_if_best(Scripted(), iteration, result, 0)
    directory.log.close()
    kept = json.loads((path / "best.json").read_text())
    assert directory.best == path / kept["checkpoint"] and directory.best.is_dir()
    return int(kept["checkpoint"].removeprefix("checkpoint_")), kept["episode_reward_mean"], kept["source"]


@pytest.mark.parametrize(
    ("returns", "best"),
    [
        ([(50, None), (60, 10), (70, None), (80, 30), (60, None), (60, 40)], (6, 40, "evaluation")),
        ([(50, None), (60, 10), (70, None), (80, 5)], (2, 10, "evaluation")),
        ([(50, 99), (999, 10), (999, None)], (1, 99, "evaluation")),
        ([(50, None), (70, None), (60, math.nan)], (2, 70, "training")),  # no episode ended in the evaluation
        ([(50, None), (70, None), (60, None)], (2, 70, "training")),
        ([(math.nan, None), (-5, None), (math.nan, -9), (9, None)], (3, -9, "evaluation")),
    ],
)
def test_returns_of_training_and_of_evaluations_are_not_compared(tmp_path, returns, best):
    assert _kept_as_best(tmp_path, returns) == best


def test_the_source_of_the_best_return_outlasts_the_process(tmp_path):
    assert _kept_as_best(tmp_path, [(50, 10)]) == (1, 10, "evaluation")
    assert _kept_as_best(tmp_path, [(999, None), (1, 20), (999, None)], first=2) == (3, 20, "evaluation")


def test_a_best_of_an_earlier_version_is_replaced_by_a_higher_return_alone(tmp_path):
    (tmp_path / "checkpoint_000001").mkdir()
    (tmp_path / "best.json").write_text('{"checkpoint": "checkpoint_000001", "episode_reward_mean": 30.0}')
    assert _kept_as_best(tmp_path, [(20, 25), (31, 35)], first=2) == (3, 35, "evaluation")


def test_keep_best_tells_where_it_is(rllib_command, behaviour, tmp_path):
    result = rllib_command("train", "PPO", "CartPole-v1", "--keep-best", "--stop", "iterations=3", "--name", "x")
    assert result.exit_code == 0 and "best        results/x/checkpoint_000003" in result.output, result.output
    assert [path.name for path in (tmp_path / "results/x").glob("checkpoint_*")] == ["checkpoint_000003"]


def test_the_panel_shows_which_number_of_cores_was_measured_to_be_faster():
    display = PanelDisplay()
    display.start("SAC", "", "results/run")
    chosen = {"default_policy": {"cores": 2, "reason": "2 cores took 0.62 of the time of 1 core"}}
    display.on_result({**FakeAlgorithm(FakeConfig({})).train(), "info": {"learner_cores": chosen}}, 0.0)
    shown = " ".join(" ".join(shown_at(100, display)).split())
    display.close()
    assert "idle 70%, on 2 cores: 2 cores took 0.62 of the time of 1 core" in shown, shown
