"""APPO: IMPALA's asynchronous sampling with PPO's clipped surrogate (after IMPACT, Luo et al., arXiv:1912.00167).

A target network, the policy of some updates ago, stands between the workers' policies and the one that learns: V-trace
corrects from theirs to the target's, and the ratio that is clipped is that of the learning policy to the target's.

Departures from the paper: values are the learning network's own, only the policy's part of the target network is used;
the defaults are Ray's, `tau=1` and `target_update_frequency=1`. With these, num_sgd_iter=1 and no ring of train batches
the ratio is 1 and the loss is IMPALA's, but for the scale of the advantages.

Departure from RLlib: advantages are standardised over each train batch. While the values are still too high, all
advantages are negative; several steps on a batch would then make every action of it less probable, which a Gaussian
policy does by a standard deviation that grows until it overflows. The mean that is subtracted is weighted by V-trace's
ratios (losses/returns.py: standardized), which keeps it without bias for old rows.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from rllib.algorithms.families.on_policy import OF_KL, AdaptiveKL
from rllib.algorithms.impala import IMPALA, IMPALAConfig, IMPALATrainee
from rllib.config.sections import OfPolicy, above, at_least, between, section
from rllib.learners.learner import Learner
from rllib.learners.updates.target_copy import TargetCopy
from rllib.losses.appo import APPO_LOSS
from rllib.policy import Policy
from rllib.sample_batch import OBS, PER_SEQUENCE, TARGET_DIST_INPUTS, SampleBatch


class APPOConfig(IMPALAConfig):
    """Settings of APPO; the defaults are RLlib's, except those in default_differences.py."""

    # Of RLlib's new API stack, whose buffer holds N batches and draws from them until each was used K times; the ring
    # goes round. In both the target network is updated every N * K updates times its frequency.
    own_aliases: ClassVar[dict] = {
        "circular_buffer_num_batches": ("minibatch_buffer_size", lambda batches: batches),
        "circular_buffer_iterations_per_batch": ("num_sgd_iter", lambda times: times),
        "target_network_update_freq": ("target_update_frequency", lambda rings: rings),
    }

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


class APPOTrainee(IMPALATrainee):
    """A policy that learns by APPO.

    Attributes:
        kl: coefficient of the penalty on the KL divergence.
    """

    first_values = OF_KL

    def __init__(self, algorithm: "APPO", policy_id: str):
        super().__init__(algorithm, policy_id)
        self.kl = AdaptiveKL(self)

    @property
    def target(self) -> Policy:
        """The target network."""
        return self.learner.targets["policy"].policy

    def make_learner(self) -> Learner:
        config = self.config
        # With a ring of train batches an update is one gradient step; else it is all those on a batch. The target
        # stands still while the ring is used up once: clip and penalty bound how far the policy moves meanwhile.
        ring = config.minibatch_buffer_size
        every = config.target_update_frequency * (ring * config.num_sgd_iter if ring > 1 else 1)
        learner = super().make_learner(targets=[TargetCopy("policy", config.tau, every)])
        if learner.device != "cpu":
            learner.targets["policy"].act_on(learner.device)
        return learner

    def prepared(self, batch: SampleBatch) -> SampleBatch:
        # Sequences begin with the states of the policy that acted, for the target network as for the learning one.
        memory = [batch[name] for name in PER_SEQUENCE if name in batch]
        return SampleBatch(
            {**batch, TARGET_DIST_INPUTS: self.target.dist_inputs(batch[OBS], *memory)},
            policy_version=batch.policy_version,
        )

    def loss_settings(self, now: int) -> dict[str, Any]:
        penalty = {"kl_coeff": self.kl.coefficient, "stop_above": self.kl.stop_above}
        settings = super().loss_settings(now) | self.scheduled("clip_param", at=now) | penalty
        return settings | {"lambda_": 1.0 if self.config.vtrace else self.config.lambda_}

    def after_update(self, stats: dict[str, float]) -> None:
        if self.learner.update_targets(self.num_updates):
            self.kl.adapt(stats["kl"], self.timesteps)

    def numbers(self) -> dict[str, Any]:
        return {**super().numbers(), "kl_coeff": self.kl.coefficient}

    def set_numbers(self, numbers: Mapping[str, Any]) -> None:
        super().set_numbers(numbers)
        self.kl.coefficient = numbers.get("kl_coeff", self.kl.coefficient)

    def begin_again(self, changed: Mapping[str, Any]) -> None:
        super().begin_again(changed)
        self.kl.begin_at(self.timesteps)


class APPO(IMPALA):
    """Asynchronous PPO."""

    config_class = APPOConfig
    trainee_class = APPOTrainee
    loss = APPO_LOSS
