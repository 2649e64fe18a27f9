"""Networks with a memory: a step-by-step reference in float64, written like the equations, against all that is fast."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rllib.models.arithmetic import kernels
from rllib.models.catalog.catalog import policy_spec
from rllib.models.dense.in_torch import backward
from rllib.models.memory.in_numpy import NumpyMemoryNetwork
from rllib.models.memory.in_torch import TorchMemoryNetwork, side_by_side
from rllib.models.memory.layout import MemoryLayout, StepOrder
from rllib.models.memory.spec import Memory
from rllib.policy import Policy

NUM_INPUTS, SIZE, ACTIONS = 5, 6, 3
# Sequences of unequal lengths, the longest neither first nor last.
SEQ_LENS = np.array([3, 7, 1, 7, 4])


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def lstm(x, states, parameter):
    """torch.nn.LSTM's equations for one row: h, and the next (h, c)."""
    h, c = states
    gates = (
        parameter("weight_ih_l0") @ x
        + parameter("bias_ih_l0")
        + parameter("weight_hh_l0") @ h
        + parameter("bias_hh_l0")
    )
    i, f, g, o = np.split(gates, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return h, (h, c)


def gru(x, states, parameter):
    """torch.nn.GRU's equations for one row: h, and the next (h,)."""
    (h,) = states
    read = np.split(parameter("weight_ih_l0") @ x + parameter("bias_ih_l0"), 3)
    remembered = np.split(parameter("weight_hh_l0") @ h + parameter("bias_hh_l0"), 3)
    r, z = sigmoid(read[0] + remembered[0]), sigmoid(read[1] + remembered[1])
    n = np.tanh(read[2] + r * remembered[2])
    h = (1 - z) * n + z * h
    return h, (h,)


class Reference:
    """The network of a layout in float64, one row at a time."""

    def __init__(self, layout, weights):
        self.layout = layout
        self.named = layout.named_parameters(weights.astype(np.float64))

    def step(self, x, state):
        """(distribution inputs, value, next state) of one observation and one state."""
        layout, memory = self.layout, self.layout.memory
        parts, following, features = list(np.split(state, len(layout.state_shapes))), [], {}
        for owner in layout.towers:
            before = [parts.pop(0) for _ in range(memory.num_states)]
            read = x
            for index in range(len(layout.hiddens)):
                read = np.tanh(self.affine(f"{owner}.hidden_{index}", read))
            cell = {"lstm": lstm, "gru": gru}[memory.cell]
            read, after = cell(read, before, lambda name, owner=owner: self.named[f"{owner}.{memory.cell}.{name}"])
            for index in range(len(memory.post_hiddens)):
                read = np.maximum(self.affine(f"{owner}.post_{index}", read), 0)
            following += after
            features[owner] = read
        of = lambda head: features.get(head, features.get("shared"))  # noqa: E731
        dist_inputs, (value,) = self.affine("policy.head", of("policy")), self.affine("value.head", of("value"))
        if layout.num_log_std:
            dist_inputs = np.concatenate([dist_inputs, self.named["policy.log_std"]])
        return dist_inputs, value, np.concatenate(following)

    def affine(self, name, x):
        return self.named[f"{name}.weight"] @ x + self.named[f"{name}.bias"]

    def unrolled(self, inputs, seq_lens, states):
        """(distribution inputs [B, K], values [B], states after each row [B, M])."""
        found, row = [], 0
        for length, state in zip(seq_lens, states):
            for _ in range(length):
                *outputs, state = self.step(inputs[row], state)
                found.append((*outputs, state))
                row += 1
        return tuple(np.array(column) for column in zip(*found))


def layout_of(cell="lstm", shared="shared", hiddens=(), post=(), num_log_std=0) -> MemoryLayout:
    memory = Memory(cell, SIZE, post_hiddens=post)
    heads = {"policy": ACTIONS, "value": 1}
    return MemoryLayout(NUM_INPUTS, hiddens, heads, shared, num_log_std, memory=memory)


LAYOUTS = {
    "lstm": layout_of(),
    "gru": layout_of("gru"),
    "lstm for each": layout_of(shared=None),
    "gru for each, between layers": layout_of("gru", None, (7, 4), (5,)),
    "lstm between layers": layout_of(hiddens=(7, 4), post=(5, 8)),
    "lstm with a free deviation": layout_of(num_log_std=2),
}


@pytest.fixture(params=LAYOUTS)
def layout(request) -> MemoryLayout:
    return LAYOUTS[request.param]


def drawn(layout, seq_lens=SEQ_LENS, seed=0):
    """Weights, inputs [B, num_inputs + 1], and states [S, M]."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(0, 0.4, layout.size).astype(np.float32)
    inputs = np.ones((seq_lens.sum(), NUM_INPUTS + 1), np.float32)
    inputs[:, :-1] = rng.normal(size=(len(inputs), NUM_INPUTS))
    states = rng.uniform(-0.9, 0.9, (len(seq_lens), sum(size for (size,) in layout.state_shapes)))
    return weights, inputs, states.astype(np.float32)


def network_of(layout, weights) -> NumpyMemoryNetwork:
    return NumpyMemoryNetwork(layout, ("tanh",) * len(layout.hiddens), weights)


def torch_network_of(layout, weights) -> TorchMemoryNetwork:
    return TorchMemoryNetwork(layout, ("tanh",) * len(layout.hiddens), torch.from_numpy(weights.copy()))


def assert_close(found, expected, tolerance=1e-6):
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance)


def test_one_forward_pass_over_sequences_is_step_by_step(layout):
    weights, inputs, states = drawn(layout)
    expected = Reference(layout, weights).unrolled(inputs[:, :-1], SEQ_LENS, states)[:2]
    assert_close(network_of(layout, weights).forward(inputs, SEQ_LENS, states), expected, 2e-6)
    with torch.no_grad():
        given = torch.from_numpy(inputs), torch.from_numpy(SEQ_LENS), torch.from_numpy(states)
        assert_close(torch_network_of(layout, weights)(*given), expected, 2e-6)


def test_acting_is_step_by_step(layout):
    weights, inputs, states = drawn(layout, np.array([4] * 3))
    dist_inputs, values, after = Reference(layout, weights).unrolled(inputs[:, :-1], [4] * 3, states)
    network, state = network_of(layout, weights), states
    for t in range(4):
        found, following = np.empty(3, np.float32), np.full_like(state, np.nan)
        rows = slice(t, None, 4)
        found_inputs = network.step(inputs[rows], state, following, found)
        assert_close((found_inputs, found, following), (dist_inputs[rows], values[rows], after[rows]), 2e-6)
        state = following


@pytest.mark.parametrize("cores", [1, 2])
def test_the_gradient_is_that_of_autograd(layout, cores, monkeypatch):
    """Where states begin nothing flows further, in either form."""
    for least in ("PART", "FEWEST_ROWS"):
        monkeypatch.setattr(kernels, least, 1)
    weights, inputs, states = drawn(layout)
    network, other = network_of(layout, weights), torch_network_of(layout, weights)
    rng = np.random.default_rng(1)
    for seq_lens in (SEQ_LENS, SEQ_LENS[:3], SEQ_LENS):  # a smaller batch between: buffers are used again
        rows = seq_lens.sum()
        given = inputs[:rows], seq_lens, states[: len(seq_lens)]
        outputs = other(*map(torch.from_numpy, given))
        d_outputs = [rng.normal(size=output.shape).astype(np.float32) for output in outputs]
        backward(sum((output * torch.from_numpy(d)).sum() for output, d in zip(outputs, d_outputs)), [other])
        with kernels.on_cores(cores):
            network.forward(*given)
            found = layout.named_parameters(network.backward(tuple(d_outputs)))
        for name, expected in layout.named_parameters(other.flat.grad).items():
            np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-5, err_msg=name)


def test_the_value_trains_what_it_does_not_share(layout):
    """In both forms; a shared cell is the policy's, or the value's larger errors would swamp it."""
    weights, inputs, states = drawn(layout)
    network, other = network_of(layout, weights), torch_network_of(layout, weights)
    _, values = other(*map(torch.from_numpy, (inputs, SEQ_LENS, states)))
    backward((values**2).sum(), [other])
    dist_inputs, values = network.forward(inputs, SEQ_LENS, states)
    found = network.backward((np.zeros_like(dist_inputs), 2 * values))
    for gradients in (layout.named_parameters(found), layout.named_parameters(other.flat.grad)):
        moved = {name for name, gradient in gradients.items() if gradient.any()}
        head = {"value.head.weight", "value.head.bias"}
        assert moved == head if layout.shared else moved > head


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_parameters_are_those_of_torch(cell):
    """Loaded into torch.nn.LSTM or GRU they compute the same."""
    layout = layout_of(cell)
    weights, inputs, _ = drawn(layout, np.array([6]))
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell](NUM_INPUTS, SIZE)
    named = layout.named_parameters(torch.from_numpy(weights))
    module.load_state_dict({name: named[f"shared.{cell}.{name}"] for name in module.state_dict()})
    states = np.zeros((1, sum(size for (size,) in layout.state_shapes)), np.float32)
    with torch.no_grad():
        outputs, _ = module(torch.from_numpy(inputs[:, :-1]))
        expected = outputs @ named["policy.head.weight"].T + named["policy.head.bias"]
    np.testing.assert_allclose(
        network_of(layout, weights).forward(inputs, np.array([6]), states)[0], expected, atol=2e-6
    )


def test_sequences_may_stand_in_any_order_and_be_cut_anywhere(layout):
    """A cut gives the same outputs, as long as the second part begins with the state at that place."""
    weights, inputs, states = drawn(layout)
    network, reference = network_of(layout, weights), Reference(layout, weights)
    dist_inputs, values, after = reference.unrolled(inputs[:, :-1], SEQ_LENS, states)
    order = np.array([4, 2, 0, 3, 1])
    ends = np.cumsum(SEQ_LENS)
    rows = np.concatenate([np.arange(ends[i] - SEQ_LENS[i], ends[i]) for i in order])
    assert_close(network.forward(inputs[rows], SEQ_LENS[order], states[order]), (dist_inputs[rows], values[rows]), 2e-6)
    # The second sequence, rows 3 ... 9, is cut after its second row.
    seq_lens = np.array([3, 2, 5, 1, 7, 4])
    states = np.insert(states, 2, after[4], axis=0).astype(np.float32)
    assert_close(network.forward(inputs, seq_lens, states), (dist_inputs, values), 2e-6)


def test_the_order_of_steps():
    order = StepOrder(np.array([2, 3, 1]))
    assert order.by_length.tolist() == [1, 0, 2]
    assert order.counts.tolist() == [3, 2, 1]
    assert order.rows.tolist() == [2, 0, 5, 3, 1, 4]  # first steps of 1, 0, 2; second of 1, 0; third of 1
    assert order.rows[order.back].tolist() == list(range(6))
    assert order.previous.tolist() == [0, 1, 2, 3, 4, 6]  # three states come first


def test_initial_weights():
    layout = layout_of("lstm")
    weights = np.full(layout.size, np.nan, np.float32)
    layout.initialize_memory(weights, np.random.default_rng(0), "orthogonal")
    named = layout.named_parameters(weights)
    for gate in np.split(named["shared.lstm.weight_hh_l0"], 4):
        np.testing.assert_allclose(gate @ gate.T, np.eye(SIZE), atol=1e-6)
    assert not named["shared.lstm.bias_ih_l0"].any() and not named["shared.lstm.bias_hh_l0"].any()
    layout.initialize_memory(weights, np.random.default_rng(0), "uniform")
    assert abs(named["shared.lstm.bias_ih_l0"]).max() <= SIZE**-0.5 and named["shared.lstm.bias_ih_l0"].all()


@pytest.mark.parametrize("shared", [True, False])
def test_images_are_seen_by_convolutions_first(shared):
    """Acting in numpy, learning in torch: the same outputs."""
    image = spaces.Box(0, 255, (12, 12, 1), np.uint8)
    model = {"use_lstm": True, "lstm_cell_size": SIZE, "conv_filters": [[4, [4, 4], 4]], "vf_share_memory": shared}
    policy = Policy(policy_spec(image, spaces.Discrete(3), model), rng=np.random.default_rng(0))
    assert not policy.network.closed_form
    rng = np.random.default_rng(1)
    seen, states = rng.integers(0, 256, (10, *image.shape), np.uint8), np.zeros((2, policy.state_size), np.float32)
    seq_lens = np.array([4, 6])
    module = policy.spec.torch(policy.layout, torch.from_numpy(policy.weights), policy.network)
    with torch.no_grad():
        expected = module(*map(torch.from_numpy, (seen, seq_lens, states)))
    assert_close(policy.network.forward(seen, seq_lens, states), expected, 1e-5)
    values, following = np.empty(2, np.float32), np.empty_like(states)
    first = policy.network.step(seen[[0, 4]], states, following, values)
    assert_close((first, values), (expected[0][[0, 4]], expected[1][[0, 4]]), 1e-5)


def test_weights_side_by_side_are_the_same_and_train_the_originals():
    flat = torch.arange(30.0, requires_grad=True)
    weights = [flat[:12].view(4, 3).T, flat[12:20].view(2, 4).T, flat[20:24], flat[24:30]]
    joined = side_by_side(weights)
    for given, copy in zip(weights, joined, strict=True):
        assert torch.equal(given, copy)
        assert copy.is_contiguous()
    starts = [each.storage_offset() for each in joined]
    assert starts == [0, 12, 20, 24]
    sum((number + 1) * each.sum() for number, each in enumerate(joined)).backward()
    assert flat.grad.tolist() == [1.0] * 12 + [2.0] * 8 + [3.0] * 4 + [4.0] * 6
