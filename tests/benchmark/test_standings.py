"""Standings of a benchmark, of runs that are written here."""

import csv
import io
import json

import numpy as np
import pytest

from rllib.benchmark import read_standings
from rllib.benchmark.picture import draw
from rllib.benchmark.plan import Plan
from rllib.benchmark.tables import as_csv, as_json, as_markdown, rows_of
from rllib.runs.measures import iqm_of_scores, probability_of_improvement, stratified_interval

STEPS = {"CartPole-v1": 200, "Acrobot-v1": 300}


def write(directory, algorithm, task, finals, folder=None, first=0, steps=None):
    """Runs whose return grows on a line to its last value, and goes on beyond the steps of the task."""
    for seed, final in enumerate(finals, first):
        place = directory / algorithm / (folder or task) / f"seed_{seed}"
        place.mkdir(parents=True)
        ends = (100, 250, 400) if steps is None else steps
        results = [{"timesteps_total": each, "episode_reward_mean": final * each / STEPS[task]} for each in ends]
        (place / "result.json").write_text("".join(f"{json.dumps(result)}\n" for result in results))
        (place / "params.json").write_text(json.dumps({"env": task, "seed": seed}))


@pytest.fixture
def directory(tmp_path):
    rng = np.random.default_rng(0)
    finals = {name: rng.normal(size=(2, 4)) * 30 + mean for name, mean in (("PPO", 300), ("DQN", 250))}
    for name, (cartpole, acrobot) in finals.items():
        write(tmp_path, name, "CartPole-v1", cartpole)
        write(tmp_path, name, "Acrobot-v1", acrobot[:2] - 500)
        write(tmp_path, name, "Acrobot-v1", acrobot[2:] - 500, "Acrobot-v1_from_2", first=2)
    plan(tmp_path)
    return tmp_path


def plan(directory, **changed):
    given = {"algorithms": ["PPO", "DQN"], "steps": STEPS, "seeds": [0, 1, 2, 3], "metric": "episode_reward_mean"}
    Plan(suite="classic", **{**given, **changed}).write(directory)


def test_aggregates_are_of_normalised_scores_of_all_tasks(directory):
    found = read_standings(directory)
    scales = {"CartPole-v1": (22.55, 475), "Acrobot-v1": (-499.3, -100)}
    values = {name: [own[task].values for task in STEPS] for name, own in found.standings.items()}
    normalised = {
        name: [(own - low) / (high - low) for own, (low, high) in zip(tasks, scales.values())]
        for name, tasks in values.items()
    }
    for name, scores in normalised.items():
        iqm = found.aggregates[name]["iqm"]
        assert iqm.value == iqm_of_scores(scores)
        assert (iqm.low, iqm.high) == stratified_interval(iqm_of_scores, scores)
    assert list(found.improvements) == ["DQN"]
    assert found.improvements["DQN"].value == probability_of_improvement(values["DQN"], values["PPO"])
    assert not found.notes


def test_a_score_is_the_metric_at_the_steps_of_the_task(directory):
    results = (directory / "PPO" / "Acrobot-v1_from_2" / "seed_3" / "result.json").read_text().splitlines()
    last = json.loads(results[-1])["episode_reward_mean"] * 300 / 400
    assert read_standings(directory).standings["PPO"]["Acrobot-v1"].scores[3] == pytest.approx(last)


def test_runs_without_a_score_are_left_out_and_named(directory):
    plan(directory, seeds=[0, 1, 4], algorithms=["PPO", "TRPO"])
    write(directory, "PPO", "CartPole-v1", [1.0], first=4, steps=(50, 100))
    found = read_standings(directory)
    assert list(found.standings["PPO"]["CartPole-v1"].scores) == [0, 1]
    assert found.notes[:2] == [
        "PPO on CartPole-v1, seed 4, has 100 of 200 steps and is left out",
        "PPO on Acrobot-v1, seed 4, has no result yet",
    ]
    assert found.aggregates.keys() == {"PPO"} and not found.improvements
    assert found.standings["TRPO"]["CartPole-v1"].score is None
    assert rows_of(found)[0][2:4] == ["PPO (2 seeds)", "TRPO (0 seeds)"] and rows_of(found)[1][3] == "-"


@pytest.mark.parametrize(
    ("metric", "hint"),
    [("episode_reward_maen", "Did you mean episode_reward_mean"), ("absent", "Give another --metric")],
)
def test_a_metric_that_no_run_has_is_named_with_the_nearest(directory, metric, hint):
    plan(directory, metric=metric)
    found = read_standings(directory)
    assert len(found.notes) == 16 and all(f"has no {metric} ({hint}" in note for note in found.notes), found.notes


@pytest.mark.parametrize(
    ("metric", "is_return"),
    [("evaluation/episode_reward_mean", True), ("episode_return_mean", True), ("episode_len_mean", False)],
)
def test_scales_and_published_scores_are_those_of_returns(directory, metric, is_return):
    plan(directory, metric=metric)
    for path in directory.rglob("result.json"):
        results = [json.loads(line) for line in path.read_text().splitlines()]
        for result in results:
            value = result.pop("episode_reward_mean")
            first, _, rest = metric.rpartition("/")
            result.update({first: {rest: value}} if first else {rest: value})
        path.write_text("".join(f"{json.dumps(result)}\n" for result in results))
    found = read_standings(directory)
    assert not found.notes and bool(found.aggregates) == bool(found.published) == is_return


def test_standings_are_those_of_the_plan_that_is_given(directory):
    mine = Plan.read(directory)
    plan(directory, algorithms=["TRPO"])
    assert list(read_standings(directory, mine).standings) == ["PPO", "DQN"]
    assert list(read_standings(directory).standings) == ["TRPO"]


def test_published_columns_are_of_the_algorithms_that_ran(directory):
    plan(directory, algorithms=["DQN"])
    found = read_standings(directory)
    heading, cartpole, acrobot, _ = rows_of(found)
    assert heading[3:] == ["CleanRL dqn.py", "SB3 Zoo dqn", "SLM Lab DQN"]
    assert cartpole[3:] == ["488.7 ± 16.11", "500", "239.9"] and acrobot[3:] == ["-91.54 ± 7.2", "-76.64", "-94.17"]
    assert "- SB3 Zoo dqn: one run each" in as_markdown(found)
    published = [row for row in csv.DictReader(io.StringIO(as_csv(found))) if row["origin"] == "published"]
    assert len(published) == 6 and all(row["source"] and row["protocol"] for row in published)
    assert len(json.loads(as_json(found))["published"]) == 3
    plan(directory, algorithms=["DQN"], steps={"MountainCar-v0": 100})
    (directory / "DQN" / "MountainCar-v0").mkdir()
    assert rows_of(read_standings(directory))[1][2:] == ["-", "-194.9 ± 8.48", "-100.8"], "no empty column"


def test_a_picture_without_a_run_is_refused(tmp_path):
    plan(tmp_path)
    with pytest.raises(ValueError, match="no run has a result yet"):
        draw(read_standings(tmp_path), tmp_path / "figure.png")
    with pytest.raises(ValueError, match=r"\.png, \.svg or \.pdf"):
        draw(read_standings(tmp_path), tmp_path / "figure.jpg")
    assert not list(tmp_path.glob("figure*"))


def test_a_directory_that_is_none_or_damaged_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not the directory of a benchmark"):
        read_standings(tmp_path)
    (tmp_path / "benchmark.json").write_text('{"suite": 3}')
    with pytest.raises(ValueError, match="is damaged"):
        read_standings(tmp_path)
