"""The column eps_id, by which users' loops split batches into episodes."""

import numpy as np

from rllib.evaluation.postprocess.base import Postprocess
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.policy import Policy
from rllib.sample_batch import EPS_ID, TERMINATEDS, TRUNCATEDS, Column


class EpisodeIds(Postprocess):
    """A postprocess that adds the column eps_id, a row's episode, to another postprocess.

    Numbers are unique in a run: environment i of K has the episodes i, i + K, i + 2 K, ...

    Args:
        postprocess: the algorithm's.
        first: index of the worker's first environment, counted over all workers.
        num_envs: environments of the worker.
        total: environments of all workers.
    """

    def __init__(self, postprocess: Postprocess, first: int, num_envs: int, total: int):
        self._postprocess, self._total = postprocess, total
        self._running = np.arange(first, first + num_envs)
        self.columns = (*postprocess.columns, Column(EPS_ID, (), "int64"))
        self.every_final_observation = postprocess.every_final_observation
        self.without_memory, self.make_rows = postprocess.without_memory, postprocess.make_rows

    def __call__(self, fragment: Fragment, policy: Policy) -> None:
        """Fills the columns."""
        self._postprocess(fragment, policy)
        ended = fragment[TERMINATEDS] | fragment[TRUNCATEDS]
        if fragment.gaps is not None:
            ended |= fragment.gaps
        before = np.cumsum(ended, axis=0) * self._total
        fragment[EPS_ID][0] = self._running
        fragment[EPS_ID][1:] = self._running + before[:-1]
        self._running += before[-1]

    def start_over(self) -> None:
        """Begins new episodes in all environments."""
        self._running += self._total
