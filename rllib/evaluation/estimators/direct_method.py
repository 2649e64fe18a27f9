"""The direct method: the value of the first observations, by a model of the policy's action values."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib.did_you_mean import did_you_mean
from rllib.evaluation.estimators.action_values import ActionValues
from rllib.evaluation.estimators.fqe_torch_model import FQETorchModel
from rllib.evaluation.estimators.off_policy_estimator import OffPolicyEstimator, Values
from rllib.evaluation.estimators.q_model import QModel
from rllib.evaluation.estimators.recorded_steps import RecordedSteps
from rllib.evaluation.offline.rows import Conversions
from rllib.policy import Policy

# Arguments of a model that the estimator gives.
_GIVEN = {"policy", "gamma", "epsilon_greedy"}
MODELS = {each.__name__: each for each in (FQETorchModel, ActionValues)}


def model_class(given: Any) -> type[QModel]:
    """The class of a q_model_config's type.

    Args:
        given: a class derived from QModel, or a name of MODELS.

    Raises:
        ValueError: for another one.
    """
    if isinstance(given, type) and issubclass(given, QModel):
        return given
    if not isinstance(given, str) or given not in MODELS:
        raise ValueError(f"q_model_config: there is no type {given!r:.80}. There are {', '.join(MODELS)}.")
    return MODELS[given]


def _refuse_unknown(model: type[QModel], settings: Mapping[str, Any]) -> None:
    """Raises a ValueError for a key of a q_model_config that its type does not take."""
    parameters = inspect.signature(model).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    takes = parameters.keys() - _GIVEN
    for key in settings.keys() - takes:
        listed = ", ".join(sorted(takes)) or "no arguments"
        raise ValueError(f"q_model_config: {model.__name__} takes {listed}, not {key!r}.{did_you_mean(key, takes)}")


class DirectMethod(OffPolicyEstimator):
    """Estimates by a model alone: without the variance of importance sampling, with the model's bias.

    Args:
        policy, gamma, epsilon_greedy, conversions: as for OffPolicyEstimator.
        q_model_config: "type" and arguments of the model: FQETorchModel, fitted to the data by `train` (the default);
            ActionValues, what a policy of action values (DQN) itself says; or a class derived from QModel.

    Attributes:
        model: the model.
    """

    short_name = "dm"

    def __init__(
        self,
        policy: Policy,
        gamma: float = 0.99,
        epsilon_greedy: float = 0.0,
        q_model_config: Mapping[str, Any] | None = None,
        conversions: Conversions | None = None,
    ):
        super().__init__(policy, gamma, epsilon_greedy, conversions)
        settings = dict(q_model_config or {})
        made = model_class(settings.pop("type", FQETorchModel))
        _refuse_unknown(made, settings)
        self.model: QModel = made(policy=policy, gamma=gamma, epsilon_greedy=epsilon_greedy, **settings)

    def train(self, batch: Any) -> dict[str, Any]:
        """Fits the model, given as for `estimate`.

        Returns:
            "loss": mean over its passes; "losses": of each; {} if there is nothing to fit.
        """
        losses = self.model.train(self.steps(batch))
        return {"loss": float(np.mean(losses)), "losses": list(losses)} if losses else {}

    def episode_values(self, steps: RecordedSteps) -> Values:
        return Values(self.model.values(steps.obs[steps.first]))
