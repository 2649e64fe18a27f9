"""What a learner asks of a loss. Algorithms hand in their own."""

from collections.abc import Mapping
from typing import ClassVar, Protocol

import numpy as np

# Numbers whose relative spread is below this differ by rounding alone: their variance counts as zero.
ROUNDING = 1e-6


class Loss(Protocol):
    """A loss in two forms that agree to rounding: closed-form gradients in numpy, and torch for autograd.

    `outputs` are what the network's forward returned, and gradients come back as a tuple in the same order.
    `minibatch` maps the names in `columns` to arrays (or tensors) of B rows. `settings` are numbers that may change
    from one update to the next. Both forms compute means over the rows.

    Attributes:
        columns: which columns of a batch the loss reads.
        stats: names of the statistics, in the order in which both forms return them.
        row_stats: names of numbers for each row ([B], without a graph). A loss that has some returns them, a tuple of
            arrays, behind what else its two forms return. A loss without any need not say so.
    """

    columns: ClassVar[tuple[str, ...]]
    stats: ClassVar[tuple[str, ...]]
    row_stats: ClassVar[tuple[str, ...]] = ()

    def numpy(self, distribution, outputs: tuple, minibatch: Mapping[str, np.ndarray], **settings) -> tuple:
        """(statistics, gradients): a sequence of numbers, and the gradient with respect to each output."""

    def torch(self, distribution, outputs: tuple, minibatch: Mapping, **settings) -> tuple:
        """(loss, statistics): a scalar tensor with a graph, and a 1-D tensor without one."""

    def identity_error(self, distribution, outputs: tuple, minibatch: Mapping):
        """A number that is near zero as long as the weights are those that acted; None where there is no such number.

        Written with operations that arrays and tensors share; the learner checks it on the first minibatch.
        """
