"""What a worker adds to a fragment for off-policy learning: the observation that followed each action."""

from dataclasses import dataclass

import numpy as np

from rllib import sample_batch as sb
from rllib.evaluation.fragment import Fragment
from rllib.policy import Policy
from rllib.sample_batch import Column


@dataclass(frozen=True)
class Transitions:
    """Adds the column new_obs, with the true final observation at an episode's end.

    Args:
        shape, dtype: of one stored observation.
    """

    shape: tuple[int, ...]
    dtype: str
    every_final_observation = True

    @property
    def columns(self) -> tuple[Column, ...]:
        """The column new_obs."""
        return (Column(sb.NEXT_OBS, self.shape, self.dtype),)

    def __call__(self, fragment: Fragment, policy: Policy) -> None:
        """Fills it."""
        following = fragment[sb.NEXT_OBS]
        np.copyto(following, fragment.observations[1:])
        for t, i, final in fragment.final_observations:
            following[t, i] = final
