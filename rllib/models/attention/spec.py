"""Attention over earlier steps: a gated transformer (GTrXL, arXiv:1910.06764) behind the hidden layers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rllib.models.arithmetic.activations import ACTIVATION_NAMES
from rllib.models.attention.in_numpy import NumpyAttentionNetwork
from rllib.models.attention.layout import AttentionLayout
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.memory.spec import Recurrent


@dataclass(frozen=True)
class Attention(Recurrent):
    """Description of the transformer in a policy's network.

    Attributes:
        num_units: transformer units, one behind the other.
        size: numbers in what a unit reads and returns.
        num_heads: of the attention in each unit.
        head_size: numbers in a query, key and value of each head.
        window: steps before the present one that are attended to.
        mlp_size: width of the hidden layer behind the attention.
        gate_bias: initial bias of the gates; the greater, the closer a unit begins to the identity.
        max_seq_len: longest sequence that gradients flow through, in steps.
        post_hiddens: widths of the layers between the last unit and the heads.
        post_activation: of these layers.
    """

    kind: ClassVar[str] = "attention"
    layout_class: ClassVar[type[AttentionLayout]] = AttentionLayout

    num_units: int = 1
    size: int = 64
    num_heads: int = 1
    head_size: int = 32
    window: int = 50
    mlp_size: int = 32
    gate_bias: float = 2.0
    max_seq_len: int = 20
    post_hiddens: tuple[int, ...] = ()
    post_activation: str = "relu"

    @property
    def memory(self) -> "Attention":
        return self

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> "Attention | None":
        if not settings.use_attention:
            return None
        return cls(
            num_units=settings.attention_num_transformer_units,
            size=settings.attention_dim,
            num_heads=settings.attention_num_heads,
            head_size=settings.attention_head_dim,
            window=settings.attention_memory_inference,
            mlp_size=settings.attention_position_wise_mlp_dim,
            gate_bias=float(settings.attention_init_gru_gate_bias),
            max_seq_len=settings.max_seq_len,
            post_hiddens=tuple(settings.post_lstm_hiddens),
            post_activation=ACTIVATION_NAMES[settings.post_lstm_activation],
        )

    def network(self, spec: NetworkSpec, layout: AttentionLayout, weights: np.ndarray) -> NumpyAttentionNetwork:
        return NumpyAttentionNetwork(layout, spec.activations, weights)

    def torch(self, spec: NetworkSpec, layout: AttentionLayout, flat, acting):
        from rllib.models.attention.in_torch import TorchAttentionNetwork

        return TorchAttentionNetwork(layout, spec.activations, flat)
