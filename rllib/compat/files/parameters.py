"""Parameters of foreign models by their original names, and layers assembled from them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Layer(NamedTuple):
    """A fully connected layer, in the shapes of torch.nn.Linear.

    Attributes:
        weight: [outputs, inputs].
        bias: [outputs].
    """

    weight: np.ndarray
    bias: np.ndarray

    @property
    def width(self) -> int:
        """Number of outputs."""
        return len(self.bias)


class Parameters:
    """Parameters of a model, from which a network is assembled; parameters that remain do not belong to it.

    Args:
        arrays: name -> array.
        what: description of the model, for error messages.

    Raises:
        ValueError: if an array has values other than finite numbers.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], what: str):
        self._left, self._what = dict(arrays), what
        for name, array in arrays.items():
            if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
                raise ValueError(f"{what}: the parameter {name!r:.80} has other things than finite numbers")

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._left))

    def take(self, name: str, ndim: int | None = None) -> np.ndarray:
        """Removes and returns the parameter of this name, float32.

        Raises:
            ValueError: if there is no such parameter, or it has another number of dimensions.
        """
        if name not in self._left:
            raise ValueError(f"{self._what} has no parameter {name!r:.80}")
        array = self._left.pop(name)
        if ndim is not None and array.ndim != ndim:
            raise ValueError(
                f"{self._what}: the parameter {name!r:.80} has the shape {array.shape}, and {ndim} dimensions are "
                "needed: a layer of another kind"
            )
        return array.astype(np.float32)

    def layer(self, prefix: str) -> Layer:
        """The fully connected layer PREFIX.weight, PREFIX.bias.

        Raises:
            ValueError: if the layer is missing, or its arrays do not have these shapes.
        """
        layer = Layer(self.take(f"{prefix}.weight", 2), self.take(f"{prefix}.bias", 1))
        if len(layer.weight) != layer.width:
            raise ValueError(
                f"{self._what}: the layer {prefix!r:.80} has {len(layer.weight)} rows and {layer.width} biases"
            )
        return layer

    def layers(self, prefix: str, suffix: str = "") -> list[Layer]:
        """The layers PREFIX.<number>SUFFIX in the order of their numbers, as torch.nn.Sequential names them.

        Raises:
            ValueError: as `layer`, and if a layer does not fit the previous one.
        """
        pattern = re.compile(re.escape(prefix) + r"\.(\d{1,6})" + re.escape(suffix) + r"\.weight")
        numbers = sorted(int(found[1]) for name in self._left if (found := pattern.fullmatch(name)))
        layers = [self.layer(f"{prefix}.{number}{suffix}") for number in numbers]
        for number, before, layer in zip(numbers[1:], layers, layers[1:]):
            if layer.weight.shape[1] != before.width:
                raise ValueError(
                    f"{self._what}: the layer {prefix}.{number} reads {layer.weight.shape[1]} numbers, and the one "
                    f"before it has {before.width}"
                )
        return layers

    def drop(self, *prefixes: str) -> None:
        """Removes all parameters whose names begin with these prefixes, which are left out on purpose."""
        self._left = {name: array for name, array in self._left.items() if not name.startswith(prefixes)}

    def refuse_left(self, hint: str) -> None:
        """Checks that all parameters were taken.

        Raises:
            ValueError: if some remain; the message names them and ends with the hint.
        """
        if self._left:
            names = ", ".join(f"{name!r:.60}" for name in list(self._left)[:4])
            more = f" and {len(self._left) - 4} more" if len(self._left) > 4 else ""
            raise ValueError(f"{self._what} has parameters that no network here has: {names}{more}. {hint}")


def named(owner: str, hiddens: Sequence[Layer], head: Layer | None = None, head_owner: str | None = None) -> dict:
    """Parameters of layers by their names here (models/dense/layout.py).

    Args:
        owner: of the hidden layers: "policy", "value", "shared", or the number of a critic.
        hiddens: the hidden layers.
        head: the layer after the hidden ones; None: it is named elsewhere.
        head_owner: of the head; None: the owner.
    """
    layers = {f"{owner}.hidden_{index}": layer for index, layer in enumerate(hiddens)}
    if head is not None:
        layers[f"{owner if head_owner is None else head_owner}.head"] = head
    return {f"{name}.{part}": array for name, layer in layers.items() for part, array in layer._asdict().items()}


def widths(layers: Sequence[Layer]) -> list[int]:
    """Numbers of outputs of the layers."""
    return [layer.width for layer in layers]


def side_by_side(first: Layer, second: Layer, one_input: bool = False) -> Layer:
    """One layer that computes two layers and concatenates their outputs.

    Args:
        first, second: the layers.
        one_input: whether both layers read the same input; otherwise their inputs are concatenated.
    """
    bias = np.concatenate([first.bias, second.bias])
    if one_input:
        return Layer(np.concatenate([first.weight, second.weight]), bias)
    weight = np.zeros((len(bias), first.weight.shape[1] + second.weight.shape[1]), np.float32)
    weight[: first.width, : first.weight.shape[1]] = first.weight
    weight[first.width :, first.weight.shape[1] :] = second.weight
    return Layer(weight, bias)
