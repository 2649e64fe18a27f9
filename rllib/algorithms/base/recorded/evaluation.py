"""Evaluation on recorded steps: estimates of the policy's value, and losses on episodes that were held out."""

import functools
from typing import TYPE_CHECKING, Any

from rllib.algorithms.base.recorded.data import evaluated_data
from rllib.offline.dataset import Dataset

if TYPE_CHECKING:
    from rllib.evaluation.estimators.off_policy_estimator import OffPolicyEstimator
    from rllib.evaluation.estimators.recorded_steps import RecordedSteps


class RecordedEvaluation:
    """Evaluates the policy on what evaluation_config's input_ names; else on the run's held-out episodes, or on all.

    Rewards are taken as they were recorded: reward_scale and reward_shift are for learning.

    Args:
        algorithm: whose policy is evaluated.
        max_episode_steps: time limit of its environment, where one is known.

    Raises:
        ValueError: for estimators that the policy, or the recorded data, cannot be evaluated with.
    """

    def __init__(self, algorithm, max_episode_steps: int | None):
        self._algorithm, self._limit = algorithm, max_episode_steps
        self._refuse_data()  # now what cannot be estimated, and not in the first evaluation

    @property
    def gives_estimates(self) -> bool:
        """Whether the settings name estimators."""
        return bool(self._algorithm.config.off_policy_estimation_methods)

    def _estimators(self) -> "dict[str, OffPolicyEstimator]":
        """New estimators, whose models are as their seeds make them; {} if the settings name none."""
        config = self._algorithm.config
        if not self.gives_estimates:
            return {}
        from rllib.evaluation.estimators.choose import make_estimators

        return make_estimators(config.off_policy_estimation_methods, self._algorithm.policy, config.gamma, config)

    def _refuse_data(self) -> None:
        """Raises a SettingsError if the data lacks what an estimator reads.

        Data of evaluation_config is read for this if evaluations are part of the run.
        """
        config, recorded = self._algorithm.config, self._algorithm.recorded
        estimators = self._estimators()
        if config.evaluation_data is None:
            is_read = recorded is not None and recorded.datasets
        else:
            is_read = config.evaluation_interval
        if not estimators or not is_read:
            return
        setting = "off_policy_estimation_methods"
        with config.blamed(setting, remedies=[{setting: {}}]):
            steps = self._steps_of(self._dataset.first(1))
        others = {name: config[setting][name] for name, each in estimators.items() if not each.reads_probabilities}
        with config.blamed(setting, remedies=[{setting: others}]):
            for each in estimators.values():
                if each.reads_probabilities:
                    each.log_ratios(steps)

    @functools.cached_property
    def _dataset(self) -> Dataset:
        algorithm = self._algorithm
        if algorithm.config.evaluation_data is None:
            return algorithm.recorded.for_evaluation
        config = algorithm.config.get_evaluation_config_object()
        return evaluated_data(config, algorithm.observation_space, algorithm.action_space, self._limit)

    def estimates(self) -> dict[str, dict[str, Any]]:
        """Under "off_policy_estimator": name -> the estimate of the present policy; {} without estimators.

        Models are fitted first, to the episodes that are learned from if others are held out, else to those that are
        estimated from. Each evaluation fits new ones, from their seeds, so that its numbers do not depend on whether
        there was one before, in this run or before a restore.

        Raises:
            ValueError: if the data lacks what an estimator reads.
        """
        estimators = self._estimators()
        if not estimators:
            return {}
        from rllib.evaluation.estimators.choose import estimate_all
        from rllib.evaluation.estimators.direct_method import DirectMethod

        recorded = self._algorithm.recorded
        steps, fit_on = self._steps_of(self._dataset), None
        has_models = any(isinstance(each, DirectMethod) for each in estimators.values())
        if self._algorithm.config.evaluation_data is None and recorded.held_out and has_models:
            fit_on = self._steps_of(recorded.only)
        return {"off_policy_estimator": estimate_all(estimators, steps, fit_on)}

    def _steps_of(self, dataset: Dataset) -> "RecordedSteps":
        from rllib.evaluation.estimators.recorded_steps import recorded_steps

        steps = recorded_steps(dataset, self._algorithm.policy, self._algorithm.config)
        return steps if self._algorithm.config.ope_split_batch_by_episode else steps.as_single_steps()

    def losses(self) -> dict[str, float]:
        """Distance of the present policy from the recorded actions; see imitation_error."""
        from rllib.evaluation.estimators.imitation_error import imitation_error

        return imitation_error(self._dataset, self._algorithm.policy, self._algorithm.config)
