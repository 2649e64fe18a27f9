"""Hindsight experience replay (Andrychowicz et al., arXiv:1707.01495): rows with goals that an episode has achieved.

When an episode is over, each of its steps becomes 1 + k rows: the one that happened, and k in which the desired
goal is one that the episode has achieved. So a failed episode teaches how to reach the states that it did reach.

Where the environment can say it (compute_terminated), the task ends for these rows where their goal is achieved. A row
keeps its goal, as in the paper's algorithm 1; Stable-Baselines3 draws another one whenever a row is sampled, and its
replay holds a step once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rllib import sample_batch as sb
from rllib.env.spaces.goals import REWARD, TERMINATED, Goals
from rllib.env.streams.base import EnvironmentStream
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.postprocess.transitions import OF_THE_END, Transitions, n_step_returns
from rllib.policy import Policy
from rllib.sample_batch import SampleBatch

# Sources of goals: achieved at or after the step, in the episode's last step, or anywhere in the episode.
FUTURE, FINAL, EPISODE = "future", "final", "episode"
STRATEGIES = (FUTURE, FINAL, EPISODE)
# Of a running episode: steps at which a time limit ends it for every goal.
_LIMITED = "time_limits"

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class HindsightTransitions(Transitions):
    """A postprocess that makes rows of n steps of whole episodes, with k other goals for each step.

    Args:
        goals: places of the goals in observations.
        num_goals: k.
        strategy: source of the goals, one of STRATEGIES.
    """

    goals: Goals
    num_goals: int
    strategy: str
    # An observation filter is applied to rows when their goals stand: goals are in the environment's units until then.
    stores_raw_observations = True

    def make_rows(self, stream: EnvironmentStream, rngs: Sequence[np.random.Generator]) -> "HindsightRows":
        """Makes rows from the fragments of one worker."""
        return HindsightRows(self, stream, rngs)

    def chosen(self, num_steps: int, rng: np.random.Generator) -> np.ndarray:
        """For each step of an episode the k steps [T, k] whose achieved goals it gets; a step's own is among them."""
        last = num_steps - 1
        if self.strategy == FINAL:
            return np.full((num_steps, self.num_goals), last)
        first = np.arange(num_steps)[:, None] if self.strategy == FUTURE else 0
        drawn = first + (rng.random((num_steps, self.num_goals)) * (num_steps - first)).astype(np.int64)
        return np.minimum(drawn, last)  # a product may be rounded up


class HindsightRows:
    """Rows from the episodes that end in the fragments of one worker; running ones wait for the next fragment.

    Args:
        settings: see HindsightTransitions.
        stream: the environments, which give the rewards of other goals.
        rngs: random generators of each environment; draws its goals, when an episode is over.
    """

    def __init__(self, settings: HindsightTransitions, stream: EnvironmentStream, rngs: Sequence[np.random.Generator]):
        self._settings, self._stream, self._rngs = settings, stream, rngs
        self._infos = [column.name for column in stream.info_columns if not column.before_action]
        # The parts [t, ...] of each environment's running episode, by column.
        self._running: list[list[Columns]] = [[] for _ in rngs]

    def of(self, fragment: Fragment, policy: Policy, policy_version: int, has_gaps: bool) -> SampleBatch:
        """The rows of the episodes that end here, environment by environment; arguments as for NStepRows.of."""
        rows = [
            self._filtered(self._rows(episode, i), policy, i)
            for i in range(fragment.num_envs)
            for episode in self._ended(fragment, i)
        ]
        none = {name: column[:0, 0].copy() for name, column in fragment.columns.items()}
        batch = SampleBatch.concat([SampleBatch(each) for each in rows or [none]])
        batch.policy_version = policy_version
        return batch

    def _ended(self, fragment: Fragment, i: int) -> Iterator[Columns]:
        """The episodes [T, ...] of environment i that end in this fragment, or with a step that is no transition."""
        ended = (fragment[sb.TERMINATEDS] | fragment[sb.TRUNCATEDS])[:, i]
        is_gap = np.zeros_like(ended) if fragment.valid is None else ~fragment.valid[:, i]
        limits = np.zeros_like(fragment[sb.TERMINATEDS]) if fragment.time_limits is None else fragment.time_limits
        columns = {**fragment.columns, _LIMITED: limits}
        start = 0
        for t in np.flatnonzero(ended | is_gap).tolist():
            stop = t if is_gap[t] else t + 1
            parts = [*self._running[i], {name: column[start:stop, i] for name, column in columns.items()}]
            self._running[i], start = [], t + 1
            episode = {name: np.concatenate([part[name] for part in parts]) for name in columns}
            if len(episode[sb.REWARDS]):
                yield episode
        if start < fragment.num_steps:
            rest = slice(start, fragment.num_steps)
            self._running[i].append({name: column[rest, i].copy() for name, column in columns.items()})

    def _rows(self, episode: Columns, i: int) -> Columns:
        """The rows [T * (1 + k), ...] of an episode of environment i: step by step, the one that happened first."""
        settings, goals = self._settings, self._settings.goals
        num_steps, num_rows = len(episode[sb.REWARDS]), 1 + settings.num_goals
        start = np.repeat(np.arange(num_steps), num_rows)
        is_new = np.arange(len(start)) % num_rows > 0
        achieved = episode[sb.NEXT_OBS][:, goals.achieved]
        desired = achieved[settings.chosen(num_steps, self._rngs[i]).ravel()]  # of the new rows
        # The n steps of each row's window, [n, rows]; those behind the episode's end do not count.
        window = start + np.arange(min(settings.n_step, num_steps))[:, None]
        steps = np.minimum(window, num_steps - 1)
        flags = episode[sb.TERMINATEDS][steps], episode[sb.TRUNCATEDS][steps]
        rewards, (terminateds, _) = episode[sb.REWARDS][steps], flags
        of_new = steps[:, is_new]
        wanted = np.broadcast_to(desired, (len(window), *desired.shape)).reshape(-1, desired.shape[1])
        env, infos = self._environment(i), self._infos_of(episode, of_new.ravel())
        limits = episode[_LIMITED]
        for method, column in ((REWARD, rewards), (TERMINATED, terminateds)):
            computed = goals.computed(env, method, achieved[of_new.ravel()], wanted, infos)
            if computed is not None:
                column[:, is_new] = computed.reshape(of_new.shape)
        terminateds |= limits[steps]
        returns, discounts, last = n_step_returns(rewards, *flags, settings.gamma, settings.n_step, window < num_steps)
        end = start + last[0]
        rows = {name: column[end if name in OF_THE_END else start] for name, column in episode.items()}
        del rows[_LIMITED]
        rows[sb.REWARDS], rows[sb.DISCOUNTS] = returns[0].astype(np.float32), discounts[0].astype(np.float32)
        rows[sb.TERMINATEDS] = terminateds[last[0], np.arange(len(start))]
        for name in (sb.OBS, sb.NEXT_OBS):
            rows[name][is_new, goals.desired] = desired
        return rows

    def _filtered(self, rows: Columns, policy: Policy, i: int) -> Columns:
        """The rows of environment i with observations as the policy reads them."""
        if not policy.filters_observations:
            return rows
        whose = np.full(len(rows[sb.OBS]), i)
        return {**rows, **{name: policy.filter(rows[name], environments=whose) for name in (sb.OBS, sb.NEXT_OBS)}}

    def _environment(self, i: int):
        """The object that computes the rewards of environment i: itself, or the vector environment that has it."""
        environments = self._stream.environments
        return environments[i if len(environments) == self._stream.num_envs else 0]

    def _infos_of(self, episode: Columns, steps: np.ndarray) -> list[dict]:
        """Infos of these steps, as far as the episode's columns hold them."""
        if not self._infos:
            return [{}] * len(steps)
        return [dict(zip(self._infos, info)) for info in zip(*(episode[name][steps] for name in self._infos))]
