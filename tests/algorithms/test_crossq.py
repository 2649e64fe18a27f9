"""CrossQ as an algorithm: running statistics, delays, no target copies. Equations: test_actor_critic_reference.py."""

import numpy as np
import pytest
import torch

from rllib import CrossQConfig, SACConfig
from tests.algorithms.algorithm_support import learner_stats
from tests.algorithms.test_sac import Reach, after

torch.set_num_threads(1)

SMALL = {
    "model": {"fcnet_hiddens": [16, 16]},
    "q_model_config": {"fcnet_hiddens": [32, 16]},
    "train_batch_size": 32,
    "num_steps_sampled_before_learning_starts": 64,
    "replay_buffer_config": {"capacity": 2000},
}


def config(env=Reach, workers=0, envs=1, fragment="auto", env_config=None, kind=CrossQConfig, **training):
    return (
        kind()
        .environment(env, env_config=env_config or {})
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=envs, rollout_fragment_length=fragment)
        .training(**{**SMALL, **training})
        .reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=100)
        .debugging(seed=5)
    )


def statistics(policy) -> np.ndarray:
    """The running means and variances of an actor, and its number of batches."""
    named = policy.parameters()
    return np.concatenate([part for name, part in named.items() if "running" in name or name == "passes"])


def test_it_solves_a_probe():
    """The action is ten times the observation, as far as the bounds reach."""
    training = {"lr": 3e-3, "gamma": 0.9, "initial_alpha": 0.1, "target_entropy": -2.0}
    with config(env_config={"bound": 10.0}, **training).build() as algo:
        after(algo, 12)
        observations = np.linspace(-0.7, 0.7, 9, dtype=np.float32)[:, None]
        actions = [algo.compute_single_action(each, explore=False) for each in observations]
        assert np.abs(np.stack(actions) / 10 - observations).mean() < 0.15


def test_the_scale_of_actions_changes_nothing():
    weights = []
    for bound in (1.0, 8.0):
        with config(env_config={"bound": bound}).build() as algo:
            weights.append(after(algo, 2))
    np.testing.assert_array_equal(*weights)


def test_acting_and_judging_leave_the_statistics_as_they_are():
    """Each update of the critics is a batch of theirs, each of the actor one of its; sampling is none."""
    with config().build() as algo:
        algo.replay.add(algo.sample(64))
        assert not algo.learner.targets
        for update in range(1, 8):
            critics = algo.learner.vector.named_parameters("critics")
            algo.trainee.update(**algo.trainee.learning_rates())
            assert critics["passes"] == update and algo.policy.parameters()["passes"] == update // 3
        before = algo.learner.weights.copy()
        algo.sample(20)
        algo.compute_single_action(np.zeros(1, np.float32))
        np.testing.assert_array_equal(algo.learner.weights, before)
        assert statistics(algo.policy)[0] != 0


@pytest.mark.parametrize("kind", [CrossQConfig, SACConfig])
def test_actor_and_temperature_move_with_every_third_update(kind):
    with config(kind=kind, policy_delay=3).build() as algo:
        algo.replay.add(algo.sample(64))
        moved = []
        for _ in range(7):
            actor, alpha = algo.policy.weights.copy(), algo.trainee.temperature.alpha
            stats = algo.trainee.update(**algo.trainee.learning_rates())
            moved.append((not np.array_equal(actor, algo.policy.weights), alpha != algo.trainee.temperature.alpha))
            assert stats["alpha_value"] == alpha
        assert moved == [(update % 3 == 0,) * 2 for update in range(1, 8)]


@pytest.mark.parametrize("learner", ["numpy", "torch"])
def test_it_goes_on_from_a_checkpoint_exactly(learner, tmp_path):
    """Statistics, their number and the place in the delay included; the saved policy alone acts alike."""
    chosen = config(store_buffer_in_checkpoints=True, renorm_warmup_steps=50, learner=learner)
    with chosen.build() as algo:
        after(algo, 1)
        saved, expected = algo.save(tmp_path / "saved"), algo.learner.weights.copy()
        of_policy, observations = statistics(algo.policy), np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
        actions = algo.policy.choose(observations, explore=False)
    runs = []
    for _ in range(2):
        with CrossQConfig.algo_class.from_checkpoint(saved) as algo:
            np.testing.assert_array_equal(algo.learner.weights, expected)
            np.testing.assert_array_equal(statistics(algo.policy), of_policy)
            np.testing.assert_array_equal(algo.policy.choose(observations, explore=False), actions)
            runs.append(after(algo, 1))
    np.testing.assert_array_equal(*runs)


def test_workers_have_the_statistics():
    """The same weights whether two environments are in this process or in two workers, which act by the statistics."""
    weights = []
    for workers, envs in ((0, 2), (2, 1)):
        with config("Pendulum-v1", workers, envs, fragment=2).build() as algo:
            weights.append(after(algo, 2))
            stats = learner_stats(algo.train())
            if workers:
                of_workers = algo.workers.foreach_worker(lambda worker: statistics(worker.policy))
                assert all(each[-1] > 0 for each in of_workers)
    np.testing.assert_array_equal(*weights)
    assert np.isfinite(list(stats.values())).all()


def test_an_actor_without_normalisation():
    with config(batch_norm_actor=False).build() as algo:
        after(algo, 2)
        assert not any("running" in name for name in algo.policy.parameters())


@pytest.mark.parametrize(
    ("env", "training", "message"),
    [
        (Reach, {"tau": 0.01}, "tau=0.01: CrossQ has no target copies"),
        (Reach, {"target_network_update_freq": 100}, "target_network_update_freq=100: CrossQ has no target copies"),
        (Reach, {"q_model_config": {"layer_norm": True}}, "q_model_config: layer_norm=True is not available"),
        (Reach, {"policy_model_config": {"use_sde": True}}, r"use_sde=True .* \.training\(batch_norm_actor=False\)"),
        (Reach, {"batch_norm_momentum": 1.5}, "batch_norm_momentum=1.5 must be"),
        (Reach, {"batch_norm_eps": 0.0}, "batch_norm_eps=0.0 must be"),
        (Reach, {"renorm_warmup_steps": 10**9}, "renorm_warmup_steps=1000000000 must be"),
        (Reach, {"adam_beta1": 1.0}, "adam_beta1=1.0 must be"),
        ("CartPole-v1", {}, r"CrossQ is for continuous actions, .* Discrete\(2\)"),
    ],
)
def test_settings_that_do_not_fit(env, training, message):
    with pytest.raises(ValueError, match=message):
        config(env, **training).build()
