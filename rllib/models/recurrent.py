"""A policy's network with a memory: a torch module that is called for one step, with the state of the step before.

Acting calls the module step by step, and learners unroll the same call over sequences, so the two cannot disagree.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rllib.models.catalog import PolicySpec
from rllib.models.torch_network import FlatModule


@dataclass(frozen=True)
class RecurrentSpec(PolicySpec):
    """Describes a policy with a memory; an algorithm's `make_policy_spec` returns one.

    A checkpoint names this class and `make`: an algorithm that makes the same module restores it without them, a policy
    alone needs Policy.from_checkpoint(path, load_user_code=True).

    The module is called with encoded observations [B, num_inputs] (images as they are stored) and states
    [B, state_size]: what it returned for the step before, zeros at the beginning of an episode. It returns distribution
    inputs [B, num_outputs], values [B] and the states for the next step.

    Attributes:
        make: (num_inputs, num_outputs) -> torch.nn.Module with its initial weights; a function that can be pickled,
            called in each process that acts or learns.
        state_size: numbers of a state.
        max_seq_len: longest sequence that gradients flow through, in steps.
    """

    make: Callable[[int, int], nn.Module] = nn.Module
    state_size: int = 1
    max_seq_len: int = 20

    @classmethod
    def of(cls, spec: PolicySpec, make: Callable[[int, int], nn.Module], **more) -> "RecurrentSpec":
        """The description of a policy that differs from `spec` by its network; `more` are the other attributes."""
        return cls(**vars(spec), make=make, **more)

    def layout(self) -> "ModuleLayout":
        shapes = [(name, tuple(parameter.shape)) for name, parameter in self._module().named_parameters()]
        return ModuleLayout(self.encoder.size, tuple(shapes))

    def initialize(self, layout: "ModuleLayout", weights: np.ndarray, rng: np.random.Generator) -> None:
        """Fills the weights as the module's constructor does, with torch's generator seeded by `rng`."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))
            weights[:] = nn.utils.parameters_to_vector(self._module().parameters()).detach().numpy()

    def network(self, layout: "ModuleLayout", weights: np.ndarray, backend: str = "numpy") -> "RecurrentActing":
        return RecurrentActing(self.torch(layout, torch.from_numpy(weights), None).module.step)

    def torch(self, layout: "ModuleLayout", flat: Tensor, acting) -> FlatModule:
        return FlatModule(Unrolled(self._module()).to(flat.device), flat)

    def _module(self) -> nn.Module:
        return self.make(self.encoder.size, self.distribution.num_inputs)


@dataclass(frozen=True)
class ModuleLayout:
    """The layout of a module's parameters: one after the other.

    Attributes:
        num_inputs: length of an encoded observation.
        shapes: (name, shape) of each parameter.
    """

    num_inputs: int
    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return sum(math.prod(shape) for _, shape in self.shapes)

    def named_parameters(self, flat) -> dict:
        """Parameter name -> view of `flat`, an array or a tensor."""
        views, start = {}, 0
        for name, shape in self.shapes:
            stop = start + math.prod(shape)
            views[name] = flat[start:stop].reshape(shape)
            start = stop
        return views


class Unrolled(nn.Module):
    """Calls a module for each step of sequences, for all that have such a step at once; nothing is padded.

    Args:
        step: (observations, states) -> distribution inputs, values, next states; [rows, ...] each.
    """

    def __init__(self, step: nn.Module):
        super().__init__()
        self.step = step

    def forward(self, inputs: Tensor, seq_lens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution inputs [B, K] and values [B].

        Args:
            inputs: what `Policy.encode` gives, [B, ...], sequence after sequence.
            seq_lens: int [S], lengths of the sequences.
            state: [S, state_size] before their first rows.
        """
        observations = _observations(inputs)
        lengths, by_length = seq_lens.sort(descending=True, stable=True)
        starts = (seq_lens.cumsum(0) - seq_lens)[by_length]
        state, rows, steps = state[by_length], [], []
        for t in range(int(lengths[0])):
            going_on = int((lengths > t).sum())
            rows.append(starts[:going_on] + t)
            *outputs, state = self.step(observations[rows[-1]], state[:going_on])
            steps.append(outputs)
        order = torch.cat(rows).argsort()
        dist_inputs, values = (torch.cat(parts)[order] for parts in zip(*steps))
        return dist_inputs, values


class RecurrentActing:
    """The network of a policy with a memory, for acting: on the CPU, without gradients.

    Args:
        step: as for Unrolled.
    """

    closed_form = False
    gives_values = True

    def __init__(self, step: nn.Module):
        self._step = step

    @torch.inference_mode()
    def step(
        self, inputs: np.ndarray, state: np.ndarray, next_state: np.ndarray, values: np.ndarray | None = None
    ) -> np.ndarray:
        """Distribution inputs [B, K]; writes the next states [B, state_size], and the values [B] if they are given."""
        dist_inputs, computed, following = self._step(_observations(torch.from_numpy(inputs)), torch.from_numpy(state))
        next_state[:] = following.numpy()
        if values is not None:
            values[:] = computed.numpy()
        return dist_inputs.numpy()


def _observations(inputs: Tensor) -> Tensor:
    """Encoded observations without their last column, of ones; images as they are."""
    return inputs[:, :-1] if inputs.dim() == 2 else inputs
