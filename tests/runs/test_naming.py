"""Names of runs: short, by what differs, and never two of one name."""

import random
from pathlib import Path

import pytest

from rllib.runs.naming import differing, learning_settings, names_apart, names_by_difference, short

PPO = {"algorithm": "PPO", "env": "CartPole-v1"}
A2C = {"algorithm": "A2C", "env": "CartPole-v1"}


def names(*settings):
    return names_by_difference(settings, [f"folder_{index}" for index in range(len(settings))])


def test_directories_are_named_by_what_differs():
    def apart(*places):
        return names_apart([Path("/results", place) for place in places])

    assert apart("ppo", "dqn") == ["ppo", "dqn"]
    assert apart("ppo/seed_0", "dqn/seed_0", "dqn/seed_1") == ["ppo/seed_0", "dqn/seed_0", "seed_1"]
    assert apart("x/a/s", "x/b/s", "y/b/s") == ["a/s", "x/b/s", "y/b/s"]
    assert apart("a", "a") == ["a", "a"] and apart("s", "b/s") == ["results/s", "b/s"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([PPO, A2C], ["PPO", "A2C"]),
        ([PPO, {**PPO, "env": "Acrobot-v1"}], ["CartPole-v1", "Acrobot-v1"]),
        ([PPO, {**A2C, "env": "Acrobot-v1"}], ["PPO on CartPole-v1", "A2C on Acrobot-v1"]),
        ([{"lr": 0.1}, {"lr": 0.01}], ["lr=0.1", "lr=0.01"]),
        ([{"lr": 1}, {"lr": 1.0}], ["folder_0", "folder_1"]),
        # What one algorithm alone varies is in its names alone.
        ([{**PPO, "lr": 0.1}, {**PPO, "lr": 0.2}, {**A2C, "lr": 0.3}], ["PPO, lr=0.1", "PPO, lr=0.2", "A2C"]),
        ([{"a": 1}, {}], ["a=1", "no a"]),
        ([{"x": None}, {"x": False}, {"x": 0}], ["x=None", "x=False", "x=0"]),
        # Ends of paths, as long as it needs to tell them apart.
        ([{"model/n": 1}, {"model/n": 2}], ["n=1", "n=2"]),
        ([{"p/a/lr": 1, "p/b/lr": 1}, {"p/a/lr": 2, "p/b/lr": 1}, {"p/a/lr": 1, "p/b/lr": 2}],
         ["a/lr=1, b/lr=1", "a/lr=2, b/lr=1", "a/lr=1, b/lr=2"]),
        # Numbers that would be the same.
        ([{"lr": 0.123456}, {"lr": 0.123457}], ["lr=0.123456", "lr=0.123457"]),
        # Equal settings: by their seeds, or where these are equal too, by their places.
        ([{**PPO, "seed": 3}, {**PPO, "seed": 4}], ["seed 3", "seed 4"]),
        ([{"lr": 1, "seed": 3}, {"lr": 1, "seed": 4}, {"lr": 2, "seed": 3}], ["lr=1, seed 3", "lr=1, seed 4", "lr=2"]),
        ([{"lr": 1, "seed": 3}, {"lr": 1, "seed": 3}], ["folder_0", "folder_1"]),
        ([{"lr": 1}, {"lr": 1}, {"lr": 2}], ["lr=1 (folder_0)", "lr=1 (folder_1)", "lr=2"]),
    ],
)  # fmt: skip
def test_names_say_what_differs(settings, expected):
    assert names(*settings) == expected


def test_of_many_settings_a_name_has_those_that_tell_it_apart():
    settings = [{f"setting_{index}": value for index in range(9)} | {"lr": value} for value in (1, 2, 3)]
    assert names(*settings) == ["setting_0=1, …", "setting_0=2, …", "setting_0=3, …"]
    grid = [{"a": a, "b": b, "c": a, "d": a, "e": a} for a in (1, 2) for b in (1, 2)]
    assert names(*grid)[:2] == ["a=1, b=1, …", "a=1, b=2, …"]


def test_equal_names_of_equal_places_are_numbered():
    assert names_by_difference([{}, {}, {}], ["run", "run #2", "run"]) == ["run", "run #2", "run #3"]


def test_no_two_names_are_the_same_and_none_is_long():
    rng = random.Random(1)
    for _ in range(200):
        values = [0.1, 0.1 + 1e-9, "x" * 80 + "y", "x" * 80 + "z", [1, 2], None, True, 1]
        settings = [
            {
                key: rng.choice(values)
                for key in ("algorithm", "env", "a/k", "b/k", "c", "d", "seed")
                if rng.random() < 0.8
            }
            for _ in range(rng.randint(1, 8))
        ]
        found = names_by_difference(settings, ["place"] * len(settings))
        assert len(set(found)) == len(found) and all(found), settings
        assert max(map(len, found)) < 400


def test_what_says_nothing_about_learning_is_no_setting():
    run = {"lr": 1, "seed": 0, "log_dir": "a", "env_config/seed": 1, "wandb/name": "x", "mlflow": {}}
    assert learning_settings(run) == {"lr": 1}
    # An empty dict stands at the path that a dict with entries has none at.
    empty, filled = (learning_settings(each) for each in ({"env_config": {}}, {"env_config/length": 8}))
    assert names_by_difference([empty, filled], ["a", "b"]) == ["no length", "length=8"]
    assert not differing([{"f": "<function f at 0x7f00>"}, {"f": "<function f at 0x7f99>"}])


def test_short_values():
    assert short(1 / 3) == "0.3333" and short(10_000_000) == "10000000"
    assert short("a" * 24) == "a" * 24 and short("a" * 25) == "a" * 23 + "…"
