"""docs/help/result_keys.md names every key of a result."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rllib import DQNConfig, PPOConfig, SACConfig
from rllib.algorithms.base.registry import algorithm_names, get_algorithm_class
from rllib.env.traffic import RunTraffic, Traffic
from rllib.result import (
    AGENT_RESULT_KEYS,
    COST_RESULT_KEYS,
    DISTURBANCES,
    ENV_LOG,
    ENV_TASK,
    EXTERNAL,
    LOGGED,
    RESULT_KEYS,
)

PAGE = Path(__file__).parents[2] / "docs" / "help" / "result_keys.md"
STATISTICS = "info/learner/default_policy/learner_stats/"
ANY = "POLICY|AGENT|NAME"  # stand for ids and names


def named_keys(page: str) -> dict[str, list[str]]:
    """Title of a section -> paths in the first column of its table, behind the prefix in its heading."""
    found = {}
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        title, prefix = re.fullmatch(r"([^:]*)(?:: `(.*)`)?", heading).groups()
        cells = re.findall(r"^\| (`[^|]*) \|", body, re.MULTILINE)
        found[title] = [(prefix or "") + key for cell in cells for key in re.findall(r"`([^`]*)`", cell)]
    return found


NAMED = named_keys(PAGE.read_text())


def is_named(key: str) -> bool:
    keys = [each for section in NAMED.values() for each in section]
    episodes = [f"evaluation/{each}" for each in NAMED["Episodes"]]
    return any(re.fullmatch(re.sub(ANY, "[^/]+", re.escape(each)), key) for each in [*keys, *episodes])


def flat(values: Mapping, path: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{path}{name}/")
        else:
            yield f"{path}{name}"


SMALL = {"num_steps_sampled_before_learning_starts": 20, "train_batch_size": 16, "model": {"fcnet_hiddens": [8]}}
CONFIGS = {
    "ppo": PPOConfig().environment("CartPole-v1").training(train_batch_size=200, num_sgd_iter=1),
    "curious": PPOConfig()
    .environment("CartPole-v1")
    .training(train_batch_size=200, num_sgd_iter=1)
    .exploration(exploration_config={"type": "RND"}),
    "agents": PPOConfig()
    .environment("rllib.env.tasks.multi_agent_cartpole:MultiAgentCartPole")
    .training(train_batch_size=200, num_sgd_iter=1),
    "sac": SACConfig().environment("Pendulum-v1").training(**SMALL),
    "dqn": DQNConfig().environment("CartPole-v1").training(**SMALL).learners(num_cpus_per_learner="measured"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_key_of_a_run_is_named(name):
    config = CONFIGS[name].copy().rollouts(num_rollout_workers=0).debugging(seed=0)
    config.evaluation(evaluation_interval=1, evaluation_duration=1)
    if name in ("sac", "dqn"):
        config.reporting(min_sample_timesteps_per_iteration=210, min_time_s_per_iteration=0)
    with config.build() as algo:
        result = algo.train() | {"config": None}  # of which rllib config has all names
    assert [key for key in flat(result) if not is_named(key)] == []


def test_every_known_key_is_named():
    known = {*RESULT_KEYS, *AGENT_RESULT_KEYS, *COST_RESULT_KEYS, EXTERNAL, ENV_TASK, DISTURBANCES, ENV_LOG, LOGGED}
    tops = {key.partition("/")[0] for section in NAMED.values() for key in section}
    assert known - tops == set()
    assert tops - known == set(), "no result has these"


@pytest.mark.parametrize("name", algorithm_names())
def test_every_statistic_that_an_algorithm_declares_is_named(name):
    reported = get_algorithm_class(name).reported_stats
    assert [each for each in reported if not is_named(STATISTICS + each)] == []


def test_every_key_of_clients_is_named():
    traffic = RunTraffic()
    traffic.add(Traffic(), {})
    assert [key for key in traffic.statistics(1.0) if not is_named(f"external/{key}")] == []


def test_a_key_that_is_not_there_is_found():
    assert not is_named("mean_pole_angle") and not is_named(STATISTICS + "made_up")
    assert is_named(STATISTICS + "critics_grad_gnorm") and is_named("evaluation/episode_reward_mean")
