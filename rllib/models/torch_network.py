"""The fully connected actor-critic network in torch: views of the same flat vector as the numpy network."""

import numpy as np
import torch
from torch import Tensor, nn

from rllib.models.layout import ParameterLayout

ACTIVATIONS = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "swish": torch.nn.functional.silu,
    "linear": lambda z: z,
}


def forward(layout: ParameterLayout, activation: str, flat: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Distribution inputs [B, K] and values [B], differentiable with respect to the flat parameters.

    Args:
        layout: where the parameters lie.
        activation: a name in ACTIVATIONS.
        flat: float32 [layout.size].
        inputs: encoded observations [B, num_inputs + 1]; the last column is 1 and stands for the first layer's bias.
    """
    blocks, apply = layout.blocks(flat), ACTIVATIONS[activation]
    features = None
    for index, width in enumerate(layout.hiddens):
        block = blocks[f"hidden_{index}"]
        if features is None:
            # [B, towers * width] -> [towers, B, width]
            z = (inputs @ block).reshape(len(inputs), layout.num_towers, width).transpose(0, 1)
        else:
            z = torch.baddbmm(block[:, -1:], features, block[:, :-1])
        features = apply(z)
    if features is None:
        outputs = inputs @ blocks["head"]
    elif layout.num_towers == 1:
        outputs = torch.addmm(blocks["head"][-1], features[0], blocks["head"][:-1])
    else:
        policy_head, value_head = blocks["policy_head"], blocks["value_head"]
        dist_inputs = torch.addmm(policy_head[-1], features[0], policy_head[:-1])
        values = torch.addmv(value_head[-1], features[1], value_head[:-1, 0])
        return _with_log_std(layout, blocks, dist_inputs), values
    return _with_log_std(layout, blocks, outputs[:, :-1]), outputs[:, -1]


def _with_log_std(layout: ParameterLayout, blocks: dict, means: Tensor) -> Tensor:
    if not layout.num_log_std:
        return means
    return torch.cat([means, blocks["log_std"].expand(len(means), -1)], dim=1)


class TorchNetwork(nn.Module):
    """The network as a module: its parameters, and their gradients, are views of two flat tensors.

    `parameters()` are shaped as in torch.nn.Linear and may be read or changed by module users; what they do shows in
    the flat vector. Optimizers work on `flat`, whose gradient the parameters' `.grad` view.

    Args:
        layout: where the parameters lie.
        activation: a name in ACTIVATIONS.
        flat: float32 [layout.size], on any device; the module's own memory, not copied.
    """

    def __init__(self, layout: ParameterLayout, activation: str, flat: Tensor):
        super().__init__()
        self.layout = layout
        self.activation = activation
        self.flat = flat.detach().requires_grad_()
        self.flat.grad = torch.zeros_like(flat)
        gradients = layout.named_parameters(self.flat.grad)
        for name, view in layout.named_parameters(flat.detach()).items():
            parameter = nn.Parameter(view)
            parameter.grad = gradients[name]
            self.register_parameter(name.replace(".", "_"), parameter)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution inputs [B, K] and values [B] of encoded observations [B, num_inputs + 1]."""
        return forward(self.layout, self.activation, self.flat, inputs)


class ActingNetwork:
    """What a policy asks of a network, answered by torch on the CPU, without gradients.

    Args:
        layout, activation: as for TorchNetwork.
        weights: flat float32 array; torch reads this very memory.
    """

    def __init__(self, layout: ParameterLayout, activation: str, weights: np.ndarray):
        self._layout, self._activation = layout, activation
        self._flat = torch.from_numpy(weights)

    @torch.inference_mode()
    def forward(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distribution inputs [B, K] and values [B]."""
        dist_inputs, values = forward(self._layout, self._activation, self._flat, torch.from_numpy(inputs))
        return dist_inputs.numpy(), values.numpy()

    def forward_policy(self, inputs: np.ndarray) -> np.ndarray:
        """Distribution inputs [B, K]."""
        return self.forward(inputs)[0]

    def forward_value(self, inputs: np.ndarray) -> np.ndarray:
        """Values [B]."""
        return self.forward(inputs)[1]
