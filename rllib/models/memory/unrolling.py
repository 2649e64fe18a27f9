"""Losses of single steps over sequences: modules with a memory, called as if they had none.

A loss over modules (losses/loss.py: LossOverModules) calls a policy and critics with observations. Here it gets,
instead of observations, `Steps` of sequences, and modules that unroll themselves over these sequences and return
their results of those steps. The loss of sequences is so the loss of their steps, whose observations are all that has
been observed; nothing is padded, and a mean is over the learned steps.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rllib.models.memory.layout import StepOrder


class Sequences:
    """Observations in sequences, of which each begins with steps that bring memories up to date.

    Args:
        inputs: encoded observations [B, ...], sequence after sequence.
        seq_lens: int [S], their lengths.
        burn_in: int [S], number of first steps of each that are computed without a gradient; less than its length.
        state: [S, state_size], the policy's states before the first steps.
    """

    def __init__(self, inputs: Tensor, seq_lens: np.ndarray, burn_in: np.ndarray, state: Tensor):
        self.state, self._burn_in = state, burn_in
        starts = np.cumsum(seq_lens) - seq_lens
        is_first = np.arange(len(inputs)) - np.repeat(starts, seq_lens) < np.repeat(burn_in, seq_lens)
        self._has_burn_in = np.flatnonzero(burn_in)
        self.inputs, self._first_inputs = inputs, None
        if len(self._has_burn_in):
            self.inputs, self._first_inputs = inputs[_sent(~is_first, inputs)], inputs[_sent(is_first, inputs)]
        self.seq_lens = seq_lens - burn_in
        # Number of each row among those behind the burn-in.
        self.number = np.cumsum(~is_first) - 1

    @cached_property
    def order(self) -> StepOrder:
        """Order of the rows of `inputs`, behind the burn-in."""
        return StepOrder(self.seq_lens)

    @cached_property
    def _first_order(self) -> StepOrder:
        return StepOrder(self._burn_in[self._has_burn_in])

    def after_burn_in(self, module, state: Tensor) -> Tensor:
        """States [S, state_size] of a module where gradients begin, from its states before the burn-in."""
        if self._first_inputs is None:
            return state
        some = _sent(self._has_burn_in, state)
        state = state.clone()
        state[some] = module.state_after(self._first_inputs, self._first_order, state[some])
        return state


class Steps(NamedTuple):
    """Some steps of sequences.

    Attributes:
        sequences: the sequences.
        rows: int [R], the steps, by their numbers among the rows of `sequences.inputs`.
    """

    sequences: Sequences
    rows: Tensor


class UnrolledPolicy:
    """A policy's network with a memory that is called with steps; from the states that the batch has.

    Args:
        module: called with inputs, lengths and states; a TorchMemoryNetwork, or one with its methods.
    """

    def __init__(self, module):
        self._module = module

    @property
    def leaves(self) -> list[Tensor]:
        """The tensors of its parameters."""
        return self._module.leaves

    def __call__(self, steps: Steps) -> tuple[Tensor, Tensor]:
        """Distribution inputs [R, K], and values [R] where it has any."""
        sequences, rows = steps
        state = sequences.after_burn_in(self._module, sequences.state)
        lengths = torch.from_numpy(sequences.seq_lens)
        lengths.on_host = sequences.seq_lens
        dist_inputs, values = self._module(sequences.inputs, lengths, state)
        return dist_inputs[rows], values[rows] if len(values) else values


class UnrolledCritics:
    """Critics with a memory that are called with steps and actions; from states of zeros.

    Args:
        module: a TorchMemoryCritics.
        is_moved: whether gradients with respect to its parameters are asked for.
    """

    def __init__(self, module, is_moved: bool):
        self._module, self._is_moved = module, is_moved
        self._state_size = sum(np.prod(shape, dtype=int) for shape in module.layout.state_shapes)

    @property
    def leaves(self) -> list[Tensor]:
        """The tensors of its parameters."""
        return self._module.leaves

    def __call__(self, steps: Steps, *actions: Tensor) -> Tensor:
        """Values of the actions [R, ...] in these steps, as TorchMemoryCritics.forward gives them."""
        sequences, rows = steps
        zeros = sequences.state.new_zeros(len(sequences.seq_lens), self._state_size)
        state = sequences.after_burn_in(self._module, zeros)
        return self._module(sequences.inputs, sequences.order, state, rows, *actions, is_moved=self._is_moved)


def _sent(array: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(array).to(like.device)
