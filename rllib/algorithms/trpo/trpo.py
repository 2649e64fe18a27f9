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

from rllib.algorithms.base.settings.exploration import OF_NOVELTY
from rllib.algorithms.families.intrinsic import IntrinsicallyRewarded, IntrinsicConfig, with_advantages
from rllib.algorithms.families.on_policy import ActorCriticConfig
from rllib.config.conflicts import conflict
from rllib.config.sections import OfPolicy, above, at_least, between, section
from rllib.env.spaces.observations import observation_column
from rllib.losses.value import VALUE_LOSS


class TRPOConfig(IntrinsicConfig, ActorCriticConfig):
    """Settings of TRPO; the defaults are those of Stable-Baselines3 Contrib."""

    exploration_kinds: ClassVar[tuple[str, ...]] = ("StochasticSampling", *OF_NOVELTY)

    without_memory: ClassVar[str] = "its trust region is computed over single rows"
    unused: ClassVar[dict[str, str]] = {"vf_loss_coeff": "the value has an optimizer of its own; use lr"}

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


class TRPO(IntrinsicallyRewarded):
    """Trust region policy optimisation."""

    config_class = TRPOConfig
    learns_from_own_actions = True
    takes_tensors = False
    trains_several = True
    loss = VALUE_LOSS
    reported_stats = (
        "policy_loss", "surrogate_gain", "kl", "entropy", "line_search_steps", "step_taken", "vf_loss",
        "vf_explained_var", "cur_lr", "grad_gnorm", "policy_gnorm",
    )  # fmt: skip

    def setup(self) -> None:
        super().setup()
        self._regions = {policy_id: self._region(policy_id) for policy_id in self.learners}

    def begin_training(self, policy_id: str) -> None:
        super().begin_training(policy_id)
        self._regions[policy_id] = self._region(policy_id)

    def end_training(self, policy_id: str) -> None:
        super().end_training(policy_id)
        self._regions.pop(policy_id, None)

    def _region(self, policy_id: str):
        from rllib.algorithms.trpo.trust_region import TrustRegion, TrustRegionSettings

        config, policy = self.config_of(policy_id), self.policies[policy_id]
        settings = TrustRegionSettings(**{field.name: config[field.name] for field in fields(TrustRegionSettings)})
        stored = observation_column(policy.observation_space)
        # Ones, since zeros may be no features; but a Discrete space may have one value alone.
        fill = np.zeros if np.dtype(stored.dtype).kind == "i" else np.ones
        return TrustRegion(policy, settings, fill((1, *stored.shape), stored.dtype))

    def training_step(self) -> dict[str, dict[str, float]]:
        stats: dict[str, dict[str, Any]] = {}
        rates = {policy_id: self.scheduled("lr", policy_id=policy_id) for policy_id in self.policies}
        names = "target_kl", "entropy_coeff"
        limits = {policy_id: self.scheduled(*names, policy_id=policy_id) for policy_id in self.policies}
        for policy_id, batch in self.train_batches().items():
            config = self.config_of(policy_id)
            intrinsic = self._add_intrinsic_rewards(policy_id, batch)
            steps = with_advantages(batch, bool(config.standardize_advantages))
            # The value first: its update looks whether these weights have acted. It leaves those of the policy alone.
            value = self.learn_on_batch(
                steps,
                policy_id,
                num_epochs=config.num_sgd_iter,
                minibatch_size=config.sgd_minibatch_size,
                **rates[policy_id],
            )
            with self.metrics.timer("learn"):
                step = self._regions[policy_id].step(steps, **limits[policy_id])
            stats[policy_id] = value | step | intrinsic
        return stats
