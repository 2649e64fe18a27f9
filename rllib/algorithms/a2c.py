"""Advantage actor-critic, synchronous: A3C of Mnih et al., arXiv:1602.01783 (algorithm S3), without the asynchrony.

Departures from the paper, see also losses/policy_gradient.py:
- all workers sample with the same weights, and one gradient is taken over the fragments of all of them;
- losses are means over the batch, not sums, and the squared error of the value has no factor 1/2;
- advantages are GAE's (arXiv:1506.02438); lambda_=1, the default, gives the paper's discounted returns minus the value;
- Adam is the default, as in RLlib; opt_type="rmsprop" is the paper's.
"""

from typing import Annotated, Any, ClassVar, Self

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.settings.exploration import OF_NOVELTY
from rllib.algorithms.families.actor_warmup import ActorWarmupConfig
from rllib.algorithms.families.intrinsic import (
    IntrinsicConfig,
    IntrinsicTrainee,
    advantage_estimator,
    seeks_novelty,
    with_advantages,
)
from rllib.algorithms.families.on_policy import ActorCriticConfig
from rllib.config.conflicts import conflict
from rllib.config.sections import OfPolicy, at_least, section
from rllib.evaluation.postprocess.base import Postprocess
from rllib.losses.policy_gradient import POLICY_GRADIENT_LOSS


class A2CConfig(ActorWarmupConfig, IntrinsicConfig, ActorCriticConfig):
    """Settings of A2C; the defaults are RLlib's, except those in default_differences.py."""

    exploration_kinds: ClassVar[tuple[str, ...]] = ("StochasticSampling", *OF_NOVELTY)

    @section
    def rollouts(self, *, num_rollout_workers=2) -> Self: ...

    @section
    def training(
        self,
        *,
        lr=1e-4,
        grad_clip=40.0,
        vf_loss_coeff=0.5,
        entropy_coeff=0.01,
        microbatch_size: Annotated[
            int | None,
            "rows that the gradient is computed from at a time, which saves memory; None: all",
            at_least(1),
            OfPolicy,
        ] = None,
    ) -> Self: ...

    @section
    def reporting(self, *, min_time_s_per_iteration=10) -> Self: ...

    conflicts = (
        conflict(
            "microbatch_size",
            "train_batch_size",
            when=lambda config: config.on_policy and (config.microbatch_size or 0) > config.train_batch_size,
            why="a part of a batch is at most as large as the batch",
            remedies=[{"microbatch_size": None}, lambda config: {"microbatch_size": config.train_batch_size}],
        ),
    )


class A2CTrainee(IntrinsicTrainee):
    """A policy that learns by A2C."""

    def loss_settings(self, at: int | None = None) -> dict[str, Any]:
        """Settings of the next gradient; `at` as for `scheduled`."""
        coefficients = self.scheduled("vf_loss_coeff", "entropy_coeff", at=at)
        return {"microbatch_size": self.config.microbatch_size, **coefficients}


class A2C(Algorithm):
    """Advantage actor-critic."""

    config_class = A2CConfig
    trainee_class = A2CTrainee
    learns_from_own_actions = True
    trains_several = True
    loss = POLICY_GRADIENT_LOSS
    reported_stats = (
        "total_loss", "policy_loss", "vf_loss", "vf_explained_var", "cur_lr", "entropy_coeff", "policy_entropy",
    )  # fmt: skip

    @property
    def samples_sequences(self) -> bool:
        """Whether batches have the observations that follow each step."""
        return seeks_novelty(self.config)

    def make_postprocess(self, policy_id: str) -> Postprocess:
        return advantage_estimator(self.config_of(policy_id), self.config)

    def training_step(self) -> dict[str, dict[str, float]]:
        stats, now = {}, self.timesteps
        for trainee, batch in self.train_batches():
            novelty = trainee.add_novelty(batch)
            steps = with_advantages(batch, bool(trainee.config.standardize_advantages))
            settings = {**trainee.scheduled("lr", at=now), **trainee.loss_settings(now)}
            stats[trainee.policy_id] = trainee.learn_on_batch(steps, shuffle=False, **settings) | novelty
        return stats
