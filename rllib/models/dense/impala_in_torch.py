"""The residual network of IMPALA for images (observations/torso.py: Impala) in torch, for learning and for acting."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rllib.models.observations.torso import Image, as_conv2d

# Least length by which a vector or a kernel is divided.
LEAST = 1e-12


def impala_features(
    image: Image, name: str, pixels: Tensor, scale: float, parts: Mapping, activation: Callable[[Tensor], Tensor]
) -> Tensor:
    """Features [B, channels, height, width].

    Args:
        image: has the residual network.
        name: name of a layer, with "{}" for its number: `parts` has "name.weight", ".bias" and, with spectral
            normalisation, ".direction".
        pixels: float32 [B, C, H, W].
        scale: factor of the pixels.
        parts: the parameters, kernels as in torch.nn.Conv2d.
        activation: activation function of the network.
    """
    impala, x = image.impala, pixels

    def convolved(index: int, x: Tensor) -> Tensor:
        layer = name.format(index)
        weight = parts[f"{layer}.weight"]
        if impala.spectral_norm and impala.is_residual(index):
            weight = _of_norm_1(weight, parts[f"{layer}.direction"])
        elif index == 0 and scale != 1.0:
            weight = weight * scale  # the kernels are fewer than the pixels
        return functional.conv2d(x, weight, parts[f"{layer}.bias"], padding=1)

    for start in range(0, len(image.layers), impala.PER_SECTION):
        x = functional.max_pool2d(convolved(start, x), 3, 2, padding=1)
        for index in range(start + 1, start + impala.PER_SECTION, 2):
            x = x + convolved(index + 1, activation(convolved(index, activation(x))))
    x = activation(x)
    return functional.adaptive_max_pool2d(x, impala.pool) if impala.pool else x


def _of_norm_1(weight: Tensor, direction: Tensor) -> Tensor:
    """The kernel over its largest singular value; where gradients are taken, `direction` comes closer to its vector.

    The gradient takes both vectors for constants, as that of the exact value does.
    """
    learns = torch.is_grad_enabled() and weight.requires_grad
    with torch.no_grad():
        # Products by hand: as matrix products they would be of low precision under autocast.
        matrix = weight.flatten(1)
        right = functional.normalize((direction[:, None] * matrix).sum(0), dim=0, eps=LEAST)
        left = functional.normalize((matrix * right).sum(1), dim=0, eps=LEAST)
        if learns:
            # Hidden from autograd, which would take it for a change of the weights in the same memory.
            direction.data.copy_(left)
    value = (left[:, None] * right * weight.flatten(1)).sum()
    return weight / value.clamp(LEAST)


class ImpalaForward:
    """The features of one image for acting, by torch on the CPU; `forward` as that of plain convolutions in numpy.

    Args:
        image: has the residual network.
        name: name of the image's blocks: "image_0".
        blocks: the parameters of one tower, read in place.
        activation: activation function of the network.
    """

    def __init__(self, image: Image, name: str, blocks: Mapping[str, np.ndarray], activation: Callable):
        self._image, self._activation = image, activation
        self.num_features = image.num_features
        self._name = f"{name}_conv_{{}}"
        self._parts = {}
        for index in range(len(image.layers)):
            layer = self._name.format(index)
            self._parts[f"{layer}.weight"] = as_conv2d(torch.from_numpy(blocks[layer]))
            self._parts[f"{layer}.bias"] = torch.from_numpy(blocks[f"{layer}_bias"])
            if f"{layer}_direction" in blocks:
                self._parts[f"{layer}.direction"] = torch.from_numpy(blocks[f"{layer}_direction"])

    @torch.inference_mode()
    def forward(self, flat: np.ndarray, out: np.ndarray) -> None:
        """Writes the features of rows [B, numbers] into out [B, num_features], in the order height, width, channels."""
        image = self._image
        pixels = flat[:, image.start : image.start + image.size].reshape(flat.shape[0], *image.shape)
        if len(image.shape) == 2:
            pixels = pixels[:, None]
        elif not image.channels_first:
            pixels = pixels.transpose(0, 3, 1, 2)
        # A copy, since torch takes no arrays that are read-only or have other strides than its own.
        read = torch.from_numpy(np.array(pixels, np.float32))
        found = impala_features(image, self._name, read, image.scale, self._parts, self._activation)
        out[:] = found.permute(0, 2, 3, 1).flatten(1).numpy()
