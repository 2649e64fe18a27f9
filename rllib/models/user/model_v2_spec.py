"""Policies whose network is shaped like RLlib's TorchModelV2 (user/model_v2.py): an adapter to own_model.py."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from rllib.models.observations.structure import Structure
from rllib.models.user.model_v2 import TorchModelV2, flattened, preprocessed_space
from rllib.models.user.own_model import CalledByRows, OwnModelSpec


@dataclass(frozen=True)
class ModelV2Spec(OwnModelSpec):
    """Describes a policy whose network is a TorchModelV2.

    Attributes:
        model_config: the `model` settings, which its constructor gets.
    """

    model_config: Mapping[str, Any] = field(default_factory=dict)
    structures_one_hot = True

    def construct(self) -> nn.Module:
        space, outputs = preprocessed_space(self.observation_space), self.distribution.num_inputs
        return self.model(space, self.action_space, outputs, dict(self.model_config), self.network_name, **self.config)

    def initial_state_of(self, module: nn.Module) -> list:
        state = module.get_initial_state() if hasattr(module, "get_initial_state") else []
        return [part if isinstance(part, Tensor) else torch.as_tensor(part) for part in state]

    def called(self, module: nn.Module, structure: Structure) -> "CalledModelV2":
        return CalledModelV2(module, structure, self.state_shapes, self.critic)

    @property
    def custom_loss(self) -> Callable | None:
        """What the class does to the loss of an algorithm, in the form of the setting custom_loss."""
        own = getattr(self.model, "custom_loss", TorchModelV2.custom_loss)
        return None if own is TorchModelV2.custom_loss else _custom_loss


class CalledModelV2(CalledByRows):
    """Calls a TorchModelV2 for one step, with stored rows."""

    def outputs(self, rows: Tensor, state: list[Tensor] | None = None) -> tuple:
        observation = self.structure.of_rows(rows)
        input_dict = {"obs": observation, "obs_flat": flattened(observation), "is_training": torch.is_grad_enabled()}
        seq_lens = None if state is None else torch.ones(len(rows), dtype=torch.int32, device=rows.device)
        dist_inputs, following = self.module.forward(input_dict, state or [], seq_lens)
        values = self.module.value_function() if self.has_values else dist_inputs.new_zeros(len(dist_inputs))
        return (dist_inputs, values) if state is None else (dist_inputs, values, following)


def _custom_loss(loss: Tensor, minibatch: Mapping, outputs, model) -> Tensor:
    found = model.custom_loss(loss, minibatch)
    return sum(found) if isinstance(found, list | tuple) else found
