"""A policy as one torch module, from the environment's observations to its actions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rllib.algorithms.base.algorithm import Algorithm
from rllib.env.tensors.spaces import TensorColumn, maps_tensors, tensor_action_mapper
from rllib.models.dense.noisy import NoisyLayout
from rllib.models.observations.flat_spaces import flat_leaves, is_under, next_to_zero, parts
from rllib.models.observations.in_torch import MaskedModule, TensorFilter
from rllib.models.tensors import encoded, mode

OBSERVATION, STATE_IN = "obs", "state_in"
ACTION, DIST_INPUTS, VALUE, STATE_OUT = "action", "action_dist_inputs", "value", "state_out"
# The only output, as programs of robots that were trained by rsl_rl call it.
ACTIONS = "actions"
# Advice where a policy cannot be exported.
WHERE_RLLIB_IS = "Where rllib is installed, rllib.load_policy(CHECKPOINT) and `rllib serve CHECKPOINT` act with it."


class ExportError(ValueError):
    """Error for a policy that cannot be exported, or an export that differs from the policy.

    Attributes:
        is_difference: whether an export differs from the policy.
    """

    is_difference = False


@dataclass(frozen=True)
class Port:
    """An input or an output of an exported policy.

    Attributes:
        name: name of the tensor.
        shape: shape of one row, without the batch's dimension.
        dtype: dtype of the tensor.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


class ExportedPolicy(nn.Module):
    """An algorithm's policy without exploration, for batches of any size; a program of it needs torch alone.

    It contains the encoding of observations, the observation filter, the mask of legal actions, the network with its
    memory, the choice of the most probable action and the mapping to the environment's bounds.

    Args:
        algorithm: has the policy.
        policy_id: id of the policy.
        only_actions: "actions" is the only output, and an observation that has one part is the input "obs".

    Attributes:
        action: name of the output of actions.
        space: space of the observations.
        inputs: ports in the order of the arguments: each part of the observation that the policy reads (Dict and Tuple
            observations have several; a mask that the environment gives with its observations is one of them), then
            the memory's state.
        outputs: ports in the order of the results; the value is among them if it reads the same parts as the policy.

    Raises:
        ExportError: for a policy with parts that cannot be a torch program.
    """

    def __init__(self, algorithm: Algorithm, policy_id: str, only_actions: bool = False):
        super().__init__()
        policy, config = algorithm._network(policy_id), algorithm.config
        own = policy.observation_space, policy.action_space
        # A policy that was added by hand has the spaces of the environment.
        space, action_space = (algorithm.observation_space, algorithm.action_space) if None in own else own
        _check(policy, action_space, only_actions)
        self.space, self._encoder, self._distribution = space, policy.spec.encoder, policy.distribution
        self._column, self._filter = TensorColumn(space), None
        if policy.filters_observations:
            self._filter = TensorFilter(policy.filter, torch.device("cpu"))
            self._filter.load(policy.filter.get_state())
        # In a list: its parameters are views of one vector, and become constants of a program.
        self._network = [_network(policy)]
        mapping = config.normalize_actions, config.clip_actions
        self._mapper = tensor_action_mapper(action_space, policy.distribution, *mapping, "cpu")
        # For each part of the observation what represents it where the value alone reads it; None: there is an input.
        self._fillers = [
            torch.as_tensor(next_to_zero(leaf.space)) if is_under(leaf, config.keys_of_value) else None
            for leaf in flat_leaves(space)
        ]
        self._has_memory = bool(policy.state_size)
        self._has_value = policy.spec.critic and all(filler is None for filler in self._fillers)
        self.inputs = self.of_policy(input_ports(space))
        self.action, self._only_actions = ACTIONS if only_actions else ACTION, only_actions
        self.outputs = [Port(self.action, tuple(action_space.shape), np.dtype(action_space.dtype).name)]
        if only_actions:
            if len(self.inputs) == 1:
                self.inputs = [replace(self.inputs[0], name=OBSERVATION)]
            return
        self.outputs.append(Port(DIST_INPUTS, (policy.num_dist_inputs,), "float32"))
        if self._has_value:
            self.outputs.append(Port(VALUE, (), "float32"))
        if self._has_memory:
            self.inputs.append(Port(STATE_IN, (policy.state_size,), "float32"))
            self.outputs.append(Port(STATE_OUT, (policy.state_size,), "float32"))

    def of_policy(self, of_leaves: Iterable) -> list:
        """The parts of an observation that are inputs, of those in the order of `values_of_leaves`."""
        return [each for each, filler in zip(of_leaves, self._fillers, strict=True) if filler is None]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs [B, *shape] of the inputs [B, *shape]."""
        observations = inputs[:-1] if self._has_memory else inputs
        rows = encoded(self._encoder, self._filtered(self._stored(observations)))
        if self._has_memory:
            dist_inputs, values, state = self._network[0].step(rows, inputs[-1])
        else:
            dist_inputs, values = self._network[0](rows)
        action = self._mapper.to_env(mode(self._distribution, dist_inputs))
        if self._only_actions:
            return (action,)
        outputs = action, dist_inputs, *((values,) if self._has_value else ())
        return (*outputs, state) if self._has_memory else outputs

    def _stored(self, observations: Sequence[Tensor]) -> Tensor:
        first, column = observations[0], self._column
        rows = first.new_empty((first.shape[0], *column.shape), dtype=getattr(torch, column.dtype))
        given, count = iter(observations), first.shape[0]
        values = (next(given) if each is None else each.expand(count, *each.shape) for each in self._fillers)
        column.write(_structured(self.space, values), rows)
        return rows

    def _filtered(self, rows: Tensor) -> Tensor:
        if self._filter is None:
            return rows
        out = torch.empty_like(rows, dtype=torch.float32)
        self._filter.write(rows, out)
        return out


def input_ports(space: spaces.Space, name: str = OBSERVATION) -> Iterator[Port]:
    """Yields the inputs of an observation: "obs", or "obs.KEY" for each part of a Dict or Tuple.

    They have the order of `flat_spaces.values_of_leaves`.
    """
    inner = parts(space)
    if inner is None:
        choices = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
        dtype = "int64" if choices else "float32" if space.dtype == np.float64 else space.dtype.name
        yield Port(name, tuple(space.shape), dtype)
    for key, part in inner or ():
        yield from input_ports(part, f"{name}.{key}")


def _structured(space: spaces.Space, leaves: Iterator[Tensor]):
    inner = parts(space)
    if inner is None:
        return next(leaves)
    values = {key: _structured(part, leaves) for key, part in inner}
    return values if isinstance(space, spaces.Dict) else tuple(values.values())


def _check(policy, action_space: spaces.Space, only_actions: bool) -> None:
    problem = None
    if only_actions and policy.state_size:
        raise ExportError(
            "this policy has a memory, whose state is an input and an output, and here actions are to be the only "
            "output. Write it with all outputs, as a torch program (format 'torch', with a name that ends in .pt2) or "
            "as an ONNX graph ('onnx', .onnx)."
        )
    if not maps_tensors(action_space):
        problem = f"its actions are of the space {action_space}"
    elif not hasattr(policy.spec, "torch") or not hasattr(policy.layout, "named_parameters"):
        problem = "its network is not described by its settings"
    elif not _has_mode(policy.distribution):
        problem = f"its actions follow a {type(policy.distribution).__name__}"
    if problem:
        raise ExportError(f"this policy cannot be exported: {problem}. {WHERE_RLLIB_IS}")


def _has_mode(distribution) -> bool:
    try:
        mode(distribution, torch.zeros(1, distribution.num_inputs))
    except TypeError:
        return False
    return True


def _network(policy) -> nn.Module:
    """Makes the policy's torch module on a copy of its weights without parameter noise."""
    spec, layout, weights = policy.spec, policy.layout, torch.from_numpy(policy.weights.copy())
    if isinstance(layout, NoisyLayout):
        layout, weights = layout.plain, weights[: layout.plain.size].clone()
    module = spec.torch(layout, weights, None)
    if spec.is_masked:
        module = MaskedModule(module, spec.encoder, spec.distribution)
    for leaf in module.leaves:
        leaf.requires_grad_(False)
    return module.eval()
