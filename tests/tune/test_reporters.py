"""What an experiment shows: lines, the table on a terminal, the page in a notebook."""

import io
import re
import sys
import types

import pytest
from rich.console import Console

from rllib.tune.reporters import CLIReporter, JupyterNotebookReporter, LiveReporter, make_reporter
from rllib.tune.trial import ERROR, PENDING, RUNNING, TERMINATED, Trial

STATUS = {
    "scheduler": "FIFOScheduler",
    "used": {"CPU": 2, "GPU": 0},
    "total": {"CPU": 2, "GPU": 0},
    "directory": "/runs/first",
    "elapsed_s": 3.0,
}


def trial(number: int, status: str, loss: float | None = None) -> Trial:
    params = {"lr": 10.0**-number}
    made = Trial(f"{number:05d}", number, "f", {**params, "net": {"width": 64}}, params, "/runs/first")
    made.status = status
    if loss is not None:
        made.last_result = {"training_iteration": 7, "time_total_s": 16.4, "timesteps_total": 4013, "loss": loss}
    return made


@pytest.fixture
def trials():
    failed = trial(3, ERROR)
    failed.error = "Traceback (most recent call last):\n  ...\nValueError: no [bold] such thing"
    return [trial(1, RUNNING, 0.25), trial(2, TERMINATED, 0.5), failed, trial(4, PENDING)]


def told(reporter):
    reporter.set_objective("loss", "min")
    return reporter


def test_few_trials_are_lines_by_status(trials):
    trials[0].pid = 21940
    lines = told(CLIReporter()).text(trials, STATUS).splitlines()
    assert lines[:4] == [
        "== Status ==",
        "Using FIFO scheduling algorithm.",
        "Resources requested: 2/2 CPUs, 0/0 GPUs",
        "Result logdir: /runs/first",
    ]
    assert [line for line in lines if line.endswith("trials:") and line != "Failed trials:"] == [
        "PENDING trials:",
        "RUNNING trials:",
        "TERMINATED trials:",
        "ERROR trials:",
    ]
    running = lines[lines.index("RUNNING trials:") + 1]
    assert running.startswith("- f_1_lr=0.1:")
    assert running.endswith("RUNNING [pid=21940], 16 s, 7 iter, 4013 ts, loss=0.25")
    assert lines[-1].startswith("- f_3_lr=0.001: ValueError: no [bold] such thing (")


def test_many_trials_are_a_table_of_the_running_and_the_best():
    trials = [trial(1, TERMINATED, float(loss)) for loss in range(30)] + [trial(2, RUNNING, 99.0)]
    text = told(CLIReporter(max_progress_rows=3)).text(trials, STATUS)
    assert "Number of trials: 31 (1 RUNNING, 30 TERMINATED)" in text
    headings, _, *rows = text[text.index("Trial name") :].splitlines()
    assert headings.split() == ["Trial", "name", "status", "loc", "lr", "loss", "iter", "total", "time", "(s)", "ts"]
    assert [row.split()[3] for row in rows[:3]] == ["99", "0", "1"]
    assert rows[3] == "... 28 more trials not shown"


def test_columns_are_chosen_and_named(trials):
    reporter = told(CLIReporter(metric_columns={"loss": "L"}, parameter_columns={"net/width": "width"}))
    reporter.add_metric_column("timesteps_total", "steps")
    headings, rows, left_out = reporter.rows(trials)
    assert headings == ["Trial name", "status", "loc", "width", "L", "steps"]
    assert rows[0] == ["f_1_lr=0.1", "RUNNING", "", "64", "0.25", "4013"]
    assert left_out == 0


def test_sort_by_metric(trials):
    reporter = told(CLIReporter(sort_by_metric=True, max_progress_rows=2))
    trials = [trial(1, TERMINATED, loss) for loss in (3.0, 1.0, 2.0)]
    assert [row[4] for row in reporter.rows(trials)[1]] == ["1", "2"]


def test_reports_keep_their_distance(trials):
    reporter = CLIReporter(max_report_frequency=60)
    assert reporter.should_report(trials)
    assert not reporter.should_report(trials)
    assert reporter.should_report(trials, done=True)


def test_the_live_table_is_drawn_anew_and_stays(trials, monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, height=30)
    monkeypatch.setattr("rich.live.get_console", lambda: console)
    reporter = told(LiveReporter())
    reporter.report(trials, False, STATUS)
    trials[0].last_result = {**trials[0].last_result, "loss": 0.125}
    reporter.report(trials, True, STATUS)
    shown = screen.getvalue()
    assert "\x1b[2K" in shown  # the lines of the first are wiped
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown[shown.rindex("Trial name") :])
    assert "0.125" in last and "0.25" not in last
    assert "ValueError: no [bold] such thing" in last
    assert "Result logdir: /runs/first" in last


def test_a_notebook_gets_one_page_that_is_replaced(trials, monkeypatch):
    calls = []
    display = types.ModuleType("IPython.display")
    display.HTML = lambda page: page
    display.display = calls.append
    display.clear_output = lambda wait: calls.append(("cleared", wait))
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    trials[1].custom_name = "<b>&"
    told(JupyterNotebookReporter()).report(trials, False, STATUS)
    told(JupyterNotebookReporter(overwrite=False)).report(trials, True, STATUS)
    cleared, page, again = calls
    assert cleared == ("cleared", True)
    assert "<td>RUNNING</td>" in page and "<th>lr</th>" in page and "&lt;b&gt;&amp;" in page
    assert page == again


def test_the_reporter_suits_the_place(monkeypatch):
    assert make_reporter(None, 0, None, None) is None
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert isinstance(make_reporter(None, None, None, None), CLIReporter)
    monkeypatch.setattr("rllib.tune.reporters._on_terminal", lambda: True)
    assert isinstance(make_reporter(None, None, None, None), LiveReporter)
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert isinstance(make_reporter(None, None, None, None), JupyterNotebookReporter)
    mine = CLIReporter()
    assert make_reporter(mine, None, "loss", "min") is mine
