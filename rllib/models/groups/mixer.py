"""The mixer of a group's values, as a module that learners train in addition to the policy (models/modules.py)."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rllib.models.dense.layout import Layout
from rllib.models.groups.members import Ranges


@dataclass(frozen=True)
class MonotonicMixer:
    """Describes QMIX's mixing network (groups/in_torch.py: MonotonicMixing), which has a form in torch alone.

    Losses call it with the members' values [B, members] and encoded observations [B, inputs]; it returns [B].

    Attributes:
        num_members: values of a row.
        state: columns (start, stop) of an encoded observation that hold the state.
        embed_dim: number of hidden units.
    """

    num_members: int
    state: Ranges
    embed_dim: int = 32

    def layout(self, widths: Mapping[str, int]) -> Layout:
        from rllib.models.groups.in_torch import MonotonicMixing
        from rllib.models.user.module import TorchLayout

        return TorchLayout(functools.partial(MonotonicMixing, self.num_members, self.state, self.embed_dim))

    def initialize(self, layout: Layout, weights: np.ndarray, rng: np.random.Generator) -> None:
        """Fills the weights as torch's layers begin."""
        layout.initialize(weights, rng)

    def torch(self, layout: Layout, flat):
        from rllib.models.dense.in_torch import FlatModule

        return FlatModule(layout.make().to(flat.device), flat)
