"""The result dict: Ray 2.6's keys, the later spellings, NaN before the first episode."""

import json
import math

import pytest

from rllib.env.episodes import Episode
from rllib.evaluation.sampling_worker import SampleReport
from rllib.metrics import Metrics, episode_statistics
from rllib.result import Result

# What Ray's own `check_train_results` asserts (API.md of old).
REQUIRED = [
    "agent_timesteps_total", "counters", "custom_metrics", "episode_len_mean", "episode_reward_max",
    "episode_reward_mean", "episode_reward_min", "hist_stats", "info", "iterations_since_restore",
    "policy_reward_max", "policy_reward_mean", "policy_reward_min", "sampler_perf", "time_since_restore",
    "time_this_iter_s", "timesteps_total", "timers", "time_total_s", "training_iteration",
]  # fmt: skip


def finished(*returns: float) -> SampleReport:
    return SampleReport([Episode(value, 10, 0) for value in returns], env_steps=40, longest_running=7)


def test_reward_keys_are_nan_until_an_episode_ends():
    metrics = Metrics()
    metrics.add_sample(SampleReport(env_steps=20, longest_running=20))
    result = metrics.result({})
    assert math.isnan(result["episode_reward_mean"])
    assert result["episodes_this_iter"] == 0
    assert result["longest_running_episode"] == 20


def test_an_environment_without_an_end_is_told_once(caplog):
    metrics = Metrics()
    for longest in (1_999, 2_000, 3_000):
        metrics.start_iteration()
        metrics.add_sample(SampleReport(env_steps=1_000, longest_running=longest))
        metrics.result({})
    (told,) = [record.getMessage() for record in caplog.records]
    assert "no episode has ended yet, and one has had 2000 steps" in told and "TimeLimit" in told


def test_long_episodes_that_have_ended_once_are_no_reason_to_warn(caplog):
    metrics = Metrics()
    metrics.add_sample(finished(1.0))
    metrics.add_sample(SampleReport(env_steps=1_000, longest_running=5_000))
    metrics.result({})
    assert not caplog.records


def test_all_keys_that_ray_checks_are_there():
    metrics = Metrics()
    metrics.add_sample(finished(1.0, 3.0))
    result = metrics.result({"default_policy": {"kl": 0.1}})
    assert [key for key in REQUIRED if key not in result] == []
    assert result["episode_reward_mean"] == 2.0
    assert result["info"]["learner"]["default_policy"]["learner_stats"] == {"kl": 0.1}


def test_all_episodes_of_an_iteration_are_kept_on_request():
    metrics = Metrics(smoothing_episodes=2)
    metrics.start_iteration()
    metrics.add_sample(finished(1.0))
    assert metrics.episodes_this_iteration == []
    metrics.keeps_episodes = True
    for returns in ([1.0, 2.0, 3.0], [4.0]):
        metrics.start_iteration()
        metrics.add_sample(finished(*returns))
        metrics.add_sample(finished(5.0))
        metrics.result({})
        assert [episode.episode_return for episode in metrics.episodes_this_iteration] == [*returns, 5.0]


@pytest.mark.parametrize("kept, expected", [(6, [3.1, 1.2, 3.2, 1.3, 2.1, 3.3]), (12, [9.0, 1.0, 3.0, 1.1, 2.0, 3.1])])
def test_the_newest_episodes_of_a_round_are_of_all_workers(kept, expected):
    """Of several fragments that were sampled side by side, and not of the last worker's alone."""
    metrics = Metrics(smoothing_episodes=kept)
    metrics.add_sample(finished(9.0))
    reports = [finished(*returns) for returns in ([1.0, 1.1, 1.2, 1.3], [2.0, 2.1], [], [3.0, 3.1, 3.2, 3.3])]
    for report in reports:
        metrics.add_sample(report)
    metrics.put_in_turn([report.episodes for report in reports])
    assert [episode.episode_return for episode in metrics.episodes][:6] == expected
    assert len(metrics.episodes) == min(kept, 11) and metrics.episodes_total == 11


def test_counts_of_this_iteration_start_again():
    metrics = Metrics()
    for expected_total in (40, 80):
        metrics.start_iteration()
        metrics.add_sample(finished(1.0))
        result = metrics.result({})
        assert (result["num_env_steps_sampled_this_iter"], result["timesteps_total"]) == (40, expected_total)
        assert result["episodes_this_iter"] == 1


def test_smoothing_forgets_old_episodes():
    metrics = Metrics(smoothing_episodes=2)
    metrics.add_sample(finished(100.0, 1.0, 3.0))
    assert metrics.result({})["episode_reward_mean"] == 2.0


def test_state_continues_the_counts():
    metrics = Metrics()
    metrics.add_sample(finished(5.0))
    metrics.result({})
    restored = Metrics()
    restored.set_state(json.loads(json.dumps(metrics.get_state())))
    restored.add_sample(finished(7.0))
    result = restored.result({})
    assert isinstance(result, Result)
    assert result["training_iteration"] == 2
    assert result["iterations_since_restore"] == 1
    assert (result["timesteps_total"], result["timesteps_since_restore"]) == (80, 40)
    assert result["episode_reward_mean"] == 6.0


def two_agents(first, second, own="one"):
    returns = {("a", "one"): first, ("b", own): second}
    return Episode(first + second, 5, agent_returns=returns, agent_lengths=dict.fromkeys(returns, 4))


def test_statistics_by_policy_and_agent():
    metrics = Metrics()
    metrics.episodes.extend([two_agents(1.0, 2.0), two_agents(3.0, 6.0, "two")])
    metrics.set_state(json.loads(json.dumps(metrics.get_state())))
    result = metrics.result({"one": {}, "two": {}})
    assert result["episode_reward_mean"] == 6.0
    assert result["policy_reward_mean"] == {"one": 2.0, "two": 6.0}
    assert (result["policy_reward_min/one"], result["policy_reward_max/one"]) == (1.0, 3.0)
    assert result["hist_stats/policy_one_reward"] == [1.0, 2.0, 3.0]
    assert result["env_runners/agent_episode_returns_mean"] == {"a": 2.0, "b": 4.0}
    assert result["env_runners/module_episode_returns_mean/two"] == 6.0
    assert result["env_runners/agent_steps/a"] == 4.0


def test_a_result_has_at_most_100_agents():
    returns = {(f"agent{index}", "one"): float(index) for index in range(103)}
    found = episode_statistics([Episode(0.0, 1, agent_returns=returns)])["agent_reward_mean"]
    assert len(found) == 101 and found["..."] == 101.0


def sampled(agent_steps, by_agent, env_steps=100):
    return SampleReport(env_steps=env_steps, agent_steps=agent_steps, agent_steps_by_agent=by_agent)


def test_steps_of_agents_are_counted_apart_from_those_of_environments():
    metrics = Metrics()
    metrics.add_sample(sampled({"one": 150, "two": 50}, {0: 100, 1: 100}))
    metrics.result({})
    metrics.start_iteration()
    metrics.add_sample(sampled({"one": 150, "two": 50}, {0: 100, 1: 100}))
    metrics.add_update("one", 100, agent_steps=150)
    metrics.add_update("two", 100, agent_steps=50)
    result = metrics.result({"one": {"kl": 0.1}, "two": {}})
    assert (result["num_env_steps_sampled"], result["num_env_steps_sampled_this_iter"]) == (200, 100)
    assert (result["num_agent_steps_sampled"], result["num_agent_steps_sampled_this_iter"]) == (400, 200)
    assert (result["timesteps_total"], result["agent_timesteps_total"]) == (200, 400)
    # Both policies learned from the same steps of the environments.
    assert (result["num_env_steps_trained"], result["num_agent_steps_trained"]) == (100, 200)
    assert result["info/learner/one/num_agent_steps_trained"] == 150
    assert result["env_runners/num_agent_steps_sampled"] == {"0": 100, "1": 100}
    assert result["env_runners/num_agent_steps_sampled_lifetime/1"] == 200
    assert result["env_runners/num_module_steps_sampled"] == {"one": 150, "two": 50}
    assert result["env_runners/num_module_steps_sampled_lifetime/two"] == 100
    assert result["learners/one/num_module_steps_trained_lifetime"] == 150
    everyone = {"num_module_steps_trained": 200, "num_module_steps_trained_lifetime": 200}
    assert result["learners/__all_modules__"] == everyone | {
        "num_env_steps_trained": 100, "num_env_steps_trained_lifetime": 100,
    }  # fmt: skip


def test_a_run_can_be_measured_in_steps_of_agents():
    metrics = Metrics(counts_agent_steps=True)
    metrics.add_sample(sampled({"one": 150, "two": 50}, {"a": 200}))
    metrics.add_update("one", 100, agent_steps=150)
    assert (metrics.timesteps, metrics.sampled_this_iteration(), metrics.trained_this_iteration()) == (200, 200, 150)
    restored = Metrics(counts_agent_steps=True)
    restored.set_state(json.loads(json.dumps(metrics.get_state())))
    restored.add_sample(sampled({"one": 20, "two": 30}, {"a": 50}))
    result = restored.result({})
    assert (result["timesteps_total"], result["timesteps_since_restore"], result["num_env_steps_sampled"]) == (
        250, 50, 200,
    )  # fmt: skip
    assert result["env_runners/num_agent_steps_sampled_lifetime"] == {"a": 250}
    assert result["env_runners/num_module_steps_sampled/two"] == 30


def test_steps_of_endless_agents_are_counted_together():
    metrics = Metrics()
    metrics.add_sample(sampled({"one": 103}, {f"agent{index}": 1 for index in range(103)}))
    found = metrics.result({})["env_runners/num_agent_steps_sampled"]
    assert len(found) == 101 and found["..."] == 3


def test_a_return_settles_when_as_many_episodes_have_ended_as_it_is_a_mean_over():
    metrics = Metrics(smoothing_episodes=3)
    metrics.add_sample(finished(500.0, 500.0))
    assert math.isnan(metrics.settled_return())
    metrics.add_sample(finished(2.0, 4.0, 6.0))
    assert metrics.settled_return() == 4.0
