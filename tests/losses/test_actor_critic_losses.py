"""The losses of SAC, TQC, CrossQ, TD3 and DDPG: their closed forms in numpy give what torch's autograd does."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from rllib import PPOConfig, SACConfig
from rllib.learners.learner import make_learner
from rllib.learners.updates.objective import Objective
from rllib.learners.updates.optimizers import OptimizerSettings
from rllib.learners.updates.target_copy import TargetCopy
from rllib.losses import deterministic, sac
from rllib.losses.sac_variants import categorical, crossq, tqc
from rllib.models.architectures import spec_from_json
from rllib.models.arithmetic import kernels
from rllib.models.dense.batch_renorm import BatchRenorm
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.dense.spec import Dense
from rllib.models.distributions.squashed import BoundedSquashedGaussian
from rllib.models.distributions.standard import Categorical, Deterministic
from rllib.models.modules import FullyConnected, ResidualNetworks
from rllib.models.observations.encoders import BoxEncoder
from rllib.models.residual.spec import Residual
from rllib.policy import Policy
from rllib.sample_batch import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS, WEIGHTS, SampleBatch

torch.set_num_threads(1)

OBSERVATION, ACTION, ROWS, QUANTILES = 3, 2, 32, 5
BINS = categorical.Bins(11, -4.0, 6.0)
# name -> distribution, what critics read and give, losses, their settings, names of noise columns
KINDS = {
    "sac": (BoundedSquashedGaussian((ACTION,)), sac.CRITIC_LOSS, sac.ACTOR_LOSS, {"alpha": 0.3}),
    "sac, gSDE": (BoundedSquashedGaussian((ACTION,), 0.003), sac.CRITIC_LOSS, sac.ACTOR_LOSS, {"alpha": 0.3}),
    "discrete sac": (Categorical(4), sac.DISCRETE_CRITIC_LOSS, sac.DISCRETE_ACTOR_LOSS, {"alpha": 0.3}),
    "tqc": (BoundedSquashedGaussian((ACTION,)), tqc.critic_loss(2), tqc.ACTOR_LOSS, {"alpha": 0.3}),
    "categorical": (
        BoundedSquashedGaussian((ACTION,)), categorical.critic_loss(BINS), categorical.actor_loss(BINS), {"alpha": 0.3},
    ),
    "crossq": (BoundedSquashedGaussian((ACTION,)), crossq.CRITIC_LOSS, crossq.ACTOR_LOSS, {"alpha": 0.3}),
    "ddpg": (
        Deterministic((ACTION,)), deterministic.critic_loss(False, 1e-2, 1.0), deterministic.actor_loss(1e-2), {},
    ),
    "td3": (Deterministic((ACTION,)), deterministic.critic_loss(True, 0.0, None), deterministic.actor_loss(0.0), {}),
}  # fmt: skip
# Corrections by the running statistics from the third batch on.
RENORM = BatchRenorm(0.1, 0.01, 2)


def make(name, kind, critics=2, layer_norm=False, network=None):
    distribution, critic_loss, actor_loss, _ = KINDS[name]
    spec = NetworkSpec(
        BoxEncoder((OBSERVATION,)), distribution, (16, 16), ("relu", "relu"), critic=False, architecture=Dense()
    )
    if name == "sac, gSDE":
        architecture = Dense(state_dependent_noise=True, noise_trains_features=True)
        spec = dataclasses.replace(spec, architecture=architecture, log_std_init=-1.0)
    renorm = RENORM if name == "crossq" else None
    if renorm:
        spec = dataclasses.replace(spec, architecture=Dense(batch_renorm=renorm))
    is_discrete = isinstance(distribution, Categorical)
    reads = ("observation",) if is_discrete else ("observation", "action")
    outputs = distribution.num_actions if is_discrete else {"tqc": QUANTILES, "categorical": BINS.count}.get(name)
    module = FullyConnected(reads, (16, 12), outputs, critics, layer_norm=layer_norm, batch_renorm=renorm)
    if network is not None:
        spec = dataclasses.replace(spec, architecture=Residual(network, 8, 2))
        module = ResidualNetworks(Residual(network, 12, 1), reads, outputs, critics)
    sgd = OptimizerSettings("sgd")
    return make_learner(
        Policy(spec, rng=np.random.default_rng(0)),
        [Objective(critic_loss, ("critics",), "critics", sgd), Objective(actor_loss, ("policy",), "actor", sgd)],
        modules={"critics": module},
        targets=[TargetCopy("critics", 0.1), TargetCopy("policy", 0.1)],
        kind=kind,
        rng=np.random.default_rng(1),
    )


def make_batch(name, seed):
    rng, distribution = np.random.default_rng(seed), KINDS[name][0]
    normal = rng.standard_normal((5, ROWS, OBSERVATION)).astype(np.float32)
    is_discrete = isinstance(distribution, Categorical)
    return SampleBatch(
        {
            OBS: normal[0],
            NEXT_OBS: normal[1],
            ACTIONS: rng.integers(4, size=ROWS) if is_discrete else normal[2, :, :ACTION],
            REWARDS: 3 * normal[3, :, 0],
            DISCOUNTS: (0.9 * (rng.random(ROWS) < 0.7)).astype(np.float32),
            WEIGHTS: rng.uniform(0.2, 1, ROWS).astype(np.float32),
            sac.NOISE: normal[4, :, :ACTION],
            sac.NEXT_NOISE: normal[3, :, 1:],
            deterministic.TARGET_NOISE: normal[4, :, 1:].clip(-0.5, 0.5),
        }
    )


@pytest.mark.parametrize(("critics", "cores"), [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2)])
# CrossQ's networks are normalised in their own way.
@pytest.mark.parametrize(
    ("name", "layer_norm", "network"),
    [
        *[(name, norm, None) for name in KINDS for norm in {False, name != "crossq"}],
        *[(name, False, "simba") for name in KINDS if name not in ("crossq", "sac, gSDE")],
    ],
)
def test_closed_forms_are_autograds(name, layer_norm, network, critics, cores, monkeypatch):
    """Weights, target copies and statistics of several updates, also in microbatches and on several cores."""
    if cores > 1:
        for least in ("PART", "FEWEST_ROWS"):
            monkeypatch.setattr(kernels, least, 1)
    learners = [make(name, kind, critics, layer_norm, network) for kind in ("numpy", "torch")]
    settings = dict.fromkeys(("critics", "actor"), KINDS[name][3])
    for seed in range(4):
        with kernels.on_cores(cores):
            found = [
                learner.update(
                    make_batch(name, seed),
                    rng=np.random.default_rng(seed),
                    lr=0.05,
                    microbatch_size=None if seed else 10,
                    **settings,
                )
                for learner in learners
            ]
        assert found[0].keys() == found[1].keys()
        for key in found[0]:
            np.testing.assert_allclose(found[0][key], found[1][key], rtol=2e-4, atol=2e-5, err_msg=key)
        np.testing.assert_allclose(learners[0].weights, learners[1].weights, atol=2e-5)
        for learner in learners:
            learner.update_targets(seed + 1)


def test_either_learner_goes_on_where_the_other_was():
    first, second = make("sac", "numpy"), make("sac", "torch")
    for seed in range(3):
        first.update(make_batch("sac", seed), rng=np.random.default_rng(0), lr=0.05, critics={"alpha": 0.1}, actor=None)
        first.update_targets(seed)
    second.policy.set_state(first.policy.get_state())
    second.set_state(first.get_state())
    np.testing.assert_array_equal(second.weights, first.weights)
    np.testing.assert_array_equal(second.targets["critics"].weights, first.targets["critics"].weights)


def test_the_gradient_of_the_actor_does_not_reach_the_critics():
    for kind in ("numpy", "torch"):
        learner = make("sac", kind)
        before = learner.weights.copy()
        given = {"critics": {"alpha": 0.2}, "actor": {"alpha": 0.2}}
        learner.update(make_batch("sac", 0), rng=np.random.default_rng(0), lr={"critics": 0.0, "actor": 0.1}, **given)
        np.testing.assert_array_equal(learner.vector["critics"], before[learner.vector.slices["critics"]])
        assert (learner.vector["policy"] != before[learner.vector.slices["policy"]]).any()


def test_state_dependent_noise_trains_features_and_clips_means():
    """As in Stable-Baselines3's SAC; there and here PPO's does neither."""
    learner = make("sac, gSDE", "numpy")
    policy = learner.policy
    rows = policy.encode(np.random.default_rng(0).standard_normal((8, OBSERVATION), dtype=np.float32))
    dist_inputs, _ = policy.network.forward(rows)
    means = policy.distribution.mode(dist_inputs)
    assert (abs(dist_inputs[:, :ACTION]) > 0.003).any() and abs(means).max() == np.float32(0.003)
    only_deviations = np.zeros_like(dist_inputs)
    only_deviations[:, ACTION:] = 1.0
    named = policy.layout.named_parameters(policy.network.backward((only_deviations, np.empty(0, np.float32))))
    assert all((named[f"shared.hidden_{i}.weight"] != 0).any() for i in range(2))
    assert (named["policy.head.weight"] == 0).all()
    with SACConfig().training(model={"use_sde": True}).build(env="Pendulum-v1") as algo:
        spec = algo.policy.spec
        assert spec.architecture.noise_trains_features and spec.distribution.mean_limit == 2.0
        assert spec_from_json(json.loads(json.dumps(spec.to_json()))) == spec
    with PPOConfig().training(model={"use_sde": True}).build(env="Pendulum-v1") as algo:
        assert not algo.policy.spec.architecture.noise_trains_features
