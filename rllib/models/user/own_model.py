"""Networks of the user's by one plain contract: model={"custom_model": Net, "custom_model_config": {...}}.

    Net(observation_space, action_space, num_outputs, **custom_model_config)   a torch.nn.Module
    forward(observation) -> dist_inputs [B, num_outputs], values [B]

The observation comes in the form of its space (structure.py). Where the algorithm learns action values, not a policy
and a value, the module may return dist_inputs alone. A module with a memory has one method and one argument more:

    initial_state() -> list of tensors, zeros: the state before an episode, without a batch axis
    forward(observation, state) -> dist_inputs, values, next state       the state a list of tensors [B, ...]

It is called for one step; learners call it for each step of a sequence.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rllib.models.dense.in_torch import ActingNetwork, FlatModule, RecurrentActing
from rllib.models.observations.structure import Structure
from rllib.models.policy_spec import PolicySpec
from rllib.models.user.module import TorchLayout
from rllib.models.user.own_model_probe import Probe, form_of
from rllib.models.user.recurrent import Unrolled


@dataclass(frozen=True)
class OwnModelSpec(PolicySpec):
    """Describes a policy whose network is a module of the user's.

    Attributes:
        model: makes the module; see above.
        config: its keyword arguments.
        observation_space, action_space: of the environment.
        state_shapes: of the tensors of a state; empty without a memory.
        max_seq_len: longest sequence that gradients flow through, in steps.
    """

    model: Callable[..., nn.Module] = nn.Module
    config: Mapping[str, Any] = field(default_factory=dict)
    observation_space: spaces.Space | None = None
    action_space: spaces.Space | None = None
    state_shapes: tuple[tuple[int, ...], ...] = ()
    max_seq_len: int = 20
    # Whether choices in observations are one-hot.
    structures_one_hot = False

    @property
    def network_name(self) -> str:
        return getattr(self.model, "__qualname__", None) or repr(self.model)

    def make(self) -> nn.Module:
        """A new module, with the weights that its constructor draws.

        Raises:
            TypeError: if it is no torch.nn.Module; what its constructor raises is passed on with a note.
        """
        try:
            module = self.construct()
        except Exception as error:
            error.add_note(
                f"raised by the constructor of the custom model {self.network_name} (docs/networks.md says how it is "
                f"called), with num_outputs={self.distribution.num_inputs} and custom_model_config={dict(self.config)}"
            )
            raise
        if not isinstance(module, nn.Module):
            raise TypeError(f"the custom model {self.network_name} made {module!r:.80}, which is no torch.nn.Module")
        return module

    def construct(self) -> nn.Module:
        """Calls the class."""
        return self.model(self.observation_space, self.action_space, self.distribution.num_inputs, **self.config)

    def initial_state_of(self, module: nn.Module) -> list[Tensor]:
        """The state before an episode, as the module gives it; empty without a memory."""
        return module.initial_state() if hasattr(module, "initial_state") else []

    def layout(self) -> TorchLayout:
        with _fixed_generator():
            return TorchLayout(self.make)

    def initialize(self, layout: TorchLayout, weights: np.ndarray, rng: np.random.Generator) -> None:
        layout.initialize(weights, rng)

    def network(self, layout: TorchLayout, weights: np.ndarray) -> "ActingNetwork | RecurrentActing":
        flat = self.torch(layout, torch.from_numpy(weights), None)
        return RecurrentActing(flat.module) if self.state_shapes else ActingNetwork(flat, gives_values=self.critic)

    def torch(self, layout: TorchLayout, flat: Tensor, acting) -> FlatModule:
        module: nn.Module = self.called_by_rows()
        if self.state_shapes:
            module = Unrolled(module, self.encoder.size)
        return FlatModule(module.to(flat.device), flat)

    def opened(self, module: FlatModule) -> tuple[nn.Module, Callable[[Tensor], Any]]:
        called = module.module.step if self.state_shapes else module.module
        return called.module, called.structure.of_rows

    def called_by_rows(self) -> "CalledByRows":
        """A new module, called with stored rows; its buffers are the same in each process."""
        filtered = self.observation_filter != "NoFilter"
        with _fixed_generator():
            return self.called(self.make(), Structure(self.observation_space, self.structures_one_hot, filtered))

    def called(self, module: nn.Module, structure: Structure) -> "CalledByRows":
        return CalledByRows(module, structure, self.state_shapes, self.critic)

    def check(self) -> None:
        if self.noisy_layers:
            raise ValueError(
                f"noisy=True puts noise into layers of the built-in network, but this one is {self.network_name}. Use "
                ".training(noisy=False), or leave model['custom_model'] out."
            )
        Probe(self).run()


class CalledByRows(nn.Module):
    """Calls a module of the user's with stored rows and flat states.

    Args:
        module: as the contract describes it.
        structure: of its observations.
        state_shapes: of its memory.
        has_values: whether its values are read.
    """

    def __init__(self, module: nn.Module, structure: Structure, state_shapes: tuple, has_values: bool):
        super().__init__()
        self.module, self.structure, self.has_values = module, structure, has_values
        self._state_shapes = state_shapes
        self._state_sizes = [math.prod(shape) for shape in state_shapes]

    def forward(self, rows: Tensor, state: Tensor | None = None) -> tuple[Tensor, ...]:
        """Distribution inputs [B, K] and values [B]; with a memory also the next states.

        Without values they are a tensor [0], or zeros with a memory.

        Args:
            rows: observations as stored, [B, ...].
            state: of a module with a memory, [B, state_size].
        """
        if state is None:
            found = self.outputs(rows)
            if self.has_values:
                return found
            dist_inputs = found[0] if isinstance(found, tuple) else found
            return dist_inputs, dist_inputs.new_empty(0)
        dist_inputs, values, following = self.outputs(rows, self.as_list(state))
        if not self.has_values:
            values = dist_inputs.new_zeros(len(dist_inputs))
        return dist_inputs, values, torch.cat([part.flatten(1) for part in following], dim=1)

    def outputs(self, rows: Tensor, state: list[Tensor] | None = None):
        """What the module returns for stored rows, and a state as it takes it."""
        observation = self.structure.of_rows(rows)
        return self.module(observation) if state is None else self.module(observation, state)

    def as_list(self, state: Tensor) -> list[Tensor]:
        """The tensors [B, ...] that a flat state consists of."""
        found = state.split(self._state_sizes, dim=1)
        return [part.reshape(len(part), *shape) for part, shape in zip(found, self._state_shapes)]


def with_state_shapes(spec: OwnModelSpec) -> OwnModelSpec:
    """The description with the shapes of the state that its module begins an episode with.

    Raises:
        ValueError: for a state that is not as the contract says.
    """
    with _fixed_generator():
        state = spec.initial_state_of(spec.make())
    if not isinstance(state, list | tuple) or not all(isinstance(part, Tensor) for part in state):
        raise ValueError(
            f"the initial state of {spec.network_name} must be a list of tensors, the state before an episode without "
            f"a batch axis, such as [torch.zeros(64)], but is {state!r:.80}"
        )
    if any(part.dtype != torch.float32 or part.any() for part in state):
        raise ValueError(
            f"the initial state of {spec.network_name} must be float32 zeros, since every episode begins with them, "
            f"but is {form_of(state)} with other values. Add what you begin with in forward()."
        )
    return dataclasses.replace(spec, state_shapes=tuple(tuple(part.shape) for part in state))


@contextlib.contextmanager
def _fixed_generator() -> Iterator[None]:
    """Lets constructors draw the same numbers in each process, and leaves torch's generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
