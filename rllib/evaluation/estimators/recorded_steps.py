"""Recorded steps as estimators read them: in the units of the policy, with the probabilities that actions had."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib import sample_batch as sb
from rllib.acting.inference import ActingSettings
from rllib.env.spaces.actions import action_mapper
from rllib.evaluation.offline import rows
from rllib.offline.assembly import assembled
from rllib.offline.dataset import Dataset
from rllib.offline.options import ReadOptions
from rllib.offline.records import Records
from rllib.policy import Policy

# What a probability may exceed 1 by: it was rounded to float32.
_ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True)
class RecordedSteps:
    """Steps of whole episodes, one after the other.

    Attributes:
        obs, new_obs: [N, *shape] as the policy's batches store them.
        actions: [N, *action_shape] in the policy's units.
        rewards: float64 [N].
        terminated: bool [N], nothing follows.
        is_transition: bool [N], False where it is not known what followed, and new_obs is not read: the episode ends at
            the row's obs.
        starts: int64 [episodes + 1].
        behavior: action_logp or action_prob, float64 [N], by its name; {} if neither was recorded.
        log_unit: what is added to behaviour's log-densities to get those of actions in the policy's units.
        names: names of the source's columns, for messages.
        source: its name, for messages.
    """

    obs: np.ndarray
    new_obs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    is_transition: np.ndarray
    starts: np.ndarray
    behavior: Mapping[str, np.ndarray]
    log_unit: float
    names: tuple[str, ...]
    source: str

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def num_episodes(self) -> int:
        """Number of episodes."""
        return len(self.starts) - 1

    @property
    def first(self) -> np.ndarray:
        """Row of each episode's first step, [episodes]."""
        return self.starts[:-1]

    @property
    def last(self) -> np.ndarray:
        """Row of each episode's last step, [episodes]."""
        return self.starts[1:] - 1

    def behavior_log_prob(self) -> np.ndarray:
        """Log-probabilities, or log-densities in the policy's units, with which the actions were drawn; float64 [N].

        Raises:
            ValueError: if they were not recorded, or one cannot be right.
        """
        if not self.behavior:
            raise ValueError(
                f"neither {sb.ACTION_LOGP} nor {sb.ACTION_PROB}, the probabilities with which the actions were drawn, "
                f"is in {self.source}; there are {', '.join(self.names)}. Name the column that has them, "
                f"input_read_schema={{{sb.ACTION_LOGP!r}: COLUMN}}, or use the direct "
                "method alone, which needs none: rllib evaluate --estimators dm."
            )
        ((name, column),) = self.behavior.items()
        if name == sb.ACTION_LOGP:
            logs = column
            self._refuse(~np.isfinite(logs), name, column, "must be a finite number: the action was taken")
        else:
            self._refuse(~(column > 0) | np.isinf(column), name, column, "must be above 0: the action was taken")
            logs = np.log(column)
        if self.actions.dtype.kind == "i":
            self._refuse(logs > _ROUNDING, name, column, "is of a probability above 1")
        return logs + self.log_unit

    def _refuse(self, wrong: np.ndarray, name: str, column: np.ndarray, rule: str) -> None:
        if (found := np.flatnonzero(wrong)).size:
            row = int(found[0])
            raise ValueError(
                f"{self.source}, row {row}: {name}={column[row]:g} {rule} ({len(found):,} of {len(self):,} rows)"
            )

    def as_single_steps(self) -> "RecordedSteps":
        """Each step as its own episode, after which nothing follows: contextual bandits."""
        ends = np.ones(len(self), bool)
        return dataclasses.replace(self, starts=np.arange(len(self) + 1), terminated=ends, is_transition=ends)


def recorded_steps(data: Any, policy: Policy, conversions: rows.Conversions | None = None) -> RecordedSteps:
    """Makes them of a Dataset, or of a batch.

    Args:
        data: a Dataset, whose actions are in units of the environment; or the columns of whole episodes as the policy's
            batches store them, such as a SampleBatch.
        policy: whose value is estimated.
        conversions: between actions of the policy and the environment (rows.Conversions); None: the defaults.

    Raises:
        ValueError: if a column is missing.
    """
    if isinstance(data, RecordedSteps):
        return data
    if isinstance(data, Dataset):
        return _of_dataset(data, policy, conversions or policy.config or ActingSettings())
    return _of_batch(data)


def _of_dataset(dataset: Dataset, policy: Policy, conversions: rows.Conversions) -> RecordedSteps:
    _refuse_missing(dataset.columns, dataset.source, (sb.REWARDS,))
    space, distribution = dataset.action_space, policy.distribution
    log_unit = action_mapper(space, distribution, conversions.normalize_actions, conversions.clip_actions).log_scale
    if dataset.metadata.get("densities") == "normalized":
        log_unit -= action_mapper(space, distribution, True, True).log_scale
    return RecordedSteps(
        obs=rows.observations(dataset, policy),
        new_obs=rows.observations(dataset, policy, sb.NEXT_OBS),
        actions=rows.actions(dataset, policy, conversions),
        rewards=dataset.columns[sb.REWARDS].astype(np.float64),
        terminated=dataset.columns[sb.TERMINATEDS],
        is_transition=dataset.is_transition,
        starts=dataset.starts,
        behavior=_behavior(dataset.columns),
        log_unit=log_unit,
        names=tuple(sorted(dataset.columns)),
        source=dataset.source,
    )


def _of_batch(batch: Mapping[str, np.ndarray]) -> RecordedSteps:
    _refuse_missing(batch, "the batch", (sb.OBS, sb.ACTIONS, sb.REWARDS))
    columns = {name: np.asarray(column) for name, column in batch.items() if name not in sb.PER_SEQUENCE}
    episodes = assembled(Records(columns, "the batch"), ReadOptions(check=False))
    columns = episodes.records.columns
    return RecordedSteps(
        obs=columns[sb.OBS],
        new_obs=columns[sb.NEXT_OBS],
        actions=columns[sb.ACTIONS],
        rewards=columns[sb.REWARDS].astype(np.float64),
        terminated=columns[sb.TERMINATEDS],
        is_transition=episodes.has_next | columns[sb.TERMINATEDS],
        starts=episodes.starts,
        behavior=_behavior(columns),
        log_unit=0.0,
        names=tuple(sorted(columns)),
        source="the batch",
    )


def _behavior(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    for name in sb.PROBABILITIES:
        if name in columns:
            return {name: columns[name].astype(np.float64).reshape(len(columns[name]))}
    return {}


def _refuse_missing(columns: Mapping[str, np.ndarray], source: str, needed: tuple[str, ...]) -> None:
    for name in needed:
        if name not in columns:
            raise ValueError(f"{source} has no {name}, from which values are estimated; it has {', '.join(columns)}")
