"""APPO: IMPALA's asynchronous sampling with PPO's clipped surrogate (after IMPACT, Luo et al., arXiv:1912.00167).

A target network, the policy of some updates ago, stands between the workers' policies and the one that learns: V-trace
corrects from theirs to the target's, and the ratio that is clipped is that of the learning policy to the target's.

Departures from the paper: values are the learning network's own, only the policy's part of the target network is used;
the defaults are Ray's, `tau=1` and `target_update_frequency=1`. With these, num_sgd_iter=1 and no ring of train batches
the ratio is 1 and the loss is IMPALA's, but for the scale of the advantages.

Departure from RLlib: advantages are standardised over each train batch. While the values are still too high, all
advantages are negative; several steps on a batch would then make every action of it less probable, which a Gaussian
policy does by a standard deviation that grows until it overflows.
"""

from typing import Annotated, Any, Self

from rllib.algorithms.families.on_policy import AdaptiveKL
from rllib.algorithms.impala import IMPALA, IMPALAConfig
from rllib.config.sections import OfPolicy, above, at_least, between, section
from rllib.learners.learner import Learner
from rllib.learners.updates.target_copy import TargetCopy
from rllib.losses.appo import APPO_LOSS
from rllib.policies import of_only_policy
from rllib.policy import Policy
from rllib.sample_batch import DEFAULT_POLICY, OBS, PER_SEQUENCE, TARGET_DIST_INPUTS, SampleBatch


class APPOConfig(IMPALAConfig):
    """Settings of APPO; the defaults are RLlib's, except those in departures.py."""

    @section
    def training(
        self,
        *,
        lambda_: Annotated[float, "GAE's lambda, where vtrace=False; V-trace has none", between(0, 1), OfPolicy] = 1.0,
        clip_param: Annotated[
            float | list, "how far the probability ratio may leave 1, or a schedule", above(0), OfPolicy
        ] = 0.4,
        use_kl_loss: Annotated[bool, "add the adaptive penalty on KL(target || new)", OfPolicy] = False,
        kl_coeff: Annotated[
            float | list,
            "coefficient of the KL penalty: the initial one, or a schedule to follow",
            at_least(0),
            OfPolicy,
        ] = 1.0,
        kl_target: Annotated[float, "KL that the coefficient adapts to (nats)", above(0), OfPolicy] = 0.01,
        target_kl: Annotated[
            float | None,
            "KL(target || new) (nats) of 1.5 times which ends the epochs on a train batch; None: never",
            above(0),
            OfPolicy,
        ] = None,
        standardize_advantages=True,
        target_update_frequency: Annotated[
            int,
            "rings of minibatch_buffer_size train batches between updates of the target network",
            at_least(1),
            OfPolicy,
        ] = 1,
        replay_buffer_num_slots=100,
        tau: Annotated[
            float, "how far the target network moves to the learned one; 1: copied", between(0, 1), OfPolicy
        ] = 1.0,
    ) -> Self: ...


class APPO(IMPALA):
    """Asynchronous PPO."""

    config_class = APPOConfig
    loss = APPO_LOSS

    def setup(self) -> None:
        self._kl = AdaptiveKL({})
        super().setup()

    def prepare_policy(self, policy_id: str) -> None:
        super().prepare_policy(policy_id)
        self._kl.add(policy_id, self.config_of(policy_id))

    def end_training(self, policy_id: str) -> None:
        super().end_training(policy_id)
        self._kl.remove(policy_id)

    def target_of(self, policy_id: str) -> Policy:
        """The target network of a policy."""
        return self.learners[policy_id].targets["policy"].policy

    @property
    def target_policy(self) -> Policy:
        """The target network of the only policy."""
        return of_only_policy(self.learners, "target_policy", "target_of(POLICY_ID)").targets["policy"].policy

    def make_learner(self, policy_id: str) -> Learner:
        config = self.config_of(policy_id)
        # With a ring of train batches an update is one gradient step; else it is all those on a batch. The target
        # stands still while the ring is used up once: clip and penalty bound how far the policy moves meanwhile.
        ring = config.minibatch_buffer_size
        every = config.target_update_frequency * (ring * config.num_sgd_iter if ring > 1 else 1)
        learner = super().make_learner(policy_id, targets=[TargetCopy("policy", config.tau, every)])
        if learner.device != "cpu":
            learner.targets["policy"].act_on(learner.device)
        return learner

    def prepared(self, batch: SampleBatch, policy_id: str = DEFAULT_POLICY) -> SampleBatch:
        # Sequences begin with the states of the policy that acted, for the target network as for the learning one.
        memory = [batch[name] for name in PER_SEQUENCE if name in batch]
        return SampleBatch(
            {**batch, TARGET_DIST_INPUTS: self.target_of(policy_id).dist_inputs(batch[OBS], *memory)},
            policy_version=batch.policy_version,
        )

    def loss_settings(self, policy_id: str = DEFAULT_POLICY) -> dict[str, Any]:
        config, clip = self.config_of(policy_id), self.scheduled("clip_param", policy_id=policy_id)
        settings = super().loss_settings(policy_id) | clip | self._kl.settings(policy_id)
        return settings | {"lambda_": 1.0 if config.vtrace else config.lambda_}

    def after_update(self, stats: dict[str, float], policy_id: str = DEFAULT_POLICY) -> None:
        if self.learners[policy_id].update_targets(self.metrics.num_updates(policy_id)):
            self._kl.adapt(policy_id, stats["kl"], self.timesteps)

    # ------------------------------------------------------------------ checkpoints

    def algorithm_state(self) -> dict[str, Any]:
        return {**super().algorithm_state(), "kl_coeff": self._kl.coefficients}

    def set_algorithm_state(self, state: dict[str, Any]) -> None:
        super().set_algorithm_state(state)
        self._kl.restore(state["kl_coeff"])
