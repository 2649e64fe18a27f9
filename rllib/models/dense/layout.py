"""Layouts: the places of a module's parameters in its slice of a flat float32 vector.

`Layout` serves any module: its parameters lie one after the other. `LayersLayout` is for fully connected layers and
the heads behind them. A head computes one result (the policy's distribution inputs, the value), and either has hidden
separate layers, its tower, or shares them with all others. The layers of all towers are computed by one product: the
first ones stand side by side in one matrix, later ones are stacked, and a layer's bias is the last row of its weights.
The blocks of this layout are

| block         | shape                       | exists                                    |
|---------------|-----------------------------|-------------------------------------------|
| image_i_conv_j (_bias, _norm) | [towers, ...], see torso.py | with a torso              |
| hidden_0      | [inputs + 1, towers * width] | when there is a hidden layer              |
| hidden_i      | [towers, width_before + 1, width] | for every later hidden layer          |
| norm_i        | [towers, 2, width]          | behind hidden_i, with layer_norm: scales, then shifts |
| renorm_i      | [towers, 2, width_before]   | before hidden_i and the heads, with batch_renorm: scales, then shifts |
| running_i     | [towers, 2, width_before]   | with batch_renorm: running means, then variances |
| passes        | [1]                         | with batch_renorm: number of batches in these statistics |
| head          | [width + 1, all outputs]    | shared layers: the heads side by side     |
| NAME_head     | [width + 1, outputs]        | towers: one for each head                 |
| log_std       | [action size]               | with free_log_std                         |

Without `head_bias` the heads have one row less. With batch_renorm hidden_0 is stacked as later layers are. Running
statistics are state that no gradient moves; lying in the vector, they go wherever the weights go: to workers, devices
and checkpoints.

The methods take numpy arrays and torch tensors alike and return views of the same memory.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rllib.models.dense.batch_renorm import BatchRenorm
from rllib.models.observations.torso import Torso


class Layout:
    """Layout of named blocks, one after the other in a flat vector.

    Args:
        shapes: name -> shape, in the order of the memory.

    Attributes:
        size: length of the vector.
        slices: name -> slice of the block in the vector.
        num_fixed: number of the last parameters that no optimizer moves.
    """

    num_fixed = 0

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]):
        self.shapes, self.slices, self.size = dict(shapes), {}, 0
        for name, shape in self.shapes.items():
            start, self.size = self.size, self.size + math.prod(shape)
            self.slices[name] = slice(start, self.size)

    def blocks(self, flat) -> dict:
        """Block name -> view [..., *shape] of `flat` [..., size]."""
        return {
            name: flat[..., part].reshape((*flat.shape[:-1], *self.shapes[name])) for name, part in self.slices.items()
        }

    def named_parameters(self, flat) -> dict:
        """Parameter name -> view of `flat` [size], in the shapes of the torch module."""
        return self.blocks(flat)


@dataclass
class LayersLayout(Layout):
    """Layout of fully connected layers and their heads.

    Attributes:
        num_inputs: number of inputs of the first layer (with a torso, its features), without the closing 1.
        hiddens: widths of the hidden layers.
        heads: name -> number of outputs.
        shared: name of the hidden layers that all heads read; None: each head has a separate tower, with its name.
        num_log_std: length of the free log standard deviation, 0 for none.
        layer_norm: every hidden layer is normalised before its activation.
        torso: convolutions, whose features the first layer reads; each tower has its own.
        head_bias: whether heads have a bias.
        batch_renorm: what hidden layers and heads read is normalised before; for layers without layer_norm and torso,
            and heads with a bias.
    """

    num_inputs: int
    hiddens: tuple[int, ...]
    heads: Mapping[str, int]
    shared: str | None = "shared"
    num_log_std: int = 0
    layer_norm: bool = False
    torso: Torso | None = None
    head_bias: bool = True
    batch_renorm: BatchRenorm | None = None

    def __post_init__(self):
        super().__init__(self.block_shapes())

    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each block, in the order of the memory."""
        before, towers = self.num_inputs, self.num_towers
        shapes = self.torso.block_shapes(towers) if self.torso else {}
        for index, width in enumerate(self.hiddens):
            stacked = index or self.batch_renorm
            shapes[f"hidden_{index}"] = (towers, before + 1, width) if stacked else (before + 1, towers * width)
            if self.layer_norm:
                shapes[f"norm_{index}"] = (towers, 2, width)
            before = width
        return shapes | self.head_shapes(before) | self._renorm_shapes()

    def _renorm_shapes(self) -> dict[str, tuple[int, ...]]:
        if self.batch_renorm is None:
            return {}
        widths = enumerate((self.num_inputs, *self.hiddens))
        shapes = {index: (self.num_towers, 2, width) for index, width in widths}
        learned = {f"renorm_{index}": shape for index, shape in shapes.items()}
        return learned | {f"running_{index}": shape for index, shape in shapes.items()} | {"passes": (1,)}

    def head_shapes(self, before: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the heads, which read `before` features, and of the free log standard deviation."""
        rows = before + 1 if self.head_bias else before
        shapes = {name: (rows, sum(heads.values())) for name, heads in self.head_blocks.items()}
        return shapes | ({"log_std": (self.num_log_std,)} if self.num_log_std else {})

    @property
    def towers(self) -> tuple[str, ...]:
        """Names of the towers, in the order in which they are stacked."""
        return tuple(self.heads) if self.shared is None else (self.shared,)

    @property
    def num_towers(self) -> int:
        """Number of towers."""
        return len(self.towers)

    @property
    def head_blocks(self) -> dict[str, Mapping[str, int]]:
        """Block name -> heads in this block, tower by tower."""
        if self.shared is None:
            return {f"{name}_head": {name: outputs} for name, outputs in self.heads.items()}
        return {"head": self.heads}

    def layer(self, blocks: dict, index: int, tower: int):
        """The view [..., inputs + 1, width] of a tower's hidden layer."""
        block, width = blocks[f"hidden_{index}"], self.hiddens[index]
        stacked = index or self.batch_renorm
        return block[..., tower, :, :] if stacked else block[..., tower * width : (tower + 1) * width]

    def norm(self, blocks: dict, index: int, tower: int):
        """The view [..., 2, width] of the scales and shifts behind a tower's hidden layer; None without layer_norm."""
        return blocks[f"norm_{index}"][..., tower, :, :] if self.layer_norm else None

    def head(self, blocks: dict, name: str):
        """The view [..., width + 1, outputs] of a head; [..., width, outputs] without head_bias."""
        if self.shared is None:
            return blocks[f"{name}_head"]
        names = list(self.heads)
        start = sum(self.heads[before] for before in names[: names.index(name)])
        return blocks["head"][..., start : start + self.heads[name]]

    def stacked_heads(self, flat):
        """The view [towers, width + 1, outputs] of the heads of all towers, which have equal numbers of outputs."""
        names = list(self.head_blocks)
        whole = slice(self.slices[names[0]].start, self.slices[names[-1]].stop)
        return flat[whole].reshape(self.num_towers, *self.shapes[names[0]])

    def named_parameters(self, flat) -> dict:
        """Parameter name -> view of `flat`, in the shapes of torch.nn.Linear: weight [out, in], bias [out].

        Names are "policy.hidden_0.weight", "value.head.bias", ...; layers that all heads share are
        "shared.hidden_0.weight". "policy.norm_0" has the shapes of torch.nn.LayerNorm: weight and bias [width];
        "policy.renorm_0" has the running_mean and running_var of torch.nn.BatchNorm1d besides, and all share "passes".
        A tower or a head whose name is empty adds nothing to these names.
        """
        blocks, named = self.blocks(flat), {}
        for tower, owner in enumerate(self.towers):
            if self.torso:
                named |= _owned(owner, self.torso.named_parameters(blocks, tower))
            for index in range(len(self.hiddens)):
                named |= _owned(owner, weight_and_bias(f"hidden_{index}", self.layer(blocks, index, tower)))
                if self.layer_norm:
                    scale, shift = self.norm(blocks, index, tower)
                    named |= _owned(owner, {f"norm_{index}.weight": scale, f"norm_{index}.bias": shift})
            for index in range(len(self.hiddens) + 1) if self.batch_renorm else ():
                values = *blocks[f"renorm_{index}"][..., tower, :, :], *blocks[f"running_{index}"][..., tower, :, :]
                names = ("weight", "bias", "running_mean", "running_var")
                named |= _owned(owner, {f"renorm_{index}.{name}": view for name, view in zip(names, values)})
        for name in self.heads:
            head = self.head(blocks, name)
            named |= _owned(name, weight_and_bias("head", head) if self.head_bias else {"head.weight": head.T})
        if self.num_log_std:
            named["policy.log_std"] = blocks["log_std"]
        if self.batch_renorm:
            named["passes"] = blocks["passes"]
        return named


def _owned(owner: str, named: dict) -> dict:
    return {f"{owner}.{name}": view for name, view in named.items()} if owner else named


def weight_and_bias(name: str, layer) -> dict:
    """Views of a layer [width + 1, outputs], whose last row is the bias, under torch's names."""
    return {f"{name}.weight": layer[:-1].T, f"{name}.bias": layer[-1]}
