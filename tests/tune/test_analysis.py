"""ExperimentAnalysis and ResultGrid over an experiment whose results are known."""

import builtins
import math
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from rllib import tune
from rllib.errors import DamagedFileError, NoBestTrialError
from rllib.tune.experiment.trial import MetricAnalysis, Trial
from rllib.tune.reporting.analysis import ExperimentAnalysis, ResultGrid

# Losses of the trials with a = 1, 2, 3: the second is best at its end, the first was best at its best.
LOSSES = {1: [5.0, 1.0, 4.0], 2: [6.0, 4.0, 2.0], 3: [9.0, 8.0, math.nan]}


class Losses(tune.Trainable):
    """Reports the losses of its row, and saves the iteration."""

    def setup(self, config):
        self.losses = LOSSES[config["a"]]

    def step(self):
        return {"loss": self.losses[self.iteration], "info": {"twice": 2 * self.losses[self.iteration]}}

    def save_checkpoint(self, checkpoint_dir):
        Path(checkpoint_dir, "iteration").write_text(str(self.iteration))


@pytest.fixture(scope="module")
def analysis(two_cpus, tmp_path_factory):
    return tune.run(
        Losses,
        config={"a": tune.grid_search([1, 2, 3]), "net": {"width": 64}},
        stop={"training_iteration": 3},
        metric="loss",
        mode="min",
        checkpoint_freq=1,
        storage_path=tmp_path_factory.mktemp("results"),
        verbose=0,
        tensorboard=False,
    )


@pytest.fixture(params=["run", "directory"])
def either(request, analysis):
    """The analysis of the run, and that of its directory alone."""
    return analysis if request.param == "run" else ExperimentAnalysis(analysis.experiment_path)


def a_of(trial):
    return trial.config["a"]


def test_scopes_of_the_best(either):
    assert a_of(either.best_trial) == 2
    assert a_of(either.get_best_trial("loss", "min", scope="all")) == 1
    assert a_of(either.get_best_trial("loss", "min", scope="avg")) == 1
    assert a_of(either.get_best_trial("loss", "min", scope="last-5-avg")) == 1
    assert a_of(either.get_best_trial("loss", "max", scope="all")) == 3
    assert a_of(either.get_best_trial("info/twice", "min")) == 2
    assert either.best_config == {"a": 2, "net": {"width": 64}}
    assert either.best_result["loss"] == 2.0
    assert either.best_logdir == either.best_trial.logdir


def test_bad_questions_say_what_there_is(either):
    with pytest.raises(ValueError, match=r"scope must be one of last, all, avg.*'median'"):
        either.get_best_trial(scope="median")
    with pytest.raises(ValueError, match=r"no result has the metric 'los'. Did you mean loss\?"):
        either.get_best_trial("los", "min")
    with pytest.raises(ValueError, match="mode must be 'max' or 'min', but got 'best'"):
        either.get_best_trial("loss", "best")
    with pytest.raises(ValueError, match="there is no trial 'nobody'"):
        either.get_last_checkpoint("nobody")


def test_checkpoints(either):
    first = next(trial for trial in either.trials if a_of(trial) == 1)
    assert Path(either.get_best_checkpoint(first).path, "iteration").read_text() == "2"
    assert Path(either.get_last_checkpoint(first).path, "iteration").read_text() == "3"
    assert Path(either.best_checkpoint.path, "iteration").read_text() == "3"
    assert [loss for _, loss in either.get_trial_checkpoints_paths(first, "loss")] == [5.0, 1.0, 4.0]
    assert [number for _, number in either.get_trial_checkpoints_paths(first, "training_iteration")] == [1, 2, 3]


def test_a_data_frame_has_a_row_for_each_trial(either):
    frame = either.dataframe()
    assert list(frame["config/a"]) == [1, 2, 3]
    assert list(frame["config/net/width"]) == [64, 64, 64]
    assert list(frame["loss"][:2]) == [4.0, 2.0] and math.isnan(frame["loss"][2])
    assert list(frame["info/twice"][:2]) == [8.0, 4.0]
    assert set(frame["training_iteration"]) == {3}
    assert {"trial_id", "logdir", "time_total_s", "done"} <= set(frame)


def test_a_data_frame_of_the_best_results(either):
    frame = either.dataframe(metric="loss", mode="min")
    assert list(frame["loss"]) == [1.0, 2.0, 8.0]
    assert list(frame["training_iteration"]) == [2, 3, 2]
    with pytest.raises(ValueError, match='needs mode="max" or "min" as well'):
        either.dataframe(metric="loss")


def test_data_frames_of_single_trials(either):
    frames = either.trial_dataframes
    assert set(frames) == {trial.logdir for trial in either.trials}
    assert list(frames[either.best_logdir]["loss"]) == LOSSES[2]
    assert list(either.best_dataframe["loss"]) == LOSSES[2]
    assert list(either.best_result_df["loss"]) == [2.0]
    assert list(either.best_result_df["config/a"]) == [2]


def test_result_grid(analysis):
    grid = ResultGrid(analysis)
    best = grid.get_best_result()
    assert (best.metrics["loss"], best.config["a"], best.error) == (2.0, 2, None)
    assert list(best.metrics_dataframe["loss"]) == LOSSES[2]
    assert [metrics["loss"] for _, metrics in best.best_checkpoints] == LOSSES[2]
    for mode, loss in (("min", min(LOSSES[2])), ("max", max(LOSSES[2]))):
        checkpoint = best.get_best_checkpoint("loss", mode)
        assert next(metrics for each, metrics in best.best_checkpoints if each == checkpoint)["loss"] == loss
    with pytest.raises(RuntimeError, match="has a number 'nothing'"):
        best.get_best_checkpoint("nothing", "max")
    with pytest.raises(ValueError, match="mode='last'"):
        best.get_best_checkpoint("loss", "last")
    assert list(grid.get_dataframe()["config/a"]) == [1, 2, 3]
    assert list(grid.get_dataframe(filter_metric="loss", filter_mode="min")["loss"]) == [1.0, 2.0, 8.0]
    assert (len(grid), grid.num_errors, grid.num_terminated, grid.errors) == (3, 0, 3, [])


def test_a_result_from_its_directory(analysis, tmp_path):
    best = ResultGrid(analysis).get_best_result()
    moved = tmp_path / "moved"
    shutil.copytree(analysis.experiment_path, moved)
    for path in (best.path, moved / Path(best.path).name):
        found = tune.Result.from_path(path)
        assert (found.metrics["loss"], found.config, found.error) == (2.0, best.config, None)
        assert Path(found.path) == Path(path) == Path(found.checkpoint.path).parent
        assert Path(found.get_best_checkpoint("loss", "min").path, "iteration").read_text() == "3"
        assert list(found.metrics_dataframe["loss"]) == LOSSES[2]
    with pytest.raises(RuntimeError, match="no trial's directory"):
        tune.Result.from_path(tmp_path / "nothing")
    (moved / "other").mkdir()
    with pytest.raises(ValueError, match="has no trial in other"):
        tune.Result.from_path(moved / "other")
    with pytest.raises(ValueError, match="no experiment"):
        tune.Result.from_path(moved)


def test_metadata_of_a_checkpoint(tmp_path):
    checkpoint = tune.Checkpoint.from_directory(tmp_path)
    assert checkpoint.get_metadata() == {}
    checkpoint.set_metadata({"step": 1, "nested": {"x": [1, None]}})
    checkpoint.update_metadata({"step": 2})
    expected = {"step": 2, "nested": {"x": [1, None]}}
    assert checkpoint.get_metadata() == tune.Checkpoint(checkpoint.to_directory()).get_metadata() == expected
    with pytest.raises(TypeError):
        checkpoint.set_metadata({"step": object()})
    assert tune.Checkpoint(tmp_path).get_metadata() == expected
    checkpoint.set_metadata({})
    assert checkpoint.get_metadata() == {}
    (tmp_path / ".metadata.json").write_text("[")
    with pytest.raises(DamagedFileError, match=r"\.metadata\.json"):
        checkpoint.get_metadata()
    with pytest.raises(AttributeError, match="use path"):
        _ = checkpoint.filesystem


def test_metadata_are_reported_with_their_checkpoint(two_cpus, tmp_path):
    def train(config):
        for step in range(2):
            directory = tmp_path / f"{config['a']}_{step}"
            directory.mkdir()
            checkpoint = tune.Checkpoint.from_directory(directory)
            checkpoint.set_metadata({"step": step})
            tune.report({"step": step}, checkpoint=checkpoint)

    grid = tune.run(train, config={"a": 1}, storage_path=tmp_path / "results", verbose=0)
    result = tune.Result.from_path(grid.trials[0].logdir)
    assert [each.get_metadata() for each, _ in result.best_checkpoints] == [{"step": 0}, {"step": 1}]


@dataclass
class Ended:
    """What the analysis asks of a trial, with these values of its metric."""

    values: list[float]
    trial_id: str = "1"
    metric: str = "loss"

    def __post_init__(self):
        self.analysis, self.last_result = MetricAnalysis(), {}
        for value in self.values:
            self.last_result = {self.metric: value}
            self.analysis.add(self.last_result)

    @property
    def metric_analysis(self):
        return self.analysis.stats


def best_of(*values, **settings):
    return ExperimentAnalysis(trials=[Ended(list(each)) for each in values]).get_best_trial("loss", **settings).values


def test_nan_and_infinity_are_filtered_from_the_best():
    assert best_of([math.nan], [1.0], [math.inf], [2.0]) == [2.0]
    assert best_of([math.nan], [1.0], [-math.inf], [2.0], mode="min") == [1.0]
    assert best_of([1.0, math.inf], [3.0, 2.0], scope="all") == [3.0, 2.0]
    assert best_of([math.nan], [1.0], [math.inf], filter_nan_and_inf=False) == [math.inf]
    assert best_of([math.nan], [math.nan], filter_nan_and_inf=False) == [math.nan]


def test_all_nan_says_so():
    for error in (ValueError, RuntimeError):
        with pytest.raises(error, match=r"loss is NaN or infinite in the last results of every trial.*filter_nan_"):
            best_of([math.nan], [1.0, math.inf])
        with pytest.raises(error, match=r"loss is NaN or infinite in the last results of every trial.*filter_nan_"):
            best_of([math.nan])
    assert best_of([math.nan], filter_nan_and_inf=False) == [math.nan]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, r"the metric 'info/won' is True in the results, a bool and no number. Report int(won)."),
        (False, r"is False in the results, a bool and no number."),
        ("much", r"is 'much' in the results, a str and no number. Report a number."),
    ],
)
def test_a_metric_that_is_no_number_is_named(value, message):
    trials = [Trial(str(i), i, "f", {}) for i in range(2)]
    for trial in trials:
        trial.take({"info": {"won": value}, "training_iteration": 1})
    for some in (trials, trials[:1]):
        with pytest.raises(NoBestTrialError, match=re.escape(message)):
            ExperimentAnalysis(trials=some).get_best_trial("info/won", "max")


def test_a_grid_of_one_trial_needs_no_metric():
    only = ExperimentAnalysis(trials=[Ended([math.nan])])
    assert only.get_best_trial() is only.best_trial is only.trials[0]
    assert ExperimentAnalysis(trials=[Ended([1.0])]).get_best_trial("loss").values == [1.0]
    assert ExperimentAnalysis(trials=[Ended([])]).get_best_trial("loss").last_result == {}
    with pytest.raises(ValueError, match="Did you mean loss"):
        only.get_best_trial("los")
    with pytest.raises(ValueError, match="compared by a metric, but none is given"):
        ExperimentAnalysis(trials=[Ended([1.0]), Ended([2.0])]).get_best_trial()


def test_a_mode_without_a_metric_compares_bare_numbers():
    trials = [Ended([value], metric="_metric") for value in (3.0, 1.0, 2.0)]
    assert ExperimentAnalysis(trials=trials, default_mode="min").best_trial is trials[1]
    with pytest.raises(ValueError, match="compared by a metric, but none is given"):
        ExperimentAnalysis(trials=[Ended([1.0]), Ended([2.0])], default_mode="min").best_trial  # noqa: B018


def test_the_grid_passes_the_filter_on(analysis):
    grid = ResultGrid(analysis)
    assert grid.get_best_result("loss", "max", filter_nan_and_inf=False).config["a"] == 1
    with pytest.raises(RuntimeError, match="no result has the metric 'gain'"):
        grid.get_best_result("gain", "max")


def test_a_trial_knows_its_directories_and_checkpoints(analysis):
    trial = analysis.trials[0]
    assert trial.has_checkpoint() and not Trial("1", 0, "f", {}).has_checkpoint()
    assert trial.local_dir == analysis.experiment_path == str(Path(trial.logdir).parent)


def test_without_pandas_the_error_says_what_to_install(analysis, monkeypatch):
    real_import = builtins.__import__

    def without_pandas(name, *args, **kwargs):
        if name == "pandas":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    for frame in (analysis.dataframe, lambda: analysis.best_dataframe, lambda: analysis.trial_dataframes):
        with pytest.raises(ImportError, match="pip install pandas"):
            frame()


def test_configurations_by_directory(either):
    best = either.best_trial.logdir
    assert either.get_all_configs()[best] == {"a": 2, "net": {"width": 64}}
    assert either.get_all_configs(prefix=True)[best]["config/a"] == 2
    assert either.stats()["status"] == {"TERMINATED": 3}


# ---------------------------------------------------------------------- names of later versions

LATER = "env_runners/episode_return_mean"


class Returns(tune.Trainable):
    """Reports returns under the name that algorithms store them under."""

    def step(self):
        return {"episode_reward_mean": self.config["a"] - (self.iteration - 1) ** 2}

    def save_checkpoint(self, checkpoint_dir):
        return {}


class Listens(tune.Callback):
    def __init__(self):
        self.heard = []

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.heard.append(result[LATER])


def test_every_reader_of_results_takes_the_names_of_later_versions(two_cpus, tmp_path, capsys):
    listens = Listens()
    live = tune.run(
        Returns, config={"a": tune.grid_search([1.0, 2.0])}, metric=LATER, mode="max", scheduler="median_stopping",
        stop=lambda trial_id, result: result["env_runners"]["episode_return_mean"] < result["config"]["a"] - 3,
        checkpoint_freq=1, keep_checkpoints_num=1, checkpoint_score_attr=LATER, callbacks=[listens],
        storage_path=tmp_path, verbose=1, tensorboard=False, progress_reporter=tune.CLIReporter(max_report_frequency=0),
    )  # fmt: skip
    assert len(listens.heard) == 8 and f"{LATER}=-2" in capsys.readouterr().out
    for analysis in (live, ExperimentAnalysis(live.experiment_path)):
        best = analysis.best_trial
        assert best.config["a"] == 2.0
        assert analysis.get_best_config(metric="sampler_results/episode_reward_mean") == best.config
        assert analysis.best_result["env_runners"]["episode_return_mean"] == -2
        assert analysis.results[best.trial_id][LATER] == -2
        assert best.metric_analysis[LATER]["max"] == 2.0
        assert analysis.best_checkpoint.path.endswith("checkpoint_000002")
        assert [value for _, value in analysis.get_trial_checkpoints_paths(best)] == [2.0, -2.0]
        assert list(analysis.dataframe()[LATER]) == [-3.0, -2.0]
        assert list(analysis.dataframe(LATER, "max")[LATER]) == [1.0, 2.0]
        assert list(analysis.best_dataframe[LATER]) == [1.0, 2.0, 1.0, -2.0]
        (result, _) = sorted(ResultGrid(analysis), key=lambda result: result.metrics[LATER], reverse=True)
        assert result.metrics["env_runners"]["episode_return_mean"] == -2.0
        assert ResultGrid(analysis).get_best_result().path == result.path
        assert [metrics[LATER] for _, metrics in result.best_checkpoints] == [2.0, -2.0]
    with pytest.raises(ValueError, match=r"no result has the metric 'env_runners/episode_return_men'"):
        live.get_best_trial("env_runners/episode_return_men")
