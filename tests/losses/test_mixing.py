"""The losses of QMIX, VDN and independent members against a float64 reference, written like the papers."""

import numpy as np
import pytest
import torch

from rllib import sample_batch as sb
from rllib.losses.mixing import MIXERS, mixing_loss
from rllib.models.distributions.joint_q_values import JointQValues

B, N, A, WIDTH = 7, 2, 3, 4
JOINT = JointQValues(N, A)


def rows(seed=0):
    rng = np.random.default_rng(seed)
    return {
        sb.OBS: rng.normal(0, 1, (B, WIDTH)),
        sb.NEXT_OBS: rng.normal(0, 1, (B, WIDTH)),
        sb.ACTIONS: rng.integers(A, size=(B, N)),
        sb.REWARDS: rng.normal(0, 2, B),
        sb.DISCOUNTS: rng.choice([0.0, 0.9], B),
        sb.WEIGHTS: rng.uniform(0.2, 1, B),
    }


def parameters(seed=1):
    """A linear network and a linear mixer, and their target copies."""
    rng = np.random.default_rng(seed)
    shapes = {"policy": (WIDTH, N * A), "mixer": (N + WIDTH,)}
    return {
        prefix + name: abs(rng.normal(0, 1, shape)) if name == "mixer" else rng.normal(0, 1, shape)
        for prefix in ("", "target_")
        for name, shape in shapes.items()
    }


def reference(mixer, double_q, weights, batch, moved=None):
    """The loss and the mixed values [B, 1 or N]; targets are by `weights`, and what is fitted to them by `moved`."""
    moved = moved or weights

    def values(layer, observations):
        return (observations @ layer).reshape(B, N, A)

    def mix(layer, of_members, observations):
        if mixer is None:
            return of_members
        if mixer == "vdn":
            return of_members.sum(1, keepdims=True)
        return (np.concatenate([of_members, observations], 1) @ layer)[:, None]

    now = values(moved["policy"], batch[sb.OBS])
    online, target = (values(weights[name], batch[sb.NEXT_OBS]) for name in ("policy", "target_policy"))
    chosen, best = np.empty((B, N)), np.empty((B, N))
    for row in range(B):
        for member in range(N):
            chosen[row, member] = now[row, member, batch[sb.ACTIONS][row, member]]
            judge = online if double_q else target
            best[row, member] = target[row, member, judge[row, member].argmax()]
    mixed = mix(moved["mixer"], chosen, batch[sb.OBS])
    later = mix(weights["target_mixer"], best, batch[sb.NEXT_OBS])
    loss = 0.0
    for row in range(B):
        targets = batch[sb.REWARDS][row] + batch[sb.DISCOUNTS][row] * later[row]
        loss += batch[sb.WEIGHTS][row] * ((mixed[row] - targets) ** 2).mean() / B
    return loss, mixed


def torch_loss(mixer, double_q, weights, batch):
    tensors = {name: torch.from_numpy(each).requires_grad_() for name, each in weights.items()}

    def policy(name):
        return lambda observations: (observations @ tensors[name], observations.new_empty(0))

    def mixing(name):
        return lambda values, observations: torch.cat([values, observations], 1) @ tensors[name]

    modules = {name: (policy if name.endswith("policy") else mixing)(name) for name in tensors}
    minibatch = {name: torch.from_numpy(column) for name, column in batch.items()}
    return tensors, mixing_loss(mixer, double_q).torch(JOINT, modules, minibatch)


@pytest.mark.parametrize("double_q", [True, False])
@pytest.mark.parametrize("mixer", MIXERS)
def test_loss_and_gradients_are_those_of_the_reference(mixer, double_q):
    weights, batch = parameters(), rows()
    tensors, (loss, statistics, (errors,)) = torch_loss(mixer, double_q, weights, batch)
    expected, mixed = reference(mixer, double_q, weights, batch)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-12)
    assert [float(each) for each in statistics[1:4]] == pytest.approx([mixed.mean(), mixed.min(), mixed.max()])
    assert errors.shape == (B,) and (errors >= 0).all()
    loss.backward()
    moved = ["policy", "mixer"] if mixer == "qmix" else ["policy"]
    for name in moved:
        for index in np.ndindex(weights[name].shape):
            losses = []
            for step in (1e-6, -1e-6):
                changed = {**weights, name: weights[name].copy()}
                changed[name][index] += step
                losses.append(reference(mixer, double_q, weights, batch, changed)[0])
            assert float(tensors[name].grad[index]) == pytest.approx((losses[0] - losses[1]) / 2e-6, abs=1e-5)
    for name in tensors.keys() - moved:
        assert tensors[name].grad is None


def test_rows_of_another_number_are_refused():
    batch = rows()
    batch[sb.WEIGHTS] = batch[sb.WEIGHTS][:1]
    with pytest.raises(ValueError, match=r"Q \(7,\), weights \(1,\) must all be \[B\]"):
        torch_loss("vdn", True, parameters(), batch)
