"""Base classes of networks that are written for RLlib's new API stack.

    class Net(TorchRLModule, ValueFunctionAPI):
        def setup(self):
            self.hidden = nn.Linear(self.observation_space.shape[0], self.model_config["width"])
            self.policy, self.value = nn.Linear(..., self.action_space.n), nn.Linear(..., 1)

        def _forward(self, batch, **kwargs):
            return {Columns.ACTION_DIST_INPUTS: self.policy(torch.tanh(self.hidden(batch[Columns.OBS])))}

        def compute_values(self, batch, embeddings=None):
            return self.value(torch.tanh(self.hidden(batch[Columns.OBS]))).squeeze(-1)

    config.rl_module(rl_module_spec=RLModuleSpec(module_class=Net, model_config={"width": 64}))

A module with a memory has `get_initial_state()`, a dict of float32 zeros without a batch axis; its batches have
`state_in`, such a dict of tensors [B, ...], and observations [B, T, ...], and it returns `state_out`.
"""

import os
from abc import ABCMeta
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rllib.core.modules.action_distribution import distribution_class
from rllib.core.modules.module_of_policy import PolicyModule, module_of, modules_of
from rllib.core.modules.module_policy import ModulePolicySpec, leaves
from rllib.did_you_mean import misspelt_override
from rllib.models.user.user_model import UserModelSpec
from rllib.policy import Policy
from rllib.storage.ray_parts import networks_of

_NOT_GIVEN: Any = object()


# Methods of a module that its class overrides.
OVERRIDDEN = ("_forward", "_forward_exploration", "_forward_inference", "_forward_train", "get_initial_state")


class RLModule(metaclass=ABCMeta):  # noqa: B024 (for `register`)
    """A network with three forward passes. Networks that a run trains derive from TorchRLModule.

    A module that is no TorchRLModule returns `actions` instead: among several agents it acts, and does not learn.

    Args:
        config: without effect; RLlib's constructor has it.
        observation_space, action_space: spaces of the policy.
        inference_only: a run always gives False.
        learner_only: a run always gives False.
        model_config: settings of the module.
        catalog_class: refused.
        kwargs: further arguments, without effect.

    Attributes:
        observation_space, action_space, inference_only, learner_only, model_config: see the arguments.
    """

    framework: ClassVar[str | None] = None
    # How a policy is made of it (models/catalog/catalog.py).
    policy_description: ClassVar[type[UserModelSpec]] = ModulePolicySpec

    def __init__(
        self,
        config: Any = _NOT_GIVEN,
        *,
        observation_space: Any = None,
        action_space: Any = None,
        inference_only: bool | None = None,
        learner_only: bool = False,
        model_config: Any = None,
        catalog_class: type | None = None,
        **kwargs: Any,
    ):
        self.observation_space: Any = observation_space
        self.action_space: Any = action_space
        self.inference_only, self.learner_only = bool(inference_only), learner_only
        self.model_config: Any = {} if model_config is None else model_config
        self.setup()

    def setup(self) -> None:
        """Makes the layers; called by the constructor, when the attributes are set."""

    @property
    def catalog(self) -> Any:
        """Raises a NotImplementedError: there are no catalogs."""
        raise NotImplementedError(
            f"{type(self).__name__} reads self.catalog, but there are no catalogs here. Make the layers in setup(), "
            "with torch.nn."
        )

    @staticmethod
    def from_checkpoint(path: str | os.PathLike, *, load_user_code: bool = False) -> Any:
        """The module of a policy in a checkpoint, with its weights; of several policies a dict by id.

        Args:
            path: path of an algorithm's checkpoint, or as Ray writes a part of it,
                CHECKPOINT/learner_group/learner/rl_module/POLICY.
            load_user_code: as for `Policy.from_checkpoint`.

        Raises:
            CheckpointError: as for `Policy.from_checkpoint`.
            KeyError: if there is no such policy.
        """
        part = networks_of(path)
        policies = Policy.from_checkpoint(part.checkpoint if part else path, load_user_code=load_user_code)
        if isinstance(policies, Policy):
            return module_of(policies)
        wanted = part.policy_id if part else None
        if wanted is None and len(policies) > 1:
            return modules_of(policies)
        if wanted is not None and wanted not in policies:
            raise KeyError(f"the checkpoint {part.checkpoint} has no policy {wanted!r}: it has {', '.join(policies)}")
        return module_of(next(iter(policies.values())) if wanted is None else policies[wanted])

    # ------------------------------------------------------------------ forward passes

    def _forward(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__} must define _forward(self, batch, **kwargs)")

    def _forward_inference(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._forward(batch, **kwargs)

    def _forward_exploration(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._forward(batch, **kwargs)

    def _forward_train(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._forward(batch, **kwargs)

    def forward_inference(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Results for acting without exploration."""
        return self._forward_inference(batch, **kwargs)

    def forward_exploration(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Results for acting."""
        return self._forward_exploration(batch, **kwargs)

    def forward_train(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Results for learning, with gradients."""
        return self._forward_train(batch, **kwargs)

    # ------------------------------------------------------------------ memory

    def get_initial_state(self) -> Any:
        """The state before an episode; empty without a memory."""
        return {}

    def is_stateful(self) -> bool:
        """Whether there is a memory."""
        return bool(leaves(self.get_initial_state()))

    def unwrapped(self) -> "RLModule":
        """This module."""
        return self


class TorchRLModule(nn.Module, RLModule):
    """An RLModule in torch; arguments as for RLModule.

    Attributes:
        action_distribution: describes the distribution of its actions, where a policy was made of it.

    Raises:
        TypeError: for a class with a method that has almost the name of one to override.
    """

    framework = "torch"
    action_distribution: Any = None

    def __init__(self, *args: Any, **kwargs: Any):
        if problem := misspelt_override(type(self), TorchRLModule, OVERRIDDEN):
            raise TypeError(problem)
        nn.Module.__init__(self)
        RLModule.__init__(self, *args, **kwargs)

    def forward(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        """`forward_train`."""
        return self.forward_train(batch, **kwargs)

    def forward_inference(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Results for acting without exploration, without gradients."""
        with torch.no_grad():
            return self._forward_inference(batch, **kwargs)

    def forward_exploration(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Results for acting, without gradients."""
        with torch.no_grad():
            return self._forward_exploration(batch, **kwargs)

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, np.ndarray]:
        """Name of a parameter -> a copy of it."""
        return {name: part.detach().cpu().numpy().copy() for name, part in self.state_dict().items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes over what `get_state` gave."""
        self.load_state_dict({name: torch.as_tensor(part) for name, part in state.items()})

    def get_inference_action_dist_cls(self) -> type:
        """The class of the action distribution: `from_logits(tensor)` makes one."""
        return self._distribution_class()

    def get_exploration_action_dist_cls(self) -> type:
        """As `get_inference_action_dist_cls`."""
        return self._distribution_class()

    def get_train_action_dist_cls(self) -> type:
        """As `get_inference_action_dist_cls`."""
        return self._distribution_class()

    def _distribution_class(self) -> type:
        return distribution_class(self.action_distribution, self.action_space)


# ---------------------------------------------------------------------- further interfaces


# In RLlib a built-in network is a module in torch like any other.
TorchRLModule.register(PolicyModule)


class ValueFunctionAPI:
    """A module with values next to the policy, as PPO, A2C, IMPALA and APPO need them."""

    def compute_values(self, batch: Mapping[str, Any], embeddings: Any = None) -> Tensor:
        """Values [B], with a memory [B, T].

        Args:
            batch: as for the forward passes.
            embeddings: `embeddings` of the forward pass, where it returned them.
        """
        raise NotImplementedError(f"{type(self).__name__} must define compute_values(self, batch, embeddings=None)")


class QNetAPI:
    """A module with action values, as DQN reads them."""

    def compute_q_values(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        """{"qf_preds": [B, num_actions]}."""
        raise NotImplementedError(f"{type(self).__name__} must define compute_q_values(self, batch)")


class InferenceOnlyAPI:
    """A module with parts that acting does not need; workers have them all the same."""

    def get_non_inference_attributes(self) -> list[str]:
        """Names of these parts; without effect."""
        return []


class TargetNetworkAPI:
    """A module that makes target networks itself; an algorithm here copies the whole network, so nothing is called."""

    def make_target_networks(self) -> None:
        """Without effect."""
