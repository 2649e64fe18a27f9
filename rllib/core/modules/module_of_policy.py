"""The modules that `algo.get_module()` and hooks give: a user's own, or a view of a built-in network."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib.compat.names import absent
from rllib.core.columns import Columns
from rllib.did_you_mean import explains
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


@explains(absent.MODULE)
class PolicyModule:
    """A built-in network with the methods of an RLModule.

    Args:
        policy: computes.

    Attributes:
        observation_space, action_space: spaces of the policy.
        model_config: the `model` settings that differ from the defaults.
    """

    framework = "torch"

    def __init__(self, policy: Policy):
        self._policy = policy
        self.observation_space, self.action_space = policy.observation_space, policy.action_space
        self.model_config = dict(policy.config["model"]) if policy.config is not None else {}

    def forward_inference(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        """{"action_dist_inputs": tensor [B, K]} for {"obs": [B, ...]}, observations in the form of the space.

        With a memory the batch has "state_in" as well, the "state_out" of the step before, or `get_initial_state` with
        an axis [B] in front; observations are [B, T, ...], or [B, ...] for one step, and so are the results, without
        gradient.

        Raises:
            KeyError: for a policy with a memory, if the batch has no state.
            ValueError: for a state of another form.
        """
        import torch

        policy, observations = self._policy, batch[Columns.OBS]
        if policy.state_size:
            return self._forward_with_memory(observations, self._state_in(batch))
        rows = policy.filter(self._rows(observations))
        return {Columns.ACTION_DIST_INPUTS: torch.from_numpy(policy.dist_inputs(rows))}

    def _forward_with_memory(self, observations: Any, state: np.ndarray) -> dict[str, Any]:
        """`forward_inference` from states [B, state_size]."""
        import torch

        policy, has_time = self._policy, self._has_time(observations)
        num_steps = _first_leaf(observations).shape[1] if has_time else 1
        once = np.ones(len(state), np.int64)
        outputs = []
        for t in range(num_steps):
            rows = policy.filter(self._rows(_at_step(observations, t) if has_time else observations))
            outputs.append(policy.dist_inputs(rows, once, state))
            state = policy.state_after(rows[:, None], once, state)
        dist_inputs = np.stack(outputs, axis=1) if has_time else outputs[0]
        parts = map(torch.from_numpy, policy.state_parts(state))
        return {Columns.ACTION_DIST_INPUTS: torch.from_numpy(dist_inputs), Columns.STATE_OUT: dict(enumerate(parts))}

    def _state_in(self, batch: Mapping[str, Any]) -> np.ndarray:
        """States [B, state_size] of a batch."""
        if Columns.STATE_IN not in batch:
            raise KeyError(
                f"the network has a memory: the batch needs {Columns.STATE_IN!r}, the {Columns.STATE_OUT!r} of the step"
                " before, or get_initial_state() with an axis of the batch in front"
            )
        return self._policy.joined_state([np.asarray(part) for part in batch[Columns.STATE_IN].values()])

    def _has_time(self, observations: Any) -> bool:
        """Whether observations have a time axis behind that of the batch."""
        space = self.observation_space
        while isinstance(observations, Mapping | tuple):
            key = next(iter(observations)) if isinstance(observations, Mapping) else 0
            observations, space = observations[key], space[key]
        return np.ndim(observations) > len(space.shape) + 1

    forward_exploration = forward_train = forward_inference
    _forward_inference = _forward_exploration = _forward_train = forward_inference

    def compute_values(self, batch: Mapping[str, Any], embeddings: Any = None) -> Any:
        """Values, a tensor [B], of observations of one step, as for `forward_inference`."""
        import torch

        rows = self._policy.filter(self._rows(batch[Columns.OBS]))
        state = self._state_in(batch) if self._policy.state_size else None
        return torch.from_numpy(self._policy.values(rows, state))

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

    def state_dict(self) -> dict[str, Any]:
        """`get_state` with tensors, for torch.save; they are copies."""
        import torch

        return {name: torch.from_numpy(array) for name, array in self.get_state().items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        self.set_state({name: np.asarray(tensor) for name, tensor in state_dict.items()})

    def eval(self) -> "PolicyModule":
        """This module, which computes the same in training and acting."""
        return self

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


def _at_step(observations: Any, t: int) -> Any:
    """Observations [B, ...] of one step, of those [B, T, ...]."""
    if isinstance(observations, Mapping):
        return {key: _at_step(part, t) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_at_step(part, t) for part in observations)
    return observations[:, t]


def _row_of(observations: Any, index: int) -> Any:
    if isinstance(observations, Mapping):
        return {key: _row_of(part, index) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_row_of(part, index) for part in observations)
    return np.asarray(observations[index])
