"""What workers add to the fragments of a policy."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from rllib.evaluation.postprocess.fragment import Fragment
from rllib.policy import Policy
from rllib.sample_batch import Column


class Postprocess:
    """A function that adds an algorithm's columns to a full fragment, in the worker. This one adds none.

    Attributes:
        columns: the columns that it adds.
        every_final_observation: fragments keep the final observations of terminated episodes as well.
        stores_raw_observations: rows have observations as they are before the policy's filter.
        takes_tensors: whether `of_tensors` does its work on the device of environments that hand over tensors.
        without_memory: why a policy with a memory cannot be trained with it, a clause; empty: it can.
        left_out_by: settings of `.training` without which there is no such postprocess; None: none.
    """

    columns: tuple[Column, ...] = ()
    every_final_observation: bool = False
    stores_raw_observations: ClassVar[bool] = False
    takes_tensors: ClassVar[bool] = False
    without_memory: ClassVar[str] = ""
    left_out_by: ClassVar[Mapping[str, Any] | None] = None

    def __call__(self, fragment: Fragment, policy: Policy) -> None:
        """Fills its columns of the fragment."""

    def make_rows(self, stream: Any, rngs: Sequence[np.random.Generator]) -> Any:
        """Makes what turns the fragments of one worker into rows; None: rows are the fragments' steps.

        Args:
            stream: the worker's environments.
            rngs: a generator for each environment.
        """
        return None

    def of_tensors(self, columns: dict, next_values: Any) -> None:
        """Fills its columns, tensors [T, N], where `takes_tensors`."""

    def start_over(self) -> None:
        """Called where new episodes begin in all environments, after the running ones were dropped."""
