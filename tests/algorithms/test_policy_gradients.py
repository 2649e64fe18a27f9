"""PG, A2C and A3C as a user meets them: what they are equal to, what they report, and what they refuse."""

import numpy as np
import pytest

from rllib import A2CConfig, A3CConfig, Algorithm, APPOConfig, DefaultCallbacks, IMPALAConfig, PGConfig, PPOConfig
from rllib import sample_batch as sb
from tests.algorithms.algorithm_support import learner_stats
from tests.envs import HundredReward, InfiniteHorizon

MODEL = {"model": {"fcnet_hiddens": [16], "vf_share_layers": True}}
SHARED = {"lr": 1e-3, "gamma": 0.95, "lambda_": 0.9, "vf_loss_coeff": 0.5, "entropy_coeff": 0.01, "grad_clip": 0.5}
CONFIGS = [PGConfig, A2CConfig, A3CConfig]


def config(config_class, env="CartPole-v1", num_workers=0, num_envs=4, fragment=10, env_config=None, **training):
    config = config_class().environment(env, env_config=env_config or {}).debugging(seed=3)
    whole = {"batch_mode": "complete_episodes"}
    rollouts = whole if config_class is PGConfig else {"rollout_fragment_length": fragment}
    if config_class not in (PGConfig, A3CConfig):
        training = {"train_batch_size": fragment * num_envs * max(num_workers, 1), **training}
    return (
        config.rollouts(num_rollout_workers=num_workers, num_envs_per_worker=num_envs, **rollouts)
        .training(**{**MODEL, **training})
        .reporting(min_time_s_per_iteration=None)
    )


def trained(iterations: int, config) -> np.ndarray:
    with config.build() as algo:
        for _ in range(iterations):
            algo.train()
        return algo.policy.weights.copy()


class LogProbabilitiesOfTheLearner(DefaultCallbacks):
    """Acting on a few rows rounds otherwise than learning on many; here the ratio of the two is one to the bit."""

    def on_learn_on_batch(self, *, policy, train_batch, **kwargs):
        dist_inputs, _ = policy.network.forward(policy.encode(train_batch[sb.OBS], policy.new_inputs(40)))
        train_batch[sb.ACTION_LOGP] = policy.log_prob(dist_inputs, train_batch[sb.ACTIONS])


@pytest.mark.parametrize("opt_type", ["adam", "rmsprop"])
def test_ppo_of_one_epoch_is_a2c(opt_type):
    """arXiv:2205.09123. 20 updates, equal to the bit."""
    ppo = config(
        PPOConfig,
        sgd_minibatch_size=40,
        num_sgd_iter=1,
        kl_coeff=0.0,
        vf_clip_param=None,
        standardize_advantages=False,
        shuffle_sequences=False,
        opt_type=opt_type,
        **SHARED,
    ).callbacks(LogProbabilitiesOfTheLearner)
    a2c = config(A2CConfig, opt_type=opt_type, **SHARED).callbacks(LogProbabilitiesOfTheLearner)
    np.testing.assert_array_equal(trained(20, ppo), trained(20, a2c))


@pytest.mark.parametrize("standardize_advantages", [False, True])
def test_a3c_with_one_worker_is_a2c(standardize_advantages):
    shared = {**SHARED, "standardize_advantages": standardize_advantages}
    a3c = config(A3CConfig, num_workers=1, max_requests_in_flight_per_sampler_worker=1, **shared)
    weights = [trained(20, each) for each in (config(A2CConfig, num_workers=1, **shared), a3c)]
    np.testing.assert_allclose(weights[1], weights[0], atol=1e-6)


def test_a_minibatch_of_all_rows_is_the_batch_where_advantages_are_standardised():
    one_each = {"sgd_minibatch_size": 40, "num_sgd_iter": 2, "lr": 1e-3, "opt_type": "sgd"}
    by_batch, by_minibatch, as_they_are = (
        trained(3, config(PPOConfig, standardize_advantages=how, **one_each)) for how in (True, "minibatch", False)
    )
    np.testing.assert_allclose(by_minibatch, by_batch, atol=1e-6)
    assert abs(as_they_are - by_batch).max() > 1e-4


@pytest.mark.parametrize("kind", [PGConfig, A2CConfig, IMPALAConfig, APPOConfig])
def test_standardised_advantages_are_another_update(kind):
    plain, standardized = (
        trained(2, config(kind, standardize_advantages=how, opt_type="sgd")) for how in (False, "minibatch")
    )
    assert abs(plain - standardized).max() > 1e-6


def test_a3c_without_workers_is_a2c_and_says_so(caplog):
    weights = [trained(20, config(kind, **SHARED)) for kind in (A2CConfig, A3CConfig)]
    np.testing.assert_allclose(weights[1], weights[0], atol=1e-6)
    assert "num_rollout_workers=0 runs synchronously" in caplog.text


@pytest.mark.parametrize("kind", [A2CConfig, A3CConfig])
def test_microbatches_are_the_whole_batch(kind):
    # Plain descent: Adam's first steps follow the signs of gradients, which rounding may turn where they are zero.
    settings = {**SHARED, "opt_type": "sgd"}
    weights = [trained(20, config(kind, microbatch_size=size, **settings)) for size in (None, 12)]
    np.testing.assert_allclose(weights[1], weights[0], atol=1e-6)


@pytest.mark.parametrize("kind", CONFIGS)
def test_result(kind):
    with config(kind, num_workers=0 if kind is PGConfig else 2).build() as algo:
        for _ in range(3):
            result = algo.train()
    names = {"cur_lr", "entropy_coeff", "policy_entropy", "policy_loss", "total_loss", "grad_gnorm"}
    critic = {"vf_loss", "vf_explained_var"} if kind is not PGConfig else set()
    assert names | critic <= learner_stats(result).keys()
    assert learner_stats(result)["policy_lag_updates"] <= learner_stats(result).get("policy_lag_updates_max", 0.0)
    assert result["num_env_steps_trained"] == result["num_env_steps_sampled"] > 0
    assert result["training_iteration"] == 3
    assert (result["num_in_flight_async_reqs"] > 0) == (kind is A3CConfig)


def test_lag_of_a3c_is_bounded_by_what_is_in_flight():
    requests = {"max_requests_in_flight_per_sampler_worker": 3}
    with config(A3CConfig, num_workers=1, **requests).build() as algo:
        lags = [learner_stats(algo.train())["policy_lag_updates_max"] for _ in range(20)]
        assert algo.train()["num_in_flight_async_reqs"] <= 3
    assert max(lags) == 2


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_restored_run_goes_on(kind, tmp_path):
    with config(kind).build() as algo:
        for _ in range(3):
            algo.train()
        path = algo.save(tmp_path / "checkpoint")
        with Algorithm.from_checkpoint(path) as restored:
            np.testing.assert_array_equal(restored.policy.weights, algo.policy.weights)
            assert restored.train()["training_iteration"] == 4


def test_a3c_with_workers_takes_over_a_checkpoint_while_requests_are_in_flight(tmp_path):
    with config(A3CConfig, num_workers=2).build() as algo:
        algo.train()
        path = algo.save(tmp_path / "checkpoint")
        saved = algo.policy.weights.copy()
        for _ in range(5):
            algo.train()
        algo.restore(path)
        np.testing.assert_array_equal(algo.policy.weights, saved)
        assert learner_stats(algo.train())["policy_lag_updates"] >= 0


def test_returns_without_a_critic_are_rewards_to_go():
    with config(PGConfig, HundredReward, env_config={"length": 3}, gamma=0.5).build() as algo:
        batch = algo.sample(24)
        assert not batch[sb.VF_PREDS].any()
        assert sorted(set(batch[sb.ADVANTAGES].tolist())) == [100.0, 150.0, 175.0]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_pg_learns_where_episodes_never_end(num_workers):
    """The reward is 1 a step, so rewards to go are the steps that are left of the fragment."""
    endless = PGConfig().environment(InfiniteHorizon, env_config={"length": 10**9})
    endless.rollouts(num_rollout_workers=num_workers).training(train_batch_size=24, gamma=1.0)
    with endless.build() as algo:
        num_fragments = max(num_workers, 1)
        returns = sorted(algo.sample(24)[sb.ADVANTAGES].tolist())
        assert returns == sorted([*range(1, 24 // num_fragments + 1)] * num_fragments)
        assert algo.train()["num_env_steps_trained"] >= 24


def test_without_a_critic_the_value_head_stays():
    settings = {"use_critic": False, "use_gae": False}
    with config(A2CConfig, **settings).build() as algo:
        head = algo.policy.parameters()["value.head.weight"]
        before = head.copy()
        algo.train()
        np.testing.assert_array_equal(head, before)


@pytest.mark.parametrize("kind", CONFIGS)
def test_observation_filters_are_merged(kind):
    with config(kind, num_workers=1).rollouts(observation_filter="MeanStdFilter").build() as algo:
        algo.train()
        assert algo.train()["num_env_steps_sampled"] > 0
        assert abs(algo.policy.filter(np.ones((1, 4), np.float32))).max() > 1


@pytest.mark.parametrize(
    ("config_", "message"),
    [
        (A2CConfig().training(microbatch_size=64), "microbatch_size=64 and train_batch_size=32"),
        (A2CConfig().training(use_critic=False), "use_gae=True needs use_critic"),
        (A2CConfig().training(opt_type="adagrad"), "opt_type='adagrad'"),
        (A2CConfig().training(model={"fcnet_hidens": [8]}), "fcnet_hidens"),
        (A3CConfig().training(max_requests_in_flight_per_sampler_worker=0), "must be an integer >= 1"),
    ],
)
def test_what_does_not_fit_is_refused(config_, message):
    with pytest.raises(ValueError, match=message):
        config_.environment("CartPole-v1").build()


def test_rays_sample_async_is_what_a3c_does():
    A3CConfig().update_from_dict({"sample_async": True})
    with pytest.raises(TypeError, match=r"sample_async=False cannot be used: .*A3C always"):
        A3CConfig().rollouts(sample_async=False)
    with pytest.raises(TypeError, match="sample_async=True cannot be used"):
        A2CConfig().update_from_dict({"sample_async": True})


@pytest.mark.parametrize("config_class", [PPOConfig, A2CConfig, A3CConfig, IMPALAConfig, APPOConfig])
def test_each_term_of_the_loss_has_its_coefficient_and_sign(config_class):
    coefficients = {"vf_loss_coeff": 0.3, "entropy_coeff": 0.7}
    if issubclass(config_class, PPOConfig | APPOConfig):
        coefficients |= {"kl_coeff": 1.7, "use_kl_loss": True, "num_sgd_iter": 2}
    if config_class is PPOConfig:
        coefficients["sgd_minibatch_size"] = 40
    with config(config_class, **{**SHARED, "lr": 0.05, **coefficients}, num_workers=0).build() as algo:
        stats = learner_stats(algo.train())
    terms = stats["policy_loss"] + 0.3 * stats["vf_loss"] - 0.7 * stats.get("entropy", stats.get("policy_entropy"))
    assert stats["vf_loss"] > 0 and stats["policy_loss"] != 0
    if "kl_coeff" in coefficients:
        assert stats["cur_kl_coeff"] == 1.7 and stats["kl"] > 0
        terms += 1.7 * stats["kl"]
    assert stats["total_loss"] == pytest.approx(terms, rel=1e-4)


@pytest.mark.parametrize("config_class", [PPOConfig, APPOConfig])
def test_kl_coefficient_follows_the_divergence_that_it_led_to(config_class):
    """Learning rates on both sides of the target; a coefficient follows from the divergence before it."""
    seen = set()
    for lr in (1e-5, 3e-3, 0.05):
        settings = {**SHARED, "lr": lr, "kl_coeff": 0.4, "use_kl_loss": True, "num_sgd_iter": 4}
        if config_class is PPOConfig:
            settings["sgd_minibatch_size"] = 40
        with config(config_class, **settings, num_workers=0).build() as algo:
            stats = learner_stats(algo.train())
            assert stats["cur_kl_coeff"] == 0.4
            for _ in range(3):
                ratio = stats["kl"] / algo.config.kl_target
                factor = 1.5 if ratio > 2 else 0.5 if ratio < 0.5 else 1.0
                seen.add(factor)
                before, stats = stats["cur_kl_coeff"], learner_stats(algo.train())
                assert stats["cur_kl_coeff"] == pytest.approx(factor * before)
    assert {0.5, 1.5} <= seen
