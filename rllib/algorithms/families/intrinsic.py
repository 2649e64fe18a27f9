"""Algorithms that may add intrinsic rewards (exploration/intrinsic/) to the advantages of their train batches."""

from typing import Any

from rllib import sample_batch as sb
from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.new_policy import NewPolicy, of_spaces
from rllib.algorithms.base.settings.exploration import OF_NOVELTY, exploration_settings, make_exploration
from rllib.config.conflicts import Mistake
from rllib.evaluation import seeding
from rllib.evaluation.postprocess.advantages import AdvantageEstimator
from rllib.exploration.intrinsic.settings import NET_CONFIG_KEYS
from rllib.losses.lagrangian.actor_critic import priced_advantages
from rllib.losses.returns import standardized
from rllib.models.catalog.catalog import policy_spec
from rllib.sample_batch import SampleBatch


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


class IntrinsicallyRewarded(Algorithm):
    """Base of actor-critics whose workers compute advantages, and whose driver may add intrinsic ones to them."""

    def setup(self) -> None:
        # Policy id -> IntrinsicRewards (exploration/intrinsic/rewards.py); empty if exploration_config asks for none.
        self._intrinsic_rewards = {}
        for policy_id in self.learners:
            self._begin_intrinsic_rewards(policy_id)

    def _begin_intrinsic_rewards(self, policy_id: str) -> None:
        if self._has_intrinsic_rewards:
            self._intrinsic_rewards[policy_id] = self._make_intrinsic_rewards(policy_id)

    def begin_training(self, policy_id: str) -> None:
        super().begin_training(policy_id)
        self._begin_intrinsic_rewards(policy_id)

    def end_training(self, policy_id: str) -> None:
        super().end_training(policy_id)
        self._intrinsic_rewards.pop(policy_id, None)

    @property
    def _has_intrinsic_rewards(self) -> bool:
        """Whether exploration_config asks for intrinsic rewards."""
        return self.config.exploration_type in OF_NOVELTY

    @property
    def samples_sequences(self) -> bool:
        """Whether batches have the observations that follow each step."""
        return self._has_intrinsic_rewards

    def make_postprocess(self, policy_id: str) -> AdvantageEstimator:
        config = self.config_of(policy_id)
        return AdvantageEstimator(
            config.gamma, config.lambda_, config.use_gae, config.use_critic, self._has_intrinsic_rewards
        )

    def _add_intrinsic_rewards(self, policy_id: str, batch: SampleBatch) -> dict[str, float]:
        """Adds the columns intrinsic_rewards and intrinsic_advantages, if exploration_config asks for them.

        Returns:
            statistics of their networks.
        """
        if not self._intrinsic_rewards:
            return {}
        with self.metrics.timer("learn"):
            return self._intrinsic_rewards[policy_id].add_to(batch, self.learner_rng(policy_id))

    def _make_intrinsic_rewards(self, policy_id: str):
        # It needs torch, which takes a second to import.
        from rllib.exploration.intrinsic.rewards import IntrinsicRewards

        config, policy = self.config_of(policy_id), self.policies[policy_id]
        settings = make_exploration(config.exploration_config, config.default_exploration, policy.action_space)
        model = settings.net_config
        if model is None:
            model = {key: config.model[key] for key in NET_CONFIG_KEYS if key in config.model}
        spec = policy_spec(policy.observation_space, policy.action_space, model, action_mask_key=config.action_mask_key)
        rng = seeding.generator(self.seed, seeding.INTRINSIC_WEIGHTS, self.policy_number(policy_id))
        return IntrinsicRewards(settings, spec, rng, "cuda" if config.num_gpus and not config.num_learners else "cpu")

    # ------------------------------------------------------------------ checkpoints

    def get_state(self) -> dict[str, Any]:
        states = {_file(policy_id): each.get_state() for policy_id, each in self._intrinsic_rewards.items()}
        return super().get_state() | states

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        for policy_id, each in self._intrinsic_rewards.items():
            if _file(policy_id) in state:
                each.set_state(state[_file(policy_id)])


def _file(policy_id: str) -> str:
    return f"policies/{policy_id}/intrinsic.safetensors"


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
