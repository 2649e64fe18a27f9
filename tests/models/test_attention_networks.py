"""Attention: a step-by-step reference in float64, written like the equations, against one pass over sequences."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rllib.models.attention.in_numpy import NumpyAttentionNetwork
from rllib.models.attention.in_torch import TorchAttentionNetwork
from rllib.models.attention.layout import AttentionLayout
from rllib.models.attention.spec import Attention
from rllib.models.catalog.catalog import policy_spec
from rllib.models.dense.in_torch import backward
from rllib.policy import Policy

torch.set_num_threads(1)  # operations this small are slower on several

NUM_INPUTS, ACTIONS, WINDOW = 5, 3, 6
# Sequences of unequal lengths, some longer than the window.
SEQ_LENS = np.array([3, 9, 1, 9, 4])
MEMORY = {"size": 8, "head_size": 4, "window": WINDOW, "mlp_size": 5}


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


class Reference:
    """The network of a layout in float64, one row at a time; a state is a list of what each unit has read."""

    def __init__(self, layout, weights):
        self.layout, self.memory = layout, layout.memory
        self.named = layout.named_parameters(weights.astype(np.float64))

    def step(self, x, state):
        """(distribution inputs, value, next state); `state` has the window of each tower's units, oldest first."""
        found, following = {}, []
        for owner in self.layout.towers:
            read = x
            for index in range(len(self.layout.hiddens)):
                read = np.tanh(self.affine(f"{owner}.hidden_{index}", read))
            read = self.affine(f"{owner}.embedding", read)
            for unit in range(self.memory.num_units):
                window = state[len(following)]
                following.append([*window, read][-self.memory.window :])
                read = self.unit(f"{owner}.unit_{unit}", read, window)
            for index in range(len(self.memory.post_hiddens)):
                read = np.maximum(self.affine(f"{owner}.post_{index}", read), 0)
            found[owner] = read
        of = lambda head: self.affine(f"{head}.head", found.get(head, found.get("shared")))  # noqa: E731
        dist_inputs, (value,) = of("policy"), of("value")
        if self.layout.num_log_std:
            dist_inputs = np.concatenate([dist_inputs, self.named["policy.log_std"]])
        return dist_inputs, value, following

    def unit(self, name, x, window):
        memory, heads = self.memory, []
        rows = [self.normalized(f"{name}.attention_norm", row) for row in [*window, x]]
        query, _, _ = np.split(self.named[f"{name}.query_key_value.weight"] @ rows[-1], 3)
        for head in range(memory.num_heads):
            part = slice(head * memory.head_size, (head + 1) * memory.head_size)
            scores, values = [], []
            for back, row in zip(range(len(window), -1, -1), rows, strict=True):
                _, key, value = np.split(self.named[f"{name}.query_key_value.weight"] @ row, 3)
                position = self.named[f"{name}.position.weight"] @ self.encoding(back)
                content = (query + self.named[f"{name}.content_bias"])[part] @ key[part]
                scores.append(content + (query + self.named[f"{name}.position_bias"])[part] @ position[part])
                values.append(value[part])
            shares = np.exp(np.array(scores) / math.sqrt(memory.head_size))
            heads.append(shares / shares.sum() @ np.array(values))
        joined = self.named[f"{name}.joined.weight"] @ np.concatenate(heads)
        x = self.gate(f"{name}.attention_gate", x, np.maximum(joined, 0))
        within = np.maximum(self.affine(f"{name}.mlp_0", self.normalized(f"{name}.mlp_norm", x)), 0)
        return self.gate(f"{name}.mlp_gate", x, np.maximum(self.affine(f"{name}.mlp_1", within), 0))

    def gate(self, name, x, y):
        """GTrXL's equations (section 3.2): r, z, h and g."""
        weight, size = self.named[f"{name}.weight"], self.memory.size
        w_r, w_z, w_g = np.split(weight[:, :size], 3)
        u_r, u_z, u_g = np.split(weight[:, size:], 3)
        r = sigmoid(w_r @ y + u_r @ x)
        z = sigmoid(w_z @ y + u_z @ x - self.named[f"{name}.bias"])
        h = np.tanh(w_g @ y + u_g @ (r * x))
        return (1 - z) * x + z * h

    def encoding(self, back):
        size = self.memory.size
        angles = [back / 10_000 ** (2 * i / size) for i in range(size // 2)]
        return np.array([*map(math.sin, angles), *map(math.cos, angles)])

    def normalized(self, name, x):
        normal = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
        return self.named[f"{name}.weight"] * normal + self.named[f"{name}.bias"]

    def affine(self, name, x):
        return self.named[f"{name}.weight"] @ x + self.named[f"{name}.bias"]

    def unrolled(self, inputs, seq_lens, states):
        """(distribution inputs [B, K], values [B], states after each row)."""
        found, row = [], 0
        for length, state in zip(seq_lens, states):
            state = self.listed(state)
            for _ in range(length):
                *outputs, state = self.step(inputs[row], state)
                found.append((*outputs, self.flat(state)))
                row += 1
        return tuple(np.array(column) for column in zip(*found))

    def listed(self, state):
        count = int(state[-1])
        windows = state[:-1].reshape(-1, self.memory.window, self.memory.size)
        return [list(window[len(window) - count :]) for window in windows]

    def flat(self, state):
        windows = np.zeros((len(state), self.memory.window, self.memory.size))
        for window, rows in zip(windows, state):
            window[len(window) - len(rows) :] = rows
        return np.append(windows, len(state[0]))


def layout_of(shared="shared", hiddens=(), num_log_std=0, **memory) -> AttentionLayout:
    heads = {"policy": ACTIONS, "value": 1}
    return AttentionLayout(NUM_INPUTS, hiddens, heads, shared, num_log_std, memory=Attention(**(MEMORY | memory)))


LAYOUTS = {
    "one unit": layout_of(),
    "three units of two heads": layout_of(num_units=3, num_heads=2),
    "units for each, between layers": layout_of(None, (7, 4), num_units=2, num_heads=2, post_hiddens=(5, 4)),
    "a free deviation, a window of one": layout_of(num_log_std=2, window=1),
}


@pytest.fixture(params=LAYOUTS)
def layout(request) -> AttentionLayout:
    return LAYOUTS[request.param]


def drawn(layout, seq_lens=SEQ_LENS, seed=0):
    """Weights, inputs [B, num_inputs + 1], and states [S, M]: windows that are empty, partly filled, and full."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(0, 0.4, layout.size).astype(np.float32)
    inputs = np.ones((seq_lens.sum(), NUM_INPUTS + 1), np.float32)
    inputs[:, :-1] = rng.normal(size=(len(inputs), NUM_INPUTS))
    windows = rng.normal(size=(len(seq_lens), *(len(layout.state_shapes) - 1, *layout.state_shapes[0])))
    counts = np.arange(len(seq_lens)) * layout.memory.window // (len(seq_lens) - 1)
    for window, count in zip(windows, counts):
        window[:, : layout.memory.window - count] = 0
    states = np.concatenate([windows.reshape(len(seq_lens), -1), counts[:, None]], axis=1)
    return weights, inputs, states.astype(np.float32)


def network_of(layout, weights) -> TorchAttentionNetwork:
    return TorchAttentionNetwork(layout, ("tanh",) * len(layout.hiddens), torch.from_numpy(weights.copy()))


def acting_of(layout, weights):
    return NumpyAttentionNetwork(layout, ("tanh",) * len(layout.hiddens), weights)


def assert_close(found, expected, tolerance=1e-5):
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance)


def test_one_pass_over_sequences_is_step_by_step(layout):
    weights, inputs, states = drawn(layout)
    expected = Reference(layout, weights).unrolled(inputs[:, :-1], SEQ_LENS, states)
    assert_close(acting_of(layout, weights).forward(inputs, SEQ_LENS, states), expected[:2])
    # Acting, all sequences side by side as long as they go on.
    network, starts = acting_of(layout, weights), np.cumsum(SEQ_LENS) - SEQ_LENS
    for t in range(SEQ_LENS.max()):
        going_on = t < SEQ_LENS
        rows = starts[going_on] + t
        before = states[going_on[t <= SEQ_LENS]]
        states = np.empty_like(before)
        values = np.empty(len(rows), np.float32)
        dist_inputs = network.step(inputs[rows], before, states, values)
        assert_close((dist_inputs, values, states), [each[rows] for each in expected])


def test_the_gradient_is_that_of_the_steps(layout):
    """Of the steps within a sequence, through all that they hand on, by central differences of the reference.

    A value that shares the tower is differentiated by its head alone.
    """
    weights, inputs, states = drawn(layout)
    network, given = network_of(layout, weights), list(map(torch.from_numpy, (inputs, SEQ_LENS, states)))
    outputs, rng = network(*given), np.random.default_rng(3)
    factors = [torch.from_numpy(rng.normal(size=each.shape).astype(np.float32)) for each in outputs]
    backward(sum((factor * each).sum() for factor, each in zip(factors, outputs)), [network])
    gradient = network.flat.grad.numpy()
    for seed in range(4):
        direction = np.random.default_rng(seed).normal(size=layout.size)
        direction /= np.linalg.norm(direction)
        by_head = np.zeros_like(direction)
        for name in ("value.head.weight", "value.head.bias"):
            layout.named_parameters(by_head)[name][:] = layout.named_parameters(direction)[name]
        losses = []
        for sign in (1, -1):
            found = [
                Reference(layout, weights + sign * 1e-5 * along).unrolled(inputs[:, :-1], SEQ_LENS, states)[index]
                for index, along in enumerate((direction, by_head if layout.shared else direction))
            ]
            losses.append(sum((factor.numpy() * each).sum() for factor, each in zip(factors, found)))
        assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(gradient @ direction, rel=1e-3, abs=1e-3)


def test_the_value_trains_what_it_does_not_share(layout):
    weights, inputs, states = drawn(layout)
    network = network_of(layout, weights)
    _, values = network(*map(torch.from_numpy, (inputs, SEQ_LENS, states)))
    backward((values**2).sum(), [network])
    moved = {name for name, gradient in layout.named_parameters(network.flat.grad).items() if gradient.any()}
    head = {"value.head.weight", "value.head.bias"}
    assert moved == head if layout.shared else moved > head


def states_after(network, inputs, states):
    """Distribution inputs of rows [T, S, ...], step by step, and the last states."""
    found = []
    for rows in inputs:
        following = np.empty_like(states)
        found.append(network.step(rows, states, following).copy())
        states = following
    return np.array(found), states


@pytest.mark.parametrize("length", [3, 7, 50])
def test_states_carried_on_make_one_long_sequence(layout, length):
    """However the steps are cut into sequences."""
    steps = 50
    weights, inputs, states = drawn(layout, np.array([steps, steps]))
    network = acting_of(layout, weights)
    whole = network.forward(inputs, np.array([steps, steps]), states)
    rows = inputs.reshape(2, steps, -1).transpose(1, 0, 2).copy()
    for start in range(0, steps, length):
        part = rows[start : start + length]
        seq_lens = np.full(2, len(part))
        dist_inputs, values = network.forward(part.transpose(1, 0, 2).reshape(-1, NUM_INPUTS + 1), seq_lens, states)
        cut = [column.reshape(2, steps, -1)[:, start : start + length] for column in whole]
        assert_close((dist_inputs.reshape(cut[0].shape), values.reshape(cut[1].shape)), cut)
        _, states = states_after(network, part, states)


def test_sequences_do_not_know_of_each_other(layout):
    """In whatever company, padded for a longer one or not, a sequence has the same results."""
    weights, inputs, states = drawn(layout)
    network = acting_of(layout, weights)
    together = network.forward(inputs, SEQ_LENS, states)
    ends = np.cumsum(SEQ_LENS)
    for index, (end, length) in enumerate(zip(ends, SEQ_LENS)):
        rows, one = slice(end - length, end), slice(index, index + 1)
        assert_close(network.forward(inputs[rows], SEQ_LENS[one], states[one]), [each[rows] for each in together])
        inputs[rows] += 100
        others = network.forward(inputs, SEQ_LENS, states)
        assert_close(
            [np.delete(each, np.r_[rows], 0) for each in others], [np.delete(each, np.r_[rows], 0) for each in together]
        )
        inputs[rows] -= 100


def test_empty_places_have_no_part(layout):
    """Whatever stands in them; what is in a full window has one, and what has left it has none."""
    weights, inputs, states = drawn(layout)
    network = acting_of(layout, weights)
    expected = network.forward(inputs, SEQ_LENS, states)
    for state in states:
        windows = state[:-1].reshape(-1, *layout.state_shapes[0])
        windows[:, : layout.memory.window - int(state[-1])] = 1e6
    assert_close(network.forward(inputs, SEQ_LENS, states), expected, 0)
    # One tower's reach: `num_units` windows back, and no further.
    reach, steps = layout.memory.num_units * layout.memory.window, 30
    weights, inputs, states = drawn(layout, np.array([steps, steps]))
    before, _ = network.forward(inputs, np.array([steps, steps]), states)
    inputs[0, :-1] += 1
    after, _ = network.forward(inputs, np.array([steps, steps]), states)
    changed = (before != after).any(1)[:steps]
    assert changed[:reach].any() and not changed[reach + 1 :].any()


@pytest.mark.parametrize("initializer", ["orthogonal", "uniform"])
def test_initial_weights(initializer):
    """Gates begin near the identity, normalisations at it, and matrices that stand side by side each by themselves."""
    model = {"use_attention": True, "attention_num_heads": 2, "attention_head_dim": 8, "attention_dim": 16}
    model["vf_share_memory"] = True
    spec = policy_spec(spaces.Box(-1, 1, (3,)), spaces.Discrete(2), model, initializer=initializer)
    policy = Policy(spec, rng=np.random.default_rng(0))
    named = policy.parameters()
    for gate in ("attention_gate", "mlp_gate"):
        np.testing.assert_array_equal(named[f"shared.unit_0.{gate}.bias"], 2)
    np.testing.assert_array_equal(named["shared.unit_0.mlp_norm.weight"], 1)
    assert not named["shared.unit_0.content_bias"].any()
    if initializer == "orthogonal":
        for head in np.split(named["shared.unit_0.query_key_value.weight"], 6):
            np.testing.assert_allclose(head @ head.T, np.eye(8), atol=1e-6)
        for matrix in np.split(named["shared.unit_0.mlp_gate.weight"][:, :16], 3):
            np.testing.assert_allclose(matrix @ matrix.T, np.eye(16), atol=1e-6)
    else:
        assert 0.2 < abs(named["shared.unit_0.query_key_value.weight"]).max() <= 0.25
    observations, state = np.ones((1, 3), np.float32), np.zeros((1, policy.state_size), np.float32)
    assert abs(policy.network.step(policy.encode(observations), state, state.copy())).max() < 0.5


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("with_numbers", [False, True])
def test_images_are_seen_by_convolutions_first(shared, with_numbers):
    space = spaces.Box(0, 255, (12, 12, 1), np.uint8)
    if with_numbers:
        space = spaces.Dict({"image": space, "numbers": spaces.Box(-1, 1, (2,))})
    model = {"use_attention": True, "attention_dim": 8, "conv_filters": [[4, [4, 4], 4]], "vf_share_memory": shared}
    policy = Policy(policy_spec(space, spaces.Discrete(3), model), rng=np.random.default_rng(0))
    rng, shape = np.random.default_rng(1), policy.spec.encoder.shape
    seen = rng.integers(0, 256, (10, *shape)).astype(np.float32 if with_numbers else np.uint8)
    states, seq_lens = np.zeros((2, policy.state_size), np.float32), np.array([4, 6])
    dist_inputs, values = policy.network.forward(seen, seq_lens, states)
    found, following = np.empty(2, np.float32), np.empty_like(states)
    assert_close(
        (policy.network.step(seen[[0, 4]], states, following, found), found), (dist_inputs[[0, 4]], values[[0, 4]])
    )
