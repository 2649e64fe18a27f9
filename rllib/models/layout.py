"""Where each parameter of a policy lies in its one flat float32 vector.

The vector is cut into blocks. Both towers' first layers stand side by side in one matrix, later layers of both towers
are stacked, and a layer's bias is the last row of its weights, so that one product computes a whole layer:

| block         | shape                       | exists                                    |
|---------------|-----------------------------|-------------------------------------------|
| image_i_conv_j (_bias, _norm) | [towers, ...], see torso.py | with a torso              |
| hidden_0      | [inputs + 1, towers * width] | when there is a hidden layer              |
| hidden_i      | [towers, width_before + 1, width] | for every later hidden layer          |
| norm_i        | [towers, 2, width]          | behind hidden_i, with layer_norm: scales, then shifts |
| head          | [width + 1, outputs + values] | one tower: distribution inputs, then value |
| policy_head   | [width + 1, outputs]        | two towers                                |
| value_head    | [width + 1, values]         | two towers                                |
| log_std       | [action size]               | with free_log_std                         |

The functions take numpy arrays and torch tensors alike and return views of the same memory.
"""

import math
from dataclasses import dataclass

from rllib.models.torso import Torso


@dataclass(frozen=True)
class ParameterLayout:
    """Names, shapes and offsets of the blocks.

    Attributes:
        num_inputs: size of an encoded observation (of the torso's features), without the closing 1.
        hiddens: widths of the hidden layers.
        num_outputs: what the policy head computes.
        num_towers: 2 where policy and value have layers of their own, else 1.
        num_log_std: length of the free log standard deviation, 0 for none.
        num_values: 1, or 0 for a network without a value head, which then has one tower.
        layer_norm: every hidden layer is normalised before its activation.
        torso: convolutions, whose features the first layer reads; each tower has its own.
    """

    num_inputs: int
    hiddens: tuple[int, ...]
    num_outputs: int
    num_towers: int
    num_log_std: int = 0
    num_values: int = 1
    layer_norm: bool = False
    torso: Torso | None = None

    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        """Block name -> shape, in the order of the memory."""
        towers, before = self.num_towers, self.num_inputs
        shapes = self.torso.block_shapes(towers) if self.torso else {}
        for index, width in enumerate(self.hiddens):
            shapes[f"hidden_{index}"] = (towers, before + 1, width) if index else (before + 1, towers * width)
            if self.layer_norm:
                shapes[f"norm_{index}"] = (towers, 2, width)
            before = width
        if towers == 1:
            shapes["head"] = (before + 1, self.num_outputs + self.num_values)
        else:
            shapes["policy_head"] = (before + 1, self.num_outputs)
            shapes["value_head"] = (before + 1, self.num_values)
        if self.num_log_std:
            shapes["log_std"] = (self.num_log_std,)
        return shapes

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return sum(math.prod(shape) for shape in self.block_shapes().values())

    def blocks(self, flat) -> dict:
        """Block name -> view of `flat`."""
        views, offset = {}, 0
        for name, shape in self.block_shapes().items():
            size = math.prod(shape)
            views[name] = flat[offset : offset + size].reshape(shape)
            offset += size
        return views

    def named_parameters(self, flat) -> dict:
        """Parameter name -> view of `flat`, in the shapes of torch.nn.Linear: weight [out, in], bias [out].

        Names are "policy.hidden_0.weight", "value.head.bias", ...; layers that both use are "shared.hidden_0.weight".
        Those of "policy.norm_0" are shaped as in torch.nn.LayerNorm: weight and bias [width].
        """
        blocks, named = self.blocks(flat), {}
        towers = ("policy", "value") if self.num_towers == 2 else ("shared",)
        for tower, owner in enumerate(towers):
            if self.torso:
                convolutions = self.torso.named_parameters(blocks, tower)
                named |= {f"{owner}.{name}": parameter for name, parameter in convolutions.items()}
            for index, width in enumerate(self.hiddens):
                block = blocks[f"hidden_{index}"]
                layer = block[tower] if index else block[:, tower * width : (tower + 1) * width]
                named |= _weight_and_bias(f"{owner}.hidden_{index}", layer)
                if self.layer_norm:
                    scale, shift = blocks[f"norm_{index}"][tower]
                    named |= {f"{owner}.norm_{index}.weight": scale, f"{owner}.norm_{index}.bias": shift}
        named |= _weight_and_bias("policy.head", self.policy_head(blocks))
        if self.num_values:
            named |= _weight_and_bias("value.head", self.value_head(blocks))
        if self.num_log_std:
            named["policy.log_std"] = blocks["log_std"]
        return named

    def policy_head(self, blocks: dict):
        """The view [width + 1, outputs] of the policy's last layer."""
        return blocks["policy_head"] if self.num_towers == 2 else blocks["head"][:, : self.num_outputs]

    def value_head(self, blocks: dict):
        """The view [width + 1, values] of the value's last layer."""
        return blocks["value_head"] if self.num_towers == 2 else blocks["head"][:, self.num_outputs :]

    def names_where(self, bad) -> list[str]:
        """Names of the parameters in which `bad` [size] is true somewhere."""
        return [name for name, part in self.named_parameters(bad).items() if bool(part.any())]


def _weight_and_bias(name: str, layer) -> dict:
    return {f"{name}.weight": layer[:-1].T, f"{name}.bias": layer[-1]}
