"""Pictures: the statistics are rliable's, and what is drawn is there, with no network."""

import json
import math
import re
import xml.etree.ElementTree
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from rllib import PPOConfig, tune
from rllib.cli import command
from rllib.runs.drawing import episode_quantiles, return_curve
from rllib.runs.entries import encode
from rllib.tune.experiment.directory import described, logarithmic
from rllib.tune.reporting.groups import groups_of
from rllib.tune.reporting.plots import parallel, plot
from rllib.tune.reporting.runs import Run, read_runs, runs_of_seeds, varying

pytest.importorskip("matplotlib", reason="needs the extra `plot`")


HEADER = {"type": "experiment", "format": 1}


def _runs(rates=(0.1, 0.01), seeds=6, length=12):
    return [
        Run(
            f"run{rate}_{seed}",
            [
                {"training_iteration": t, "timesteps_total": 10 * t, "ret": rate * 100 * t + seed}
                for t in range(1, length)
            ],
            {"lr": rate, "seed": seed},
            experiment=HEADER,
        )
        for rate in rates
        for seed in range(seeds)
    ]


def _write(directory, runs):
    for run in runs:
        (directory / run.name).mkdir(parents=True)
        (directory / run.name / "result.json").write_text("".join(f"{json.dumps(result)}\n" for result in run.results))
        (directory / run.name / "params.json").write_text(json.dumps(dict(run.params)))


def texts_of(page):
    """What is written in a drawing."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", page)


def test_seeds_of_two_methods_are_no_search(tmp_path):
    """Only curves: the best of the trials so far, and a line for each, say nothing of runs that no search has drawn."""
    methods = [[replace(run, place=tmp_path / str(rate) / run.name) for run in _runs((rate,))] for rate in (1, 2)]
    compared = texts_of(plot([*methods[0], *methods[1]], tmp_path / "methods.svg", "ret").read_text())
    searched = texts_of(plot(_runs((1, 2)), tmp_path / "search.svg", "ret").read_text())
    assert "trials" in searched and "trials" not in compared


def test_a_pdf_has_fonts_that_journals_take(tmp_path):
    content = plot(_runs(), tmp_path / "figure.pdf", "ret").read_bytes()
    assert content.startswith(b"%PDF") and b"/Type0" in content and b"/Type3" not in content
    assert plot(_runs(), tmp_path / "again.pdf", "ret").read_bytes() == content


def test_a_resumed_run_has_the_settings_of_the_others(tmp_path):
    """Its params.json has 1.0 where that of a run without an interruption has 1."""
    runs = [Run(run.name, run.results, {**run.params, "cpus": cpus}) for run, cpus in zip(_runs((0.1,), 2), (1, 1.0))]
    texts = texts_of(plot(runs, tmp_path / "plot.html", "ret").read_text())
    assert "run0.1_0 and 1 more" in " ".join(texts)
    assert "cpus" not in texts and "trials" not in texts  # there is nothing to choose from runs that differ in the seed


def test_html_is_one_file_without_network(tmp_path):
    page = plot(_runs(), tmp_path / "plot.html", "ret", title="<b>").read_text()
    assert "http" not in page and "src=" not in page and "&lt;b&gt;" in page
    texts = texts_of(page)
    assert {"lr=0.1 (IQM of 6, 95 % interval)", "lr", "best ret so far", "environment steps"} <= set(texts)
    assert re.search(r'<g id="run0"><title>lr=0.1: [\d.]+ at the end</title>', page)
    assert not re.search(r"nan|inf\b", page)


def test_png(tmp_path):
    assert plot(_runs(), tmp_path / "plot.png", "ret").read_bytes().startswith(b"\x89PNG")


def test_trials_come_in_their_order(tmp_path):
    _write(tmp_path, [Run(f"PPO_{number}_x", [{"m": number}]) for number in (2, 10, 9, 1)])
    assert [run.name for run in read_runs(tmp_path)] == ["PPO_1_x", "PPO_2_x", "PPO_9_x", "PPO_10_x"]


def test_single_runs_and_unequal_lengths(tmp_path):
    runs = [Run("a", [{"m": 1.0}, {"m": None}, {"other": 1}]), Run("b", [{"m": 3.0}] * 3), Run("c", [])]
    page = plot(runs, tmp_path / "p.html", "m", kinds=["curves", "best"], mode="min").read_text()
    assert page.count('<g id="run') == 2 and "IQM" not in page


def _stats(t):
    changing = dict.fromkeys(("total_loss", "policy_loss", "vf_loss", "kl", "grad_gnorm", "clip_fraction"), 0.5 / t)
    return {"entropy": 1.0 / t, "cur_lr": 5e-5, **changing}


def _of_an_algorithm(count=5, gaps=()):
    return [
        {
            "training_iteration": t,
            "timesteps_total": 1000 * t,
            "episode_reward_mean": None if t in gaps else 10.0 * t,
            "hist_stats": {"episode_reward": [] if t in gaps else [5.0 * t, 15.0 * t]},
            "episode_len_mean": 10.0 * t,
            "time_total_s": 2.0 * t,
            "info": {"learner": {"default_policy": {"learner_stats": _stats(t)}}},
        }
        for t in range(1, count + 1)
    ]


def test_a_single_run_is_drawn_by_its_curves(tmp_path):
    _write(tmp_path, [Run("one", _of_an_algorithm())])
    outcome = CliRunner().invoke(command, ["plot", str(tmp_path / "one"), "-o", str(tmp_path / "one.html"),
                                           "-o", str(tmp_path / "one.png")])  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    page = (tmp_path / "one.html").read_text()
    titles = {"episode return", "environment steps", "episode length", "entropy", "10 to 90 % of the last episodes"}
    assert titles <= set(texts_of(page)) and not re.search("[a-z]_[a-z]", " ".join(texts_of(page)))
    assert "learning rate" not in page, "it never changes"
    assert "1 run drawn" in outcome.output and (tmp_path / "one.png").stat().st_size > 10_000


def test_a_narrow_svg_of_the_return_alone_with_a_goal(tmp_path):
    _write(tmp_path, [Run("one", _of_an_algorithm())])
    options = ["--kind", "curves", "--goal", "7.5", "--width", "4"]
    outcome = CliRunner().invoke(command, ["plot", str(tmp_path / "one"), "-o", str(tmp_path / "one.svg"), *options])
    assert outcome.exit_code == 0, outcome.output
    drawing = xml.etree.ElementTree.parse(tmp_path / "one.svg").getroot()
    assert drawing.get("width") == "288pt"  # 72 an inch
    texts = texts_of((tmp_path / "one.svg").read_text())
    assert "goal 7.5" in texts and "episode return" in texts and "episode length" not in texts


def test_a_single_result_has_its_range(tmp_path):
    page = plot([Run("one", _of_an_algorithm(1))], tmp_path / "one.html").read_text()
    (line,) = re.findall(r'<path d="([^"]*)"[^>]*stroke-opacity: 0.2', page)
    x0, y0, x1, y1 = re.findall(r"[\d.]+", line)
    assert x0 == x1 and y0 != y1


def test_single_results_over_seeds_are_a_point_with_its_interval(tmp_path):
    page = plot(_runs(rates=(0.1,), length=2), tmp_path / "p.html", "ret", kinds="curves").read_text()
    assert "stroke-opacity: 0.2" in page, "the interval is a line, since a band would have no width"


def test_curves_over_seeds_lie_at_whole_steps(tmp_path):
    page = plot(_runs(seeds=3, length=200), tmp_path / "p.html", "ret", kinds="curves").read_text()
    assert "1,250" in texts_of(page) and "1250" not in texts_of(page)


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("differing", [1, 9])
def test_experiments_with_seeds_are_named_by_what_differs(tmp_path, seeds, differing):
    for place, rate in (("a/search", 0.1), ("b/search", 0.2)):
        settings = {f"setting_{number}": rate for number in range(differing)}
        runs = [Run(f"seed_{seed}", run.results, {**run.params, "lr": 1, **settings}) for seed, run in
                enumerate(_runs((rate,), seeds))]  # fmt: skip
        _write(tmp_path / place, runs)
    plot(read_runs(tmp_path / "a", tmp_path / "b"), tmp_path / "p.html", "ret", kinds="curves")
    text = " ".join(texts_of((tmp_path / "p.html").read_text()))
    rest = ", …" if differing > 4 else ""
    names = [f"setting_0={rate}{rest}" for rate in (0.1, 0.2)]
    assert all(text.count(name) == 1 for name in names), text


def test_names_of_many_runs_say_how_many_there_are(tmp_path):
    _write(tmp_path, _runs(rates=(0.1,), seeds=5))
    places = [str(tmp_path / f"run0.1_{seed}") for seed in range(5)]
    outcome = CliRunner().invoke(command, ["plot", *places, "--metric", "ret", "-o", str(tmp_path / "p.html")])
    assert outcome.exit_code == 0, outcome.output
    texts = texts_of((tmp_path / "p.html").read_text())
    assert "run0.1_0, run0.1_1, run0.1_2 and 2 more" in texts
    assert "run0.1_0 and 4 more (IQM of 5, 95 % interval)" in texts


def _curves_of(page):
    """Names of the curves in a legend."""
    return [text.partition(" (IQM")[0] for text in texts_of(page) if "IQM" in text]


def _experiments(directory, trainables, seeds=2, **params):
    """An experiment of each trainable, with equal settings."""
    for place, trainable in trainables.items():
        runs = [Run(f"seed_{seed}", run.results, {"seed": seed, "lr": 1e-3, **params}) for seed, run in
                enumerate(_runs((0.1,), seeds))]  # fmt: skip
        _write(directory / place, runs)
        header = {**HEADER, "trainable": trainable}
        (directory / place / "experiment_state-2030.json").write_text(json.dumps(header) + "\n")


def test_two_algorithms_with_equal_settings_are_two_curves(tmp_path):
    _experiments(tmp_path, {"one": "PPO", "other": "A2C"}, env="CartPole-v1")
    plot(read_runs(tmp_path), tmp_path / "p.html", "ret", kinds="curves")
    assert _curves_of((tmp_path / "p.html").read_text()) == ["PPO", "A2C"]


def test_two_experiments_with_equal_settings_are_two_curves_with_their_own_names(tmp_path):
    """Their code may differ, and two runs with one seed are no two samples."""
    _experiments(tmp_path, {"before": "climb", "after": "climb"})
    for places in ([tmp_path], [tmp_path / "before", tmp_path / "after"]):
        plot(read_runs(*places), tmp_path / "p.html", "ret", kinds="curves")
        assert sorted(_curves_of((tmp_path / "p.html").read_text())) == ["after", "before"]


def test_seeds_that_were_named_themselves_are_one_curve(tmp_path):
    _experiments(tmp_path, {"one": "climb"}, seeds=3)
    _experiments(tmp_path, {"other": "climb"}, seeds=3, gamma=0.5)
    places = sorted(tmp_path.glob("*/seed_*"))
    plot(read_runs(*places), tmp_path / "p.html", "ret", kinds="curves")
    assert _curves_of((tmp_path / "p.html").read_text()) == ["no gamma", "gamma=0.5"]


def test_a_run_with_all_its_settings_is_a_seed_of_those_with_the_given_ones(tmp_path):
    """params.json of `rllib train` has the defaults too, that of a search what was given, in Ray's names if it was."""
    given = {"env": "CartPole-v1", "lr": 1e-3, "num_workers": 1}
    whole = json.loads(encode(PPOConfig().to_dict())) | {"env": "CartPole-v1", "lr": 1e-3, "num_rollout_workers": 1}
    runs = [Run(f"seed_{seed}", run.results, {**params, "seed": seed}) for seed, (run, params) in
            enumerate(zip(_runs((0.1,), 2), (given, whole)))]  # fmt: skip
    _write(tmp_path, runs)
    for run, name in zip(runs, ("ppo", "PPO")):  # as it was typed
        (tmp_path / run.name / "run.json").write_text(json.dumps({"algorithm": name}))
    (group,) = groups_of(read_runs(tmp_path))
    assert group.seeds == [0, 1] and not varying(group.runs)


def test_a_single_function_is_drawn_with_the_numbers_it_reported(tmp_path):
    results = [{"training_iteration": t, "loss": 1 / t, "accuracy": t / 9, "timestamp": t, "a": 1} for t in range(1, 9)]
    page = plot([Run("f", results)], tmp_path / "f.html", "loss").read_text()
    assert {"loss", "accuracy"} <= set(texts_of(page)) and not {"timestamp", "a"} & set(texts_of(page))


def test_nan_is_a_gap(tmp_path):
    runs = [Run("one", _of_an_algorithm(9, gaps=(1, 4, 6)))]
    page = plot(runs, tmp_path / "p.html", kinds="curves").read_text()
    (path,) = re.findall(r'<g id="run0">.*?<path d="([^"]*)"', page, re.DOTALL)
    assert path.count("M") == 3 and "nan" not in page, "the line has three parts, one of them a point"


def test_nan_of_one_seed_is_a_gap_of_the_group(tmp_path):
    values = [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 2.0, math.nan, 4.0, 5.0, 6.0]] + [[0.0] * 6] * 3
    runs = [Run(str(seed), [{"m": m, "t": t} for t, m in enumerate(row)], {"seed": seed})
            for seed, row in enumerate(values)]  # fmt: skip
    page = plot(runs, tmp_path / "p.html", "m", x="t", kinds="curves").read_text()
    (path,) = re.findall(r'<g id="run0">.*?<path d="([^"]*)"', page, re.DOTALL)
    assert path.count("M") == 2 and "nan" not in page


def test_axes_that_count_have_whole_ticks(tmp_path):
    page = plot(_runs(seeds=1, length=4), tmp_path / "p.html", "ret", x="training_iteration", kinds="best").read_text()
    assert [text for text in texts_of(page) if re.fullmatch(r"[\d.]+", text)][:2] == ["1", "2"], "trials"
    page = plot([Run("r", _of_an_algorithm(20))], tmp_path / "p.html").read_text()
    assert "20,000" in texts_of(page) and "2,500.0" not in page


def _experiment(directory, metric, mode):
    runs = [Run(f"{directory.name}_{i}", [{"training_iteration": t, metric: t * i} for t in (1, 2)], {"lr": i})
            for i in (1, 2)]  # fmt: skip
    _write(directory, runs)
    header = {**HEADER, "metric": metric, "mode": mode}
    (directory / "experiment_state-2030.json").write_text(json.dumps(header) + "\n")


def test_an_experiments_own_metric_is_drawn(tmp_path):
    _experiment(tmp_path / "a", "loss", "min")
    out = tmp_path / "x.html"
    for directory, best in (("a", "best loss so far"), ("a/a_1", "a_1")):
        outcome = CliRunner().invoke(command, ["plot", str(tmp_path / directory), "-o", str(out)])
        assert outcome.exit_code == 0 and best in out.read_text() and "loss" in texts_of(out.read_text())
    _experiment(tmp_path / "b", "gain", "max")
    outcome = CliRunner().invoke(command, ["plot", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(out)])
    assert outcome.exit_code == 2 and "different metrics: a by loss (min), b by gain (max)" in outcome.output


def test_unrelated_runs_are_only_drawn_by_their_curves(tmp_path):
    """No search chose among them: there is no best so far, and nothing that their settings would explain."""
    for rate in (0.1, 0.2, 0.3):
        (run,) = _runs((rate,), 1)
        _write(tmp_path, [Run(f"run{rate}", run.results, run.params)])
    out = tmp_path / "p.html"
    places = [str(tmp_path / f"run{rate}") for rate in (0.1, 0.2, 0.3)]
    outcome = CliRunner().invoke(command, ["plot", *places, "--metric", "ret", "-o", str(out)])
    assert outcome.exit_code == 0, outcome.output
    assert out.read_text().count('<g id="run') == 3
    assert "best" not in out.read_text() and "run of axes" not in out.read_text()
    outcome = CliRunner().invoke(command, ["plot", *places, "--metric", "ret", "-o", str(out), "--kind", "parallel"])
    assert outcome.exit_code == 0 and "run of axes" in out.read_text(), "who asks for it gets it"


def test_a_noisy_run_is_a_moving_mean_in_a_band_of_its_episodes(tmp_path):
    """The line has a fortieth of the noise's variance, and the band the episodes' quantiles, whatever the outliers."""
    rng = np.random.default_rng(0)
    noise = 10 * rng.normal(size=4000)
    returns = [*range(11), 1000]  # one lucky episode in twelve
    results = [{"timesteps_total": t, "episode_reward_mean": 100 + noise[t],
                "hist_stats": {"episode_reward": [100 + each for each in returns]}} for t in range(4000)]  # fmt: skip
    points = [(each["timesteps_total"], each["episode_reward_mean"], *episode_quantiles(each)) for each in results]
    curve = return_curve("a", points)
    assert np.abs(curve.y - 100).max() < 10 * 5 / 50**0.5  # the mean of at least 50 of them
    np.testing.assert_allclose(curve.low, 101.1)
    np.testing.assert_allclose(curve.high, 109.9)
    assert plot([Run("a", results)], tmp_path / "p.png").exists()


def test_the_explained_variance_is_among_the_charts_of_a_run(tmp_path):
    results = _of_an_algorithm(3)
    for t, result in enumerate(results):
        result["info"]["learner"]["default_policy"]["learner_stats"]["vf_explained_var"] = 0.1 * t
    assert "explained variance of the value" in texts_of(plot([Run("one", results)], tmp_path / "p.html").read_text())


@pytest.mark.parametrize("stop", [{"episode_reward_mean": 475}, {"training_iteration": 9}, {"a": "b"}, [1], None])
def test_the_goal_of_a_run_is_a_line(tmp_path, stop):
    _write(tmp_path, [Run("one", _of_an_algorithm())])
    (tmp_path / "one" / "run.json").write_text(json.dumps({"algorithm": "PPO", "stop": stop}))
    texts = texts_of(plot(read_runs(tmp_path), tmp_path / "p.html").read_text())
    assert ("goal 475" in texts) == (stop == {"episode_reward_mean": 475})
    assert any("goal" in text for text in texts) == ("goal 475" in texts)


@pytest.mark.parametrize(
    ("stop", "goal"),
    [({"ret": 3, "training_iteration": 9}, "goal 3"), ({"training_iteration": 9}, None), ("a function", None)],
)
def test_the_goal_of_an_experiments_trials_is_a_line(tmp_path, stop, goal):
    _experiment(tmp_path / "a", "ret", "max")
    journal = next((tmp_path / "a").glob("experiment_state-*"))
    journal.write_text(json.dumps({**json.loads(journal.read_text()), "settings": {"stop": {"config": stop}}}) + "\n")
    texts = texts_of(plot(read_runs(tmp_path / "a"), tmp_path / "p.html", "ret").read_text())
    assert [text for text in texts if "goal" in text] == ([goal] if goal else [])


def test_a_goal_under_another_name_is_a_line(tmp_path):
    run = Run("one", _of_an_algorithm(), goals={"env_runners/episode_return_mean": 475})
    assert "goal 475" in texts_of(plot([run], tmp_path / "p.html").read_text())


def test_settings_that_were_searched_by_their_logarithm_have_such_an_axis():
    space = {"lr": tune.loguniform(1e-4, 1e-2), "model": {"n": tune.qlograndint(1, 1000, 1)},
             "x": tune.uniform(1, 1000), "c": tune.choice([1, 10, 1000])}  # fmt: skip
    scales = logarithmic({"described": described(space)})
    assert scales == {"lr": True, "model/n": True, "x": False}
    values = [{"lr": 1e-4, "model/n": 1, "x": 1, "c": 1}, {"lr": 1e-3, "model/n": 10, "x": 10, "c": 10},
              {"lr": 1e-2, "model/n": 100, "x": 1000, "c": 1000}]  # fmt: skip
    axes, _ = parallel([Run(str(n), [], each) for n, each in enumerate(values)], [1, 2, 3], "ret", "max", scales)
    places = {axis.name: axis.places[1] for axis in axes}
    assert places == pytest.approx({"lr": 0.5, "model/n": 0.5, "x": 9 / 999, "c": 1 / 3, "ret": 0.5})
    (rate,) = [axis for axis in axes if axis.name == "lr"]
    assert [text for _, text in sorted(rate.labels)] == ["0.0001", "0.001", "0.01"]


@pytest.mark.parametrize("header", [{}, {"described": None}, {"described": [1]}, {"described": {"a": {"b": 5}}}])
def test_a_journal_that_does_not_describe_its_space_has_no_scales(header):
    assert logarithmic(header) == {}


def test_a_damaged_run_is_drawn_without_what_is_damaged(tmp_path, caplog):
    _write(tmp_path, [Run("one", _of_an_algorithm())])
    with open(tmp_path / "one" / "result.json", "a") as file:
        file.write('{"training_iteration": 6, "timesteps_total": "y", "episode_reward_mean": 1, "hist_stats": 5}\n')
        file.write('broken\n{"training_iteration": 7, "timesteps_total": 9, "episode_reward_mean": "x"}\n')
    (tmp_path / "one" / "params.json").write_text("[1]")
    assert plot(read_runs(tmp_path), tmp_path / "p.png").exists()
    assert "result.json: line 7 holds no result" in caplog.text and "params.json cannot be read" in caplog.text


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
    assert "4 runs drawn" in outcome.output and out.exists()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda path: plot(_runs(), path / "x.html"), "no metric 'episode_reward_mean'.*They have: ret"),
        (  # only some of the results have evaluations, and the last one has none
            lambda path: plot(
                [Run("one", [{"r": 1}, {"evaluation": {"kl": 2}}, {"r": 3}])], path / "x.html", "evaluation/lk"
            ),
            "no metric 'evaluation/lk'. Did you mean evaluation/kl",
        ),
        (lambda path: plot(_runs(), path / "x.eps", "ret"), "a .png, .svg, .pdf or .html"),
        (lambda path: plot(_runs(), path / "x.html", "ret", kinds="pie"), "no kind of plot 'pie'"),
        (lambda path: plot(_runs((0.1,), 1), path / "x.html", "ret", kinds="best"), "best compare runs.*only one"),
        (lambda path: plot(_runs(), path / "x.html", "ret", kinds="details"), "of a single run, but there are 12"),
        (lambda path: plot(_runs(), path / "x.svg", "ret", width=0.5), "2 to 40 inches wide.*0.5"),
        (lambda path: plot([Run("a", [])], path / "x.html"), "no run has a result"),
        (
            lambda path: plot([Run("a", [{"info": {"learner": {"kl": 1.0}}}])], path / "x.html", "kl"),
            "no metric 'kl'. Did you mean info/learner/kl",
        ),
        (
            lambda path: plot(_runs(), path / "x.html", "ret", x="training_iterations"),
            "no result has a number 'training_iterations' .*mean training_iteration",
        ),
        (
            lambda path: plot([Run("a", [{"ret": 1.0, "date": "today"}])], path / "x.html", "ret", x="date"),
            "no.* 'date'",
        ),
        (lambda path: read_runs(path), "no result.json"),
        (lambda path: read_runs(path / "none"), "no directory"),
    ],
)
def test_what_is_refused(make, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        make(tmp_path)


@pytest.mark.parametrize("output", ["file/plot.html", "directory.html"])
def test_a_plot_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, output):
    monkeypatch.chdir(tmp_path)
    _write(tmp_path / "runs", _runs(seeds=1))
    (tmp_path / "file").write_text("")
    (tmp_path / "directory.html").mkdir()
    result = CliRunner().invoke(command, ["plot", "runs", "-o", output, "--metric", "ret"])
    assert result.exit_code == 2 and result.output.startswith(f"Error: {output} cannot be written: "), result.output
    assert result.output.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "file", "directory.html"}


def test_a_trial_of_several_seeds_is_a_curve_with_their_interval(tmp_path):
    runs = _runs(rates=(0.1, 0.01), seeds=1)
    for run in runs:
        for result in run.results:
            result["seeds"] = {str(seed): {"ret": result["ret"] + seed} for seed in range(3)}
    page = plot(runs, tmp_path / "seeds.html", metric="ret").read_text()
    assert "lr=0.1 (IQM of 3, 95 % interval)" in texts_of(page)
    assert "best ret so far" in texts_of(page)
    assert [each.name for each in runs_of_seeds(runs[0], "ret")] == [f"run0.1_0_seed_{seed}" for seed in range(3)]
    assert runs_of_seeds(runs[0], "timesteps_total") == [runs[0]], "the seeds have no number of their own"


@pytest.mark.parametrize("seeds", [3, {"0": 1.0}, None])
def test_a_users_number_of_the_same_name_is_no_seed(tmp_path, seeds):
    (run,) = _runs(rates=(0.1,), seeds=1)
    for result in run.results:
        result["seeds"] = seeds
    assert runs_of_seeds(run, "ret") == [run]
