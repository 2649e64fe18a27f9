"""A policy's network with a memory: a torch module that is called for one step, with the state of the step before.

Acting calls the module step by step, and learners unroll the same call over sequences, so the two cannot disagree.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rllib.models.dense.in_torch import FlatModule, RecurrentActing, first_columns
from rllib.models.user.module import CustomSpec, TorchLayout


@dataclass(frozen=True)
class RecurrentSpec(CustomSpec):
    """Describes a policy with a memory; an algorithm's `make_policy_spec` returns one.

    The module is called with encoded observations [B, num_inputs] (images as they are stored) and states
    [B, state_size]: what it returned for the step before, zeros at the beginning of an episode. It returns distribution
    inputs [B, num_outputs], values [B] and the states for the next step.

    Attributes:
        make: as for CustomSpec.
        state_size: numbers of a state.
        max_seq_len: longest sequence that gradients flow through, in steps.
    """

    state_size: int = 1
    max_seq_len: int = 20

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.state_size,),)

    def network(self, layout: TorchLayout, weights: np.ndarray) -> RecurrentActing:
        return RecurrentActing(self.torch(layout, torch.from_numpy(weights), None).module)

    def torch(self, layout: TorchLayout, flat: Tensor, acting) -> FlatModule:
        return FlatModule(Unrolled(layout.make(), layout.widths[0]).to(flat.device), flat)

    def opened(self, module: FlatModule) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
        return module.module.step, lambda rows: first_columns(rows, self.num_inputs)


class Unrolled(nn.Module):
    """Calls a module for each step of sequences, for all that have such a step at once; nothing is padded.

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
