"""Off-policy estimates: the value of a policy, from steps that another policy has taken."""

from rllib.evaluation.estimators.direct_method import DirectMethod
from rllib.evaluation.estimators.doubly_robust import DoublyRobust
from rllib.evaluation.estimators.importance_sampling import ImportanceSampling
from rllib.evaluation.estimators.off_policy_estimator import OffPolicyEstimator
from rllib.evaluation.estimators.weighted_importance_sampling import WeightedImportanceSampling

__all__ = ["DirectMethod", "DoublyRobust", "ImportanceSampling", "OffPolicyEstimator", "WeightedImportanceSampling"]
