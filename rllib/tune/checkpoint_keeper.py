"""Which checkpoints of a trial stay."""

import math
import shutil
from collections.abc import Mapping
from pathlib import Path

from rllib.tune.trial import Trial, TrialCheckpoint


class CheckpointKeeper:
    """Keeps the best, or the newest, of each trial; the newest always stays, since the trial goes on from it.

    Args:
        num_to_keep: how many; None: all.
        score: "a/b" path of the metric that makes the best; None: the newest are the best.
        order: "max" or "min".
    """

    def __init__(self, num_to_keep: int | None = None, score: str | None = None, order: str = "max"):
        if num_to_keep is not None and num_to_keep < 1:
            raise ValueError(f"num_to_keep must be at least 1, or None for all, but got {num_to_keep!r}")
        if order not in ("max", "min"):
            raise ValueError(f'checkpoint_score_order must be "max" or "min", but got {order!r}')
        if score and score.startswith("min-"):
            score, order = score.removeprefix("min-"), "min"
        self._num_to_keep, self._score, self._order = num_to_keep, score, order

    def superfluous(self, trial: Trial) -> list[TrialCheckpoint]:
        """Those that are to go."""
        checkpoints = trial.checkpoints
        if self._num_to_keep is None or len(checkpoints) <= self._num_to_keep:
            return []
        older = checkpoints[:-1]
        if self._score:
            older = sorted(older, key=lambda checkpoint: self._rank(checkpoint.metrics))
        return older[: len(checkpoints) - self._num_to_keep]

    def adopt(self, trial: Trial, source: Trial) -> TrialCheckpoint:
        """Copies the newest checkpoint of one trial to another."""
        checkpoint = source.checkpoint
        path = Path(trial.logdir) / f"checkpoint_{checkpoint.iteration:06d}"
        number = 1
        while path.exists():
            number += 1
            path = path.with_name(f"checkpoint_{checkpoint.iteration:06d}_{number}")
        draft = path.with_name(f".checkpoint.tmp-{path.name}")
        shutil.copytree(source.checkpoint_path(checkpoint), draft)
        draft.rename(path)
        return TrialCheckpoint(path.name, checkpoint.iteration, dict(checkpoint.metrics))

    def _rank(self, metrics: Mapping[str, float]) -> float:
        value = metrics.get(self._score, math.nan)
        if math.isnan(value):
            return -math.inf
        return value if self._order == "max" else -value
