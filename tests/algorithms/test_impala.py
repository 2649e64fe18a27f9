"""IMPALA and APPO: settings, the loss they see, checkpoints, probe environments."""

import logging

import numpy as np
import pytest
import torch

import runtime
from rllib import A2CConfig, tune
from rllib import sample_batch as sb
from rllib.algorithms.appo import APPO, APPOConfig
from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.from_checkpoint import LEARNER_FILE, OLD_TARGET_FILE
from rllib.algorithms.base.registry import get_algorithm_class
from rllib.algorithms.impala import IMPALAConfig
from rllib.losses.appo import TARGET_DIST_INPUTS
from rllib.storage.checkpoint import write_checkpoint
from tests.algorithms.algorithm_support import learner_stats, train
from tests.envs import CountingEnv
from tests.gpu import needs_gpu
from tests.multi_agent import BasicMultiAgent

# The networks here are so small that a second thread only waits.
torch.set_num_threads(1)

CONFIGS = [IMPALAConfig, APPOConfig]
BOTH = pytest.mark.parametrize("config_class", CONFIGS)


def build(config_class, env="CartPole-v1", env_config=None, num_workers=0, num_envs=8, **training) -> Algorithm:
    settings = {"train_batch_size": 160, "lr": 3e-3, "gamma": 0.9, "model": {"fcnet_hiddens": [32, 32]}, **training}
    return (
        config_class()
        .environment(env, env_config=env_config or {})
        .rollouts(num_rollout_workers=num_workers, num_envs_per_worker=num_envs, rollout_fragment_length=20)
        .training(**settings)
        .reporting(min_time_s_per_iteration=None)
        .debugging(seed=5)
        .build()
    )


class TestSettings:
    def test_defaults(self):
        config = IMPALAConfig()
        assert (config.lr, config.train_batch_size, config.rollout_fragment_length) == (5e-4, 500, 50)
        assert (config.grad_clip, config.vf_loss_coeff, config.entropy_coeff) == (40, 0.5, 0.01)
        assert (config.broadcast_interval, config.learner_queue_size, config.num_sgd_iter) == (1, 16, 1)
        config = APPOConfig()
        assert (config.clip_param, config.kl_coeff, config.kl_target, config.use_kl_loss) == (0.4, 1.0, 0.01, False)
        assert (config.target_update_frequency, config.tau, config.lr) == (1, 1.0, 5e-4)

    def test_names(self):
        assert get_algorithm_class("impala").__name__ == "IMPALA"
        assert get_algorithm_class("appo") is APPO

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"replay_proportion": 0.5}, "replay_proportion=0.5: with replay_buffer_num_slots=0"),
            ({"minibatch_buffer_size": 2}, "with num_sgd_iter=1 each is used once"),
            (
                {"num_aggregation_workers": 3, "learner_queue_size": 2},
                "num_aggregation_workers=3 and learner_queue_size=2: the first hold",
            ),
            ({"train_batch_size": 30}, "rollout_fragment_length=50 and train_batch_size=30"),
            ({"opt_type": "adagrad"}, "opt_type"),
            ({"model": {"fcnet_hidens": [4]}, "train_batch_size": 0}, "2 mistakes(.|\n)*fcnet_hidens.*fcnet_hiddens"),
            ({"vtrace_clip_rho": 1.0}, "vtrace_clip_rho_threshold"),
        ],
    )
    def test_what_cannot_be_served_is_refused(self, settings, message):
        with pytest.raises((ValueError, TypeError), match=message):
            IMPALAConfig().environment("CartPole-v1").training(**settings).build()

    def test_replay_that_does_not_fit_is_refused_with_its_size(self):
        config = IMPALAConfig().environment("CartPole-v1")
        with pytest.raises(ValueError, match=r"fragments of 50 observations need 7450\.6 GiB, but"):
            config.training(replay_proportion=1, replay_buffer_num_slots=10**10).build()

    def test_aggregation_needs_workers(self):
        config = IMPALAConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
        with pytest.raises(ValueError, match="num_aggregation_workers=1 and num_rollout_workers=0"):
            config.training(num_aggregation_workers=1).build()

    def test_no_workers_are_told(self, caplog):
        with caplog.at_level(logging.WARNING), build(IMPALAConfig):
            assert "IMPALA with num_rollout_workers=0 runs synchronously" in caplog.text


@BOTH
def test_results(config_class):
    with build(config_class) as algo:
        result = train(algo, 2)
        told = learner_stats(result)
        names = {"cur_lr", "total_loss", "policy_loss", "vf_loss", "vf_explained_var", "entropy", "entropy_coeff"}
        assert names | {"var_gnorm", "grad_gnorm", "policy_lag_mean", "policy_lag_max"} <= set(told)
        assert all(np.isfinite(list(told.values())))
        assert result["num_env_steps_trained"] == result["num_env_steps_sampled"] == 320
        assert told["policy_lag_max"] == 0
        # The weights that learn are those that acted.
        assert told["mean_rho"] == pytest.approx(1, abs=1e-5)


def test_appo_ratio_is_one_without_lag():
    with build(APPOConfig) as algo:
        for _ in range(3):
            told = learner_stats(algo.train())
            assert told["mean_ratio"] == pytest.approx(1, abs=1e-5)
            assert told["clip_fraction"] == 0 and told["kl"] == pytest.approx(0, abs=1e-6)


def test_appo_clips_against_a_target_that_stands_still():
    with build(APPOConfig, target_update_frequency=4, num_sgd_iter=4, lr=0.01, use_kl_loss=True) as algo:
        start = algo.trainee.target.weights.copy()
        told = [learner_stats(algo.train()) for _ in range(3)]
        np.testing.assert_array_equal(algo.trainee.target.weights, start)
        assert told[-1]["kl"] > 0 and told[-1]["cur_kl_coeff"] > 0
        algo.train()
        np.testing.assert_array_equal(algo.trainee.target.weights, algo.policy.weights)


def test_appo_adapts_the_kl_coefficient_with_the_target():
    """Not after each step between, in which the divergence must grow: 1.5 ** 160 would be the end of it."""
    settings = {"use_kl_loss": True, "kl_target": 1e-9, "kl_coeff": 1.0, "lr": 0.01}
    with build(APPOConfig, minibatch_buffer_size=4, num_sgd_iter=2, **settings) as algo:
        assert [learner_stats(algo.train())["cur_kl_coeff"] for _ in range(10)] == [1.0] * 8 + [1.5] * 2


def test_appo_target_stands_still_while_the_ring_is_learned_from():
    """8 gradient steps on a ring of 4 batches that are used twice each: the clip bounds what all of them do."""
    ring = {"minibatch_buffer_size": 4, "num_sgd_iter": 2}
    with build(APPOConfig, **ring) as algo:
        start = algo.trainee.target.weights.copy()
        train(algo, 7)
        np.testing.assert_array_equal(algo.trainee.target.weights, start)
        algo.train()
        np.testing.assert_array_equal(algo.trainee.target.weights, algo.policy.weights)


def test_appo_has_rays_circular_buffer_as_its_ring():
    """N batches of K uses each; the target is updated every N * K updates times its frequency, as in Ray."""
    given = {"circular_buffer_num_batches": 4, "circular_buffer_iterations_per_batch": 2}
    with build(APPOConfig, **given, target_network_update_freq=500) as algo:
        assert (algo.config.minibatch_buffer_size, algo.config.num_sgd_iter) == (4, 2)
        assert algo.trainee.learner.targets["policy"].every == 4000
    # A domain of Tune takes the same way, and a batch may be used once.
    config = APPOConfig().training(circular_buffer_num_batches=tune.randint(2, 6))
    assert repr(config.minibatch_buffer_size) == repr(tune.randint(2, 6))
    with build(APPOConfig, circular_buffer_num_batches=2) as algo:
        train(algo, 2)
    # 500 is DQN's default of this name, and in a dict APPO's own setting all the same.
    assert APPOConfig().update_from_dict({"target_network_update_freq": 500}).target_update_frequency == 500


def test_rays_defaults_of_the_circular_buffer_give_way_to_the_ring_in_its_files():
    assert not APPOConfig().update_from_dict({"circular_buffer_num_batches": 4, "minibatch_buffer_size": 1}).changes()
    with pytest.raises(TypeError, match="given twice"):
        APPOConfig().update_from_dict({"circular_buffer_num_batches": 16, "minibatch_buffer_size": 1})


def test_appo_does_not_run_away_on_a_ring_of_old_batches():
    """Settings of RLlib's pendulum-appo.yaml: entropy went to 75 and KL to 1e23, until a gradient was not finite."""
    config = APPOConfig().environment("Pendulum-v1").debugging(seed=5)
    config.rollouts(num_rollout_workers=0, observation_filter="MeanStdFilter")
    config.training(train_batch_size=100, minibatch_buffer_size=16, num_sgd_iter=10, lr=3e-4, gamma=0.95)
    config.training(model={"fcnet_hiddens": [256, 256]}).reporting(
        min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=500
    )
    with config.build() as algo:
        told = [learner_stats(algo.train()) for _ in range(12)]
    assert max(each["entropy"] for each in told) < 5
    assert max(each["kl"] for each in told) < 2


def test_lambda_does_not_shorten_vtrace_in_appo():
    """As in RLlib, where it belongs to GAE, without V-trace."""
    for vtrace, equal in ((True, True), (False, False)):
        weights = []
        for lambda_ in (0.1, 1.0):
            with build(APPOConfig, vtrace=vtrace, lambda_=lambda_) as algo:
                algo.train()
                weights.append(algo.policy.weights.copy())
        assert np.array_equal(*weights) == equal


def test_appo_target_follows_by_tau():
    with build(APPOConfig, tau=0.25) as algo:
        start = algo.trainee.target.weights.copy()
        algo.train()
        expected = start + 0.25 * (algo.policy.weights - start)
        np.testing.assert_allclose(algo.trainee.target.weights, expected, atol=1e-7)


def test_torch_and_numpy_learners_stay_together():
    weights = []
    for learner in ("numpy", "torch"):
        with build(IMPALAConfig, CountingEnv, learner=learner, lr=1e-3) as algo:
            train(algo, 20)
            weights.append(algo.policy.weights.copy())
    np.testing.assert_allclose(*weights, atol=1e-4)


@BOTH
def test_equal_seeds_give_equal_bits_without_workers(config_class):
    weights = []
    for _ in range(2):
        with build(config_class) as algo:
            train(algo, 3)
            weights.append(algo.policy.weights.copy())
    np.testing.assert_array_equal(*weights)


@BOTH
def test_checkpoints_hold_everything(config_class, tmp_path):
    with (
        build(config_class, target_update_frequency=3, use_kl_loss=True)
        if config_class is APPOConfig
        else build(config_class) as algo
    ):
        train(algo, 2)
        algo.save(tmp_path / "saved")
        with Algorithm.from_checkpoint(tmp_path / "saved") as restored:
            one, other = algo.get_state(), restored.get_state()
            assert ("target_policy.weights" in one[LEARNER_FILE]) == (config_class is APPOConfig)
            for name, arrays in one.items():
                if name.endswith(".safetensors"):
                    for key, array in arrays.items():
                        np.testing.assert_array_equal(array, other[name][key])
            assert one["algorithm.json"]["state"] == other["algorithm.json"]["state"]
            assert restored.train()["training_iteration"] == 3


def test_appo_goes_on_from_a_checkpoint_with_its_target_in_a_file_of_its_own(tmp_path):
    """As they were written before the learner's state held targets; the clock is then that of whole intervals."""
    with build(APPOConfig, target_update_frequency=3) as algo, build(APPOConfig, target_update_frequency=3) as other:
        train(algo, 4)
        state = algo.get_state()
        learner = state[LEARNER_FILE]
        assert learner.pop("target_policy.moved_at") == 3
        state[OLD_TARGET_FILE] = {"weights": learner.pop("target_policy.weights")}
        other.restore(write_checkpoint(tmp_path / "old", state))
        np.testing.assert_array_equal(other.trainee.target.weights, algo.trainee.target.weights)
        assert other.get_state()[LEARNER_FILE]["target_policy.moved_at"] == 3


@BOTH
def test_train_batches_hold_every_reward(config_class, monkeypatch):
    """P7: with workers too, all that was collected is learned from, each step followed by its successor."""
    with build(config_class, CountingEnv, num_workers=2, num_envs=2) as algo:
        seen = []
        learn = algo.learner.update

        def update(batch, **settings):
            seen.append(batch)
            return learn(batch, **settings)

        monkeypatch.setattr(algo.learner, "update", update)
        train(algo, 5)
        for batch in seen:
            steps, observations = batch[sb.LOSS_MASK], batch[sb.OBS][:, 0]
            goes_on = np.flatnonzero(steps & ~batch[sb.TERMINATEDS])
            np.testing.assert_array_equal(observations[goes_on + 1], observations[goes_on] + 1)
            np.testing.assert_array_equal(batch[sb.REWARDS][steps], observations[steps] + 1)
            assert (TARGET_DIST_INPUTS in batch) == (config_class is APPOConfig)
        assert sum(batch.env_steps() for batch in seen) == algo.metrics.counters["num_env_steps_trained"] == 5 * 160


class Watched:
    """Notes the batches that a learner is given, and how."""

    def __init__(self, algo):
        self.batches, self.settings, self._update = [], [], algo.learner.update
        algo.learner.update = self

    def __call__(self, batch, **settings):
        self.batches.append(batch)
        self.settings.append(settings)
        return self._update(batch, **settings)


@BOTH
def test_a_ring_of_batches_uses_each_of_them_so_often(config_class):
    with build(config_class, minibatch_buffer_size=2, num_sgd_iter=2) as algo:
        watched = Watched(algo)
        train(algo, 9)
        rewards = [id(batch[sb.REWARDS]) for batch in watched.batches]
        # The order of test_fragment_replay.py: 0 1 2 1 2 3 4 3 4.
        assert [rewards.index(each) for each in rewards] == [0, 1, 2, 1, 2, 5, 6, 5, 6]
        assert {settings["num_epochs"] for settings in watched.settings} == {1}
        assert algo.metrics.counters["num_env_steps_sampled"] == 5 * 160
        assert algo.num_updates == 9


@BOTH
@pytest.mark.parametrize("num_workers", [0, 1])
def test_replayed_fragments_are_mixed_in(config_class, num_workers):
    """Half of what is learned from was there before, and as old as the number of slots allows."""
    training = {"replay_proportion": 1.0, "replay_buffer_num_slots": 4, "train_batch_size": 80}
    with build(config_class, CountingEnv, num_workers=num_workers, num_envs=2, **training) as algo:
        watched = Watched(algo)
        told = learner_stats(train(algo, 41))
        counters = algo.metrics.counters
        # Private: not learned from yet
        fresh = counters["num_env_steps_sampled"] - algo.trainee.queue.num_steps
        assert counters["num_env_steps_trained"] == 41 * 80
        assert abs(fresh - 41 * 40) <= 40 * (1 + num_workers)
        assert told["policy_lag_max"] >= 1
        for batch in watched.batches:
            goes_on = np.flatnonzero(batch[sb.LOSS_MASK] & ~batch[sb.TERMINATEDS])
            np.testing.assert_array_equal(batch[sb.OBS][goes_on + 1, 0], batch[sb.OBS][goes_on, 0] + 1)


def test_what_is_kept_is_forgotten_when_another_state_is_taken_over(tmp_path):
    """Fragments of weights that are newer than the restored ones would have a negative lag."""
    more = {"replay_proportion": 1.0, "replay_buffer_num_slots": 4, "minibatch_buffer_size": 2, "num_sgd_iter": 2}
    with build(IMPALAConfig, num_workers=1, num_envs=2, **more) as algo:
        train(algo, 1)
        algo.save(tmp_path / "saved")
        train(algo, 6)
        algo.restore(tmp_path / "saved")
        lags = [learner_stats(algo.train()) for _ in range(6)]
        assert min(told["policy_lag_mean"] for told in lags) >= 0
        assert max(told["policy_lag_max"] for told in lags) <= 7


@pytest.mark.parametrize("learner", ["numpy", "torch"])
def test_the_next_batch_may_be_staged_while_one_is_learned_from(learner, monkeypatch):
    """As with a GPU, where the transfer then goes on beside the computing; here it only must change nothing."""
    with build(IMPALAConfig, CountingEnv, num_workers=1, learner=learner) as algo:
        algo.stages_ahead = True  # otherwise on a GPU alone
        watched, staged = Watched(algo), []
        stage = algo.learner.stage
        monkeypatch.setattr(algo.learner, "stage", lambda batch: (staged.append(batch), stage(batch)))
        # Whether the next batch is there while one is learned from, is chance; more so on a busy machine.
        for _ in range(500):
            requests = [member.pending[0][1] for member in algo.workers.fleet.members.values() if member.pending]
            runtime.wait(requests, timeout=1.0)
            train(algo, 1)
            if len(staged) > 10:
                break
        assert len(staged) > 10
        # None is lost or used twice.
        learned = [id(batch) for batch in watched.batches]
        assert len(set(learned)) == len(learned)
        assert all(id(batch) in learned for batch in staged[:-1])
        assert all(batch.env_steps() == 160 for batch in watched.batches)


@needs_gpu
@BOTH
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_gpu_learns_what_the_cpu_learns(config_class, num_workers):
    """From the same data without workers; with them the next batch travels while one is learned from."""
    weights = []
    for num_gpus in (0, 1):
        config = (
            config_class()
            .environment(CountingEnv)
            .rollouts(num_rollout_workers=num_workers, num_envs_per_worker=4, rollout_fragment_length=20)
            .training(train_batch_size=80, lr=1e-3, gamma=0.9, model={"fcnet_hiddens": [32, 32]})
            .resources(num_gpus=num_gpus)
            .reporting(min_time_s_per_iteration=None)
            .debugging(seed=5)
        )
        with config.build() as algo:
            result = train(algo, 20)
            assert result["num_env_steps_trained"] == 20 * 80
            weights.append(algo.policy.weights.copy())
    if not num_workers:
        np.testing.assert_allclose(*weights, atol=1e-4)


@pytest.mark.parametrize("opt_type", ["sgd", "adam"])
def test_impala_with_one_synchronous_actor_is_a2c(opt_type):
    """CORRECTNESS 4.6: V-trace on the weights that acted is GAE(1) + V; IMPALA's value loss is half A2C's."""
    weights = []
    for config_class, vf_loss_coeff in ((IMPALAConfig, 0.5), (A2CConfig, 0.25)):
        config = (
            config_class()
            .environment("CartPole-v1")
            .rollouts(num_rollout_workers=0, num_envs_per_worker=4, rollout_fragment_length=10)
            .training(
                train_batch_size=40,
                lr=1e-3,
                gamma=0.95,
                lambda_=1.0,
                grad_clip=0.5,
                vf_loss_coeff=vf_loss_coeff,
                entropy_coeff=0.01,
                opt_type=opt_type,
                model={"fcnet_hiddens": [16]},
            )
            .reporting(min_time_s_per_iteration=None)
            .debugging(seed=3)
        )
        with config.build() as algo:
            train(algo, 20)
            weights.append(algo.policy.weights.copy())
    np.testing.assert_allclose(*weights, atol=1e-5)


@pytest.mark.parametrize("count_steps_by", ["env_steps", "agent_steps"])
@pytest.mark.parametrize("policies", ["shared", "own"])
@pytest.mark.parametrize("config_class", [IMPALAConfig, APPOConfig])
def test_a_train_batch_of_several_agents_fills_by_steps(config_class, policies, count_steps_by):
    """As that of PPO does: 40 steps of two agents are 80 rows, or 40 rows are 20 steps."""
    config = config_class().environment(BasicMultiAgent).multi_agent(policies=policies, count_steps_by=count_steps_by)
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=10)
    config.training(train_batch_size=40, model={"fcnet_hiddens": [8]})
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=40)
    with config.build() as algo:
        result = algo.train()
        assert result["num_env_steps_trained"] == (40 if count_steps_by == "env_steps" else 20)
        assert result["num_agent_steps_trained"] == 2 * result["num_env_steps_trained"]
        assert algo.num_updates == len(algo.policies)
