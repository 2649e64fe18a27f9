"""Losses of batches that earlier weights may have sampled: everything but the check that the newest ones have acted."""

import numpy as np
import pytest

from rllib.algorithms.base.registry import algorithm_names, get_algorithm_class
from rllib.losses.actor_warmup import ActorWarmupLoss
from rllib.losses.loss import Loss
from rllib.losses.offline.cloning import ClonesToo
from rllib.sample_batch import ACTION_LOGP, ACTIONS

AROUND = {
    "itself": lambda loss: loss,
    "cloning": ClonesToo,
    "a warm-up": ActorWarmupLoss,
    "both": lambda loss: ActorWarmupLoss(ClonesToo(loss)),
}
CHECKED = [name for name in algorithm_names() if getattr(get_algorithm_class(name).loss, "by_newest_weights", False)]


class Certain:
    """A distribution with one outcome."""

    def log_prob(self, actions):
        return np.zeros(len(actions))


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", CHECKED)
def test_the_check_alone_is_left_out(name, around):
    loss: Loss = AROUND[around](get_algorithm_class(name).loss)
    batch = {ACTIONS: np.zeros(2), ACTION_LOGP: np.full(2, -0.5)}
    assert loss.by_newest_weights and loss.identity_error(lambda _: Certain(), (None,), batch) == 0.5
    later = loss.by_earlier_weights()
    assert not later.by_newest_weights and later.identity_error(lambda _: Certain(), (None,), batch) is None
    for what in ("columns", "stats", "row_stats", "takes_across"):
        assert getattr(later, what) == getattr(loss, what)
    assert (later.numpy is None) == (loss.numpy is None)


@pytest.mark.parametrize("name", sorted(set(algorithm_names()) - set(CHECKED)))
def test_a_loss_without_the_check_is_the_same(name):
    loss = get_algorithm_class(name).loss
    assert loss is None or loss.by_earlier_weights() is loss
