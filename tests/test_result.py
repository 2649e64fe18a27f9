"""A result by all its names, wherever its numbers are read."""

import json
import math
import pickle
import re

import pytest

from rllib.env.episodes import Episode
from rllib.evaluation.sampling_worker import SampleReport
from rllib.metrics import Metrics
from rllib.result import LATER_RESULT_KEYS, ByAllNames, Result, as_result, stored_names
from rllib.runs.entries import encode, flatten, lookup


@pytest.fixture
def result():
    metrics = Metrics()
    metrics.add_sample(SampleReport([Episode(value, 10, 0) for value in (1.0, 3.0)], env_steps=40, longest_running=7))
    result = metrics.result({"default_policy": {"kl": 0.25, "total_loss": 1.0, "entropy": 0.5, "mean_q": 9.0}})
    result["evaluation"] = Result({"episode_reward_mean": 7.0, "episodes_this_iter": 3, "hist_stats": {"lengths": [1]}})
    result["perf"] = {"cpu_util_percent": 3.0}
    result.list_parts()
    return result


def test_later_spellings_and_paths_answer(result):
    assert result["env_runners/episode_return_mean"] == 2.0
    assert result["env_runners"]["num_episodes"] == 2
    assert result["env_runners/module_episode_returns_mean/default_policy"] == 2.0
    assert result["sampler_results/episode_reward_mean"] == 2.0
    assert result["learners/default_policy/mean_kl_loss"] == 0.25
    assert result["learners"]["__all_modules__"]["total_loss"] == 1.0
    assert result["evaluation/env_runners/episode_return_mean"] == 7.0
    assert result.get("env_runners/nothing") is None
    assert "sampler_results/episode_reward_mean" in result
    assert "no/such/path" not in result
    assert "training_iteration/more" not in result
    assert "env_runners" not in dict(result)


def by_all_names(result) -> dict:
    return dict(flatten(dict(result.by_all_names())))


def test_every_later_name_is_found_in_whatever_holds_the_numbers(result):
    stored = json.loads(encode(dict(result)))  # as result.json has it
    numbers = ByAllNames(flatten(result))  # as a trial's statistics and a checkpoint's metrics have them
    later = {
        name: value for name, value in by_all_names(result).items()
        if name.removeprefix("evaluation/").partition("/")[0] in LATER_RESULT_KEYS
    }  # fmt: skip
    assert len(later) > 30 and {name.partition("/")[0] for name in later} == {*LATER_RESULT_KEYS, "evaluation"}
    for name, value in later.items():
        assert any(other in numbers for other in stored_names(name)), name
        assert lookup(stored, name) == numbers[name] == result[name] == as_result(stored)[name] == value, name
    assert by_all_names(as_result(stored)).keys() == by_all_names(result).keys()


def test_names_that_are_stored_go_before_those_that_are_computed():
    own = as_result({"env_runners/episode_return_mean": 5.0, "episode_reward_mean": 1.0})
    assert own["env_runners/episode_return_mean"] == lookup(dict(own), "env_runners/episode_return_mean") == 5.0
    nested = as_result({"env_runners": {"mine": 1}, "info": {"learner": {"mine": 3}}})
    assert nested["env_runners"] == {"mine": 1} and nested["learners"] == {}


def test_a_result_of_something_else_has_no_later_names():
    own = as_result({"score": 1.0})
    assert dict(own.by_all_names()) == {"score": 1.0}
    assert not any(key in own for key in LATER_RESULT_KEYS)
    with pytest.raises(KeyError):
        own["env_runners"]


def test_nan_that_json_holds_as_null_is_there():
    stored = json.loads(encode({"episode_reward_mean": math.nan}))
    assert "env_runners/episode_return_mean" in as_result(stored)
    assert lookup(stored, "env_runners/episode_return_mean") is None


def test_it_crosses_processes_by_all_its_names(result):
    there = pickle.loads(pickle.dumps(result))
    assert there == result and there["env_runners/episode_return_mean"] == 2.0


@pytest.mark.parametrize(
    "path", [("env_runners",), ("sampler_results",), ("learners",), ("learners", "default_policy")]
)
@pytest.mark.parametrize("name", ["mine", "episode_return_mean", "total_loss"])
def test_what_is_written_into_a_section_stays(result, path, name):
    def section():
        found = result
        for key in path:
            found = found[key]
        return found

    others = dict(section())
    for write in (
        lambda: section().__setitem__(name, 5),
        lambda: section().update({name: 6}),
        lambda: section().setdefault(f"{name}_2", 7),
        lambda: section().__ior__({f"{name}_3": 8}),
    ):
        write()
    expected = {**others, name: 6, f"{name}_2": 7, f"{name}_3": 8}
    assert section() == expected
    there = pickle.loads(pickle.dumps(result))
    assert "/".join((*path, name)) in there
    assert pickle.loads(pickle.dumps(section())) == expected
    assert lookup(json.loads(encode(dict(result))), "/".join((*path, f"{name}_2"))) == 7


@pytest.mark.parametrize(
    "path",
    [
        (), ("env_runners",), ("sampler_results",), ("learners",), ("learners", "default_policy"), ("timers",),
        ("counters",), ("custom_metrics",), ("info",), ("info", "learner", "default_policy", "learner_stats"),
        ("perf",), ("evaluation",), ("evaluation", "hist_stats"), ("evaluation", "env_runners"),
    ],
)  # fmt: skip
def test_the_error_of_a_section_lists_what_it_has(result, path):
    section = result
    for key in path:
        section = section[key]
    where = "".join(f"[{name!r}]" for name in path)
    with pytest.raises(KeyError, match=re.escape(f"'nothing' is not in result{where}. There are ")) as raised:
        section["nothing"]
    assert all(name in str(raised.value) for name in (*path, *section))
    with pytest.raises(KeyError) as of_path:
        result["/".join((*path, "nothing"))]
    assert str(of_path.value) == str(raised.value)
    assert section.get("nothing", 3) == 3 and "nothing" not in section


def test_losses_of_actors_have_their_later_name():
    metrics = Metrics()
    result = metrics.result({"default_policy": {"actor_loss": 2.0}})
    assert result["learners"]["default_policy"]["policy_loss"] == 2.0 == result["learners/default_policy/policy_loss"]


def test_results_within_results_are_left_alone(result):
    """Callbacks may keep earlier results, and the result itself, in a result."""
    before = Result({"d": {"k": 1}})
    before.list_parts()
    info = result["info"]
    result |= {"before": before, "own": result}
    result.list_parts()
    assert result["info"] is info
    with pytest.raises(KeyError, match=re.escape("'z' is not in result['d']. There are k.")):
        result["before"]["d"]["z"]
