"""Torch modules as networks that act: arrays in, arrays out, without gradients, on the CPU or on a device."""

import numpy as np
import torch
from torch import Tensor, nn

from rllib.models.arithmetic.cuda import memory_of
from rllib.models.dense.in_torch import first_columns


class ActingNetwork:
    """A torch network for acting, on the CPU, without gradients; methods as in NumpyNetwork.

    Args:
        network: turns encoded observations into distribution inputs [B, K] and values [B].
        gives_values: whether there are values, which every pass computes.
    """

    # There is no `backward`; learners have a separate network.
    closed_form = False

    def __init__(self, network: nn.Module, gives_values: bool):
        self._network, self.gives_values = network, gives_values

    @torch.inference_mode()
    def forward(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distribution inputs [B, K] and values [B]."""
        dist_inputs, values = self._network.forward(torch.from_numpy(inputs))
        return dist_inputs.numpy(), values.numpy()

    def forward_policy(self, inputs: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        """Distribution inputs [B, K]; values are written into `values` [B] if it is given."""
        dist_inputs, computed = self.forward(inputs)
        if values is not None:
            values[:] = computed
        return dist_inputs

    def forward_value(self, inputs: np.ndarray) -> np.ndarray:
        """Values [B]."""
        return self.forward(inputs)[1]


_SMALLER = "Halve num_envs_per_worker, or act on the CPU: .resources(num_gpus_per_worker=0)."


class DeviceNetwork(ActingNetwork):
    """A torch network for acting on a device, for many or large observations at a time.

    Args:
        network: computes with weights on the device; turns encoded observations into distribution inputs and values.
        weights: weights of the network, flat, on the device.
        gives_values: whether distribution inputs and values share a pass.
    """

    def __init__(self, network: nn.Module, weights: Tensor, gives_values: bool):
        super().__init__(network, gives_values)
        self._weights = weights.detach()

    def load(self, weights: np.ndarray) -> None:
        """Copies flat weights to the device."""
        self._weights.copy_(torch.from_numpy(np.require(weights, requirements="W")))  # torch takes no read-only ones

    @torch.inference_mode()
    def forward(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distribution inputs [B, K] and values [B]."""
        device = self._weights.device
        with memory_of(device, lambda: f"{len(inputs)} observations to act on ({inputs.nbytes >> 20} MiB)", _SMALLER):
            rows = torch.from_numpy(np.require(inputs, requirements="W")).to(device)
            dist_inputs, values = self._network(rows)
            # In one transfer: each waits for the device.
            packed = torch.cat([dist_inputs, values.reshape(len(values), -1)], dim=1) if len(values) else dist_inputs
            found = packed.cpu().numpy()
        return found[:, : dist_inputs.shape[1]], found[:, -1] if len(values) else np.empty(0, np.float32)


def network_on(device: str, spec, layout, weights: np.ndarray, gives_values: bool) -> DeviceNetwork:
    """A policy's network, without its mask, on a torch device, with a copy of the weights.

    Args:
        device: such as "cuda".
        spec: describes the policy.
        layout: layout of the weights.
        weights: flat float32 [layout.size].
        gives_values: whether distribution inputs and values share a pass.

    Raises:
        GpuMemoryError: if the network does not fit there.
    """
    advice = "Use a smaller network, or act on the CPU: .resources(num_gpus_per_worker=0)."
    with memory_of(device, lambda: f"{len(weights)} weights to act by", advice):
        flat = torch.zeros(len(weights), device=device)
        network = DeviceNetwork(spec.torch(layout, flat, None), flat, gives_values)
        network.load(weights)
    return network


class RecurrentActing:
    """The network of a policy with a memory, for acting: on the CPU, without gradients.

    Args:
        module: computes sequences (inputs, seq_lens, state), by its `step` one row of each (observations, states), and
            has the `width` of observations: Unrolled in user/module.py.
    """

    closed_form = False
    gives_values = True

    def __init__(self, module: nn.Module):
        self._module, self._step, self._width = module, module.step, module.width

    @torch.inference_mode()
    def forward(self, inputs: np.ndarray, seq_lens: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distribution inputs [B, K] and values [B] of sequences; arguments as for the module."""
        dist_inputs, values = self._module(
            *(torch.from_numpy(np.require(each, requirements="W")) for each in (inputs, seq_lens, state))
        )
        return dist_inputs.numpy(), values.numpy()

    @torch.inference_mode()
    def step(
        self, inputs: np.ndarray, state: np.ndarray, next_state: np.ndarray, values: np.ndarray | None = None
    ) -> np.ndarray:
        """Distribution inputs [B, K]; writes the next states [B, state_size], and the values [B] if they are given."""
        observations = first_columns(torch.from_numpy(inputs), self._width)
        dist_inputs, computed, following = self._step(observations, torch.from_numpy(state))
        next_state[:] = following.numpy()
        if values is not None:
            values[:] = computed.numpy()
        return dist_inputs.numpy()
