"""Base classes for networks written for RLlib's TorchModelV2; such a class is given as model={"custom_model": Class}.

    class Net(TorchModelV2, nn.Module):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name, **custom_model_config):
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            nn.Module.__init__(self)  # without **custom_model_config: model_config["custom_model_config"] has it

        def forward(self, input_dict, state, seq_lens): ...  # -> outputs [B, num_outputs], next state
        def value_function(self): ...  # -> values [B] of the last forward pass

`input_dict` has "obs", the observation in the form of its space with choices one-hot, all float32; "obs_flat", the same
as rows [B, K]; and "is_training". A class needs no base of this file: it is known by its `value_function`.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rllib.models.arithmetic.activations import ACTIVATION_NAMES
from rllib.models.dense.in_torch import ACTIVATIONS
from rllib.models.observations.structure import Structure
from rllib.models.user.user_model import CalledByRows, UserModelSpec

# Added by RLlib's examples to the logits of illegal actions.
FLOAT_MIN, FLOAT_MAX = -3.4e38, 3.4e38


class TorchModelV2:
    """Base of a network besides torch.nn.Module.

    Args:
        obs_space: of flat rows where observations have parts or choices; its original_space is the environment's.
        action_space: space of the environment.
        num_outputs: distribution inputs per row.
        model_config: the `model` settings.
        name: name of the model.
    """

    def __init__(self, obs_space, action_space, num_outputs: int, model_config: Mapping, name: str, **kwargs):
        self.obs_space, self.action_space, self.num_outputs = obs_space, action_space, num_outputs
        self.model_config, self.name, self.framework = model_config, name, "torch"

    def __call__(self, input_dict: Mapping, state: Sequence[Tensor] | None = None, seq_lens=None):
        """Calls `forward`; adds "obs_flat" to input_dict where an enclosing model did not pass it on."""
        given = dict(input_dict)
        given.setdefault("obs_flat", flattened(given["obs"]))
        return self.forward(given, state or [], seq_lens)

    def value_function(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no value_function(), which this algorithm needs")

    def get_initial_state(self) -> list:
        """The state before an episode, without a batch axis; [] without a memory."""
        return []

    def custom_loss(self, policy_loss: Tensor, loss_inputs: Mapping[str, Tensor]) -> Tensor:
        """The loss to minimise instead of the algorithm's; by default that loss."""
        return policy_loss


class RecurrentNetwork(TorchModelV2):
    """A network with a memory: `forward_rnn(inputs [B, T, K], state, seq_lens)` -> outputs [B, T, num_outputs], state.

    It is called for one step at a time, T = 1, in learning as well.
    """

    def forward(self, input_dict: Mapping, state: list[Tensor], seq_lens: Tensor) -> tuple[Tensor, list[Tensor]]:
        output, state = self.forward_rnn(input_dict["obs_flat"][:, None], state, seq_lens)
        return output.reshape(-1, self.num_outputs), state

    def forward_rnn(self, inputs: Tensor, state: list[Tensor], seq_lens: Tensor) -> tuple[Tensor, list[Tensor]]:
        raise NotImplementedError(f"{type(self).__name__} must implement forward_rnn(inputs, state, seq_lens)")


class TorchFC(TorchModelV2, nn.Module):
    """Fully connected layers with a head for outputs and one for values, by the `model` settings.

    Arguments as for TorchModelV2. It reads fcnet_hiddens, fcnet_activation, post_fcnet_hiddens, post_fcnet_activation
    and vf_share_layers. With num_outputs None it outputs the last hidden layer.
    """

    def __init__(self, obs_space, action_space, num_outputs: int | None, model_config: Mapping, name: str):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        get = model_config.get
        layers = [(width, get("fcnet_activation", "tanh")) for width in get("fcnet_hiddens", [])]
        layers += [(width, get("post_fcnet_activation", "relu")) for width in get("post_fcnet_hiddens", [])]
        num_inputs = spaces.flatdim(obs_space)
        width = layers[-1][0] if layers else num_inputs
        self.hidden = _layers(num_inputs, layers)
        self.logits = None if num_outputs is None else _linear(width, num_outputs, 0.01)
        self.num_outputs = width if num_outputs is None else num_outputs
        self.value_hidden = None if get("vf_share_layers", True) else _layers(num_inputs, layers)
        self.value_branch = _linear(width, 1, 1.0)
        self._values: Tensor | None = None

    def forward(self, input_dict: Mapping, state: list, seq_lens) -> tuple[Tensor, list]:
        rows = input_dict["obs_flat"].float()
        features = self.hidden(rows)
        read = features if self.value_hidden is None else self.value_hidden(rows)
        self._values = self.value_branch(read).squeeze(-1)
        return features if self.logits is None else self.logits(features), state

    def value_function(self) -> Tensor:
        return self._values


class _Activation(nn.Module):
    def __init__(self, name: str | None):
        super().__init__()
        self._apply_to = ACTIVATIONS[ACTIVATION_NAMES[name]]

    def forward(self, z: Tensor) -> Tensor:
        return self._apply_to(z)


def _layers(before: int, layers: Sequence[tuple[int, str | None]]) -> nn.Sequential:
    parts: list[nn.Module] = []
    for width, activation in layers:
        parts += [_linear(before, width, math.sqrt(2)), _Activation(activation)]
        before = width
    return nn.Sequential(*parts)


def _linear(before: int, after: int, gain: float) -> nn.Linear:
    """A layer with the initial weights of the built-in networks (models/dense/initializers.py)."""
    layer = nn.Linear(before, after)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def flattened(observation: Any) -> Tensor:
    """Rows float32 [B, K] of all leaves of an observation, in the order of its space."""
    if isinstance(observation, Tensor):
        return observation.reshape(observation.shape[0], -1).float()
    parts = observation.values() if isinstance(observation, Mapping) else observation
    return torch.cat([flattened(part) for part in parts], dim=1)


def preprocessed_space(space: spaces.Space) -> spaces.Space:
    """The space of flat rows that RLlib's preprocessors make, with the `original_space`; a Box is unchanged."""
    if isinstance(space, spaces.Box):
        return space
    flat = spaces.Box(-1.0, 1.0, (spaces.flatdim(space),), np.float32)
    flat.original_space = space
    return flat


# ---------------------------------------------------------------------- the policy of such a network


# Arguments of RLlib's contract, which come by position.
_NUM_ARGUMENTS = 5


def _takes_nothing_further(model: Callable) -> bool:
    """Whether a constructor has the arguments of the contract alone: it reads model_config["custom_model_config"]."""
    try:
        parameters = inspect.signature(model).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = {parameter.kind for parameter in parameters}
    return len(parameters) == _NUM_ARGUMENTS and kinds == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


@dataclass(frozen=True)
class ModelV2Spec(UserModelSpec):
    """The architecture of a network that is a TorchModelV2.

    Attributes:
        model_config: the `model` settings, which its constructor gets.
    """

    model_config: Mapping[str, Any] = field(default_factory=dict)
    structures_one_hot = True

    def construct(self, num_outputs: int) -> nn.Module:
        space = preprocessed_space(self.observation_space)
        given = (space, self.action_space, num_outputs, dict(self.model_config), self.network_name)
        return self.model(*given, **({} if _takes_nothing_further(self.model) else self.config))

    def initial_state_of(self, module: nn.Module) -> list:
        state = module.get_initial_state() if hasattr(module, "get_initial_state") else []
        return [part if isinstance(part, Tensor) else torch.as_tensor(part) for part in state]

    def called(self, module: nn.Module, structure: Structure, has_values: bool) -> "CalledModelV2":
        return CalledModelV2(module, structure, self.state_shapes, has_values)

    @property
    def custom_loss(self) -> Callable | None:
        """The class's change of an algorithm's loss, in the form of the setting custom_loss; None if there is none."""
        own = getattr(self.model, "custom_loss", TorchModelV2.custom_loss)
        return None if own is TorchModelV2.custom_loss else _custom_loss


class CalledModelV2(CalledByRows):
    """Calls a TorchModelV2 for one step, with stored rows."""

    def outputs(self, rows: Tensor, state: list[Tensor] | None = None) -> tuple:
        observation = self.structure.of_rows(rows)
        input_dict = {"obs": observation, "obs_flat": flattened(observation), "is_training": torch.is_grad_enabled()}
        seq_lens = None if state is None else torch.ones(rows.shape[0], dtype=torch.int32, device=rows.device)
        dist_inputs, following = self.module.forward(input_dict, state or [], seq_lens)
        values = self.module.value_function() if self.has_values else dist_inputs.new_zeros(dist_inputs.shape[0])
        return (dist_inputs, values) if state is None else (dist_inputs, values, following)


def _custom_loss(loss: Tensor, minibatch: Mapping, outputs, model) -> Tensor:
    found = model.custom_loss(loss, minibatch)
    return sum(found) if isinstance(found, list | tuple) else found
