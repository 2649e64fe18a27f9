"""TRPO: natural gradient steps within a trust region (Schulman et al., arXiv:1502.05477).

An iteration fits the value to GAE's targets by epochs of minibatches. Then the policy takes one step over the whole
batch: its direction comes from conjugate gradients on the Hessian of the mean KL(old || new), its length from the limit
of that divergence, and it is shortened until the surrogate improves (trust_region.py).

Departures from the paper: the value is a network that Adam trains, as in Stable-Baselines3 Contrib, and advantages are
GAE's; the Hessian may be that of every n-th row (kl_subsampling).
"""

from dataclasses import fields
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.settings.exploration import OF_NOVELTY
from rllib.algorithms.families.intrinsic import (
    IntrinsicConfig,
    IntrinsicTrainee,
    advantage_estimator,
    seeks_novelty,
    with_advantages,
)
from rllib.algorithms.families.on_policy import ActorCriticConfig
from rllib.config.conflicts import conflict
from rllib.config.sections import OfPolicy, above, at_least, between, section
from rllib.env.spaces.observations import observation_column
from rllib.evaluation.postprocess.base import Postprocess
from rllib.losses.value import VALUE_LOSS
from rllib.sample_batch import ACTION_DIST_INPUTS, OBS, SampleBatch


class TRPOConfig(IntrinsicConfig, ActorCriticConfig):
    """Settings of TRPO; the defaults are those of Stable-Baselines3 Contrib."""

    exploration_kinds: ClassVar[tuple[str, ...]] = ("StochasticSampling", *OF_NOVELTY)

    without_memory: ClassVar[str] = "its trust region is computed over single rows"
    unused: ClassVar[dict[str, str]] = {"vf_loss_coeff": "the value has its own optimizer; use lr"}

    @section
    def training(
        self,
        *,
        lr=1e-3,
        lambda_=0.95,
        model={"vf_share_layers": False},  # noqa: B006
        train_batch_size=2048,
        standardize_advantages=True,
        sgd_minibatch_size: Annotated[int, "rows of a gradient step of the value", at_least(1), OfPolicy] = 128,
        num_sgd_iter: Annotated[int, "epochs of the value over each train batch", at_least(1), OfPolicy] = 10,
        target_kl: Annotated[
            float | list, "most KL(old || new) of a step (nats), or a schedule", above(0), OfPolicy
        ] = 0.01,
        cg_iterations: Annotated[int, "most iterations of the conjugate gradients", at_least(1), OfPolicy] = 15,
        cg_damping: Annotated[float, "added to the diagonal of the KL's Hessian", at_least(0), OfPolicy] = 0.1,
        line_search_steps: Annotated[int, "lengths of a step that are tried", at_least(1), OfPolicy] = 10,
        line_search_shrink: Annotated[
            float, "each length as a share of the one before", between(0.01, 0.99), OfPolicy
        ] = 0.8,
        kl_subsampling: Annotated[int, "the KL's Hessian is that of every n-th row", at_least(1), OfPolicy] = 1,
    ) -> Self: ...

    @section
    def rollouts(self, *, num_rollout_workers=2) -> Self: ...

    refuses: ClassVar[dict[str, str]] = {
        "num_learners": "the policy's step is computed in this process, over the whole batch",
        "use_critic": "TRPO fits a value",
        "use_gae": "TRPO takes GAE's advantages",
        "teacher": "the policy's step is that of the trust region, to which no loss is added",
    }
    conflicts = (
        conflict(
            "weight_decay",
            "opt_type",
            when=lambda config: config.weight_decay or (config.weight_decay is None and config.opt_type == "adamw"),
            why="weight_decay draws the policy's weights to 0 as well, outside of its trust region",
            remedies=[{"weight_decay": None, "opt_type": "adam"}],
        ),
    )


class TRPOTrainee(IntrinsicTrainee):
    """A policy that learns by TRPO.

    Attributes:
        region: makes the policy's step.
    """

    def prepare(self) -> None:
        from rllib.algorithms.trpo.trust_region import TrustRegion, TrustRegionSettings

        super().prepare()
        settings = TrustRegionSettings(**{each.name: self.config[each.name] for each in fields(TrustRegionSettings)})
        stored = observation_column(self.policy.observation_space)
        # Ones, since zeros may be no features; but choices may be one value alone, or begin elsewhere.
        value = stored.filler if np.dtype(stored.dtype).kind == "i" else 1
        self.region = TrustRegion(self.policy, settings, np.full((1, *stored.shape), value, stored.dtype))

    def update(self, batch: SampleBatch, now: int) -> dict[str, Any]:
        """Fits the value to a train batch, then makes the policy's step. Returns statistics.

        Args:
            batch: fragments of the newest policy, or late ones of earlier policies, with advantages.
            now: environment steps at which schedules are read: those sampled before the batch.
        """
        novelty = self.add_novelty(batch)
        steps = with_advantages(batch, bool(self.config.standardize_advantages))
        if batch.policy_version < self.num_updates:  # late fragments; the trust region is around the present policy
            steps[ACTION_DIST_INPUTS] = self.policy.dist_inputs(steps[OBS])
        # The value first: its update looks whether these weights have acted. It leaves those of the policy alone.
        value = self.learn_on_batch(
            steps,
            num_epochs=self.config.num_sgd_iter,
            minibatch_size=self.config.sgd_minibatch_size,
            **self.scheduled("lr", at=now),
        )
        with self.algorithm.metrics.timer("learn"):
            step = self.region.step(steps, **self.scheduled("target_kl", "entropy_coeff", at=now))
        return value | step | novelty


class TRPO(Algorithm):
    """Trust region policy optimisation."""

    config_class = TRPOConfig
    trainee_class = TRPOTrainee
    learns_from_own_actions = True
    takes_tensors = False
    trains_several = True
    loss = VALUE_LOSS
    reported_stats = (
        "policy_loss", "surrogate_gain", "kl", "entropy", "line_search_steps", "step_taken", "vf_loss",
        "vf_explained_var", "cur_lr", "grad_gnorm", "policy_gnorm",
    )  # fmt: skip

    @property
    def samples_sequences(self) -> bool:
        """Whether batches have the observations that follow each step."""
        return seeks_novelty(self.config)

    def make_postprocess(self, policy_id: str) -> Postprocess:
        return advantage_estimator(self.config_of(policy_id), self.config)

    def training_step(self) -> dict[str, dict[str, float]]:
        now = self.timesteps
        return {trainee.policy_id: trainee.update(batch, now) for trainee, batch in self.train_batches()}
