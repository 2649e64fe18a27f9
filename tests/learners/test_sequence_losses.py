"""Losses over sequences of networks with a memory: against a plain loop over steps in float64, and against the losses
of single steps, which they are where nothing is remembered."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from rllib.learners.learner import make_learner
from rllib.learners.updates.objective import Objective
from rllib.learners.updates.sequences import BOOTSTRAP_IN, over_sequences
from rllib.learners.updates.target_copy import TargetCopy
from rllib.losses import deterministic, sac
from rllib.losses.sac_variants import tqc
from rllib.models.catalog.catalog import policy_spec
from rllib.models.dense.in_torch import backward
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.distributions.squashed import BoundedSquashedGaussian
from rllib.models.distributions.standard import Deterministic
from rllib.models.memory.critics import MemoryCritics
from rllib.models.memory.layout import StepOrder
from rllib.models.memory.spec import Memory
from rllib.policy import Policy
from rllib.sample_batch import (
    ACTIONS,
    DISCOUNTS,
    LOSS_MASK,
    NEXT_OBS,
    OBS,
    REWARDS,
    SEQ_LENS,
    STATE_IN,
    WEIGHTS,
    SampleBatch,
)

torch.set_num_threads(1)

ALPHA = 0.3
OBSERVATION, ACTION = Box(-1, 1, (3,)), Box(-1, 1, (2,))
# Of each sequence, the steps of burn-in and the learned ones; and of each learned step, the steps until its bootstrap.
BURN_IN, LEARNED = np.array([2, 0, 1, 0]), np.array([3, 1, 2, 4])
UNTIL = [[2, 2, 1], [1], [1, 1], [3, 2, 2, 1]]
LENGTHS = BURN_IN + LEARNED + 1
MODULES = ("policy", "target_policy", "critics", "target_critics")
FORGETFUL = -50.0  # bias of a gate that is to be 0


def actor_spec(cell: str, action_space=ACTION, distribution=None) -> NetworkSpec:
    model = {f"use_{cell}": True, "lstm_cell_size": 5, "fcnet_hiddens": [6], "post_lstm_hiddens": [7]}
    plain = policy_spec(OBSERVATION, action_space, model, initializer="uniform")
    return NetworkSpec(
        plain.encoder, distribution or plain.distribution, plain.hiddens, plain.activations, True, critic=False,
        architecture=plain.memory, initializer="uniform",
    )  # fmt: skip


def critics_of(cell: str, num_outputs=None, reads=("observation", "action")) -> MemoryCritics:
    return MemoryCritics(reads, (4,), Memory(cell, 6, 20, (8,)), num_outputs, 2, "tanh")


def modules_in_float64(spec: NetworkSpec, critics: MemoryCritics) -> dict:
    """The modules on random weights."""
    rng, made = torch.Generator().manual_seed(3), {}
    for name in MODULES:
        description = critics if name.endswith("critics") else spec
        given = ({"observation": 3, "action": 2},) if description is critics else ()
        layout = description.layout(*given)
        flat = 0.7 * torch.randn(layout.size, generator=rng, dtype=torch.float64)
        made[name] = description.torch(layout, flat, *(() if description is critics else (None,)))
    return made


def forget(modules: dict) -> None:
    """Lets the cells' outputs depend on what they read in the same step alone."""
    for module in modules.values():
        for name, view in module.layout.named_parameters(module.flat.detach()).items():
            size = module.layout.memory.size
            if name.endswith("weight_hh_l0"):
                view.zero_()
            elif name.endswith(("lstm.bias_ih_l0", "gru.bias_ih_l0")):
                view[size : 2 * size] = FORGETFUL  # the forget gate, or the update gate
            elif name.endswith("weight_ih_l0"):
                view[size : 2 * size] = 0


def columns_of(spec: NetworkSpec, seed: int = 0) -> dict[str, torch.Tensor]:
    """Columns of the sequences, float64; those of rows that are no learned steps are large numbers."""
    rng, rows = np.random.default_rng(seed), int(LENGTHS.sum())
    starts = np.cumsum(LENGTHS) - LENGTHS
    mask, until = np.zeros(rows, bool), np.zeros(rows, np.int64)
    for start, burn_in, learned, own in zip(starts, BURN_IN, LEARNED, UNTIL):
        mask[start + burn_in : start + burn_in + learned] = True
        until[start + burn_in : start + burn_in + learned] = own
    observations = np.concatenate([rng.uniform(-1, 1, (rows, 3)), np.ones((rows, 1))], axis=1)
    drawn = {
        **{name: rng.standard_normal((rows, 2)) for name in (sac.NOISE, sac.NEXT_NOISE, ACTIONS)},
        deterministic.TARGET_NOISE: rng.normal(0, 0.1, (rows, 2)),
        REWARDS: rng.standard_normal(rows),
        DISCOUNTS: rng.choice([0.0, 0.9], rows),
        WEIGHTS: rng.uniform(0.5, 1, rows),
    }
    if isinstance(spec.distribution, Deterministic):
        drawn[ACTIONS] = np.tanh(drawn[ACTIONS])
    for column in drawn.values():
        column[~mask] = 1e6
    if spec.distribution.action_dtype == np.int64:
        drawn[ACTIONS] = rng.integers(0, 3, rows)
    columns = {name: torch.from_numpy(column) for name, column in {**drawn, OBS: observations}.items()}
    columns |= {LOSS_MASK: torch.from_numpy(mask), BOOTSTRAP_IN: torch.from_numpy(until)}
    columns[STATE_IN] = torch.from_numpy(rng.uniform(-0.5, 0.5, (len(LENGTHS), spec.state_size)))
    columns[SEQ_LENS] = torch.from_numpy(LENGTHS)
    columns[SEQ_LENS].on_host = LENGTHS
    return columns


# ---------------------------------------------------------------------- the reference, a loop over steps


class Loop:
    """A network as one would write it: from named parameters, one sequence and one step at a time."""

    def __init__(self, module):
        named = module.layout.named_parameters(module.flat.detach())
        self.parameters = {name: view.clone().requires_grad_() for name, view in named.items()}
        self.layout = module.layout
        self.cell = module.layout.memory.cell

    def affine(self, name, x):
        return self.parameters[f"{name}.weight"] @ x + self.parameters[f"{name}.bias"]

    def stepped(self, owner, x, state):
        p = self.parameters
        read = p[f"{owner}.{self.cell}.weight_ih_l0"] @ x + p[f"{owner}.{self.cell}.bias_ih_l0"]
        recalled = p[f"{owner}.{self.cell}.weight_hh_l0"] @ state[0] + p[f"{owner}.{self.cell}.bias_hh_l0"]
        if self.cell == "lstm":
            i, f, g, o = (read + recalled).chunk(4)
            c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
            return [torch.sigmoid(o) * torch.tanh(c), c]
        (r, z, n), (r_h, z_h, n_h) = read.chunk(3), recalled.chunk(3)
        z = torch.sigmoid(z + z_h)
        return [(1 - z) * torch.tanh(n + torch.sigmoid(r + r_h) * n_h) + z * state[0]]

    def remembered(self, owner, observations, burn_in, state, activation):
        """Outputs of the cell behind the burn-in, of one sequence."""
        outputs = []
        for t, observation in enumerate(observations):
            state = self.stepped(owner, activation(self.affine(f"{owner}.hidden_0", observation)), state)
            if t < burn_in:
                state = [part.detach() for part in state]
            outputs.append(state[0])
        return outputs

    def gradient(self, loss):
        names = list(self.parameters)
        found = torch.autograd.grad(loss, [self.parameters[name] for name in names], allow_unused=True)
        given = {n: torch.zeros_like(self.parameters[n]) if g is None else g for n, g in zip(names, found)}
        flat = torch.zeros(self.layout.size, dtype=torch.float64)
        for name, view in self.layout.named_parameters(flat).items():
            view.copy_(given[name])
        return flat


class LoopPolicy(Loop):
    def __call__(self, observations, burn_in, state):
        states = list(state.chunk(self.layout.memory.num_states))
        outputs = self.remembered("shared", observations, burn_in, states, torch.tanh)
        return [self.affine("policy.head", torch.relu(self.affine("shared.post_0", each))) for each in outputs]


class LoopCritics(Loop):
    def __call__(self, observations, burn_in):
        """For each critic a function of a place in the sequence and an action."""
        zeros = [torch.zeros(6, dtype=torch.float64)] * self.layout.memory.num_states
        remembered = [self.remembered(owner, observations, burn_in, zeros, torch.tanh) for owner in ("0", "1")]

        def judge(place, action):
            values = []
            for owner, outputs in zip(("0", "1"), remembered):
                behind = torch.relu(self.affine(f"{owner}.post_0", torch.cat([outputs[place], action])))
                values.append(self.affine(f"{owner}.head", behind)[0])
            return values

        return judge


def squashed(inputs, noise):
    """An action and its log-probability."""
    mean, log_std = inputs.chunk(2)
    raw = mean + torch.exp(log_std.clamp(-20, 2)) * noise
    normal = torch.distributions.Normal(mean, torch.exp(log_std.clamp(-20, 2)))
    return torch.tanh(raw), (normal.log_prob(raw) - torch.log(1 - torch.tanh(raw) ** 2)).sum()


def by_loop(loops: dict, columns: dict, kind: str) -> tuple:
    """Losses of critics and actor, and the TD errors of learned steps, sequence by sequence and step by step."""
    critics_loss, actor_loss, errors, count = 0.0, 0.0, [], int(LEARNED.sum())
    start = 0
    for index, (length, burn_in, learned) in enumerate(zip(LENGTHS, BURN_IN, LEARNED)):
        own = slice(start, start + length)
        row = {name: column[own] for name, column in columns.items() if name not in (STATE_IN, SEQ_LENS)}
        observations, state = row[OBS][:, :-1], columns[STATE_IN][index]
        policy = loops["policy"](observations, burn_in, state)
        target_policy = loops["target_policy"](observations, burn_in, state)
        judge, judge_target = (loops[name](observations, burn_in) for name in ("critics", "target_critics"))
        for t in range(burn_in, burn_in + learned):
            later = t + int(row[BOOTSTRAP_IN][t])
            if kind == "sac":
                following, log_prob = squashed(policy[later], row[sac.NEXT_NOISE][t])
                bonus = -ALPHA * log_prob
                taken = torch.tanh(row[ACTIONS][t])
                action, new_log_prob = squashed(policy[t], row[sac.NOISE][t])
                actor_loss = actor_loss + (ALPHA * new_log_prob - min(judge(t, action))) / count
            else:
                following = (torch.tanh(target_policy[later]) + row[deterministic.TARGET_NOISE][t]).clamp(-1, 1)
                bonus, taken = 0.0, row[ACTIONS][t]
                actor_loss = actor_loss - judge(t, torch.tanh(policy[t]))[0] / count
            target = row[REWARDS][t] + row[DISCOUNTS][t] * (min(judge_target(later, following)) + bonus)
            differences = [value - target.detach() for value in judge(t, taken)]
            critics_loss = critics_loss + sum(row[WEIGHTS][t] * 0.5 * each**2 for each in differences) / count
            errors.append(sum(abs(each.item()) for each in differences) / 2)
        start += length
    return critics_loss, actor_loss, errors


LOSSES = {
    "sac": (sac.CRITIC_LOSS, sac.ACTOR_LOSS, {"alpha": ALPHA}),
    "td3": (deterministic.critic_loss(True, 0.0, None), deterministic.actor_loss(0.0), {}),
}


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("kind", ["sac", "td3"])
def test_losses_and_gradients_are_those_of_a_loop_over_steps(kind, cell):
    distribution = BoundedSquashedGaussian((2,)) if kind == "sac" else Deterministic((2,))
    spec = actor_spec(cell, distribution=distribution)
    modules, columns = modules_in_float64(spec, critics_of(cell)), columns_of(spec)
    loops = {name: (LoopCritics if "critics" in name else LoopPolicy)(each) for name, each in modules.items()}
    *losses, errors = by_loop(loops, columns, kind)
    of_critics, of_actor, settings = LOSSES[kind]
    for name, loss, expected in zip(("critics", "policy"), (of_critics, of_actor), losses):
        result, _, *of_rows = over_sequences(loss, name).torch(distribution, modules, columns, **settings)
        np.testing.assert_allclose(result.item(), expected.item(), rtol=1e-10)
        backward(result, [modules[name]])
        found, slow = modules[name].flat.grad.numpy(), loops[name].gradient(expected).numpy()
        assert abs(slow).max() > 1e-3
        np.testing.assert_allclose(found, slow, atol=1e-10)
        if name == "critics":
            found = of_rows[0][0].numpy()
            np.testing.assert_allclose(found[columns[LOSS_MASK].numpy()], errors, rtol=1e-10)
            assert not found[~columns[LOSS_MASK].numpy()].any()


# ---------------------------------------------------------------------- the losses of single steps


def loss_of_single_steps(kind: str) -> tuple:
    """Description of critics, distribution, action space and the two losses with their settings."""
    squashed = BoundedSquashedGaussian((2,))
    return {
        "sac": (None, squashed, ACTION, *LOSSES["sac"]),
        "td3": (None, Deterministic((2,)), ACTION, *LOSSES["td3"]),
        "td3, penalised": (
            None, Deterministic((2,)), ACTION, deterministic.critic_loss(False, 0.1, 0.5),
            deterministic.actor_loss(0.1), {},
        ),
        "tqc": (5, squashed, ACTION, tqc.critic_loss(1), tqc.ACTOR_LOSS, {"alpha": ALPHA}),
        "discrete sac": (
            3, None, Discrete(3), sac.DISCRETE_CRITIC_LOSS, sac.DISCRETE_ACTOR_LOSS, {"alpha": ALPHA},
        ),
    }[kind]  # fmt: skip


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("kind", ["sac", "td3", "td3, penalised", "tqc", "discrete sac"])
def test_sequences_of_networks_that_forget_are_single_steps(kind, cell):
    """The loss of single steps, by the same modules in one step from a state of zeros.

    Weights of what a cell recalls have a gradient all the same, though they are zero.
    """
    num_outputs, distribution, action_space, of_critics, of_actor, settings = loss_of_single_steps(kind)
    spec = actor_spec(cell, action_space, distribution)
    reads = ("observation",) if kind == "discrete sac" else ("observation", "action")
    modules = modules_in_float64(spec, critics_of(cell, num_outputs, reads))
    forget(modules)
    columns = columns_of(spec)
    mask, rows = columns[LOSS_MASK], torch.arange(len(columns[OBS]))
    single = {name: each[mask] for name, each in columns.items() if name not in (STATE_IN, SEQ_LENS)}
    single[NEXT_OBS] = columns[OBS][(rows + columns[BOOTSTRAP_IN])[mask]]
    for name, loss in (("critics", of_critics), ("policy", of_actor)):
        results = []
        for unrolled in (over_sequences(loss, name), loss):
            given = (modules, columns) if unrolled is not loss else (of_single_rows(modules, spec), single)
            result, statistics, *of_rows = unrolled.torch(spec.distribution, *given, **settings)
            backward(result, [modules[name]])
            found = [each.detach().numpy() for part in of_rows for each in part]
            if unrolled is not loss:
                found = [each[mask.numpy()] for each in found]
            statistics = torch.stack(statistics).detach().numpy()
            gradients = modules[name].layout.named_parameters(modules[name].flat.grad)
            gradients = [each.numpy().copy() for n, each in gradients.items() if not n.endswith("weight_hh_l0")]
            results.append([result.item(), statistics, *gradients, *found])
        for one, other in zip(*results, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def of_single_rows(modules: dict, spec: NetworkSpec) -> dict:
    """The modules as functions of rows, each of which is the first one of an episode."""

    class First:
        def __init__(self, module):
            self.module, self.leaves = module, module.leaves
            self.zeros = sum(np.prod(shape, dtype=int) for shape in module.layout.state_shapes)

        def __call__(self, rows, *actions):
            ones, count = np.ones(len(rows), np.int64), len(rows)
            state = torch.zeros(count, self.zeros, dtype=torch.float64)
            if hasattr(self.module, "_single"):
                return self.module(rows, StepOrder(ones), state, torch.arange(count), *actions)
            return self.module(rows, torch.from_numpy(ones), state)

    return {name: First(module) for name, module in modules.items()}


# ---------------------------------------------------------------------- in a learner


def test_a_learner_refuses_losses_of_single_steps_for_a_memory():
    policy = Policy(actor_spec("lstm", distribution=BoundedSquashedGaussian((2,))), rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"cannot train a policy with a memory.*over_sequences"):
        make_learner(
            policy, [Objective(sac.CRITIC_LOSS, ("critics",), "critics")], modules={"critics": critics_of("lstm")}
        )


def test_a_learner_moves_actor_critics_and_targets():
    policy = Policy(actor_spec("gru", distribution=BoundedSquashedGaussian((2,))), rng=np.random.default_rng(0))
    objectives = [
        Objective(over_sequences(sac.CRITIC_LOSS, "critics"), ("critics",), "critics"),
        Objective(over_sequences(sac.ACTOR_LOSS, "policy"), ("policy",), "actor"),
    ]
    learner = make_learner(
        policy, objectives, modules={"critics": critics_of("gru")}, targets=[TargetCopy("critics", 0.1)],
        rng=np.random.default_rng(1),
    )  # fmt: skip
    columns = {name: column.numpy() for name, column in columns_of(policy.spec).items()}
    columns[OBS] = columns[OBS][:, :-1]
    batch = SampleBatch({n: c.astype(np.float32) if c.dtype == np.float64 else c for n, c in columns.items()})
    before = {name: learner.vector[name].copy() for name in learner.vector.slices}
    losses = []
    for _ in range(20):
        settings = {"critics": {"alpha": ALPHA}, "actor": {"alpha": ALPHA}}
        losses.append(learner.update(batch, rng=np.random.default_rng(2), lr=5e-3, shuffle=False, **settings))
        assert learner.update_targets(1 + len(losses))
    for name, weights in before.items():
        assert (learner.vector[name] != weights).mean() > 0.8
    assert losses[-1]["critic_loss"] < 0.7 * losses[0]["critic_loss"]
