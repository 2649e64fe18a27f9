"""NetworkSpec: describes a policy, also in its checkpoint, and builds its network in numpy and torch."""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib.models.attention.in_numpy import NumpyAttentionNetwork
from rllib.models.attention.spec import Attention, AttentionLayout
from rllib.models.dense.batch_renorm import BatchRenorm
from rllib.models.dense.in_numpy import NetworkPerRow, NumpyNetwork
from rllib.models.dense.initializers import GAINS, INITIALIZERS
from rllib.models.dense.layout import LayersLayout, Layout
from rllib.models.dense.noisy import NoisyLayout, NoisyNetwork, initialize_sigmas
from rllib.models.dense.renormalized import RenormalizedNetwork
from rllib.models.dense.separate import Columns, SeparateLayout, SeparateNetwork
from rllib.models.dense.state_dependent_noise import StateDependentLayout, StateDependentNetwork
from rllib.models.dense.torso_in_numpy import ConvolutionalNetwork
from rllib.models.distributions.choose import distribution_from_json
from rllib.models.distributions.standard import DiagGaussian, Distribution
from rllib.models.groups.in_numpy import GroupNetwork
from rllib.models.groups.members import Members
from rllib.models.implicit.in_numpy import ImplicitNetwork
from rllib.models.implicit.spec import ImplicitLayout, ImplicitQuantiles
from rllib.models.memory.in_numpy import NumpyMemoryNetwork
from rllib.models.memory.spec import Memory
from rllib.models.observations.encoders import Encoder, MaskedEncoder, encoder_from_json
from rllib.models.observations.filters import CLIP, Filter, MeanStdFilter, NoFilter
from rllib.models.observations.masks import MaskedNetwork, MaskedNetworkPerRow
from rllib.models.observations.torso import Torso, torso_from_json
from rllib.models.residual.in_numpy import ResidualNetwork
from rllib.models.residual.spec import Residual, ResidualLayout
from rllib.storage.checkpoint import CheckpointError, UserCode
from rllib.storage.json_dataclass import as_lists, as_tuples, from_json


@dataclass(frozen=True)
class NetworkSpec:
    """The description of a policy: all that is needed to build its network, in any process.

    Attributes:
        encoder: turns stored observations into the network's input.
        distribution: of the actions.
        hiddens: widths of the hidden layers.
        activations: of each hidden layer, one of activations.ACTIVATIONS.
        vf_share_layers: one tower for policy and value instead of two.
        free_log_std: a parameter instead of an output (DiagGaussian alone).
        observation_filter: "NoFilter" or "MeanStdFilter".
        critic: whether there is a value head; without one there is a single tower.
        layer_norm: hidden layers are normalised before their activation.
        torso: convolutions that read the stored observations, for the hidden layers to read; None without images.
        initializer: of the weights, a name in models/dense/initializers.py.
        noisy_layers: number of last layers, head included, with noise in their weights (single tower).
        sigma0: initial scale of this noise (dense/noisy.py).
        memory: a recurrent cell, or attention, between the hidden layers and the heads; None without.
        observation_clip: bound of filtered observations, in standard deviations; None: unbounded.
        log_std_init: initial logarithm of the standard deviation of continuous actions; with state_dependent_noise of
            sigma.
        gains: of orthogonal weights in hidden layers, the policy's head and the value's; None: initializers.GAINS.
        vf_hiddens: widths of the value's own hidden layers, where they differ from the policy's; None: the same.
        state_dependent_noise: the standard deviation is sigma times the inputs of the policy's head
            (state_dependent_noise.py).
        noise_trains_features: gradients flow from these standard deviations into the inputs of the head.
        head_bias: whether the policy's head and the value's have a bias.
        batch_renorm: inputs of hidden layers and head are normalised (batch_renorm.py); for fully connected networks
            without layer_norm.
        policy_columns: columns (start, stop) of the inputs that the policy reads, where the value reads more; None: it
            reads all.
        implicit: what makes it an implicit quantile network; None: it is none.
        members: those of a group, who share the network; None: the policy is of one agent.
        residual: residual blocks instead of hidden layers, for policies without a value; None: hidden layers.
    """

    encoder: Encoder
    distribution: Distribution
    hiddens: tuple[int, ...]
    activations: tuple[str, ...]
    vf_share_layers: bool = False
    free_log_std: bool = False
    observation_filter: str = "NoFilter"
    critic: bool = True
    layer_norm: bool = False
    torso: Torso | None = None
    initializer: str = "orthogonal"
    noisy_layers: int = 0
    sigma0: float = 0.5
    memory: Memory | Attention | None = None
    observation_clip: float | None = CLIP
    log_std_init: float = 0.0
    gains: tuple[float, float, float] | None = None
    vf_hiddens: tuple[int, ...] | None = None
    state_dependent_noise: bool = False
    noise_trains_features: bool = False
    head_bias: bool = True
    batch_renorm: BatchRenorm | None = None
    policy_columns: Columns | None = None
    members: Members | None = None
    residual: Residual | None = None
    implicit: ImplicitQuantiles | None = None

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the arrays of a memory's state; none without a memory."""
        return self.layout().state_shapes if self.memory else ()

    @property
    def state_size(self) -> int:
        """Length of a memory's state; 0 without a memory."""
        return sum(math.prod(shape) for shape in self.state_shapes)

    @property
    def max_seq_len(self) -> int:
        """Longest sequence that gradients flow through, where there is a memory."""
        return self.memory.max_seq_len if self.memory else 1

    @property
    def has_noise(self) -> bool:
        """Whether the network has random numbers of its own, in its weights or as levels of quantiles."""
        return bool(self.noisy_layers) or self.implicit is not None

    # For messages.
    network_name = "the network"

    @property
    def custom_loss(self) -> Callable | None:
        """The network's own change of an algorithm's loss, in the form of the setting custom_loss; None: no change."""
        return None

    @property
    def is_masked(self) -> bool:
        """Whether observations hold a mask of legal actions (models/observations/masks.py)."""
        return isinstance(self.encoder, MaskedEncoder)

    @property
    def num_inputs(self) -> int:
        """Number of inputs that the network reads from an encoded observation, without the mask."""
        return self.encoder.inner.size if self.is_masked else self.encoder.size

    @property
    def input_width(self) -> int:
        """Number of columns of encoded observations; 0 if the network reads the rows as they are stored."""
        return 0 if self.encoder.as_stored else self.encoder.size + 1

    def without_value(self, **changes) -> "NetworkSpec":
        """The same network without a value and its layers, with further changes of attributes."""
        return dataclasses.replace(self, critic=False, vf_share_layers=True, vf_hiddens=None, **changes)

    def layout(self) -> Layout:
        """Layout of the parameters in the flat vector."""
        if self.residual:
            size, count = self.distribution.size, self.distribution.num_inputs
            heads = (size, size) if isinstance(self.distribution, DiagGaussian) else (count,)
            return self.residual.layout(self.num_inputs, 0, heads, ("policy",))
        num_log_std = self.distribution.size if self.free_log_std else 0
        num_others = self.distribution.size if self.state_dependent_noise else num_log_std
        heads = {"policy": self.distribution.num_inputs - num_others}
        if self.critic:
            heads["value"] = 1
        # Without any layers there is nothing to share or to separate: both heads read the observation.
        has_layers = bool(self.hiddens) or self.torso is not None or self.memory is not None
        num_inputs = self.num_inputs if self.torso is None else self.torso.num_features
        if self.members:
            num_inputs, heads = self.members.num_inputs, {"policy": heads["policy"] // self.members.count}
        shared = "shared" if self.vf_share_layers or not has_layers or not self.critic else None
        if self.implicit:
            # The levels are outputs, too.
            outputs = heads["policy"] // self.implicit.count - 1
            own = outputs, self.layer_norm, self.torso, self.head_bias
            whole = self.implicit.layout(num_inputs, self.hiddens, *own)
            return NoisyLayout(whole, whole.behind, self.noisy_layers) if self.noisy_layers else whole
        rest = self.hiddens, heads, shared, num_log_std, self.layer_norm, self.torso
        if self.memory:
            return self.memory.layout(num_inputs, *rest)
        plain = LayersLayout(num_inputs, *rest, head_bias=self.head_bias, batch_renorm=self.batch_renorm)
        if self.vf_hiddens is not None:
            both = {"layer_norm": self.layer_norm, "head_bias": self.head_bias}
            columns = self.policy_columns
            num_read = num_inputs if columns is None else sum(stop - start for start, stop in columns)
            policy_head = {"policy": heads["policy"]}
            plain = SeparateLayout(
                LayersLayout(num_read, self.hiddens, policy_head, "policy", num_log_std, **both),
                LayersLayout(num_inputs, self.vf_hiddens, {"value": 1}, "value", **both),
                columns,
            )
        if self.state_dependent_noise:
            width, size = self.hiddens[-1], self.distribution.size
            return StateDependentLayout(plain, width, size, trains_features=self.noise_trains_features)
        return NoisyLayout(plain, plain, self.noisy_layers) if self.noisy_layers else plain

    def initialize(self, layout: Layout, weights: np.ndarray, rng: np.random.Generator) -> None:
        """Fills the weights, flat float32 [layout.size]."""
        if isinstance(layout, ResidualLayout):
            layout.initialize(weights, rng)
            return
        if isinstance(layout, NoisyLayout):
            initialize_sigmas(layout, weights, self.sigma0)
            layout, weights = layout.plain, weights[: layout.plain.size]
        INITIALIZERS[self.initializer](layout, weights, rng, self.gains or GAINS)
        if self.memory:
            layout.initialize_memory(weights, rng, self.initializer)
        if self.log_std_init:
            named = layout.named_parameters(weights)
            has_own = self.free_log_std or self.state_dependent_noise
            log_std = named["policy.log_std"] if has_own else named["policy.head.bias"][self.distribution.size :]
            log_std += self.log_std_init

    def network(self, layout: Layout, weights: np.ndarray):
        """Builds the network that acts on these weights, unmasked: a NumpyNetwork, or one with its methods.

        Raises:
            ValueError: for weights of another size.
        """
        if isinstance(layout, NoisyLayout):
            return NoisyNetwork(layout, lambda summed: self.network(layout.plain, summed), weights)
        if isinstance(layout, ImplicitLayout):
            before, behind = self.implicit.split(self.activations)
            kind = ConvolutionalNetwork if layout.torso else NumpyNetwork
            return ImplicitNetwork(
                layout,
                lambda part, gradient: kind(layout.before, before, part, *(() if layout.torso else (gradient,))),
                lambda part, gradient: NumpyNetwork(layout.behind, behind, part, gradient),
                weights,
                self.implicit.count,
            )
        if isinstance(layout, AttentionLayout):
            return NumpyAttentionNetwork(layout, self.activations, weights)
        if self.memory:
            return NumpyMemoryNetwork(layout, self.activations, weights)
        if isinstance(layout, StateDependentLayout):
            return StateDependentNetwork(layout, functools.partial(self._plain_network, layout.plain), weights)
        return self._plain_network(layout, weights)

    def _plain_network(self, layout: Layout, weights: np.ndarray, *gradient: np.ndarray):
        """The network of fully connected layers or residual blocks; `gradient`, if given, is memory for it."""
        if isinstance(layout, ResidualLayout):
            return ResidualNetwork(layout, weights)
        if layout.torso:
            return ConvolutionalNetwork(layout, self.activations, weights)
        if isinstance(layout, SeparateLayout):
            return SeparateNetwork(layout, self._separate_activations, weights, *gradient)
        kind = RenormalizedNetwork if layout.batch_renorm else NumpyNetwork
        network = kind(layout, self.activations, weights, *gradient)
        return GroupNetwork(self.members, network) if self.members else network

    @property
    def _separate_activations(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Activations of the policy's hidden layers, and of the value's own, which have the last one of the policy."""
        return self.activations, (self.activations or ("tanh",))[-1:] * len(self.vf_hiddens)

    def torch(self, layout: Layout, flat, acting):
        """Builds the torch module that learns, on a flat tensor, unmasked; it shares the noise of `acting`."""
        from rllib.models.attention.in_torch import TorchAttentionNetwork
        from rllib.models.dense.composed_in_torch import SeparateTorchNetwork, StateDependentTorchNetwork
        from rllib.models.dense.in_torch import NoisyTorchNetwork, TorchNetwork
        from rllib.models.groups.in_torch import TorchGroupNetwork
        from rllib.models.implicit.in_torch import ImplicitTorchNetwork
        from rllib.models.memory.in_torch import TorchMemoryNetwork
        from rllib.models.residual.in_torch import ResidualPolicy

        if isinstance(layout, ResidualLayout):
            return ResidualPolicy(layout, flat)
        if isinstance(layout, NoisyLayout):
            return NoisyTorchNetwork(layout, lambda mu: self.torch(layout.plain, mu, acting.network), flat, acting)
        if isinstance(layout, ImplicitLayout):
            return ImplicitTorchNetwork(
                layout, self.implicit.split(self.activations), flat, acting, self.implicit.count
            )
        if isinstance(layout, StateDependentLayout):
            return StateDependentTorchNetwork(layout, lambda plain: self.torch(layout.plain, plain, acting), flat)
        if isinstance(layout, SeparateLayout):
            return SeparateTorchNetwork(layout, self._separate_activations, flat)
        if isinstance(layout, AttentionLayout):
            return TorchAttentionNetwork(layout, self.activations, flat)
        network = (TorchMemoryNetwork if self.memory else TorchNetwork)(layout, self.activations, flat)
        return TorchGroupNetwork(self.members, network) if self.members else network

    def opened(self, module) -> tuple[Any, Callable]:
        """The module that users' losses call, and a function from rows to its input."""
        return module, lambda rows: rows

    def masked_opened(self, module) -> tuple[Any, Callable]:
        """`opened` for a module of `masked_torch`."""
        if not self.is_masked:
            return self.opened(module)
        called, read = self.opened(module.module)
        return called, lambda rows: read(self.encoder.split(rows)[1])

    def masked_network(self, layout: Layout, weights: np.ndarray):
        """`network`, masked if observations hold a mask."""
        return self.with_mask(self.network(layout, weights))

    def with_mask(self, network):
        """Wraps a network that acts, if observations hold a mask."""
        return MaskedNetwork(network, self.encoder, self.distribution) if self.is_masked else network

    def masked_torch(self, layout: Layout, flat, acting):
        """`torch`, masked if observations hold a mask; `acting` is a result of `masked_network`."""
        if not self.is_masked:
            return self.torch(layout, flat, acting)
        from rllib.models.observations.in_torch import MaskedModule

        return MaskedModule(self.torch(layout, flat, acting.network), self.encoder, self.distribution)

    def network_per_row(self, layout: Layout, weights: np.ndarray):
        """Builds a NetworkPerRow, which acts with separate weights in each row, float32 [N, layout.size]."""
        network = NetworkPerRow(layout, self.activations, weights)
        return MaskedNetworkPerRow(network, self.encoder, self.distribution) if self.is_masked else network

    def make_filter(self) -> Filter:
        """A new observation filter."""
        if self.observation_filter == "NoFilter":
            return NoFilter()
        keep = self.encoder.ranges if self.is_masked else ()
        return MeanStdFilter(self.encoder.shape, self.observation_clip, keep)

    def check(self) -> None:
        """Raises a ValueError if a user's network does not do what its description says."""

    def to_json(self) -> dict:
        """A JSON-able description, without what subclasses add; `from_json` reads it."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(NetworkSpec)}
        return {
            name: value.to_json() if name in _READERS and value is not None else as_lists(value)
            for name, value in values.items()
        }

    @classmethod
    def from_json(cls, data: Mapping) -> "NetworkSpec":
        """Reads the result of `to_json`; attributes that an earlier version did not have take their defaults."""
        data = dict(data)
        if "activation" in data:  # of checkpoints from before each layer had its own
            data["activations"] = [data.pop("activation")] * len(data["hiddens"])
        if "policy_inputs" in data:  # of checkpoints from before the policy could read others than the first
            count = data.pop("policy_inputs")
            data["policy_columns"] = count and [[0, count]]
        return cls(**{name: _READERS.get(name, as_tuples)(value) for name, value in data.items()})


def _batch_renorm_from_json(data: dict | None) -> BatchRenorm | None:
    return data and from_json(data, (BatchRenorm,))


def _memory_from_json(data: dict | None) -> Memory | Attention | None:
    return data and from_json(data, (Memory, Attention))


def _members_from_json(data: dict | None) -> Members | None:
    return data and from_json(data, (Members,))


def _residual_from_json(data: dict | None) -> Residual | None:
    return data and from_json(data, (Residual,))


def _implicit_from_json(data: dict | None) -> ImplicitQuantiles | None:
    return data and from_json(data, (ImplicitQuantiles,))


# Attribute -> reader of its `to_json`; the others are numbers, texts, and tuples of them.
_READERS = {
    "encoder": encoder_from_json,
    "distribution": distribution_from_json,
    "torso": torso_from_json,
    "memory": _memory_from_json,
    "batch_renorm": _batch_renorm_from_json,
    "members": _members_from_json,
    "residual": _residual_from_json,
    "implicit": _implicit_from_json,
}


def description_of(spec: NetworkSpec) -> dict[str, Any]:
    """The part of a checkpoint's policy.json about network and distribution; `described_spec` reads it.

    Where the spec or the distribution is a class of the user's, it names the class and holds what the class adds.
    """
    common = {field.name for field in dataclasses.fields(NetworkSpec)}
    own = {each.name: getattr(spec, each.name) for each in dataclasses.fields(spec) if each.name not in common}
    code = {} if type(spec) is NetworkSpec else {"custom": {"class": type(spec), **own}}
    if user_class := spec.distribution.user_class:
        code["action_dist"] = user_class
    return {"spec": spec.to_json(), **code}


def described_spec(description: Mapping[str, Any], path: str | os.PathLike) -> NetworkSpec:
    """The spec that `description_of` described.

    Args:
        description: a checkpoint's policy.json.
        path: of the checkpoint, for messages.

    Raises:
        CheckpointError: if it names code of the user's that was not loaded.
    """
    spec, own = NetworkSpec.from_json(description["spec"]), dict(description.get("custom", {}))
    action_dist = description.get("action_dist")
    used = own | {"action_dist": action_dist}
    if any(isinstance(value, UserCode) for value in used.values()):
        code = ", ".join(f"{name}={each.reference}" for name, each in used.items() if isinstance(each, UserCode))
        raise CheckpointError(
            f"the policy of the checkpoint {os.fspath(path)} is made by code of yours ({code}), which runs only when "
            "you ask for it: give load_user_code=True if you trust where it comes from."
        )
    if action_dist is not None:
        spec = dataclasses.replace(spec, distribution=dataclasses.replace(spec.distribution, user_class=action_dist))
    return own.pop("class")(**vars(spec), **own) if own else spec
