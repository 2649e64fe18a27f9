"""The largest entropy that masks allow: a statistic of the actors of discrete actions, in numpy and torch alike."""

import numpy as np
import pytest
import torch

from rllib.losses.lagrangian.sac import priced_actor_loss
from rllib.losses.sac import DISCRETE_ACTOR_LOSS
from rllib.models.distributions.standard import Categorical
from rllib.models.observations.masks import LOWEST
from rllib.sample_batch import OBS

LOSSES = {
    "sac": (DISCRETE_ACTOR_LOSS, {"alpha": 0.4}),
    "sac, costs": (priced_actor_loss("cost_critic", is_discrete=True), {"alpha": 0.4, "multiplier": 1.5}),
}


class Network:
    """Gives what it is made of, and keeps its gradient."""

    def __init__(self, result):
        self.result = result

    def forward(self, *read):
        return self.result

    def backward(self, gradient):
        self.gradient = gradient


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("rows", [1, 7, 300])
def test_it_is_the_mean_logarithm_of_the_number_of_legal_actions(kind, rows):
    (loss, settings), rng = LOSSES[kind], np.random.default_rng(rows)
    legal = rng.random((rows, 9)) < 0.3
    legal[np.arange(rows), rng.integers(9, size=rows)] = True
    # Probabilities of legal actions may be 0 by rounding: they count all the same.
    logits = np.where(legal, 300 * rng.standard_normal((rows, 9)), LOWEST).astype(np.float32)
    values, costs = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, rows, 9), (rows, 9)))
    networks = {"policy": Network((logits, None)), "critics": Network(values), "cost_critic": Network(costs)}
    (statistics,) = loss.numpy(Categorical(9), networks, {OBS: np.zeros((rows, 1), np.float32)}, **settings)
    of_logits = torch.from_numpy(logits).requires_grad_()
    modules = {
        "policy": lambda _: (of_logits, None),
        "critics": lambda _: torch.from_numpy(values),
        "cost_critic": lambda _: torch.from_numpy(costs),
    }
    total, in_torch = loss.torch(Categorical(9), modules, {OBS: torch.zeros(rows, 1)}, **settings)
    total.backward()
    np.testing.assert_allclose(statistics, [each.item() for each in in_torch], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(networks["policy"].gradient[0][legal], of_logits.grad.numpy()[legal], atol=1e-5)
    of_loss = dict(zip(loss.stats, statistics, strict=True))
    assert of_loss["largest_entropy"] == pytest.approx(np.log(legal.sum(1)).mean(), rel=1e-6)
    assert of_loss["entropy"] <= of_loss["largest_entropy"] + 1e-6
