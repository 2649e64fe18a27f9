"""Custom networks: any torch.nn.Module can be a policy's network, or a module in addition to it.

The layout is the module's parameters in their order; its constructor draws the initial weights. A module with a memory
computes one step. Acting calls it step by step, and learners unroll the same call over sequences, so the two cannot
disagree.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from rllib.models.acting_in_torch import ActingNetwork, RecurrentActing
from rllib.models.dense.in_torch import FlatModule, first_columns
from rllib.models.dense.layout import Layout
from rllib.models.dense.network_spec import NetworkSpec, UserArchitecture
from rllib.models.modules import input_widths


class TorchLayout(Layout):
    """Layout of the parameters of a torch.nn.Module, one after the other.

    Args:
        make: (*widths) -> the module with its initial weights.
        widths: arguments of `make`; the first ones are the widths of the inputs of a call.
    """

    def __init__(self, make: Callable[..., nn.Module], *widths: int):
        self.make, self.widths = partial(make, *widths), widths
        super().__init__({name: tuple(parameter.shape) for name, parameter in self.make().named_parameters()})

    def initialize(self, weights: np.ndarray, rng: np.random.Generator) -> None:
        """Fills the weights as the module's constructor draws them, with torch's generator seeded by `rng`."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))
            weights[:] = nn.utils.parameters_to_vector(self.make().parameters()).detach().numpy()


@dataclass(frozen=True)
class CustomSpec(UserArchitecture):
    """The architecture of a network that is a torch.nn.Module; an algorithm's `make_policy_spec` returns `of(...)`.

    A checkpoint names this class and `make`. An algorithm whose class makes the same module is restored without them; a
    policy alone needs Policy.from_checkpoint(path, load_user_code=True).

    The module is called with encoded observations [B, num_inputs] (images as they are stored). It returns distribution
    inputs [B, num_outputs] and values [B].

    Attributes:
        make: (num_inputs, num_outputs) -> torch.nn.Module with its initial weights; a function that can be pickled,
            called in each process that acts or learns.
    """

    make: Callable[[int, int], nn.Module] = nn.Module

    @classmethod
    def of(cls, spec: NetworkSpec, make: Callable[[int, int], nn.Module], **more) -> NetworkSpec:
        """The description of a policy that differs from `spec` by its network; `more` are the other attributes."""
        return replace(spec, architecture=cls(make=make, **more))

    def layout(self, spec: NetworkSpec) -> TorchLayout:
        return TorchLayout(self.make, spec.num_inputs, spec.distribution.num_inputs)

    def initialize(self, spec: NetworkSpec, layout: TorchLayout, weights: np.ndarray, rng: np.random.Generator) -> None:
        layout.initialize(weights, rng)

    def network(self, spec: NetworkSpec, layout: TorchLayout, weights: np.ndarray):
        return ActingNetwork(self.torch(spec, layout, torch.from_numpy(weights), None), gives_values=True)

    def torch(self, spec: NetworkSpec, layout: TorchLayout, flat: Tensor, acting) -> FlatModule:
        return FlatModule(Reader(layout).to(flat.device), flat)

    def opened(self, spec: NetworkSpec, module: FlatModule) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
        return module.module.module, lambda rows: first_columns(rows, spec.num_inputs)


@dataclass(frozen=True)
class RecurrentSpec(CustomSpec):
    """The architecture of a network with a memory; an algorithm's `make_policy_spec` returns `of(...)`.

    The module is called with encoded observations [B, num_inputs] (images as they are stored) and states
    [B, state_size]: its output of the step before, zeros at the beginning of an episode. It returns distribution
    inputs [B, num_outputs], values [B] and the states for the next step.

    Attributes:
        make: as for CustomSpec.
        state_size: numbers of a state.
        max_seq_len: longest sequence that gradients flow through, in steps.
    """

    state_size: int = 1
    max_seq_len: int = 20

    def state_shapes_of(self, spec: NetworkSpec) -> tuple[tuple[int, ...], ...]:
        return ((self.state_size,),)

    def network(self, spec: NetworkSpec, layout: TorchLayout, weights: np.ndarray) -> RecurrentActing:
        return RecurrentActing(self.torch(spec, layout, torch.from_numpy(weights), None).module)

    def torch(self, spec: NetworkSpec, layout: TorchLayout, flat: Tensor, acting) -> FlatModule:
        return FlatModule(Unrolled(layout.make(), layout.widths[0]).to(flat.device), flat)

    def opened(self, spec: NetworkSpec, module: FlatModule) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
        return module.module.step, lambda rows: first_columns(rows, spec.num_inputs)


class Unrolled(nn.Module):
    """Calls a module step by step for all sequences that have this step; nothing is padded.

    Args:
        step: (observations, states) -> distribution inputs, values, next states; [rows, ...] each.
        width: numbers in an observation.
    """

    def __init__(self, step: nn.Module, width: int):
        super().__init__()
        self.step, self.width = step, width

    def forward(self, inputs: Tensor, seq_lens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution inputs [B, K] and values [B].

        Args:
            inputs: what `Policy.encode` gives, [B, ...], sequence after sequence.
            seq_lens: int [S], lengths of the sequences.
            state: [S, state_size] before their first rows.
        """
        observations = first_columns(inputs, self.width)
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


@dataclass(frozen=True)
class CustomModule:
    """Makes a module in addition to the policy's network (models/modules.py) from a torch.nn.Module.

    Attributes:
        make: (widths of its inputs) -> torch.nn.Module with its initial weights.
        reads: inputs with which losses call it, [B, width] each, in this order: "observation" (encoded, as in a
            learner's minibatches), "action", or both.
    """

    make: Callable[..., nn.Module]
    reads: tuple[str, ...] = ("observation",)

    def layout(self, widths: Mapping[str, int]) -> TorchLayout:
        """Layout of the parameters; `widths` maps each possible input to its length.

        Raises:
            ValueError: if one of `reads` is not among them.
        """
        return TorchLayout(self.make, *input_widths(self.reads, widths))

    def initialize(self, layout: TorchLayout, weights: np.ndarray, rng: np.random.Generator) -> None:
        """Fills the weights as the module's constructor draws them."""
        layout.initialize(weights, rng)

    def torch(self, layout: TorchLayout, flat: Tensor) -> FlatModule:
        return FlatModule(Reader(layout, len(self.reads)).to(flat.device), flat)


class Reader(nn.Module):
    """Calls a module with its inputs, without the column of ones that ends encoded observations.

    Args:
        layout: makes the module.
        num_read: number of inputs of a call, the first of the layout's widths.
    """

    def __init__(self, layout: TorchLayout, num_read: int = 1):
        super().__init__()
        self.module, self._widths = layout.make(), layout.widths[:num_read]

    def forward(self, *read: Tensor):
        return self.module(*(first_columns(rows, width) for rows, width in zip(read, self._widths, strict=True)))
