"""NetworkSpec: describes a policy, also in its checkpoint, and builds its network in numpy and torch."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rllib.models.attention.spec import Attention
from rllib.models.dense.architecture import Architecture
from rllib.models.dense.batch_renorm import BatchRenorm
from rllib.models.dense.in_numpy import NetworkPerRow
from rllib.models.dense.layout import Layout
from rllib.models.dense.noisy import NoisyLayout, NoisyNetwork, initialize_sigmas
from rllib.models.dense.spec import Dense
from rllib.models.distributions.choose import distribution_from_json
from rllib.models.distributions.standard import Distribution
from rllib.models.groups.spec import Group
from rllib.models.implicit.spec import ImplicitQuantiles
from rllib.models.memory.spec import Memory
from rllib.models.observations.encoders import Encoder, MaskedEncoder, encoder_from_json
from rllib.models.observations.filters import CLIP, Filter, MeanStdFilter, NoFilter
from rllib.models.observations.masks import MaskedNetwork, MaskedNetworkPerRow
from rllib.models.observations.torso import Torso, torso_from_json
from rllib.models.residual.spec import Residual
from rllib.storage.checkpoint import CheckpointError, UserCode
from rllib.storage.json_dataclass import as_lists, as_tuples, from_json

# Of the library. A checkpoint names one by its `kind`.
ARCHITECTURES: tuple[type[Architecture], ...] = (Dense, Residual, Memory, Attention, ImplicitQuantiles, Group)


@dataclass(frozen=True)
class UserArchitecture(Architecture):
    """An architecture of the user's code, which a checkpoint names beside the description; by itself it builds none."""

    kind = "user"


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
        observation_clip: bound of filtered observations, in standard deviations; None: unbounded.
        log_std_init: initial logarithm of the standard deviation of continuous actions; with state_dependent_noise of
            sigma.
        gains: of orthogonal weights in hidden layers, the policy's head and the value's; None: initializers.GAINS.
        head_bias: whether the policy's head and the value's have a bias.
        architecture: what is built of these layers, or in their place.
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
    observation_clip: float | None = CLIP
    log_std_init: float = 0.0
    gains: tuple[float, float, float] | None = None
    head_bias: bool = True
    architecture: Architecture = field(default_factory=Dense)

    @property
    def memory(self) -> Memory | Attention | None:
        """The cell, or the attention, between the hidden layers and the heads; None without."""
        return self.architecture.memory

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the arrays of a memory's state; none without a memory."""
        return self.architecture.state_shapes_of(self)

    @property
    def state_size(self) -> int:
        """Length of a memory's state; 0 without a memory."""
        return sum(math.prod(shape) for shape in self.state_shapes)

    @property
    def has_noise(self) -> bool:
        """Whether the network has random numbers of its own, in its weights or as levels of quantiles."""
        return bool(self.noisy_layers) or self.architecture.has_noise

    @property
    def is_built_in(self) -> bool:
        """Whether the architecture is the library's own, not of a class of the user's."""
        return type(self.architecture) in ARCHITECTURES

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

    @property
    def num_features(self) -> int:
        """Number of inputs of the first hidden layer: those of the network, or the features of its convolutions."""
        return self.num_inputs if self.torso is None else self.torso.num_features

    @property
    def num_log_std(self) -> int:
        """Length of the free log standard deviation, 0 for none."""
        return self.distribution.size if self.free_log_std else 0

    @property
    def heads(self) -> dict[str, int]:
        """Name of a head -> number of outputs."""
        policy = {"policy": self.distribution.num_inputs - self.num_log_std}
        return policy | {"value": 1} if self.critic else policy

    @property
    def shared(self) -> str | None:
        """Name of the hidden layers that all heads read; None: each has layers of its own."""
        # Without any layers there is nothing to share or to separate: both heads read the observation.
        has_layers = bool(self.hiddens) or self.torso is not None or self.memory is not None
        return "shared" if self.vf_share_layers or not has_layers or not self.critic else None

    def without_value(self, **changes) -> "NetworkSpec":
        """The same network without a value and its layers, with further changes of attributes."""
        changes = {"architecture": self.architecture.without_value(), **changes}
        return dataclasses.replace(self, critic=False, vf_share_layers=True, **changes)

    def layout(self) -> Layout:
        """Layout of the parameters in the flat vector."""
        plain = self.architecture.layout(self)
        noisy = self.architecture.noisy_part(plain) if self.noisy_layers else None
        return plain if noisy is None else NoisyLayout(plain, noisy, self.noisy_layers)

    def initialize(self, layout: Layout, weights: np.ndarray, rng: np.random.Generator) -> None:
        """Fills the weights, flat float32 [layout.size]."""
        if isinstance(layout, NoisyLayout):
            initialize_sigmas(layout, weights, self.sigma0)
            layout, weights = layout.plain, weights[: layout.plain.size]
        self.architecture.initialize(self, layout, weights, rng)

    def network(self, layout: Layout, weights: np.ndarray):
        """Builds the network that acts on these weights, unmasked: a NumpyNetwork, or one with its methods.

        Raises:
            ValueError: for weights of another size.
        """
        if isinstance(layout, NoisyLayout):
            return NoisyNetwork(layout, lambda summed: self.network(layout.plain, summed), weights)
        return self.architecture.network(self, layout, weights)

    def torch(self, layout: Layout, flat, acting):
        """Builds the torch module that learns, on a flat tensor, unmasked; it shares the noise of `acting`."""
        if isinstance(layout, NoisyLayout):
            from rllib.models.dense.in_torch import NoisyTorchNetwork

            return NoisyTorchNetwork(layout, lambda mu: self.torch(layout.plain, mu, acting.network), flat, acting)
        return self.architecture.torch(self, layout, flat, acting)

    def opened(self, module) -> tuple[Any, Callable]:
        """The module that users' losses call, and a function from rows to its input."""
        return self.architecture.opened(self, module)

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
        self.architecture.check(self)

    def to_json(self) -> dict:
        """A JSON-able description, without the user's code; `from_json` reads it."""
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        if not self.is_built_in:
            values["architecture"] = UserArchitecture()
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
        if "architecture" not in data:
            data = _with_architecture(data)
        return cls(**{name: _READERS.get(name, as_tuples)(value) for name, value in data.items()})


def _with_architecture(data: dict) -> dict:
    """The JSON of a description from before its architecture was one attribute."""
    others = [data.pop(name, None) for name in ("residual", "implicit", "members", "memory")]
    if others[0]:
        others[0] = {"name" if key == "network" else key: value for key, value in others[0].items()}
    dense = {each.name: data.pop(each.name) for each in dataclasses.fields(Dense) if each.name in data}
    return data | {"architecture": next(filter(None, others), {"kind": Dense.kind, **dense})}


# Attribute -> reader of its `to_json`; the others are numbers, texts, and tuples of them.
_READERS = {
    "encoder": encoder_from_json,
    "distribution": distribution_from_json,
    "torso": torso_from_json,
    "architecture": lambda data: from_json(data, (*ARCHITECTURES, UserArchitecture, BatchRenorm)),
}


def description_of(spec: NetworkSpec) -> dict[str, Any]:
    """The part of a checkpoint's policy.json about network and distribution; `described_spec` reads it.

    Where the architecture or the distribution is a class of the user's, it names the class, and holds the fields of the
    architecture.
    """
    own, code = spec.architecture, {}
    if not spec.is_built_in:
        code["custom"] = {"class": type(own), **vars(own)}
    if user_class := spec.distribution.user_class:
        code["action_dist"] = user_class
    return {"spec": spec.to_json(), **code}


def spec_without_code(description: Mapping[str, Any]) -> NetworkSpec:
    """The spec that `description_of` described, without what the user's code adds."""
    spec = NetworkSpec.from_json(description["spec"])
    # Descriptions from before architectures say nothing of them in their "spec".
    return dataclasses.replace(spec, architecture=UserArchitecture()) if "custom" in description else spec


def described_spec(description: Mapping[str, Any], path: str | os.PathLike) -> NetworkSpec:
    """The spec that `description_of` described.

    Args:
        description: a checkpoint's policy.json.
        path: of the checkpoint, for messages.

    Raises:
        CheckpointError: if it names code of the user's that was not loaded.
    """
    spec, own = spec_without_code(description), dict(description.get("custom", {}))
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
    return dataclasses.replace(spec, architecture=own.pop("class")(**own)) if own else spec
