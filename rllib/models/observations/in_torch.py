"""The observation filter (filters.py), action masks (masks.py) and random shifts of images in torch."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from rllib.models.observations.encoders import MaskedEncoder
from rllib.models.observations.filters import EPSILON, MeanStdFilter
from rllib.models.observations.masks import LOWEST, parts_of_mask
from rllib.models.observations.torso import Image, Torso


class TensorFilter:
    """Normalises observations as the policy's MeanStdFilter does, and adds collected ones to its statistics.

    Args:
        of: the filter of the policy, for shape and bound; its statistics are not read (see `load`).
        device: device of the observations.
    """

    def __init__(self, of: MeanStdFilter, device: torch.device):
        self._clip, self._keep = of.clip, of.keep
        size = int(np.prod(of.shape, dtype=int))
        self._knows = False  # whether merged statistics have been loaded
        self._moments = _Moments(size, device)  # since the last `pop_delta`
        self.forget()

    def forget(self) -> None:
        """Drops what was counted since the last `pop_delta`."""
        self._moments = _Moments(len(self._moments.mean), self._moments.mean.device)
        if not self._knows:
            self._mean, self._inverse_std = self._moments.mean, torch.ones_like(self._moments.mean)

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Replaces the merged statistics; with fewer than two rows in them, observations counted here are used."""
        self._knows = float(state["count"]) >= 2
        if self._knows:
            device = self._mean.device
            std = np.sqrt(np.asarray(state["m2"]) / float(state["count"]) + EPSILON)
            self._mean = torch.as_tensor(np.array(state["mean"]), device=device)
            self._inverse_std = torch.as_tensor(1 / std, device=device)

    def count(self, raw: Tensor) -> None:
        """Counts observations [N, *shape]."""
        self._moments.add(raw)
        if not self._knows:
            self._mean = self._moments.mean
            self._inverse_std = (self._moments.m2 / self._moments.count + EPSILON).rsqrt()

    def write(self, raw: Tensor, out: Tensor) -> None:
        """Writes the normalised observations [N, *shape] into out, float32 of that shape."""
        rows = raw.flatten(1) if raw.dim() > 1 else raw[:, None]
        # In float64: the mean may be large against the deviations.
        normal = (rows.double() - self._mean).mul_(self._inverse_std)
        if self._clip is not None:
            normal.clamp_(-self._clip, self._clip)
        for start, stop in self._keep:
            normal[:, start:stop] = rows[:, start:stop]
        out.copy_(normal.view(out.shape))

    def pop_delta(self) -> dict[str, np.ndarray]:
        """Statistics counted since the last call, for `merge` of the policy's filter; waits for the device."""
        moments = self._moments
        mean, m2 = torch.stack((moments.mean, moments.m2)).cpu().numpy()
        self._moments = _Moments(len(mean), moments.mean.device)
        return {"count": np.array([float(moments.count)]), "mean": mean[None], "m2": m2[None]}


class _Moments:
    """Like RunningMoments, on a device."""

    def __init__(self, size: int, device: torch.device):
        self.count = 0
        self.mean = torch.zeros(size, dtype=torch.float64, device=device)
        self.m2 = torch.zeros_like(self.mean)

    def add(self, raw: Tensor) -> None:
        rows = raw.reshape(len(raw), -1).double()
        variance, mean = torch.var_mean(rows, 0, correction=0)
        count, total, difference = len(rows), self.count + len(rows), mean - self.mean
        self.mean = self.mean + difference * (count / total)
        self.m2 = self.m2 + variance * count + difference.square() * (self.count * count / total)
        self.count = total


class MaskedModule(nn.Module):
    """A policy's network with a mask in its inputs, like MaskedNetwork (masks.py).

    Args:
        module: a module on a flat tensor; reads the inputs without the mask.
        encoder: puts the mask into the inputs.
        distribution: reads the outputs.
    """

    def __init__(self, module: nn.Module, encoder: MaskedEncoder, distribution):
        super().__init__()
        self.module = module
        self.flat, self.leaves, self.receive = module.flat, module.leaves, module.receive
        self._split, self._parts = encoder.split, parts_of_mask(distribution)

    def forward(self, inputs: Tensor, *sequences: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution inputs [B, K] and values [B]."""
        mask, others = self._split(inputs)
        dist_inputs, values = self.module(others, *sequences)
        return self._masked(dist_inputs, mask), values

    def step(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`step` of a module with a memory, masked: one row of each sequence."""
        mask, others = self._split(inputs)
        dist_inputs, values, following = self.module.step(others, state)
        return self._masked(dist_inputs, mask), values, following

    def state_after(self, inputs: Tensor, order, state: Tensor) -> Tensor:
        """`state_after` of a module with a memory."""
        return self.module.state_after(self._split(inputs)[1], order, state)

    def _masked(self, dist_inputs: Tensor, mask: Tensor) -> Tensor:
        dist_inputs = dist_inputs.float()  # LOWEST is no bfloat16
        illegal = torch.zeros_like(dist_inputs, dtype=torch.bool)
        for columns, where in self._parts:
            bad = mask[:, columns] == 0
            bad = bad & ~bad.all(1, keepdim=True)
            illegal[:, where] = bad.repeat_interleave((where.stop - where.start) // bad.shape[1], dim=1)
        return dist_inputs.masked_fill(illegal, float(LOWEST))


def shifted(torso: Torso, rows: Tensor, shifts: Tensor) -> Tensor:
    """Stored rows with shifted images: image i of row b shows at (y, x) what was at (y, x) + shifts[b, i].

    Beyond its edge an image continues with the pixels of the edge. In the random shifts of DrQ-v2 (arXiv:2107.09645,
    section 3.1; there by bilinear interpolation, at whole pixels) these are the padding and the crop.

    Args:
        torso: says where in a row the images are.
        rows: [B, ...] of any dtype, which is kept.
        shifts: integers [B, images, 2], down and to the right.
    """
    flat = rows.flatten(1)
    numbers = torch.arange(flat.shape[0], device=rows.device)[:, None, None]
    moved = []
    for image, shift in zip(torso.images, shifts.long().unbind(1), strict=True):
        pixels = _channels_behind(image, flat[:, image.start : image.start + image.size].unflatten(1, image.shape))
        down, right = (
            (torch.arange(size, device=rows.device) + by[:, None]).clamp(0, size - 1)
            for size, by in zip(pixels.shape[1:3], shift.unbind(1))
        )
        moved.append(_channels_back(image, pixels[numbers, down[:, :, None], right[:, None, :]]).flatten(1))
    if len(moved) == 1 and not torso.others:
        return moved[0].view(rows.shape)
    flat = flat.clone()
    for image, pixels in zip(torso.images, moved):
        flat[:, image.start : image.start + image.size] = pixels
    return flat.view(rows.shape)


def _channels_behind(image: Image, pixels: Tensor) -> Tensor:
    """The view [B, H, W, C], or [B, H, W] where there are no channels."""
    return pixels.permute(0, 2, 3, 1) if image.channels_first else pixels


def _channels_back(image: Image, pixels: Tensor) -> Tensor:
    return pixels.permute(0, 3, 1, 2) if image.channels_first else pixels
