"""Networks written by users, by one plain contract: model={"custom_model": Net, "custom_model_config": {...}}.

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
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rllib.config.conflicts import Unfit
from rllib.models.acting_in_torch import ActingNetwork, RecurrentActing
from rllib.models.dense.in_torch import FlatModule
from rllib.models.dense.network_spec import NetworkSpec, UserArchitecture
from rllib.models.observations.structure import Structure, sampled_rows
from rllib.models.user.module import TorchLayout, Unrolled


@dataclass(frozen=True)
class UserModelSpec(UserArchitecture):
    """The architecture of a network that is a user's module.

    Attributes:
        model: makes the module; see above.
        config: its keyword arguments.
        observation_space, action_space: spaces of the environment.
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
        return name_of(self.model)

    def state_shapes_of(self, spec: NetworkSpec) -> tuple[tuple[int, ...], ...]:
        return self.state_shapes

    def make(self, spec: NetworkSpec) -> nn.Module:
        """Makes a new module, with the weights that its constructor draws.

        Raises:
            TypeError: if it is no torch.nn.Module; what its constructor raises is passed on with a note.
        """
        outputs = spec.distribution.num_inputs
        return made(lambda: self.construct(outputs), f"model {self.network_name}", outputs, self.config)

    def construct(self, num_outputs: int) -> nn.Module:
        return self.model(self.observation_space, self.action_space, num_outputs, **self.config)

    def initial_state_of(self, module: nn.Module) -> list[Tensor]:
        """The state before an episode, as the module gives it; empty without a memory."""
        return module.initial_state() if hasattr(module, "initial_state") else []

    def layout(self, spec: NetworkSpec) -> TorchLayout:
        with fixed_generator():
            return TorchLayout(functools.partial(self.make, spec))

    def initialize(self, spec: NetworkSpec, layout: TorchLayout, weights: np.ndarray, rng: np.random.Generator) -> None:
        layout.initialize(weights, rng)

    def network(self, spec: NetworkSpec, layout: TorchLayout, weights: np.ndarray) -> "ActingNetwork | RecurrentActing":
        flat = self.torch(spec, layout, torch.from_numpy(weights), None)
        return RecurrentActing(flat.module) if self.state_shapes else ActingNetwork(flat, gives_values=spec.critic)

    def torch(self, spec: NetworkSpec, layout: TorchLayout, flat: Tensor, acting) -> FlatModule:
        module: nn.Module = self.called_by_rows(spec)
        if self.state_shapes:
            module = Unrolled(module, spec.encoder.size)
        return FlatModule(module.to(flat.device), flat)

    def opened(self, spec: NetworkSpec, module: FlatModule) -> tuple[nn.Module, Callable[[Tensor], Any]]:
        called = module.module.step if self.state_shapes else module.module
        return called.module, called.structure.of_rows

    def called_by_rows(self, spec: NetworkSpec) -> "CalledByRows":
        """Makes a module that is called with stored rows; its buffers are the same in each process."""
        filtered = spec.observation_filter != "NoFilter"
        with fixed_generator():
            structure = Structure(self.observation_space, self.structures_one_hot, filtered)
            return self.called(self.make(spec), structure, spec.critic)

    def called(self, module: nn.Module, structure: Structure, has_values: bool) -> "CalledByRows":
        return CalledByRows(module, structure, self.state_shapes, has_values)

    def check(self, spec: NetworkSpec) -> None:
        if spec.noisy_layers:
            raise Unfit(
                f"noisy=True puts noise into layers of the built-in network, but this one is {self.network_name}.",
                "Use .training(noisy=False), or leave model['custom_model'] out.",
                {"noisy": False},
                {"model": {"custom_model": None}},
            )
        Probe(spec).run()


# Its name in the checkpoints of earlier versions.
OwnModelSpec = UserModelSpec


def name_of(model: Callable) -> str:
    """The name of a user's class or function, for messages."""
    return getattr(model, "__qualname__", None) or repr(model)


def made(construct: Callable[[], nn.Module], name: str, num_outputs: int, config: Mapping[str, Any]) -> nn.Module:
    """The module that `construct` makes.

    Args:
        construct: calls the user's class.
        name: name of the network, for messages: "model Net".
        num_outputs, config: its arguments, for messages.

    Raises:
        TypeError: if it is no torch.nn.Module; what its constructor raises is passed on with a note.
    """
    try:
        module = construct()
    except Exception as error:
        error.add_note(
            f"raised by the constructor of the custom {name} (docs/guide/networks.md describes the call), with "
            f"num_outputs={num_outputs} and custom_model_config={dict(config)}"
        )
        raise
    if not isinstance(module, nn.Module):
        raise TypeError(f"the custom {name} made {module!r:.80}, which is no torch.nn.Module")
    return module


class CalledByRows(nn.Module):
    """Calls a user's module with stored rows and flat states.

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
            values = dist_inputs.new_zeros(dist_inputs.shape[0])
        return dist_inputs, values, torch.cat([part.flatten(1) for part in following], dim=1)

    def outputs(self, rows: Tensor, state: list[Tensor] | None = None):
        """Results of the module for stored rows and, with a memory, a state as a list of tensors."""
        observation = self.structure.of_rows(rows)
        return self.module(observation) if state is None else self.module(observation, state)

    def as_list(self, state: Tensor) -> list[Tensor]:
        """The tensors [B, ...] that a flat state consists of."""
        found = state.split(self._state_sizes, dim=1)
        return [part.reshape(part.shape[0], *shape) for part, shape in zip(found, self._state_shapes)]


def with_state_shapes(spec: NetworkSpec) -> NetworkSpec:
    """The description with the shapes of the state that its module begins an episode with.

    Raises:
        ValueError: for a state that is not as the contract says.
    """
    own = spec.architecture
    with fixed_generator():
        state = own.initial_state_of(own.make(spec))
    if not isinstance(state, list | tuple) or not all(isinstance(part, Tensor) for part in state):
        raise ValueError(
            f"the initial state of {own.network_name} must be a list of tensors, the state before an episode without "
            f"a batch axis, such as [torch.zeros(64)], but is {state!r:.80}"
        )
    if any(part.dtype != torch.float32 or part.any() for part in state):
        raise ValueError(
            f"the initial state of {own.network_name} must be float32 zeros, since every episode begins with them, "
            f"but is {form_of(state)} with other values. Add what you begin with in forward()."
        )
    own = dataclasses.replace(own, state_shapes=tuple(tuple(part.shape) for part in state))
    return dataclasses.replace(spec, architecture=own)


@contextlib.contextmanager
def fixed_generator() -> Iterator[None]:
    """Seeds torch's generator, so that constructors draw the same numbers everywhere; restores it afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


# ---------------------------------------------------------------------- the contract, tried at build


class Probe:
    """Calls a module with made-up observations and checks what comes back.

    Args:
        spec: the description of the policy whose network it is, of the architecture UserModelSpec.
    """

    # Number of made-up observations with which a module is called.
    num_rows = 2
    # Calls that have to agree: few numbers that dropout leaves or drops are the same by chance now and then.
    num_calls = 8

    def __init__(self, spec):
        own = spec.architecture
        self.spec, self.num_outputs = spec, spec.distribution.num_inputs
        self.name, self.observation_space = f"model {own.network_name}", own.observation_space
        self.called = own.called_by_rows(spec)
        self.module = self.called.module
        rows = sampled_rows(own.observation_space, self.num_rows, spec.observation_filter != "NoFilter")
        self.rows = torch.from_numpy(rows)

    def run(self) -> None:
        """Raises a ValueError with advice if the module breaks the contract."""
        self.check_parameters()
        before = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        outputs = self.outputs(self.num_rows)
        for name, buffer in self.module.named_buffers():
            if not torch.equal(buffer, before[name]):
                raise self.problem(
                    f"forward() changes its buffer {name!r}, but workers and learner share parameters alone, so their "
                    "networks would differ. Use LayerNorm or GroupNorm instead of BatchNorm, and a memory for "
                    "what a network remembers of an episode."
                )
        if not all(are_close(outputs, self.outputs(self.num_rows)) for _ in range(self.num_calls)):
            dropout = [name for name, part in self.module.named_modules() if "Dropout" in type(part).__name__]
            cause = f" It has {', '.join(dropout)}." if dropout else ""
            raise self.problem(
                "forward() gives other results for the same observations in each call, so the learner would see other "
                f"probabilities than the workers.{cause} Leave out what is random; the action distribution "
                "explores."
            )
        if not are_close([output[:1] for output in outputs], self.outputs(1)):
            raise self.problem(
                "forward() gives another result for an observation alone than for the same one in a batch: it mixes "
                "rows. Keep the batch axis first in every operation, as in reshape(x.shape[0], -1) and softmax(-1)."
            )

    def check_parameters(self) -> None:
        parameters = dict(self.module.named_parameters())
        for name, parameter in parameters.items():
            if nn.parameter.is_lazy(parameter):
                raise self.problem(f"its parameter {name!r} has no shape yet. Make its layer with the sizes it has.")
            if parameter.dtype != torch.float32:
                raise self.problem(f"its parameter {name!r} is {parameter.dtype}, but all have to be torch.float32.")
        if not any(parameter.requires_grad for parameter in parameters.values()):
            raise self.problem("it has no parameters to train. Make layers in its constructor, as attributes.")

    @contextlib.contextmanager
    def noting_inputs(self, count: int, inputs) -> Iterator[None]:
        """Adds what forward() was called with to an error that it raises."""
        try:
            yield
        except Exception as error:
            error.add_note(
                f"raised by forward() of the custom {self.name}, which was tried with {count} made-up observations of "
                f"{self.observation_space}: {form_of(inputs)}"
            )
            raise

    def outputs(self, count: int) -> list[Tensor]:
        """Results of the module for the first `count` rows; raises a ValueError if their form is wrong."""
        rows, shapes = self.rows[:count], self.spec.state_shapes
        state = [torch.zeros(count, *shape) for shape in shapes] if shapes else None
        with self.noting_inputs(count, self.called.structure.of_rows(rows)), torch.no_grad():
            returned = self.called.outputs(rows, state)
        names = ["dist_inputs", "values", "state"] if shapes else ["dist_inputs", "values"]
        if not self.spec.critic and not shapes:
            returned, names = (returned[:1] if isinstance(returned, tuple) else (returned,)), names[:1]
        if not isinstance(returned, tuple) or len(returned) != len(names):
            raise self.problem(f"forward() must return ({', '.join(names)}), but returned {form_of(returned)}.")
        self.check_tensor("dist_inputs", returned[0], (count, self.num_outputs), "num_outputs numbers for each row")
        if self.spec.critic:
            self.check_tensor("values", returned[1], (count,), "one number for each row")
        if not shapes:
            return list(returned)
        state = returned[2]
        if not isinstance(state, list | tuple) or len(state) != len(shapes):
            raise self.problem(
                f"the state that forward() returns must be a list of {len(shapes)} tensors like the state of "
                f"initial_state(), but is {form_of(state)}."
            )
        for index, (part, shape) in enumerate(zip(state, shapes)):
            self.check_tensor(f"state[{index}]", part, (count, *shape), "initial_state()'s shape for each row")
        return [returned[0], *state]

    def check_tensor(self, name: str, tensor, shape: tuple[int, ...], meaning: str) -> None:
        if not isinstance(tensor, Tensor) or tensor.dtype != torch.float32 or tensor.shape != shape:
            hint = ""
            if isinstance(tensor, Tensor) and tensor.shape == (*shape, 1):
                hint = f" Return {name}.squeeze(-1)."
            elif isinstance(tensor, Tensor) and (*tensor.shape, 1) == shape:
                hint = f" Return {name}.unsqueeze(-1)."
            elif isinstance(tensor, Tensor) and tensor.shape == shape:
                hint = f" Return {name}.float()."
            raise self.problem(
                f"{name} must be float32{list(shape)} for {shape[0]} observations, {meaning}, but forward() returned "
                f"{form_of(tensor)}.{hint}"
            )
        if not tensor.isfinite().all():
            raise self.problem(
                f"{name} of made-up observations has numbers that are not finite, such as "
                f"{tensor[~tensor.isfinite()][0].item()}. Where an action must not be taken, use "
                "torch.finfo(torch.float32).min instead of -inf."
            )

    def problem(self, what: str) -> ValueError:
        return ValueError(f"the custom {self.name} cannot be used: {what}")


def are_close(some: list[Tensor], others: list[Tensor]) -> bool:
    """Whether the outputs differ by rounding alone."""
    return all(torch.allclose(one, other, rtol=1e-3, atol=1e-4) for one, other in zip(some, others, strict=True))


def form_of(value) -> str:
    """Types and shapes of what a module got or returned: "(float32[2, 4], float32[2])"."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {form_of(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        inner = ", ".join(map(form_of, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return f"{value!r:.60}"
