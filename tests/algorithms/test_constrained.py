"""Limits on the costs of episodes: PPO-Lagrangian and SAC-Lagrangian."""

import math
from typing import ClassVar

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode

from rllib import CQLConfig, CrossQConfig, PPOConfig, SACConfig, TQCConfig
from rllib import sample_batch as sb
from rllib.algorithms.families.constrained import Multiplier
from rllib.evaluation.callbacks import DefaultCallbacks
from rllib.losses.returns import gae
from tests.envs import BoundedAction, CountingEnv, GoalOnALine, MaskedProbe, ProbeEnv, in_vector

pytestmark = pytest.mark.usefixtures("workers_know_the_module")

torch.set_num_threads(1)
STATS = "info/learner/default_policy/learner_stats"


class Choice(ProbeEnv):
    """One step. The third action returns the most, 1, but costs 1; the second returns 0.8 and costs 0.2."""

    action_space = Discrete(3)

    def follow(self, action):
        return 0.0, (0.0, 0.8, 1.0)[action], True, False

    def step(self, action):
        *result, info = super().step(action)
        return *result, {**info, "cost": (0.0, 0.2, 1.0)[action]}


class Speed(ProbeEnv):
    """One step; speed a returns a, costs a^2: within a limit d it is sqrt(d), at a multiplier of 1 / (2 sqrt(d))."""

    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def follow(self, action):
        return 0.0, float(action[0]), True, False

    def step(self, action):
        *result, info = super().step(action)
        return *result, {**info, "cost": float(action[0]) ** 2}


class Priced(CountingEnv):
    """CountingEnv whose t-th step costs t, under "toll"; a Box of actions with the config's `continuous`."""

    def __init__(self, config=None):
        super().__init__(config)
        if (config or {}).get("continuous"):
            self.action_space = Box(-1.0, 1.0, (1,), np.float32)

    def step(self, action):
        *result, _ = super().step(action)
        return *result, {"toll": float(self.t)}


class Collect(DefaultCallbacks):
    batches: ClassVar[list] = []

    def on_learn_on_batch(self, *, policy, train_batch, result, **kwargs):
        Collect.batches.append({name: np.array(column) for name, column in train_batch.items()})


def ppo(environment, workers=0, **training):
    config = PPOConfig().environment(environment).debugging(seed=5).reporting(min_time_s_per_iteration=0)
    config.rollouts(num_rollout_workers=workers, num_envs_per_worker=4 // max(workers, 1))
    small = {"train_batch_size": 256, "sgd_minibatch_size": 64, "num_sgd_iter": 4, "lr": 5e-3}
    return config.training(**{**small, "model": {"fcnet_hiddens": [16]}, **training})


def sac(environment, workers=0, **training):
    config = SACConfig().environment(environment).debugging(seed=5)
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=200)
    config.rollouts(num_rollout_workers=workers, num_envs_per_worker=4 // max(workers, 1))
    small = {"train_batch_size": 64, "lr": 3e-3, "num_steps_sampled_before_learning_starts": 64}
    return config.training(**{**small, "model": {"fcnet_hiddens": [16]}, **training})


# ---------------------------------------------------------------------- the multiplier


def test_the_integral_alone_is_projected_gradient_ascent():
    multiplier = Multiplier(limit=2.0, initial=0.1, lr=0.5)
    seen = []
    for cost in (3.0, 1.0, 0.0, 2.5):
        multiplier.update(cost)
        seen.append(multiplier.value)
    assert seen == pytest.approx([0.6, 0.1, 0.0, 0.25])


def test_the_other_parts_of_the_controller():
    """max(0, I + kp (J - d) + kd max(0, rise of J)), I the integral: arXiv:2007.03964, algorithm 2."""
    multiplier = Multiplier(limit=2.0, initial=0.0, lr=0.5, kp=2.0, kd=3.0)
    seen = []
    for cost in (3.0, 4.0, 3.5, 1.0):
        multiplier.update(cost)
        seen.append(multiplier.value)
    # I: 0.5, 1.5, 2.25, 1.75.
    assert seen == pytest.approx([0.5 + 2, 1.5 + 4 + 3, 2.25 + 3, 0.0])
    again = Multiplier(2.0, 0.0, 0.5, 2.0, 3.0)
    again.set_state(multiplier.get_state())
    for each in (multiplier, again):
        each.update(2.2)
    assert again.value == multiplier.value == pytest.approx(1.85 + 0.4 + 3 * 1.2)


# ---------------------------------------------------------------------- what is learned


def test_ppo_takes_the_best_action_within_the_limit():
    with ppo(Choice, cost_limit=0.3, lagrangian_lr=0.2).build() as algo:
        for _ in range(25):
            result = algo.train()
        evaluated = algo.evaluate(10)
    assert (evaluated["episode_reward_mean"], evaluated["episode_cost_mean"]) == pytest.approx((0.8, 0.2))
    assert result["episode_cost_mean"] < 0.35
    assert result[f"{STATS}/cost_limit"] == 0.3
    assert result[f"{STATS}/cost_vf_loss"] < 0.1


def test_without_a_limit_that_binds_the_multiplier_is_zero():
    with ppo(Choice, cost_limit=2.0).build() as algo:
        for _ in range(15):
            result = algo.train()
        assert algo.evaluate(10)["episode_cost_mean"] == 1
    assert result[f"{STATS}/lagrangian_multiplier"] == 0


@pytest.mark.learning
def test_sac_finds_the_speed_and_the_multiplier():
    """Limit 0.25: speed 0.5 at a multiplier of 1."""
    settings = {"initial_alpha": 0.02, "alpha_lr": 0, "lagrangian_lr": 0.02, "gamma": 0.9}
    with sac(Speed, cost_limit=0.25, **settings).build() as algo:
        for _ in range(20):
            result = algo.train()
        evaluated = algo.evaluate(10)
    assert evaluated["episode_reward_mean"] == pytest.approx(0.5, abs=0.1)
    assert result[f"{STATS}/lagrangian_multiplier"] == pytest.approx(1, abs=0.3)
    assert result[f"{STATS}/mean_cost_of_policy"] == pytest.approx(0.25, abs=0.1)


@pytest.mark.parametrize(("make", "environment"), [(ppo, Choice), (ppo, Speed), (sac, Choice), (sac, Speed)])
def test_both_learners_learn_the_same(make, environment):
    names = ["cost_critic_loss", "mean_cost_q", "actor_loss"] if make is sac else ["cost_vf_loss", "vf_loss", "kl"]
    more, results = {"training_intensity": 16} if make is sac else {}, []
    for learner in ("numpy", "torch"):
        config = make(environment, cost_limit=0.1, lagrangian_multiplier_init=0.5, learner=learner, **more)
        with config.build() as algo:
            result = algo.train()
        results.append([result[f"{STATS}/{name}"] for name in (*names, "lagrangian_multiplier")])
    np.testing.assert_allclose(*results, rtol=1e-3)


@pytest.mark.parametrize("learner", ["numpy", "torch"])
def test_the_kl_of_the_policy_ends_the_updates_of_both_networks(learner):
    """The cost critic has other statistics than the policy, whose KL is the one that is compared."""
    settings = {"cost_limit": 0.25, "lr": 0.05, "learner": learner}
    with ppo(Speed, target_kl=0.01, **settings).build() as stops, ppo(Speed, **settings).build() as goes_on:
        whole, stopped = (algo.train()["info"]["num_grad_updates"] for algo in (goes_on, stops))
        assert whole == 16 and stopped < whole
        assert all(np.isfinite(algo.learner.weights).all() for algo in (stops, goes_on))


# ---------------------------------------------------------------------- rows


@pytest.mark.parametrize(
    ("mode", "workers", "vectorized"),
    [("truncate_episodes", 2, False), ("truncate_episodes", 0, True), ("complete_episodes", 0, False)],
)
def test_advantages_of_costs(mode, workers, vectorized):
    """GAE of both columns, each with its own discount and lambda, from the values that the batch itself has."""
    Collect.batches.clear()
    environment = in_vector(Priced, AutoresetMode.NEXT_STEP) if vectorized else Priced
    config = ppo(environment, workers, cost_limit=100.0, cost_column="toll", train_batch_size=64)
    config.training(gamma=0.9, lambda_=0.8, cost_gamma=0.5, cost_lambda=0.25, standardize_advantages=False)
    # One fragment of one environment for each worker; episodes are told apart by their observations.
    config.environment(env_config={"offset": 0.5}).callbacks(Collect)
    config.rollouts(batch_mode=mode, num_envs_per_worker=1, rollout_fragment_length=64 // max(workers, 1))
    with config.build() as algo:
        algo.train()
    (batch,) = Collect.batches
    starts = batch[sb.OBS][:, 0] - batch[sb.REWARDS]
    order = np.lexsort((batch[sb.REWARDS], starts.round(4)))
    batch = {name: column[order] for name, column in batch.items()}
    np.testing.assert_array_equal(batch["toll"], batch[sb.REWARDS])
    # The multiplier is 0, so advantages are those of rewards.
    values = {
        sb.REWARDS: batch[sb.VALUE_TARGETS] - batch[sb.ADVANTAGES],
        "toll": batch[sb.COST_TARGETS] - batch[sb.COST_ADVANTAGES],
    }
    ends = batch[sb.TERMINATEDS] | batch[sb.TRUNCATEDS]
    follows = ~ends[:-1] & np.isclose(batch[sb.OBS][1:, 0], batch[sb.OBS][:-1, 0] + 1, atol=1e-5)
    found = {sb.REWARDS: batch[sb.ADVANTAGES], "toll": batch[sb.COST_ADVANTAGES]}
    for name, gamma, lambda_ in ((sb.REWARDS, 0.9, 0.8), ("toll", 0.5, 0.25)):
        costs, value, advantages = (each.astype(np.float64) for each in (batch[name], values[name], found[name]))
        # A_t = c_t + gamma V(o_{t+1}) - V(o_t) + gamma lambda A_{t+1}
        expected = costs[:-1] + gamma * value[1:] - value[:-1] + gamma * lambda_ * advantages[1:]
        np.testing.assert_allclose(advantages[:-1][follows], expected[follows], atol=2e-5)
        last = batch[sb.TERMINATEDS]
        np.testing.assert_allclose(advantages[last], (costs - value)[last], atol=1e-6)
    assert follows.sum() > 30


def test_gae_of_columns_with_discounts_of_their_own():
    rng = np.random.default_rng(0)
    rewards, values, following = rng.standard_normal((3, 6, 2)).astype(np.float32)
    terminated, truncated = rng.random((2, 6, 2)) < 0.2
    together = gae(rewards, values, following, terminated, truncated, np.array([0.9, 0.5]), np.array([0.8, 0.1]))
    for i, (gamma, lambda_) in enumerate([(0.9, 0.8), (0.5, 0.1)]):
        column = slice(i, i + 1)
        parts = (each[:, column] for each in (rewards, values, following, terminated, truncated))
        for of_both, alone in zip(together, gae(*parts, gamma, lambda_)):
            np.testing.assert_array_equal(of_both[:, column], alone)


@pytest.mark.parametrize("n_step", [1, 3])
def test_rows_of_the_replay_sum_up_costs(n_step):
    """The t-th step costs t, with gamma_c = 0.1: sums read as digits."""
    config = sac(Priced, cost_limit=100.0, cost_column="toll", cost_gamma=0.1, gamma=0.5, n_step=n_step)
    config.environment(env_config={"continuous": True, "lengths": [5]}).rollouts(rollout_fragment_length=4)
    with config.build() as algo:
        batch = algo.sample(40)
    t = batch[sb.OBS][:, 0]
    steps = np.minimum(n_step, 5 - t)
    for name, gamma in (("toll", 0.1), (sb.REWARDS, 0.5)):
        expected = sum(np.where(k < steps, gamma**k * (t + 1 + k), 0) for k in range(n_step))
        np.testing.assert_allclose(batch[name], expected, rtol=1e-6)
    for name, gamma in ((sb.COST_DISCOUNTS, 0.1), (sb.DISCOUNTS, 0.5)):
        np.testing.assert_allclose(batch[name], gamma**steps * ~batch[sb.TERMINATEDS], rtol=1e-6)


# ---------------------------------------------------------------------- episodes, workers, checkpoints


@pytest.mark.parametrize("environment", [Priced, in_vector(Priced, AutoresetMode.NEXT_STEP)])
@pytest.mark.parametrize("workers", [0, 2])
def test_results_and_evaluation_report_the_cost_of_episodes(environment, workers):
    """Without a limit, costs are reported alone; here they are what the episodes return."""
    with ppo(environment, workers, cost_column="toll").build() as algo:
        result, evaluated = algo.train(), algo.evaluate(6)
    for each in (result, evaluated):
        assert each["episode_cost_mean"] == each["episode_reward_mean"] > 0
        assert each["hist_stats"]["episode_cost"] == each["hist_stats"]["episode_reward"]
    assert f"{STATS}/lagrangian_multiplier" not in result and f"{STATS}/cost_vf_loss" not in result


def test_costs_that_are_only_reported_change_nothing():
    weights = []
    for more in ({}, {"cost_column": "toll"}):
        with ppo(Priced, **more).build() as algo:
            result = algo.train()
            weights.append(algo.policy.weights.tobytes())
        assert ("episode_cost_mean" in result) == bool(more)
    assert weights[0] == weights[1]


@pytest.mark.parametrize("make", [ppo, sac])
def test_bits_do_not_depend_on_the_division_among_workers(make):
    found = []
    for workers in (0, 2):
        environment = Speed if make is sac else Choice
        with make(environment, workers, cost_limit=0.1).build() as algo:
            for _ in range(2):
                result = algo.train()
            found.append((algo.policy.weights.tobytes(), result[f"{STATS}/lagrangian_multiplier"]))
    assert found[0] == found[1]
    assert found[0][1] > 0


@pytest.mark.parametrize("make", [ppo, sac])
def test_a_restored_run_is_the_run_that_went_on(make, tmp_path):
    more = {"store_buffer_in_checkpoints": True} if make is sac else {}
    config = make(Speed, cost_limit=0.1, lagrangian_kp=0.1, lagrangian_kd=0.1, **more)
    with config.build() as algo:
        algo.train()
        with config.algo_class.from_checkpoint(algo.save(tmp_path / "saved")) as other:
            assert other.numbers()["multiplier"] == algo.numbers()["multiplier"]
            results = [each.train() for _ in range(2) for each in (algo, other)]
            states = algo.get_state(), other.get_state()
    for name in ("lagrangian_multiplier", "total_loss" if make is ppo else "actor_loss"):
        assert results[2][f"{STATS}/{name}"] == results[3][f"{STATS}/{name}"]
    learner = "policies/default_policy/learner.safetensors"
    assert "cost_critic.weights" in states[0][learner]
    for name, array in states[0][learner].items():
        np.testing.assert_array_equal(states[1][learner][name], array, err_msg=name)


@pytest.mark.parametrize("make", [ppo, sac])
def test_several_learners(make):
    """They share each minibatch, so that the costs' critic moves as with one."""
    found = []
    for learners in (0, 2):
        config = make(Speed, cost_limit=0.1, num_sgd_iter=1) if make is ppo else make(Speed, cost_limit=0.1)
        config.reporting(min_sample_timesteps_per_iteration=64).learners(num_learners=learners)
        with config.build() as algo:
            for _ in range(2):
                algo.train()
            found.append(algo.learner.vector["cost_critic"].copy())
    np.testing.assert_allclose(*found, atol=1e-3)


@pytest.mark.parametrize("learners", [0, 2])
def test_the_costs_critic_begins_anew_with_all_networks(learners):
    """The multiplier stays, as alpha does."""
    with sac(Speed, cost_limit=0.1, param_resets=[250]).learners(num_learners=learners).build() as algo:
        algo.train()
        learner, multiplier = algo.learner, algo.numbers()["multiplier"]["value"]
        before = learner.vector["cost_critic"].copy()
        algo.metrics.counters["num_env_steps_sampled"] += 100  # as if they were sampled, without an update
        algo.trainee._reset_if_due()
        assert not np.isclose(before, learner.vector["cost_critic"]).mean() > 0.5
        np.testing.assert_array_equal(learner.targets["cost_critic"].weights, learner.vector["cost_critic"])
        assert algo.numbers()["multiplier"]["value"] == multiplier
        assert math.isfinite(algo.train()[f"{STATS}/cost_critic_loss"])


def test_intrinsic_rewards_and_masks_go_with_a_limit():
    class Tolled(MaskedProbe):
        def step(self, action):
            *result, info = super().step(action)
            return *result, {**info, "cost": 1.0}

    config = ppo(Tolled, cost_limit=1.0, train_batch_size=64, sgd_minibatch_size=32)
    with config.exploration(exploration_config={"type": "RND"}).build() as algo:
        result = algo.train()
    assert result["episode_cost_mean"] == 2
    assert result[f"{STATS}/lagrangian_multiplier"] > 0
    assert math.isfinite(result[f"{STATS}/intrinsic_reward_mean"])


# ---------------------------------------------------------------------- what is refused


class Pictures(Choice):
    observation_space = Box(0, 255, (84, 84, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        _, *others = super().step(action)
        return self.observation_space.sample(), *others


class Six(Choice):
    """Returns the cost as the third of six values."""

    def step(self, action):
        observation, reward, *flags, info = super().step(action)
        return observation, reward, info["cost"], *flags, info


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (ppo(Choice, cost_limit=-1.0), "cost_limit"),
        (ppo(CountingEnv, cost_limit=1.0), "'cost' is read from infos.*has only"),
        (ppo(Choice, cost_limit=1.0, cost_column="toll"), "'toll' is read from infos.*has only"),
        (ppo(Choice, cost_limit=1.0).environment(info_columns={"cost": {"shape": [2]}}), "a single number"),
        (ppo(Choice, cost_limit=1.0, use_critic=False, use_gae=False), "needs a critic"),
        (ppo(Choice, cost_limit=1.0, recompute_advantages=True), "recompute_advantages"),
        (ppo(Choice, cost_limit=1.0, custom_loss=print), "custom_loss"),
        (ppo(Choice, cost_limit=1.0, model={"use_lstm": True}), "memory"),
        (ppo(Pictures, cost_limit=1.0), "images"),
        (ppo(Choice, cost_limit=1.0).multi_agent(policies=["a"]), "one agent"),
        (ppo(Six, cost_limit=1.0), "SafetyGymnasium2Gymnasium"),
        (sac(GoalOnALine, cost_limit=1.0, replay_buffer_config={"type": "HindsightReplayBuffer"}), "hindsight"),
        (sac(Speed, cost_limit=1.0, num_atoms=11), "num_atoms=11"),
        (ppo(Choice, cost_limit=1.0, lr={"type": "kl_adaptive"}), "lr="),
        (sac(Speed, cost_limit=1.0, model={"network": "simba"}), "network='simba'"),
        (TQCConfig().environment(BoundedAction).training(cost_limit=1.0), "quantiles"),
        (CrossQConfig().environment(BoundedAction).training(cost_limit=1.0), "target copies"),
        (CQLConfig().environment(BoundedAction).training(cost_limit=1.0), "recorded"),
    ],
)
def test_what_does_not_fit_is_refused_before_workers_start(config, complaint):
    with pytest.raises(Exception, match=complaint) as raised:
        config.rollouts(num_rollout_workers=2).build()
    assert isinstance(raised.value, ValueError | TypeError)


@pytest.mark.parametrize("costs", [{"cost_limit": 1.0}, {"cost_column": "cost"}])
def test_environments_whose_infos_are_not_read_have_no_costs(costs):
    from rllib.env import ExternalEnv
    from rllib.env.tasks.multi_agent_cartpole import MultiAgentCartPole

    class Elsewhere(ExternalEnv):
        def __init__(self, config):
            super().__init__(Speed.action_space, Box(-1.0, 1.0, (1,), np.float32))

    spaces = {"observation_space": Box(-1.0, 1.0, (1,), np.float32), "action_space": Speed.action_space}
    elsewhere = ppo(Elsewhere, **costs).rollouts(num_envs_per_worker=1)
    clients = ppo(None, **costs).environment(**spaces).rollouts(num_envs_per_worker=1).external(listen="127.0.0.1:0")
    several = ppo(MultiAgentCartPole, **costs)
    for config, kind in ((several, "several agents"), (elsewhere, "loop of their own"), (clients, "loop of their own")):
        with pytest.raises(ValueError, match=f"that have one agent: no costs are read of environments .*{kind}"):
            config.build()
    with pytest.raises(ValueError, match=r"info_columns=\['score'\] are for environments that the library steps"):
        ppo(MultiAgentCartPole).environment(info_columns={"score": {}}).build()


def test_sac_takes_images_with_a_limit():
    class Seen(Speed):
        observation_space = Dict(picture=Box(0, 255, (10, 10, 1), np.uint8), number=Box(-1.0, 1.0, (1,), np.float32))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action):
            _, *others = super().step(action)
            return self.observation_space.sample(), *others

    model = {"conv_filters": [[4, 4, 2, "valid"]], "fcnet_hiddens": [8]}
    config = sac(Seen, cost_limit=0.1, model=model, training_intensity=16, image_shift=1)
    with config.reporting(min_sample_timesteps_per_iteration=80).build() as algo:
        result = algo.train()
    assert math.isfinite(result[f"{STATS}/cost_critic_loss"])
