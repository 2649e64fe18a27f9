"""Types of exploration_config that reward novelty: RND and Curiosity.

Actions are drawn from the policy's distribution. The driver adds the advantages of an intrinsic reward to those of the
environment's rewards in each train batch (exploration/intrinsic/rewards.py). These rewards, the policy's values and
the reported returns do not change.

Names and defaults of Curiosity are those of Ray 2.6. RLlib has no RND; its settings have the names of the pull request
that proposed it (ray-project/ray, 26716), with the constants of the paper where the two differ.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from rllib.config.sections import Checked, above, at_least, between
from rllib.exploration.explorers import NOT_NEGATIVE, Exploration
from rllib.models.arithmetic.activations import ACTIVATION_NAMES
from rllib.models.model_settings import ModelSettings

# Keys that the settings of a network that reads observations may have.
NET_CONFIG_KEYS = (
    *("fcnet_hiddens", "fcnet_activation", "conv_filters", "conv_activation"),
    *("post_fcnet_hiddens", "post_fcnet_activation", "layer_norm"),
)


def _describes_network(given: Mapping | None) -> bool:
    if given and not given.keys() <= set(NET_CONFIG_KEYS):
        return False
    if mistake := ModelSettings.mistake(given or {}, "a network of the reward"):
        raise ValueError(mistake.problem)
    return True


_Activation = Literal[tuple(ACTIVATION_NAMES)]
_SHARE = between(0, 1)
_NETWORK = Checked(_describes_network, f"None or a dict of {', '.join(NET_CONFIG_KEYS)}")
_SAMPLES = Checked(
    lambda given: given is None or given.get("type") == "StochasticSampling",
    "None or {'type': 'StochasticSampling'}",
)


class IntrinsicReward(Exploration):
    """Settings common to RND and Curiosity."""

    without_memory: ClassVar[str] = "intrinsic rewards and their values are of single observations"

    lr: Annotated[
        float,
        "learning rate (Adam) of the networks that compute the reward and its value",
        above(0, finite=True),
    ] = 1e-3
    gamma: Annotated[float, "discount of intrinsic rewards per step", _SHARE] = 0.99
    lambda_: Annotated[float, "GAE's lambda for intrinsic rewards", _SHARE] = 0.95
    nonepisodic_returns: Annotated[
        bool,
        "intrinsic returns continue past the end of an episode, so that later discoveries count even if an episode has "
        "to end for them",
    ] = True
    normalize: Annotated[
        bool, "intrinsic rewards are divided by the running standard deviation of their discounted sums"
    ] = True
    num_sgd_iter: Annotated[int, "epochs over each train batch", at_least(1)] = 4
    sgd_minibatch_size: Annotated[int, "rows per gradient step", at_least(1)] = 256
    sub_exploration: Annotated[dict | None, "actions are drawn from the policy's own distribution", _SAMPLES] = None

    @property
    def coefficient(self) -> float:
        """Factor of the intrinsic reward."""
        raise NotImplementedError

    @property
    def net_config(self) -> Mapping[str, Any] | None:
        """Settings of the layers that read observations, by the names of `model`; None: the policy's settings."""
        raise NotImplementedError


class RND(IntrinsicReward):
    """Random network distillation (Burda et al., arXiv:1810.12894)."""

    embed_dim: Annotated[
        int, "output size of the fixed random network and of the trained network that predicts it", at_least(1)
    ] = 128
    distill_net_config: Annotated[dict | None, "settings of both networks", _NETWORK] = None
    intrinsic_reward_coeff: Annotated[
        float, "factor of the intrinsic reward; the paper gives it half the weight of the environment's", NOT_NEGATIVE
    ] = 0.5

    @property
    def coefficient(self) -> float:
        return self.intrinsic_reward_coeff

    @property
    def net_config(self) -> Mapping[str, Any] | None:
        return self.distill_net_config


class Curiosity(IntrinsicReward):
    """The intrinsic curiosity module (Pathak et al., arXiv:1705.05363)."""

    feature_dim: Annotated[int, "number of features of an observation", at_least(1)] = 288
    feature_net_config: Annotated[dict | None, "settings of the network that computes them", _NETWORK] = None
    inverse_net_hiddens: Annotated[
        list[int],
        "layers of the network that predicts the action from the features of two successive observations",
        at_least(1),
    ] = (256,)
    inverse_net_activation: Annotated[_Activation, "theirs"] = "relu"
    forward_net_hiddens: Annotated[list[int], "layers of the network that predicts the next features", at_least(1)] = (
        256,
    )
    forward_net_activation: Annotated[_Activation, "theirs"] = "relu"
    beta: Annotated[float, "weight of the forward loss; the inverse loss has 1 - beta", _SHARE] = 0.2
    eta: Annotated[float, "factor of the intrinsic reward", NOT_NEGATIVE] = 1.0

    @property
    def coefficient(self) -> float:
        return self.eta

    @property
    def net_config(self) -> Mapping[str, Any] | None:
        return self.feature_net_config
