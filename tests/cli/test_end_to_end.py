"""The command as a person uses it: real training in processes of its own."""

import json
import os
import re
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from rllib import DQNConfig
from rllib.cli import command
from rllib.storage.checkpoint import write_checkpoint

QUICK = ("train_batch_size=256", "sgd_minibatch_size=128", "num_sgd_iter=2", "model.fcnet_hiddens=[16]")
TRAIN = ("train", "PPO", "CartPole-v1", "num_rollout_workers=2", *QUICK, "--name", "run", "--seed", "1")


def results(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "result.json").read_text().splitlines()]


def test_train_then_evaluate(rllib, rllib_command):
    code, output = rllib(*TRAIN, "--stop", "iterations=3")
    assert code == 0, output
    run = rllib.directory / "results" / "run"
    assert [result["timesteps_total"] for result in results(run)] == [256, 512, 768]
    assert results(run)[-1]["num_healthy_workers"] == 2
    assert json.loads((run / "params.json").read_text())["num_rollout_workers"] == 2
    assert len((run / "progress.csv").read_text().splitlines()) == 4
    assert (run / "curve.png").exists() and list(run.glob("events.out.tfevents*"))

    places = (run, run / "checkpoint_000003")
    evaluations = [rllib_command("evaluate", place, "--episodes", 5, "--seed", 7) for place in places]
    shown, again = (evaluation.output for evaluation in evaluations)
    assert shown == again
    assert evaluations[0].exit_code == 0 and "mean ± standard error of 5 episodes" in shown, shown
    code, output = rllib("evaluate", run, "--episodes", 5, "--seed", 7, "--json")
    found = json.loads(output)
    returns = found["hist_stats"]["episode_reward"]
    assert code == 0 and found["episodes"] == len(returns) == 5 and found["checkpoint"].endswith("checkpoint_000003")
    assert f"return  {found['episode_reward_mean']:.2f} ± {found['episode_reward_standard_error']:.2f} (" in shown
    assert found["episode_reward_mean"] == sum(returns) / 5 and found["episode_reward_max"] == max(returns)


def test_equal_seeds_give_equal_runs(rllib):
    for name in ("first", "second"):
        code, output = rllib(*TRAIN, "--stop", "iterations=2", "--name", name)
        assert code == 0, output
    first, second = (results(rllib.directory / "results" / name) for name in ("first", "second"))
    assert [line["hist_stats"] for line in first] == [line["hist_stats"] for line in second]
    assert [line["info"] for line in first] == [line["info"] for line in second]


def test_ctrl_c_saves_a_checkpoint_that_evaluates(rllib):
    process = rllib.start(*TRAIN)
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line.startswith("iter     2"):
            os.killpg(process.pid, signal.SIGINT)
    output = "".join(seen)
    assert process.wait(60) == 130, output
    (checkpoint,) = (rllib.directory / "results" / "run").glob("checkpoint_*")
    assert "Finishing this iteration, then saving" in output and "Traceback" not in output
    assert f"rllib evaluate results/run/{checkpoint.name}" in output
    code, output = rllib("evaluate", checkpoint, "--episodes", 2)
    assert code == 0, output


def test_a_terminal_gets_the_panel(rllib):
    rllib.environment["TERM"] = "xterm"
    code, shown = _through_a_terminal(rllib, "--stop", "iterations=3")
    assert code == 0, shown
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    for part in ("╭─ PPO on CartPole-v1", "2/2 healthy", "training_iteration >= 3", "100%"):
        assert part in text, text
    assert text.rstrip().endswith("rllib evaluate results/run/checkpoint_000003")


def test_a_terminal_that_cannot_redraw_gets_lines(rllib):
    rllib.environment["TERM"] = "dumb"
    code, shown = _through_a_terminal(rllib, "--stop", "iterations=2")
    assert code == 0 and "iter     1" in shown and "iter     2" in shown, shown


def _through_a_terminal(rllib, *arguments) -> tuple[int, str]:
    """Exit code and output of a run whose output is a pseudo-terminal."""
    ours, theirs = os.openpty()
    process = rllib.start(*TRAIN, *arguments, stdout=theirs, stderr=theirs, text=False)
    os.close(theirs)
    shown = b""
    while chunk := _read(ours):
        shown += chunk
    os.close(ours)
    return process.wait(60), shown.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other end is closed
        return b""


BROKEN_ENV = """
import gymnasium

class Broken(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        if self.steps > 30:
            self.fall_off_the_table()
        return self.observation_space.sample(), 0.0, False, False, {}

    def fall_off_the_table(self):
        raise ValueError("the robot has fallen off the table")

gymnasium.register("Broken-v0", Broken)
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_an_environment_that_raises_is_told_with_its_own_traceback(rllib, workers):
    (rllib.directory / "broken_envs.py").write_text(BROKEN_ENV)
    code, output = rllib("train", "PPO", "broken_envs:Broken-v0", f"num_rollout_workers={workers}", *QUICK)
    assert code == 1, output
    assert "in fall_off_the_table" in output and "the robot has fallen off the table" in output
    assert "rollout worker" in output and "step 31 of" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "PPO", "CartPol-v1"], "CartPole-v1"),
        (["train", "PPO", "CartPole-v1", "lrr=1"], "lrr"),
        (["train", "PPO", "CartPole-v1", "model.fcnet_hidden=[4]"], "fcnet_hiddens"),
        (["train", "PPO", "CartPole-v1", "framework=tf"], "framework"),
        (["train", "PPO", "CartPole-v1", "train_batch_size=10", "sgd_minibatch_size=20"], "sgd_minibatch_size"),
        (["evaluate", "nowhere"], "there is no checkpoint nowhere"),
        (["evaluate", "."], "checkpoint"),
        (["config", "PPOO"], "Did you mean 'PPO'"),
        (["config", "PPO", "xyz"], "no setting that contains 'xyz'"),
    ],
)
def test_mistakes_are_one_message_and_exit_2(rllib_command, arguments, message):
    outcome = rllib_command(*arguments)
    assert outcome.exit_code == 2 and message in outcome.output and "Traceback" not in outcome.output, outcome.output
    assert not Path("results").exists()


def test_a_mistake_in_a_process_of_its_own(rllib):
    code, output = rllib("train", "PPO", "CartPol-v1")
    assert code == 2 and "CartPole-v1" in output and "Traceback" not in output, output


def test_config_shows_every_setting(rllib_command):
    output = rllib_command("config", "PPO").output
    assert ".training()" in output and "clip_param: " in output and "env_config" in output
    output = rllib_command("config", "PPO", "entropy").output
    assert "entropy_coeff" in output and "clip_param" not in output


def test_config_shows_which_defaults_are_not_rllibs_and_why(rllib_command):
    output = rllib_command("config", "PPO", "cost_limit").output
    assert "What excludes what" in output and "recompute_advantages and cost_limit: advantages of rewards" in output
    output = rllib_command("config", "IMPALA").output
    _, last = output.split("Defaults that are not RLlib 2.6's\n")
    assert "num_gpus: 0, RLlib's is 1\n        The defaults run on a machine without a GPU." in last
    output = rllib_command("config", "IMPALA", "entropy").output
    assert "RLlib 2.6" not in output
    output = rllib_command("config", "PQN").output
    assert "RLlib 2.6" not in output


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        *((f"rllib {verb} P", "PPO") for verb in ("train", "tune", "config", "benchmark classic")),
        *((f"rllib {verb} lamb", "lambda_=") for verb in ("train PPO x", "tune PPO x", "benchmark classic PPO")),
        *((f"rllib {verb} PPPO x lamb", "") for verb in ("train", "tune")),  # no prompt is for its error
        ("rllib benchmark classic PPPO lamb", ""),
    ],
)
def test_the_shell_completes(typed, offered):
    found = CliRunner().invoke(command, [], prog_name="rllib", env=prompt(typed))
    output = found.output
    assert found.exit_code == 0 and (f"plain,{offered}" in output.split() if offered else not output.strip())


def test_the_shell_completes_by_a_process_of_its_own(rllib):
    rllib.environment |= prompt("rllib t")
    code, output = rllib()
    assert code == 0 and "plain,train" in output.split()


def prompt(typed):
    """Variables by which bash asks what completes the last word."""
    return {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_RLLIB_COMPLETE": "bash_complete"}


def test_checkpoints_of_a_gpu_act_without_one(rllib_command, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    config = DQNConfig().environment("CartPole-v1").training(learner="torch", store_buffer_in_checkpoints=True)
    config.training(num_steps_sampled_before_learning_starts=0, replay_buffer_config={"capacity": 500})
    with config.build() as algo:
        algo.sample(20)
        files = algo.get_state()
    settings = files["config.json"]
    settings |= {"num_gpus": 1, "replay_buffer_config": {**settings["replay_buffer_config"], "storage": "gpu"}}
    checkpoint = write_checkpoint(tmp_path / "checkpoint", files)
    for words in (["evaluate", checkpoint, "--episodes", 1], ["export", checkpoint, "-o", tmp_path / "policy.pt2"]):
        result = rllib_command(*words)
        assert result.exit_code == 0, result.output
