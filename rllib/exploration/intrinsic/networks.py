"""Networks that compute intrinsic rewards, in torch.

They read observations as the network that the library chooses for the spaces by default: encoded rows, or images
through convolutions. A model of novelty computes a reward for each step, and a loss whose minimisation makes familiar
observations less rewarding:

- `Distillation` (RND): a network learns to predict the output of a fixed random network for the next observation;
- `Dynamics` (ICM): a network learns to predict the features of the next observation from the present features and
  the action; the features are trained to predict the action.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rllib.exploration.intrinsic.losses import curiosity_loss, distillation_errors, forward_errors
from rllib.models.arithmetic.activations import ACTIVATION_NAMES
from rllib.models.dense.in_torch import StackedLayers
from rllib.models.dense.initializers import orthogonal
from rllib.models.dense.layout import LayersLayout, Layout
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.distributions.product import Product
from rllib.models.observations.filters import EPSILON, RunningMoments

CLIP = 5.0  # bound of RND's normalised observations, in standard deviations (arXiv:1810.12894, section 2.4)
SMALL = np.float32(0.01)  # factor of the last layer's weights where outputs should begin near zero
CHUNK = 1024  # rows of observations that are counted or computed at a time


class ObservationReader:
    """Turns stored observations into inputs of networks.

    Args:
        spec: has the encoder of observations.
        normalizes: scales each number to mean 0 and standard deviation 1 over the counted observations, within +- CLIP.
        device: device of the tensors.

    Attributes:
        moments: moments of the numbers of an observation; None where they are not normalised.
    """

    def __init__(self, spec: NetworkSpec, normalizes: bool, device: torch.device):
        self._spec, self._device = spec, device
        self.moments = RunningMoments(spec.num_inputs) if normalizes else None

    def count(self, observations: np.ndarray) -> None:
        """Adds stored observations [B, ...] to the moments."""
        if self.moments is not None:
            for start in range(0, len(observations), CHUNK):
                rows = self._encoded(observations[start : start + CHUNK])
                self.moments.add(rows[:, : self._spec.num_inputs])

    def __call__(self, observations: np.ndarray) -> Tensor:
        """Rows [B, num_inputs + 1] with a closing 1, or [B, num_inputs] where convolutions read them."""
        rows = self._encoded(observations)
        if self.moments is not None:
            size = self._spec.num_inputs
            normal = (rows[:, :size] - self.moments.mean) / (np.sqrt(self.moments.variance) + EPSILON)
            rows = rows.astype(np.float32)
            rows[:, :size] = np.clip(normal, -CLIP, CLIP)
        return torch.as_tensor(rows, device=self._device)

    def _encoded(self, observations: np.ndarray) -> np.ndarray:
        spec, count = self._spec, len(observations)
        if spec.encoder.as_stored:
            rows = observations.reshape(count, -1)
        else:
            rows = np.ones((count, spec.input_width), np.float32)
            spec.encoder.encode(observations, rows)
        return spec.encoder.split(rows)[1] if spec.is_masked else rows


@dataclass(frozen=True)
class Layers:
    """Description of a network: the layout of its parameters, and the activations of its hidden layers."""

    layout: LayersLayout
    activations: tuple[str, ...]

    @classmethod
    def of_observations(
        cls, spec: NetworkSpec, num_outputs: int, deeper: int = 0, normalized: bool = False
    ) -> "Layers":
        """A network that reads observations, with the layers of a spec.

        Args:
            spec: has the convolutions and hidden layers.
            num_outputs: size of the output.
            deeper: number of further hidden layers, each as wide as the last.
            normalized: pixels already have mean 0 and are not scaled.
        """
        torso, hiddens, activations = spec.torso, list(spec.hiddens), list(spec.activations)
        hiddens += hiddens[-1:] * deeper
        activations += activations[-1:] * deeper
        if torso is not None and normalized:
            images = tuple(dataclasses.replace(image, scale=1.0) for image in torso.images)
            others = tuple((start, stop, 1.0) for start, stop, _ in torso.others)
            torso = dataclasses.replace(torso, images=images, others=others)
        num_inputs = spec.num_inputs if torso is None else torso.num_features
        heads = {"": num_outputs}
        layout = LayersLayout(num_inputs, tuple(hiddens), heads, shared="", layer_norm=spec.layer_norm, torso=torso)
        return cls(layout, tuple(activations))

    @classmethod
    def of_features(cls, num_inputs: int, hiddens: Sequence[int], activation: str, num_outputs: int) -> "Layers":
        """A network that reads rows of numbers, with one activation for all hidden layers."""
        layout = LayersLayout(num_inputs, tuple(hiddens), {"": num_outputs}, shared="")
        return cls(layout, (ACTIVATION_NAMES[activation],) * len(hiddens))


class Networks:
    """Several networks on one flat vector, in float32.

    Args:
        layers: name -> description.
        rng: draws orthogonal weights.
        device: device of the weights.
        near_zero: names of networks whose outputs begin near zero.
    """

    def __init__(
        self,
        layers: Mapping[str, Layers],
        rng: np.random.Generator,
        device: torch.device,
        near_zero: Sequence[str] = (),
    ):
        whole = Layout({name: (each.layout.size,) for name, each in layers.items()})
        flat = np.zeros(whole.size, np.float32)
        for name, each in layers.items():
            weights = flat[whole.slices[name]]
            orthogonal(each.layout, weights, rng)
            if name in near_zero:
                each.layout.named_parameters(weights)["head.weight"][:] *= SMALL
        flat = torch.from_numpy(flat).to(device)
        self.modules = {
            name: StackedLayers(each.layout, each.activations, flat[whole.slices[name]])
            for name, each in layers.items()
        }

    def __call__(self, name: str, *parts: Tensor) -> Tensor:
        """Outputs [B, outputs] of a network. Several parts are its input side by side, with a closing 1."""
        inputs = parts[0] if len(parts) == 1 else torch.cat([*parts, parts[0].new_ones((len(parts[0]), 1))], dim=1)
        return self.modules[name].outputs(inputs)[0]


class Distillation:
    """Random network distillation.

    Args:
        settings: with embed_dim.
        spec: spec of the layers.
    """

    normalizes = True
    fixed = ("target",)
    stats = ("distillation_loss",)

    def __init__(self, settings, spec: NetworkSpec):
        # The predictor is deeper, so that it can represent the target (the paper's appendix).
        self.layers = {
            "target": Layers.of_observations(spec, settings.embed_dim, normalized=True),
            "predictor": Layers.of_observations(spec, settings.embed_dim, deeper=1, normalized=True),
        }

    def rewards(self, networks: Networks, observations: Tensor, actions: Tensor, following: Tensor) -> Tensor:
        """Rewards [B] before normalisation."""
        return distillation_errors(networks("predictor", following), networks("target", following))

    def loss(self, networks: Networks, observations: Tensor, actions: Tensor, following: Tensor) -> tuple:
        """The loss, a scalar with a graph, and its statistics, in the order of `stats`."""
        loss = self.rewards(networks, observations, actions, following).mean()
        return loss, (loss.detach(),)


class Dynamics:
    """The intrinsic curiosity module.

    Args:
        settings: a Curiosity.
        spec: spec of the layers; its distribution is the actions'.
    """

    normalizes = False
    fixed = ()
    stats = ("forward_loss", "inverse_loss")

    def __init__(self, settings, spec: NetworkSpec):
        self._beta, self._distribution = settings.beta, spec.distribution
        size, width = settings.feature_dim, action_width(spec.distribution)
        inverse = settings.inverse_net_hiddens, settings.inverse_net_activation, spec.distribution.num_inputs
        forward = settings.forward_net_hiddens, settings.forward_net_activation, size
        self.layers = {
            "features": Layers.of_observations(spec, size),
            "inverse": Layers.of_features(2 * size, *inverse),
            "forward": Layers.of_features(size + width, *forward),
        }

    def rewards(self, networks: Networks, observations: Tensor, actions: Tensor, following: Tensor) -> Tensor:
        """Rewards [B] before normalisation."""
        before, after = networks("features", torch.cat([observations, following])).chunk(2)
        return self._forward_errors(networks, before, actions, after)

    def loss(self, networks: Networks, observations: Tensor, actions: Tensor, following: Tensor) -> tuple:
        """The loss, a scalar with a graph, and its statistics, in the order of `stats`."""
        before, after = networks("features", torch.cat([observations, following])).chunk(2)
        predicted = self._distribution.torch_at(networks("inverse", before, after))
        forward = self._forward_errors(networks, before, actions, after)
        loss, *statistics = curiosity_loss(forward, -predicted.log_prob(actions), self._beta)
        return loss, tuple(each.detach() for each in statistics)

    def _forward_errors(self, networks: Networks, before: Tensor, actions: Tensor, after: Tensor) -> Tensor:
        predicted = networks("forward", before, action_rows(self._distribution, actions))
        return forward_errors(predicted, after)


def action_width(distribution) -> int:
    """Size of an action's row in `action_rows`."""
    if isinstance(distribution, Product):
        return sum(map(action_width, distribution.parts))
    is_continuous = distribution.action_dtype.kind == "f"
    return math.prod(distribution.action_shape) if is_continuous else distribution.num_inputs


def action_rows(distribution, actions: Tensor) -> Tensor:
    """Stored actions as rows [B, width]: discrete choices one-hot and side by side, continuous actions unchanged."""
    rows = actions.reshape(len(actions), -1)
    if isinstance(distribution, Product):
        columns = rows.split([math.prod(part.action_shape) for part in distribution.parts], dim=1)
        return torch.cat([action_rows(part, its) for part, its in zip(distribution.parts, columns)], dim=1)
    if distribution.action_dtype.kind == "f":
        return rows.float()
    starts = torch.tensor([start for start, _ in distribution.choices], device=rows.device)
    found = torch.zeros((len(rows), distribution.num_inputs), device=rows.device)
    return found.scatter_(1, rows.long() + starts, 1.0)
