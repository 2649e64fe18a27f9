"""Reports of an experiment on a terminal, in a file and in a notebook."""

import io
import os
import pty
import re
import select
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from rich.console import Console

from rllib.tune.experiment.trial import Trial
from rllib.tune.reporting import reporters
from rllib.tune.reporting.reporters import (
    CLIReporter,
    JupyterNotebookReporter,
    LiveReporter,
    TrialEndLines,
    make_reporter,
)
from rllib.tune.states import ERROR, PENDING, RUNNING, TERMINATED

ROOT = Path(__file__).parents[2]
STATUS = {"scheduler": "FIFOScheduler", "used": {"CPU": 4.0}, "total": {"CPU": 4.0}, "directory": "/r/my_experiment",
          "elapsed_s": 3672.4}  # fmt: skip


def trial_of(index, status, result=None, params=None, pid=None, error=None, env="CartPole-v0"):
    params = {"lr": 10.0**-index} if params is None else params
    trial = Trial(f"x_{index:05d}", index, "PPO", {"env": env, **params}, params, Path("/r/my_experiment"))
    trial.status, trial.pid, trial.error = status, pid, error
    if result:
        trial.take(result)
    return trial


def of_the_slides():
    def slide(index, step_size, status, *numbers):
        keys = ("time_total_s", "timesteps_total", "episode_reward_mean")
        pid = {0: 21940, 1: 21942}.get(index)
        return trial_of(index, status, dict(zip(keys, numbers)), {"sgd_stepsize": step_size}, pid)

    return [
        slide(0, 0.01, RUNNING, 16.2, 4013, 22.0), slide(1, 0.001, RUNNING, 27.4, 8111, 54.7),
        slide(2, 0.0001, PENDING),
    ]  # fmt: skip


def test_the_text_of_2018():
    text = CLIReporter().text(of_the_slides(), {**STATUS, "total": {"CPU": 4.0, "GPU": 0.0}})
    assert text == textwrap.dedent(
        """\
        == Status ==
        Using FIFO scheduling algorithm.
        Resources requested: 4/4 CPUs, 0/0 GPUs
        Result logdir: /r/my_experiment
        PENDING trials:
        - PPO_CartPole-v0_2_sgd_stepsize=0.0001:    PENDING
        RUNNING trials:
        - PPO_CartPole-v0_0_sgd_stepsize=0.01:      RUNNING [pid=21940], 16 s, 4013 ts, 22 rew
        - PPO_CartPole-v0_1_sgd_stepsize=0.001:     RUNNING [pid=21942], 27 s, 8111 ts, 54.7 rew
        """
    )


def test_when_all_trials_have_ended_no_resources_are_requested():
    ended = [trial_of(index, TERMINATED, {"loss": 1.0}) for index in range(2)]
    assert "Resources requested" not in CLIReporter().text(ended, STATUS)
    assert "Resources requested" in CLIReporter().text([*ended, trial_of(2, RUNNING)], STATUS)


def test_many_trials_are_a_table_of_running_ones_and_the_best():
    trials = [trial_of(i, TERMINATED, {"loss": 100.0 - i, "training_iteration": 10}) for i in range(30)]
    trials[3].status, trials[3].pid = RUNNING, 77
    trials.append(trial_of(30, PENDING))
    reporter = CLIReporter(max_progress_rows=4)
    reporter.set_objective("loss", "min")
    lines = reporter.text(trials, STATUS).splitlines()
    assert "Number of trials: 31 (1 PENDING, 1 RUNNING, 29 TERMINATED)" in lines
    assert lines[5].split() == ["Trial", "name", "status", "loc", "lr", "loss", "iter"]
    assert [line.split()[0] for line in lines[7:11]] == [f"PPO_CartPole-v0_{i}" for i in (3, 29, 28, 27)]
    assert lines[7].split() == ["PPO_CartPole-v0_3", "RUNNING", "77", "0.001", "97.00", "10"]
    assert lines[11:13] == [
        "... 27 more trials not shown",
        "Current best trial: PPO_CartPole-v0_29 with loss=71 and lr=1e-29",
    ]
    assert len({len(line) for line in lines[5:11]}) == 1, "numbers stand flush right"


def test_what_a_function_reports_is_shown_unless_columns_are_given():
    trials = [trial_of(0, RUNNING, {"score": 1.5, "done": False, "timestamp": 9, "text": "x"})]
    assert "score=1.5" in CLIReporter().text(trials, STATUS) and "timestamp" not in CLIReporter().text(trials, STATUS)
    assert CLIReporter().rows(trials)[0] == ["Trial name", "status", "lr", "score"]
    given = CLIReporter(metric_columns={"text": "words"}, parameter_columns=["env"])
    headings, rows, _ = given.rows(trials)
    assert headings == ["Trial name", "status", "env", "words"]
    assert rows == [["PPO_CartPole-v0_0_lr=1", "RUNNING", "CartPole-v0", "x"]], "what is not in a column is in the name"


def test_columns_are_added_and_trials_sorted():
    reporter = CLIReporter(metric_columns={"loss": "L"}, sort_by_metric=True, max_progress_rows=2)
    reporter.set_objective("loss", "min")
    reporter.add_metric_column("timesteps_total", "steps")
    reporter.add_parameter_column("env")
    trials = [trial_of(i, TERMINATED, {"loss": loss, "timesteps_total": 7}) for i, loss in enumerate((3.0, 1.0, 2.0))]
    headings, rows, left_out = reporter.rows(trials)
    assert headings == ["Trial name", "status", "env", "L", "steps"] and left_out == 1
    assert [row[-2:] for row in rows] == [["1.000", "7"], ["2.000", "7"]]


def test_failures_are_named_with_the_last_line_and_the_file():
    trials = [trial_of(i, ERROR, error=f"Traceback ...\nValueError: number {i}\n") for i in range(3)]
    reporter = CLIReporter(max_error_rows=2)
    assert reporter.text(trials, STATUS).splitlines()[-4:] == [
        "Failed trials:",
        f"- PPO_CartPole-v0_0_lr=1: ValueError: number 0 ({trials[0].logdir}/error.txt)",
        f"- PPO_CartPole-v0_1_lr=0.1: ValueError: number 1 ({trials[1].logdir}/error.txt)",
        "... 1 more failed",
    ]


def live(width=80, height=24):
    screen = io.StringIO()
    reporter = LiveReporter(Console(file=screen, force_terminal=True, width=width, height=height, color_system=None))
    reporter.set_objective("episode_reward_mean", "max")
    return reporter, screen


def last_frame(screen):
    """The lines since the cursor last went up to draw anew."""
    plain = re.split(r"\x1b\[1A\x1b\[2K", screen.getvalue())[-1]
    return [line.rstrip() for line in re.sub(r"\x1b\[[?0-9;]*[A-Za-z]|\r", "", plain).splitlines()]


def running_and_failed():
    result = {"episode_reward_mean": 136.75, "training_iteration": 5, "time_total_s": 12.9489, "timesteps_total": 20000}
    return [
        trial_of(0, RUNNING, result, pid=4711),
        trial_of(1, TERMINATED, {**result, "episode_reward_mean": 9.5, "time_total_s": 7.0}),
        trial_of(2, ERROR, error="ValueError: [bold] is no markup"),
    ]


def test_the_live_table():
    reporter, screen = live()
    reporter.report(running_and_failed(), False, STATUS)
    assert last_frame(screen)[:6] == [
        "Tune: 1 RUNNING, 1 TERMINATED, 1 ERROR, 4/4 CPUs, 1:01:12",
        "Results in /r/my_experiment",
        "                                                            total",
        "Trial name         status       loc    lr  reward  iter  time (s)     ts",
        "PPO_CartPole-v0_0  RUNNING     4711     1   136.8     5     12.95  20000",
        "PPO_CartPole-v0_1  TERMINATED         0.1     9.5     5      7.00  20000",
    ]
    assert last_frame(screen)[-4:] == [
        "Best so far: PPO_CartPole-v0_0 with episode_reward_mean=136.8 and lr=1",
        "Failed trials:",
        "- PPO_CartPole-v0_2_lr=0.01: ValueError: [bold] is no markup",
        "(/r/my_experiment/PPO_CartPole-v0_2_lr=0.01/error.txt)",
    ]


def test_it_stays_when_the_experiment_ends():
    reporter, screen = live()
    reporter.report([trial_of(0, PENDING)], False, STATUS)
    assert "\x1b[?25l" in screen.getvalue() and "\x1b[?25h" not in screen.getvalue(), "no cursor while it is drawn"
    reporter.report(running_and_failed(), True, STATUS)
    assert screen.getvalue().endswith("\x1b[?25h") and screen.getvalue().count("Tune:") == 3
    assert "Best: PPO_CartPole-v0_0 with episode_reward_mean=136.8 and lr=1" in last_frame(screen)


def test_a_narrow_terminal_keeps_names_and_results():
    reporter, screen = live(width=50)
    reporter.report(running_and_failed(), False, STATUS)
    lines = last_frame(screen)
    assert ["Trial", "name", "status", "lr", "reward", "iter"] in [line.split() for line in lines]
    assert "a wider terminal also shows: loc, ts, total time (s)" in " ".join(lines).replace("  ", " ")
    assert max(map(len, lines)) <= 50


@pytest.mark.parametrize("width", range(44, 100, 3))
def test_no_cell_is_cut_at_any_width(width):
    reporter, screen = live(width=width)
    reporter.report(running_and_failed(), False, STATUS)
    assert not [line for line in last_frame(screen) if "…" in line]


def test_a_low_terminal_shows_fewer_trials():
    reporter, screen = live(height=12)
    reporter.report([trial_of(i, RUNNING, {"episode_reward_mean": 1.0 * i}) for i in range(20)], False, STATUS)
    assert len(last_frame(screen)) <= 12 and "... 15 more trials not shown" in last_frame(screen)


def test_plain_text_comes_ever_more_seldom(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(reporters.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    reporter, times = make_reporter(None, None, None, None), []
    assert type(reporter) is CLIReporter
    while now[0] < 3600:
        if reporter.should_report([]):
            times.append(now[0])
        now[0] += 0.5
    assert times[:4] == [0, 5, 10, 15] and 55 <= times[-1] - times[-2] <= 61 and len(times) < 100
    assert reporter.should_report([], done=True)


def test_where_it_runs_decides(monkeypatch):
    assert make_reporter(None, 0, None, None) is None
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert type(make_reporter(None, None, None, None)) is LiveReporter
    monkeypatch.setattr(reporters, "in_notebook", lambda: True)
    assert type(make_reporter(None, None, None, None)) is JupyterNotebookReporter
    own = CLIReporter(metric="loss", mode="min")
    # Private: which metric a reporter sorts by shows in its table alone.
    assert make_reporter(own, 1, "reward", "max") is own and (own._metric, own._mode) == ("loss", "min")


def test_a_line_for_each_trial_that_ends(capsys):
    lines = TrialEndLines()
    lines.on_trial_complete(1, [], trial_of(0, TERMINATED, {"loss": 0.5, "training_iteration": 7, "pid": 3}))
    lines.on_trial_error(1, [], trial_of(1, ERROR, error="Traceback\nKeyError: 'x'"))
    assert capsys.readouterr().out.splitlines() == [
        "PPO_CartPole-v0_0_lr=1: TERMINATED (done), loss=0.5, training_iteration=7",
        "PPO_CartPole-v0_1_lr=0.1: ERROR (KeyError: 'x')",
    ]


IN_JUPYTER = """
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from rllib.tune.reporting.reporters import JupyterNotebookReporter
from tests.tune.test_reporters import STATUS, of_the_slides, running_and_failed, trial_of

InteractiveShell.instance()
with capture_output() as captured:
    reporter = JupyterNotebookReporter(metric="episode_reward_mean", mode="max")
    reporter.report([trial_of(0, "PENDING")], False, STATUS)
    reporter.report(running_and_failed(), False, STATUS)
    reporter.report(running_and_failed(), True, STATUS)
    two = JupyterNotebookReporter(overwrite=False)
    two.report(of_the_slides(), False, STATUS)
    two.report(of_the_slides(), True, STATUS)
page = captured.outputs[1].data["text/html"]
assert "<td style=\\"text-align:right\\">4711</td>" in page, page
assert "ValueError: [bold] is no markup" in page and "&lt;" not in page
named = trial_of(0, "PENDING")
named.custom_name = "<b>&"
assert "&lt;b&gt;&amp;" in JupyterNotebookReporter().html([named], STATUS)
assert "Current best trial: PPO_CartPole-v0_0 with episode_reward_mean=136.8" in page
print([output.update for output in captured.outputs])
print([output.data["text/html"].count("<tr>") for output in captured.outputs])
"""


def test_a_page_in_jupyter_takes_the_place_of_the_last(tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", IN_JUPYTER], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path)},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert found.stdout == "[False, True, True, False, False]\n[2, 4, 4, 4, 4]\n"


def through_a_terminal(command, cwd, **more):
    """Runs it with a pseudo-terminal of 100 columns as its output; what it wrote, and its exit code."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}, **more,
    )  # fmt: skip
    os.close(theirs)
    content = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            read = os.read(ours, 65536)
        except OSError:  # its other end is closed
            break
        if not read:
            break
        content += read
    os.close(ours)
    return content.decode(), process.wait(30)


def test_the_command_on_a_terminal_ends_with_what_to_do_next(tmp_path):
    text, code = through_a_terminal(
        [sys.executable, "-m", "rllib", "tune", "PPO", "CartPole-v1", "num_rollout_workers=0", "train_batch_size=200",
         "sgd_minibatch_size=100", "num_sgd_iter=1", "--search", "lr=1e-3,1e-4",
         "--stop", "iterations=2", "--name", "x"],
        tmp_path,
    )  # fmt: skip
    assert code == 0 and "\x1b[?25h" in text, text
    plain = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]|\r", "", text)
    assert "Tune: 2 TERMINATED, 0:00:" in plain and "Best: PPO_CartPole-v1_" in plain
    results, best, settings, evaluate, plot = plain.splitlines()[-5:]
    assert results == "results     results/x" and best.startswith("best        PPO_CartPole-v1_")
    assert re.fullmatch(r"settings    lr=0.001|settings    lr=0.0001", settings)
    assert evaluate.startswith("evaluate    rllib evaluate results/x/PPO_CartPole-v1_")
    assert evaluate.endswith("checkpoint_000002") and plot == "plot        rllib plot results/x"
