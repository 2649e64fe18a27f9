"""Adapters around vector environments of tensors: the same rows as around the environments that they are made of."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict
from gymnasium.vector import AutoresetMode

from rllib.env.factories.make import make_stream
from rllib.env.factories.masks import ActionMask
from rllib.env.factories.previous_steps import PreviousStep
from rllib.env.factories.registry import resolve
from tests.envs import ProbeEnv, in_vector
from tests.witness.doors.tensors import Tensors


class Steps(ProbeEnv):
    """Observation: the step count in two parts; two or three steps, by the seed's parity; the last one is masked."""

    observation_space = Dict(first=Box(0, 9, (1,)), second=Box(0, 9, (2,)))

    def reset(self, *, seed=None, options=None):
        self.length = self.length if seed is None else 2 + seed % 2
        super().reset(seed=seed)
        return self._seen()

    def step(self, action):
        self.t += 1
        observation, info = self._seen()
        return observation, self.t + 10.0 * action, self.t == self.length == 2, self.t == self.length == 3, info

    def action_masks(self):
        return np.array([self.t < self.length, self.t != 1], np.int8)

    def _seen(self):
        count = np.float32(self.t)
        observation = {"first": np.array([count]), "second": np.array([count, 2 * count])}
        return observation, {"action_mask": self.action_masks()}


def rows(adapter, make):
    """Observations and final observations of eight steps, and the device of the tensors."""
    stream = make_stream(adapter.wrap(resolve(make)), num_envs=3, seeds=[2, 3, 4])
    buffers = stream.new_buffers()
    stream.reset(buffers)
    seen = [buffers.observations.tolist()]
    for t in range(8):
        finals = stream.step(np.array([t % 2, 1, 0]), buffers)
        seen += [buffers.observations.tolist(), [(index, row.tolist()) for index, row in finals]]
    device = stream.device
    stream.close()
    return seen, device


OF_INFO, OF_METHOD = ActionMask("info", "action_mask"), ActionMask("method", "action_mask")


@pytest.mark.parametrize(
    ("adapter", "mode"),
    # A method that is asked after a reset within the step has no final masks: that is refused.
    [
        (adapter, mode)
        for adapter in (OF_INFO, OF_METHOD, PreviousStep(action=True, reward=True))
        for mode in AutoresetMode
        if (adapter, mode) != (OF_METHOD, AutoresetMode.SAME_STEP)
    ],
    ids=str,
)
def test_adapters_around_tensors(adapter, mode):
    make = in_vector(Steps, mode)
    wanted, none = rows(adapter, make)
    given, device = rows(adapter, lambda context: Tensors(make(context)))
    assert given == wanted
    assert none is None and device == "cpu"
