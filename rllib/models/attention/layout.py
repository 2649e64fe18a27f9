"""Layout of the parameters of attention over earlier steps: a gated transformer (GTrXL, arXiv:1910.06764).

The state holds the inputs of each unit in the last `window` steps, the newest last, and the number of these steps that
belong to the episode. It is zero where an episode begins: an empty window.
"""

from dataclasses import dataclass

import numpy as np

from rllib.models.dense.initializers import orthogonal_matrix
from rllib.models.dense.layout import weight_and_bias
from rllib.models.memory.layout import MemoryLayout

# The two gates of a unit, after its attention and after its MLP.
GATES = ("attention_gate", "mlp_gate")


@dataclass
class AttentionLayout(MemoryLayout):
    """The blocks of a network with attention; each tower has its own units.

    Heads, and the layers before and behind the units, are as in MemoryLayout; H = num_heads * head_size:

    | block                      | shape                             |                                                |
    |----------------------------|-----------------------------------|------------------------------------------------|
    | embedding                  | [towers, before + 1, size]        | input of the first unit                        |
    | unit_i_attention_norm      | [towers, 2, size]                 | scales, then shifts                            |
    | unit_i_query_key_value     | [towers, size, 3 H]               | side by side                                   |
    | unit_i_position            | [towers, size, H]                 | for encodings of the steps between two rows    |
    | unit_i_score_bias          | [towers, 2, H]                    | added to queries: for contents, for positions  |
    | unit_i_joined              | [towers, H, size]                 | the layer that joins the heads                 |
    | unit_i_attention_gate      | [towers, 2 size, 3 size]          | rows: the layer's result, what bypasses it;    |
    |                            |                                   | columns: reset, update, candidate              |
    | unit_i_attention_gate_bias | [towers, 1, size]                 | subtracted from the update                     |
    | unit_i_mlp_norm            | [towers, 2, size]                 |                                                |
    | unit_i_mlp_0, unit_i_mlp_1 | [towers, before + 1, width]       |                                                |
    | unit_i_mlp_gate, ..._bias  | as the other gate                 |                                                |
    """

    def remembering_shapes(self, before: int) -> dict[str, tuple[int, ...]]:
        memory, towers, size = self.memory, self.num_towers, self.memory.size
        heads = memory.num_heads * memory.head_size
        shapes = {"embedding": (before + 1, size)}
        for unit in range(memory.num_units):
            of_unit = {
                "attention_norm": (2, size),
                "query_key_value": (size, 3 * heads),
                "position": (size, heads),
                "score_bias": (2, heads),
                "joined": (heads, size),
                "attention_gate": (2 * size, 3 * size),
                "attention_gate_bias": (1, size),
                "mlp_norm": (2, size),
                "mlp_0": (size + 1, memory.mlp_size),
                "mlp_1": (memory.mlp_size + 1, size),
                "mlp_gate": (2 * size, 3 * size),
                "mlp_gate_bias": (1, size),
            }
            shapes |= {f"unit_{unit}_{name}": shape for name, shape in of_unit.items()}
        return {name: (towers, *shape) for name, shape in shapes.items()}

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of a state's arrays: the window of each unit of each tower, then the number of steps in them."""
        memory = self.memory
        return ((memory.window, memory.size),) * (self.num_towers * memory.num_units) + ((1,),)

    def remembering_parameters(self, blocks: dict, tower: int) -> dict:
        named = weight_and_bias("embedding", blocks["embedding"][tower])
        for unit in range(self.memory.num_units):
            name = f"unit_{unit}"
            block = {key.removeprefix(f"{name}_"): part[tower] for key, part in blocks.items() if f"{name}_" in key}
            for norm in ("attention_norm", "mlp_norm"):
                named |= {f"{name}.{norm}.weight": block[norm][0], f"{name}.{norm}.bias": block[norm][1]}
            for matrix in ("query_key_value", "position", "joined"):
                named[f"{name}.{matrix}.weight"] = block[matrix].T
            named[f"{name}.content_bias"], named[f"{name}.position_bias"] = block["score_bias"]
            for gate in GATES:
                named[f"{name}.{gate}.weight"] = block[gate].T
                named[f"{name}.{gate}.bias"] = block[f"{gate}_bias"][0]
            for layer in ("mlp_0", "mlp_1"):
                named |= weight_and_bias(f"{name}.{layer}", block[layer])
        return named

    def initialize_memory(self, weights: np.ndarray, rng: np.random.Generator, initializer: str) -> None:
        """Fills the gates' biases, and with "orthogonal" the matrices that lie side by side in one block.

        Each of these matrices is orthogonal with gain 1; with "uniform" they stay as the initializer has drawn them.
        """
        size, head_size = self.memory.size, self.memory.head_size
        for name, block in self.blocks(weights).items():
            if name.endswith("gate_bias"):
                block[:] = self.memory.gate_bias
            elif initializer == "orthogonal" and name.endswith(("query_key_value", "position")):
                _fill(block, (size, head_size), rng)
            elif initializer == "orthogonal" and name.endswith(GATES):
                _fill(block, (size, size), rng)


def _fill(block: np.ndarray, shape: tuple[int, int], rng: np.random.Generator) -> None:
    """Fills a block [towers, rows, columns] with orthogonal matrices of the given shape."""
    rows, columns = shape
    for tower in block:
        for top in range(0, len(tower), rows):
            for left in range(0, tower.shape[1], columns):
                tower[top : top + rows, left : left + columns] = orthogonal_matrix(shape, rng)


def position_encodings(window: int, size: int) -> np.ndarray:
    """Encodings of 0 ... `window` steps, the longest first, float32 [window + 1, size] (Transformer-XL, section 3.3).

    Sines of decreasing frequencies, then their cosines.
    """
    frequencies = 10_000.0 ** (-np.arange(0, size, 2) / size)
    angles = np.arange(window, -1, -1)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :size].astype(np.float32)
