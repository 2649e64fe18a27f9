"""The policy of a worker for clients that act themselves: its description, its weights as raw numbers, its filter."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib.env.spaces.actions import ActionMapper, StructuredActionMapper, of_each
from rllib.env.spaces.supported import LARGEST_ACTION, mismatch
from rllib.models.observations.masks import LOWEST
from rllib.web.bodies import BadRequest


def array_message(array: np.ndarray) -> dict[str, list]:
    """An array in the form of MessagePack bodies, which `web.bodies.with_arrays` reads."""
    return {"$array": [array.dtype.str, list(array.shape), array.tobytes()]}


@dataclass(frozen=True)
class ActionRows:
    """The form of the actions and distributions that a policy stores, in its own units.

    Attributes:
        shape, dtype: shape and dtype of one action.
        choices: number of choices of each component of an action; () if some components are continuous.
        num_dist_inputs: number of parameters of an action's distribution; 0 if they are not stored.
        mapper: converts actions to the environment's units.
        distribution: distribution of the actions, whose `at` evaluates the parameters; None: they are not checked.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    choices: tuple[int, ...]
    num_dist_inputs: int
    mapper: ActionMapper | StructuredActionMapper
    distribution: Any = None

    def problem(self, actions: Any, dist_inputs: Any, count: int, logged: Collection[int] = ()) -> str | None:
        """Reason why arrays cannot be actions and distribution parameters of `count` steps; None: they can.

        Args:
            actions: [count, *shape].
            dist_inputs: [count, num_dist_inputs], or None if they are not stored.
            logged: indices of the steps whose actions the policy has not chosen.
        """
        wanted = [("actions", actions, self.shape, self.dtype)]
        if self.num_dist_inputs:
            wanted.append(("action_dist_inputs", dist_inputs, (self.num_dist_inputs,), np.dtype(np.float32)))
        for name, array, shape, dtype in wanted:
            if not isinstance(array, np.ndarray) or array.shape != (count, *shape) or array.dtype != dtype:
                got = f"{array.shape} {array.dtype}" if isinstance(array, np.ndarray) else f"{array!r:.40}"
                return f"{name} must be an array {(count, *shape)} of {dtype}, but got {got}"
            # The logits of illegal actions are LOWEST.
            if dtype.kind == "f" and not ((np.abs(array) <= LARGEST_ACTION) | (array == LOWEST)).all():
                return f"{name} has a number that is not finite, or larger than {LARGEST_ACTION:g}"
        if self.choices and (problem := self._unknown_choice(actions.reshape(count, -1))):
            return problem
        has_inputs = self.num_dist_inputs and self.distribution is not None
        if has_inputs and (problem := self._unlikely(actions, dist_inputs, logged)):
            return problem
        if self.choices:
            return None
        if not isinstance(self.mapper, StructuredActionMapper):
            return None  # numbers of a Box, which are clipped to its bounds depending on the settings
        given = enumerate(of_each(self.mapper.space, self.mapper.to_env(actions)))
        problems = (mismatch(self.mapper.space, each, f"actions[{step}]", bounded=False) for step, each in given)
        return next(filter(None, problems), None)

    def _unlikely(self, actions: np.ndarray, dist_inputs: np.ndarray, logged: Collection[int]) -> str | None:
        """Describes an action that its distribution cannot draw: its probability ratio would overflow in a loss."""
        number = math.prod(self.shape)
        with np.errstate(all="ignore"):
            batch = self.distribution.at(dist_inputs)
            log_prob, entropy = np.asarray(batch.log_prob(actions)), np.asarray(batch.entropy())
            is_drawn = np.isfinite(log_prob) & (np.abs(log_prob) <= 100 + 50 * number)
            is_drawn &= -log_prob - entropy <= 60 + 20 * math.sqrt(number)
        is_drawn[list(logged)] = np.isfinite(log_prob[list(logged)])
        if is_drawn.all():
            return None
        step = int(np.argmin(is_drawn))
        return (
            f"actions[{step}] has the log-probability {float(log_prob[step]):g} by action_dist_inputs[{step}]: no "
            'policy draws it. Give the outputs of the network that has acted, or name the step in "logged"'
        )

    def _unknown_choice(self, actions: np.ndarray) -> str | None:
        outside = (actions < 0) | (actions >= np.array(self.choices))
        if not outside.any():
            return None
        step, number = np.argwhere(outside)[0].tolist()
        return (
            f"actions[{step}] chooses {actions[step, number]}, but there are {self.choices[number]} choices, counted "
            "from 0"
        )


@dataclass(frozen=True)
class PublishedPolicy:
    """One version of a policy, in separate memory.

    Attributes:
        edition: number of the publication, by which clients ask for newer ones. A filter also changes without updates.
        version: number of updates of the weights.
        timesteps: number of environment steps of the run so far.
        max_lag_updates: rows by weights that are older by more updates are dropped; None: none are dropped.
        rows: form of the policy's actions.
        weights: float32 [weights], as bytes.
        filters: name -> statistics of the observation filter, as `array_message`; empty without a filter.
        description: the items of policy.json, and of the exploration.
        description_id: hash of description and max_lag_updates, which is the same in all servers.
        refusal: reason why the policy cannot be sent; None: it can.
    """

    edition: int
    version: int
    timesteps: int
    max_lag_updates: int | None
    rows: ActionRows
    weights: bytes
    filters: Mapping[str, Any]
    description: Mapping[str, Any]
    description_id: str = ""
    refusal: str | None = None

    def state(self) -> dict[str, Any]:
        """The parts that change while the policy learns, as a message.

        Raises:
            BadRequest: if the policy cannot be sent.
        """
        if self.refusal is not None:
            raise BadRequest(409, self.refusal)
        size = len(self.weights) // 4
        return {**self.clock(), "weights": {"$array": ["<f4", [size], self.weights]}, "filters": self.filters}

    def clock(self) -> dict[str, Any]:
        """Version, edition and id of the description, and the number of steps that the run has sampled."""
        numbers = {"policy_version": self.version, "edition": self.edition, "timesteps": self.timesteps}
        return {**numbers, "description_id": self.description_id}

    def whole(self) -> dict[str, Any]:
        """All data that acting needs, as a message; errors as for `state`."""
        return {**self.state(), "description": self.description, "max_lag_updates": self.max_lag_updates}
