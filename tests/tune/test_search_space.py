"""Search spaces: what each domain draws, grids, conditions, repeatability, and what is refused."""

import random

import numpy as np
import pytest

from rllib import tune
from rllib.tune.search.space import SearchSpace, evaluated_params, split

SAMPLES = 2000


def _drawn(domain, count=SAMPLES):
    rng = random.Random(0)
    return np.array([domain.draw(rng) for _ in range(count)])


def _configs(config, seed=None, num_samples=1, constant_grid_search=False):
    space = SearchSpace(config)
    return [space.variant(index, seed, constant_grid_search) for index in range(num_samples * space.grid_size)]


def test_uniform_domains_fill_their_range():
    drawn = _drawn(tune.uniform(-2, 3))
    assert drawn.min() >= -2 and drawn.max() <= 3 and abs(drawn.mean() - 0.5) < 0.15
    logs = np.log10(_drawn(tune.loguniform(1e-4, 1)))
    assert logs.min() >= -4 and logs.max() <= 0 and abs(logs.mean() + 2) < 0.15


@pytest.mark.parametrize(
    "domain, expected",
    [
        (tune.quniform(0, 1, 0.25), {0, 0.25, 0.5, 0.75, 1}),
        (tune.quniform(0.1, 0.5, 0.2), {0.2, 0.4}),
        (tune.qloguniform(0.1, 0.3, 0.1), {0.1, 0.2, 0.3}),
        (tune.randint(3, 6), {3, 4, 5}),
        (tune.qrandint(1, 10, 3), {3, 6, 9}),
        (tune.qrandint(0, 10, 5), {0, 5, 10}),
        (tune.lograndint(1, 4), {1, 2, 3}),
        (tune.qlograndint(2, 8, 2), {2, 4, 6, 8}),
        (tune.choice(["a", "b"]), {"a", "b"}),
    ],
    ids=lambda value: "" if isinstance(value, set) else repr(value),
)
def test_discrete_domains_draw_exactly_their_values(domain, expected):
    assert set(_drawn(domain, 500).tolist()) == expected


def test_quantised_ends_are_drawn_as_often_as_the_rest():
    values, counts = np.unique(_drawn(tune.quniform(0, 1, 0.25), 5000), return_counts=True)
    assert len(values) == 5 and counts.min() > 850 and counts.max() < 1150


def test_log_integers_have_a_uniform_logarithm():
    drawn = _drawn(tune.lograndint(1, 1001), 4000)
    assert abs((drawn <= 31).mean() - np.log(31.5 / 0.5) / np.log(1000.5 / 0.5)) < 0.03
    assert drawn.dtype.kind == "i"


def test_normal_domains():
    drawn = _drawn(tune.randn(10, 2))
    assert abs(drawn.mean() - 10) < 0.2 and abs(drawn.std() - 2) < 0.2
    assert set(np.round(_drawn(tune.qrandn(0, 1, 0.5)) * 2 % 1, 9)) == {0}


def test_grid_times_samples():
    space = {"a": tune.grid_search([1, 2]), "b": {"c": tune.grid_search(["x", "y", "z"])}, "d": tune.uniform(0, 1)}
    configs = _configs(space, num_samples=2, seed=0)
    assert [(config["a"], config["b"]["c"]) for config in configs] == [(a, c) for c in "xyz" for a in (1, 2)] * 2
    assert len({config["d"] for config in configs}) == 12


def test_constant_grid_search_draws_once_per_sample():
    space = {"a": tune.grid_search([1, 2, 3]), "d": tune.uniform(0, 1)}
    configs = _configs(space, num_samples=2, seed=0, constant_grid_search=True)
    assert [len({config["d"] for config in configs[part]}) for part in (slice(3), slice(3, 6))] == [1, 1]
    assert configs[0]["d"] != configs[3]["d"]


def test_the_first_grid_key_varies_fastest():
    space = {"z": {"a": tune.grid_search([1, 2])}, "a": [tune.grid_search([3, 4]), tune.grid_search([5, 6])]}
    cells = [(config["z"]["a"], *config["a"]) for config in _configs(space)]
    assert cells == [(first, second, third) for third in (5, 6) for second in (3, 4) for first in (1, 2)]


def test_sample_draws_by_size_and_seed():
    domain = tune.loguniform(1e-4, 1)
    drawn = domain.sample(size=50, random_state=3)
    assert len(drawn) == 50 and all(1e-4 <= value <= 1 for value in drawn)
    assert drawn == domain.sample(size=50, random_state=random.Random(3)) != domain.sample(size=50, random_state=4)
    by_numpy = [domain.sample(random_state=make(7)) for make in [np.random.RandomState, np.random.default_rng] * 2]
    assert by_numpy[:2] == by_numpy[2:] and isinstance(domain.sample(), float)
    assert tune.choice(["a"]).sample(size=2) == ["a", "a"] and isinstance(tune.randint(0, 9).sample(), int)
    assert tune.sample_from(lambda spec: spec["config"]["a"] + 1).sample({"config": {"a": 1}}) == 2


def test_a_size_that_draws_nothing_is_refused():
    for size in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="size must be a whole number >= 1"):
            tune.uniform(0, 1).sample(size=size)


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (tune.uniform(0.1, 0.55).quantized(0.2), tune.quniform(0.1, 0.55, 0.2)),
        (tune.loguniform(0.1, 0.3).quantized(0.1), tune.qloguniform(0.1, 0.3, 0.1)),
        (tune.randint(1, 10).quantized(5), tune.qrandint(1, 10, 5)),
        (tune.lograndint(2, 8).quantized(2), tune.qlograndint(2, 8, 2)),
        (tune.randn(1, 2).quantized(0.5), tune.qrandn(1, 2, 0.5)),
        (tune.quniform(0, 1, 0.25).quantized(0.5), tune.quniform(0, 1, 0.5)),
    ],
    ids=repr,
)
def test_quantized_is_the_domain_with_a_quantum(domain, expected):
    assert repr(domain) == repr(expected)
    assert domain.sample(size=100, random_state=0) == expected.sample(size=100, random_state=0)


def test_grids_and_domains_in_lists_tuples_and_grids():
    space = {
        "hiddens": [tune.grid_search([16, 32]), 64],
        "pair": (1, tune.choice([2])),
        "g": tune.grid_search([{"u": tune.choice([7])}, 8]),
    }
    configs = _configs(space, seed=0)
    assert [config["hiddens"] for config in configs] == [[16, 64], [32, 64], [16, 64], [32, 64]]
    assert configs[0]["pair"] == (1, 2) and [config["g"] for config in configs[1:3]] == [{"u": 7}, 8]


def test_seeds_repeat_and_differ():
    space = {"a": tune.uniform(0, 1), "b": tune.sample_from(lambda spec: np.random.uniform())}
    assert _configs(space, seed=1, num_samples=5) == _configs(space, seed=1, num_samples=5)
    assert _configs(space, seed=1, num_samples=5) != _configs(space, seed=2, num_samples=5)
    assert _configs(space, seed=1, num_samples=9)[:5] == _configs(space, seed=1, num_samples=5)
    assert SearchSpace(space).variant(3, seed=1) == _configs(space, seed=1, num_samples=5)[3]


def test_seeded_functions_leave_the_global_generators_alone():
    np.random.seed(0)
    expected = np.random.uniform(size=3)
    np.random.seed(0)
    _configs({"b": tune.sample_from(lambda spec: np.random.uniform())}, seed=1, num_samples=3)
    assert (np.random.uniform(size=3) == expected).all()


def test_functions_see_what_was_drawn_in_any_order():
    space = {
        "c": tune.sample_from(lambda spec: spec.config.b["inner"] + 1),
        "b": {"inner": tune.sample_from(lambda spec: 2 * spec.config["a"])},
        "a": tune.grid_search([1, 5]),
        "d": tune.sample_from(lambda config: config["a"]),
    }
    assert _configs(space) == [
        {"c": 3, "b": {"inner": 2}, "a": 1, "d": 1},
        {"c": 11, "b": {"inner": 10}, "a": 5, "d": 5},
    ]


def test_lambdas_of_spec_are_drawn_and_others_are_values():
    creator, mapping = (lambda config: None), (lambda _: "policy")
    config = _configs({"lr": lambda spec: spec.config.a / 10, "a": 5, "env": creator, "f": mapping})[0]
    assert config == {"lr": 0.5, "a": 5, "env": creator, "f": mapping}


def test_an_option_of_a_choice_may_hold_domains():
    space = {"model": tune.choice([{"kind": "mlp", "width": tune.randint(1, 9)}, {"kind": "linear"}])}
    params = [evaluated_params(space, config) for config in _configs(space, seed=0, num_samples=20)]
    assert {frozenset(entry) for entry in params} == {
        frozenset(["model/kind", "model/width"]),
        frozenset(["model/kind"]),
    }


@pytest.mark.parametrize(
    "option, drawn",
    [
        (tune.choice([3]), 3),
        (tune.choice([tune.choice([3])]), 3),
        (tune.choice([{"x": tune.choice([3])}]), {"x": 3}),
        (tune.sample_from(lambda spec: spec.config.b + 1), 3),
        ([tune.choice([3])], [3]),
    ],
)
@pytest.mark.parametrize("place", [lambda node: tune.choice([node]), lambda node: tune.sample_from(lambda spec: node)])
def test_an_option_may_be_a_domain(place, option, drawn):
    assert _configs({"a": place(option), "b": 2})[0] == {"a": drawn, "b": 2}


def test_a_function_may_return_a_domain():
    config = _configs({"x": tune.sample_from(lambda spec: tune.choice([3]))})[0]
    assert config == {"x": 3}


def test_evaluated_params_names_what_was_drawn():
    space = {"a": 1, "l": [tune.choice([4]), 2], "m": {"g": tune.grid_search([8])}, "f": lambda spec: 6}
    config = _configs(space)[0]
    assert evaluated_params(space, config) == {"l/0": 4, "m/g": 8, "f": 6}


def test_split_separates_domains_and_refuses_grids():
    domain = tune.uniform(0, 1)
    assert split({"a": {"b": domain}, "c": [1, 2]}) == ({"a": {"b": None}, "c": [1, 2]}, {("a", "b"): domain})
    with pytest.raises(ValueError, match=r"a/b is a grid_search.*tune\.choice"):
        split({"a": {"b": tune.grid_search([1])}})


def test_the_space_is_left_as_it_was():
    space = {"a": {"b": tune.grid_search([1, 2]), "c": [tune.uniform(0, 1)]}}
    before = repr(space)
    for config in _configs(space, seed=0):
        config["a"]["c"].append(1)
    assert repr(space) == before


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: tune.grid_search([]), "draws nothing"),
        (lambda: tune.choice([]), "draws nothing"),
        (lambda: tune.choice("abc"), "list of values"),
        (lambda: tune.uniform(1, 1), "lower < upper must hold, but got lower=1 and upper=1"),
        (lambda: tune.randint(5, 2), "lower < upper"),
        (lambda: tune.loguniform(0, 1), "lower > 0 must hold, but got lower=0"),
        (lambda: tune.lograndint(-1, 5), "lower > 0"),
        (lambda: tune.quniform(0.1, 0.3, 0.5), r"no multiple of q=0\.5"),
        (lambda: tune.qrandint(1, 4, 5), "no multiple"),
        (lambda: tune.quniform(0, 1, 0), "q > 0 must hold"),
        (lambda: tune.uniform(0, float("inf")), "finite"),
        (lambda: tune.randint(0.5, 3), "whole"),
        (lambda: tune.randn(0, 0), "sd > 0"),
        (lambda: tune.sample_from(3), "function of spec"),
        (lambda: _configs({"a": {"grid_search": []}}), "a: .*draws nothing"),
        (lambda: _configs({"a": {"grid_search": [1], "b": 2}}), "grid_search must be alone"),
        (lambda: _configs({"a": tune.choice([tune.grid_search([1])])}), "cannot stand in an option"),
        (lambda: _configs({"a": tune.sample_from(lambda spec: tune.grid_search([1]))}), "^a: sample_from returned"),
        (lambda: _configs({"a": lambda spec: {"b": [tune.grid_search([1])]}}), "Put the grid into the config"),
        (lambda: _configs({"a": lambda spec: spec.config.b, "b": lambda spec: spec.config.a}), "wait for one another"),
        (lambda: _configs({"a": lambda spec: spec.config.bb, "b": 1}), "there is no bb"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises((ValueError, TypeError, AttributeError), match=message):
        make()
