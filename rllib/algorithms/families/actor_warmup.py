"""Warm-up of the value: in its first updates a policy that begins with the weights of another run stays as it is.

A policy that was distilled or cloned has no value. As long as its value knows nothing, advantages are noise, and
updates by them may unlearn what the policy has learned. `actor_warmup_updates` is the number of updates in which the
value alone learns.
"""

from typing import TYPE_CHECKING, Annotated, Self

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.space_rules import NewPolicy, of_network
from rllib.config.conflicts import DEFAULT, Mistake, conflict
from rllib.config.sections import OfPolicy, at_least, section
from rllib.learners.updates.adaptive_rate import AdaptiveRate
from rllib.losses.actor_warmup import ACTOR_FACTOR, ActorWarmupLoss
from rllib.losses.loss import Loss

if TYPE_CHECKING:
    from rllib.algorithms.base.trainee import Trainee

# Settings that change the loss of the policy.
_LOSSES = ("auxiliary_losses", "custom_loss", "learner_class")
_NO_WARMUP = {"actor_warmup_updates": 0}


class ActorWarmupConfig(AlgorithmConfig):
    """Settings of actor-critics whose value may learn first."""

    @section
    def training(
        self,
        *,
        actor_warmup_updates: Annotated[
            int,
            "first updates in which the value alone learns, of a policy that begins with the weights of another run",
            at_least(0),
            OfPolicy,
        ] = 0,
    ) -> Self: ...

    conflicts = (
        conflict(
            "actor_warmup_updates",
            "use_critic",
            when=lambda config: config.actor_warmup_updates and not config.get("use_critic", True),
            why="there is no value that could learn first",
            remedies=[{"use_critic": True}, _NO_WARMUP],
        ),
        conflict(
            "actor_warmup_updates",
            "lr",
            when=lambda config: config.actor_warmup_updates and AdaptiveRate.from_setting(config.lr) is not None,
            why="a rate that follows the KL would rise while the policy stays as it is",
            remedies=[{"lr": 3e-4}, _NO_WARMUP],
        ),
        conflict(
            "actor_warmup_updates",
            "weight_decay",
            "opt_type",
            when=lambda config: config.actor_warmup_updates and config.decays_weights,
            why="weight_decay draws the policy's weights to 0 in every update",
            remedies=[{"weight_decay": None, "opt_type": "adam"}, _NO_WARMUP],
        ),
        conflict(
            "actor_warmup_updates",
            *_LOSSES,
            when=lambda config: config.actor_warmup_updates and any(config[name] for name in _LOSSES),
            why="your own losses may move the policy in every update",
            remedies=[_NO_WARMUP, dict.fromkeys(_LOSSES, DEFAULT)],
        ),
        conflict(
            "actor_warmup_updates",
            "cost_limit",
            when=lambda config: config.actor_warmup_updates and config.get("cost_limit") is not None,
            why="a limit makes a learner of policy and cost critic, and the warm-up is for the policy's alone",
            remedies=[_NO_WARMUP, {"cost_limit": None}],
        ),
    )

    @of_network("actor_warmup_updates", "model")
    def _check_actor_warmup(self, policy: NewPolicy) -> Mistake | None:
        """`actor_warmup_updates` is for a value with its own layers."""
        spec = policy.spec
        if not self.actor_warmup_updates or (spec.shared is None and spec.architecture.is_built_in):
            return None
        if not spec.architecture.is_built_in:
            problem = "and nothing says which parts of a model of your own are the value's."
            return Mistake(
                f"actor_warmup_updates={self.actor_warmup_updates} moves the value alone, {problem}",
                ("actor_warmup_updates", "model"),
                (_NO_WARMUP,),
            )
        key = "vf_share_memory" if spec.memory else "vf_share_layers"
        return Mistake(
            f"actor_warmup_updates={self.actor_warmup_updates} moves the value alone, but policy and value share their "
            "layers.",
            ("actor_warmup_updates", "model"),
            ({"model": {key: False}}, _NO_WARMUP) if self.model.get(key) else (_NO_WARMUP,),
        )

    @property
    def decays_weights(self) -> bool:
        """Whether the optimizer draws weights to 0."""
        return bool(self.weight_decay) or (self.weight_decay is None and self.opt_type == "adamw")

    def make_actor_warmup(self, trainee: "Trainee") -> "ActorWarmup | None":
        return ActorWarmup(trainee) if self.actor_warmup_updates else None


class ActorWarmup:
    """The warm-up of a policy in training: a part that its trainee owns.

    Args:
        trainee: trainee of the policy.
    """

    def __init__(self, trainee: "Trainee"):
        self._trainee = trainee

    def with_term(self, loss: Loss) -> ActorWarmupLoss:
        """The loss of the algorithm, with a factor of the policy's gradient."""
        return ActorWarmupLoss(loss)

    def loss_settings(self) -> dict[str, float]:
        """Settings of the next update's loss."""
        moves_actor = self._trainee.num_updates >= self._trainee.config.actor_warmup_updates
        return {ACTOR_FACTOR: float(moves_actor)}

    def stats(self) -> dict[str, float]:
        """Statistics of an update, in addition to those of its loss: none."""
        return {}
