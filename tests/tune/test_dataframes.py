"""Results as pandas data frames: nested results, trials without one, and what is refused; see also test_analysis.py."""

import subprocess
import sys

import pandas
import pytest

from rllib import tune
from rllib.tune.reporting.analysis import ExperimentAnalysis


def rises_and_falls(config):
    for i in (1, 3, 2):
        tune.report(score=config["a"] * i, info={"learner": {"loss": i / 2}}, curve=[1, 2], best=i == 3)


def fails_at_two(config):
    if config["a"] == 2:
        raise KeyError("nothing to report")
    rises_and_falls(config)


SPACE = {"a": tune.grid_search([1, 2, 3]), "model": {"layers": [8, 8], "activation": "relu"}, "custom": {}}


@pytest.fixture(scope="module")
def analysis(two_cpus, tmp_path_factory):
    return tune.run(
        fails_at_two, config=SPACE, metric="score", mode="max", storage_path=tmp_path_factory.mktemp("results"),
        raise_on_failed_trial=False, verbose=0, tensorboard=False,
    )  # fmt: skip


def test_a_row_for_each_trial_with_its_last_result_and_settings(analysis):
    frame = analysis.dataframe()
    assert len(frame) == 3 and list(frame["trial_id"]) == [trial.trial_id for trial in analysis.trials]
    assert list(frame["config/a"]) == [1, 2, 3] and set(frame["config/model/activation"]) == {"relu"}
    assert list(frame["config/model/layers"]) == [[8, 8]] * 3 and list(frame["config/custom"]) == [{}] * 3
    assert list(frame["logdir"]) == [trial.logdir for trial in analysis.trials]
    first, failed, third = (row for _, row in frame.iterrows())
    assert (first["score"], third["score"]) == (2, 6) and first["info/learner/loss"] == 1.0
    assert (first["training_iteration"], bool(first["done"])) == (3, True)
    assert pandas.isna(failed["score"]) and failed["config/a"] == 2
    assert not {"curve", "config", "info"} & set(frame.columns)


def test_the_best_result_of_each_trial_by_a_metric(analysis):
    best = analysis.dataframe(metric="score", mode="max")
    assert list(best["score"].dropna()) == [3, 9] and list(best["training_iteration"].dropna()) == [2, 2]
    worst = analysis.dataframe(metric="info/learner/loss", mode="min")
    assert list(worst["score"].dropna()) == [1, 3] and list(worst["info/learner/loss"].dropna()) == [0.5, 0.5]
    assert list(best["config/a"]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metric": "score"}, 'needs mode="max" or "min"'),
        ({"metric": "score", "mode": "best"}, "but got 'best'"),
        ({"mode": "max"}, "needs the metric"),
        ({"metric": "scores", "mode": "max"}, "Did you mean score"),
    ],
)
def test_what_is_refused(analysis, arguments, message):
    with pytest.raises(ValueError, match=message):
        analysis.dataframe(**arguments)


def test_all_results_of_each_trial(analysis):
    frames = analysis.trial_dataframes
    assert list(frames) == [trial.logdir for trial in analysis.trials]
    first, failed, third = frames.values()
    assert list(first["score"]) == [1, 3, 2] and list(third["score"]) == [3, 9, 6] and failed.empty
    assert list(first["info/learner/loss"]) == [0.5, 1.5, 1.0] and list(first["best"]) == [False, True, False]
    assert analysis.fetch_trial_dataframes().keys() == frames.keys()


def test_a_directory_alone_gives_the_same(analysis):
    loaded = ExperimentAnalysis(analysis.experiment_path)
    pandas.testing.assert_frame_equal(loaded.dataframe(), analysis.dataframe())
    pandas.testing.assert_frame_equal(loaded.best_dataframe, analysis.best_dataframe)


def test_pandas_is_loaded_for_frames_alone(analysis):
    program = f"""
import sys
from rllib.tune import ExperimentAnalysis
analysis = ExperimentAnalysis({analysis.experiment_path!r})
assert analysis.best_config["a"] == 3 and "pandas" not in sys.modules
analysis.dataframe()
assert "pandas" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
