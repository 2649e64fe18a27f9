"""Layout of the parameters of recurrent policies, and the order of the rows of their sequences.

A state is one row of numbers: for each tower the cell's output h and, of an LSTM, its cell state c. It is zero where an
episode begins.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib.models.dense.initializers import orthogonal_matrix
from rllib.models.dense.layout import LayersLayout, weight_and_bias

# For each cell, the number of gates, whose weights lie side by side in the order of torch.nn.LSTM and torch.nn.GRU, and
# the number of arrays in a state.
NUM_GATES = {"lstm": 4, "gru": 3}
NUM_STATES = {"lstm": 2, "gru": 1}


@dataclass
class MemoryLayout(LayersLayout):
    """Blocks of a network with a memory; each tower has a cell, for which AttentionLayout has its units.

    | block         | shape                                 |                                                        |
    |---------------|---------------------------------------|--------------------------------------------------------|
    | image_i_...   | [towers, ...]                         | as for LayersLayout                                    |
    | hidden_i      | [towers, before + 1, width]           | the layers before the cell                             |
    | cell          | [towers, before + 1 + size + 1, gates * size] | rows for the features, their bias, the output  |
    |               |                                       | of the step before, and its bias                       |
    | post_i        | [towers, before + 1, width]           | the layers behind the cell; the first reads `joined`   |
    |               |                                       | numbers besides, behind the cell's output              |
    | heads, log_std | as for LayersLayout                  |                                                        |

    If policy and value share a tower, the value's gradient ends at its head, and the policy alone trains the tower:
    errors of the value are many times larger than normalised advantages.

    Attributes:
        memory: the cell, and what follows it (Memory, or Attention).
        joined: numbers that the first layer behind the cell reads in addition to its output (critics: the action).
    """

    memory: Any = None
    joined: int = 0

    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        before, towers = self.num_inputs, self.num_towers
        shapes = self.torso.block_shapes(towers) if self.torso else {}
        for index, width in enumerate(self.hiddens):
            shapes[f"hidden_{index}"] = (towers, before + 1, width)
            before = width
        shapes |= self.remembering_shapes(before)
        before = self.memory.size + self.joined
        for index, width in enumerate(self.memory.post_hiddens):
            shapes[f"post_{index}"] = (towers, before + 1, width)
            before = width
        return shapes | self.head_shapes(before)

    def remembering_shapes(self, before: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the blocks of the cells, which read `before` features and give `memory.size`."""
        memory = self.memory
        return {"cell": (self.num_towers, before + 1 + memory.size + 1, NUM_GATES[memory.cell] * memory.size)}

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of a state's arrays, side by side: h (and c) of each tower."""
        return ((self.memory.size,),) * (self.num_towers * self.memory.num_states)

    def named_parameters(self, flat) -> dict:
        """Parameter name -> view of `flat`: as for LayersLayout, and "shared.lstm.weight_ih_l0", ... as in torch.

        Layers behind the cell are "shared.post_0.weight" and so on.
        """
        blocks, named = self.blocks(flat), {}
        for tower, owner in enumerate(self.towers):
            own = self.torso.named_parameters(blocks, tower) if self.torso else {}
            for index in range(len(self.hiddens)):
                own |= weight_and_bias(f"hidden_{index}", blocks[f"hidden_{index}"][tower])
            own |= self.remembering_parameters(blocks, tower)
            for index in range(len(self.memory.post_hiddens)):
                own |= weight_and_bias(f"post_{index}", blocks[f"post_{index}"][tower])
            named |= {f"{owner}.{name}": view for name, view in own.items()}
        for name in self.heads:
            named |= {f"{name}.{key}": view for key, view in weight_and_bias("head", self.head(blocks, name)).items()}
        if self.num_log_std:
            named["policy.log_std"] = blocks["log_std"]
        return named

    def remembering_parameters(self, blocks: dict, tower: int) -> dict:
        """Parameter name -> view of the blocks of `remembering_shapes`."""
        memory, cell, split = self.memory, blocks["cell"][tower], -self.memory.size - 1
        return {
            f"{memory.cell}.weight_ih_l0": cell[: split - 1].T,
            f"{memory.cell}.weight_hh_l0": cell[split:-1].T,
            f"{memory.cell}.bias_ih_l0": cell[split - 1],
            f"{memory.cell}.bias_hh_l0": cell[-1],
        }

    def initialize_memory(self, weights: np.ndarray, rng: np.random.Generator, initializer: str) -> None:
        """Fills the cells' weights: each gate's matrices orthogonal with gain 1, biases 0; "uniform": as torch does."""
        size = self.memory.size
        for cell in self.blocks(weights)["cell"]:
            if initializer == "uniform":
                cell[:] = rng.uniform(-1, 1, cell.shape) / math.sqrt(size)
                continue
            cell[:] = 0
            for rows in (cell[: -size - 2], cell[-size - 1 : -1]):
                for start in range(0, cell.shape[1], size):
                    gate = rows[:, start : start + size]
                    gate[:] = orthogonal_matrix(gate.shape, rng)


class StepOrder:
    """Order of the rows of sequences by step: the first rows of all sequences, then the second ones, and so on.

    Within a step the longest sequences come first, so a step's sequences are the first ones of the step before: a cell
    computes each step on contiguous rows, and nothing is padded.

    Args:
        seq_lens: int [S], lengths of the consecutive sequences; at least 1 each.

    Attributes:
        by_length: int [S], the sequences, the longest first.
        counts: int [T], number of sequences that have each step.
        rows: int [B], index in the batch of each row of this order.
        back: int [B], the inverse: index in this order of each row of the batch.
        previous: int [B], index of each row's predecessor when the S initial states precede all rows.
        steps: for each step three slices: its rows; their predecessors; its rows again. The last two count the S
            initial states first.
    """

    def __init__(self, seq_lens: np.ndarray):
        num_sequences = len(seq_lens)
        self.by_length = np.argsort(-seq_lens, kind="stable")
        lengths = seq_lens[self.by_length]
        step = np.arange(lengths[0])
        self.counts = num_sequences - np.searchsorted(lengths[::-1], step, side="right")
        starts = np.cumsum(self.counts) - self.counts
        within = np.arange(self.counts.sum()) - np.repeat(starts, self.counts)
        step_of_row = np.repeat(step, self.counts)
        self.rows = (np.cumsum(seq_lens) - seq_lens)[self.by_length][within] + step_of_row
        self.back = np.empty_like(self.rows)
        self.back[self.rows] = np.arange(len(self.rows))
        # Index of the first predecessor of each step's rows.
        before = np.concatenate([[0], num_sequences + starts[:-1]])
        self.previous = before[step_of_row] + within
        self.steps = [
            (
                slice(here, here + count),
                slice(first, first + count),
                slice(num_sequences + here, num_sequences + here + count),
            )
            for here, first, count in zip(starts.tolist(), before.tolist(), self.counts.tolist())
        ]
