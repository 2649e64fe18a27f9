"""Rows of numbers of steps, as a discriminator reads them."""

from collections.abc import Sequence

import numpy as np
import torch

from rllib.exploration.intrinsic.networks import action_rows, action_width
from rllib.imitation.settings import ACTION, NEXT_OBSERVATION, OBSERVATION, TERMINATED
from rllib.imitation.steps import Steps
from rllib.models.dense.network_spec import NetworkSpec

# The absorbing state's indicator; steps have 0. A penalised logit has a slope near 1, so that next to them the state
# would be judged by its neighbours: with 1 in place of 10, CartPole's policy falls at once, where no expert does.
INDICATOR = 10.0
# Rows that are encoded at a time.
_ROWS_AT_ONCE = 1 << 14


class RowReader:
    """Makes rows float32 [B, width] of steps: the parts of `inputs` side by side, and the absorbing state's indicator.

    Observations are encoded as the policy's network reads them, discrete actions one-hot.

    Args:
        spec: has the encoder of observations and the distribution of actions.
        inputs: parts of a row, of settings.INPUTS, in any order.
        columns: of encoded observations those that are read; None: all.

    Attributes:
        width: width of a row.
        parts: slices of a row by the parts' names.
        absorbing: [width], the row of the absorbing state: zeros, and INDICATOR.
    """

    def __init__(self, spec: NetworkSpec, inputs: Sequence[str], columns: np.ndarray | None = None):
        self._spec = spec
        self._columns = np.arange(spec.num_inputs) if columns is None else columns
        size = len(self._columns)
        sizes = {OBSERVATION: size, ACTION: action_width(spec.distribution), NEXT_OBSERVATION: size, TERMINATED: 1}
        self.parts: dict[str, slice] = {}
        self.width = 1
        for name in [each for each in sizes if each in inputs]:
            self.parts[name] = slice(self.width - 1, self.width - 1 + sizes[name])
            self.width += sizes[name]
        self.absorbing = np.zeros(self.width, np.float32)
        self.absorbing[-1] = INDICATOR

    @property
    def observation_size(self) -> int:
        """Numbers of an observation that are read."""
        return len(self._columns)

    @property
    def of_observations(self) -> list[slice]:
        """The parts of a row that are observations."""
        return [self.parts[name] for name in (OBSERVATION, NEXT_OBSERVATION) if name in self.parts]

    def __call__(self, steps: Steps) -> np.ndarray:
        """The rows of steps."""
        rows = np.zeros((len(steps), self.width), np.float32)
        for name, observations in (
            (OBSERVATION, steps.observations),
            (NEXT_OBSERVATION, steps.next_observations),
        ):
            if name in self.parts:
                self._encode(observations, rows[:, self.parts[name]])
        if ACTION in self.parts:
            played = torch.as_tensor(np.ascontiguousarray(steps.actions))
            rows[:, self.parts[ACTION]] = action_rows(self._spec.distribution, played).numpy()
        if TERMINATED in self.parts:
            rows[:, self.parts[TERMINATED]] = steps.terminated[:, None]
        return rows

    def _encode(self, observations: np.ndarray, out: np.ndarray) -> None:
        encoder, spec = self._spec.encoder, self._spec
        for start in range(0, len(observations), _ROWS_AT_ONCE):
            some = observations[start : start + _ROWS_AT_ONCE]
            encoded = np.ones((len(some), spec.input_width), np.float32)
            encoder.encode(some, encoded)
            read = encoder.split(encoded)[1] if spec.is_masked else encoded
            out[start : start + len(some)] = read[:, self._columns]
