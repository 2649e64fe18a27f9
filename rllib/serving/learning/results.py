"""Results of a learner, written to its directory as a run's: `rllib dashboard` shows the directory like a run."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllib.runs.files import ResultFiles, read_results, write_params
from rllib.storage.file_locks import DirectoryLock

# Seconds between results: this share of the time that the server has learned for, within these bounds.
_SHARE_OF_TIME, _LEAST_S, _MOST_S = 0.02, 1.0, 60.0


def is_of_learner(result: Mapping[str, Any]) -> bool:
    """Whether a line of result.json was written by a learner, not by a training run."""
    return isinstance(result.get("serving"), dict)


class LearnerResults:
    """Appends results to the files of a learner's directory, which is locked until the process ends.

    The entry "serving" of a result has these items, in the units of rewards, steps, episodes and updates:

    | item                                     | meaning                                                         |
    |------------------------------------------|-----------------------------------------------------------------|
    | version, served_since                    | the served policy, and since when (seconds since 1970)          |
    | return_mean                              | mean of its newest returns that were vetted                     |
    | candidate_version, candidate_share       | the policy on trial, and its share of the episodes; only if any |
    | candidate_return_mean, candidate_episodes| its mean return in the trial                                    |
    | beside_return_mean, beside_episodes      | the served policy's mean return in the same period              |
    | rows_waiting, rows_held                  | steps that wait for the learner, and for the vetting            |
    | lag_updates                              | updates by which the served policy is behind the learner        |
    | promoted, dropped, paused                | candidates so far; 1 while learning is paused                   |

    Args:
        directory: the learner's directory.
        params: settings of the algorithm.

    Raises:
        ValueError: if another server learns into the directory.
    """

    def __init__(self, directory: Path, params: Mapping[str, Any]):
        try:
            self._lock = DirectoryLock(directory)
        except BlockingIOError:
            raise ValueError(f"another server learns into {directory}; give another --learn-to") from None
        earlier = read_results(directory)
        newest = earlier[-1] if earlier else {}
        self._iteration, self._time_s = newest.get("training_iteration", 0), newest.get("time_total_s", 0.0)
        serving = newest.get("serving", {})
        self._version, self._since = serving.get("version"), serving.get("served_since", 0.0)
        self._begun = self._written = time.monotonic()
        self._seen: Mapping[str, Any] = {}
        write_params(directory, {**params, "log_dir": str(directory)})
        self._files = ResultFiles(directory)

    def add(self, stats: Mapping[str, Any], candidate_share: float, has_event: bool) -> None:
        """Appends a result if one is due.

        Args:
            stats: statistics of the learner, as GET /stats answers them.
            candidate_share: share of the episodes that a candidate acts in.
            has_event: whether to write a result now, because of an event such as a promotion.
        """
        now = time.monotonic()
        time_s = now - self._begun
        pause_s = min(max(_SHARE_OF_TIME * time_s, _LEAST_S), _MOST_S)
        if not has_event and (now - self._written < pause_s or stats == self._seen):
            return
        self._written, self._seen = now, stats
        self._iteration += 1
        if stats["served"]["version"] != self._version:
            self._version, self._since = stats["served"]["version"], time.time()
        self._files.on_result({
            "training_iteration": self._iteration,
            "timesteps_total": stats["learner"]["steps"],
            "time_total_s": self._time_s + time_s,
            "episode_reward_mean": stats["served"]["mean_return"],
            "serving": self._serving(stats, candidate_share),
        })  # fmt: skip

    def close(self) -> None:
        """Closes the files, and unlocks the directory."""
        self._files.close()
        self._lock.close()

    def _serving(self, stats: Mapping[str, Any], candidate_share: float) -> dict[str, Any]:
        served, candidate, rows = stats["served"], stats["candidate"], stats["rows"]
        trial = candidate and {
            "candidate_version": candidate["version"],
            "candidate_share": candidate_share,
            "candidate_return_mean": candidate["mean_return"],
            "candidate_episodes": candidate["episodes"],
            "beside_return_mean": candidate["served_mean_return"],
            "beside_episodes": candidate["served_episodes"],
        }
        return {
            "version": served["version"],
            "served_since": self._since,
            "return_mean": served["mean_return"],
            **(trial or {}),
            "rows_waiting": rows["waiting"],
            "rows_held": rows["held"],
            "lag_updates": stats["learner"]["version"] - served["version"],
            "promoted": stats["promoted"],
            "dropped": stats["dropped"],
            "paused": int(stats["paused"]),
        }
