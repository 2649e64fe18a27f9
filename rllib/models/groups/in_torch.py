"""The network of a group, and the mixer of its members' values, in torch."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from rllib.models.dense.in_torch import TorchNetwork
from rllib.models.groups.members import Members, Ranges


class TorchGroupNetwork(nn.Module):
    """Like GroupNetwork (in_numpy.py), for autograd.

    Args:
        members: divide the observations.
        network: computes one member's outputs from what it reads.
    """

    def __init__(self, members: Members, network: TorchNetwork):
        super().__init__()
        self.network, self._members = network, members
        self.flat, self.leaves, self.receive = network.flat, network.leaves, network.receive
        numbers = torch.eye(members.count) if members.ids else torch.empty(members.count, 0)
        # What closes each member's row: its number, one-hot, and the 1 of the first layer's bias.
        self._closing = torch.cat([numbers, torch.ones(members.count, 1)], 1).to(network.flat.device)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution inputs [B, members * outputs] and no values of encoded observations, without a mask."""
        members, rows = self._members, inputs.shape[0]
        parts = inputs[:, :-1].unflatten(1, (members.count, members.width))
        own = columns(parts, members.own)
        read = torch.cat([own, self._closing.expand(rows, -1, -1)], -1)
        outputs, no_values = self.network(read.flatten(0, 1))
        return outputs.reshape(rows, -1), no_values


class MonotonicMixing(nn.Module):
    """Mixes the values of a group's members into one that grows with each of them (arXiv:1803.11485, section 4).

    A network of two layers whose weights are absolute values, computed from the state by hypernetworks: linear ones,
    and for the last bias one with a hidden layer of rectified units. The hidden units are exponential linear ones.

    Args:
        num_members: values of a row.
        state: columns (start, stop) of an encoded observation that hold the state.
        embed_dim: number of hidden units.
    """

    def __init__(self, num_members: int, state: Ranges, embed_dim: int):
        super().__init__()
        size = sum(stop - start for start, stop in state)
        self._state, self._shape = state, (num_members, embed_dim)
        self.hidden_weights = nn.Linear(size, num_members * embed_dim)
        self.hidden_bias = nn.Linear(size, embed_dim)
        self.final_weights = nn.Linear(size, embed_dim)
        self.final_bias = nn.Sequential(nn.Linear(size, embed_dim), nn.ReLU(), nn.Linear(embed_dim, 1))

    def forward(self, values: Tensor, inputs: Tensor) -> Tensor:
        """The group's values [B], of values [B, members] and encoded observations [B, inputs]."""
        state = columns(inputs, self._state)
        weights = self.hidden_weights(state).abs().unflatten(1, self._shape)
        hidden = functional.elu((values[:, None] @ weights)[:, 0] + self.hidden_bias(state))
        return (hidden * self.final_weights(state).abs()).sum(-1) + self.final_bias(state)[:, 0]


def columns(rows: Tensor, ranges: Ranges) -> Tensor:
    """The columns (start, stop) of the last axis, side by side."""
    parts = [rows[..., start:stop] for start, stop in ranges]
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)
