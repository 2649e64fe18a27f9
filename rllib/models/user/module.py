"""Networks of your own: any torch.nn.Module can be a policy's network, or a module beside it.

The module is written once. Its parameters, in its order, are the layout; its constructor draws the initial weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from rllib.models.dense.in_torch import ActingNetwork, FlatModule, first_columns
from rllib.models.dense.layout import Layout
from rllib.models.policy_spec import PolicySpec


class TorchLayout(Layout):
    """The parameters of a torch.nn.Module, one after the other.

    Args:
        make: (*widths) -> the module with its initial weights.
        widths: numbers in a row of each thing that the module reads, and whatever else `make` is called with.
    """

    def __init__(self, make: Callable[..., nn.Module], *widths: int):
        self.make, self.widths = partial(make, *widths), widths
        super().__init__({name: tuple(parameter.shape) for name, parameter in self.make().named_parameters()})

    def initialize(self, weights: np.ndarray, rng: np.random.Generator) -> None:
        """Fills the weights as the module's constructor does, with torch's generator seeded by `rng`."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))
            weights[:] = nn.utils.parameters_to_vector(self.make().parameters()).detach().numpy()


@dataclass(frozen=True)
class CustomSpec(PolicySpec):
    """Describes a policy whose network is a torch.nn.Module; an algorithm's `make_policy_spec` returns one.

    A checkpoint names this class and `make`: an algorithm that makes the same module restores it without them, a policy
    alone needs Policy.from_checkpoint(path, load_user_code=True).

    The module is called with encoded observations [B, num_inputs] (images as they are stored). It returns distribution
    inputs [B, num_outputs] and values [B].

    Attributes:
        make: (num_inputs, num_outputs) -> torch.nn.Module with its initial weights; a function that can be pickled,
            called in each process that acts or learns.
    """

    make: Callable[[int, int], nn.Module] = nn.Module

    @classmethod
    def of(cls, spec: PolicySpec, make: Callable[[int, int], nn.Module], **more):
        """The description of a policy that differs from `spec` by its network; `more` are the other attributes."""
        return cls(**vars(spec), make=make, **more)

    def layout(self) -> TorchLayout:
        return TorchLayout(self.make, self.num_inputs, self.distribution.num_inputs)

    def initialize(self, layout: TorchLayout, weights: np.ndarray, rng: np.random.Generator) -> None:
        layout.initialize(weights, rng)

    def network(self, layout: TorchLayout, weights: np.ndarray):
        return ActingNetwork(self.torch(layout, torch.from_numpy(weights), None), gives_values=True)

    def torch(self, layout: TorchLayout, flat: Tensor, acting) -> FlatModule:
        return FlatModule(Reader(layout).to(flat.device), flat)

    def opened(self, module: FlatModule) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
        return module.module.module, lambda rows: first_columns(rows, self.num_inputs)


@dataclass(frozen=True)
class CustomModule:
    """A module beside the policy's network (models/modules.py) out of a torch.nn.Module.

    Attributes:
        make: (width of each thing that it reads) -> torch.nn.Module with its initial weights.
        reads: what losses call it with, in that order, [B, width] each: "observation" (encoded, as in a learner's
            minibatches), "action", or both.
    """

    make: Callable[..., nn.Module]
    reads: tuple[str, ...] = ("observation",)

    def layout(self, widths: Mapping[str, int]) -> TorchLayout:
        """Where the parameters lie; `widths` has the length of each thing that can be read."""
        return TorchLayout(self.make, *(widths[name] for name in self.reads))

    def initialize(self, layout: TorchLayout, weights: np.ndarray, rng: np.random.Generator) -> None:
        """Fills the weights as the module's constructor does."""
        layout.initialize(weights, rng)

    def torch(self, layout: TorchLayout, flat: Tensor) -> FlatModule:
        return FlatModule(Reader(layout, len(self.reads)).to(flat.device), flat)


class Reader(nn.Module):
    """Calls a module with what it reads, without the column of ones that ends encoded observations.

    Args:
        layout: makes the module.
        num_read: how many of the layout's widths are those of arguments of a call.
    """

    def __init__(self, layout: TorchLayout, num_read: int = 1):
        super().__init__()
        self.module, self._widths = layout.make(), layout.widths[:num_read]

    def forward(self, *read: Tensor):
        return self.module(*(first_columns(rows, width) for rows, width in zip(read, self._widths, strict=True)))
