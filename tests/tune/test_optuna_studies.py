"""Studies of Optuna in journal files, and search spaces that are functions of Optuna's trial."""

import json

import pytest

from rllib import tune
from rllib.tune.search import ConcurrencyLimiter, OptunaSearch
from tests.tune.climber import Climber

optuna = pytest.importorskip("optuna")

SPACE = {"x": tune.uniform(0, 1)}
METRICS, MODES = ["gain", "cost"], ["max", "min"]


def _begun(config=SPACE, metric="loss", mode="min", **settings):
    search = OptunaSearch(seed=0, **settings)
    search.set_search_properties(metric, mode, config)
    return search


def _study(path, name="study"):
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    return optuna.load_study(study_name=name, storage=storage)


# ---------------------------------------------------------------------- journal files


def test_a_journal_file_is_a_study_of_optuna(tmp_path):
    search = _begun(storage=tmp_path / "new" / "study.log", metric=METRICS, mode=MODES)
    for number in range(3):
        search.suggest(f"t{number}")
        search.on_trial_complete(f"t{number}", {"gain": 1.0 * number, "cost": 2.0})
    study = _study(tmp_path / "new" / "study.log")
    assert [direction.name for direction in study.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert [trial.values for trial in study.trials] == [[0.0, 2.0], [1.0, 2.0], [2.0, 2.0]]
    assert [trial.user_attrs["trial_id"] for trial in study.trials] == ["t0", "t1", "t2"]


def test_a_driver_that_died_finds_what_it_had_asked_for(tmp_path):
    points = [{"x": 0.25}, {"x": 0.75}]
    kept = {"storage": str(tmp_path / "study.log"), "points_to_evaluate": points}
    first = _begun(**kept)
    asked = [first.suggest("t0")]
    saved = json.loads(json.dumps(first.get_state()))
    asked += [first.suggest(name) for name in ("t1", "t2")]
    first.on_trial_complete("t1", {"loss": 3.0})
    # The state was saved before t1: the journal of the experiment repeats what followed.
    second = _begun(**kept)
    second.set_state(saved)
    assert [second.suggest(name) for name in ("t1", "t2")] == asked[1:]
    second.on_trial_complete("t1", {"loss": 3.0})
    second.on_trial_complete("t0", {"loss": 1.0})
    trials = _study(tmp_path / "study.log").trials
    assert [trial.params["x"] for trial in trials][:2] == [0.25, 0.75] and len(trials) == 3
    assert [trial.value for trial in trials] == [1.0, 3.0, None]
    third = second.suggest("t3")
    assert third["x"] not in {config["x"] for config in asked}


def test_a_resumed_experiment_asks_for_no_point_twice(tmp_path, monkeypatch):
    # Nothing but the first state of the searcher is saved; the rest follows from the journal.
    monkeypatch.setattr("rllib.tune.experiment.directory._SNAPSHOT_SHARE", 10**9)

    class Died(Exception):
        pass

    class Dies(tune.Callback):
        def on_trial_complete(self, iteration, trials, trial, **info):
            if trial.index == 1:
                raise Died

    def run(**more):
        search = OptunaSearch(seed=0, storage=tmp_path / "study.log", points_to_evaluate=[{"rate": 2.0}, {"rate": 3.0}])
        return tune.run(Climber, config={"rate": tune.uniform(0, 5)}, num_samples=4, metric="height", mode="max",
                        search_alg=ConcurrencyLimiter(search, 1), name="x", storage_path=tmp_path, verbose=0,
                        stop={"training_iteration": 2}, tensorboard=False, **more)  # fmt: skip

    with pytest.raises(Died):
        run(callbacks=[Dies()])
    rates = [trial.config["rate"] for trial in run(resume=True).trials]
    trials = _study(tmp_path / "study.log").trials
    assert [trial.params["rate"] for trial in trials] == rates and rates[:2] == [2.0, 3.0] and len(set(rates)) == 4
    assert [trial.value for trial in trials] == [2 * rate for rate in rates]


def test_a_study_that_maximised_what_is_minimised_is_read(tmp_path):
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log")))
    optuna.create_study(study_name="study", storage=storage, direction="maximize")
    search = _begun(storage=tmp_path / "study.log")
    search.suggest("a")
    search.on_trial_complete("a", {"loss": 2.0})
    assert [trial.value for trial in _study(tmp_path / "study.log").trials] == [-2.0]


def test_a_state_of_an_earlier_version_is_read():
    first = _begun()
    first.suggest("a")
    first.on_trial_complete("a", {"loss": 2.0})
    state = first.get_state()
    for trial in state["trials"]:
        trial["score"] = -trial.pop("values")[0]
    del state["study_name"]
    second = _begun()
    second.set_state(state)
    assert second.get_state()["trials"] == first.get_state()["trials"]


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("hello\n", {}, "is no journal of an Optuna study"),
        (None, {"metric": METRICS, "mode": MODES}, r"has the directions \['minimize'\], but this search has"),
        (None, {"mode": "max"}, r"has the directions \['minimize'\].*Give another study_name"),
    ],
)
def test_storage_that_does_not_fit_is_refused(tmp_path, content, settings, message):
    path = tmp_path / "study.log"
    if content is None:
        _begun(storage=path).suggest("a")
    else:
        path.write_text(content)
    with pytest.raises(ValueError, match=message):
        _begun(storage=path, **settings)
    with pytest.raises(ValueError, match="is a directory; give the path of a journal file"):
        OptunaSearch(storage=tmp_path)


# ---------------------------------------------------------------------- define by run


def _space(trial):
    if trial.suggest_categorical("kind", ["plain", "deep"]) == "deep":
        trial.suggest_int("model/layers", 2, 4)
    return {"model/width": 8}


def test_a_function_as_space():
    search = _begun({"model": {"act": "tanh"}, "fixed": 1}, space=_space)
    configs = [search.suggest(str(number)) for number in range(12)]
    for config in configs:
        layers = {"layers": config["model"]["layers"]} if config["kind"] == "deep" else {}
        assert config == {"kind": config["kind"], "fixed": 1, "model": {"act": "tanh", "width": 8, **layers}}
    assert {config["kind"] for config in configs} == {"plain", "deep"}
    again = _begun({"model": {"act": "tanh"}, "fixed": 1}, space=_space)
    again.set_state(json.loads(json.dumps(search.get_state())))
    assert again.suggest("12") == search.suggest("12")


def test_points_and_rewards_of_a_function():
    points = [{"kind": "deep", "model/layers": 3}, {"kind": "plain"}]
    search = _begun({}, space=_space, points_to_evaluate=points)
    assert [search.suggest(name) for name in "ab"] == [
        {"kind": "deep", "model": {"layers": 3, "width": 8}}, {"kind": "plain", "model": {"width": 8}},
    ]  # fmt: skip
    known = _begun({}, space=_space, points_to_evaluate=points, evaluated_rewards=[1.0, 2.0])
    known.suggest("a")
    assert [trial["values"] for trial in known.get_state()["trials"]][:2] == [[1.0], [2.0]]


def test_chosen_settings_are_in_the_table_of_an_experiment(tmp_path):
    search = OptunaSearch(_space, seed=0)
    analysis = tune.run(lambda config: {"loss": config["model"]["width"]}, config={"fixed": 1}, metric="loss",
                        mode="min", search_alg=search, storage_path=tmp_path, verbose=0)  # fmt: skip
    [trial] = analysis.trials
    assert trial.evaluated_params["kind"] in ("plain", "deep") and trial.evaluated_params["model/width"] == 8
    assert "fixed" not in trial.evaluated_params


def _fails(trial):
    trial.suggest_float("x", 1.0, 0.0)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"space": lambda trial: {"a": 1}}, ValueError, "asks for nothing. Call trial.suggest_float"),
        (
            {"space": lambda trial: trial.suggest_float("x", 0, 1)},
            TypeError,
            "must return a dict of settings, or nothing",
        ),
        ({"space": _fails}, ValueError, "low <= high"),
        ({"space": [1]}, TypeError, "space must be a dict, or a function of Optuna's trial"),
        ({"space": _space, "points_to_evaluate": [3]}, ValueError, "needs a list of dicts"),
        (
            {"space": _space, "points_to_evaluate": [{"kind": "deep", "model/layer": 3}], "evaluated_rewards": [1.0]},
            ValueError,
            r"evaluated_rewards must name all that is drawn, but lacks \['model/layers'\]",
        ),
        ({"population_size": 4}, ValueError, 'population_size is a setting of sampler="nsga2"'),
        ({"population_size": 0, "sampler": "nsga2"}, ValueError, "population_size must be a whole number >= 1"),
    ],
)
def test_what_is_refused(settings, error, message):
    with pytest.raises(error, match=message):
        _begun({}, **settings)


def test_rewards_need_a_number_for_each_metric():
    with pytest.raises(ValueError, match="evaluated_rewards needs 2 numbers for each point, but has"):
        _begun(metric=METRICS, mode=MODES, points_to_evaluate=[{"x": 0.5}], evaluated_rewards=[1.0])
    with pytest.raises(ValueError, match="has its own space, so"):
        _begun({"x": tune.uniform(0, 1)}, space=_space)
