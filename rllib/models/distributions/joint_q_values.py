"""Action values of a group's members as the distribution of its actions: each member's is greedy, or random by chance.

Inputs are the values of the first member's actions, then the second's, and so on; an action is a row of choices.
"""

import functools
from dataclasses import dataclass

import numpy as np

from rllib.models.distributions.base import Distribution
from rllib.models.distributions.q_values import QValues


@dataclass(frozen=True)
class JointQValues(Distribution):
    """Choices of `num_members` members among `num_actions` integers each, independent of one another.

    Attributes:
        num_members: choices in an action.
        num_actions: number of actions of each member.
        masked: some actions may be illegal.
    """

    num_members: int
    num_actions: int
    masked: bool = False
    kind = "joint_epsilon_greedy"
    action_dtype = np.dtype(np.int64)
    has_log_prob = False
    gives_values = False

    @functools.cached_property
    def member(self) -> QValues:
        """The distribution of one member's actions."""
        return QValues(self.num_actions, masked=self.masked)

    @property
    def action_shape(self) -> tuple[int, ...]:
        """(members,)."""
        return (self.num_members,)

    @property
    def num_inputs(self) -> int:
        """Number of network outputs for one action."""
        return self.num_members * self.num_actions

    @property
    def choices(self) -> tuple[tuple[int, int], ...]:
        """Columns (start, stop) of the inputs with the choices of each member."""
        starts = range(0, self.num_inputs, self.num_actions)
        return tuple((start, start + self.num_actions) for start in starts)

    def noise(
        self, rng: np.random.Generator, *shape: int, epsilon: float | np.ndarray = 0.0, temperature: float = 0.0
    ) -> np.ndarray:
        """The noise for `sample`, [*shape, members, actions] float32; arguments as for QValues.

        Each member acts at random by chance, whatever the others do.
        """
        epsilon = np.asarray(epsilon)[..., None]
        return self.member.noise(rng, *shape, self.num_members, epsilon=epsilon, temperature=temperature)

    def sample(self, inputs: np.ndarray, noise: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Actions [B, members]; zeros for noise give the greedy ones."""
        return np.add(self._by_member(inputs), noise).argmax(-1, out=out)

    def mode(self, inputs: np.ndarray) -> np.ndarray:
        """The greedy actions [B, members]."""
        return self._by_member(inputs).argmax(-1)

    def _by_member(self, inputs: np.ndarray) -> np.ndarray:
        return inputs.reshape(len(inputs), self.num_members, self.num_actions)

    def at(self, inputs: np.ndarray) -> "JointQBatch":
        """The values of a batch."""
        return JointQBatch(self._by_member(inputs))

    def torch_at(self, inputs) -> "TorchJointQBatch":
        """As `at`, for a tensor."""
        return TorchJointQBatch(inputs.unflatten(1, (self.num_members, self.num_actions)))


class JointQBatch:
    """Action values of the members in a batch.

    Args:
        values: [B, members, actions].
    """

    def __init__(self, values: np.ndarray):
        self._values = values

    def q_values(self) -> np.ndarray:
        """Q of each member's actions, [B, members, actions]."""
        return self._values

    def chosen(self, actions: np.ndarray) -> np.ndarray:
        """Q [B, members] of the members' actions [B, members]."""
        return np.take_along_axis(self._values, actions[..., None], -1)[..., 0]


class TorchJointQBatch(JointQBatch):
    """JointQBatch of a tensor, for autograd."""

    def chosen(self, actions):
        """Q [B, members] of the members' actions [B, members]."""
        return self._values.gather(-1, actions[..., None])[..., 0]
