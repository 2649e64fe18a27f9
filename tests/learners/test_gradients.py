"""Gradients apart from steps: computed here, applied there, summed up over microbatches."""

import numpy as np
import pytest
from learner_support import ACTION_SPACES, SETTINGS, make_batch, make_policy

from rllib import sample_batch as sb
from rllib.errors import LearnerError
from rllib.learners.learner import make_learner
from rllib.learners.updates.objective import Objective
from rllib.learners.updates.optimizers import OptimizerSettings
from rllib.losses.policy_gradient import POLICY_GRADIENT_LOSS
from rllib.losses.ppo import PPO_LOSS

KINDS = ["numpy", "torch"]
LOSS = {"vf_loss_coeff": 0.5, "entropy_coeff": 0.01}


def make(kind, loss=POLICY_GRADIENT_LOSS, action_space=ACTION_SPACES[0], optimizer="rmsprop", **settings):
    objective = Objective(loss, optimizer=OptimizerSettings(optimizer), **{"grad_clip": 0.5, **settings})
    return make_learner(make_policy(action_space), objective, kind=kind)


def update(learner, batch, **settings):
    return learner.update(batch, rng=np.random.default_rng(0), lr=1e-2, **{**LOSS, **settings})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "sgd"])
def test_computing_and_applying_is_updating(kind, optimizer):
    whole, parts = make(kind, optimizer=optimizer), make(kind, optimizer=optimizer)
    for seed in range(5):
        batch = make_batch(whole.policy, 50, seed)
        stats = update(whole, batch, shuffle=False)
        before = parts.weights.copy()
        gradient, computed = parts.compute_gradient(batch, **LOSS)
        np.testing.assert_array_equal(parts.weights, before)
        norm = parts.apply_gradient(gradient, lr=1e-2)
        assert stats == {**computed, "num_minibatches": 1}
        assert norm == pytest.approx(computed["grad_gnorm"], rel=1e-6)
        np.testing.assert_array_equal(parts.weights, whole.weights)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("action_space", ACTION_SPACES, ids=str)
@pytest.mark.parametrize("microbatch_size", [1, 7, 25, 49])
def test_microbatches_are_the_whole_batch(kind, action_space, microbatch_size):
    whole, parts = make(kind, action_space=action_space), make(kind, action_space=action_space)
    batch = make_batch(whole.policy, 50)
    expected, stats = whole.compute_gradient(batch, **LOSS)
    gradient, of_parts = parts.compute_gradient(batch, microbatch_size=microbatch_size, **LOSS)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    del stats["vf_explained_var"], of_parts["vf_explained_var"]  # no mean over rows
    assert of_parts == pytest.approx(stats, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_microbatches_of_minibatches(kind):
    """With plain descent: RMSprop's first step follows the sign, so that it would blow up the rounding."""
    whole, parts = (make(kind, PPO_LOSS, optimizer="sgd") for _ in range(2))
    batch = make_batch(whole.policy, 50)
    stats = update(whole, batch, minibatch_size=20, num_epochs=2, **SETTINGS)
    of_parts = update(parts, batch, minibatch_size=20, num_epochs=2, microbatch_size=6, **SETTINGS)
    assert stats["num_minibatches"] == of_parts["num_minibatches"] == 6
    np.testing.assert_allclose(parts.weights, whole.weights, atol=1e-6)


@pytest.mark.parametrize("action_space", ACTION_SPACES, ids=str)
def test_numpy_and_torch_agree(action_space):
    learners = [make(kind, action_space=action_space) for kind in KINDS]
    batch = make_batch(learners[0].policy, 64)
    (ours, stats), (reference, of_reference) = (learner.compute_gradient(batch, **LOSS) for learner in learners)
    np.testing.assert_allclose(ours, reference, atol=1e-6)
    assert stats == pytest.approx(of_reference, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_is_a_copy_and_clipped_when_it_is_applied(kind):
    learner = make(kind, optimizer="sgd", grad_clip=0.1)
    batch = make_batch(learner.policy, 50)
    gradient, stats = learner.compute_gradient(batch, **LOSS)
    assert stats["grad_gnorm"] > 0.1
    kept, before = gradient.copy(), learner.weights.copy()
    learner.apply_gradient(gradient, lr=1.0)
    np.testing.assert_array_equal(gradient, kept)
    assert np.linalg.norm(learner.weights - before) == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_gradient_is_refused(kind):
    learner = make(kind)
    with pytest.raises(ValueError, match="weights"):
        learner.apply_gradient(np.zeros(3, np.float32), lr=0.1)
    before = learner.weights.copy()
    with pytest.raises(LearnerError, match="not finite"):
        learner.apply_gradient(np.full_like(learner.weights, np.nan), lr=0.1)
    np.testing.assert_array_equal(learner.weights, before)
    batch = make_batch(learner.policy, 20)
    batch[sb.ADVANTAGES][3] = np.nan
    with pytest.raises(LearnerError, match=sb.ADVANTAGES):
        learner.compute_gradient(batch, microbatch_size=8, **LOSS)
    with pytest.raises(ValueError, match="microbatch_size=0"):
        learner.compute_gradient(batch, microbatch_size=0, **LOSS)
