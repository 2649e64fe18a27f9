"""Descriptions of the convolutions before the fully connected layers, for the numpy and the torch network.

A torso turns stored rows (pixels as bytes) into features: the results of separate convolutions for each image, then all
other numbers of the row.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from rllib.config.conflicts import Unfit
from rllib.storage.json_dataclass import as_lists

# Ray's choice by the size of the image (get_filter_config): [channels, [kernel height, width], stride].
AUTOMATIC_FILTERS = {
    (480, 640): [[16, [24, 32], [14, 18]], [32, [6, 6], 4], [256, [9, 9], 1]],
    (240, 320): [[16, [12, 16], [7, 9]], [32, [6, 6], 4], [256, [9, 9], 1]],
    (96, 96): [[16, [8, 8], 4], [32, [4, 4], 2], [256, [11, 11], 2]],
    (84, 84): [[16, [8, 8], 4], [32, [4, 4], 2], [256, [11, 11], 1]],
    (64, 64): [[32, [4, 4], 2], [64, [4, 4], 2], [128, [4, 4], 2], [256, [4, 4], 2]],
    (42, 42): [[16, [4, 4], 2], [32, [4, 4], 2], [256, [11, 11], 1]],
    (10, 10): [[16, [5, 5], 2], [32, [5, 5], 2]],
}
# Mnih et al., Nature 2015; a hidden layer of 512 follows.
NATURE_FILTERS = [[32, 8, 4, "valid"], [64, 4, 2, "valid"], [64, 3, 1, "valid"]]
NATURE_HIDDENS = [512]
# Espeholt et al., arXiv:1802.01561, figure 3: behind the residual network.
IMPALA_HIDDENS = [256]
PADDINGS = ("same", "valid")


@dataclass(frozen=True)
class Filters:
    """One layer of convolutions, for images of any size.

    Attributes:
        channels: number of filters.
        kernel, stride: (height, width).
        padding: "valid": none; "same": zeros that make the size of the result ceil(size / stride), an odd one at the
            bottom and the right.
    """

    channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: str

    def pads(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Rows of zeros above and below, columns of zeros to the left and right."""
        pads = []
        for size, kernel, stride in zip((height, width), self.kernel, self.stride):
            total = 0
            if self.padding == "same":
                total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
            pads += [total // 2, total - total // 2]
        return tuple(pads)


@dataclass(frozen=True)
class Convolution:
    """A layer of filters for images of one size.

    Attributes:
        filters: the layer.
        in_shape: (height, width, channels) of the input.
    """

    filters: Filters
    in_shape: tuple[int, int, int]

    @cached_property
    def pads(self) -> tuple[int, int, int, int]:
        """Padding, as Filters.pads."""
        return self.filters.pads(*self.in_shape[:2])

    @cached_property
    def out_shape(self) -> tuple[int, int, int]:
        """(height, width, channels) of the result."""
        top, bottom, left, right = self.pads
        height, width = self.in_shape[0] + top + bottom, self.in_shape[1] + left + right
        kernel, stride = self.filters.kernel, self.filters.stride
        return (
            (height - kernel[0]) // stride[0] + 1,
            (width - kernel[1]) // stride[1] + 1,
            self.filters.channels,
        )

    @property
    def kernel_shape(self) -> tuple[int, int, int, int]:
        """(filters, kernel height, kernel width, channels), as the weights lie in memory."""
        return (self.filters.channels, *self.filters.kernel, self.in_shape[2])


@dataclass(frozen=True)
class Impala:
    """The residual network of IMPALA (Espeholt et al., arXiv:1802.01561, figure 3), for images of any size.

    Three sections of 16, 32 and 32 channels, all kernels 3 x 3: a convolution, max-pooling to half the size, and two
    residual blocks, each the sum of what it reads and of two convolutions with an activation before either. An
    activation follows the last section. BTR (arXiv:2411.03820) has all three of the settings below.

    Attributes:
        width: factor of the channels.
        pool: rows and columns to which the result is max-pooled, whatever size the image had; None: it is not.
        spectral_norm: kernels in residual blocks are divided by their largest singular value (Miyato et al.,
            arXiv:1802.05957), which one step of power iteration estimates: with the kernel as a matrix K [filters,
            numbers of a patch] and the unit vectors v of K^T u and w of K v it is w K v, and w is the next u.
    """

    width: int = 1
    pool: int | None = None
    spectral_norm: bool = False

    # Convolutions of a section; the first is no part of a residual block.
    PER_SECTION: ClassVar[int] = 5

    def layers(self, shape: tuple[int, int, int]) -> tuple[Convolution, ...]:
        """The convolutions for images of this (height, width, channels), section by section."""
        layers = []
        for channels in (16, 32, 32):
            filters = Filters(channels * self.width, (3, 3), (1, 1), "same")
            layers.append(Convolution(filters, shape))
            shape = ((shape[0] + 1) // 2, (shape[1] + 1) // 2, filters.channels)
            layers += [Convolution(filters, shape)] * (self.PER_SECTION - 1)
        return tuple(layers)

    def is_residual(self, index: int) -> bool:
        """Whether a convolution is in a residual block."""
        return index % self.PER_SECTION > 0


@dataclass(frozen=True)
class Image:
    """An image within a stored row, and its convolutions.

    Attributes:
        start: its first number in the flattened row.
        shape: as stored: [H, W, C], or [C, H, W] where channels_first, or [H, W].
        channels_first: whether it is [C, H, W].
        scale: of its numbers; 1/255 takes bytes to [0, 1].
        filters: layer by layer; none with `impala`.
        impala: residual blocks instead; None: plain layers.

    Raises:
        ValueError: if the image is too small for them.
    """

    start: int
    shape: tuple[int, ...]
    channels_first: bool
    scale: float
    filters: tuple[Filters, ...]
    impala: Impala | None = None

    def __post_init__(self):
        if self.impala and self.impala.pool and self.impala.pool > min(places := self.layers[-1].out_shape[:2]):
            raise Unfit(
                f'the residual network "impala" leaves {list(places)} places of an image of {list(self.shape)}, and '
                f"impala_pool={self.impala.pool} are more.",
                "Use a smaller impala_pool, or None.",
                {"model": {"impala_pool": None}},
            )
        for layer in self.layers:
            if min(layer.out_shape) < 1:
                raise Unfit(
                    f"an image of {list(self.shape)} is too small for conv_filters: {list(layer.in_shape)} is left "
                    f"where a kernel of {list(layer.filters.kernel)} comes.",
                    'Use smaller kernels or strides, fewer layers, or the padding "same".',
                    {"model": {"conv_filters": "impala"}},
                    {"model": {"conv_filters": []}},
                )

    @property
    def size(self) -> int:
        """Numbers in the stored image."""
        return math.prod(self.shape)

    @property
    def pixels(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        if len(self.shape) == 2:
            return (*self.shape, 1)
        first, second, third = self.shape
        return (second, third, first) if self.channels_first else (first, second, third)

    @cached_property
    def layers(self) -> tuple[Convolution, ...]:
        """The convolutions, each for the result of the one before it."""
        if self.impala:
            return self.impala.layers(self.pixels)
        layers, shape = [], self.pixels
        for filters in self.filters:
            layers.append(Convolution(filters, shape))
            shape = layers[-1].out_shape
        return tuple(layers)

    @property
    def num_features(self) -> int:
        """Number of features that the layers behind the image read."""
        *places, channels = self.layers[-1].out_shape
        if self.impala and self.impala.pool:
            places = [self.impala.pool] * 2
        return math.prod(places) * channels


@dataclass(frozen=True)
class Torso:
    """The stage between stored rows and the fully connected layers.

    Attributes:
        images: in a row; at least one.
        others: (start, stop, scale) of the numbers of a flattened row that bypass the convolutions.
        activation: activation function of the convolutions, one of activations.ACTIVATIONS.
        layer_norm: the channels of every place are normalised before the activation.
    """

    images: tuple[Image, ...]
    others: tuple[tuple[int, int, float], ...] = ()
    activation: str = "relu"
    layer_norm: bool = False

    @cached_property
    def num_features(self) -> int:
        """Number of inputs of the first fully connected layer: features of the images, then the other numbers."""
        return sum(image.num_features for image in self.images) + sum(stop - start for start, stop, _ in self.others)

    def block_shapes(self, towers: int) -> dict[str, tuple[int, ...]]:
        """Block name -> shape; towers apart, each filter's kernel as in channels-last memory."""
        shapes = {}
        for name, layer in self.named_layers():
            shapes[name] = (towers, *layer.kernel_shape)
            shapes[f"{name}_bias"] = (towers, layer.filters.channels)
            if self.layer_norm:
                shapes[f"{name}_norm"] = (towers, 2, layer.filters.channels)
            if name in self.spectral_layers:
                shapes[f"{name}_direction"] = (towers, layer.filters.channels)
        return shapes

    @cached_property
    def spectral_layers(self) -> frozenset[str]:
        """Names of the layers whose kernels are divided by their largest singular value."""
        return frozenset(
            f"image_{number}_conv_{index}"
            for number, image in enumerate(self.images)
            if image.impala and image.impala.spectral_norm
            for index in range(len(image.layers))
            if image.impala.is_residual(index)
        )

    def named_layers(self) -> list[tuple[str, Convolution]]:
        """(name, layer), "image_0_conv_0" first."""
        return [
            (f"image_{number}_conv_{index}", layer)
            for number, image in enumerate(self.images)
            for index, layer in enumerate(image.layers)
        ]

    def named_parameters(self, blocks: dict, tower: int) -> dict:
        """Parameter name -> view of one tower's blocks, in the shapes of torch.nn.Conv2d and torch.nn.LayerNorm."""
        named = {}
        for name, _ in self.named_layers():
            named[f"{name}.weight"] = as_conv2d(blocks[name][tower])
            named[f"{name}.bias"] = blocks[f"{name}_bias"][tower]
            if self.layer_norm:
                scale, shift = blocks[f"{name}_norm"][tower]
                named |= {f"{name}_norm.weight": scale, f"{name}_norm.bias": shift}
            if name in self.spectral_layers:
                named[f"{name}.direction"] = blocks[f"{name}_direction"][tower]
        return named

    def to_json(self) -> dict:
        """A JSON-able description; `torso_from_json` reads it."""
        data = as_lists(dataclasses.asdict(self))
        for image in data["images"]:
            image["filters"] = [list(layer.values()) for layer in image["filters"]]
        return data


def as_conv2d(kernels):
    """The view [filters, channels, height, width] of kernels [filters, height, width, channels]; arrays and tensors."""
    return kernels.swapaxes(1, 3).swapaxes(2, 3)


def torso_from_json(data: Mapping | None) -> Torso | None:
    """The torso that `to_json` described."""
    if data is None:
        return None
    images = tuple(map(_image_from_json, data["images"]))
    return Torso(images, tuple(map(tuple, data["others"])), data["activation"], data["layer_norm"])


def _image_from_json(data: Mapping) -> Image:
    filters, impala = data["filters"], data.get("impala")  # versions without "impala" did not write it
    read = {"filters": filters_from(filters) if filters else (), "impala": impala and Impala(**impala)}
    return Image(**{**data, "shape": tuple(data["shape"]), **read})


def filters_from(setting: Sequence) -> tuple[Filters, ...]:
    """Filters that `model["conv_filters"]` describes, layer by layer.

    Args:
        setting: [[channels, kernel, stride], ...]; kernel and stride are a number or [height, width]. A fourth entry is
            the padding; without it, it is "same", but for the last layer "valid" (Ray's rule).

    Raises:
        ValueError: if it is anything else.
    """
    if not isinstance(setting, list | tuple) or not setting:
        raise ValueError(_explained(setting))
    layers = []
    for index, layer in enumerate(setting):
        if not isinstance(layer, list | tuple) or len(layer) not in (3, 4):
            raise ValueError(_explained(layer))
        channels, kernel, stride = layer[0], _pair(layer[1]), _pair(layer[2])
        padding = layer[3] if len(layer) == 4 else PADDINGS[index == len(setting) - 1]
        if not _is_size(channels) or kernel is None or stride is None or padding not in PADDINGS:
            raise ValueError(_explained(layer))
        layers.append(Filters(channels, kernel, stride, padding))
    return tuple(layers)


def _explained(given) -> str:
    return (
        "model['conv_filters'] must be a list with [channels, kernel, stride] for each layer, like [[16, [8, 8], 4], "
        '[32, 4, 2, "valid"]] (a fourth entry is the padding, "same" or "valid"), "nature" or "impala", but got '
        f"{given!r}"
    )


def _pair(value) -> tuple[int, int] | None:
    pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
    return pair if len(pair) == 2 and all(map(_is_size, pair)) else None


def _is_size(value) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and value > 0
