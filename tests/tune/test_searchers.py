"""Searchers: what they suggest, that they learn, that a seed repeats and a saved search goes on exactly."""

import math

import numpy as np
import pytest

from rllib import tune
from rllib.tune.search import BasicVariant, ConcurrencyLimiter, Repeater, Searcher, create_searcher
from rllib.tune.search.base import announce_search
from rllib.tune.search.wrappers import Seeded

SPACE = {"x": tune.uniform(-5, 5), "y": tune.uniform(-5, 5), "fixed": 3}


def _begun(searcher, space=SPACE, **spec):
    searcher.set_search_properties("score", "max", space, **spec)
    return searcher


def _play(searcher, count, score=lambda config: -((config["x"] - 1) ** 2) - config["y"] ** 2, start=0):
    configs = []
    for number in range(start, start + count):
        config = searcher.suggest(f"t{number}")
        if config == Searcher.FINISHED:
            break
        configs.append(config)
        searcher.on_trial_complete(f"t{number}", {"score": score(config)})
    return configs


def _optuna(name="tpe", **kwargs):
    pytest.importorskip("optuna", reason="needs the extra `tune`")
    for module in {"gp": ["scipy", "torch"], "qmc": ["scipy"], "cmaes": ["cmaes"]}.get(name, []):
        pytest.importorskip(module, reason="needs the extra `tune`")
    return create_searcher(name, seed=0, **kwargs)


# ---------------------------------------------------------------------- grid and random


def test_basic_variant_counts_grid_times_samples():
    space = {"a": tune.grid_search([1, 2]), "b": tune.uniform(0, 1)}
    searcher = _begun(BasicVariant(random_state=1), space, num_samples=3)
    configs = _play(searcher, 99, lambda config: 0)
    assert [config["a"] for config in configs] == [1, 2] * 3 and searcher.total_samples == 6
    assert configs == _play(_begun(BasicVariant(random_state=1), space, num_samples=3), 99, lambda config: 0)


def test_basic_variant_starts_with_the_points():
    searcher = BasicVariant(points_to_evaluate=[{"x": 1}, {"x": 2, "m/y": 3}], random_state=0)
    configs = _play(_begun(searcher, {"x": tune.uniform(0, 9), "m": {"y": tune.randint(0, 9)}}, num_samples=3), 9, len)
    assert len(configs) == 3 and configs[0]["x"] == 1 and configs[1] == {"x": 2, "m": {"y": 3}}


def test_a_point_leaves_its_grid_open():
    space = {"a": tune.grid_search([1, 2]), "b": tune.grid_search([1, 2, 3]), "c": tune.uniform(0, 1)}

    def play(num_samples, **settings):
        points = [{"a": 9}, {"b": 2}]
        searcher = _begun(BasicVariant(points, random_state=0, **settings), space, num_samples=num_samples)
        configs = _play(searcher, 20, lambda config: 0)
        assert num_samples == -1 or searcher.total_samples == len(configs)
        return configs

    cells = [(config["a"], config["b"]) for config in play(3)]
    assert cells == [(9, 1), (9, 2), (9, 3), (1, 2), (2, 2), *((a, b) for b in (1, 2, 3) for a in (1, 2))]
    assert [(config["a"], config["b"]) for config in play(1)] == cells[:3]
    assert len(play(-1)) == 20
    assert len({config["c"] for config in play(3)}) == 11
    assert len({config["c"] for config in play(3, constant_grid_search=True)}) == 3


@pytest.mark.parametrize("inner", [lambda: BasicVariant(random_state=0), lambda: ConcurrencyLimiter(BasicVariant(), 9)])
def test_every_sample_has_its_seed_and_the_cells_of_a_grid_share_it(inner):
    space = {"a": tune.grid_search([1, 2]), "b": tune.uniform(0, 1)}
    searcher = _begun(Seeded(inner(), 7), space, num_samples=3)
    assert [config["seed"] for config in _play(searcher, 3, lambda config: 0)] == [7, 7, 8]
    resumed = _begun(Seeded(inner(), 7), space, num_samples=3)
    resumed.set_state(searcher.get_state())
    configs = _play(resumed, 9, lambda config: 0)
    assert [(config["a"], config["seed"]) for config in configs] == [(2, 8), (1, 9), (2, 9)]


def test_basic_variant_waits_for_its_limit():
    searcher = _begun(BasicVariant(max_concurrent=1), num_samples=3)
    assert searcher.suggest("a") and searcher.suggest("b") is None
    searcher.on_trial_complete("a")
    assert searcher.suggest("b")


@pytest.mark.parametrize("name", ["random", "tpe", "gp", "cmaes", "qmc"])
def test_a_saved_search_goes_on_exactly(name, tmp_path):
    def make():
        return _begun(BasicVariant(random_state=0) if name == "random" else _optuna(name), num_samples=16)

    whole = _play(make(), 13)
    first, second = make(), make()
    assert _play(first, 11) == whole[:11]
    first.save(tmp_path / "state.json")
    second.restore(tmp_path / "state.json")
    assert _play(second, 2, start=11) == whole[11:]


# ---------------------------------------------------------------------- Optuna


@pytest.mark.parametrize("name", ["tpe", "gp", "cmaes", "qmc"])
def test_optuna_repeats_by_seed(name):
    runs = [_play(_begun(_optuna(name)), 12) for _ in range(2)]
    assert runs[0] == runs[1]
    assert len({config["x"] for config in runs[0]}) == 12 and runs[0][0]["fixed"] == 3


@pytest.mark.parametrize("name", ["tpe", "gp", "cmaes"])
def test_optuna_learns(name):
    configs = _play(_begun(_optuna(name)), 17 if name == "gp" else 30)
    distances = [math.hypot(config["x"] - 1, config["y"]) for config in configs]
    assert sum(distances[-5:]) < sum(distances[:5])


def test_optuna_draws_from_every_domain():
    space = {
        "choice": tune.choice(["a", (1, 2), None]),
        "quniform": tune.quniform(0.1, 0.9, 0.25),
        "log": tune.loguniform(1e-4, 1),
        "qlog": tune.qloguniform(0.1, 1, 0.1),
        "int": tune.randint(0, 3),
        "qint": tune.qrandint(0, 30, 10),
        "logint": tune.lograndint(1, 10),
        "qlogint": tune.qlograndint(4, 16, 4),
        "normal": tune.randn(5, 1),
        "qnormal": tune.qrandn(0, 1, 0.5),
        "nested": [{"deep": tune.uniform(0, 1)}, 4],
        "function": tune.sample_from(lambda spec: spec.config.int * 2),
        "model": tune.choice([{"kind": "mlp", "width": tune.randint(1, 9)}, {"kind": "linear"}]),
    }
    configs = _play(_begun(_optuna(), space), 40, lambda config: config["normal"])
    for config in configs:
        assert config["choice"] in ("a", (1, 2), None) and config["quniform"] in (0.25, 0.5, 0.75)
        assert 1e-4 <= config["log"] <= 1 and config["qlog"] in [k / 10 for k in range(1, 11)]
        assert config["int"] in (0, 1, 2) and config["qint"] in (0, 10, 20, 30) and config["logint"] in range(1, 10)
        assert config["qlogint"] in (4, 8, 12, 16) and config["qnormal"] % 0.5 == 0
        assert 0 <= config["nested"][0]["deep"] <= 1 and config["nested"][1] == 4
        assert config["function"] == config["int"] * 2
        assert config["model"] == {"kind": "linear"} or config["model"]["width"] in range(1, 9)
    assert {config["model"]["kind"] for config in configs} == {"mlp", "linear"}


def test_optuna_starts_with_the_points():
    space = {"x": tune.uniform(0, 9), "m": {"q": tune.qlograndint(4, 16, 4), "c": tune.choice([(1,), (2,)])}, "f": 1}
    points = [{"x": 1, "m": {"q": 8, "c": (2,)}, "f": 5}, {"m/q": 16}]
    first, second, third = _play(_begun(_optuna(points_to_evaluate=points), space), 3, lambda config: 0)
    assert first == {"x": 1, "m": {"q": 8, "c": (2,)}, "f": 5}
    assert second["m"]["q"] == 16 and second["f"] == third["f"] == 1


@pytest.mark.parametrize("name", ["random", "tpe"])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"x": x, "y": 1}, lambda x: [x, None]])
def test_the_options_of_a_choice_may_be_arrays(name, wrap):
    options = [wrap(np.array(values)) for values in ([1.0, 2.0], [3.0, 4.0], [3.0], [[3.0, 4.0]])]
    point = wrap(np.array([3.0, 4.0]))  # equal to an option, and not the same object
    searcher = create_searcher("random", random_state=0) if name == "random" else _optuna(name)
    _begun(searcher, {"a": tune.choice(options)}, num_samples=40)
    drawn = [searcher.suggest(str(number))["a"] for number in range(40)]
    shown = {str(value) for value in drawn}
    assert shown == set(map(str, options))
    points = [{"a": point}]
    searcher = BasicVariant(points) if name == "random" else _optuna(name, points_to_evaluate=points)
    _begun(searcher, {"a": tune.choice(options)}, num_samples=1)
    assert str(searcher.suggest("0")["a"]) == str(point)
    for other in ([5.0, 6.0], [1.0], [[1.0, 2.0]]):
        points = [{"a": wrap(np.array(other))}]
        with pytest.raises(ValueError, match=r"points_to_evaluate: a=.* is not in choice"):
            searcher = BasicVariant(points) if name == "random" else _optuna(name, points_to_evaluate=points)
            _begun(searcher, {"a": tune.choice(options)}, num_samples=1)


NESTED = [
    {"name": "a", "lr": tune.loguniform(1e-4, 1e-1), "sizes": [tune.randint(1, 9), 4]},
    {"name": "b", "net": tune.choice([1, {"width": tune.quniform(0, 1, 0.25), "of": tune.choice([(1, 2), None])}])},
    {"name": "c", "twice": tune.sample_from(lambda spec: spec.config.k * 2)},
]


@pytest.mark.parametrize("name", ["random", "tpe"])
def test_a_configuration_that_was_drawn_is_a_point(name):
    """As the best one of an earlier search is the first of the next."""
    space = {"opt": tune.choice(NESTED), "k": tune.randint(0, 5)}
    drawn = _play(_begun(BasicVariant(random_state=0), space, num_samples=12), 12, lambda config: 0)
    assert {config["opt"]["name"] for config in drawn} == set("abc")
    searcher = BasicVariant(drawn) if name == "random" else _optuna(name, points_to_evaluate=drawn)
    assert _play(_begun(searcher, space, num_samples=12), 12, lambda config: 0) == drawn
    for other in ({"name": "a", "lr": 1.0, "sizes": [2, 4]}, {"name": "a", "lr": 1e-3}, {"name": "d"}):
        with pytest.raises(ValueError, match=r"points_to_evaluate: opt=.* is not in choice"):
            points = [{"opt": other}]
            searcher = BasicVariant(points) if name == "random" else _optuna(name, points_to_evaluate=points)
            _begun(searcher, space, num_samples=1)


def test_optuna_learns_nothing_from_failures_and_nan():
    searcher = _begun(_optuna())
    searcher.suggest("a"), searcher.suggest("b"), searcher.suggest("c")
    searcher.on_trial_complete("a", error=True)
    searcher.on_trial_complete("b", {"score": math.nan})
    searcher.on_trial_complete("c", {"score": 1.0})
    assert [entry["state"] for entry in searcher.get_state()["trials"]] == ["FAIL", "FAIL", "COMPLETE"]


def test_bayesopt_is_the_gaussian_process():
    _optuna("gp")
    assert create_searcher("bayesopt", seed=0)._sampler == "gp"


# ---------------------------------------------------------------------- wrappers


def test_concurrency_limiter():
    searcher = _begun(ConcurrencyLimiter(BasicVariant(random_state=0), 2), num_samples=5)
    assert searcher.suggest("a") and searcher.suggest("b") and searcher.suggest("c") is None
    searcher.on_trial_complete("a", {"score": 1})
    assert searcher.suggest("c") and searcher.suggest("d") is None


def test_concurrency_limiter_in_batches():
    searcher = _begun(ConcurrencyLimiter(BasicVariant(random_state=0), 2, batch=True), num_samples=5)
    searcher.suggest("a"), searcher.suggest("b")
    searcher.on_trial_complete("a", {"score": 1})
    assert searcher.suggest("c") is None
    searcher.on_trial_complete("b", error=True)
    assert searcher.suggest("c")


class _Recorder(Searcher):
    def __init__(self):
        super().__init__()
        self.told = []

    def suggest(self, trial_id):
        return {"x": len(self.told)}

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.told.append((trial_id, result, error))


def test_repeater_tells_the_mean():
    recorder = _Recorder()
    searcher = Repeater(recorder, repeat=3)
    _begun(searcher)
    configs = [searcher.suggest(trial_id) for trial_id in "abcd"]
    assert configs == [{"x": 0, "__trial_index__": index} for index in (0, 1, 2, 0)]
    searcher.on_trial_complete("b", {"score": 2})
    searcher.on_trial_complete("a", error=True)
    assert recorder.told == []
    restored = Repeater(recorder, repeat=3)
    _begun(restored).set_state(searcher.get_state())
    restored.on_trial_complete("c", {"score": 4})
    assert recorder.told == [("a", {"score": 3.0}, False)]


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: create_searcher("optuma"), "Did you mean optuna"),
        (lambda: create_searcher(3), "name or a Searcher"),
        (lambda: _begun(_optuna(), {"x": tune.grid_search([1])}), "x is a grid_search.*tune.choice"),
        (lambda: _begun(_optuna(), {"x": 1}), "nothing to search"),
        (lambda: _optuna().set_search_properties(None, "max", SPACE), "metric is missing"),
        (lambda: _optuna(sampler="tpee"), "no sampler 'tpee'"),
        (lambda: _begun(BasicVariant(points_to_evaluate=[{"z": 1}])), "has no z"),
        (lambda: _begun(BasicVariant(points_to_evaluate=[{"x": 99}])), r"x=99 is not in uniform\(-5.0, 5.0\)"),
        (lambda: _begun(BasicVariant(), num_samples=0), "draws nothing"),
        (lambda: ConcurrencyLimiter(BasicVariant(), 0), ">= 1"),
        (lambda: Repeater(BasicVariant(), 0), ">= 1"),
        (lambda: BasicVariant(random_state="x"), "random generator"),
        (lambda: _begun(_Recorder()).score({"scor": 1}), "Did you mean scor"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


class OldSearcher(Searcher):
    """As user code for Ray before 1.11 has it: no further keyword arguments."""

    def set_search_properties(self, metric, mode, config):
        self.heard = metric, mode, config
        return bool(config)

    def suggest(self, trial_id):
        return {"x": 1}


@pytest.mark.parametrize(
    "wrapped", [lambda s: s, lambda s: ConcurrencyLimiter(s, 2), Repeater], ids=["bare", "limiter", "repeater"]
)
def test_old_set_search_properties_is_called_with_what_it_takes(wrapped):
    old = OldSearcher("score", "max")
    assert announce_search(wrapped(old), "score", "max", SPACE, num_samples=3) is True
    assert old.heard == ("score", "max", SPACE)
