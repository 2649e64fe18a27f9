"""Pictures: the statistics are rliable's, and what is drawn is there, with no network."""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

from rllib.cli import command
from rllib.tune.plots import Run, interval, iqm, plot, read_runs


def _runs(rates=(0.1, 0.01), seeds=6, length=12):
    return [
        Run(
            f"run{rate}_{seed}",
            [
                {"training_iteration": t, "timesteps_total": 10 * t, "ret": rate * 100 * t + seed}
                for t in range(1, length)
            ],
            {"lr": rate, "seed": seed},
        )
        for rate in rates
        for seed in range(seeds)
    ]


def _write(directory, runs):
    for run in runs:
        (directory / run.name).mkdir(parents=True)
        (directory / run.name / "result.json").write_text("".join(f"{json.dumps(result)}\n" for result in run.results))
        (directory / run.name / "params.json").write_text(json.dumps(dict(run.params)))


def test_iqm_is_the_trimmed_mean():
    values = np.random.default_rng(0).normal(size=(11, 3))
    expected = [sum(sorted(column)[2:9]) / 7 for column in values.T]  # a quarter of 11 is 2, rounded down
    assert iqm(values) == pytest.approx(expected)
    assert iqm(np.array([[1.0], [2.0], [9.0]]))[0] == 4


def test_the_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(1)
    low, high = interval(rng.normal(size=(20, 400)))
    assert 0.87 < np.mean((low < 0) & (high > 0)) < 0.98  # percentile bootstrap of 20 runs is a little narrow


def test_html_is_one_file_without_network(tmp_path):
    page = plot(_runs(), tmp_path / "plot.html", "ret", title="<b>").read_text()
    assert "http" not in page and "src=" not in page and "&lt;b&gt;" in page
    assert page.count("<svg") == 3 and "lr=0.1" in page and page.count("IQM of 6") == 2
    assert not re.search(r"nan|inf\b", page)


def test_png(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra `plot`: pip install 'rllib[plot]'")
    assert plot(_runs(), tmp_path / "plot.png", "ret").read_bytes().startswith(b"\x89PNG")


def test_trials_come_in_their_order(tmp_path):
    _write(tmp_path, [Run(f"PPO_{number}_x", [{"m": number}]) for number in (2, 10, 9, 1)])
    assert [run.name for run in read_runs(tmp_path)] == ["PPO_1_x", "PPO_2_x", "PPO_9_x", "PPO_10_x"]


def test_single_runs_and_unequal_lengths(tmp_path):
    runs = [Run("a", [{"m": 1.0}, {"m": None}, {"other": 1}]), Run("b", [{"m": 3.0}] * 3), Run("c", [])]
    page = plot(runs, tmp_path / "p.html", "m", kinds=["curves", "best"], mode="min").read_text()
    assert page.count('class="run"') == 2 and "IQM" not in page


def test_command_reads_runs_and_experiments(tmp_path):
    _write(tmp_path / "experiment", _runs(seeds=2))
    with open(tmp_path / "experiment" / "run0.1_0" / "result.json", "a") as file:
        file.write('{"half')
    assert len(read_runs(tmp_path / "experiment")) == 4
    single = tmp_path / "experiment" / "run0.01_1"
    out = tmp_path / "x.html"
    outcome = CliRunner().invoke(
        command, ["plot", str(single), str(tmp_path / "experiment"), "--metric", "ret", "-o", str(out)]
    )
    assert outcome.exit_code == 0, outcome.output
    assert "5 runs drawn" in outcome.output and out.exists()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda path: plot(_runs(), path / "x.html"), "no metric 'episode_reward_mean'.*They have: ret"),
        (lambda path: plot(_runs(), path / "x.pdf", "ret"), "a .png or a .html"),
        (lambda path: plot(_runs(), path / "x.html", "ret", kinds="pie"), "no kind of plot 'pie'"),
        (lambda path: plot([Run("a", [])], path / "x.html"), "no run has a result"),
        (lambda path: read_runs(path), "no result.json"),
        (lambda path: read_runs(path / "none"), "no directory"),
    ],
)
def test_what_is_refused(make, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        make(tmp_path)
