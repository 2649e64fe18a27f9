"""What evaluation can do other than training: its own environment and settings, its duration, beside the training."""

import time

import numpy as np
import pytest
from gymnasium import make_vec
from gymnasium.spaces import Box, Discrete

from rllib import ARSConfig, DefaultCallbacks, DQNConfig, ESConfig, PPOConfig
from rllib.config.conflicts import SettingsError
from rllib.env.external import ExternalMultiAgentEnv
from rllib.env.multi_agent import make_multi_agent
from rllib.evaluation.evaluator import Budget, Duration
from tests.config.probes import messages
from tests.envs import CountingEnv, SleepEnv


def config(env=CountingEnv, env_config=None, **evaluation) -> PPOConfig:
    return (
        PPOConfig()
        .environment(env, env_config=env_config or {"lengths": [5]})
        .rollouts(num_rollout_workers=0, num_envs_per_worker=2)
        .training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
        .evaluation(**evaluation)
        .debugging(seed=3)
    )


def lengths(evaluation) -> list[int]:
    return evaluation["hist_stats"]["episode_lengths"]


def test_evaluation_config_gives_evaluation_another_environment():
    longer = {"env_config": {"lengths": [9]}, "num_envs_per_worker": 1, "seed": 5}
    with config(evaluation_config=longer, evaluation_duration=3).build() as algo:
        assert lengths(algo.evaluate()) == [9, 9, 9]
        assert algo.train()["episode_len_mean"] == 5


def test_evaluation_config_reaches_the_workers_that_evaluate():
    longer = {"env_config": {"lengths": [9]}, "explore": True}
    with config(evaluation_config=longer, evaluation_duration=3, evaluation_num_workers=1).build() as algo:
        assert lengths(algo.evaluate()) == [9, 9, 9]


def test_evaluation_in_another_space_is_refused_when_it_is_built():
    with pytest.raises(ValueError, match=r"describes an environment with observations .* trained with"):
        config(evaluation_config={"env": "FrozenLake-v1"}).build()


TWO, THREE = ({"env_config": {"num_agents": number}} for number in (2, 3))
SEEN = {"policies": "shared", "agent_id_in_observation": True}
CRITICS = {"policies": "own", "centralized_critic": True}


def evaluated_with(agents, evaluation_config, env_config=TWO["env_config"], **more) -> PPOConfig:
    env = make_multi_agent("CartPole-v1") if env_config else CountingEnv
    made = config(env, env_config, evaluation_config=evaluation_config, evaluation_duration=2, **more)
    return made.multi_agent(**agents)


@pytest.mark.parametrize(
    ("agents", "evaluation_config", "env_config", "what"),
    [
        ({"policies": "own"}, THREE, {"num_agents": 2}, "no pattern for agent 2"),
        ({"policies": ["0", "1"], "policy_mapping_fn": str}, THREE, {"num_agents": 2}, "agent 2 the policy '2'"),
        (SEEN, THREE, {"num_agents": 2}, "policy 'shared' has the observation space .* but agent 0"),
        (SEEN, TWO, {"num_agents": 3}, "policy 'shared' has the observation space .* but agent 0"),
        (CRITICS, TWO, {"num_agents": 3}, "policy '0' has the observation space .* but agent 0"),
        ({}, {"env": make_multi_agent("Acrobot-v1")}, {"num_agents": 2}, "policy 'default_policy' has .* but agent 0"),
        ({}, {"env": "CartPole-v1"}, {"num_agents": 2}, "one agent, but the policy is trained with several"),
        ({}, {"env": make_multi_agent("CartPole-v1")}, {}, "several agents, but the policy is trained with one"),
    ],
)
def test_evaluation_of_agents_for_whom_there_is_no_policy_is_refused_when_it_is_built(
    agents, evaluation_config, env_config, what
):
    with pytest.raises(SettingsError, match=rf"evaluation_config describes an environment with .*{what}") as raised:
        evaluated_with(agents, evaluation_config, env_config).build()
    assert raised.value.mistakes[0].remedies == ({"evaluation_config": None},)


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(
    ("agents", "evaluation_config", "env_config", "acting"),
    [
        ({"policies": "own"}, TWO, {"num_agents": 3}, {"0", "1"}),
        ({"policies": "shared"}, THREE, {"num_agents": 2}, {"shared"}),
        ({"policies": "own", "policy_mapping_fn": {"0": "0", "*": "1"}}, THREE, {"num_agents": 2}, {"0", "1"}),
    ],
)
def test_evaluation_has_as_many_agents_as_its_environment(agents, evaluation_config, env_config, acting, num_workers):
    made = evaluated_with(agents, evaluation_config, env_config, evaluation_num_workers=num_workers)
    with made.build() as algo:
        result = algo.evaluate()
        assert result["policy_reward_mean"].keys() == acting
        steps = result["env_runners"]["agent_steps"]
        assert len(steps) == evaluation_config["env_config"]["num_agents"]


def test_estimates_from_data_are_refused_with_several_agents():
    made = evaluated_with({"policies": "own"}, None, off_policy_estimation_methods={"is": {"type": "is"}})
    with pytest.raises(SettingsError, match=r"estimate the return of one policy, and .* has several agents"):
        made.evaluation(evaluation_config={"input_": "recorded.json"}).build()


class Outside(ExternalMultiAgentEnv):
    def __init__(self, config):
        super().__init__(Discrete(2), Box(-1, 1, (2,)))

    def run(self):
        pass


@pytest.mark.parametrize(
    ("env", "given"),
    [
        (Outside, {"num_envs_per_worker": 2}),
        (Outside, {"num_envs_per_worker": 2, "explore": True}),
        (Outside, {"env_wrappers": ["TimeAwareObservation"]}),
        (
            lambda context: make_vec("CartPole-v1", num_envs=context.num_envs),
            {"env_wrappers": ["RecordEpisodeStatistics"]},
        ),
    ],
)
def test_what_ends_a_mistake_in_the_environments_of_evaluation_changes_their_settings(env, given):
    """The run's own settings are right already."""
    made = (
        PPOConfig().environment(env).rollouts(num_rollout_workers=0).evaluation(evaluation_config={"seed": 3, **given})
    )
    with pytest.raises(SettingsError, match="evaluation_config: ") as raised:
        made.build()
    assert all(remedy.keys() == {"evaluation_config"} for remedy in raised.value.mistakes[0].remedies)
    made.apply(raised.value.mistakes[0].remedies[0]).build().stop()


@pytest.mark.parametrize("base", [PPOConfig, ESConfig, ARSConfig, DQNConfig])
def test_a_default_is_taken_in_evaluation_as_any_other_value(base):
    """The run may have another one."""
    for name in base.evaluation_overrides & base.settings.keys():
        value = base.settings[name].default
        made = base().evaluation(evaluation_config={name: value})
        assert made.evaluation_config == {name: value}, name
        assert made.evaluation_changes() == {name: value}, name


def test_a_filter_of_evaluation_alone_is_refused():
    """Its statistics are those of the training."""
    made = config(evaluation_config={"observation_filter": "NoFilter"}).rollouts(observation_filter="MeanStdFilter")
    with pytest.raises(SettingsError, match=r"evaluation_config can change .*, but not observation_filter"):
        made.validate()


def test_what_has_no_effect_in_evaluation_is_taken():
    """Published scripts copy settings of the workers into it."""
    given = {"rollout_fragment_length": 10, "num_workers": 0, "in_evaluation": True, "input": "sampler"}
    with config(evaluation_config=given, evaluation_duration=1).build() as algo:
        assert lengths(algo.evaluate()) == [5]


@pytest.mark.parametrize("explore", [{}, {"explore": False}, {"explore": True}], ids=str)
def test_exploration_in_evaluation_acts_or_is_said_to_have_no_effect(explore):
    always = {"initial_epsilon": 1.0, "final_epsilon": 1.0}
    made = DQNConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    with messages() as said:
        made.evaluation(evaluation_config={"exploration_config": always, **explore}).validate()
    assert any("exploration_config has no effect" in line for line in said.lines) != explore.get("explore", False)


def test_a_duration_in_timesteps_is_rounded_up_to_whole_episodes():
    with config(evaluation_duration=23, evaluation_duration_unit="timesteps").build() as algo:
        evaluation = algo.evaluate()
        assert evaluation["env_runners"]["num_env_steps_sampled"] == 30
        assert evaluation["timesteps_this_iter"] == 30, "12 and 11 steps, so three episodes of five in each of two"
        assert algo.evaluate(num_episodes=1)["episodes_this_iter"] == 1


@pytest.mark.parametrize(
    ("duration", "shares"),
    [
        (Duration(5), [2, 2, 1]),
        (Duration(2), [1, 1, 0]),
        (Duration(100, "timesteps"), [34, 33, 33]),
        (Duration(1.5, "seconds"), [1.5, 1.5, 1.5]),
    ],
    ids=str,
)
def test_a_duration_is_shared_out(duration, shares):
    assert [share.amount for share in duration.split(3)] == shares


def test_an_environment_plays_on_while_it_has_steps_or_time_left():
    steps = Budget(Duration(20, "timesteps"), 2)
    steps.spend(0, 9)
    steps.spend(1, 10)
    assert steps.playing.tolist() == [True, False]
    over = Budget(Duration(1e-9, "seconds"), 2)
    assert over.playing.all(), "each environment plays one episode at least"
    over.spend(0, 1)
    assert over.playing.tolist() == [False, True]


class Order(DefaultCallbacks):
    def __init__(self):
        self.events = []

    def on_evaluate_start(self, *, algorithm, **kwargs):
        self.events.append(("start", algorithm.policy.weights.copy()))

    def on_evaluate_end(self, *, algorithm, evaluation_metrics, **kwargs):
        self.events.append(("end", algorithm.policy.weights.copy()))


def test_evaluation_beside_the_training_plays_the_weights_from_before_it():
    parallel = config(
        evaluation_interval=2, evaluation_num_workers=1, evaluation_parallel_to_training=True, evaluation_duration=4
    ).callbacks(Order)
    with parallel.build() as algo:
        assert "evaluation" not in algo.train()
        before = algo.policy.weights.copy()
        evaluation = algo.train()["evaluation"]
        assert evaluation["episodes_this_iter"] == 4
        (start, first), (end, last) = algo.callbacks.events
        assert (start, end) == ("start", "end")
        np.testing.assert_array_equal(first, before)
        assert not np.array_equal(last, before), "the update came between"


@pytest.mark.slow
def test_evaluation_beside_the_training_costs_its_time_once():
    slow = {"length": 64}
    beside = {"evaluation_num_workers": 1, "evaluation_interval": 1, "evaluation_duration": 2}

    def seconds(parallel):
        with config(SleepEnv, slow, evaluation_parallel_to_training=parallel, **beside).build() as algo:
            algo.train()
            started = time.perf_counter()
            algo.train()
            return time.perf_counter() - started

    assert seconds(True) < 0.8 * seconds(False)


def test_an_automatic_duration_is_as_long_as_the_training_beside_it():
    beside = {"evaluation_interval": 1, "evaluation_num_workers": 1, "evaluation_parallel_to_training": True}
    with config(evaluation_duration="auto", **beside).build() as algo:
        first = algo.train()["evaluation"]
        assert first["episodes_this_iter"] == 2, "one for each environment, as long as nothing is known"
        assert algo.train()["evaluation"]["episodes_this_iter"] >= 2
        assert algo.evaluate()["episodes_this_iter"] == 10
