"""Proximal policy optimisation, clipped surrogate (Schulman et al., arXiv:1707.06347).

Departures from the paper, all of them Ray RLlib's or of "The 37 implementation details of PPO":
- an adaptive penalty on KL(old || new) joins the clipped objective (the paper's section 4; `kl_coeff=0` is without);
- advantages are GAE's (arXiv:1506.02438), which workers compute (evaluation/postprocess/advantages.py), standardised
  over the whole train batch ("minibatch": over each of those);
- the value loss is clipped in units of value, as OpenAI's PPO2 did: a prediction moves by at most `vf_clip_param` per
  batch, and large returns still give a gradient. (Ray 2.x cuts the squared error itself, which then gives none.)
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.feature import Feature
from rllib.algorithms.base.settings.exploration import OF_NOVELTY
from rllib.algorithms.base.space_rules import NewPolicy, of_network
from rllib.algorithms.families.actor_warmup import ActorWarmupConfig
from rllib.algorithms.families.constrained import cost_limit_of, price_of_costs
from rllib.algorithms.families.constrained_on_policy import (
    ConstrainedActorCriticConfig,
    ConstrainedTrainee,
    with_cost_advantages,
)
from rllib.algorithms.families.intrinsic import advantage_estimator, seeks_novelty, with_advantages
from rllib.algorithms.families.on_policy import OF_KL, AdaptiveKL
from rllib.config.conflicts import Mistake, conflict, needs
from rllib.config.sections import FollowsKL, OfPolicy, above, at_least, section
from rllib.evaluation.postprocess.advantages import RecomputedAdvantages
from rllib.evaluation.postprocess.base import Postprocess
from rllib.learners.updates.adaptive_rate import AdaptiveRate
from rllib.learners.updates.objective import POLICY
from rllib.losses.ppo import PPO_LOSS
from rllib.sample_batch import SampleBatch
from rllib.schedules import Schedule

_MODEL = {"vf_share_layers": False}


class PPOConfig(ActorWarmupConfig, ConstrainedActorCriticConfig):
    """Settings of PPO; the defaults are RLlib's, except those in default_differences.py."""

    exploration_kinds: ClassVar[tuple[str, ...]] = ("StochasticSampling", *OF_NOVELTY)

    @section
    def rollouts(self, *, num_rollout_workers=2) -> Self: ...

    @section
    def training(
        self,
        *,
        lr: Annotated[
            float | list,
            "learning rate, a schedule of it over sampled steps, or one that follows the KL: "
            "{'type': 'kl_adaptive', 'initial': 1e-3, 'desired_kl': 0.01}",
            at_least(0),
            FollowsKL,
        ] = 5e-5,
        train_batch_size=4000,
        model=_MODEL,
        sgd_minibatch_size: Annotated[int, "rows per gradient step", at_least(1), OfPolicy] = 128,
        num_sgd_iter: Annotated[int, "epochs over each train batch", at_least(1), OfPolicy] = 30,
        clip_param: Annotated[
            float | list, "how far the probability ratio may leave 1, or a schedule", above(0), OfPolicy
        ] = 0.3,
        use_kl_loss: Annotated[bool, "add the adaptive KL penalty", OfPolicy] = True,
        kl_coeff: Annotated[
            float | list,
            "coefficient of the KL penalty: the initial one, or a schedule to follow",
            at_least(0),
            OfPolicy,
        ] = 0.2,
        kl_target: Annotated[float, "KL(old || new) that the coefficient adapts to (nats)", above(0), OfPolicy] = 0.01,
        recompute_advantages: Annotated[
            bool, "compute advantages and value targets again before each epoch, by the newest values"
        ] = False,
        target_kl: Annotated[
            float | None,
            "KL(old || new) (nats) of 1.5 times which in a minibatch ends the epochs on a train batch; None: never",
            above(0),
            OfPolicy,
        ] = None,
        vf_clip_param: Annotated[
            float | list | None,
            "how far a value may move per batch, in units of value, or a schedule; None: any",
            above(0),
            OfPolicy,
        ] = 10.0,
        standardize_advantages=True,
        shuffle_sequences: Annotated[bool, "shuffle the rows before each epoch", OfPolicy] = True,
    ) -> Self: ...

    conflicts = (
        conflict(
            "lr",
            "cost_limit",
            when=lambda config: config.cost_limit is not None and config.adaptive_rate is not None,
            why="a critic of costs is trained at the same rate, which would follow the policy's KL",
            remedies=[{"lr": 3e-4}, {"cost_limit": None}],
        ),
        conflict(
            "recompute_advantages",
            "cost_limit",
            when=lambda config: config.recompute_advantages and config.cost_limit is not None,
            why="advantages of rewards alone are recomputed, but the update needs those of costs, too",
            remedies=[{"recompute_advantages": False}, {"cost_limit": None}],
        ),
        needs("recompute_advantages", "use_critic", why="the critic's values are what changes"),
        conflict(
            "lr",
            "lr_schedule",
            when=lambda config: config.adaptive_rate is not None and config.lr_schedule is not None,
            why="the first follows the KL, the second the time",
            remedies=[{"lr_schedule": None}, {"lr": 3e-4}],
        ),
    )

    @of_network("recompute_advantages")
    def _check_recomputed(self, policy: NewPolicy):
        """`recompute_advantages` is for networks without a memory."""
        if self.recompute_advantages and policy.spec.state_size:
            return Mistake(
                "recompute_advantages=True computes values of observations alone, so it does not go with a policy that "
                "has a memory.",
                ("recompute_advantages", "model"),
                ({"recompute_advantages": False},),
            )
        return None

    @property
    def adaptive_rate(self) -> AdaptiveRate | None:
        """The learning rate that follows the KL, at its beginning; None where it is a number or a schedule."""
        return AdaptiveRate.from_setting(self.lr)

    def get_schedule(self, name: str) -> Schedule | None:
        # A rate that follows the KL is not a function of the time.
        return None if name == "lr" and self.adaptive_rate is not None else super().get_schedule(name)


class PPOTrainee(ConstrainedTrainee):
    """A policy that learns by PPO.

    Attributes:
        kl: coefficient of the penalty on the KL divergence.
        rate: the learning rate that follows the KL; None: it is a setting.
    """

    first_values = (*OF_KL, "lr")

    def __init__(self, algorithm: "PPO", policy_id: str):
        super().__init__(algorithm, policy_id)
        self.kl, self.rate = AdaptiveKL(self), self.config.adaptive_rate

    def update(self, batch: SampleBatch, now: int) -> dict[str, Any]:
        """Makes the epochs of minibatches on a train batch. Returns statistics.

        Args:
            batch: fragments of the newest policy, or late ones of earlier policies, with advantages.
            now: environment steps at which schedules are read: those sampled before the batch.
        """
        config = self.config
        novelty = self.add_novelty(batch)
        steps, recomputed = self._with_advantages(batch)
        lr = self.scheduled("lr", at=now)["lr"] if self.rate is None else self.rate
        of_loss = {
            "standardize_advantages": config.standardize_advantages == "minibatch",
            **self.scheduled("clip_param", "entropy_coeff", "vf_clip_param", "vf_loss_coeff", at=now),
            "kl_coeff": self.kl.coefficient,
        }
        stats = self.learn_on_batch(
            steps,
            num_epochs=config.num_sgd_iter,
            minibatch_size=config.sgd_minibatch_size,
            shuffle=config.shuffle_sequences,
            refresh=recomputed,
            lr=lr,
            stop_above=self.kl.stop_above,
            **(of_loss if config.cost_limit is None else {POLICY: of_loss}),
        )
        self.kl.adapt(stats["kl"], self.timesteps)
        if self.rate is not None:
            self.rate = self.rate.at(stats["cur_lr"])
        return stats | novelty

    def _with_advantages(self, batch: SampleBatch) -> tuple[SampleBatch, RecomputedAdvantages | None]:
        """The steps to learn from; with recompute_advantages, also the function that refreshes them in each epoch."""
        config = self.config
        standardize = config.standardize_advantages in (True, "batch")
        if not config.recompute_advantages:
            return with_advantages(batch, standardize, price_of_costs(self.algorithm)), None
        lambda_ = config.lambda_ if config.use_gae else 1.0
        recomputed = RecomputedAdvantages(batch, self.policy, config.gamma, lambda_, standardize)
        return recomputed.steps, recomputed

    def numbers(self) -> dict[str, Any]:
        rate = {} if self.rate is None else {"lr": self.rate.initial}
        return {**super().numbers(), "kl_coeff": self.kl.coefficient, **rate}

    def set_numbers(self, numbers: Mapping[str, Any]) -> None:
        super().set_numbers(numbers)
        self.kl.coefficient = numbers.get("kl_coeff", self.kl.coefficient)
        if self.rate is not None and "lr" in numbers:
            self.rate = self.rate.at(numbers["lr"])

    def begin_again(self, changed: Mapping[str, Any]) -> None:
        super().begin_again(changed)
        if any(name in changed for name in OF_KL):
            self.kl.begin_at(self.timesteps)
        if "lr" in changed and self.rate is not None:
            first, before = self.config.adaptive_rate, AdaptiveRate.from_setting(changed["lr"])
            if before is None or before.initial != first.initial:
                self.rate = first


class PPO(Algorithm):
    """Proximal policy optimisation."""

    config_class = PPOConfig
    trainee_class = PPOTrainee
    learns_from_own_actions = True
    trains_several = True
    loss = PPO_LOSS
    reported_stats = (
        "total_loss", "policy_loss", "vf_loss", "vf_explained_var", "cur_lr", "entropy_coeff", "entropy", "kl",
        "cur_kl_coeff", "grad_gnorm",
    )  # fmt: skip

    @property
    def samples_sequences(self) -> bool:
        """Whether batches have the observations to bootstrap from."""
        return self.config.recompute_advantages or seeks_novelty(self.config)

    def make_features(self) -> dict[str, Feature]:
        return cost_limit_of(self.config)

    def make_postprocess(self, policy_id: str) -> Postprocess:
        config = self.config_of(policy_id)
        return with_cost_advantages(advantage_estimator(config, self.config), config)

    def training_step(self) -> dict[str, dict[str, float]]:
        now, batches = self.timesteps, self.train_batches()
        return {trainee.policy_id: trainee.update(batch, now) for trainee, batch in batches}
