"""Torch networks that consist of others: policy and value of different sizes, and state-dependent noise."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rllib.models.dense.in_torch import StackedLayers, TorchNetwork, register_parameters, with_gradient
from rllib.models.dense.separate import SeparateLayout
from rllib.models.dense.state_dependent_noise import EPSILON, StateDependentLayout


class SeparateTorchNetwork(nn.Module):
    """Like TorchNetwork, on the parameters of two networks of one tower each.

    Args:
        layout: where the parameters lie.
        activations: activation function of each hidden layer of the policy, and of the value.
        flat: float32 [layout.size], on any device; the module's own memory, not copied.
    """

    def __init__(self, layout: SeparateLayout, activations: tuple[tuple[str, ...], tuple[str, ...]], flat: Tensor):
        super().__init__()
        self.layout, self.flat = layout, with_gradient(flat)
        policy, value = split_with_gradient(self.flat, layout.parts)
        # In a list, so that their parameters are not registered twice.
        self._networks = [
            TorchNetwork(layout.policy, activations[0], policy),
            StackedLayers(layout.value, activations[1], value),
        ]
        register_parameters(self)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution inputs [B, K] and values [B]."""
        policy, value = self._networks
        return policy(self._of_policy(inputs))[0], value.outputs(inputs)[0].reshape(-1)

    def _of_policy(self, inputs: Tensor) -> Tensor:
        """The inputs that the policy reads, with the column of ones."""
        columns = self.layout.policy_columns
        if columns is None:
            return inputs
        return torch.cat([*(inputs[:, start:stop] for start, stop in columns), inputs[:, -1:]], 1)

    def with_features(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As TorchNetwork.with_features."""
        policy, value = self._networks
        dist_inputs, _, features = policy.with_features(self._of_policy(inputs))
        return dist_inputs, value.outputs(inputs)[0].reshape(-1), features

    @property
    def leaves(self) -> list[Tensor]:
        return [leaf for network in self._networks for leaf in network.leaves]

    def receive(self, gradients: Sequence[Tensor]) -> None:
        own = len(self._networks[0].leaves)
        self._networks[0].receive(gradients[:own])
        self._networks[1].receive(gradients[own:])


class StateDependentTorchNetwork(nn.Module):
    """Like StateDependentNetwork: means of a network, and standard deviations from the features of its head.

    Args:
        layout: where the parameters lie.
        plain: (flat) -> the network of the means, a TorchNetwork or a SeparateTorchNetwork.
        flat: float32 [layout.size], on any device; the module's own memory, not copied.
    """

    def __init__(self, layout: StateDependentLayout, plain, flat: Tensor):
        super().__init__()
        self.layout, self.flat = layout, with_gradient(flat)
        inner, log_std = split_with_gradient(self.flat, lambda whole: layout.blocks(whole).values())
        self._plain = [plain(inner)]  # in a list, so that its parameters are not registered twice
        self._log_std = log_std.requires_grad_()
        register_parameters(self)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log standard deviations [B, K], and values [B]."""
        means, values, features = self._plain[0].with_features(inputs)
        features = features if self.layout.trains_features else features.detach()
        variance = features.square() @ (2 * self._log_std).exp() + float(EPSILON)
        return torch.cat([means, 0.5 * variance.log()], dim=1), values

    @property
    def leaves(self) -> list[Tensor]:
        return [*self._plain[0].leaves, self._log_std]

    def receive(self, gradients: Sequence[Tensor]) -> None:
        self._plain[0].receive(gradients[:-1])
        self._log_std.grad.copy_(gradients[-1])


def split_with_gradient(flat: Tensor, split) -> list[Tensor]:
    """Parts into which `split` cuts a flat tensor, each with the matching part of its gradient."""
    parts = []
    for part, gradient in zip(split(flat.detach()), split(flat.grad)):
        part.grad = gradient
        parts.append(part)
    return parts
