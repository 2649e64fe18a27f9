"""A learning rate that follows the KL: the sequence of rates, in every learner, in results and in checkpoints."""

import json

import numpy as np
import pytest

from rllib import APPOConfig, PPOConfig
from rllib.learners.learner import make_learner
from rllib.learners.updates.adaptive_rate import AdaptiveRate
from rllib.learners.updates.objective import Objective
from rllib.learners.updates.optimizers import OptimizerSettings
from rllib.losses.ppo import PPO_LOSS
from tests.algorithms.algorithm_support import learner_stats
from tests.learners.learner_support import SETTINGS, make_batch, make_policy
from tests.learners.test_torch_options import Replays

FOLLOWING = {"type": "kl_adaptive", "initial": 1e-3, "desired_kl": 0.01}
RATE = AdaptiveRate.from_setting(FOLLOWING)


def after(*kls: float, rate: AdaptiveRate = RATE) -> float:
    return rate.reading(("total_loss", "kl")).after([[0.0, kl] for kl in kls])


def test_the_rate_is_divided_multiplied_or_kept():
    assert after() == after(0.0) == after(0.5) == 1e-3  # the weights had not moved
    assert after(0.0, 0.0201) == pytest.approx(1e-3 / 1.5, rel=1e-12)
    assert after(0.0, 0.0049) == pytest.approx(1.5e-3, rel=1e-12)
    assert after(0.0, 0.02, 0.005, 0.01) == 1e-3
    assert after(0.0, 0.001, 0.001, 0.03, 0.01, 0.03, 0.03) == pytest.approx(1e-3 / 1.5, rel=1e-12)


def test_the_rate_stays_within_its_bounds():
    assert after(*[0.0] * 20) == 1e-2
    assert after(*[1.0] * 20) == 1e-5
    assert after(*[0.0] * 20, 1.0) == pytest.approx(1e-2 / 1.5, rel=1e-12)
    assert after(*[0.0] * 20, rate=AdaptiveRate(1e-3, 0.01, max_lr=2e-3)) == 2e-3
    assert after(*[1.0] * 20, rate=AdaptiveRate(1e-3, 0.01, min_lr=5e-4)) == 5e-4


def test_on_a_device_it_is_the_same():
    import torch

    for kl in (0.0, 0.004, 0.006, 0.01, 0.019, 0.021, 1.0):
        for rate in (1e-5, 1e-3, 1e-2):
            found = RATE.adapted_on_device(torch.tensor(rate), torch.tensor(kl))
            assert float(found) == pytest.approx(RATE.adapted(rate, kl), rel=1e-6)


def updated(kind: str, num_epochs: int, rate=RATE, optimizer="sgd", graphs=None, **settings):
    policy = make_policy()
    learner = make_learner(policy, Objective(PPO_LOSS, optimizer=OptimizerSettings(optimizer)), kind=kind)
    if graphs is not None:
        learner.backend.record_steps(graphs)
    given = {**SETTINGS, "num_epochs": num_epochs, "rng": np.random.default_rng(0), "lr": rate, **settings}
    found = learner.update(make_batch(policy, 64), **given)
    return policy.weights.copy(), found


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_steps_have_the_rates_that_follow(kind):
    """Steepest descent moves the weights by the rate times the gradient; sums of statistics give the newest step's."""
    rate = AdaptiveRate(0.02, 0.002, max_lr=1.0)
    start, expected, rates = make_policy().weights, 0.02, []
    moved, norms, kls = [start], [0.0], [0.0]
    for count in range(1, 13):
        weights, found = updated(kind, count, rate)
        moved.append(weights)
        norms.append(count * found["grad_gnorm"])
        kls.append(count * found["kl"])
        expected = rate.adapted(expected, kls[-1] - kls[-2]) if count > 1 else expected
        step = np.linalg.norm(moved[-1] - moved[-2]) / (norms[-1] - norms[-2])
        assert step == pytest.approx(expected, rel=2e-3)
        assert found["lr"] == pytest.approx(expected, rel=1e-6)
        rates.append(expected)
    assert rates[1] > 0.02 and rates[-1] < max(rates)


@pytest.mark.parametrize("stop", [None, ("kl", 0.02)])
def test_numpy_torch_and_recorded_steps_agree(stop):
    rate = AdaptiveRate(0.003, 0.002)
    weights, found = updated("numpy", 8, rate, "adam", minibatch_size=16, stop_above=stop)
    for graphs in (None, Replays()):
        others, same = updated("torch", 8, rate, "adam", graphs, minibatch_size=16, stop_above=stop)
        np.testing.assert_allclose(others, weights, atol=2e-4)
        assert same["lr"] == pytest.approx(found["lr"], rel=1e-6)
    assert found["lr"] != rate.initial


def test_a_loss_without_kl_is_refused():
    with pytest.raises(ValueError, match="needs a loss with the statistic kl"):
        RATE.reading(("total_loss",))


SMALL = {"train_batch_size": 128, "sgd_minibatch_size": 32, "num_sgd_iter": 3, "model": {"fcnet_hiddens": [16]}}


def config(**training) -> PPOConfig:
    made = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0, num_envs_per_worker=4)
    return made.training(**{**SMALL, "lr": FOLLOWING, **training}).debugging(seed=0)


def test_results_have_the_rate_and_checkpoints_continue_it(tmp_path):
    with config().build() as algo:
        rates = [learner_stats(algo.train())["cur_lr"] for _ in range(3)]
        path = algo.save(str(tmp_path))
        assert rates[0] != 1e-3
        state = algo.numbers()
        assert json.loads(json.dumps(state))["lr"] == {"default_policy": rates[-1]}
    with config().build() as resumed:
        resumed.restore(path)
        assert resumed.numbers()["lr"] == {"default_policy": rates[-1]}
        # Another iteration moves from there, by factors of 1.5.
        ratio = learner_stats(resumed.train())["cur_lr"] / rates[-1]
        power = np.log(ratio) / np.log(1.5)
        assert power == pytest.approx(round(power), abs=1e-6)
    with config(lr=5e-4).build() as fixed:
        fixed.restore(path)
        assert learner_stats(fixed.train())["cur_lr"] == 5e-4


@pytest.mark.parametrize(
    ("lr", "message"),
    [
        ({"type": "kl_adaptive", "desired_kl": 0.01}, "must have initial"),
        ({**FOLLOWING, "factor": 2.0}, "must have initial, desired_kl, min_lr, max_lr, not factor"),
        ({**FOLLOWING, "desired_kl": 0}, "must have a positive number as its 'desired_kl', not 0"),
        ({**FOLLOWING, "max_lr": 1e-4}, r"must have its initial=0.001 between min_lr=1e-05 and max_lr=0.0001"),
    ],
)
def test_wrong_settings_are_refused(lr, message):
    with pytest.raises(ValueError, match=message):
        config(lr=lr).validate()


def test_it_goes_with_no_schedule_and_with_ppo_alone():
    with pytest.raises(ValueError, match=r"the first follows the KL, the second the time\. Leave lr_schedule out"):
        config(lr_schedule=[[0, 1e-3], [1000, 0.0]]).validate()
    with pytest.raises(ValueError, match="only the lr of PPO follows the KL"):
        APPOConfig().environment("CartPole-v1").training(lr=FOLLOWING).validate()
    with pytest.raises(ValueError, match="only the lr of PPO follows the KL"):
        config(entropy_coeff=FOLLOWING).validate()
