"""Losses of algorithms for recorded data against vectors that were computed apart, in numpy and in torch."""

import numpy as np
import pytest
import torch

from rllib import sample_batch as sb
from rllib.losses.deterministic import TARGET_NOISE, cloning_actor_loss, critic_loss, regularised_actor_loss
from rllib.losses.offline import awac, cql, iql
from rllib.losses.offline.imitation import BehaviorCloning, ExponentiallyWeighted
from rllib.losses.offline.q_penalties import Conservative, LargeMargin
from rllib.losses.sac import NEXT_NOISE, NOISE
from rllib.losses.td import TDLoss
from rllib.models.distributions.bounded_mean import LOG_STD, BoundedMeanGaussian
from rllib.models.distributions.q_values import QValues
from rllib.models.distributions.squashed import BoundedSquashedGaussian, SquashedGaussian
from rllib.models.distributions.standard import Categorical, Deterministic, DiagGaussian


def f32(values):
    return np.array(values, np.float32)


class Given:
    """A network that computes what was given, for one call after the other, and notes its gradient."""

    def __init__(self, *results):
        self.results, self.calls, self.given = [f32(each) for each in results], 0, None
        self.weights = self.gradient = np.zeros(0, np.float32)

    def forward(self, *inputs):
        self.calls += 1
        return self.results[min(self.calls, len(self.results)) - 1]

    def backward(self, gradient):
        self.given = gradient[0] if isinstance(gradient, tuple) else gradient


class InTorch:
    """The same for tensors; `leaf` is the result that has a gradient, the last one."""

    def __init__(self, *results):
        self.results, self.calls = [torch.tensor(f32(each)) for each in results], 0
        self.leaf = self.results[-1].requires_grad_()

    def __call__(self, *inputs):
        self.calls += 1
        return self.results[min(self.calls, len(self.results)) - 1]


class Policy(InTorch):
    """The policy's function of observations, whose results are a pair."""

    def __call__(self, *inputs):
        return super().__call__(*inputs), None


class PolicyGiven(Given):
    def forward(self, *inputs):
        return super().forward(*inputs), None


def tensors(minibatch):
    return {name: torch.tensor(column) for name, column in minibatch.items()}


def both(loss, distribution, modules, minibatch, moved, **settings):
    """Statistics and the gradient of a loss over modules, in both forms; they have to agree."""
    in_numpy = {name: (PolicyGiven if name == "policy" else Given)(*given) for name, given in modules.items()}
    in_torch = {name: (Policy if name == "policy" else InTorch)(*given) for name, given in modules.items()}
    statistics = loss.numpy(distribution, in_numpy, minibatch, **settings)[0]
    value, torch_statistics, *_ = loss.torch(distribution, in_torch, tensors(minibatch), **settings)
    value.backward()
    gradient = in_numpy[moved].given
    np.testing.assert_allclose(gradient, in_torch[moved].leaf.grad, rtol=2e-5, atol=1e-7)
    np.testing.assert_allclose(statistics, [float(each.detach()) for each in torch_statistics], rtol=2e-5, atol=1e-6)
    return dict(zip(loss.stats, statistics)), gradient


# ---------------------------------------------------------------------- imitation


def of_outputs(loss, distribution, outputs, minibatch, **settings):
    """Statistics and gradients of a loss of outputs, in both forms."""
    statistics, gradients = loss.numpy(distribution, tuple(map(f32, outputs)), minibatch, **settings)
    leaves = [torch.tensor(f32(each), requires_grad=True) for each in outputs]
    value, torch_statistics = loss.torch(distribution, leaves, tensors(minibatch), **settings)
    value.backward()
    for gradient, leaf in zip(gradients, leaves):
        if leaf.numel():
            np.testing.assert_allclose(gradient, leaf.grad, rtol=2e-5, atol=1e-7)
    np.testing.assert_allclose(statistics, [float(each.detach()) for each in torch_statistics], rtol=2e-5, atol=1e-6)
    return dict(zip(loss.stats, statistics)), gradients


def test_cloning_of_choices():
    logits, actions = [[1, 0, -1], [0.5, 0.5, 2], [0, 3, 1]], np.array([0, 2, 1])
    stats, (gradient, _) = of_outputs(BehaviorCloning(), Categorical(3), (logits, []), {sb.ACTIONS: actions})
    assert stats["total_loss"] == pytest.approx(0.3154777065, rel=1e-5)
    expected = [
        [-0.1115863481, 0.081576157, 0.0300101911],
        [0.0514269243, 0.0514269243, -0.1028538487],
        [0.0140033554, -0.0520684218, 0.0380650665],
    ]
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)


GAUSSIAN = [[0.5, -0.25, -1, 0], [0, 1, 0.5, -0.5]]


def test_cloning_of_numbers():
    minibatch = {sb.ACTIONS: f32([[0.3, 0.1], [-0.5, 0.9]])}
    stats, _ = of_outputs(BehaviorCloning(), DiagGaussian((2,)), (GAUSSIAN, []), minibatch)
    assert stats["total_loss"] == pytest.approx(1.472180797, rel=1e-5)
    # The mean logarithm of a standard deviation is the entropy over the number of components, but for a constant.
    more, _ = of_outputs(BehaviorCloning(0.3 / 2), DiagGaussian((2,)), (GAUSSIAN, []), minibatch)
    constant = 0.5 * np.log(2 * np.pi * np.e)
    mean_log_std = np.mean([-0.5, 0.0])
    assert more["total_loss"] == pytest.approx(1.472180797 - 0.3 * (mean_log_std + constant), rel=1e-5)


def test_likelihood_of_squashed_actions():
    u = f32([[0.3095196042, 0.1003353477], [-0.5493061443, 1.4722194896]])
    log_probs = SquashedGaussian((2,)).at(f32(GAUSSIAN)).log_prob(u)
    np.testing.assert_allclose(log_probs, [-0.9289312318, -0.2480417772], rtol=1e-5)


MARWIL = [
    # norm before, rate, beta, vf_coeff -> norm, weights, policy loss, loss, gradient of the values
    (100, 1e-8, 1, 1, 99.999999015, [1.1051709185, 0.9048374177, 1, 1.2214027591], 0.8948907882, 1.6448907882),
    (2, 0.5, 1, 1, 1.75, [2.1295888657, 0.4695742057, 1, 4.535148737], 0.9969708781, 1.7469708781),
    (2, 0.5, 0.5, 0.5, 1.75, [1.4593110929, 0.6852548472, 1, 2.1295888657], 0.9069673201, 1.2819673201),
]


@pytest.mark.parametrize(("start", "rate", "beta", "vf_coeff", "norm", "weights", "policy_loss", "loss"), MARWIL)
def test_weighted_imitation(start, rate, beta, vf_coeff, norm, weights, policy_loss, loss):
    log_probs = f32([-0.5, -1, -2, -0.1])
    # Two choices, of which the first has these log-probabilities.
    logits = np.stack([log_probs, np.log1p(-np.exp(log_probs))], 1)
    minibatch = {sb.ACTIONS: np.zeros(4, int), sb.VALUE_TARGETS: f32([3, 1, 2, 5])}
    whole = ExponentiallyWeighted(beta, rate, limit=20)
    stats, (_, d_values) = of_outputs(
        whole, Categorical(2), (logits, [2, 2, 2, 3]), minibatch, norm=start, vf_coeff=vf_coeff
    )
    assert stats["moving_average_sqd_adv_norm"] == pytest.approx(norm, rel=1e-6)
    assert stats["mean_weight"] == pytest.approx(np.mean(weights), rel=1e-5)
    assert stats["policy_loss"] == pytest.approx(policy_loss, rel=1e-5)
    assert stats["total_loss"] == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(d_values, np.array([-0.25, 0.25, 0, -0.5]) * vf_coeff, rtol=1e-5)


def test_exponents_are_limited_and_counted():
    minibatch = {sb.ACTIONS: np.zeros(2, int), sb.VALUE_TARGETS: f32([1000, 0])}
    loss = ExponentiallyWeighted(1.0, 0.0, limit=2)
    stats, _ = of_outputs(loss, Categorical(2), ([[0, 0], [0, 0]], [0, 0]), minibatch, norm=100.0, vf_coeff=1.0)
    assert stats["limited_weights"] == 0.5
    assert stats["mean_weight"] == pytest.approx((np.exp(2) + 1) / 2, rel=1e-5)


def test_a_bounded_mean_is_a_gaussian_around_tanh():
    inputs = f32([[0.3, -2.0, -7, 0.5], [1.5, 0.1, 0.2, 3.0]])
    actions = f32([[0.5, -1], [1, 0.2]])
    plain = np.concatenate([np.tanh(inputs[:, :2]), np.clip(inputs[:, 2:], *LOG_STD)], 1)
    distribution = BoundedMeanGaussian((2,))
    np.testing.assert_allclose(
        distribution.at(inputs).log_prob(actions), DiagGaussian((2,)).at(plain).log_prob(actions), rtol=1e-6
    )
    assert np.abs(distribution.mode(inputs)).max() < 1
    of_outputs(BehaviorCloning(0.1), distribution, (inputs, []), {sb.ACTIONS: actions})


# ---------------------------------------------------------------------- IQL

IQL = {
    sb.OBS: f32([[0], [0], [0], [0]]),
    sb.NEXT_OBS: f32([[0], [0], [0], [0]]),
    sb.ACTIONS: f32([[0], [0], [0], [0]]),
    sb.REWARDS: f32([1, 0, -1, 0.5]),
    sb.DISCOUNTS: f32([0.99, 0.99, 0, 0.99]),
    sb.WEIGHTS: np.ones(4, np.float32),
}
JUDGED = [[1, 2, 0.5, 3], [1.5, 1, 1, 2.5]]
VALUES = [0.5, 1.2, 0.8, 1]


def test_the_value_is_fitted_to_an_expectile():
    modules = {"target_critics": [JUDGED], "value": [VALUES]}
    stats, gradient = both(iql.value_loss(0.7, is_discrete=False), BoundedMeanGaussian((1,)), modules, IQL, "value")
    assert stats["value_loss"] == pytest.approx(0.44725, rel=1e-5)
    np.testing.assert_allclose(gradient, [-0.175, 0.03, 0.045, -0.525], rtol=1e-5)


def test_critics_are_fitted_to_the_value():
    modules = {"value": [[0.4, 1, 0.2, 2]], "critics": [[[1.2, 1, 0, 2], [0.8, 1.5, -0.5, 2.2]]]}
    stats, _ = both(iql.critic_loss(is_discrete=False), BoundedMeanGaussian((1,)), modules, IQL, "critics")
    assert stats["critic_loss"] == pytest.approx(0.276579, rel=1e-5)


def test_recorded_actions_are_weighted_by_their_advantages():
    log_probs = f32([-0.2, -1, -3, -0.7])
    logits = np.stack([log_probs, np.log1p(-np.exp(log_probs))], 1)
    modules = {"target_critics": [JUDGED], "value": [VALUES], "policy": [logits]}
    minibatch = IQL | {sb.ACTIONS: np.zeros(4, int)}
    with_choices = {name: [np.stack([each, each], -1) for each in given] for name, given in modules.items()}
    modules["target_critics"] = with_choices["target_critics"]
    stats, _ = both(iql.actor_loss(3.0, is_discrete=True), Categorical(2), modules, minibatch, "policy")
    assert stats["actor_loss"] == pytest.approx(16.4192125849, rel=1e-5)
    weights = [4.4816890703, 0.5488116361, 0.4065696597, 90.0171313005]
    assert stats["mean_weight"] == pytest.approx(np.mean(weights), rel=1e-5)


@pytest.mark.parametrize(("expectile", "value"), [(0.5, 3.25), (0.7, 4.9375), (0.9, 7.75)])
def test_the_value_settles_at_the_expectile(expectile, value):
    loss, at = iql.value_loss(expectile, is_discrete=False), 0.0
    minibatch = IQL | {sb.OBS: np.zeros((4, 1), np.float32)}
    for _ in range(4000):
        network = Given(np.full(4, at))
        loss.numpy(BoundedMeanGaussian((1,)), {"target_critics": Given([[0, 1, 2, 10]]), "value": network}, minibatch)
        at -= 0.05 * float(network.given.sum())
    assert at == pytest.approx(value, abs=1e-3)


# ---------------------------------------------------------------------- AWAC


def test_awac_weighs_by_the_advantage_over_its_own_action():
    log_probs = f32([-1, -0.5, -2, -0.3])
    mean = np.sqrt(np.maximum(-2 * (log_probs + 0.5 * np.log(2 * np.pi)), 0))
    # Standard deviations of 1, or smaller where the log-probability is above that of the mean.
    log_std = np.minimum(0, -log_probs - 0.5 * np.log(2 * np.pi))
    inputs = np.stack([np.arctanh(np.clip(mean / 3, -0.99, 0.99)), log_std], 1)
    taken, own = [[0.5, -1, 2, 0], [9, 9, 9, 9]], [[0, 0, 0, 0], [9, 9, 9, 9]]
    modules = {"policy": [inputs], "critics": [taken, own]}
    minibatch = IQL | {sb.ACTIONS: np.zeros((4, 1), np.float32), NOISE: np.zeros((4, 1), np.float32)}
    stats, _ = both(awac.actor_loss(1.0), BoundedMeanGaussian((1,)), modules, minibatch, "policy")
    weights = [1.6487212707, 0.3678794412, 7.3890560989, 1]
    assert stats["mean_weight"] == pytest.approx(np.mean(weights), rel=1e-5)
    expected = BoundedMeanGaussian((1,)).at(f32(inputs)).log_prob(minibatch[sb.ACTIONS])
    assert stats["actor_loss"] == pytest.approx(-np.mean(weights * expected), rel=1e-5)


def test_awac_bootstraps_from_its_own_next_action():
    minibatch = IQL | {NEXT_NOISE: np.zeros((4, 1), np.float32)}
    modules = {
        "policy": [np.zeros((4, 2))],
        "target_critics": [[[1, 2, 3, 4], [2, 1, 4, 3]]],
        "critics": [[[1, 1, 1, 1], [0, 0, 0, 0]]],
    }
    stats, gradient = both(awac.CRITIC_LOSS, BoundedMeanGaussian((1,)), modules, minibatch, "critics")
    targets = IQL[sb.REWARDS] + IQL[sb.DISCOUNTS] * f32([1, 1, 3, 3])
    np.testing.assert_allclose(gradient, np.stack([1 - targets, -targets]) / 4, rtol=1e-5)
    assert stats["critic_loss"] == pytest.approx(0.5 * (((1 - targets) ** 2).mean() + (targets**2).mean()), rel=1e-5)


# ---------------------------------------------------------------------- CQL


class Drawn:
    """A distribution whose draws in s and s' have the given log-probabilities; actions are never read here."""

    size = 1
    action_shape = (1,)

    def for_critics(self, stored):
        return stored

    def __init__(self, *log_probs):
        self.log_probs, self.calls = [f32(each) for each in log_probs], 0

    def draw(self, inputs, noise):
        self.calls += 1
        log_prob = self.log_probs[self.calls - 1]

        class Draw:
            actions = np.zeros((log_prob.size, 1), np.float32)

        Draw.log_prob = log_prob
        return Draw

    def torch_draw(self, inputs, noise):
        draw = self.draw(inputs, noise)
        return torch.tensor(draw.actions), torch.tensor(draw.log_prob)


CQL_BATCH = {
    sb.OBS: f32([[0], [0]]),
    sb.NEXT_OBS: f32([[0], [0]]),
    sb.ACTIONS: f32([[0], [0]]),
    sb.REWARDS: f32([1.2, 0.3]),
    sb.DISCOUNTS: f32([0, 0]),
    sb.WEIGHTS: f32([1, 1]),
    NEXT_NOISE: f32([[0], [0]]),
    cql.UNIFORM: np.zeros((2, 2, 1), np.float32),
    cql.DRAWS: np.zeros((2, 2, 1), np.float32),
    cql.NEXT_DRAWS: np.zeros((2, 2, 1), np.float32),
}
# Values of the recorded action, then of uniform ones, of the policy's in s', and of the policy's in s.
JUDGED_ROWS = [[[1.2, 1, 2, 0.5, 0.7, 1.5, 1], [0.3, 0, -1, 1, 0, 0.5, 0.2]]]
LOG_PROBS = [[0, 0], [0.4, -0.6, 0, -0.3], [-0.2, 0.3, -1, 0.1]]


@pytest.mark.parametrize(
    ("temperature", "weight", "multiplier", "limit", "penalty", "term"),
    [
        (1.0, 5.0, 1.0, 0.0, 11.2436958066, 11.2436958066),
        (2.0, 1.0, 1.0, 0.0, 3.9176465952, 3.9176465952),
        (1.0, 5.0, 1.0, 5.0, 11.2436958066, 6.2436958066),
        (1.0, 5.0, 0.5, 1.0, 11.2436958066, 5.1218479033),
    ],
)
def test_values_outside_of_the_data_are_lowered(temperature, weight, multiplier, limit, penalty, term):
    found = []
    for form in ("numpy", "torch"):
        values = np.reshape(JUDGED_ROWS, (1, -1))
        given = {"policy": [np.zeros((2, 2))], "target_critics": [np.zeros((1, 2))], "critics": [values]}
        loss = cql.critic_loss(temperature, weight, deterministic_backup=True)
        settings = {"alpha": 1.0, "multiplier": multiplier, "limit": limit}
        if form == "numpy":
            modules = {name: (PolicyGiven if name == "policy" else Given)(*each) for name, each in given.items()}
            statistics, _ = loss.numpy(Drawn(*LOG_PROBS), modules, CQL_BATCH, **settings)
            gradient = modules["critics"].given
        else:
            modules = {name: (Policy if name == "policy" else InTorch)(*each) for name, each in given.items()}
            value, statistics, _ = loss.torch(Drawn(*LOG_PROBS), modules, tensors(CQL_BATCH), **settings)
            value.backward()
            gradient = modules["critics"].leaf.grad.numpy()
        stats = {name: float(each) for name, each in zip(loss.stats, statistics)}
        # The recorded values equal their targets, so that the penalty is all there is.
        assert stats["cql_penalty"] == pytest.approx(penalty, rel=1e-5)
        assert stats["critic_loss"] == pytest.approx(term, rel=1e-5)
        found.append(gradient.reshape(2, 7))
    np.testing.assert_allclose(*found, rtol=2e-5, atol=1e-6)
    if (temperature, multiplier) == (1.0, 1.0):
        np.testing.assert_allclose(found[0][:, 0], [-2.5, -2.5], rtol=1e-5)
        expected = [
            [0.418495385, 1.1375884005, 0.0850737632, 0.2824548407, 0.4213731074, 0.1550145033],
            [0.4035265148, 0.1484491088, 0.5484493963, 0.2723519101, 0.9042401856, 0.2229828844],
        ]
        np.testing.assert_allclose(found[0][:, 1:], expected, rtol=2e-5)


def test_values_of_choices_outside_of_the_data_are_lowered():
    values = torch.tensor([[1.0, 2, 0], [0.5, 0.5, 3]], requires_grad=True)
    minibatch = {sb.ACTIONS: torch.tensor([1, 0]), sb.TD_TARGETS: torch.tensor([2.0, 0.5]), sb.WEIGHTS: torch.ones(2)}
    loss, statistics, _ = Conservative(TDLoss(), 1.0).torch(QValues(3, dueling=False), (values, None), minibatch)
    loss.backward()
    # The values of the recorded actions equal their targets, so that the penalty is all there is.
    assert float(loss.detach()) == pytest.approx(1.5298071744, rel=1e-6)
    assert float(statistics[-1].detach()) == pytest.approx(1.5298071744, rel=1e-6)
    expected = [[0.1223642355, -0.1673795221, 0.0450152866], [-0.4647452697, 0.0352547303, 0.4294905393]]
    np.testing.assert_allclose(values.grad, expected, rtol=1e-5)


def test_demonstrated_choices_are_worth_more_by_the_margin():
    """By hand, of Q = [1, 2, 0], [0.5, 0.5, 3], [2, 0, 1] with the actions 1, 0, 0 and the margin 0.8.

    Row 0: the largest of 1.8, 2, 0.8 is the demonstrated one itself: 0. Row 1: max(0.5, 1.3, 3.8) - 0.5 = 3.3. The last
    row was sampled.
    """
    values = torch.tensor([[1.0, 2, 0], [0.5, 0.5, 3], [2, 0, 1]], requires_grad=True)
    minibatch = {sb.ACTIONS: torch.tensor([1, 0, 1]), sb.TD_TARGETS: torch.tensor([2.0, 0.5, 0])}
    minibatch |= {sb.WEIGHTS: torch.ones(3), sb.RECORDED: torch.tensor([1.0, 1, 0])}
    made = LargeMargin(TDLoss(), 0.5, margin=0.8)
    assert sb.RECORDED in made.columns and made.stats[-1] == "margin_loss"
    loss, statistics, _ = made.torch(QValues(3, dueling=False), (values, None), minibatch)
    loss.backward()
    # The values of the taken actions equal their targets, so that the margin is all there is.
    assert float(loss.detach()) == float(statistics[-1].detach()) == pytest.approx(0.5 * 3.3 / 3, rel=1e-6)
    expected = [[0, 0, 0], [-0.5 / 3, 0, 0.5 / 3], [0, 0, 0]]
    np.testing.assert_allclose(values.grad, expected, rtol=1e-5, atol=1e-7)


def test_the_conservative_actor_imitates_at_first():
    rng = np.random.default_rng(0)
    distribution, inputs = BoundedSquashedGaussian((2,)), rng.normal(size=(3, 4))
    minibatch = {
        sb.OBS: np.zeros((3, 1), np.float32),
        sb.ACTIONS: f32(rng.normal(size=(3, 2))) * 3,
        NOISE: f32(rng.normal(size=(3, 2))),
    }
    modules = {"policy": [inputs], "critics": [np.zeros((2, 3))]}
    loss = cql.CONSERVATIVE_ACTOR_LOSS
    stats, _ = both(loss, distribution, modules, minibatch, "policy", alpha=0.2, clones=True)
    drawn = distribution.draw(f32(inputs), minibatch[NOISE]).log_prob
    recorded = SquashedGaussian((2,)).at(f32(inputs)).log_prob(np.clip(minibatch[sb.ACTIONS], -3.8002, 3.8002))
    assert stats["actor_loss"] == pytest.approx((0.2 * drawn - recorded).mean(), rel=1e-4)


# ---------------------------------------------------------------------- TD3+BC


class WithInputs(Given):
    """A critic whose values are those of the actions it is given: the gradient of its input is the identity."""

    def forward(self, observations, actions):
        return np.stack([f32([10, -20, 30]), f32([0, 0, 0])])

    def input_gradient(self, gradient, name):
        self.given = gradient
        return np.zeros((3, 2), np.float32)


def test_the_actor_stays_close_to_recorded_actions():
    policy_actions = f32([[0.5, 0], [0.1, -0.2], [0.999, 0.999]])
    recorded = f32([[0.4, 0.1], [0, 0], [0.9, 1]])
    policy, critics = PolicyGiven(np.arctanh(policy_actions)), WithInputs()
    loss = cloning_actor_loss(l2=0.0)
    minibatch = {sb.OBS: np.zeros((3, 1), np.float32), sb.ACTIONS: recorded}
    ((value, cloning),) = loss.numpy(Deterministic((2,)), {"policy": policy, "critics": critics}, minibatch, alpha=2.5)
    expected = ((policy_actions - recorded) ** 2).mean()
    assert cloning == pytest.approx(expected, rel=1e-4)
    assert value == pytest.approx(expected - 0.125 * 20 / 3, rel=1e-4)
    np.testing.assert_allclose(critics.given[0], np.full(3, -0.125 / 3), rtol=1e-5)
    slopes = 1 - policy_actions**2
    np.testing.assert_allclose(policy.given, 2 / 6 * (policy_actions - recorded) * slopes, rtol=1e-3, atol=1e-7)
    assert TARGET_NOISE not in loss.columns


# ---------------------------------------------------------------------- ReBRAC


def test_targets_are_lowered_away_from_the_next_recorded_action():
    """By hand: 1 + 0.99 (5 - 0.05 * 0.02), 2 + 0.99 (6 - 0.05 * 0.01), 3."""
    drawn = f32([[0.3, 0], [0.1, 0], [0.6, 0.999]])
    minibatch = {
        **{name: np.zeros((3, 1), np.float32) for name in (sb.OBS, sb.NEXT_OBS)},
        sb.ACTIONS: np.zeros((3, 2), np.float32),
        sb.NEXT_ACTIONS: f32([[0.2, 0.1], [0, 0], [0.5, 0.9]]),
        sb.REWARDS: f32([1, 2, 3]),
        sb.DISCOUNTS: f32([0.99, 0.99, 0]),
        sb.WEIGHTS: np.ones(3, np.float32),
    }
    following = np.stack([f32([5, 6, 7]), f32([9, 6, 8])])
    modules = {"target_policy": [np.arctanh(drawn)], "target_critics": [following], "critics": [np.zeros((2, 3))]}
    loss = critic_loss(smooths_target=False, l2=0.0, huber=None, next_action_weight=0.05)
    assert sb.NEXT_ACTIONS in loss.columns
    in_numpy = {name: (PolicyGiven if "policy" in name else Given)(*given) for name, given in modules.items()}
    _, (td_errors,) = loss.numpy(Deterministic((2,)), in_numpy, minibatch)
    np.testing.assert_allclose(td_errors, [5.94901, 7.939505, 3], rtol=1e-6)
    in_torch = {name: (Policy if "policy" in name else InTorch)(*given) for name, given in modules.items()}
    _, _, (td_errors,) = loss.torch(Deterministic((2,)), in_torch, tensors(minibatch))
    np.testing.assert_allclose(td_errors, [5.94901, 7.939505, 3], rtol=1e-6)
    without = critic_loss(smooths_target=False, l2=0.0, huber=None)
    assert sb.NEXT_ACTIONS not in without.columns


class JudgedActions(Given):
    """Critics of which the second is the smaller one in the first row; an action moves none of them."""

    VALUES = np.stack([f32([12, -20, 30]), f32([10, 0, 50])])

    def forward(self, observations, actions):
        return self.VALUES

    def input_gradient(self, gradient, name):
        self.given = gradient
        return np.zeros((3, 2), np.float32)


def test_the_regularised_actor_stays_close_to_recorded_actions():
    """Of the smaller values 10, -20, 30 the size is 20: the loss is 0.1 * 0.08 / 3 - 20 / 3 / 20."""
    acted, recorded = f32([[0.5, 0], [0.1, -0.2], [0.9, 0.9]]), f32([[0.4, 0.1], [0, 0], [0.8, 0.9]])
    minibatch = {sb.OBS: np.zeros((3, 1), np.float32), sb.ACTIONS: recorded}
    loss = regularised_actor_loss(weight=0.1, l2=0.0)
    policy, critics = PolicyGiven(np.arctanh(acted)), JudgedActions()
    ((value, cloning),) = loss.numpy(Deterministic((2,)), {"policy": policy, "critics": critics}, minibatch)
    assert cloning == pytest.approx(0.08 / 3, rel=1e-4)
    assert value == pytest.approx(0.1 * 0.08 / 3 - 1 / 3, rel=1e-5)
    np.testing.assert_allclose(critics.given, [[0, -1 / 60, -1 / 60], [-1 / 60, 0, 0]], rtol=1e-5)
    np.testing.assert_allclose(policy.given, 0.2 / 3 * (acted - recorded) * (1 - acted**2), rtol=1e-3, atol=1e-7)
    in_torch = Policy(np.arctanh(acted))
    judged = lambda observations, actions: torch.tensor(JudgedActions.VALUES)  # noqa: E731
    total, statistics = loss.torch(Deterministic((2,)), {"policy": in_torch, "critics": judged}, tensors(minibatch))
    total.backward()
    assert [float(each.detach()) for each in statistics] == pytest.approx([value, cloning], rel=1e-5)
    np.testing.assert_allclose(in_torch.leaf.grad, policy.given, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("distribution", [DiagGaussian((2,)), SquashedGaussian((2,))])
def test_likelihoods_of_extreme_recorded_actions_are_bounded(distribution):
    """Deviations count as within exp(-5) and exp(2), squashed actions as within 0.999 of their bounds."""
    inputs, actions = [[0.5, -0.25, -9, 0], [0, 1, 0.5, 3]], f32([[9, 0.1], [-0.5, -9]])
    squashed = isinstance(distribution, SquashedGaussian)
    stats, (gradient, _) = of_outputs(BehaviorCloning(), distribution, (inputs, []), {sb.ACTIONS: actions})
    bounded = f32([[0.5, -0.25, -5, 0], [0, 1, 0.5, 2]])
    counted = np.clip(actions, -3.8002, 3.8002) if squashed else actions
    assert stats["total_loss"] == pytest.approx(-distribution.at(bounded).log_prob(counted).mean(), rel=1e-5)
    assert gradient[0, 2] == gradient[1, 3] == 0 and gradient[0, 3] != 0
    returns = {sb.ACTIONS: actions, sb.VALUE_TARGETS: f32([1, 2])}
    loss = ExponentiallyWeighted(1.0, 0.5, 20.0, 0.1)
    _, (gradient, _) = of_outputs(loss, DiagGaussian((2,)), (inputs, [0.5, 1]), returns, norm=2.0, vf_coeff=1.0)
    assert gradient[0, 2] == gradient[1, 3] == 0


def test_the_mean_alone_is_fitted_with_squares():
    mean_and_std = [[0.5, -0.25, -1, 0], [0, 1, 0.5, -0.5]]
    actions = f32([[0.3, 0.1], [-0.5, 0.9]])
    loss = BehaviorCloning(is_squared=True)
    stats, (gradient, _) = of_outputs(loss, DiagGaussian((2,)), (mean_and_std, []), {sb.ACTIONS: actions})
    differences = f32(mean_and_std)[:, :2] - actions
    assert stats["total_loss"] == pytest.approx((differences**2).mean(), rel=1e-6)
    np.testing.assert_allclose(gradient, np.concatenate([differences / 2, np.zeros((2, 2))], 1), rtol=1e-6)
