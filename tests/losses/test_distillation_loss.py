"""Losses of a student: the closed form against gold numbers, finite differences and autograd."""

import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.losses.distillation import KINDS, NO_LOSS, STATS, DistillationTerm, TaughtLoss
from rllib.losses.ppo import PPO_LOSS
from rllib.models.distributions.bounded_mean import BoundedMeanGaussian
from rllib.models.distributions.product import Product
from rllib.models.distributions.squashed import SquashedGaussian
from rllib.models.distributions.standard import Categorical, DiagGaussian, MultiCategorical
from rllib.models.observations.masks import LOWEST

torch = pytest.importorskip("torch")

DISTRIBUTIONS = [
    Categorical(3),
    MultiCategorical((2, 3)),
    DiagGaussian((2,)),
    SquashedGaussian((2,)),
    BoundedMeanGaussian((2,)),
    Product((Categorical(3), DiagGaussian((2,)), MultiCategorical((2, 2)))),
]
LOGITS, STUDENT = [2.0, 0.0, -1.0], [0.5, 0.5, 0.0]
# Means (.4, -.2) and (.1, .1), standard deviations (.5, .3) and (1, .6)
GAUSSIAN, OWN = [0.4, -0.2, np.log(0.5), np.log(0.3)], [0.1, 0.1, 0.0, np.log(0.6)]


def term_of(kind, distribution, student, action, teacher=None, mask=None):
    """The term of one or several rows in float64, its agreement, and the gradient."""
    minibatch = {sb.TEACHER_ACTIONS: np.atleast_1d(action)}
    if teacher is not None:
        minibatch[sb.TEACHER_DIST_INPUTS] = np.atleast_2d(np.asarray(teacher, np.float64))
    if mask is not None:
        minibatch[sb.LOSS_MASK] = np.asarray(mask, bool)
    term = DistillationTerm(kind, teacher is not None)
    return minibatch, term, np.atleast_2d(np.asarray(student, np.float64))


# The numbers were computed by a program of its own, in float64 from the formulas.
@pytest.mark.parametrize(
    ("kind", "distribution", "student", "teacher", "action", "expected"),
    [
        ("kl", Categorical(3), STUDENT, LOGITS, [0], 0.45475850),
        ("reverse_kl", Categorical(3), STUDENT, LOGITS, [0], 0.56087074),
        ("auto", Categorical(3), STUDENT, LOGITS, [0], 0.97902513),
        ("huber", Categorical(3), STUDENT, LOGITS, [0], 0.97902513),
        ("log_prob", Categorical(3), STUDENT, LOGITS, [0], 0.95802009),
        ("auto", Categorical(3), STUDENT, None, [0], 0.95802009),
        ("kl", DiagGaussian((2,)), OWN, GAUSSIAN, [[0.4, -0.2]], 0.80629436),
        ("auto", DiagGaussian((2,)), OWN, GAUSSIAN, [[0.4, -0.2]], 0.09),
        ("huber", DiagGaussian((2,)), OWN, None, [[0.4, -0.2]], 0.045),
        ("huber", DiagGaussian((2,)), OWN, None, [[2.1, 0.1]], 0.75),
    ],
)
def test_gold_numbers(kind, distribution, student, teacher, action, expected):
    minibatch, term, inputs = term_of(kind, distribution, student, action, teacher)
    tensors = {name: torch.as_tensor(column) for name, column in minibatch.items()}
    assert term.torch(distribution, torch.as_tensor(inputs), tensors)[0].item() == pytest.approx(expected, abs=1e-8)
    if term.has_closed_form:
        assert term.gradient(distribution, inputs, minibatch)[0][0] == pytest.approx(expected, abs=1e-8)


def test_a_row_that_is_no_step_does_not_count():
    # -log_prob of the first choice is .2, .4, 9, .1 and .3 in these rows, of which the third is no step.
    losses = np.array([0.2, 0.4, 9, 0.1, 0.3])
    inputs = np.stack([-losses, np.log1p(-np.exp(-losses))], 1)
    minibatch, term, inputs = term_of("log_prob", Categorical(2), inputs, [0] * 5, mask=[1, 1, 0, 1, 1])
    (value, _), gradient = term.gradient(Categorical(2), inputs, minibatch)
    assert value == pytest.approx(0.25, abs=1e-7)
    assert not gradient[2].any() and gradient[[0, 1, 3, 4]].all()
    tensors = {name: torch.as_tensor(column) for name, column in minibatch.items()}
    assert term.torch(Categorical(2), torch.as_tensor(inputs), tensors)[0].item() == pytest.approx(0.25, abs=1e-7)


def random_rows(distribution, rows=5, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    student, teacher = rng.normal(size=(2, rows, distribution.num_inputs)).astype(dtype)
    actions = distribution.sample(teacher.astype(np.float32), distribution.noise(rng, rows))
    columns = {sb.TEACHER_ACTIONS: actions, sb.TEACHER_DIST_INPUTS: teacher}
    return student, {**columns, sb.LOSS_MASK: np.array([True] * (rows - 1) + [False])}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_distribution", [False, True])
def test_closed_form_is_the_gradient(distribution, kind, has_distribution):
    term = DistillationTerm(kind, has_distribution)
    if (kind in ("kl", "reverse_kl") and not has_distribution) or not term.has_closed_form:
        pytest.skip("there is no such loss, or no closed form of it")
    student, minibatch = random_rows(distribution)
    tensors = {name: torch.as_tensor(column) for name, column in minibatch.items()}
    inputs = torch.as_tensor(student).requires_grad_()
    loss, statistics = term.torch(distribution, inputs, tensors)
    loss.backward()
    values, gradient = term.gradient(distribution, student, minibatch)
    np.testing.assert_allclose(values, [each.item() for each in statistics], rtol=1e-5)
    np.testing.assert_allclose(gradient, inputs.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_illegal_choices_add_nothing(kind):
    logits, student = np.array([[1.0, LOWEST, 0.0]], np.float32), np.array([[0.5, LOWEST, 1.5]], np.float32)
    minibatch = {sb.TEACHER_ACTIONS: np.array([0]), sb.TEACHER_DIST_INPUTS: logits}
    term = DistillationTerm(kind, has_distribution=True)
    legal = {sb.TEACHER_ACTIONS: np.array([0]), sb.TEACHER_DIST_INPUTS: logits[:, [0, 2]]}
    both = [
        term.torch(
            Categorical(inputs.shape[1]), torch.as_tensor(inputs), {n: torch.as_tensor(c) for n, c in of.items()}
        )
        for inputs, of in ((student, minibatch), (student[:, [0, 2]], legal))
    ]
    assert both[0][0].item() == pytest.approx(both[1][0].item(), abs=1e-6)
    if term.has_closed_form:
        (value, _), gradient = term.gradient(Categorical(3), student, minibatch)
        assert value == pytest.approx(both[0][0].item(), abs=1e-6)
        assert gradient[0, 1] == 0


def test_agreement():
    inputs = np.array([[1, 0], [0, 1], [0, 1], [1, 0]], np.float32)
    minibatch = {sb.TEACHER_ACTIONS: np.array([0, 0, 1, 0])}
    assert DistillationTerm("auto", False).gradient(Categorical(2), inputs, minibatch)[0][1] == 0.75
    # Of squashed actions it is the distance of tanh(u).
    squashed = SquashedGaussian((1,))
    inputs, minibatch = np.array([[0.3, 0]], np.float32), {sb.TEACHER_ACTIONS: np.array([[1.0]], np.float32)}
    found = DistillationTerm("auto", False).gradient(squashed, inputs, minibatch)[0][1]
    assert found == pytest.approx(np.tanh(1) - np.tanh(0.3), abs=1e-6)


def test_sum_with_the_loss_of_an_algorithm():
    """L = L_ppo + coefficient L_distill, in both forms, with all statistics."""
    distribution, rng = Categorical(3), np.random.default_rng(0)
    student, minibatch = random_rows(distribution, 6, dtype=np.float32)
    del minibatch[sb.LOSS_MASK]
    columns = (sb.ADVANTAGES, sb.VALUE_TARGETS, sb.VF_PREDS)
    minibatch |= {name: rng.normal(size=6).astype(np.float32) for name in columns}
    minibatch |= {sb.ACTIONS: rng.integers(3, size=6), sb.ACTION_DIST_INPUTS: student}
    minibatch[sb.ACTION_LOGP] = distribution.at(student).log_prob(minibatch[sb.ACTIONS])
    outputs = student, rng.normal(size=6).astype(np.float32)
    of_ppo = {"clip_param": 0.2, "kl_coeff": 0.1, "vf_loss_coeff": 0.5, "entropy_coeff": 0.01}
    term = DistillationTerm("auto", has_distribution=True)
    loss = TaughtLoss(PPO_LOSS, term)
    assert loss.stats == (*PPO_LOSS.stats, *STATS) and loss.by_newest_weights
    alone, gradients = PPO_LOSS.numpy(distribution, outputs, minibatch, **of_ppo)
    (added, _), gradient = term.gradient(distribution, student, minibatch)
    statistics, summed = loss.numpy(distribution, outputs, minibatch, teacher_coeff=0.25, **of_ppo)
    assert statistics[0] == pytest.approx(alone[0] + 0.25 * added, abs=1e-6)
    np.testing.assert_allclose(summed[0], gradients[0] + 0.25 * gradient, atol=1e-7)
    np.testing.assert_array_equal(summed[1], gradients[1])
    tensors = {name: torch.as_tensor(column) for name, column in minibatch.items()}
    total, of_torch = loss.torch(
        distribution, tuple(map(torch.as_tensor, outputs)), tensors, teacher_coeff=0.25, **of_ppo
    )
    assert total.item() == pytest.approx(statistics[0], abs=1e-6)
    np.testing.assert_allclose([each.item() for each in of_torch], statistics, atol=1e-6)
    assert loss.identity_error(distribution.at, outputs, minibatch) < 1e-6


def test_a_teacher_alone():
    student, minibatch = random_rows(DiagGaussian((2,)), dtype=np.float32)
    loss = TaughtLoss(NO_LOSS, DistillationTerm("auto", False))
    outputs = student, np.empty(0, np.float32)
    statistics, (gradient, of_values) = loss.numpy(DiagGaussian((2,)), outputs, minibatch, teacher_coeff=2.0)
    (term, agreement), alone = loss.term.gradient(DiagGaussian((2,)), student, minibatch)
    assert statistics == pytest.approx([2 * term, term, agreement])
    np.testing.assert_allclose(gradient, 2 * alone, rtol=1e-6)
    assert not len(of_values)
    tensors = {name: torch.as_tensor(column) for name, column in minibatch.items()}
    assert loss.torch(DiagGaussian((2,)), tuple(map(torch.as_tensor, outputs)), tensors, teacher_coeff=2.0)[0] > 0


def test_without_a_closed_form():
    assert TaughtLoss(PPO_LOSS, DistillationTerm("reverse_kl", True)).numpy is None
