"""An update that another learner's death has interrupted goes on with the step that it was at, to the same bits."""

import contextlib

import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.learners.learner import Learner, make_learner
from rllib.learners.updates.adaptive_rate import AdaptiveRate
from rllib.learners.updates.collective import Unfinished
from rllib.learners.updates.objective import Objective
from rllib.losses.ppo import PPO_LOSS
from rllib.losses.td import TDLoss
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.dense.spec import Dense
from rllib.models.distributions.q_values import QValues
from rllib.models.observations.encoders import BoxEncoder
from rllib.policy import Policy
from rllib.sample_batch import SampleBatch
from tests.learners.learner_support import SETTINGS, make_batch, make_policy

VALUES = NetworkSpec(
    BoxEncoder((4,)), QValues(3), (16,), ("tanh",), critic=False, vf_share_layers=True, architecture=Dense()
)


class Interrupted:
    """The collective of a learner that is alone; from this sum on, none is finished."""

    rank, size = 0, 1

    def __init__(self, at: float = float("inf")):
        self._left = at

    def sum(self, arrays) -> None:
        self._left -= 1
        if self._left < 0:
            raise Unfinished


def ppo(kind: str) -> tuple[Learner, SampleBatch, dict]:
    """Three sums for each step, and an early end."""
    policy = make_policy()
    settings = {**SETTINGS, "standardize_advantages": True, "stop_above": ("kl", 0.01)}
    return make_learner(policy, Objective(PPO_LOSS), kind=kind), make_batch(policy, 20), settings


def ppo_by_kl(kind: str) -> tuple[Learner, SampleBatch, dict]:
    """With a learning rate that changes from step to step."""
    learner, batch, settings = ppo(kind)
    return learner, batch, {**settings, "stop_above": None, "lr": AdaptiveRate(0.002, 0.001)}


def q_learning(kind: str) -> tuple[Learner, SampleBatch, dict]:
    """With numbers of the rows."""
    rng = np.random.default_rng(1)
    columns = {
        sb.OBS: rng.standard_normal((20, 4), np.float32),
        sb.ACTIONS: rng.integers(3, size=20),
        sb.TD_TARGETS: rng.standard_normal(20, np.float32),
        sb.WEIGHTS: np.ones(20, np.float32),
    }
    policy = Policy(VALUES, rng=np.random.default_rng(0))
    return make_learner(policy, Objective(TDLoss()), kind=kind), SampleBatch(columns), {}


def updated(learner: Learner, batch: SampleBatch, settings: dict) -> dict:
    numbers = {"num_epochs": 3, "minibatch_size": 8, "rng": np.random.default_rng(2), "lr": 0.01}
    return learner.update(batch, **{**numbers, **settings})


def resumed(learner: Learner, batch: SampleBatch, settings: dict, monkeypatch) -> dict:
    """The update, gone on with."""
    train = learner.backend.train
    monkeypatch.setattr(learner.backend, "train", lambda *arguments: train(*arguments, resumes=True))
    return updated(learner, batch, settings)


@pytest.mark.parametrize("at", range(20))
@pytest.mark.parametrize("make", [ppo, ppo_by_kl, q_learning])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_resumed_updates_have_the_same_bits(kind, make, at, monkeypatch):
    """Interrupted at any sum, or finished when another has to go on; by this learner, or by one in its place."""
    expecting, batch, settings = make(kind)
    expecting.backend.collective = Interrupted()
    expected = updated(expecting, batch, settings)
    learner = make(kind)[0]
    learner.backend.collective = Interrupted(at)
    with contextlib.suppress(Unfinished):
        updated(learner, batch, settings)
    progress, states, weights = learner.backend.get_progress(), learner.backend.states, learner.weights.copy()
    successor = make(kind)[0]
    successor.weights[:] = weights
    successor.backend.load_states(states)
    successor.backend.set_progress(progress)
    for each in (learner, successor):
        each.backend.collective = Interrupted()
        found = resumed(each, batch, settings, monkeypatch)
        np.testing.assert_array_equal(each.weights, expecting.weights)
        assert found.keys() == expected.keys()
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_the_limit_ends_the_update_early(kind):
    """Else the test above would not see that a stopped update stays stopped."""
    assert 1 < updated(*ppo(kind))["num_minibatches"] < 9
