"""The result of an iteration: what `train` returns."""

import logging
import math
from collections.abc import Mapping
from typing import Any

from rllib.algorithms.base import wiring
from rllib.learners.updates.core_choice import CLAIMED
from rllib.metrics import SystemUsage
from rllib.result import Result
from rllib.sample_batch import DEFAULT_POLICY

logger = logging.getLogger(__name__)


class Results:
    """Makes the results of a run, and logs once explanations of values that may surprise.

    Args:
        algorithm: the Algorithm whose results are made.
    """

    def __init__(self, algorithm):
        self._algorithm = algorithm
        self._usage = SystemUsage() if algorithm.config.log_sys_usage else None
        self._logged_no_episode = self._logged_claimed_cores = False

    def of_iteration(self, stats: Mapping[str, Any], evaluation: Mapping[str, Any]) -> Result:
        """The result of an iteration, whose training and evaluation are over.

        Args:
            stats: policy id -> statistics of its newest update; with one policy, its statistics may be given directly.
            evaluation: entries of an evaluation; {} if there was none.
        """
        algorithm = self._algorithm
        # Statistics of removed policies are left out.
        present = {
            name: value for name, value in stats.items() if not isinstance(value, dict) or name in algorithm.policies
        } or {policy_id: {} for policy_id in algorithm._trained_ids()}
        by_policy = any(isinstance(value, dict) for value in present.values()) or not present
        by_id = present if by_policy else {DEFAULT_POLICY: present}
        extra = algorithm.extra_results()
        of_training, of_features = extra.pop("learner", {}), self._stats_of_features(by_id)
        result = algorithm.metrics.result(
            {policy_id: {**own, **of_features, **of_training.get(policy_id, {})} for policy_id, own in by_id.items()}
        )
        result["info"].update(extra)
        if choices := wiring.core_choices(algorithm.learners):
            result["info"]["learner_cores"] = choices
            self._log_claimed_cores(choices)
        result.update(evaluation)
        # Data about the run's surroundings: processes, machine, settings.
        workers, perf = algorithm.workers, self._usage.read() if self._usage else {}
        health = {
            "num_healthy_workers": workers.num_healthy_workers,
            "num_remote_worker_restarts": workers.num_restarts,
        }
        if perf and algorithm.config.num_learners:
            for learner in algorithm.learners.values():
                perf |= learner.backend.usage()
        result.update(health, fault_tolerance=dict(health), num_in_flight_async_reqs=workers.num_in_flight)
        result.update(perf=perf, config=algorithm.config.to_dict())
        self._log_no_episode_yet(result)
        return result

    def _stats_of_features(self, stats: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
        """Statistics of the features, whose names must differ from the policies' statistics."""
        joined: dict[str, float] = {}
        for name, feature in self._algorithm.features.items():
            own = feature.stats()
            for taken in (joined, *stats.values()):
                if doubled := own.keys() & taken.keys():
                    raise ValueError(
                        f"the feature {name!r} reports {sorted(doubled)[0]!r}, which is a statistic of policies, or of "
                        "another feature, already: give it another name"
                    )
            joined |= own
        return joined

    def _log_no_episode_yet(self, result: Result) -> None:
        """Logs once why there is no return yet; metrics.py warns of episodes that seem to have no end."""
        config = self._algorithm.config
        is_due = math.isnan(result["episode_reward_mean"]) and not self._logged_no_episode
        if not is_due or (config.is_offline and config.evaluation_interval):
            return
        self._logged_no_episode = True
        if config.is_offline:
            advice = (
                ".evaluation(evaluation_interval=10) plays some, in the environment, after every tenth iteration."
                if config.env is not None
                else "Play some afterwards: rllib evaluate RUN --env ENV, or estimate the return: --data PATH."
            )
            logger.info(
                "this run learns from recorded steps and plays no episodes, so the reward keys stay NaN. %s", advice
            )
        else:
            logger.info(
                "no episode has finished yet, so the reward keys are NaN; the longest running one has %d steps",
                result["longest_running_episode"],
            )

    def _log_claimed_cores(self, choices: Mapping[str, Mapping[str, Any]]) -> None:
        workers = self._algorithm.config.num_rollout_workers
        if not self._logged_claimed_cores and workers and any(each["reason"] == CLAIMED for each in choices.values()):
            self._logged_claimed_cores = True
            logger.info(
                "updates take one core: num_rollout_workers=%d have claimed the others, and sample meanwhile. Where "
                "updates take most of the time, .rollouts(num_rollout_workers=0, sample_async=False) is faster: they "
                "then take all cores.",
                workers,
            )
