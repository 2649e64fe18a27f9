"""The suites of `rllib benchmark`: their data."""

import re
import sys

import pytest

from rllib.algorithms.base.registry import algorithm_names
from rllib.benchmark.suite import label, read_suite, suite_names
from rllib.cli.benchmark.benchmark import command
from rllib.cli.spec import find_file, load_spec
from rllib.extras import install_hint

# A page of a project as it was at one commit.
_PINNED = re.compile(r"https://github\.com/[\w-]+/[\w-]+/(blob|tree)/[0-9a-f]{40}/\S+")


@pytest.mark.parametrize("name", suite_names())
def test_published_scores_are_of_the_suites_tasks_and_have_a_source(name):
    suite = read_suite(name)
    assert suite.about and suite.scale and suite.actions in ("discrete", "continuous")
    assert len({label(task) for task in suite.tasks}) == len(suite.tasks)
    for task in suite.tasks.values():
        assert task.high is None or task.low < task.high
    for each in suite.published:
        assert each.scores.keys() <= suite.tasks.keys() and each.algorithm in algorithm_names()
        assert _PINNED.fullmatch(each.source) and each.protocol
    assert len({each.name for each in suite.published}) == len(suite.published)


@pytest.mark.parametrize("name", suite_names())
def test_the_examples_of_a_suite_are_of_their_algorithms(name):
    suite = read_suite(name)
    for algorithm, example in suite.examples.items():
        keys = load_spec(find_file(example))
        assert keys["algorithm"] == algorithm and "env_config" not in keys["config"]
    assert not suite.extra or install_hint(suite.extra)
    assert bool(suite.extra) == bool(suite.modules)


def test_help_names_all_suites():
    assert f"Suites: {', '.join(suite_names())}." in " ".join(command.help.split())


def test_a_task_is_found_without_the_module_that_makes_it():
    suite = read_suite("minigrid")
    assert suite.task_called("MiniGrid-Unlock-v0") == "minigrid:MiniGrid-Unlock-v0"
    assert suite.task_called("minigrid:MiniGrid-Unlock-v0") == "minigrid:MiniGrid-Unlock-v0"
    with pytest.raises(ValueError, match=r"Did you mean 'MiniGrid-Unlock-v0'"):
        suite.task_called("MiniGrid-Unlok-v0")


def test_without_minatar_its_games_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "minatar.gym", None)
    monkeypatch.delitem(sys.modules, "rllib.env.tasks.minatar_games", raising=False)
    with pytest.raises(ImportError, match=r"pip install .*\[minatar\]'"):
        __import__("rllib.env.tasks.minatar_games")


@pytest.mark.extras("minatar")
def test_minatars_games_are_made_by_their_ids():
    import gymnasium

    for task in read_suite("minatar").tasks:
        env = gymnasium.make(task)
        assert env.reset(seed=0)[0].shape[:2] == (10, 10)
