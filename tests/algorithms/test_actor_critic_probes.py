"""Probe environments (after Andy Jones): what a policy and its values must become is known in closed form."""

import numpy as np
import pytest
from gymnasium.spaces import Box

from rllib.algorithms.base.registry import get_algorithm_config
from tests.algorithms.algorithm_support import learner_stats, train, values
from tests.envs import (
    ActionReward,
    BoundedAction,
    ConstantReward,
    CountingEnv,
    DelayedReward,
    InfiniteHorizon,
    MatchObservation,
    ObservedReward,
)

ALL = {"num_rollout_workers": 0, "num_envs_per_worker": 8, "min_time_s_per_iteration": None, "gamma": 0.9, "seed": 5}
A3C = {"lr": 1e-2, "model": {"fcnet_hiddens": [32]}, "rollout_fragment_length": 4}
IMPALA = {"lr": 3e-3, "model": {"fcnet_hiddens": [32, 32]}, "train_batch_size": 160, "rollout_fragment_length": 20}
SETTINGS = {
    "PPO": {
        "train_batch_size": 256, "sgd_minibatch_size": 64, "num_sgd_iter": 8, "lr": 3e-3, "lambda_": 0.95,
        "clip_param": 0.2, "kl_coeff": 0.0, "model": {"fcnet_hiddens": [32, 32]},
    },
    "PG": {"lr": 1e-2, "model": {"fcnet_hiddens": [32]}, "train_batch_size": 32},
    "A2C": {**A3C, "train_batch_size": 32},
    "A3C": A3C,
    "IMPALA": IMPALA,
    "APPO": IMPALA,
}  # fmt: skip
GREEDY = {"entropy_coeff": 0.0}


def each(**runs):
    """Parametrises a test: ALGORITHM=(iterations, settings that differ from SETTINGS); also ALGORITHM_variant."""
    rows = [(name.partition("_")[0], *run) for name, run in runs.items()]
    return pytest.mark.parametrize(("name", "iterations", "settings"), rows, ids=list(runs))


def trained(name, env, iterations, settings, env_config=None):
    config = get_algorithm_config(name).environment(env, env_config=env_config or {})
    algo = config.update_from_dict({**ALL, **SETTINGS[name], **settings}).build()
    train(algo, iterations)
    return algo


@each(
    PPO=(4, {}),  # 1024 steps
    A2C=(120, {"rollout_fragment_length": 1, "train_batch_size": 8}),  # 960
    A3C=(120, {"rollout_fragment_length": 1}),
    IMPALA=(150, {"lr": 0.01}),
    APPO=(150, {"lr": 0.01}),
)
def test_p1_value_of_a_constant(name, iterations, settings):
    with trained(name, ConstantReward, iterations, settings) as algo:
        np.testing.assert_allclose(values(algo, 0.0), 1.0, atol=0.01)


@each(PPO=(10, {}), A2C=(200, {}), A3C=(200, {}), IMPALA=(100, {"lr": 0.01}), APPO=(100, {"lr": 0.01}))
def test_p2_value_depends_on_the_observation(name, iterations, settings):
    with trained(name, ObservedReward, iterations, settings) as algo:
        np.testing.assert_allclose(values(algo, -1.0, 1.0), [-1.0, 1.0], atol=0.05)


# With a layer in common, what the policy does about the last noise in the advantages would move the values.
APART = {"lr": 0.01, "model": {"fcnet_hiddens": [32, 32], "vf_share_layers": False}}


@each(PPO=(20, {}), A2C=(200, {}), A3C=(200, {}), IMPALA=(150, APART), APPO=(150, APART))
def test_p3_discounting(name, iterations, settings):
    with trained(name, DelayedReward, iterations, settings) as algo:
        np.testing.assert_allclose(values(algo, 0.0, 1.0), [0.9, 1.0], atol=0.05)


@each(PPO=(20, {}), PG=(200, GREEDY), A2C=(200, GREEDY), A3C=(200, GREEDY), IMPALA=(150, GREEDY), APPO=(150, GREEDY))
def test_p4_the_better_action_is_taken(name, iterations, settings):
    with trained(name, ActionReward, iterations, settings) as algo:
        logits = algo.policy.dist_inputs(np.zeros((1, 1), np.float32))[0]
        assert 1 / (1 + np.exp(logits[0] - logits[1])) > 0.99


@each(PPO=(20, {}), PG=(301, GREEDY), A2C=(301, GREEDY), A3C=(301, GREEDY), IMPALA=(200, GREEDY), APPO=(200, GREEDY))
def test_p5_actions_belong_to_their_observations(name, iterations, settings):
    with trained(name, MatchObservation, iterations - 1, settings) as algo:
        assert algo.train()["episode_reward_mean"] > 0.95


@each(
    PPO=(60, {}),
    PPO_unlimited=(60, {"vf_clip_param": None}),
    A2C=(800, {"vf_loss_coeff": 1.0}),
    A3C=(800, {"vf_loss_coeff": 1.0}),
    IMPALA=(300, {"lr": 0.02}),
    APPO=(300, {"lr": 0.02}),
)
def test_p6_truncation_is_no_end(name, iterations, settings):
    """V = 1 / (1 - gamma) = 10; a time limit taken for an end gives much less. A fragment of IMPALA holds two."""
    with trained(name, InfiniteHorizon, iterations, settings, {"length": 10}) as algo:
        np.testing.assert_allclose(values(algo, 0.0), 10.0, rtol=0.03)


def test_p6_infinite_horizon_at_gamma_099():
    """Reward 1 for ever is worth 100; with truncation taken for termination it would be about 37."""
    settings = {"gamma": 0.99, "lambda_": 1.0, "train_batch_size": 1600, "lr": 0.01, "vf_clip_param": None}
    with trained("PPO", InfiniteHorizon, 40, settings) as algo:
        np.testing.assert_allclose(values(algo, 0.0), 100.0, rtol=0.05)


class InfiniteHorizonOfNumbers(InfiniteHorizon):
    """P6 with an action that does nothing."""

    action_space = Box(-1.0, 1.0, (1,), np.float32)


OFF_POLICY = {
    "num_rollout_workers": 0, "gamma": 0.9, "seed": 5, "lr": 3e-3, "train_batch_size": 32, "training_intensity": 32,
    "model": {"fcnet_hiddens": [32, 32]}, "q_model_config": {"fcnet_hiddens": [32, 32]},
    "replay_buffer_config": {"type": "ReplayBuffer", "capacity": 2000},
    "num_steps_sampled_before_learning_starts": 64, "exploration_config": {"random_timesteps": 64},
    "min_time_s_per_iteration": None, "min_sample_timesteps_per_iteration": 600,
}  # fmt: skip
# So that the rewards are all that values are made of.
NO_ENTROPY = {"initial_alpha": 1e-6, "alpha_lr": 0.0}
TARGETS = {"tau": 0.05}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("SAC", {**NO_ENTROPY, **TARGETS}),
        ("TQC", {**NO_ENTROPY, **TARGETS, "top_quantiles_to_drop_per_net": 0}),
        ("CrossQ", NO_ENTROPY),
        ("TD3", {"tau": 0.1}),  # in every second update
        ("DDPG", TARGETS),
    ],
)
def test_p6_truncation_is_no_end_for_critics(name, settings):
    """Q = 10 of every action. If every tenth row were an end, Q = 1 + 0.9 * 0.9 Q would make it 5.3."""
    config = get_algorithm_config(name).environment(InfiniteHorizonOfNumbers, env_config={"length": 10})
    with config.update_from_dict({**OFF_POLICY, **settings}).build() as algo:
        stats = learner_stats(train(algo, 2))
        np.testing.assert_allclose([stats[key] for key in ("min_q", "mean_q", "max_q")], 10.0, rtol=0.05)


@pytest.mark.parametrize("name", ["PPO", "PG", "A2C", "A3C"])
def test_p7_every_transition_counts_up(name):
    with trained(name, CountingEnv, 0, {}) as algo:
        batch = algo.sample(500)
        observations = batch["obs"].reshape(-1, 8)
        ended = (batch["terminateds"] | batch["truncateds"]).reshape(-1, 8)
        np.testing.assert_array_equal(batch["rewards"].reshape(-1, 8), observations + 1)
        follows = np.where(ended[:-1], 0, observations[:-1] + 1)
        np.testing.assert_array_equal(observations[1:], follows)


LONGER = {**GREEDY, "lr": 5e-3}
OF_128_ROWS = {**LONGER, "train_batch_size": 128}
# The standard deviation shrinks on and on; a full step would in the end move the mean by many of them.
ANNEALED = {"kl_coeff": 0.2, "lr": [[0, 3e-3], [60 * 256, 0.0]]}


@each(
    PPO=(60, ANNEALED),
    PG=(400, {**OF_128_ROWS, "standardize_advantages": True}),
    A2C=(400, {**OF_128_ROWS, "rollout_fragment_length": 16}),
    A3C=(400, {**LONGER, "rollout_fragment_length": 16}),
    IMPALA=(400, LONGER),
    APPO=(400, LONGER),
)
def test_p12_actions_are_scaled_to_their_bounds(name, iterations, settings):
    with trained(name, BoundedAction, iterations, settings) as algo:
        action = algo.compute_single_action(np.zeros(1, np.float32), explore=False)
        assert abs(float(action[0]) - 7.0) < (0.4 if SETTINGS[name] is IMPALA else 0.2)
