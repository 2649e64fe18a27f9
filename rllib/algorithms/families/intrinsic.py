"""Algorithms that may add intrinsic rewards (exploration/intrinsic/) to the advantages of their train batches."""

from typing import TYPE_CHECKING

from rllib import sample_batch as sb
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.settings.exploration import OF_NOVELTY, exploration_settings, make_exploration
from rllib.algorithms.base.space_rules import NewPolicy, of_spaces
from rllib.algorithms.base.trainee import Trainee
from rllib.config.conflicts import Mistake
from rllib.evaluation import seeding
from rllib.evaluation.postprocess.advantages import AdvantageEstimator
from rllib.exploration.intrinsic.settings import NET_CONFIG_KEYS
from rllib.losses.lagrangian.actor_critic import priced_advantages
from rllib.losses.returns import standardized
from rllib.models.catalog.catalog import policy_spec
from rllib.sample_batch import SampleBatch

if TYPE_CHECKING:
    from rllib.exploration.intrinsic.rewards import IntrinsicRewards


class IntrinsicConfig(AlgorithmConfig):
    """Settings of the algorithms that may learn from intrinsic rewards."""

    @property
    def exploration_type(self) -> str:
        """Type of the exploration."""
        return exploration_settings(self.exploration_config, self.default_exploration)["type"]

    @of_spaces("exploration_config")
    def _check_intrinsic_rewards(self, policy: NewPolicy):
        """All policies learn from intrinsic rewards, or none does (`exploration_config`)."""
        own, of_run = self.exploration_type, policy.run.exploration_type
        if (own in OF_NOVELTY) == (of_run in OF_NOVELTY):
            return None
        return Mistake(
            f"the policy {policy.policy_id!r} explores by {own} and the run by {of_run}, but all policies of a run "
            "learn from intrinsic rewards or none does.",
            ("exploration_config",),
            ({"exploration_config": policy.run.exploration_config},),
            f"Use .exploration(exploration_config={{'type': {own!r}}}), or {of_run} for this policy, too.",
        )


class IntrinsicTrainee(Trainee):
    """A policy whose advantages may have an intrinsic part.

    Attributes:
        novelty: computes the rewards and learns (exploration/intrinsic/rewards.py); None: exploration_config asks for
            none.
    """

    def prepare(self) -> None:
        super().prepare()
        self.novelty = self._make_novelty() if seeks_novelty(self.algorithm.config) else None
        if self.novelty is not None:
            self.saved["intrinsic.safetensors"] = self.novelty

    def _make_novelty(self) -> "IntrinsicRewards":
        # It needs torch, which takes a second to import.
        from rllib.exploration.intrinsic.rewards import IntrinsicRewards

        config, policy = self.config, self.policy
        settings = make_exploration(config.exploration_config, config.default_exploration, policy.action_space)
        model = settings.net_config
        if model is None:
            model = {key: config.model[key] for key in NET_CONFIG_KEYS if key in config.model}
        spec = policy_spec(policy.observation_space, policy.action_space, model, action_mask_key=config.action_mask_key)
        rng = seeding.generator(self.algorithm.seed, seeding.INTRINSIC_WEIGHTS, self.number)
        return IntrinsicRewards(settings, spec, rng, "cuda" if config.num_gpus and not config.num_learners else "cpu")

    def add_novelty(self, batch: SampleBatch) -> dict[str, float]:
        """Adds the columns intrinsic_rewards and intrinsic_advantages, if exploration_config asks for them.

        Returns:
            statistics of their networks.
        """
        if self.novelty is None:
            return {}
        with self.algorithm.metrics.timer("learn"):
            return self.novelty.add_to(batch, self.rng)


def advantage_estimator(config: IntrinsicConfig, of_run: IntrinsicConfig) -> AdvantageEstimator:
    """What workers add to the fragments of a policy: advantages of extrinsic rewards.

    Args:
        config: settings of the policy.
        of_run: settings of the run, by which all policies seek novelty or none does.
    """
    return AdvantageEstimator(config.gamma, config.lambda_, config.use_gae, config.use_critic, seeks_novelty(of_run))


def seeks_novelty(config: IntrinsicConfig) -> bool:
    """Whether exploration_config asks for intrinsic rewards."""
    return config.exploration_type in OF_NOVELTY


def with_advantages(batch: SampleBatch, standardize: bool, multiplier: float | None = None) -> SampleBatch:
    """The steps of a train batch, with their advantages as the loss reads them.

    Args:
        batch: with the workers' advantages, and with intrinsic ones where there are some.
        standardize: give the sums mean 0 and standard deviation 1.
        multiplier: Lagrange multiplier of costs, whose advantages the batch has, too; None: costs do not count.
    """
    if sb.INTRINSIC_ADVANTAGES in batch:
        batch = batch.rows(batch[sb.LOSS_MASK])
        batch[sb.ADVANTAGES] = batch[sb.ADVANTAGES] + batch[sb.INTRINSIC_ADVANTAGES]
    if multiplier is not None:
        batch[sb.ADVANTAGES] = priced_advantages(batch[sb.ADVANTAGES], batch[sb.COST_ADVANTAGES], multiplier)
    if standardize:
        batch[sb.ADVANTAGES] = standardized(batch[sb.ADVANTAGES])
    return batch
