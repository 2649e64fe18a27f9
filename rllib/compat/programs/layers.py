"""Torch helpers of `ray.rllib.models.torch.misc` and `ray.rllib.utils.torch_utils`."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

# As large as a mask's logits may be in float32, with room for a sum.
FLOAT_MIN, FLOAT_MAX = -3.4e38, 3.4e38


def normc_initializer(std: float = 1.0) -> Callable[[Tensor], None]:
    """Initializer of weights [N, K]: normal, each of the N rows scaled to the length `std`."""

    def initialize(weights: Tensor) -> None:
        with torch.no_grad():
            weights.normal_()
            weights *= std / weights.square().sum(1, keepdim=True).sqrt()

    return initialize


class SlimFC(nn.Module):
    """One fully connected layer, [B, in_size] -> [B, out_size].

    Args:
        in_size, out_size: numbers of units.
        initializer: initializer of its weights; None: Xavier's, uniform.
        activation_fn: name, or class of a module; None: linear.
        use_bias, bias_init: whether there is a bias, and its first value.
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        initializer: Callable[[Tensor], Any] | None = None,
        activation_fn: str | type[nn.Module] | None = None,
        use_bias: bool = True,
        bias_init: float = 0.0,
    ):
        super().__init__()
        linear = nn.Linear(in_size, out_size, bias=use_bias)
        (initializer or nn.init.xavier_uniform_)(linear.weight)
        if use_bias:
            nn.init.constant_(linear.bias, bias_init)
        if isinstance(activation_fn, str):
            activation_fn = get_activation_fn(activation_fn)
        self._model = nn.Sequential(linear, *([activation_fn()] if activation_fn is not None else []))

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output [B, out_size]."""
        return self._model(x)


class AppendBiasLayer(nn.Module):
    """Appends columns that do not depend on the input, [B, K] -> [B, K + num_bias_vars], as free log deviations."""

    def __init__(self, num_bias_vars: int):
        super().__init__()
        self.log_std = nn.Parameter(torch.zeros(num_bias_vars))

    def forward(self, x: Tensor) -> Tensor:
        """The input with its further columns."""
        return torch.cat([x, self.log_std.expand(len(x), -1)], dim=1)


def get_activation_fn(name: str | type[nn.Module] | None, framework: str = "torch") -> type[nn.Module] | None:
    """The torch module of an activation by its name; None for "linear". A class is returned as it is.

    Raises:
        ValueError: the name is unknown.
    """
    if not isinstance(name, str):
        return name
    if name in ("linear", "none"):
        return None
    known = {"relu": nn.ReLU, "tanh": nn.Tanh, "elu": nn.ELU, "swish": nn.SiLU, "silu": nn.SiLU, "sigmoid": nn.Sigmoid}
    if name.lower() not in known:
        raise ValueError(f"activation_fn={name!r} is unknown; there are {', '.join(known)} and linear")
    return known[name.lower()]


Size = tuple[int, int]


def same_padding(in_size: Size, filter_size: int | Size, stride: int | Size) -> tuple[tuple[int, ...], Size]:
    """Padding with which a convolution gives ceil(size / stride) pixels, as TensorFlow's "same".

    Args:
        in_size: (height, width).
        filter_size, stride: of the convolution, by height and width where they differ.

    Returns:
        (left, right, top, bottom) for torch.nn.ZeroPad2d, and the output's (height, width).
    """
    filters, strides = _pair(filter_size), _pair(stride)
    out = tuple(math.ceil(size / step) for size, step in zip(in_size, strides))
    needed = [max((n - 1) * step + k - size, 0) for n, step, k, size in zip(out, strides, filters, in_size)]
    (top, bottom), (left, right) = ((pixels // 2, pixels - pixels // 2) for pixels in needed)
    return (left, right, top, bottom), out


def valid_padding(in_size: Size, filter_size: int | Size, stride: int | Size) -> Size:
    """(height, width) of a convolution's output without padding; arguments as above."""
    filters, strides = _pair(filter_size), _pair(stride)
    return tuple((size - k) // step + 1 for size, k, step in zip(in_size, filters, strides))


def _pair(value: int | Size) -> Size:
    return (value, value) if isinstance(value, int) else tuple(value)


def convert_to_torch_tensor(x: Any, device: str | torch.device | None = None, pin_memory: bool = False) -> Any:
    """A structure with tensors in the places of its arrays and numbers; float64 becomes float32."""
    if isinstance(x, Mapping):
        return {key: convert_to_torch_tensor(value, device, pin_memory) for key, value in x.items()}
    if isinstance(x, (list, tuple)) and any(isinstance(value, (np.ndarray, Tensor, Mapping)) for value in x):
        return type(x)(convert_to_torch_tensor(value, device, pin_memory) for value in x)
    if x is None or isinstance(x, str):
        return x
    tensor = x if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x))
    if tensor.dtype == torch.float64:
        tensor = tensor.float()
    if pin_memory and torch.cuda.is_available():
        tensor = tensor.pin_memory()
    return tensor if device is None else tensor.to(device)


def explained_variance(y: Tensor, pred: Tensor) -> Tensor:
    """1 - Var[y - pred] / Var[y], at least -1; y and pred [B]."""
    unexplained = (y - pred).var(0) / y.var(0).clamp(min=1e-8)
    return (1 - unexplained).clamp(min=-1)


def global_norm(tensors: Iterable[Tensor]) -> float:
    """Euclidean length of all tensors together."""
    return math.sqrt(sum(float(tensor.square().sum()) for tensor in tensors))


def huber_loss(x: Tensor, delta: float = 1.0) -> Tensor:
    """x^2 / 2 where |x| < delta, else delta (|x| - delta / 2)."""
    return torch.where(x.abs() < delta, x.square() / 2, delta * (x.abs() - delta / 2))


def l2_loss(x: Tensor) -> Tensor:
    """Half the sum of the squares."""
    return x.square().sum() / 2


def one_hot(x: Tensor, space: Space) -> Tensor:
    """Rows float32 for values of a Discrete [B] or MultiDiscrete [B, N] space; the parts' one-hots side by side.

    Raises:
        ValueError: for another space.
    """
    if isinstance(space, spaces.Discrete):
        return nn.functional.one_hot(x.long() - int(space.start), int(space.n)).float()
    if isinstance(space, spaces.MultiDiscrete):
        columns = zip(x.long().unbind(-1), space.nvec.flatten())
        return torch.cat([nn.functional.one_hot(column, int(n)) for column, n in columns], -1).float()
    raise ValueError(f"one_hot takes values of a Discrete or MultiDiscrete space, but got {space}")


def sequence_mask(lengths: Tensor, maxlen: int | None = None, dtype=None, time_major: bool = False) -> Tensor:
    """True [B, T] (or [T, B] with `time_major`) in the first `lengths` [B] places of each row; T is the longest."""
    steps = torch.arange(int(lengths.max()) if maxlen is None else maxlen, device=lengths.device)
    mask = steps[None] < lengths[:, None]
    mask = mask.T if time_major else mask
    return mask if dtype is None else mask.to(dtype)
