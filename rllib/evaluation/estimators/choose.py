"""The estimators that settings and the command line name: chosen, made, and asked together."""

import inspect
from collections.abc import Mapping
from typing import Any

from rllib.did_you_mean import did_you_mean
from rllib.evaluation.estimators.direct_method import DirectMethod
from rllib.evaluation.estimators.doubly_robust import DoublyRobust
from rllib.evaluation.estimators.importance_sampling import ImportanceSampling
from rllib.evaluation.estimators.off_policy_estimator import OffPolicyEstimator
from rllib.evaluation.estimators.recorded_steps import RecordedSteps
from rllib.evaluation.estimators.weighted_importance_sampling import WeightedImportanceSampling
from rllib.evaluation.offline.rows import Conversions
from rllib.policy import Policy

ESTIMATORS = (ImportanceSampling, WeightedImportanceSampling, DirectMethod, DoublyRobust)
SHORT_NAMES = tuple(each.short_name for each in ESTIMATORS)
# Arguments that the algorithm gives.
_OF_THE_ALGORITHM = {"policy", "gamma", "conversions"}


def estimator_class(given: Any) -> type[OffPolicyEstimator]:
    """The class that a "type" represents: a class derived from OffPolicyEstimator, its name or its short name.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(given, type) and issubclass(given, OffPolicyEstimator):
        return given
    by_name = {name: each for each in ESTIMATORS for name in (each.__name__, each.short_name)}
    if not isinstance(given, str) or given not in by_name:
        raise ValueError(
            f"there is no estimator {given!r:.80}.{did_you_mean(given, by_name)} There are {', '.join(by_name)}, and "
            "classes derived from OffPolicyEstimator"
        )
    return by_name[given]


def methods_problem(methods: Mapping[str, Any]) -> str | None:
    """Describes the mistake in a value of off_policy_estimation_methods; None if it is right."""
    for name, given in methods.items():
        if not isinstance(given, Mapping) or "type" not in given:
            return f"{name!r} must be {{'type': ESTIMATOR, ...}}, but is {given!r:.80}"
        try:
            made = estimator_class(given["type"])
        except ValueError as error:
            return f"{name!r}: {error}"
        takes = inspect.signature(made).parameters.keys() - _OF_THE_ALGORITHM
        for key in given.keys() - takes - {"type"}:
            return f"{name!r}: {made.__name__} takes {', '.join(sorted(takes))}, not {key}.{did_you_mean(key, takes)}"
    return None


def make_estimators(
    methods: Mapping[str, Mapping[str, Any]], policy: Policy, gamma: float, conversions: Conversions
) -> dict[str, OffPolicyEstimator]:
    """Makes the estimators of a value of off_policy_estimation_methods, by their names there.

    Args:
        methods: name -> {"type": estimator, further arguments}.
        policy, gamma, conversions: as for OffPolicyEstimator.

    Raises:
        ValueError: for arguments out of range, or a policy that an estimator cannot be used for.
    """
    made: dict[str, OffPolicyEstimator] = {}
    for name, given in methods.items():
        arguments = {key: value for key, value in given.items() if key != "type"}
        kind = estimator_class(given["type"])
        made[name] = kind(policy=policy, gamma=gamma, conversions=conversions, **arguments)
        _share_model(made[name], arguments, [(made[other], methods[other]) for other in made if other != name])
    return made


def _share_model(estimator: OffPolicyEstimator, arguments: Mapping[str, Any], others: list) -> None:
    """Gives an estimator the model of another one that was made with the same arguments: it is fitted once."""
    for other, given in others:
        same = all(given.get(key) == arguments.get(key) for key in ("q_model_config", "epsilon_greedy"))
        if same and isinstance(estimator, DirectMethod) and isinstance(other, DirectMethod):
            estimator.model = other.model


def estimate_all(
    estimators: Mapping[str, OffPolicyEstimator], steps: RecordedSteps, fit_on: RecordedSteps | None = None
) -> dict[str, dict[str, Any]]:
    """Fits what the estimators learn, and estimates from recorded steps.

    Args:
        estimators: name -> estimator.
        steps: what is estimated from, in the policy's units.
        fit_on: what models are fitted to; None: `steps`, which a model then explains too well, so that the intervals of
            doubly robust estimates are too narrow.

    Returns:
        name -> what `OffPolicyEstimator.estimate` returns, with the last "loss" of a model.

    Raises:
        ValueError: if the data lacks what an estimator reads.
    """
    fitted: dict[int, dict[str, float]] = {}
    learning = {name: id(each if each.model is None else each.model) for name, each in estimators.items()}
    for name, estimator in estimators.items():
        if learning[name] not in fitted:
            losses = estimator.train(fit_on or steps).get("losses")
            fitted[learning[name]] = {"loss": losses[-1]} if losses else {}
    return {name: {**estimator.estimate(steps), **fitted[learning[name]]} for name, estimator in estimators.items()}
