"""TD errors of new rows, which workers compute as the rows' first priorities in a replay.

As in Ape-X (arXiv:1803.00933) they are computed by the worker's weights, which choose and evaluate the next actions:
workers have no target copies. If the target copies have the same weights, the learner computes the same errors.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rllib import sample_batch as sb
from rllib.learners.updates.objective import widths_of
from rllib.losses.loss import Loss
from rllib.losses.td import SoftTargets, bootstrapped, q_targets
from rllib.models.dense.layers_in_numpy import NumpyLayers
from rllib.models.modules import FullyConnected
from rllib.policy import CHUNK, Policy


class TDErrors(Protocol):
    """A picklable function that computes TD errors."""

    def __call__(self, rows: Mapping[str, np.ndarray], policy: Policy) -> np.ndarray:
        """The TD errors, float32 [B], of rows of n steps."""


@dataclass(frozen=True)
class ErrorsOfValues:
    """TD errors of action values.

    Attributes:
        loss: the learner's loss.
        soft: computes the targets, as the learner does; None: they are those of the best action.
    """

    loss: Loss
    soft: SoftTargets | None = None

    def __call__(self, rows: Mapping[str, np.ndarray], policy: Policy) -> np.ndarray:
        return _in_chunks(rows, lambda chunk: self._of(chunk, policy))

    def _of(self, rows: dict[str, np.ndarray], policy: Policy) -> np.ndarray:
        judged = policy.action_values(rows[sb.NEXT_OBS])
        returns = rows[sb.REWARDS], rows[sb.DISCOUNTS]
        if self.soft:
            before = policy.action_values(rows[sb.OBS])
            name, targets = self.soft.targets(policy.distribution, before, judged, rows[sb.ACTIONS], *returns)
        else:
            name, targets = q_targets(policy.distribution, judged, judged.q_values(), *returns)
        outputs = policy.network.forward(policy.encode(rows[sb.OBS]))[0], None
        minibatch = {name: targets, sb.ACTIONS: rows[sb.ACTIONS], sb.WEIGHTS: np.ones(len(targets), np.float32)}
        _, _, (errors,) = self.loss.numpy(policy.distribution, outputs, minibatch)
        return errors


@dataclass(frozen=True)
class ErrorsOfCritics:
    """TD errors of a deterministic policy's critics, whose weights are in the policy's snapshot (Snapshot.modules).

    The mean over the critics of |Q_i(s, a) - y|, where y = r + gamma^k min_i Q_i(s', pi(s')).

    Attributes:
        name: name of the critics among the modules.
        critics: describes their networks.
    """

    name: str
    critics: FullyConnected

    def __call__(self, rows: Mapping[str, np.ndarray], policy: Policy) -> np.ndarray:
        critics = self.critics.numpy(self.critics.layout(widths_of(policy)), policy.modules[self.name])
        return _in_chunks(rows, lambda chunk: self._of(chunk, policy, critics))

    def _of(self, rows: dict[str, np.ndarray], policy: Policy, critics: NumpyLayers) -> np.ndarray:
        following = policy.encode(rows[sb.NEXT_OBS])
        actions = policy.distribution.mode(policy.network.forward_policy(following))
        targets = bootstrapped(rows[sb.REWARDS], rows[sb.DISCOUNTS], critics.forward(following, actions).min(0))
        values = critics.forward(policy.encode(rows[sb.OBS]), policy.distribution.for_critics(rows[sb.ACTIONS]))
        return np.abs(values - targets).mean(0)


def _in_chunks(rows: Mapping[str, np.ndarray], errors_of: Callable[[dict[str, np.ndarray]], np.ndarray]) -> np.ndarray:
    errors = np.empty(len(rows[sb.REWARDS]), np.float32)
    for start in range(0, len(errors), CHUNK):
        part = slice(start, start + CHUNK)
        errors[part] = errors_of({name: column[part] for name, column in rows.items()})
    return errors
