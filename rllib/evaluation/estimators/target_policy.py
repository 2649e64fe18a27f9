"""The policy whose value is estimated: its probabilities of recorded actions, and its own actions."""

import numpy as np

from rllib.models.distributions.joint_q_values import JointQValues
from rllib.models.distributions.product import Product
from rllib.models.distributions.q_values import LEGAL, QValues
from rllib.models.distributions.standard import Categorical, Deterministic, MultiCategorical
from rllib.policy import Policy

# Rows whose distributions are computed at once.
_ROWS_AT_ONCE = 1 << 12
_EPISODES_AT_ONCE = 64


class TargetPolicy:
    """A policy as it acts when it explores by its own distribution; action values are taken as the greedy policy.

    Args:
        policy: the policy; its noisy layers are without noise.
        epsilon_greedy: share of the steps in which an action is drawn from all legal ones alike (Discrete actions).

    Attributes:
        policy: the policy.
        is_choice: whether an action is one of a few, whose probabilities can all be computed.

    Raises:
        ValueError: for a policy of a group, or epsilon_greedy with other actions.
    """

    def __init__(self, policy: Policy, epsilon_greedy: float = 0.0):
        distribution = policy.distribution
        if isinstance(distribution, JointQValues):
            raise ValueError("a policy of a group has joint actions, whose values are not estimated from recorded data")
        self.policy, self.is_choice = policy, isinstance(distribution, Categorical | QValues)
        if not 0 <= epsilon_greedy <= 1:
            raise ValueError(f"epsilon_greedy={epsilon_greedy!r} must be from 0 to 1")
        if epsilon_greedy and not self.is_choice:
            raise ValueError(
                f"epsilon_greedy={epsilon_greedy} mixes with actions of a Discrete space, but these are of "
                f"{type(distribution).__name__}. Leave it out."
            )
        self._epsilon = epsilon_greedy

    @property
    def has_probabilities(self) -> bool:
        """Whether the policy draws its actions, so that any may have a probability above 0."""
        return not isinstance(self.policy.distribution, Deterministic | QValues)

    def dist_inputs(self, observations: np.ndarray, starts: np.ndarray | None = None) -> np.ndarray:
        """Inputs [N, num_dist_inputs] of the distributions, float32.

        Args:
            observations: [N, *shape] as stored.
            starts: int64 [episodes + 1], rows at which a memory is empty; only asked of policies with one.
        """
        self.policy.silence()
        if not self.policy.state_size:
            return self.policy.dist_inputs(observations)
        parts = []
        for first in range(0, len(starts) - 1, _EPISODES_AT_ONCE):
            some = starts[first : first + _EPISODES_AT_ONCE + 1]
            state = np.zeros((len(some) - 1, self.policy.state_size), np.float32)
            parts.append(self.policy.dist_inputs(observations[some[0] : some[-1]], np.diff(some), state))
        return np.concatenate(parts)

    def log_prob(self, observations: np.ndarray, actions: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Log-probabilities, or log-densities in the policy's units, of actions; float64 [N].

        Args:
            observations: [N, *shape] as stored.
            actions: [N, *action_shape] in the policy's units.
            starts: int64 [episodes + 1].

        Raises:
            ValueError: for a policy that draws nothing.
        """
        if isinstance(self.policy.distribution, Deterministic):
            raise ValueError(
                "this policy is deterministic, so that recorded actions have no probabilities under it, and importance "
                "sampling cannot be used. Use the direct method ('dm')."
            )
        inputs, logs = self.dist_inputs(observations, starts), np.empty(len(actions))
        for first in range(0, len(actions), _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            logs[some] = self._log_prob(inputs[some].astype(np.float64), actions[some])
        return logs

    def _log_prob(self, inputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        if self.is_choice:
            with np.errstate(divide="ignore"):
                return np.log(self.probabilities(inputs)[np.arange(len(actions)), actions])
        distribution = self.policy.distribution
        return distribution.at(inputs).log_prob(actions if actions.dtype.kind == "i" else actions.astype(np.float64))

    def probabilities(self, inputs: np.ndarray) -> np.ndarray:
        """Probabilities [N, actions] of all choices, float64, by the inputs [N, num_dist_inputs] of distributions."""
        distribution = self.policy.distribution
        batch = distribution.at(inputs.astype(np.float64))
        if isinstance(distribution, QValues):
            scores = batch.q_values()
            probabilities = np.zeros(scores.shape)
            probabilities[np.arange(len(scores)), scores.argmax(-1)] = 1
        else:
            scores, probabilities = inputs, batch.probabilities
        legal = scores > LEGAL
        return (1 - self._epsilon) * probabilities + self._epsilon * legal / legal.sum(-1, keepdims=True)

    def draw(self, inputs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One action [N, *action_shape] for each distribution, by its inputs [N, num_dist_inputs]."""
        distribution = self.policy.distribution
        if isinstance(distribution, Deterministic):
            return distribution.mode(inputs)
        return distribution.sample(inputs, distribution.noise(rng, len(inputs)))


def action_rows(distribution, actions: np.ndarray) -> np.ndarray:
    """Stored actions as inputs of a network, float32 [N, width]: choices one-hot, numbers as critics read them."""
    if isinstance(distribution, Product):
        first, parts = 0, []
        for part in distribution.parts:
            last = first + int(np.prod(part.action_shape, dtype=int))
            parts.append(action_rows(part, actions[:, first:last].reshape(len(actions), *part.action_shape)))
            first = last
        return np.concatenate(parts, axis=1)
    if isinstance(distribution, Categorical):
        return np.eye(distribution.num_actions, dtype=np.float32)[actions.astype(np.int64)]
    if isinstance(distribution, MultiCategorical):
        columns = actions.reshape(len(actions), -1).astype(np.int64)
        one_hot = [np.eye(size, dtype=np.float32)[column] for size, column in zip(distribution.sizes, columns.T)]
        return np.concatenate(one_hot, axis=1)
    return distribution.for_critics(actions.astype(np.float32))
