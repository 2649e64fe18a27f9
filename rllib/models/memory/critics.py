"""Critics with a memory: networks that judge an action by what has been observed up to it.

The cell reads observations alone, and the action to be judged is read behind it, by the layers `post_hiddens`, so
that what is remembered does not depend on the action (Ni et al., arXiv:2110.05038, figure 1). Actions that were taken
are remembered if the observation tells the step before (lstm_use_prev_action).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rllib.models.dense.initializers import INITIALIZERS
from rllib.models.memory.layout import MemoryLayout
from rllib.models.memory.spec import Memory


@dataclass(frozen=True)
class MemoryCritics:
    """Separate networks with a cell each, computed in torch (memory/in_torch.py: TorchMemoryCritics).

    A state is zero where a sequence begins, and without a place in the replay: actors alone act.

    Attributes:
        reads: ("observation", "action"), or ("observation",) of critics that give the values of all actions.
        hiddens: widths of the layers before the cell.
        memory: the cell, and the layers behind it: at least one where an action is read.
        num_outputs: numbers that a network computes for a row; None: one, and results have no axis of outputs.
        copies: number of networks; results are [copies, B] or [copies, B, num_outputs].
        activation: activation function of the layers before the cell, one of activations.ACTIVATIONS.
        initializer: initializer of the weights, a name in models/dense/initializers.py.
    """

    reads: tuple[str, ...]
    hiddens: tuple[int, ...]
    memory: Memory
    num_outputs: int | None
    copies: int
    activation: str = "relu"
    initializer: str = "uniform"

    def layout(self, widths: Mapping[str, int]) -> MemoryLayout:
        """Layout of the parameters; `widths` maps each possible input to its length."""
        observation, *actions = (widths[name] for name in self.reads)
        heads = {str(index): self.num_outputs or 1 for index in range(self.copies)}
        return MemoryLayout(observation, self.hiddens, heads, shared=None, memory=self.memory, joined=sum(actions))

    def initialize(self, layout: MemoryLayout, weights: np.ndarray, rng: np.random.Generator) -> None:
        INITIALIZERS[self.initializer](layout, weights, rng)
        layout.initialize_memory(weights, rng, self.initializer)

    def torch(self, layout: MemoryLayout, flat):
        from rllib.models.memory.in_torch import TorchMemoryCritics

        return TorchMemoryCritics(layout, (self.activation,) * len(self.hiddens), flat, self.num_outputs is None)
