"""The modules that `algo.get_module()` and hooks give: a user's own, or a view of a built-in network."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib.core.columns import Columns
from rllib.policy import Policy


def module_of(policy: Policy) -> Any:
    """The module of a policy, on the policy's own memory: it has the present weights, and later ones as well.

    A network of the user's is the torch module itself, any other a PolicyModule.
    """
    if policy.spec.architecture.is_built_in:
        return PolicyModule(policy)
    import torch

    module = policy.spec.masked_torch(policy.layout, torch.from_numpy(policy.weights), policy.network)
    return policy.spec.masked_opened(module)[0]


def modules_of(policies: Mapping[str, Policy]) -> dict[str, Any]:
    """Policy id -> its module, made when it is looked up."""
    return Modules({policy_id: partial(module_of, policy) for policy_id, policy in policies.items()})


class Modules(dict):
    """Policy id -> what makes its module, which is made when it is looked up."""

    def __getitem__(self, policy_id: str) -> Any:
        return super().__getitem__(policy_id)()


class PolicyModule:
    """A built-in network with the methods of an RLModule.

    Args:
        policy: computes.

    Attributes:
        observation_space, action_space: of the policy.
        model_config: the `model` settings that differ from the defaults.
    """

    framework = "torch"

    def __init__(self, policy: Policy):
        self._policy = policy
        self.observation_space, self.action_space = policy.observation_space, policy.action_space
        self.model_config = dict(policy.config["model"]) if policy.config is not None else {}

    def forward_inference(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        """{"action_dist_inputs": tensor [B, K]} for {"obs": [B, ...]}, observations in the form of the space.

        Raises:
            NotImplementedError: for a policy with a memory.
        """
        import torch

        policy = self._policy
        if policy.state_size:
            raise NotImplementedError(
                "forward passes of a built-in network with a memory are not available. Use "
                "algo.compute_single_action(observation, state), or algo.make_player()."
            )
        rows = policy.filter(self._rows(batch[Columns.OBS]))
        return {Columns.ACTION_DIST_INPUTS: torch.from_numpy(policy.dist_inputs(rows))}

    forward_exploration = forward_train = forward_inference
    _forward_inference = _forward_exploration = _forward_train = forward_inference

    def compute_values(self, batch: Mapping[str, Any], embeddings: Any = None) -> Any:
        """Values, a tensor [B], of observations as for `forward_inference`."""
        import torch

        return torch.from_numpy(self._policy.values(self._policy.filter(self._rows(batch[Columns.OBS]))))

    def get_inference_action_dist_cls(self) -> type:
        """The class of the action distribution: `from_logits(tensor)` makes one."""
        from rllib.core.modules.action_distribution import distribution_class

        return distribution_class(self._policy.distribution, self.action_space)

    get_exploration_action_dist_cls = get_train_action_dist_cls = get_inference_action_dist_cls

    def get_initial_state(self) -> dict:
        """The memory's state before an episode, by the number of its part; empty without a memory."""
        return dict(enumerate(self._policy.get_initial_state()))

    def is_stateful(self) -> bool:
        """Whether there is a memory."""
        return self._policy.state_size > 0

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, np.ndarray]:
        """Name of a parameter -> a copy of it."""
        return self._policy.get_weights()

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes over what `get_state` gave."""
        self._policy.set_weights(state)

    def unwrapped(self) -> "PolicyModule":
        """This module."""
        return self

    def _rows(self, observations: Any) -> np.ndarray:
        """Observations as the policy stores them, before its filter."""
        if isinstance(observations, Mapping | tuple):
            space, count = self.observation_space, len(_first_leaf(observations))
            return np.stack([spaces.flatten(space, _row_of(observations, i)) for i in range(count)]).astype(np.float32)
        rows = np.asarray(observations)
        if self.observation_space is not None and not isinstance(self.observation_space, spaces.Box | spaces.Discrete):
            return np.stack([spaces.flatten(self.observation_space, row) for row in rows]).astype(np.float32)
        return rows.astype(np.float32) if rows.dtype == np.float64 else rows


def _first_leaf(observations: Any) -> Any:
    while isinstance(observations, Mapping | tuple):
        observations = next(iter(observations.values() if isinstance(observations, Mapping) else observations))
    return observations


def _row_of(observations: Any, index: int) -> Any:
    if isinstance(observations, Mapping):
        return {key: _row_of(part, index) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_row_of(part, index) for part in observations)
    return np.asarray(observations[index])
