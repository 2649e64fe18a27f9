"""One update and a hundred of SAC, discrete SAC, TQC, CrossQ, TD3 and DDPG against the papers' equations in float64."""

import copy
import functools
import itertools
import math

import numpy as np
import pytest
import torch

from rllib import sample_batch as sb
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.losses.deterministic import TARGET_NOISE
from rllib.losses.sac import NEXT_NOISE, NOISE
from rllib.models.distributions.base import ActionUnit
from rllib.models.distributions.standard import Categorical
from tests.algorithms import actor_critic_reference as reference

torch.set_num_threads(1)

LR, TAU, ROWS = 1e-3, 0.05, 32
# The reference's name of a column -> ours.
NAMES = {
    "obs": sb.OBS,
    "actions": sb.ACTIONS,
    "rewards": sb.REWARDS,
    "discounts": sb.DISCOUNTS,
    "new_obs": sb.NEXT_OBS,
    "weights": sb.WEIGHTS,
    "noise": NOISE,
    "next_noise": NEXT_NOISE,
    "target_noise": TARGET_NOISE,
}
# Normalisation takes away the bias of a unit that no row switches off: its gradient is zero but for rounding, of which
# Adam makes steps unless this is larger.
UNMOVED = {"adam_epsilon": 1e-4}
# Name of the test -> environment, algorithm, its settings, the reference and its settings.
CASES = {
    "SAC": ("Pendulum-v1", "SAC", {}, reference.SAC, {"target_entropy": -1.0}),
    "SAC with three critics": (
        "Pendulum-v1",
        "SAC",
        {"n_critics": 3, "n_step": 3},
        reference.SAC,
        {"target_entropy": -1.0},
    ),
    "SAC by priorities": (
        "Pendulum-v1",
        "SAC",
        {"replay_buffer_config": {"type": "PrioritizedReplayBuffer"}, "initial_alpha": 0.2, "alpha_lr": 0.0},
        reference.SAC,
        {"log_alpha": np.log(0.2)},
    ),
    "discrete SAC": ("CartPole-v1", "SAC", {"target_entropy": 0.4}, reference.DiscreteSAC, {"target_entropy": 0.4}),
    "TQC": (
        "Pendulum-v1",
        "TQC",
        {"n_quantiles": 7, "n_critics": 3, "n_step": 2, "replay_buffer_config": {"type": "PrioritizedReplayBuffer"}},
        reference.TQC,
        {"target_entropy": -1.0},
    ),
    "TQC without truncation": (
        "Pendulum-v1",
        "TQC",
        {"n_quantiles": 5, "top_quantiles_to_drop_per_net": 0},
        reference.TQC,
        {"target_entropy": -1.0, "dropped": 0},
    ),
    "TD3": ("Pendulum-v1", "TD3", {}, reference.TD3, {"policy_delay": 2}),
    "DDPG": ("Pendulum-v1", "DDPG", {"l2_reg": 0.0}, reference.TD3, {}),
    # Errors of Pendulum's rewards lie on both sides of 3.
    "DDPG with penalties and Huber's loss": (
        "Pendulum-v1",
        "DDPG",
        {"l2_reg": 0.01, "use_huber": True, "huber_threshold": 3.0, "n_step": 2},
        reference.TD3,
        {"l2": 0.01, "threshold": 3.0},
    ),
    "CrossQ": (
        "Pendulum-v1",
        "CrossQ",
        {"q_model_config": {"fcnet_hiddens": [40, 24]}, **UNMOVED},
        reference.CrossQ,
        {"target_entropy": -1.0, **UNMOVED},
    ),
    "CrossQ with corrections": (
        "Pendulum-v1",
        "CrossQ",
        {
            "q_model_config": {"fcnet_hiddens": [24]},
            "n_critics": 3,
            "n_step": 2,
            "renorm_warmup_steps": 20,
            "batch_norm_momentum": 0.05,
            "batch_norm_eps": 0.01,
            "replay_buffer_config": {"type": "PrioritizedReplayBuffer"},
            **UNMOVED,
        },
        reference.CrossQ,
        {"target_entropy": -1.0, "warm_up": 20, "momentum": 0.05, "epsilon": 0.01, **UNMOVED},
    ),
}


def make(environment, name, training):
    """The algorithm with a replay of 300 steps."""
    networks = {"fcnet_hiddens": [24, 16], "fcnet_activation": "relu"}
    training = {"replay_buffer_config": {"type": "ReplayBuffer"}, **training}
    training |= {} if name == "CrossQ" else {"tau": TAU}
    algo = (
        get_algorithm_config(name)
        .environment(environment)
        .training(model=networks, lr=LR, train_batch_size=ROWS, **training)
        .debugging(seed=3)
        .build()
    )
    algo.replay.add(algo.sample(300))
    return algo


def networks_of(named) -> list[list[torch.Tensor]]:
    """The networks of critics, in the reference's form, from their parameters by name."""
    networks = {}
    for name, array in by_layer(named):
        networks.setdefault(name.split(".")[0], []).append(in_float64(array))
    return list(networks.values())


def by_layer(named) -> list:
    """(name, parameter) of what is learned, layer by layer; what normalises a layer's input stands before it."""

    def place(item):
        kind, _, index = item[0].split(".")[-2].partition("_")
        return int(index) if index else math.inf, kind != "renorm"

    return sorted(((name, part) for name, part in named.items() if not is_statistic(name)), key=place)


def is_statistic(name) -> bool:
    return "running" in name or name == "passes"


def statistics_of(algo) -> list:
    """Running means and variances of the actor, then of each critic."""
    vector = algo.learner.vector
    named = [*vector.named_parameters("policy").items(), *vector.named_parameters("critics").items()]
    return [array for name, array in named if "running" in name]


def networks(algo, target=False):
    """Actor and critics, or their target copies where there are some."""
    vector = algo.learner.vector
    copies = algo.learner.targets if target else {}
    flat = {name: copies[name].weights if name in copies else vector[name] for name in ("policy", "critics")}
    policy = [in_float64(part) for _, part in by_layer(vector.named_parameters("policy", flat["policy"]))]
    return {"policy": policy, "critics": networks_of(vector.named_parameters("critics", flat["critics"]))}


def take_statistics(plain, algo) -> None:
    """Lets a reference with running statistics go on from the algorithm's, behind any warm-up but the default one."""
    of_layers = iter(statistics_of(algo))
    for each in getattr(plain, "statistics", ()):
        each["passes"] = 1000
        for part in itertools.chain(*each["layers"]):
            part.copy_(torch.from_numpy(next(of_layers)))


def in_float64(array):
    return torch.tensor(array, dtype=torch.float64, requires_grad=True)


def recorded(algo) -> list:
    """A list to which each update adds its batch in the reference's form."""
    batches, update = [], algo.learner.update

    def recording(batch, **settings):
        batches.append(by_the_papers_names(algo, batch))
        return update(batch, **settings)

    algo.learner.update = recording
    return batches


def by_the_papers_names(algo, batch):
    columns = {
        theirs: torch.tensor(np.asarray(batch[ours], np.float64)) for theirs, ours in NAMES.items() if ours in batch
    }
    if algo.policy.distribution.unit is ActionUnit.BEFORE_TANH:
        columns["actions"] = columns["actions"].tanh()
    return columns


def modules(plain):
    """Actor and critics of the reference as losses call them, with the parameters as `leaves`."""
    networks, targets = {"policy": plain.policy, "critics": plain.critics}, plain.targets
    if isinstance(plain, reference.CrossQ):
        passes = [functools.partial(plain.pass_through, *each) for each in enumerate([plain.policy, *plain.critics])]
        return {
            "policy": lambda observations, by_batch=False: (passes[0](observations, trains=by_batch), None),
            "critics": lambda *inputs, by_batch=False: torch.stack(
                [critic(*inputs, trains=by_batch)[:, 0] for critic in passes[1:]]
            ),
        }

    def policy(network):
        def outputs(observations):
            return reference.compute(network, observations), None

        outputs.leaves = network
        return outputs

    def critics(several):
        def values(*inputs):
            outputs = torch.stack([reference.compute(critic, *inputs) for critic in several])
            return outputs[..., 0] if outputs.shape[-1] == 1 else outputs

        values.leaves = [part for critic in several for part in critic]
        return values

    return {
        "policy": policy(networks["policy"]),
        "target_policy": policy(targets["policy"]),
        "critics": critics(networks["critics"]),
        "target_critics": critics(targets["critics"]),
    }


def by_our_names(batch, distribution):
    """The batch as the library's losses read it."""
    columns = {NAMES[name]: column for name, column in batch.items()}
    if isinstance(distribution, Categorical):
        columns[sb.ACTIONS] = columns[sb.ACTIONS].long()
    elif distribution.unit is ActionUnit.BEFORE_TANH:
        columns[sb.ACTIONS] = columns[sb.ACTIONS].atanh()
    return columns


def taken_from(algo, case):
    """The case's reference, as far as the algorithm is."""
    *_, kind, settings = CASES[case]
    plain = kind(networks(algo), LR, TAU, **settings)
    plain.targets = networks(algo, target=True)
    if hasattr(plain, "log_alpha"):
        plain.log_alpha.data[:] = np.log(algo.trainee.temperature.alpha)
    take_statistics(plain, algo)
    return plain


@pytest.mark.parametrize("case", CASES)
def test_losses_and_gradients(case):
    """In float64, by networks of the reference: the equations agree to rounding."""
    environment, name, training, *_ = CASES[case]
    with make(environment, name, training) as algo:
        batches = recorded(algo)
        for _ in range(3):
            algo.trainee.update(**algo.trainee.learning_rates())
        plain = taken_from(algo, case)
        given = by_our_names(batches[-1], algo.policy.distribution)
        for ours, of_settings, theirs, moved in (
            (
                algo.trainee.critic_loss(),
                algo.trainee.critic_settings(),
                plain.critic_loss,
                plain.of_critics(),
            ),
            (algo.trainee.actor_loss(), algo.trainee.critic_settings(), plain.actor_loss, plain.policy),
        ):
            before = copy.deepcopy(getattr(plain, "statistics", None))
            loss, *_ = ours.torch(algo.policy.distribution, modules(plain), given, **of_settings)
            plain.statistics = before
            expected = theirs(batches[-1])
            assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
            pairs = zip(torch.autograd.grad(loss, moved), torch.autograd.grad(expected, moved), strict=True)
            for gradient, right in pairs:
                np.testing.assert_allclose(gradient, right, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_the_closed_forms(case):
    """In numpy and float32: what plain descent at a rate of 1 takes away from a weight is its gradient."""
    environment, name, training, *_ = CASES[case]
    descent = {"learner": "numpy", "opt_type": "sgd", "policy_delay": 1}
    with make(environment, name, {**training, **descent}) as algo:
        batches, rates = recorded(algo), algo.trainee.learning_rates()
        for _ in range(25):  # beyond the warm-up of the case with corrections
            algo.trainee.update(**rates)
        plain, before = taken_from(algo, case), networks(algo)
        algo.trainee.update(**dict.fromkeys(rates, 1.0))
        after, (*_, batch) = networks(algo), batches
        same_gradients(before["critics"], after["critics"], plain.critic_loss(batch), plain.critics)
        # The actor climbs the critics that the same update has moved.
        plain.critics = after["critics"]
        same_gradients([before["policy"]], [after["policy"]], plain.actor_loss(batch), [plain.policy])
        if hasattr(plain, "log_alpha"):
            plain.target_entropy = algo.trainee.temperature.target_entropy
            (expected,) = torch.autograd.grad(plain.alpha_loss(), plain.log_alpha)
            moved = plain.log_alpha.item() - np.log(algo.trainee.temperature.alpha)
            assert moved == pytest.approx(expected.item(), rel=1e-6, abs=1e-6)


def same_gradients(before, after, loss, moved) -> None:
    """Of several networks.

    A weight is stored with 24 bits, and a sum over rows is rounded in every step. Where the first dominates 1e-6 is
    kept; gradients above 1 are allowed a millionth of the network's largest for the second.
    """
    for old, new, network in zip(before, after, moved, strict=True):
        expected = torch.autograd.grad(loss, network, retain_graph=True)
        most = max(1.0, *(part.abs().max().item() for part in expected))
        for part, then, right in zip(old, new, expected, strict=True):
            np.testing.assert_allclose((part - then).detach(), right, rtol=0, atol=1e-6 * most)


@pytest.mark.parametrize("learner", ["numpy", "torch"])
@pytest.mark.parametrize("case", CASES)
def test_weights_after_100_updates(case, learner):
    environment, name, training, kind, settings = CASES[case]
    with make(environment, name, {"learner": learner, **training}) as algo:
        plain, batches = kind(networks(algo), LR, TAU, **settings), recorded(algo)
        for _ in range(100):
            algo.trainee.update(**algo.trainee.learning_rates())
        for batch in batches:
            plain.update(batch)
        found, targets = networks(algo), networks(algo, target=True)
        pairs = [(found["policy"], plain.policy), (targets["policy"], plain.targets["policy"])]
        if "policy" not in algo.trainee.copied_modules:
            pairs.pop()
        pairs += zip(found["critics"], plain.critics, strict=True)
        if "critics" in algo.trainee.copied_modules:
            pairs += zip(targets["critics"], plain.targets["critics"], strict=True)
        for network, expected in pairs:
            for part, right in zip(network, expected, strict=True):
                np.testing.assert_allclose(part.detach(), right.detach(), atol=1e-4)
        if hasattr(plain, "statistics"):
            expected = [part for each in plain.statistics for layer in each["layers"] for part in layer]
            for part, right in zip(statistics_of(algo), expected, strict=True):
                np.testing.assert_allclose(part, right, atol=1e-4)
        if hasattr(plain, "alpha"):
            assert algo.trainee.temperature.alpha == pytest.approx(plain.alpha.item(), abs=1e-5)
