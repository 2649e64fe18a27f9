"""Networks of fully connected layers, behind convolutions or not: the architecture that `model` has by default."""

import functools
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from rllib.models.dense.batch_renorm import BatchRenorm
from rllib.models.dense.in_numpy import NumpyNetwork
from rllib.models.dense.layout import LayersLayout, Layout
from rllib.models.dense.network_spec import Architecture, NetworkSpec
from rllib.models.dense.renormalized import RenormalizedNetwork
from rllib.models.dense.separate import Columns, SeparateLayout, SeparateNetwork
from rllib.models.dense.state_dependent_noise import StateDependentLayout, StateDependentNetwork
from rllib.models.dense.torso_in_numpy import ConvolutionalNetwork


@dataclass(frozen=True)
class Dense(Architecture):
    """Fully connected layers.

    Attributes:
        vf_hiddens: widths of the value's own hidden layers, where they differ from the policy's; None: the same.
        policy_columns: columns (start, stop) of the inputs that the policy reads, where the value reads more; None: it
            reads all.
        batch_renorm: inputs of hidden layers and head are normalised (batch_renorm.py); for networks without
            layer_norm and convolutions.
        state_dependent_noise: the standard deviation is sigma times the inputs of the policy's head
            (state_dependent_noise.py).
        noise_trains_features: gradients flow from these standard deviations into the inputs of the head.
    """

    kind: ClassVar[str] = "dense"

    vf_hiddens: tuple[int, ...] | None = None
    policy_columns: Columns | None = None
    batch_renorm: BatchRenorm | None = None
    state_dependent_noise: bool = False
    noise_trains_features: bool = False

    def without_value(self) -> "Dense":
        return replace(self, vf_hiddens=None)

    def layout(self, spec: NetworkSpec) -> Layout:
        size, heads = spec.distribution.size, spec.heads
        if self.state_dependent_noise:
            heads = {**heads, "policy": spec.distribution.num_inputs - size}
        rest = spec.num_log_std, spec.layer_norm, spec.torso
        if self.vf_hiddens is None:
            norms = {"head_bias": spec.head_bias, "batch_renorm": self.batch_renorm}
            plain: Layout = LayersLayout(spec.num_features, spec.hiddens, heads, spec.shared, *rest, **norms)
        else:
            both, columns = {"layer_norm": spec.layer_norm, "head_bias": spec.head_bias}, self.policy_columns
            num_read = spec.num_features if columns is None else sum(stop - start for start, stop in columns)
            policy_head = {"policy": heads["policy"]}
            plain = SeparateLayout(
                LayersLayout(num_read, spec.hiddens, policy_head, "policy", spec.num_log_std, **both),
                LayersLayout(spec.num_features, self.vf_hiddens, {"value": 1}, "value", **both),
                columns,
            )
        if self.state_dependent_noise:
            return StateDependentLayout(plain, spec.hiddens[-1], size, trains_features=self.noise_trains_features)
        return plain

    def noisy_part(self, layout: Layout) -> LayersLayout | None:
        return layout if isinstance(layout, LayersLayout) else None

    def network(self, spec: NetworkSpec, layout: Layout, weights: np.ndarray, *gradient: np.ndarray):
        """The network; `gradient`, if given, is memory for its gradient."""
        if isinstance(layout, StateDependentLayout):
            return StateDependentNetwork(layout, functools.partial(self.network, spec, layout.plain), weights)
        if layout.torso:
            return ConvolutionalNetwork(layout, spec.activations, weights)
        if isinstance(layout, SeparateLayout):
            return SeparateNetwork(layout, self._separate_activations(spec), weights, *gradient)
        kind = RenormalizedNetwork if layout.batch_renorm else NumpyNetwork
        return kind(layout, spec.activations, weights, *gradient)

    def torch(self, spec: NetworkSpec, layout: Layout, flat, acting):
        from rllib.models.dense.composed_in_torch import SeparateTorchNetwork, StateDependentTorchNetwork
        from rllib.models.dense.in_torch import TorchNetwork

        if isinstance(layout, StateDependentLayout):
            return StateDependentTorchNetwork(layout, lambda flat: self.torch(spec, layout.plain, flat, acting), flat)
        if isinstance(layout, SeparateLayout):
            return SeparateTorchNetwork(layout, self._separate_activations(spec), flat)
        return TorchNetwork(layout, spec.activations, flat)

    def _separate_activations(self, spec: NetworkSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Activations of the policy's hidden layers, and of the value's own, which have the last one of the policy."""
        return spec.activations, (spec.activations or ("tanh",))[-1:] * len(self.vf_hiddens)
