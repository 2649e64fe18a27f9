"""The recurrent network in torch: views of the same flat vector as the numpy network (memory/in_numpy.py)."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rllib.models.dense.in_torch import (
    ACTIVATIONS,
    flat_rows,
    register_parameters,
    torso_features,
    torso_pieces,
    with_gradient,
)
from rllib.models.memory.layout import MemoryLayout, StepOrder


class TorchMemoryNetwork(nn.Module):
    """Computes distribution inputs and values of sequences.

    `parameters()` are shaped as in torch.nn.Linear, torch.nn.LSTM and torch.nn.GRU; changes show in the flat vector.

    Args:
        layout: where the parameters lie.
        activations: activation function of each hidden layer before the cell.
        flat: float32 [layout.size], on any device; the module's own memory, not copied.
    """

    def __init__(self, layout: MemoryLayout, activations: tuple[str, ...], flat: Tensor):
        super().__init__()
        self.layout = layout
        self._activations = [ACTIVATIONS[name] for name in activations]
        self._post = ACTIVATIONS[layout.memory.post_activation]
        self.flat = with_gradient(flat)
        self._parts = _pieces(layout, self.flat.detach())
        self.leaves = [part.requires_grad_() for part in self._parts.values()]
        self._gradients = list(_pieces(layout, self.flat.grad).values())
        register_parameters(self)

    def forward(self, inputs: Tensor, seq_lens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution inputs [B, K] and values [B].

        Args:
            inputs: what `Policy.encode` gives, [B, ...], sequence after sequence.
            seq_lens: int [S], lengths of the sequences. On a GPU this waits for them, unless the tensor has them as an
                array in an attribute `on_host`.
            state: [S, state_size] before their first rows.
        """
        lengths = getattr(seq_lens, "on_host", None)  # as learners give them
        order = StepOrder(seq_lens.cpu().numpy() if lengths is None else lengths)
        return self._results(self._outputs(inputs, order, state), _sent(order.back, inputs.device))

    @torch.no_grad()
    def state_after(self, inputs: Tensor, order: StepOrder, state: Tensor) -> Tensor:
        """States [S, state_size] after the last rows of sequences, without a graph; arguments as for `_unrolled`."""
        last = torch.stack([torch.cat(states) for _, *states in self._unrolled(inputs, order, state)])
        after = torch.empty_like(state)
        after[_sent(order.by_length, inputs.device)] = last.permute(2, 0, 1, 3).flatten(1)
        return after

    def _outputs(self, inputs: Tensor, order: StepOrder, state: Tensor) -> Tensor:
        """Outputs of the cells, [towers, B, size] in the order of steps; arguments as for `_unrolled`."""
        return torch.stack([outputs for outputs, *_ in self._unrolled(inputs, order, state)])

    def _unrolled(self, inputs: Tensor, order: StepOrder, state: Tensor) -> list[tuple[Tensor, ...]]:
        """Results of `_cell` for each tower.

        Args:
            inputs: what `Policy.encode` gives, [B, ...], sequence after sequence.
            order: order of the rows.
            state: [S, state_size] before their first rows.
        """
        rows, by_length = (_sent(each, inputs.device) for each in (order.rows, order.by_length))
        features, states = self._features(inputs[rows]), self._states(state[by_length])
        counts = torch.from_numpy(order.counts)
        return [self._cell(tower, features[tower], states[tower], counts) for tower in range(self.layout.num_towers)]

    def step(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One row of each of B sequences: distribution inputs [B, K], values [B] and the next states [B, state_size].

        Args:
            inputs: what `Policy.encode` gives, [B, ...].
            state: [B, state_size].
        """
        features, states = self._features(inputs), self._states(state)
        following = [self._stepped(tower, features[tower], states[tower]) for tower in range(self.layout.num_towers)]
        outputs = torch.stack([own[0] for own in following])
        return *self._results(outputs), torch.cat([part for own in following for part in own], dim=1)

    def _features(self, inputs: Tensor) -> Tensor:
        """Inputs of the cells, [towers, B, width]."""
        layout = self.layout
        if layout.torso:
            features = torso_features(layout.torso, self._parts, inputs, layout.num_towers)
        else:
            features = inputs[None, :, :-1].expand(layout.num_towers, -1, -1)
        for index, activation in enumerate(self._activations):
            features = activation(_affine(self._parts, f"hidden_{index}", features))
        return features

    def _states(self, state: Tensor) -> Tensor:
        """States [B, state_size] as [towers, states of a tower, B, size]."""
        shape = self.layout.num_towers, self.layout.memory.num_states, self.layout.memory.size
        return state.unflatten(1, shape).permute(1, 2, 0, 3)

    def _results(self, features: Tensor, order: Tensor | slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Distribution inputs and values from the cells' outputs, [towers, B, size], in another order of rows."""
        return results_of_heads(self.layout, self._parts, self._behind(features), order)

    def _behind(self, features: Tensor) -> Tensor:
        """Outputs of the layers behind the cells, [towers, B, width]."""
        for index in range(len(self.layout.memory.post_hiddens)):
            features = self._post(_affine(self._parts, f"post_{index}", features))
        return features

    def _stepped(self, tower: int, features: Tensor, states: Tensor) -> list[Tensor]:
        """States of a tower after one step, [B, size] each; the first is the cell's output."""
        parts, h = self._parts, states[0]
        read = functional.linear(features, parts[f"cell_{tower}.weight_ih"], parts[f"cell_{tower}.bias_ih"])
        recalled = functional.linear(h, parts[f"cell_{tower}.weight_hh"], parts[f"cell_{tower}.bias_hh"])
        if self.layout.memory.cell == "lstm":
            input_gate, forget, cell, output = (read + recalled).chunk(4, dim=1)
            c = forget.sigmoid() * states[1] + input_gate.sigmoid() * cell.tanh()
            return [output.sigmoid() * c.tanh(), c]
        (reset, update, new), (reset_h, update_h, new_h) = read.chunk(3, dim=1), recalled.chunk(3, dim=1)
        new = (new + (reset + reset_h).sigmoid() * new_h).tanh()
        return [torch.lerp(new, h, (update + update_h).sigmoid())]

    def _cell(self, tower: int, features: Tensor, states: Tensor, counts: Tensor) -> tuple[Tensor, ...]:
        """Outputs [B, size] for features [B, width], both in the order of steps, from states [h and c, S, size].

        The last states follow, [1, S, size] each.
        """
        weights = [self._parts[f"cell_{tower}.{name}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        if features.is_cuda:
            weights = side_by_side(weights)
        # has_biases, num_layers, dropout, train (cuDNN's backward pass asks for it), bidirectional
        rest = weights, True, 1, 0.0, True, False
        first = states[:, None].contiguous().unbind()  # [layers, S, size] each
        if self.layout.memory.cell == "lstm":
            return torch.lstm(features, counts, first, *rest)
        return torch.gru(features, counts, first[0], *rest)

    def receive(self, gradients: Sequence[Tensor]) -> None:
        """Writes the gradients of `leaves` into `flat.grad`, overwriting it."""
        torch._foreach_copy_(self._gradients, gradients)


class TorchMemoryCritics(TorchMemoryNetwork):
    """Networks with a memory of observations that judge actions (memory/critics.py: MemoryCritics).

    Args:
        layout, activations, flat: as for TorchMemoryNetwork; each head has a tower, and all have equal outputs.
        single: results, of one output, have no axis of outputs.
    """

    def __init__(self, layout: MemoryLayout, activations: tuple[str, ...], flat: Tensor, single: bool):
        super().__init__(layout, activations, flat)
        self._single = single

    def forward(
        self, inputs: Tensor, order: StepOrder, state: Tensor, rows: Tensor, *actions: Tensor, is_moved: bool = True
    ) -> Tensor:
        """Values [towers, R] of actions in some rows, or [towers, R, outputs].

        Args:
            inputs: encoded observations [B, ...], sequence after sequence.
            order: order of the rows.
            state: [S, state_size] before their first rows.
            rows: int [R], the rows that are judged.
            actions: [R, ...], if the layers behind the cells read any.
            is_moved: whether there is a gradient with respect to the parameters; False saves the graph of the cells,
                and leaves that of the actions.
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and is_moved):
            outputs = self._outputs(inputs, order, state)[:, _sent(order.back, inputs.device)[rows]]
        read = [flat_rows(each).expand(len(outputs), -1, -1) for each in actions]
        features = self._behind(torch.cat([outputs, *read], dim=2))
        results = torch.stack(
            [
                torch.addmm(self._parts[f"{name}_head.bias"], each, self._parts[f"{name}_head.weight"])
                for name, each in zip(self.layout.heads, features, strict=True)
            ]
        )
        return results[..., 0] if self._single else results


def side_by_side(weights: Sequence[Tensor]) -> list[Tensor]:
    """Copies of weights of any strides, row by row, one after the other: as cuDNN reads those of a cell.

    It refuses the transposed weights that the flat vector has, and copies those that lie apart in every call.
    """
    joined = torch.cat([each.reshape(-1) for each in weights])
    parts = joined.split([each.numel() for each in weights])
    return [part.view(each.shape) for part, each in zip(parts, weights)]


def results_of_heads(
    layout: MemoryLayout, parts: dict[str, Tensor], features: Tensor, order: Tensor | slice = slice(None)
) -> tuple[Tensor, Tensor]:
    """Distribution inputs and values from the last layers' outputs, [towers, B, width], in another order of rows."""
    policy, *value = features.unbind()
    # The policy trains a shared tower: the value reads it and sends no gradient into it.
    read = policy, *(value or [policy.detach()])
    dist_inputs, *values = [
        torch.addmm(parts[f"{name}_head.bias"], each, parts[f"{name}_head.weight"])[order]
        for name, each in zip(layout.heads, read)
    ]
    if layout.num_log_std:
        dist_inputs = torch.cat([dist_inputs, parts["log_std"].expand(dist_inputs.shape[0], -1)], dim=1)
    return dist_inputs, values[0].reshape(-1) if values else dist_inputs.new_empty(0)


def head_pieces(layout: MemoryLayout, blocks: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights and biases of each head, for `results_of_heads`."""
    heads = {name: layout.head(blocks, name) for name in layout.heads}
    weights = {f"{name}_head.weight": head[:-1] for name, head in heads.items()}
    return weights | {f"{name}_head.bias": head[-1:] for name, head in heads.items()}


def _sent(array: np.ndarray, device: torch.device) -> Tensor:
    """Sends an array to the device; to a GPU from page-locked memory, so that nothing waits."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _affine(parts: dict[str, Tensor], name: str, features: Tensor) -> Tensor:
    return torch.baddbmm(parts[f"{name}.bias"], features, parts[f"{name}.weight"])


def _pieces(layout: MemoryLayout, flat: Tensor) -> dict[str, Tensor]:
    """Parts of the blocks that `forward` reads: weights apart from biases, in cells as in torch.nn.LSTM."""
    blocks, torso = layout.blocks(flat), layout.torso
    parts = torso_pieces(torso, blocks, layout.num_towers) if torso else {}
    split = -layout.memory.size - 1
    for name, block in blocks.items():
        if name == "cell":
            for tower, cell in enumerate(block):
                parts[f"cell_{tower}.weight_ih"] = cell[: split - 1].T
                parts[f"cell_{tower}.weight_hh"] = cell[split:-1].T
                parts[f"cell_{tower}.bias_ih"], parts[f"cell_{tower}.bias_hh"] = cell[split - 1], cell[-1]
        elif name == "log_std":
            parts[name] = block
        elif not (name.startswith("image_") or name in layout.head_blocks):
            parts[f"{name}.weight"], parts[f"{name}.bias"] = block[..., :-1, :], block[..., -1:, :]
    return parts | head_pieces(layout, blocks)
