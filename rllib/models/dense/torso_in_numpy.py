"""The convolutions of a torso in numpy, forward alone, and the network that acts with them.

Residual blocks (torso.py: Impala) are computed by torch instead.

A convolution is a matrix product: the patch under each place of the kernel becomes a row (im2col), written by one copy
from a strided view of the image. Images stand channels-last, so that patches are copied in runs. A few rows at a time
keep patches and results in the processor's cache.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import as_strided

from rllib.models.arithmetic.activations import ACTIVATIONS
from rllib.models.arithmetic.buffers import BuffersByRows
from rllib.models.arithmetic.layer_norm import normalize_rows
from rllib.models.dense.in_numpy import Tower, check_weights
from rllib.models.dense.layout import LayersLayout
from rllib.models.observations.torso import Convolution, Image, Torso, as_conv2d

if TYPE_CHECKING:
    from rllib.models.dense.impala_in_torch import ImpalaForward

CHUNK = 8


class ConvolutionalNetwork:
    """Network for images: distribution inputs and values of stored observations, [B, *shape] of any numeric dtype.

    It has no backward pass: the torch network learns, on the same flat vector. Results are views of buffers
    that the next call with the same number of rows overwrites.

    Args:
        layout: where the parameters lie; it has a torso.
        activations: activation function of each fully connected hidden layer, names in ACTIVATIONS.
        weights: flat float32 [layout.size]; the network reads this very memory.

    Attributes:
        gives_values: as for NumpyNetwork.
    """

    # There is no `backward`.
    closed_form = False

    def __init__(self, layout: LayersLayout, activations: tuple[str, ...], weights: np.ndarray):
        check_weights(layout, weights)
        self.layout = layout
        self.activations = [ACTIVATIONS[name] for name in activations]
        self.blocks = layout.blocks(weights)
        self._torsos = [TorsoForward(layout.torso, self.blocks, tower) for tower in range(layout.num_towers)]
        self._policy = Tower(self, "policy")
        self._value = Tower(self, "value") if "value" in layout.heads else None
        self.gives_values = self._policy.gives_values

    def forward(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distribution inputs [B, K] and values [B]; without a value head, no values [0]."""
        features = self._torsos[0].forward(rows)
        dist_inputs = self._policy.forward(features).T
        if self._value is None:
            return dist_inputs, np.empty(0, np.float32)
        if len(self._torsos) > 1:
            features = self._torsos[1].forward(rows)
        return dist_inputs, self._value.forward(features)[0]

    def forward_policy(self, rows: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        """Distribution inputs [B, K] alone, or with values [B]; arguments as for NumpyNetwork.forward_policy."""
        return self._policy.forward(self._torsos[0].forward(rows), values).T

    def forward_value(self, rows: np.ndarray) -> np.ndarray:
        """Values [B] alone."""
        return self._value.forward(self._torsos[-1].forward(rows))[0]


class TorsoForward:
    """Convolutions of one tower: from stored rows to features [B, num_features + 1], closed by a 1."""

    def __init__(self, torso: Torso, blocks: dict[str, np.ndarray], tower: int):
        self._torso = torso
        self._blocks = {name: block[tower] for name, block in blocks.items() if name.startswith("image_")}
        self._features = BuffersByRows(lambda rows: np.ones((rows, torso.num_features + 1), np.float32))
        self._images = BuffersByRows(self._make_images)

    def forward(self, rows: np.ndarray) -> np.ndarray:
        features = self._features[len(rows)]
        flat = rows.reshape(len(rows), -1)
        for start in range(0, len(rows), CHUNK):
            chunk, out = flat[start : start + CHUNK], features[start : start + CHUNK]
            column = 0
            for image in self._images[len(chunk)]:
                image.forward(chunk, out[:, column : column + image.num_features])
                column += image.num_features
            for first, stop, scale in self._torso.others:
                np.multiply(chunk[:, first:stop], np.float32(scale), out=out[:, column : column + stop - first])
                column += stop - first
        return features

    def _make_images(self, rows: int) -> list["_ImageForward | ImpalaForward"]:
        return [self._make_image(image, f"image_{number}", rows) for number, image in enumerate(self._torso.images)]

    def _make_image(self, image: Image, name: str, rows: int) -> "_ImageForward | ImpalaForward":
        if not image.impala:
            return _ImageForward(image, name, self._blocks, rows, self._torso)
        from rllib.models.dense.impala_in_torch import ImpalaForward
        from rllib.models.dense.in_torch import ACTIVATIONS as IN_TORCH

        return ImpalaForward(image, name, self._blocks, IN_TORCH[self._torso.activation])


class _ImageForward:
    """Convolutions of one image, with the buffers for a number of rows."""

    def __init__(self, image: Image, name: str, blocks: dict[str, np.ndarray], rows: int, torso: Torso):
        self._image = image
        self.num_features = image.num_features
        apply = ACTIVATIONS[torso.activation].apply
        self._layers = [
            _LayerForward(layer, f"{name}_conv_{index}", blocks, rows, apply)
            for index, layer in enumerate(image.layers)
        ]
        # Channels-first images have channels-first patches, which are copied in runs of the image's memory.
        first = self._layers[0]
        self._channels_first = image.channels_first and not first.is_padded
        kernels = blocks[f"{name}_conv_0"]
        self._given_kernels = as_conv2d(kernels) if self._channels_first else kernels
        self._kernels = np.empty(self._given_kernels.shape, np.float32)

    def forward(self, flat: np.ndarray, out: np.ndarray) -> None:
        """Writes the features of rows [B, numbers] into out [B, num_features]."""
        image, layers = self._image, self._layers
        source = flat[:, image.start : image.start + image.size].reshape(len(flat), *image.shape)
        if len(image.shape) == 2:
            source = source[..., None]
        elif image.channels_first:
            source = source.transpose(0, 2, 3, 1)
        # The kernels are fewer than the pixels: they are scaled instead.
        np.multiply(self._given_kernels, np.float32(image.scale), out=self._kernels)
        kernels = self._kernels.reshape(len(self._kernels), -1)
        for layer, following in zip(layers, [*layers[1:], None]):
            target = out.reshape(len(flat), *layer.out_shape) if following is None else following.interior
            layer.forward(source, kernels, target, self._channels_first and source is not None)
            source, kernels = None, following and following.kernels


class _LayerForward:
    """One convolution: patches, product, bias, normalisation, activation.

    Attributes:
        interior: [B, H, W, C], receives the result of the layer before; surrounded by zeros if there is padding.
        kernels: [filters, numbers of a patch], read in place.
    """

    def __init__(self, layer: Convolution, name: str, blocks: dict[str, np.ndarray], rows: int, apply):
        height, width, channels = layer.in_shape
        top, bottom, left, right = layer.pads
        self.out_shape = layer.out_shape
        self.kernels = blocks[name].reshape(layer.filters.channels, -1)
        self._bias = blocks[f"{name}_bias"]
        self._norm = blocks.get(f"{name}_norm")
        self._apply = apply
        self._kernel, self._stride = layer.filters.kernel, layer.filters.stride
        self.is_padded = any(layer.pads)
        self._padded = np.zeros((rows, height + top + bottom, width + left + right, channels), np.float32)
        self.interior = self._padded[:, top : top + height, left : left + width]
        self._own_patches = self._patches_of(self._padded)
        self._patches = np.empty(self._own_patches.shape, np.float32)
        self._matrix = self._patches.reshape(rows * self.out_shape[0] * self.out_shape[1], -1)
        self._z = np.empty((rows, *self.out_shape), np.float32)
        self._z_rows = self._z.reshape(len(self._matrix), -1)

    def _patches_of(self, image: np.ndarray) -> np.ndarray:
        """The view [B, H', W', kernel height, kernel width, C] of images [B, H, W, C]."""
        of_row, down, right, of_channel = image.strides
        return as_strided(
            image,
            (len(image), *self.out_shape[:2], *self._kernel, image.shape[3]),
            (of_row, down * self._stride[0], right * self._stride[1], down, right, of_channel),
            writeable=False,
        )

    def forward(
        self, source: np.ndarray | None, kernels: np.ndarray, out: np.ndarray, channels_first: bool = False
    ) -> None:
        """Writes the result into out [B, H', W', filters].

        Args:
            source: images [B, H, W, C] of any dtype and strides; None: the content of `interior`.
            kernels: [filters, numbers of a patch].
            channels_first: the order of a patch's numbers in the kernels.
        """
        patches, buffer = self._own_patches, self._patches
        if source is not None and self.is_padded:
            np.copyto(self.interior, source, casting="unsafe")
        elif source is not None:
            patches = self._patches_of(source)
        if channels_first:
            patches = patches.transpose(0, 1, 2, 5, 3, 4)
            buffer = buffer.reshape(patches.shape)
        np.copyto(buffer, patches, casting="unsafe")
        np.dot(self._matrix, kernels.T, out=self._z_rows)
        np.add(self._z_rows, self._bias, out=self._z_rows)
        if self._norm is not None:
            normalize_rows(self._z_rows, self._norm)
        self._apply(self._z, out)
