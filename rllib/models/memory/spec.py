"""Recurrent policies: a cell between the hidden layers and the heads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rllib.models.arithmetic.activations import ACTIVATION_NAMES
from rllib.models.dense.network_spec import Architecture, NetworkSpec
from rllib.models.memory.in_numpy import NumpyMemoryNetwork
from rllib.models.memory.layout import NUM_STATES, MemoryLayout


class Recurrent(Architecture):
    """Base class of architectures with a part between the hidden layers and the heads that has a state."""

    layout_class: ClassVar[type[MemoryLayout]] = MemoryLayout

    def layout(self, spec: NetworkSpec) -> MemoryLayout:
        return self.layout_class(*layers_around(spec), memory=self)

    def initialize(
        self, spec: NetworkSpec, layout: MemoryLayout, weights: np.ndarray, rng: np.random.Generator
    ) -> None:
        super().initialize(spec, layout, weights, rng)
        layout.initialize_memory(weights, rng, spec.initializer)


@dataclass(frozen=True)
class Memory(Recurrent):
    """Description of the recurrent cell in a policy's network.

    Attributes:
        cell: "lstm" or "gru".
        size: numbers in the cell's output.
        max_seq_len: longest sequence that gradients flow through, in steps.
        post_hiddens: widths of the layers between the cell and the heads.
        post_activation: of these layers.
    """

    kind: ClassVar[str] = "memory"

    cell: str
    size: int
    max_seq_len: int = 20
    post_hiddens: tuple[int, ...] = ()
    post_activation: str = "relu"

    @property
    def num_states(self) -> int:
        """Arrays of `size` numbers in the state of one tower."""
        return NUM_STATES[self.cell]

    @property
    def memory(self) -> "Memory":
        return self

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> "Memory | None":
        if not settings.use_lstm and not settings.use_gru:
            return None
        return cls(
            "lstm" if settings.use_lstm else "gru",
            settings.lstm_cell_size,
            settings.max_seq_len,
            tuple(settings.post_lstm_hiddens),
            ACTIVATION_NAMES[settings.post_lstm_activation],
        )

    def network(self, spec: NetworkSpec, layout: MemoryLayout, weights: np.ndarray) -> NumpyMemoryNetwork:
        return NumpyMemoryNetwork(layout, spec.activations, weights)

    def torch(self, spec: NetworkSpec, layout: MemoryLayout, flat, acting):
        from rllib.models.memory.in_torch import TorchMemoryNetwork

        return TorchMemoryNetwork(layout, spec.activations, flat)


def layers_around(spec: NetworkSpec) -> tuple:
    """The first arguments of a MemoryLayout: inputs, hidden layers, heads, and how they are shared."""
    return (
        spec.num_features,
        spec.hiddens,
        spec.heads,
        spec.shared,
        spec.num_log_std,
        spec.layer_norm,
        spec.torso,
    )
