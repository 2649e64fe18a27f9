"""The attention network in torch, for learning: views of a flat vector, one pass over whole sequences.

The first axis of tensors is the tower. Policies act in numpy (attention/in_numpy.py) on the same weights; exported ones
act by `step`.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rllib.models.arithmetic.layer_norm import EPSILON
from rllib.models.attention.layout import AttentionLayout, position_encodings
from rllib.models.dense.in_torch import ACTIVATIONS, register_parameters, torso_features, torso_pieces, with_gradient
from rllib.models.memory.in_torch import head_pieces, results_of_heads


def sequences_in_numpy(layout: AttentionLayout, activations: tuple[str, ...], weights: np.ndarray) -> Callable:
    """A function that calls TorchAttentionNetwork on these weights with arrays, without gradients."""
    network = TorchAttentionNetwork(layout, activations, torch.from_numpy(weights))

    @torch.inference_mode()
    def forward(*given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        dist_inputs, values = network(*(torch.from_numpy(np.require(each, requirements="W")) for each in given))
        return dist_inputs.numpy(), values.numpy()

    return forward


class TorchAttentionNetwork(nn.Module):
    """Computes distribution inputs and values of sequences.

    Args:
        layout: where the parameters lie.
        activations: activation function of each hidden layer before the first unit.
        flat: float32 [layout.size], on any device; the module's own memory, not copied.
    """

    def __init__(self, layout: AttentionLayout, activations: tuple[str, ...], flat: Tensor):
        super().__init__()
        self.layout, self.memory = layout, layout.memory
        self._activations = [ACTIVATIONS[name] for name in activations]
        self._post = ACTIVATIONS[self.memory.post_activation]
        self._positions = torch.from_numpy(position_encodings(self.memory.window, self.memory.size)).to(flat.device)
        self.flat = with_gradient(flat)
        self._parts = _pieces(layout, self.flat.detach())
        self.leaves = [part.requires_grad_() for part in self._parts.values()]
        self._gradients = list(_pieces(layout, self.flat.grad).values())
        register_parameters(self)

    def forward(self, inputs: Tensor, seq_lens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution inputs [B, K] and values [B].

        Args:
            inputs: what `Policy.encode` gives, [B, ...], sequence after sequence.
            seq_lens: int [S], lengths of the sequences.
            state: [S, state_size] before their first rows.
        """
        return self._results(self._read_by_units(inputs, state, _Blocks(seq_lens, len(inputs)))[-1])

    def step(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One row of each of B sequences: distribution inputs [B, K], values [B] and the next states [B, state_size].

        Args:
            inputs: what `Policy.encode` gives, [B, ...].
            state: [B, state_size].
        """
        *read, last = self._read_by_units(inputs, state, _SingleRows())
        shifted = [torch.cat([seen[:, :, 1:], x[:, :, None]], 2) for seen, x in zip(self._windows(state), read)]
        windows = torch.stack(shifted, dim=1).permute(2, 0, 1, 3, 4)  # [B, towers, units, window, size]
        counts = (state[:, -1:] + 1).clamp(max=self.memory.window)
        return *self._results(last), torch.cat([windows.flatten(1), counts], dim=1)

    def _read_by_units(self, inputs: Tensor, state: Tensor, blocks: "_Blocks | _SingleRows") -> list[Tensor]:
        """Inputs of each unit, and last the output of the last one, [towers, B, size] each."""
        layout = self.layout
        if layout.torso:
            features = torso_features(layout.torso, self._parts, inputs, layout.num_towers)
        else:
            features = inputs[None, :, :-1].expand(layout.num_towers, -1, -1)
        for index, activation in enumerate(self._activations):
            features = activation(self._affine(f"hidden_{index}", features))
        read = [self._affine("embedding", features)]
        hidden = self._hidden(blocks, state[:, -1])
        for unit, window in enumerate(self._windows(state)):
            name, x = f"unit_{unit}", read[-1]
            x = self._gated(f"{name}_attention_gate", x, torch.relu(self._attended(name, x, window, hidden, blocks)))
            within = torch.relu(self._affine(f"{name}_mlp_0", self._normalized(f"{name}_mlp_norm", x)))
            read.append(self._gated(f"{name}_mlp_gate", x, torch.relu(self._affine(f"{name}_mlp_1", within))))
        return read

    def _results(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution inputs and values from the last unit's output."""
        for index in range(len(self.memory.post_hiddens)):
            x = self._post(self._affine(f"post_{index}", x))
        return results_of_heads(self.layout, self._parts, x)

    def receive(self, gradients: Sequence[Tensor]) -> None:
        """Writes the gradients of `leaves` into `flat.grad`, overwriting it."""
        torch._foreach_copy_(self._gradients, gradients)

    def _windows(self, state: Tensor) -> tuple[Tensor, ...]:
        """Windows [towers, S, window, size] of each unit, from states [S, state_size]."""
        memory = self.memory
        shape = self.layout.num_towers, memory.num_units, memory.window, memory.size
        return state[:, :-1].unflatten(1, shape).transpose(0, 1).unbind(2)

    def _hidden(self, blocks: "_Blocks | _SingleRows", counts: Tensor) -> Tensor:
        """Mask of what each row must not attend to, bool [S, 1, L, window + L]: the window, then the sequence's rows.

        Row t sees itself, column window + t, and the `window` columns before it; of the window, the last `counts` [S].
        """
        window, length = self.memory.window, blocks.length
        column = torch.arange(window + length, device=counts.device)
        row = torch.arange(length, device=counts.device)[:, None]
        outside = (column < row) | (column > row + window)
        return (outside | (column < window - counts[:, None, None]))[:, None]

    def _attended(
        self, name: str, x: Tensor, window: Tensor, hidden: Tensor, blocks: "_Blocks | _SingleRows"
    ) -> Tensor:
        """Relative multi-head attention, [towers, B, size].

        Args:
            name: name of the unit.
            x: [towers, B, size].
            window: [towers, S, window, size] before the sequences.
            hidden: as `_hidden` gives it.
            blocks: the sequences.
        """
        parts, heads = self._parts, (self.memory.num_heads, self.memory.head_size)
        size, norm, length = heads[0] * heads[1], f"{name}_attention_norm", blocks.length
        weight = parts[f"{name}_query_key_value"]
        own = blocks.of_rows(torch.bmm(self._normalized(norm, x), weight))  # [towers, S, L, 3 H]
        before = torch.bmm(self._normalized(norm, window.flatten(1, 2)), weight[..., size:])
        before = before.unflatten(1, window.shape[1:3])
        # [towers, S, heads, rows, head_size] each; keys and values of window + L rows
        query = own[..., :size].unflatten(-1, heads).transpose(2, 3)
        key, value = torch.cat([before, own[..., size:]], dim=2).unflatten(-1, (2, *heads)).permute(3, 0, 1, 4, 2, 5)
        for_contents, for_positions = parts[f"{name}_score_bias"].unflatten(-1, (heads[0], 1, heads[1])).unbind(1)
        position = (self._positions @ parts[f"{name}_position"]).unflatten(-1, heads).transpose(1, 2)
        contents = (query + for_contents[:, None]) @ key.transpose(-1, -2)
        positions = (query + for_positions[:, None]) @ position[:, None].transpose(-1, -2)
        # Column p of `positions` is window - p steps back: in row t, column t + p of `contents`. Appending L zeros to
        # each row and cutting the result into rows that are one column shorter puts t zeros before row t.
        positions = functional.pad(positions, (0, length)).flatten(-2)[..., : length * contents.shape[-1]]
        scores = (contents + positions.unflatten(-1, contents.shape[-2:])) * heads[1] ** -0.5
        shares = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        joined = blocks.to_rows((shares @ value).transpose(2, 3).flatten(-2))
        return torch.bmm(joined, parts[f"{name}_joined"])

    def _gated(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """GRU-type gate between x, which bypasses a layer, and its result y, [towers, B, size] each (section 3.2)."""
        parts, size = self._parts, self.memory.size
        gates, candidate = torch.bmm(y, parts[f"{name}.of_result"]).split((2 * size, size), dim=-1)
        reset, update = (gates + torch.bmm(x, parts[f"{name}.of_bypass"])).split(size, dim=-1)
        candidate = torch.baddbmm(candidate, torch.sigmoid(reset) * x, parts[f"{name}.candidate"])
        share = torch.sigmoid(update - parts[f"{name}_bias"])
        # Under autocast x and the candidate are of lower precision, and `lerp` takes one type alone.
        return torch.lerp(x.type_as(share), torch.tanh(candidate).type_as(share), share)

    def _affine(self, name: str, x: Tensor) -> Tensor:
        return torch.baddbmm(self._parts[f"{name}.bias"], x, self._parts[f"{name}.weight"])

    def _normalized(self, name: str, x: Tensor) -> Tensor:
        normal = functional.layer_norm(x, x.shape[-1:], eps=EPSILON)
        return torch.addcmul(self._parts[f"{name}.shift"], normal, self._parts[f"{name}.scale"])


class _Blocks:
    """Sequences side by side in blocks of the longest one's length; shorter ones are padded with rows of zeros.

    Padding does not reach the other rows, since attention only looks back.

    Args:
        seq_lens: int [S].
        num_rows: of all sequences together.

    Attributes:
        length: length L of the longest sequence.
    """

    def __init__(self, seq_lens: Tensor, num_rows: int):
        self.length = int(seq_lens.max())
        self._place = None
        if self.length * len(seq_lens) > num_rows:
            starts = torch.arange(len(seq_lens), device=seq_lens.device) * self.length - (seq_lens.cumsum(0) - seq_lens)
            rows = torch.arange(num_rows, device=seq_lens.device)
            self._place = rows + starts.repeat_interleave(seq_lens, output_size=num_rows)
            self._num_places = self.length * len(seq_lens)

    def of_rows(self, rows: Tensor) -> Tensor:
        """Rows [towers, B, width] as blocks [towers, S, L, width]."""
        if self._place is not None:
            blocks = rows.new_zeros((len(rows), self._num_places, rows.shape[-1]))
            rows = blocks.index_copy(1, self._place, rows)
        return rows.unflatten(1, (-1, self.length))

    def to_rows(self, blocks: Tensor) -> Tensor:
        """Inverse of `of_rows`."""
        rows = blocks.flatten(1, 2)
        return rows if self._place is None else rows.index_select(1, self._place)


class _SingleRows:
    """Like _Blocks, for one step of each sequence."""

    length = 1

    def of_rows(self, rows: Tensor) -> Tensor:
        """Rows [towers, B, width] as blocks [towers, B, 1, width]."""
        return rows[:, :, None]

    def to_rows(self, blocks: Tensor) -> Tensor:
        """Inverse of `of_rows`."""
        return blocks[:, :, 0]


def _pieces(layout: AttentionLayout, flat: Tensor) -> dict[str, Tensor]:
    """Parts of the blocks that `forward` reads: weights apart from biases, the gates' matrices by what they multiply.

    For every slice of a leaf, autograd would write a gradient as long as the whole leaf; so the slices are the leaves.
    """
    blocks, torso, size = layout.blocks(flat), layout.torso, layout.memory.size
    parts = torso_pieces(torso, blocks, layout.num_towers) if torso else {}
    for name, block in blocks.items():
        if name.startswith("image_") or name in layout.head_blocks:
            continue
        if name.endswith("_norm"):
            parts[f"{name}.scale"], parts[f"{name}.shift"] = block[:, :1], block[:, 1:]
        elif name.endswith("_gate"):
            parts[f"{name}.of_result"] = block[:, :size]
            parts[f"{name}.of_bypass"], parts[f"{name}.candidate"] = block[:, size:].split((2 * size, size), dim=2)
        elif name.endswith(("query_key_value", "position", "_bias", "joined")) or name == "log_std":
            parts[name] = block
        else:
            parts[f"{name}.weight"], parts[f"{name}.bias"] = block[..., :-1, :], block[..., -1:, :]
    return parts | head_pieces(layout, blocks)
