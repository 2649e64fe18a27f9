"""exploration_config: what each type means, which algorithms take it, and what is refused."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib import load_policy
from rllib.algorithms.apex import ApexDDPGConfig
from rllib.algorithms.base.settings.exploration import (
    KINDS,
    OF_ACTIONS,
    OF_NOVELTY,
    OF_VALUES,
    exploration_settings,
    make_exploration,
)
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.algorithms.td3 import DDPGConfig, TD3Config
from rllib.config.conflicts import SettingsError
from tests.envs import BoundedAction, ConstantReward, MatchObservation


def make_config(exploration, env=MatchObservation, workers=0, **training):
    return (
        DQNConfig()
        .environment(env)
        .rollouts(num_rollout_workers=workers, rollout_fragment_length=4)
        .training(
            lr=3e-3, num_steps_sampled_before_learning_starts=100, target_network_update_freq=50, hiddens=[],
            model={"fcnet_hiddens": [16]}, **training,
        )
        .exploration(exploration_config=exploration)
        .reporting(min_sample_timesteps_per_iteration=400)
        .debugging(seed=3)
    )  # fmt: skip


EACH = [
    {"type": "EpsilonGreedy", "epsilon_timesteps": 500},
    {"type": "PerWorkerEpsilonGreedy", "epsilon_timesteps": 500},
    {"type": "SoftQ", "temperature": 0.3},
    {"type": "ParameterNoise", "random_timesteps": 300, "initial_stddev": 0.3},
    {"type": "ParameterNoise", "sub_exploration": {"epsilon_timesteps": 300}},
    {"type": "Random"},
]


@pytest.mark.parametrize("exploration", EACH, ids=lambda each: each["type"])
def test_dqn_learns_by_each(exploration):
    with make_config(exploration).build() as algo:
        for _ in range(4):
            result = algo.train()
        assert algo.evaluate(30)["episode_reward_mean"] == 1.0
        stats = result["info"]["learner"]["default_policy"]["learner_stats"]
        assert ("cur_epsilon" in stats) == (exploration["type"] != "SoftQ")
        assert algo.compute_single_action(np.zeros(1, np.float32), explore=True) in (0, 1)
        assert 0 <= algo.evaluate(10, explore=True)["episode_reward_mean"] <= 1


@pytest.mark.parametrize("exploration", EACH, ids=lambda each: each["type"])
def test_checkpoints_go_on(exploration, tmp_path):
    """Episodes of one step that are all alike: restored environments begin new ones."""
    config = make_config(exploration, ConstantReward, store_buffer_in_checkpoints=True)
    with config.build() as algo, config.build() as other:
        algo.train()
        other.restore(algo.save(tmp_path / "checkpoint"))
        assert algo.train().get("timesteps_total") == other.train().get("timesteps_total")
        assert np.array_equal(algo.policy.weights, other.policy.weights)


@pytest.mark.parametrize("kind", OF_ACTIONS)
@pytest.mark.parametrize("config_class", [DDPGConfig, TD3Config, ApexDDPGConfig])
def test_a_deterministic_policy_explores_outside_of_workers(config_class, kind, tmp_path):
    config = (
        config_class()
        .environment(BoundedAction)
        .rollouts(num_rollout_workers=0)
        .training(model={"fcnet_hiddens": [4]})
        .exploration(exploration_config={"type": kind, **({} if kind == "Random" else {"random_timesteps": 100})})
        .debugging(seed=1)
    )
    observations = [np.zeros(1, np.float32)] * 500
    with config.build() as algo:
        best = algo.compute_actions(observations, explore=False)
        assert np.ptp(best) == 0
        for timesteps, at_random in ((0, True), (100, kind == "Random")):
            algo.metrics.counters["num_env_steps_sampled"] = timesteps
            loaded = load_policy(algo.save(tmp_path / f"{timesteps}"))
            rewards = algo.evaluate(3, explore=True)["hist_stats"]["episode_reward"]
            assert len(set(rewards)) == 3
            single = [algo.compute_single_action(observations[0], explore=True) for _ in range(3)]
            assert len({float(action[0]) for action in single}) == 3
            for policy in (algo, loaded):
                actions = policy.compute_actions(observations, explore=True)
                assert actions.min() >= 0 and actions.max() <= 10
                if at_random:  # the standard deviation of a uniform number of 0 ... 10
                    assert np.std(actions) == pytest.approx(10 / 12**0.5, rel=0.1)
                else:
                    stddev = 0.1 if "Gaussian" in kind else 0.1 * 0.2 / (1 - 0.85**2) ** 0.5
                    assert np.std(actions) == pytest.approx(5 * stddev, rel=0.15)
                    assert np.mean(actions) == pytest.approx(best[0, 0], abs=0.1)


def test_per_worker_epsilon_greedy_in_workers():
    with make_config({"type": "PerWorkerEpsilonGreedy"}, workers=2).build() as algo:
        algo.sample(1)
        found = algo.workers.foreach_worker(_epsilon)
    np.testing.assert_allclose(found, [0.4, 0.4**8])


def _epsilon(worker):
    return float(worker.explored_by()["epsilon"])


def test_every_type_can_be_made_and_belongs_to_someone():
    for kind in KINDS:
        space = Box(-2, 2, (1,)) if kind in OF_ACTIONS else Discrete(2)
        assert make_exploration({"type": kind}, {"type": "StochasticSampling"}, space) is not None
        assert kind == "StochasticSampling" or kind in OF_VALUES + OF_ACTIONS + OF_NOVELTY


def test_a_class_in_place_of_its_name():
    class SoftQ:
        pass

    assert exploration_settings({"type": SoftQ}, {"type": "EpsilonGreedy"})["type"] == "SoftQ"


@pytest.mark.parametrize(
    ("exploration", "message"),
    [
        ({"type": "GaussianNoise"}, "explores by EpsilonGreedy or"),
        ({"type": "SoftQ", "temperature": 0}, "temperature=0.0 must be a number > 0"),
        ({"type": "SoftQ", "temperatur": 1}, "there is no 'temperatur'. Did you mean 'temperature'?"),
        ({"type": "Random", "epsilon": 1}, "there is no 'epsilon'"),
        ({"type": "ParameterNoise", "initial_stddev": -1}, "initial_stddev=-1.0 must be a number >= 0"),
        ({"type": "ParameterNoise", "sub_exploration": {"type": "SoftQ"}}, "must be EpsilonGreedy's"),
        ({"type": "ParameterNoise", "sub_exploration": {"final_epsilon": 2}}, "final_epsilon=2.0 must be a number"),
        ({"type": "EpsilonGreedy", "initial_epsilon": 0.1, "final_epsilon": 0.5}, "epsilon does not grow"),
    ],
    ids=str,
)
def test_mistakes(exploration, message):
    with pytest.raises(SettingsError) as raised:
        make_config(exploration).build()
    assert message in str(raised.value)
    (mistake,) = raised.value.mistakes
    for remedy in mistake.remedies:
        make_config({}).apply(remedy).validate()


@pytest.mark.parametrize("kind", [*OF_VALUES, *OF_ACTIONS])
def test_on_policy_algorithms_say_why_they_refuse(kind):
    config = PPOConfig().environment("Pendulum-v1").exploration(exploration_config={"type": kind})
    with pytest.raises(ValueError, match=f"explores by StochasticSampling or .* \\({kind}: it c"):
        config.build()
