"""Networks of groups: one network that all members share, computed for all of them at once."""

from dataclasses import dataclass

import numpy as np

from rllib.models.dense.in_numpy import NumpyNetwork
from rllib.models.dense.layout import LayersLayout
from rllib.models.dense.network_spec import Architecture, NetworkSpec
from rllib.models.groups.in_numpy import GroupNetwork
from rllib.models.groups.members import Members


@dataclass(frozen=True)
class Group(Members, Architecture):
    """The fully connected network of a group's members; attributes as of Members."""

    @property
    def members(self) -> Members:
        return self

    def layout(self, spec: NetworkSpec) -> LayersLayout:
        heads = {"policy": spec.heads["policy"] // self.count}
        rest = spec.num_log_std, spec.layer_norm, spec.torso
        return LayersLayout(self.num_inputs, spec.hiddens, heads, spec.shared, *rest, head_bias=spec.head_bias)

    def network(self, spec: NetworkSpec, layout: LayersLayout, weights: np.ndarray) -> GroupNetwork:
        return GroupNetwork(self, NumpyNetwork(layout, spec.activations, weights))

    def torch(self, spec: NetworkSpec, layout: LayersLayout, flat, acting):
        from rllib.models.dense.in_torch import TorchNetwork
        from rllib.models.groups.in_torch import TorchGroupNetwork

        return TorchGroupNetwork(self, TorchNetwork(layout, spec.activations, flat))
