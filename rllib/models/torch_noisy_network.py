"""The network of noisy_network.py in torch, for autograd: the reference of its chain rule, and for GPUs."""

import torch
from torch import Tensor, nn

from rllib.models.noisy_network import NoisyLayout, NoisyNetwork
from rllib.models.torch_network import TorchNetwork


class NoisyTorchNetwork(nn.Module):
    """As TorchNetwork, for parameters mu and sigma in one flat tensor; the noise is that of a policy's own network.

    Args:
        layout: where the parameters lie.
        activations: of each hidden layer.
        flat: float32 [layout.size], on any device; the module's own memory, not copied.
        noise: what holds the noise; it is read at every forward pass.
    """

    def __init__(self, layout: NoisyLayout, activations: tuple[str, ...], flat: Tensor, noise: NoisyNetwork):
        super().__init__()
        self.layout = layout
        self.flat = flat.detach().requires_grad_()
        self.flat.grad = torch.zeros_like(flat)
        self._noise, self._drawn = noise, torch.zeros(len(noise.noise), device=flat.device)
        self._summed = torch.empty(layout.plain.size, device=flat.device)
        self._plain = [TorchNetwork(layout.plain, activations, self._summed)]  # in a list: its parameters are no others
        gradients = layout.named_parameters(self.flat.grad)
        for name, view in layout.named_parameters(flat.detach()).items():
            parameter = nn.Parameter(view)
            parameter.grad = gradients[name]
            self.register_parameter(name.replace(".", "_"), parameter)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution inputs [B, K] and values [B]."""
        start, size = self.layout.start, self.layout.plain.size
        flat = self.flat.detach()
        self._drawn.copy_(torch.from_numpy(self._noise.noise))
        with torch.no_grad():
            self._summed.copy_(flat[:size])
            self._summed[start:].addcmul_(flat[size:], self._drawn)
        return self._plain[0](inputs)

    def backward(self, loss: Tensor) -> Tensor:
        """Writes the gradient of a scalar into `flat.grad`, over what was there, and returns that."""
        size, gradient = self.layout.plain.size, self.flat.grad
        gradient[:size] = self._plain[0].backward(loss)
        torch.mul(gradient[self.layout.start : size], self._drawn, out=gradient[size:])
        return gradient
