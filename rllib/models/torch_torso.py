"""The convolutions of a torso in torch, on pieces of the flat vector."""

import torch
from torch import Tensor
from torch.nn import functional

from rllib.models.layer_norm import EPSILON
from rllib.models.torso import Convolution, Image, Torso, as_conv2d

ACTIVATIONS = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "swish": functional.silu,
    "linear": lambda z: z,
}


def torso_pieces(torso: Torso, blocks: dict[str, Tensor], towers: int) -> dict[str, Tensor]:
    """The torso's blocks as `torso_features` wants them: each tower's kernels as those of torch.nn.Conv2d."""
    parts = {}
    for tower in range(towers):
        for name, _ in torso.named_layers():
            parts[f"{name}.{tower}.weight"] = as_conv2d(blocks[name][tower])
            parts[f"{name}.{tower}.bias"] = blocks[f"{name}_bias"][tower]
            if torso.layer_norm:
                parts[f"{name}.{tower}.norm"] = blocks[f"{name}_norm"][tower]
    return parts


def torso_features(torso: Torso, parts: dict[str, Tensor], rows: Tensor, towers: int) -> Tensor:
    """Features [towers, B, num_features] of stored rows [B, ...] of any numeric dtype."""
    flat = rows.reshape(len(rows), -1)
    images = [_channels_last(image, flat) for image in torso.images]
    others = [flat[:, start:stop].float() * scale for start, stop, scale in torso.others]
    found = []
    for tower in range(towers):
        seen = [
            _convolved(torso, number, image, pixels, parts, tower)
            for number, (image, pixels) in enumerate(zip(torso.images, images))
        ]
        found.append(torch.cat([*seen, *others], dim=1) if others or len(seen) > 1 else seen[0])
    return torch.stack(found) if towers > 1 else found[0][None]


def _channels_last(image: Image, flat: Tensor) -> Tensor:
    """The image's pixels, float [B, C, H, W] with the channels of a place side by side in memory."""
    pixels = flat[:, image.start : image.start + image.size].unflatten(1, image.shape)
    if len(image.shape) == 2:
        pixels = pixels[..., None]
    nchw = pixels if image.channels_first else pixels.permute(0, 3, 1, 2)
    return nchw.to(dtype=torch.float32, memory_format=torch.channels_last)


def _convolved(torso: Torso, number: int, image: Image, pixels: Tensor, parts: dict, tower: int) -> Tensor:
    """Features [B, num_features], in the order height, width, channels."""
    x, scale = pixels, image.scale
    for index, layer in enumerate(image.layers):
        name = f"image_{number}_conv_{index}.{tower}"
        # The kernels are fewer than the pixels: they are scaled instead.
        weight = parts[f"{name}.weight"] * scale if scale != 1.0 else parts[f"{name}.weight"]
        scale = 1.0
        x = _padded_conv(layer, x, weight, parts[f"{name}.bias"])
        if torso.layer_norm:
            x = _normalized(x, parts[f"{name}.norm"])
        x = ACTIVATIONS[torso.activation](x)
    return x.permute(0, 2, 3, 1).flatten(1)


def _padded_conv(layer: Convolution, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    top, bottom, left, right = layer.pads
    padding = (top, left)
    if (top, left) != (bottom, right):
        x, padding = functional.pad(x, (left, right, top, bottom)), 0
    return functional.conv2d(x, weight, bias, layer.filters.stride, padding)


def _normalized(x: Tensor, norm: Tensor) -> Tensor:
    channels_last = x.permute(0, 2, 3, 1)
    normal = functional.layer_norm(channels_last, channels_last.shape[-1:], norm[0], norm[1], EPSILON)
    return normal.permute(0, 3, 1, 2)
