"""A module that returns actions instead of a policy that is written by hand."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rllib.core.columns import Columns
from rllib.core.modules.module_policy import ModuleBatch, filled, leaves, mapped
from rllib.hand_written import HandWrittenPolicy


class ActingModule(HandWrittenPolicy):
    """A policy that acts by the `forward_exploration` of an RLModule without parameters, and never learns.

    Args:
        observation_space, action_space: as for HandWrittenPolicy. What the module samples from its action space is
            determined by `seed`.
        config: has `module_class`, `model_config`, and what HandWrittenPolicy reads.
    """

    def __init__(self, observation_space: Any = None, action_space: Any = None, config: Any = None):
        super().__init__(observation_space, action_space, config)
        own_space = copy.deepcopy(action_space)
        own_space.seed(int(self.rng.integers(2**31)))
        self._module = self.config["module_class"](
            observation_space=observation_space,
            action_space=own_space,
            inference_only=True,
            learner_only=False,
            model_config=self.config["model_config"],
            catalog_class=None,
        )
        self._initial = mapped(np.asarray, self._module.get_initial_state())

    def compute_actions(self, observations: Sequence, state_batches: Any = None, **kwargs: Any) -> Any:
        batch = ModuleBatch({Columns.OBS: _stacked(observations)})
        if state_batches is not None:
            batch[Columns.STATE_IN] = filled(self._initial, iter(state_batches))
        found = self._module.forward_exploration(batch)
        if not isinstance(found, Mapping) or Columns.ACTIONS not in found:
            raise ValueError(
                f"{type(self._module).__name__}._forward_exploration must return {{{Columns.ACTIONS!r}: ...}}, but "
                f"returned {found!r:.80}. A module with action_dist_inputs is a network: derive it from TorchRLModule."
            )
        actions = _rows(found[Columns.ACTIONS], len(observations))
        if state_batches is None:
            return actions
        return actions, [np.asarray(part) for part in leaves(found[Columns.STATE_OUT])], {}

    def get_initial_state(self) -> list[np.ndarray]:
        return leaves(self._initial)


def _stacked(rows: Sequence) -> Any:
    """Nested arrays [N, ...] of N observations."""
    first = rows[0]
    if isinstance(first, Mapping):
        return {key: _stacked([row[key] for row in rows]) for key in first}
    if isinstance(first, tuple):
        return tuple(_stacked(parts) for parts in zip(*rows))
    return np.stack(rows)


def _rows(actions: Any, count: int) -> list:
    """N actions of nested arrays [N, ...]."""
    return [mapped(lambda leaf, row=row: leaf[row], actions) for row in range(count)]
