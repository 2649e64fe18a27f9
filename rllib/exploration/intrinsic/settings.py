"""Types of exploration_config that reward novelty: RND and Curiosity.

Actions are drawn from the policy's distribution. The driver adds the advantages of an intrinsic reward to those of the
environment's rewards in each train batch (exploration/intrinsic/rewards.py). These rewards, the policy's values and
the reported returns do not change.

Names and defaults of Curiosity are those of Ray 2.6. RLlib has no RND; its settings have the names of the pull request
that proposed it (ray-project/ray, 26716), with the constants of the paper where the two differ.
"""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

from rllib.exploration.explorers import Exploration
from rllib.models.model_settings import ACTIVATION_NAMES


class IntrinsicReward(Exploration):
    """Settings common to RND and Curiosity.

    Attributes:
        lr: learning rate (Adam) of the networks that compute the reward and its value.
        gamma: discount of intrinsic rewards per step.
        lambda_: GAE's lambda for intrinsic rewards.
        nonepisodic_returns: intrinsic returns continue past the end of an episode, so that later discoveries count
            even if an episode has to end for them.
        normalize: intrinsic rewards are divided by the running standard deviation of their discounted sums.
        num_sgd_iter: epochs over each train batch.
        sgd_minibatch_size: rows per gradient step.
        sub_exploration: None or {"type": "StochasticSampling"}, the only supported one.
    """

    without_memory: ClassVar[str] = "intrinsic rewards and their values are of single observations"

    lr: float = 1e-3
    gamma: float = 0.99
    lambda_: float = 0.95
    nonepisodic_returns: bool = True
    normalize: bool = True
    num_sgd_iter: int = 4
    sgd_minibatch_size: int = 256
    sub_exploration: Mapping[str, Any] | None = None

    @property
    def coefficient(self) -> float:
        """Factor of the intrinsic reward."""
        raise NotImplementedError

    @property
    def net_config(self) -> Mapping[str, Any] | None:
        """Settings of the layers that read observations, by the names of `model`; None: the policy's settings."""
        raise NotImplementedError

    @classmethod
    def problem(cls, settings: Mapping[str, Any]) -> str | None:
        """The first rule that these settings break, as a sentence; None if they are valid."""
        for name, value in settings.items():
            keeps, rule = _RULES[name]
            if not keeps(value):
                return f"{name}={value!r:.80} must be {rule}"
        return None


class RND(IntrinsicReward):
    """Random network distillation (Burda et al., arXiv:1810.12894).

    Attributes:
        embed_dim: output size of the fixed random network and of the trained network that predicts it.
        distill_net_config: settings of both networks.
        intrinsic_reward_coeff: factor of the intrinsic reward; the paper gives it half the weight of the environment's.
    """

    embed_dim: int = 128
    distill_net_config: Mapping[str, Any] | None = None
    intrinsic_reward_coeff: float = 0.5

    @property
    def coefficient(self) -> float:
        return self.intrinsic_reward_coeff

    @property
    def net_config(self) -> Mapping[str, Any] | None:
        return self.distill_net_config


class Curiosity(IntrinsicReward):
    """The intrinsic curiosity module (Pathak et al., arXiv:1705.05363).

    Attributes:
        feature_dim: number of features of an observation.
        feature_net_config: settings of the network that computes them.
        inverse_net_hiddens, inverse_net_activation: of the network that predicts the action from the
            features of two successive observations.
        forward_net_hiddens, forward_net_activation: of the network that predicts the next features.
        beta: weight of the forward loss; the inverse loss has 1 - beta.
        eta: factor of the intrinsic reward.
    """

    feature_dim: int = 288
    feature_net_config: Mapping[str, Any] | None = None
    inverse_net_hiddens: Sequence[int] = (256,)
    inverse_net_activation: str = "relu"
    forward_net_hiddens: Sequence[int] = (256,)
    forward_net_activation: str = "relu"
    beta: float = 0.2
    eta: float = 1.0

    @property
    def coefficient(self) -> float:
        return self.eta

    @property
    def net_config(self) -> Mapping[str, Any] | None:
        return self.feature_net_config


# Keys that the settings of a network that reads observations may have.
NET_CONFIG_KEYS = (
    *("fcnet_hiddens", "fcnet_activation", "conv_filters", "conv_activation"),
    *("post_fcnet_hiddens", "post_fcnet_activation", "layer_norm"),
)


def _is_number(value, low: float, high: float = float("inf")) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and low <= value <= high and value < float("inf")


def _is_count(value) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and value >= 1


_SHARE = lambda value: _is_number(value, 0, 1), "a number within 0 ... 1"
_AT_LEAST_0 = lambda value: _is_number(value, 0), "a finite number >= 0"
_COUNT = _is_count, "an integer >= 1"
_FLAG = lambda value: isinstance(value, bool), "True or False"
_WIDTHS = (
    lambda value: isinstance(value, list | tuple) and all(map(_is_count, value)),
    "a list of integers >= 1",
)
_ACTIVATION = (
    lambda value: isinstance(value, str | None) and value in ACTIVATION_NAMES,
    f"one of {', '.join(map(str, ACTIVATION_NAMES))}",
)
_NET = (
    lambda value: value is None or (isinstance(value, Mapping) and set(value) <= set(NET_CONFIG_KEYS)),
    f"None or a dict of {', '.join(NET_CONFIG_KEYS)}",
)
_SAMPLING = (
    lambda value: value is None or (isinstance(value, Mapping) and value.get("type") == "StochasticSampling"),
    "None or {'type': 'StochasticSampling'}: actions are drawn from the policy's own distribution",
)
# Setting -> check of a value, and the rule in words.
_RULES = {
    "lr": (lambda value: _is_number(value, 0) and value > 0, "a finite number > 0"),
    **dict.fromkeys(("gamma", "lambda_", "beta"), _SHARE),
    **dict.fromkeys(("intrinsic_reward_coeff", "eta"), _AT_LEAST_0),
    **dict.fromkeys(("num_sgd_iter", "sgd_minibatch_size", "embed_dim", "feature_dim"), _COUNT),
    **dict.fromkeys(("nonepisodic_returns", "normalize"), _FLAG),
    **dict.fromkeys(("inverse_net_hiddens", "forward_net_hiddens"), _WIDTHS),
    **dict.fromkeys(("inverse_net_activation", "forward_net_activation"), _ACTIVATION),
    **dict.fromkeys(("distill_net_config", "feature_net_config"), _NET),
    "sub_exploration": _SAMPLING,
}
