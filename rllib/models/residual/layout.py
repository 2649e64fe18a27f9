"""Layout of the parameters of networks of residual blocks (spec.py), and what brings them to their lengths."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rllib.models.dense.initializers import orthogonal_matrix
from rllib.models.dense.layout import Layout

SIMBA, SIMBA_V2, XQC, FLASH_SAC = "simba", "simbav2", "xqc", "flashsac"
NETWORKS = (SIMBA, SIMBA_V2, XQC, FLASH_SAC)
# Width of a block's hidden layer, in widths of its features.
EXPANSION = 4
# What simbav2 puts behind the inputs before it brings them to length 1, so that their length is not lost.
SHIFT = 3.0
# Least length by which a vector is divided.
LEAST_LENGTH = 1e-8
# Added to the variances of observations.
EPSILON = 1e-8
# Of batch normalisation, by the network: added to variances. And the share of a new batch in running statistics.
BATCH_EPSILON = {XQC: 1e-3, FLASH_SAC: 1e-5}
MOMENTUM = 0.01
# Of R.
RMS_EPSILON = 1e-6


@dataclass(frozen=True)
class Blocks:
    """Description of the residual blocks in a network.

    Attributes:
        name: one of NETWORKS.
        width: numbers in the features.
        num_blocks: residual blocks, one after the other.
    """

    name: str
    width: int
    num_blocks: int

    @property
    def is_spherical(self) -> bool:
        """Whether features and weights have length 1."""
        return self.name == SIMBA_V2

    @property
    def has_closed_form(self) -> bool:
        """Whether its gradient is written by hand, in numpy (passes.py)."""
        return self.name == SIMBA

    @property
    def has_projection(self) -> bool:
        """Whether weights are brought back to a length after each step."""
        return self.name != SIMBA

    @property
    def is_by_batch(self) -> bool:
        """Whether its layers are normalised by batches."""
        return self.name in BATCH_EPSILON


class BlocksLayout(Layout):
    """Layout of the trained parameters: matrices are [networks, inputs, outputs], vectors [networks, outputs].

    | block | | network |
    |---|---|---|
    | embed.weight | [C, inputs, d]; of simbav2 [C, inputs + 1, d] | both |
    | embed.bias; embed.scale | [C, d] | simba; simbav2 |
    | block_i.norm.weight, .bias | [C, d] | simba |
    | block_i.up.weight, block_i.down.weight | [C, d, 4 d], [C, 4 d, d] | both |
    | block_i.up.bias, block_i.down.bias | [C, 4 d], [C, d] | simba |
    | block_i.up.scale, block_i.rate.scale | [C, 4 d], [C, d] | simbav2 |
    | norm.weight, norm.bias | [C, d] | simba |
    | head_i_hidden.weight, .scale | [C, d, d], [C, d] | simbav2 |
    | head_i.weight, .bias | [C, d, outputs], [C, outputs] | both |

    Of xqc these are embed_norm, layer_i (a matrix), layer_i_norm and head_i; of flashsac embed_norm, embed (a matrix),
    block_i.up, block_i.up_norm, block_i.down, block_i.down_norm, norm.weight and head_i.

    Attributes:
        norms: name -> number of features of what is normalised by batches.
    """

    def __init__(self, residual: Blocks, num_inputs: int, heads: tuple[int, ...], owners: tuple[str, ...]):
        self.residual, self.num_inputs, self.heads, self.owners = residual, num_inputs, heads, owners
        copies, width, wide = len(owners), residual.width, EXPANSION * residual.width
        self.norms: dict[str, int] = {}
        shapes = {}

        def product(name: str, inputs: int, outputs: int, *vectors: str) -> None:
            shapes[f"{name}.weight"] = (copies, inputs, outputs)
            shapes.update({f"{name}.{vector}": (copies, outputs) for vector in vectors})

        def norm(name: str, size: int = width) -> None:
            shapes.update({f"{name}.{vector}": (copies, size) for vector in ("weight", "bias")})

        def batch_norm(name: str, size: int) -> None:
            self.norms[name] = size
            norm(name, size)

        if residual.is_by_batch:
            batch_norm("embed_norm", num_inputs)
            if residual.name == FLASH_SAC:
                product("embed", num_inputs, width)
            for index in range(residual.num_blocks):
                if residual.name == FLASH_SAC:
                    product(f"block_{index}.up", width, wide)
                    batch_norm(f"block_{index}.up_norm", wide)
                    product(f"block_{index}.down", wide, width)
                    batch_norm(f"block_{index}.down_norm", width)
                else:
                    product(f"layer_{index}", width if index else num_inputs, width)
                    batch_norm(f"layer_{index}_norm", width)
            if residual.name == FLASH_SAC:
                shapes["norm.weight"] = (copies, width)
            for index, outputs in enumerate(heads):
                product(f"head_{index}", width, outputs, "bias")
        elif residual.is_spherical:
            product("embed", num_inputs + 1, width, "scale")
            for index in range(residual.num_blocks):
                product(f"block_{index}.up", width, wide, "scale")
                product(f"block_{index}.down", wide, width)
                shapes[f"block_{index}.rate.scale"] = (copies, width)
            for index, outputs in enumerate(heads):
                product(f"head_{index}_hidden", width, width, "scale")
                product(f"head_{index}", width, outputs, "bias")
        else:
            product("embed", num_inputs, width, "bias")
            for index in range(residual.num_blocks):
                norm(f"block_{index}.norm")
                product(f"block_{index}.up", width, wide, "bias")
                product(f"block_{index}.down", wide, width, "bias")
            norm("norm")
            for index, outputs in enumerate(heads):
                product(f"head_{index}", width, outputs, "bias")
        super().__init__(shapes)

    def named_parameters(self, flat) -> dict:
        """Parameter name -> view of `flat`: OWNER.BLOCK, matrices [outputs, inputs] as in torch.nn.Linear."""
        return {
            f"{owner}.{name}": block[index].T if block.ndim == 3 else block[index]
            for name, block in self.blocks(flat).items()
            for index, owner in enumerate(self.owners)
        }

    def norm(self, flat, name: str):
        """The view [copies, 2, features] of scales and shifts of a normalisation."""
        whole = slice(self.slices[f"{name}.weight"].start, self.slices[f"{name}.bias"].stop)
        return flat[whole].reshape(2, len(self.owners), -1).swapaxes(0, 1)

    def scale_factor(self, name: str) -> float:
        """Number by which a learned scale of simbav2 is multiplied where it is used (section 4.4 of the paper).

        A scale begins at some number, and Adam's steps are of the size of the learning rate whatever that is; so the
        parameter has its own size, and this factor leads to the effect that the scale shall begin with.
        """
        return self._scales(name)[0] / self._scales(name)[1]

    def _scales(self, name: str) -> tuple[float, float]:
        """The effect that a scale begins with, and the parameter's own size then."""
        width = self.residual.width
        if name.endswith("rate.scale"):
            return 1 / (self.residual.num_blocks + 1), 1 / math.sqrt(width)
        if name.startswith("head_"):
            return 1.0, 1.0
        size = math.sqrt(2 / width)
        return (size / math.sqrt(EXPANSION),) * 2 if name.endswith("up.scale") else (size, size)

    def initialize(self, weights: np.ndarray, rng: np.random.Generator) -> None:
        """Fills the parameters.

        Matrices are orthogonal, those of simba's blocks normal with the variance 2 / inputs (He et al.,
        arXiv:1502.01852); biases are zero, and scales of normalisations one.
        """
        weights[:] = 0
        for name, block in self.blocks(weights).items():
            if block.ndim == 3:
                in_block = name.startswith("block_") and self.residual.name == SIMBA
                inputs, outputs = block.shape[1:]
                for matrix in block:
                    if in_block:
                        matrix[:] = math.sqrt(2 / inputs) * rng.standard_normal(matrix.shape)
                    else:
                        matrix[:] = orthogonal_matrix((outputs, inputs), rng).T
            elif name.endswith("scale"):
                block[:] = self._scales(name)[1]
            elif name.endswith("norm.weight"):
                block[:] = 1
        if self.residual.has_projection:
            project(self.projected(self.blocks(weights)))

    def projected(self, blocks: Mapping) -> dict:
        """Subset of the blocks: what is brought to a length (`project`)."""
        return {name: block for name, block in blocks.items() if block.ndim == 3 or self.residual.name == FLASH_SAC}


class ResidualLayout(Layout):
    """Layout of the trained parameters, then of running statistics, which no gradient moves.

    Args:
        residual: description of the blocks.
        num_observed: numbers of an observation, the first inputs.
        num_others: further inputs, such as an action.
        heads: number of results of each head.
        owners: a name for each of the separate networks, which are computed together.

    Attributes:
        trained: layout of what is trained.
        num_fixed: length of the statistics.
    """

    torso = None

    def __init__(
        self,
        residual: Blocks,
        num_observed: int,
        num_others: int,
        heads: tuple[int, ...],
        owners: tuple[str, ...],
    ):
        self.residual, self.num_observed, self.heads, self._owners = residual, num_observed, heads, owners
        self.trained = BlocksLayout(residual, num_observed + num_others, heads, owners)
        count = len(owners) * sum(self.trained.norms.values()) if residual.is_by_batch else num_observed
        self.num_fixed = 2 * count
        super().__init__({"trained": (self.trained.size,), "mean": (count,), "variance": (count,)})

    def split(self, flat) -> tuple:
        """The views of `flat` [size]: what is trained, running means and variances.

        They are of observations, [num_observed], or of all that is normalised by batches (`of_norms`). Of a vector of
        what is trained alone they are empty.
        """
        return tuple(flat[part] for part in self.slices.values())

    def of_norms(self, statistics) -> dict:
        """Name of a normalisation by batches -> its view [copies, features] of running means, or variances."""
        copies, found, start = len(self._owners), {}, 0
        for name, width in self.trained.norms.items():
            found[name] = statistics[start : start + copies * width].reshape(copies, width)
            start += copies * width
        return found

    def named_parameters(self, flat) -> dict:
        """Parameter name -> view of `flat`; statistics are "observation.mean" and "observation.variance".

        Of normalisations by batches they have the names of torch.nn.BatchNorm1d: "0.embed_norm.running_mean".
        """
        trained, mean, variance = self.split(flat)
        named = self.trained.named_parameters(trained)
        if not self.residual.is_by_batch:
            return named | {"observation.mean": mean, "observation.variance": variance}
        for kind, statistics in (("running_mean", mean), ("running_var", variance)):
            for name, block in self.of_norms(statistics).items():
                named |= {f"{owner}.{name}.{kind}": row for owner, row in zip(self._owners, block)}
        return named

    def initialize(self, weights: np.ndarray, rng: np.random.Generator) -> None:
        """Fills the parameters; statistics begin with mean 0 and variance 1."""
        trained, mean, variance = self.split(weights)
        self.trained.initialize(trained, rng)
        mean[:], variance[:] = 0, 1


def project(blocks: Mapping) -> None:
    """Brings blocks, arrays or tensors, to their lengths, in place.

    The weights of each unit get the length 1; scales and shifts of a normalisation together, the square root of the
    number of its features.
    """
    for name, block in blocks.items():
        if block.ndim == 3:
            length = (block * block).sum(1)[:, None] ** 0.5
            block /= length.clip(LEAST_LENGTH)
        elif name.endswith("norm.weight"):
            parts = [block, *(blocks[other] for other in [name.replace("weight", "bias")] if other in blocks)]
            length = sum((part * part).sum(-1) for part in parts)[:, None] ** 0.5
            for part in parts:
                part *= part.shape[-1] ** 0.5 / length.clip(LEAST_LENGTH)
