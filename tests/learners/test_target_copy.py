"""Copies of weights that follow them."""

import numpy as np
import pytest
from learner_support import make_policy

from rllib.learners.learner import make_learner
from rllib.learners.updates.target_copy import TargetCopy
from rllib.losses.ppo import PPO_LOSS


def make(tau=1.0, every=1):
    source = np.arange(4, dtype=np.float32)
    target = TargetCopy("policy", tau, every)
    target.attach(source)
    return target, source


def test_it_begins_as_a_copy():
    target, source = make()
    source += 1
    np.testing.assert_array_equal(target.weights, [0, 1, 2, 3])


def test_it_moves_when_the_clock_has_gone_on_far_enough():
    target, source = make(every=3)
    source += 1
    assert [target.follow(now) for now in (1, 2, 3, 4, 5, 6, 9, 11, 12)] == [
        *(False, False, True, False, False, True, True, False, True)
    ]


def test_tau_is_the_share_of_the_way():
    target, source = make(tau=0.25)
    source += 4
    target.follow(1)
    np.testing.assert_array_equal(target.weights, [1, 2, 3, 4])


def test_a_move_is_the_formula_to_the_bit():
    """In parts, of which the last is shorter."""
    rng, tau = np.random.default_rng(0), np.float32(0.005)
    source, before = rng.standard_normal((2, 100_001)).astype(np.float32)
    target = TargetCopy("policy", 0.005)
    target.attach(source)
    memory = target.weights
    memory[:] = before
    assert target.follow(1)
    assert target.weights is memory
    np.testing.assert_array_equal(memory, (1 - tau) * before + tau * source)


def test_a_whole_copy_forgets_what_was_not_finite():
    target, source = make()
    target.weights[:] = np.nan
    assert target.follow(1)
    np.testing.assert_array_equal(target.weights, source)


def test_the_memory_stays():
    target, source = make(tau=1.0)
    memory = target.weights
    source += 1
    target.follow(1)
    assert target.weights is memory and memory is not source


@pytest.mark.parametrize(("tau", "every"), [(-0.1, 1), (1.5, 1), (0.5, 0)])
def test_numbers_out_of_range_are_refused(tau, every):
    with pytest.raises(ValueError, match=r"tau must be within 0 \.\.\. 1 and every at least 1"):
        TargetCopy("policy", tau, every)


def test_a_learner_saves_its_targets():
    policies = [make_policy(seed=seed) for seed in (0, 1)]
    learners = [make_learner(policy, PPO_LOSS, targets=[TargetCopy("policy", 0.5, 2)]) for policy in policies]
    first, second = (learner.targets["policy"] for learner in learners)
    learners[0].weights[:] = 3
    assert learners[0].update_targets(2)
    learners[1].set_state(learners[0].get_state())
    np.testing.assert_array_equal(second.weights, first.weights)
    assert [learner.update_targets(3) for learner in learners] == [False, False]
    with pytest.raises(ValueError, match="the learner's state has"):
        make_learner(make_policy(), PPO_LOSS).set_state(learners[0].get_state())


def test_a_policy_that_computes_on_a_device_follows_there():
    source, target = make_policy(), TargetCopy("policy")
    target.attach(source.weights, source.spec)
    target.act_on("cpu")
    rows = np.random.default_rng(0).standard_normal((5, *source.spec.encoder.shape)).astype(np.float32)
    for _ in range(2):
        source.weights[:] *= np.float32(0.5)
        assert not np.allclose(target.policy.dist_inputs(rows), source.dist_inputs(rows), atol=1e-5)
        target.follow(target._moved_at + 1)
        np.testing.assert_allclose(target.policy.dist_inputs(rows), source.dist_inputs(rows), atol=1e-6)
    state = target.get_state()
    source.weights[:] *= np.float32(0.5)
    target.set_state({**state, "weights": source.weights})
    np.testing.assert_allclose(target.policy.dist_inputs(rows), source.dist_inputs(rows), atol=1e-6)
