"""Q-learning from replayed rows, for DQN, Ape-X and R2D2: the Q-network and its targets.

Both streams of a dueling network read the same hidden layers, `fcnet_hiddens` and then `hiddens`; R2D2's memory stands
between the two. As in RLlib, `hiddens` have rectified units, whatever `fcnet_activation` is. Weights begin as torch's
layers do, uniform within 1 / sqrt(fan in), not orthogonal as policies' do; decisions_learning.md in
docs/project/decisions measures the difference.
"""

import dataclasses
from typing import Annotated, Any, ClassVar, Literal, Self

import gymnasium as gym
import numpy as np

from rllib import sample_batch as sb
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.settings.exploration import EPSILON_ALIASES, OF_VALUES
from rllib.algorithms.base.space_rules import NewPolicy, of_spaces
from rllib.algorithms.families.off_policy import OffPolicy, OffPolicyConfig, OffPolicyTrainee
from rllib.config.config_object import relation
from rllib.config.conflicts import DEFAULT, Mistake, conflict
from rllib.config.sections import OfPolicy, above, at_least, between, only_with, section
from rllib.exploration.explorers import Exploration
from rllib.exploration.network_noise import NoisyWeights
from rllib.learners.learner import Learner
from rllib.learners.updates.target_copy import TargetCopy
from rllib.losses.loss import Loss, LossOverModules
from rllib.losses.munchausen import Munchausen
from rllib.losses.offline.q_penalties import Conservative, LargeMargin
from rllib.losses.quantiles import QuantileLoss
from rllib.losses.td import DistributionalLoss, TDLoss, q_targets, with_targets
from rllib.losses.user.auxiliary import WithAuxiliary
from rllib.models.attention.spec import Attention
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.distributions.q_values import QValues
from rllib.models.implicit.spec import ImplicitQuantiles
from rllib.models.memory.spec import Memory
from rllib.models.model_settings import MEMORIES, OF_MEMORIES
from rllib.sample_batch import DEFAULT_POLICY, SampleBatch


def for_discrete_actions(config: AlgorithmConfig, policy: NewPolicy) -> Mistake | None:
    """What is wrong with actions that are no choices, of which a value cannot be learned for each."""
    if isinstance(policy.action_space, gym.spaces.Discrete):
        return None
    return Mistake(
        f"{config.algorithm_name} learns the value of each action, so it needs a Discrete action space, but "
        f"{policy.place} has {policy.action_space}.",
        ("env",),
        advice="Use PPO for it, or an environment with discrete actions.",
    )


class QLearningConfig(OffPolicyConfig):
    """Settings of the action values: their network, their noise and their loss."""

    exploration_kinds: ClassVar[tuple[str, ...]] = OF_VALUES
    own_aliases: ClassVar[dict] = EPSILON_ALIASES

    @property
    def overestimates_alone(self) -> bool:
        return not (self.conservative_weight or self.margin_weight)

    @section
    def training(
        self,
        *,
        lr=5e-4,
        grad_clip=40.0,
        train_batch_size=32,
        double_q: Annotated[
            bool, "the online network chooses the next action, the target network judges it", OfPolicy
        ] = True,
        dueling: Annotated[bool, "Q is a value plus advantages", OfPolicy] = True,
        hiddens: Annotated[
            list[int], "widths of hidden layers, relu, between fcnet_hiddens and the heads", OfPolicy
        ] = [256],  # noqa: B006
        num_atoms: Annotated[int, "points of the return's distribution (C51: 51); 1: none", at_least(1), OfPolicy] = 1,
        v_min: Annotated[
            float, "least return of the distribution", only_with("learns_bins", otherwise="num_atoms=1"), OfPolicy
        ] = -10.0,
        v_max: Annotated[
            float, "largest return of the distribution", only_with("learns_bins", otherwise="num_atoms=1"), OfPolicy
        ] = 10.0,
        num_quantiles: Annotated[
            int, "quantiles of the return, without v_min (QR-DQN: 200); 1: none", at_least(1), OfPolicy
        ] = 1,
        implicit_quantiles: Annotated[
            bool,
            "num_quantiles are those of an implicit quantile network, at levels drawn for each update (IQN)",
            OfPolicy,
        ] = False,
        num_cosines: Annotated[
            int,
            "by which a level is encoded, with implicit_quantiles",
            at_least(1),
            only_with("implicit_quantiles"),
            OfPolicy,
        ] = 64,
        noisy: Annotated[bool, "explore by learned noise in the weights of hiddens and the head", OfPolicy] = False,
        sigma0: Annotated[
            float,
            "initial noise in the weights, before the root of a layer's inputs",
            above(0, finite=True),
            only_with("noisy"),
            OfPolicy,
        ] = 0.5,
        munchausen_alpha: Annotated[
            float,
            "weight of the target policy's log-probability in the reward (M-DQN: 0.9); 0: none",
            between(0, 1),
            OfPolicy,
        ] = 0.0,
        munchausen_temperature: Annotated[
            float,
            "of the target policy, in units of returns",
            above(0, finite=True),
            only_with("munchausen_alpha"),
            OfPolicy,
        ] = 0.03,
        munchausen_clip: Annotated[
            float,
            "least scaled log-probability that counts",
            between(-np.inf, 0),
            only_with("munchausen_alpha"),
            OfPolicy,
        ] = -1.0,
        td_error_loss_fn: Annotated[
            Literal["huber", "mse"],
            "loss of the TD error, without a distribution of returns",
            only_with("learns_numbers", otherwise="distributions of returns have losses of their own"),
            OfPolicy,
        ] = "huber",
        conservative_weight: Annotated[
            float,
            "weight of the penalty on values of actions that the data does not have (discrete CQL)",
            at_least(0),
            OfPolicy,
        ] = 0.0,
        margin_weight: Annotated[
            float,
            "weight of the loss by which recorded actions are worth more than all others (DQfD)",
            at_least(0),
            OfPolicy,
        ] = 0.0,
        margin: Annotated[
            float, "by how much, with margin_weight", above(0, finite=True), only_with("margin_weight"), OfPolicy
        ] = 0.8,
    ) -> Self: ...

    conflicts = (
        conflict(
            "margin_weight",
            "input_",
            when=lambda config: config.margin_weight and not config.has_data,
            why="it is for recorded actions, and there are none",
            remedies=[{"margin_weight": 0.0}],
            advice='Use .offline_data(input_={"sampler": 0.75, PATH: 0.25}), or leave it out.',
        ),
        conflict(
            "num_atoms",
            "v_min",
            "v_max",
            when=lambda config: config.num_atoms > 1 and not -np.inf < config.v_min < config.v_max < np.inf,
            why=lambda config: (
                f"v_min={config.v_min} must be below v_max={config.v_max}, and both be finite: they are "
                "the ends of the returns that num_atoms stand for"
            ),
            remedies=[{"v_min": -10.0, "v_max": 10.0}],
        ),
        conflict(
            "num_atoms",
            "num_quantiles",
            when=lambda config: config.num_atoms > 1 and config.num_quantiles > 1,
            why="they are two forms of the return's distribution: points between v_min and v_max, or quantiles",
            remedies=[{"num_atoms": 1}, {"num_quantiles": 1}],
        ),
        conflict(
            "implicit_quantiles",
            "num_quantiles",
            when=lambda config: config.implicit_quantiles and config.num_quantiles == 1,
            why="levels of num_quantiles quantiles are drawn, and there is 1",
            remedies=[{"num_quantiles": 32}, {"implicit_quantiles": False}],
        ),
        conflict(
            "munchausen_alpha",
            "num_atoms",
            when=lambda config: config.munchausen_alpha and config.num_atoms > 1,
            why="it needs values or quantiles of returns, but num_atoms are points of a support",
            remedies=[{"num_atoms": 1, "num_quantiles": 64}, {"munchausen_alpha": 0.0}],
        ),
        conflict(
            "munchausen_alpha",
            "double_q",
            why="the first bootstraps from all actions, weighted by the target network's policy, so there is no action "
            "for double_q to choose",
            remedies=[{"double_q": False}, {"munchausen_alpha": 0.0}],
        ),
        conflict(
            "noisy",
            "exploration_config",
            when=lambda config: config.noisy and not config.explores_by_noise_alone,
            why="noisy=True explores by noise in the weights alone",
            remedies=[{"exploration_config": DEFAULT}, {"noisy": False}],
        ),
        conflict(
            "noisy",
            "model",
            when=lambda config: config.noisy and not config.model.get("output_layer_use_bias", True),
            why="noisy=True has noise in the biases, too, so it needs model={'output_layer_use_bias': True}",
            remedies=[{"model": {"output_layer_use_bias": True}}, {"noisy": False}],
        ),
    )

    @relation("implicit_quantiles", "model")
    def _check_implicit_quantiles(self):
        """`implicit_quantiles` is for networks without a memory and without a custom model."""
        keys = ("use_lstm", "use_gru", "use_attention", "custom_model")
        asked = [name for name in keys if self.model.get(name)] if self.implicit_quantiles else []
        if asked:
            return Mistake(
                "implicit_quantiles=True is for networks without a memory and without a custom model, but model has "
                f"{asked[0]!r}.",
                ("implicit_quantiles", "model"),
                ({"implicit_quantiles": False}, self.with_defaults(*OF_MEMORIES, "custom_model")),
            )
        return None

    @property
    def explores_by_noise_alone(self) -> bool:
        """Whether exploration_config asks for no exploration except noise in the weights."""
        given = {**self.default_exploration, **self.exploration_config}
        never = all(given.get(name) == 0 for name in ("initial_epsilon", "final_epsilon"))
        return given == self.default_exploration or never

    @of_spaces()
    def _check_actions(self, policy: NewPolicy):
        """Actions are choices."""
        return for_discrete_actions(self, policy)

    @relation("hiddens", "model")
    def _check_layers_behind_memory(self):
        """`hiddens` are rectified, so that layers behind a memory in `model` are, too."""
        model, activation = self.model, self.model.get("post_lstm_activation", "relu")
        has_memory = any(model.get(name) for name in MEMORIES)
        if has_memory and self.hiddens and model.get("post_lstm_hiddens") and activation != "relu":
            return Mistake(
                f"hiddens={self.hiddens} are rectified layers behind those of "
                f"model['post_lstm_hiddens']={list(model['post_lstm_hiddens'])}, so these cannot have "
                f"model['post_lstm_activation']={activation!r}.",
                ("hiddens", "model"),
                ({"hiddens": []}, {"model": {"post_lstm_activation": "relu"}}),
            )
        return None

    @property
    def learns_bins(self) -> bool:
        """Whether values are distributions over bins between v_min and v_max."""
        return self.num_atoms > 1

    @property
    def learns_numbers(self) -> bool:
        """Whether values are expected returns, and no distributions."""
        return self.num_atoms == self.num_quantiles == 1

    @property
    def munchausen(self) -> Munchausen | None:
        """The targets, or None where they are those of the best action."""
        settings = self.munchausen_alpha, self.munchausen_temperature, self.munchausen_clip
        return Munchausen(*settings) if self.munchausen_alpha else None

    @relation("hiddens")
    def _check_hiddens(self):
        """`hiddens` are positive integers."""
        if not all(type(width) is int and width > 0 for width in self.hiddens):
            return Mistake(
                f"hiddens={self.hiddens!r} must be a list of positive integers.", ("hiddens",), ({"hiddens": [256]},)
            )
        return None


class QTrainee(OffPolicyTrainee):
    """A policy that learns the values of its actions."""

    def make_learner(self) -> Learner:
        return super().make_learner(
            targets=[TargetCopy("policy", self.config.tau, self.config.target_network_update_freq)]
        )

    def make_loss(self) -> Loss:
        """The loss of values, or of distributions; its row statistic td_error becomes the priorities of the rows."""
        config, loss = self.config, td_loss(self.config)
        if config.margin_weight:
            loss = LargeMargin(loss, config.margin_weight, config.margin)
        return Conservative(loss, config.conservative_weight) if config.conservative_weight else loss

    def whole_loss(self) -> Loss | LossOverModules:
        """The loss; on GPUs, and of images, it computes its targets itself, with the gradient.

        Images are always learned in torch, whose convolutions are quicker than numpy's. What a subclass adds to the
        batch as targets, what sequences of a memory are fitted to, and what functions of the user's read, is computed
        before the update, in this process.
        """
        loss, policy, config = super().whole_loss(), self.policy, self.config
        own = type(self).add_targets is QTrainee.add_targets and type(self).learn_from is QTrainee.learn_from
        in_torch = config.num_gpus or policy.spec.torso
        if not in_torch or not own or policy.state_size or isinstance(loss, WithAuxiliary):
            return loss
        return with_targets(loss, config.double_q, config.munchausen)

    def add_targets(self, batch: SampleBatch) -> None:
        """Adds the column of targets, computed by the target network."""
        policy, target, config = self.policy, self.target, self.config
        returns = batch[sb.REWARDS], batch[sb.DISCOUNTS]
        judged = target.action_values(batch[sb.NEXT_OBS])
        if soft := config.munchausen:
            before = target.action_values(batch[sb.OBS])
            name, targets = soft.targets(policy.distribution, before, judged, batch[sb.ACTIONS], *returns)
        else:
            choosing = policy.action_values(batch[sb.NEXT_OBS]) if config.double_q else judged
            name, targets = q_targets(policy.distribution, judged, choosing.q_values(), *returns)
        batch[name] = targets

    def learn_from(self, batch: SampleBatch, *, lr: float) -> dict[str, Any]:
        for policy in (self.policy, self.target):
            policy.resample(self.rng)
        if self.config.margin_weight and sb.RECORDED not in batch:  # there is no replay but of the data
            batch[sb.RECORDED] = np.ones(len(batch), np.float32)
        if not self.learner.objectives[0].is_over_modules:
            self.add_targets(batch)
        stats = self.learn_on_batch(batch, lr=lr, shuffle=False)
        if self.config.implicit_quantiles:
            self.policy.silence()  # it acts by the middles of the levels
        return stats


class QLearning(OffPolicy):
    """Base of the algorithms that learn the value of each action from a replay."""

    trainee_class: ClassVar[type[QTrainee]] = QTrainee
    initializer = "uniform"
    reported_stats = ("mean_q", "min_q", "max_q", "cur_lr", "mean_td_error")

    def make_policy_spec(self, observation_space, action_space, config: QLearningConfig) -> NetworkSpec:
        spec = super().make_policy_spec(observation_space, action_space, config)
        quantiles = config.num_quantiles > 1
        atoms = config.num_quantiles if quantiles else config.num_atoms
        ends = config.v_min, config.v_max
        implicit = config.implicit_quantiles
        values = QValues(int(action_space.n), config.dueling, atoms, *ends, spec.is_masked, quantiles, implicit)
        architecture, layers = spec.architecture.without_value(), {}
        if spec.memory and config.hiddens:
            architecture = _memory_before_hiddens(spec.memory, config.hiddens)
        else:
            activations = (*spec.activations, *("relu",) * len(config.hiddens))
            layers = {"hiddens": (*spec.hiddens, *config.hiddens), "activations": activations}
        return spec.without_value(
            distribution=values,
            **layers,
            noisy_layers=len(config.hiddens) + 1 if config.noisy else 0,
            sigma0=config.sigma0,
            architecture=(
                ImplicitQuantiles(atoms, config.num_cosines, len(config.hiddens)) if implicit else architecture
            ),
        )

    def make_exploration(self, config: QLearningConfig, policy_id: str = DEFAULT_POLICY) -> Exploration:
        return NoisyWeights() if config.noisy else super().make_exploration(config, policy_id)


def td_loss(config: QLearningConfig) -> Loss:
    """The loss of values, or of distributions of returns, by its settings."""
    if config.num_quantiles > 1:
        return QuantileLoss()
    return DistributionalLoss() if config.num_atoms > 1 else TDLoss(config.td_error_loss_fn)


def _memory_before_hiddens(memory: Memory | Attention, hiddens: list[int]) -> Memory | Attention:
    """Adds the `hiddens` behind the layers of a memory."""
    return dataclasses.replace(memory, post_hiddens=(*memory.post_hiddens, *hiddens), post_activation="relu")
