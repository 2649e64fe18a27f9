"""Soft actor-critic (Haarnoja et al., arXiv:1801.01290 and 1812.05905).

The actor maximises the value of its actions plus alpha times its entropy. Two critics (`n_critics`: any number) learn
the soft value of an action, and their targets take the smaller one. Alpha is learned so that the entropy stays near
`target_entropy` (`alpha_lr=0` keeps `initial_alpha`). Actions are drawn from a normal distribution and squashed by tanh
into the bounds of the action space; entropies are of the squashed actions in [-1, 1], whatever the bounds are.

With a Discrete action space a critic gives the values of all actions, and expectations are sums over the actor's
probabilities (Christodoulou, arXiv:1910.07207).

An update moves the critics, then the actor by the new critics, then alpha by the entropy before the actor's step, all
with the alpha from before.

Departures: `target_entropy="auto"` is half of the largest entropy for discrete actions (RLlib and the paper: 98 %, at
which the policy stays nearly uniform), with action masks that of the legal actions; for continuous ones it is minus
their number, as everywhere. With gSDE means are clipped, and gradients that lead them back are passed on
(models/distributions/squashed.py).

TQC (Kuznetsov et al., arXiv:2005.04269) is SAC whose critics give quantiles of the return instead of its mean. Where
SAC takes the smaller of two critics as its target, so that values are not overestimated, TQC sorts the quantiles of all
target copies together and leaves out the largest, `top_quantiles_to_drop_per_net` for each critic, which is a finer
setting of the same. The actor maximises the mean of all quantiles. Actions are continuous. Departure: the critics have
the number and the size of SAC's, as in Stable-Baselines3 and in later releases of RLlib. The paper has five with three
layers of 512: `n_critics=5, q_model_config={"fcnet_hiddens": [512, 512, 512]}`.

With `cost_limit` it is SAC-Lagrangian: a further critic learns the value of costs, of which the actor's loss has the
multiple that keeps an episode's cost at the limit (families/constrained.py, losses/lagrangian/sac.py).

Losses are in losses/sac.py and losses/sac_variants/tqc.py. When updates are due, and which rows of the replay they get,
is in families/off_policy.py (`learn`, `update`); one update of critics and actor in families/off_policy_actor_critic.py
(`learn_from`); the step of alpha follows it here, in `SACTrainee.learn_from`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from gymnasium import spaces

from rllib.algorithms.base import wiring
from rllib.algorithms.base.feature import Feature
from rllib.algorithms.base.space_rules import NewPolicy, of_spaces
from rllib.algorithms.families.actor_critic_settings import OffPolicyActorCriticConfig
from rllib.algorithms.families.constrained import COST_CRITIC, ConstrainedConfig, cost_limit_of, price_of_costs
from rllib.algorithms.families.critic_networks import critics_of
from rllib.algorithms.families.off_policy_actor_critic import CRITICS, ActorCriticTrainee, OffPolicyActorCritic
from rllib.config.config_object import relation
from rllib.config.conflicts import Mistake, conflict, given_as
from rllib.config.sections import OfPolicy, above, at_least, only_with, section
from rllib.evaluation.postprocess.base import Postprocess
from rllib.evaluation.postprocess.return_scale import ReturnRange, ReturnScale
from rllib.evaluation.postprocess.transitions import CostsOfSteps
from rllib.learners.updates.optimizers import OptimizerSettings
from rllib.losses.lagrangian.sac import cost_critic_loss, priced_actor_loss
from rllib.losses.loss import LossOverModules
from rllib.losses.sac import (
    ACTOR_LOSS,
    CRITIC_LOSS,
    DISCRETE_ACTOR_LOSS,
    DISCRETE_CRITIC_LOSS,
    LARGEST_ENTROPY,
    LEFT_OUT,
    NEXT_NOISE,
    NOISE,
    SAMPLED_CRITIC_LOSS,
)
from rllib.losses.sac_variants import categorical, tqc
from rllib.losses.sac_variants.categorical import Bins
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.distributions.squashed import BoundedSquashedGaussian
from rllib.models.memory.critics import MemoryCritics
from rllib.models.model_settings import OF_MEMORIES
from rllib.models.modules import FullyConnected, ResidualNetworks
from rllib.sample_batch import COST_DISCOUNTS, REWARDS, Column, SampleBatch

if TYPE_CHECKING:
    from rllib.models.user.user_critics import UserCritics

# Of the largest entropy, for discrete actions.
DISCRETE_SHARE = 0.5
# Of means before tanh, with state-dependent noise: beyond it noise hardly moves an action. As in Stable-Baselines3.
SDE_MEAN_LIMIT = 2.0


class SACConfig(ConstrainedConfig, OffPolicyActorCriticConfig):
    """Settings of SAC; the defaults are RLlib's, except those in default_differences.py."""

    learns_by_batch: ClassVar[bool] = True
    reads_images: ClassVar[bool] = True
    takes_choices: ClassVar[bool] = True

    @section
    def training(
        self,
        *,
        initial_alpha: Annotated[float, "the temperature at the beginning", above(0, finite=True), OfPolicy] = 1.0,
        alpha_lr: Annotated[
            float | list | None, "the temperature's, or a schedule of it; None: lr; 0: it stays", at_least(0), OfPolicy
        ] = None,
        target_entropy: Annotated[
            float | Literal["auto"],
            'entropy to be kept, nats; "auto": minus the number of components of an action, or of n discrete actions '
            "half of the largest, 0.5 log n; with masks n is the number of legal ones, in the mean over a batch",
            OfPolicy,
        ] = "auto",
        target_critics_sampled: Annotated[
            int | None,
            "critics, drawn for each row, of which its target takes the least value; None: all",
            at_least(1),
            OfPolicy,
        ] = None,
        num_atoms: Annotated[
            int,
            "bins of the distribution of returns that each critic gives; 1: the expected return",
            at_least(1),
            OfPolicy,
        ] = 1,
        v_min: Annotated[
            float, "return of the first bin, entropy included", only_with("bins", otherwise="num_atoms=1"), OfPolicy
        ] = -5.0,
        v_max: Annotated[
            float,
            "return of the last bin; what scaled returns stay within",
            only_with("bins", "scale_rewards", otherwise="num_atoms=1 and scale_rewards=False"),
            OfPolicy,
        ] = 5.0,
        scale_rewards: Annotated[
            bool,
            "divide rewards, when they are learned from, by the deviation of their discounted returns, or by more, so "
            "that these stay within +-v_max (SimbaV2)",
        ] = False,
    ) -> Self: ...

    @property
    def make_return_scale(self) -> Callable[..., ReturnScale] | None:
        return functools.partial(ReturnRange, self.gamma) if self.scale_rewards else super().make_return_scale

    @property
    def bins(self) -> Bins | None:
        """Bins of the critics' distributions; None: critics give expected returns."""
        return Bins(self.num_atoms, self.v_min, self.v_max) if self.num_atoms > 1 else None

    conflicts = (
        conflict(
            "cost_limit",
            "model",
            when=lambda config: config.limits_costs and config.replays_sequences,
            why="a critic of costs has no memory",
            remedies=[{"cost_limit": None}, lambda config: config.with_defaults(*OF_MEMORIES)],
        ),
        conflict(
            "num_atoms",
            "model",
            when=lambda config: config.num_atoms > 1 and config.replays_sequences,
            why="distributions of returns have no memory",
            remedies=[{"num_atoms": 1}, lambda config: config.with_defaults(*OF_MEMORIES)],
        ),
        conflict(
            "v_min",
            "v_max",
            when=lambda config: not -math.inf < config.v_min < config.v_max < math.inf,
            why=lambda config: f"v_min={config.v_min} must be below v_max={config.v_max}",
            remedies=[{"v_min": -5.0, "v_max": 5.0}],
        ),
        conflict(
            "num_atoms",
            "model",
            when=lambda config: config.is_by_batch and config.num_atoms == 1 and config.learns_by_batch,
            why="the networks xqc and flashsac are for distributions of returns, and num_atoms=1 gives expected ones",
            remedies=[
                {"num_atoms": 101, "v_min": -5.0, "v_max": 5.0, "scale_rewards": True},
                lambda config: config.with_defaults("network"),
            ],
        ),
        conflict(
            "scale_rewards",
            "v_max",
            when=lambda config: config.scale_rewards and config.v_max <= 0,
            why=lambda config: f"returns are kept within +-v_max, but v_max={config.v_max}",
            remedies=[{"v_min": -5.0, "v_max": 5.0}, {"scale_rewards": False}],
        ),
        conflict(
            "scale_rewards",
            "normalize_returns",
            why="both divide rewards by the deviation of their returns: the first when they are learned from, the "
            "second before they are stored",
            remedies=[{"normalize_returns": False}, {"scale_rewards": False}],
        ),
        conflict(
            "scale_rewards",
            "input_",
            when=lambda config: config.scale_rewards and config.has_data,
            why="scale_rewards divides by statistics of the steps that a run samples, but input_ has recorded ones",
            remedies=[{"scale_rewards": False}],
        ),
        conflict(
            "scale_rewards",
            "replay_buffer_config",
            when=lambda config: config.scale_rewards and config.needs_goals,
            why="scale_rewards divides by the deviation of the returns that episodes had, which the rewards of "
            "hindsight's further goals are no part of",
            remedies=[{"scale_rewards": False}, {"replay_buffer_config": {"type": "ReplayBuffer"}}],
        ),
        conflict(
            "target_critics_sampled",
            "n_critics",
            when=lambda config: (config.target_critics_sampled or 0) > config.num_critics,
            why=lambda config: f"it is more than there are critics: {config.num_critics}",
            remedies=[
                lambda config: {"n_critics": config.target_critics_sampled},
                {"n_critics": 10, "target_critics_sampled": 2},
                {"target_critics_sampled": None},
            ],
        ),
        conflict(
            "cost_limit",
            "replay_buffer_config",
            when=lambda config: config.limits_costs and config.needs_goals,
            why="a limit needs the cost of every row, but hindsight's rows have goals that were not pursued, and the "
            "environment is not asked what they would cost",
            remedies=[{"replay_buffer_config": {"type": "ReplayBuffer"}}, {"cost_limit": None}],
        ),
        conflict(
            "cost_limit",
            "num_atoms",
            when=lambda config: config.limits_costs and config.num_atoms > 1,
            why="cost_limit is for critics that give expected returns",
            remedies=[{"num_atoms": 1}, {"cost_limit": None}],
        ),
    )

    @relation("cost_limit", "model", "q_model_config")
    def _check_costs_of_critics(self):
        """`cost_limit` is for critics of fully connected layers."""
        settings, names = self.network_settings("q_model_config"), ("network", "custom_model")
        given = {name: settings[name] for name in names if settings.get(name) is not None}
        if self.cost_limit is None or not given:
            return None
        what = ", ".join(f"{name}={value!r:.80}" for name, value in given.items())
        return Mistake(
            f"cost_limit={self.cost_limit:g} is for critics of fully connected layers, not for {what}.",
            ("cost_limit", "q_model_config", "model"),
            ({"cost_limit": None}, self.with_defaults(*names)),
            "Leave one of them out.",
        )

    @of_spaces("num_atoms", "target_critics_sampled")
    def _check_values_of_choices(self, policy: NewPolicy):
        """`num_atoms` and `target_critics_sampled` are for continuous actions."""
        given = [name for name in ("num_atoms", "target_critics_sampled") if name in self.changes()]
        if not given or not isinstance(policy.action_space, spaces.Discrete):
            return None
        is_or_are = "is" if len(given) == 1 else "are"
        return Mistake(
            f"{' and '.join(given_as(self, name) for name in given)} {is_or_are} for continuous actions, but they are "
            f"{policy.action_space}.",
            tuple(given),
            ({name: self.settings[name].default for name in given},),
            "Leave it out, or use DQN, which has num_atoms for Discrete ones.",
        )


class Temperature:
    """Alpha, the price of a nat of entropy in the unit of rewards (arXiv:1812.05905, equation 18).

    Its logarithm is learned, as in the authors' code: J = mean -log(alpha) (log p(a | s) + target entropy).

    Args:
        initial: alpha at the beginning, positive.
        target_entropy: in nats.
        optimizer: of the logarithm.

    Attributes:
        target_entropy: may be set before an update.
    """

    def __init__(self, initial: float, target_entropy: float, optimizer: OptimizerSettings):
        self.target_entropy = target_entropy
        self._log = np.zeros(1, np.float32)
        self._optimizer = optimizer.make(1)
        self.begin_at(initial)

    def begin_at(self, initial: float) -> None:
        """Sets alpha, from which it is learned."""
        self._log[:] = math.log(initial)

    @property
    def alpha(self) -> float:
        """The present temperature."""
        return math.exp(self._log[0])

    def update(self, entropy: float, lr: float) -> float:
        """One step, which raises alpha if this entropy (nats, mean of a batch) is below the target.

        Returns:
            the loss before it.
        """
        gradient = entropy - self.target_entropy
        loss = float(self._log[0]) * gradient
        self._optimizer.step(self._log, np.array([gradient], np.float32), lr)
        return loss

    def get_state(self) -> dict[str, np.ndarray]:
        """Copies of the logarithm and of the optimizer's memory, by name."""
        return {"log_alpha": self._log.copy(), **{name: np.array(each) for name, each in self._optimizer.state.items()}}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores a state of `get_state`."""
        self._log[:] = state["log_alpha"]
        for name, array in self._optimizer.state.items():
            array[...] = state[name]


class SACTrainee(ActorCriticTrainee):
    """A policy that learns by SAC.

    Attributes:
        temperature: alpha, learned.
    """

    first_values = ("initial_alpha",)

    def __init__(self, algorithm: "SAC", policy_id: str):
        super().__init__(algorithm, policy_id)
        # CrossQ has other constants for the networks. They alone have a weight decay.
        optimizer = dataclasses.replace(wiring.optimizer_settings(self.config), weight_decay=0.0)
        self.temperature = Temperature(self.config.initial_alpha, self.target_entropy(), optimizer)
        self.saved["temperature.safetensors"] = self.temperature

    @property
    def is_discrete(self) -> bool:
        """Whether actions are choices."""
        return isinstance(self.policy.action_space, spaces.Discrete)

    def target_entropy(self) -> float:
        """Target entropy in nats.

        "auto" is minus the number of components of a continuous action, and 0.5 log n of n discrete ones. With action
        masks it depends on the observations: then this is the target before the first update, and each update of the
        actor sets it to the mean of 0.5 log n over its batch, n being the number of a row's legal actions.
        """
        given, distribution = self.config.target_entropy, self.policy.distribution
        if given != "auto":
            return float(given)
        if self.is_discrete:
            return DISCRETE_SHARE * math.log(distribution.num_actions)
        return -float(distribution.size)

    # ------------------------------------------------------------------ critics and losses

    def critic_module(self) -> "FullyConnected | ResidualNetworks | MemoryCritics | UserCritics":
        config, policy = self.config, self.policy
        if self.is_discrete:
            return critics_of(config, policy, ("observation",), policy.distribution.num_actions)
        return critics_of(config, policy, ("observation", "action"), config.bins and config.bins.count)

    def critic_loss(self) -> LossOverModules:
        config, sampled = self.config, self.config.target_critics_sampled
        if self.is_discrete:
            return DISCRETE_CRITIC_LOSS
        if config.bins is not None:
            return categorical.critic_loss(
                config.bins, samples_critics=sampled is not None, by_batch=config.is_by_batch
            )
        return CRITIC_LOSS if sampled is None else SAMPLED_CRITIC_LOSS

    def actor_loss(self) -> LossOverModules:
        config = self.config
        if config.limits_costs:
            return priced_actor_loss(COST_CRITIC, self.is_discrete)
        if self.is_discrete:
            return DISCRETE_ACTOR_LOSS
        return ACTOR_LOSS if config.bins is None else categorical.actor_loss(config.bins, by_batch=config.is_by_batch)

    def losses(self) -> dict[str, LossOverModules]:
        losses = super().losses()
        if not self.config.limits_costs:
            return losses
        column = self.config.episode_cost_column
        return {COST_CRITIC: cost_critic_loss(column, COST_CRITIC, self.is_discrete), **losses}

    def critics(self) -> dict[str, Any]:
        critics = super().critics()
        if not self.config.limits_costs:
            return critics
        return {**critics, COST_CRITIC: dataclasses.replace(critics[CRITICS], copies=None, shares_torso=False)}

    def copied(self) -> tuple[str, ...]:
        return (*super().copied(), *((COST_CRITIC,) if self.config.limits_costs else ()))

    def replay_columns(self) -> tuple[Column, ...]:
        columns = super().replay_columns()
        if not self.config.limits_costs:
            return columns
        return (*columns, Column(self.config.episode_cost_column), Column(COST_DISCOUNTS))

    @property
    def discounts(self) -> dict[str, tuple[str, float]]:
        if not self.config.limits_costs:
            return super().discounts
        return {**super().discounts, COST_DISCOUNTS: ("cost_gamma", self.config.get_cost_gamma())}

    def begin_again(self, changed: Mapping[str, Any]) -> None:
        super().begin_again(changed)
        self.temperature.begin_at(self.config.initial_alpha)

    # ------------------------------------------------------------------ updates

    def add_noise(self, batch: SampleBatch, rows: int) -> None:
        if not self.is_discrete:
            batch[NOISE], batch[NEXT_NOISE] = (self.normal_noise(rows) for _ in range(2))
        if self.config.target_critics_sampled is not None:
            order = self.rng.random((rows, self.config.num_critics)).argsort(1)
            batch[LEFT_OUT] = np.where(order < self.config.target_critics_sampled, 0, np.inf).astype(np.float32)

    def critic_settings(self) -> dict[str, Any]:
        return {"alpha": self.temperature.alpha}

    def actor_settings(self) -> dict[str, Any]:
        multiplier = price_of_costs(self.algorithm)
        return {**self.critic_settings(), **({} if multiplier is None else {"multiplier": multiplier})}

    def learning_rates(self, at: int | None = None) -> dict[str, float]:
        rates = self.scheduled("lr", "alpha_lr", at=at)
        alpha_lr = rates["lr" if rates["alpha_lr"] is None else "alpha_lr"]
        return {**super().learning_rates(at), "alpha_lr": alpha_lr}

    def learn_from(self, batch: SampleBatch, **rates: float) -> dict[str, Any]:
        if self.algorithm.config.scale_rewards:
            batch[REWARDS] = batch[REWARDS] / self.return_scale.divisor(self.config.v_max)
        stats, temperature = super().learn_from(batch, **rates), self.temperature
        largest = stats.pop(LARGEST_ENTROPY, None)
        if largest is not None and self.config.target_entropy == "auto" and self.policy.is_masked:
            temperature.target_entropy = DISCRETE_SHARE * largest
        stats |= {"alpha_value": temperature.alpha, "target_entropy": temperature.target_entropy}
        if self.moves_actor:
            stats["alpha_loss"] = temperature.update(stats["entropy"], rates["alpha_lr"])
        return stats


class SAC(OffPolicyActorCritic):
    """Soft actor-critic."""

    config_class = SACConfig
    trainee_class: ClassVar[type[SACTrainee]] = SACTrainee
    reported_stats = (*OffPolicyActorCritic.reported_stats, "entropy", "alpha_value", "alpha_loss", "target_entropy")

    def make_features(self) -> dict[str, Feature]:
        return cost_limit_of(self.config)

    def actor_spec(self, observation_space, action_space, config: SACConfig) -> NetworkSpec:
        if isinstance(action_space, spaces.Discrete):
            return self.plain_spec(observation_space, action_space, config)
        spec = self.plain_spec(observation_space, action_space, config, squash_actions=True)
        limit = SDE_MEAN_LIMIT if spec.architecture.state_dependent_noise else None
        distribution = BoundedSquashedGaussian(spec.distribution.action_shape, limit)
        architecture = spec.architecture
        if architecture.state_dependent_noise:
            architecture = dataclasses.replace(architecture, noise_trains_features=True)
        return dataclasses.replace(spec, distribution=distribution, architecture=architecture)

    def make_postprocess(self, policy_id: str) -> Postprocess:
        rows, config = super().make_postprocess(policy_id), self.config_of(policy_id)
        if not config.limits_costs:
            return rows
        return dataclasses.replace(rows, costs=CostsOfSteps(config.episode_cost_column, config.get_cost_gamma()))


class TQCConfig(SACConfig):
    """Settings of TQC: SAC's, and the critics' quantiles."""

    refuses: ClassVar[dict[str, str]] = {
        "num_atoms": "TQC's critics give quantiles, n_quantiles; atoms are for SAC's",
        "target_critics_sampled": "TQC has its own targets; SAC's take the least value",
        "cost_limit": "TQC's actor is led by quantiles of rewards alone",
    }
    learns_by_batch: ClassVar[bool] = False
    takes_choices: ClassVar[bool] = False

    @section
    def training(
        self,
        *,
        n_quantiles: Annotated[int, "quantiles of the return that each critic gives", at_least(2), OfPolicy] = 25,
        top_quantiles_to_drop_per_net: Annotated[
            int,
            "times the number of critics: the largest quantiles that are left out of the targets",
            at_least(0),
            OfPolicy,
        ] = 2,
    ) -> Self: ...

    conflicts = (
        conflict(
            "top_quantiles_to_drop_per_net",
            "n_quantiles",
            when=lambda config: config.top_quantiles_to_drop_per_net >= config.n_quantiles,
            why="the first must be less than the second, or no targets are left",
            remedies=[
                lambda config: {"top_quantiles_to_drop_per_net": min(2, config.n_quantiles - 1)},
                lambda config: {"n_quantiles": config.top_quantiles_to_drop_per_net + 1},
            ],
        ),
    )


class TQCTrainee(SACTrainee):
    """A policy that learns by TQC."""

    def critic_module(self) -> "FullyConnected | ResidualNetworks | MemoryCritics | UserCritics":
        return critics_of(self.config, self.policy, ("observation", "action"), self.config.n_quantiles)

    def critic_loss(self) -> LossOverModules:
        return tqc.critic_loss(self.config.top_quantiles_to_drop_per_net)

    def actor_loss(self) -> LossOverModules:
        return tqc.ACTOR_LOSS


class TQC(SAC):
    """Truncated quantile critics."""

    config_class = TQCConfig
    trainee_class = TQCTrainee
