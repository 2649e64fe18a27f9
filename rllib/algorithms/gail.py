"""GAIL: generative adversarial imitation learning (Ho and Ermon, arXiv:1606.03476).

PPO with another reward. A discriminator learns to tell the policy's steps from demonstrated ones, and a step is
rewarded by how much it is taken for the expert's: no reward of the environment is needed. Departures from the paper:
PPO in place of TRPO, and those of rllib/imitation/discriminator.py.

A reward that is always above 0 ("gail") makes longer episodes better, and one always below 0 ("log_d") shorter ones,
whatever the expert does. With `absorbing=True` terminated episodes continue in a state with its own learned reward
(DAC, arXiv:1809.02925), so that the end of an episode is imitated, too.
"""

import dataclasses
import logging
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from gymnasium.spaces import Box

from rllib import sample_batch as sb
from rllib.algorithms.families.cloning import Cloning
from rllib.algorithms.families.demonstrated import DemonstratedConfig, demonstrations, learned_reward, refuse_unread
from rllib.algorithms.ppo import PPO, PPOConfig, PPOTrainee
from rllib.config.conflicts import Unfit, conflict
from rllib.config.sections import at_least, section
from rllib.evaluation.postprocess.advantages import RecomputedAdvantages
from rllib.evaluation.postprocess.base import Postprocess
from rllib.imitation.learned_reward import LearnedReward
from rllib.learners.updates.objective import POLICY
from rllib.losses.loss import Loss
from rllib.losses.offline.cloning import WEIGHT, ClonesToo
from rllib.models.observations.filters import Filter, RunningMoments
from rllib.offline.dataset import Dataset
from rllib.sample_batch import SampleBatch

logger = logging.getLogger(__name__)


class GAILConfig(DemonstratedConfig, PPOConfig):
    """Settings of GAIL: a PPOConfig whose reward is learned from demonstrations."""

    without_memory: ClassVar[str] = "a discriminator reads single steps, and values are computed without a state"

    @section
    def training(
        self,
        *,
        lr=3e-4,
        lambda_=0.95,
        train_batch_size=2048,
        sgd_minibatch_size=256,
        num_sgd_iter=4,
        clip_param=0.2,
        kl_coeff=0.0,
        # Values of absorbing states are far from 0.
        vf_clip_param=None,
        grad_clip=0.5,
        bc_coeff: Annotated[
            float | list, "weight of a loss added to PPO's that clones demonstrated actions, or a schedule", at_least(0)
        ] = 0.0,
        bc_pretrain_updates: Annotated[
            int,
            "gradient steps, of sgd_minibatch_size rows, in which the policy clones demonstrated actions before it is "
            "first updated",
            at_least(0),
        ] = 0,
    ) -> Self: ...

    conflicts = (
        *(
            conflict(
                "observation_filter",
                name,
                when=lambda config, is_split=is_split: config.observation_filter != "NoFilter" and is_split(config),
                why="the discriminator undoes the filter, whose statistics must be those of one moment for the whole "
                f"train batch, and with {name}={whole!r} it is sampled at once",
                remedies=[{name: whole}, {"observation_filter": "NoFilter"}],
            )
            for name, whole, is_split in (
                ("rollout_fragment_length", "auto", lambda config: config.rollout_fragment_length != "auto"),
                ("batch_mode", "truncate_episodes", lambda config: config.batch_mode != "truncate_episodes"),
                ("sample_quorum", 1.0, lambda config: config.leaves_stragglers),
            )
        ),
    )
    refuses: ClassVar[dict[str, str]] = {"use_critic": "values of learned rewards are bootstrapped from"}

    @property
    def clones(self) -> bool:
        """Whether demonstrated actions are cloned in PPO's updates."""
        return self.bc_coeff != 0

    @property
    def asks_policy(self) -> bool:
        return super().asks_policy or self.clones or self.bc_pretrain_updates > 0


class GAILTrainee(PPOTrainee):
    """A policy that learns by PPO from a reward that is learned from demonstrations.

    Attributes:
        reward: replaces the rewards of train batches (rllib/imitation/learned_reward.py); in an algorithm that was
            restored to act, without demonstrations, it can be asked.
        sampled_by: filter of the observations of the newest train batch.
        cloning: clones demonstrated actions during training, or before (families/cloning.py); None: no cloning.
    """

    reward: LearnedReward
    sampled_by: Filter
    cloning: Cloning | None = None

    def make_loss(self) -> Loss:
        loss = super().make_loss()
        return ClonesToo(loss) if self.config.clones else loss

    def prepare(self) -> None:
        super().prepare()
        config, recorded = self.config, demonstrations(self.algorithm)
        self.reward = learned_reward(self, recorded)
        if recorded is not None and (config.clones or config.bc_pretrain_updates):
            self.cloning = Cloning(self, recorded)
        if self.policy.filters_observations:
            self._start_filter(recorded)

    def _start_filter(self, recorded: Dataset | None) -> None:
        """Lets the filter begin with the statistics of the demonstrations.

        Without any, each environment's first observations would be filtered by their own, which nothing undoes.
        """
        space = self.policy.observation_space
        if not (isinstance(space, Box) and space.dtype.kind == "f"):
            raise Unfit(
                f"observation_filter={self.config.observation_filter!r} is undone for the discriminator, whose rows "
                f"would not be those of {space}, but rounded.",
                "Leave the filter out; the discriminator has its own statistics.",
                {"observation_filter": "NoFilter"},
            )
        if recorded is not None:
            moments = RunningMoments(int(np.prod(self.policy.filter.shape, dtype=int)))
            moments.add(recorded.columns[sb.OBS].reshape(len(recorded), -1).astype(np.float64))
            self.policy.filter.set_state(moments.get_state())

    def begin(self) -> None:
        """Begins an iteration, before its steps are sampled.

        The filter of its observations is noted. Before the first, bc_pretrain_updates clone the demonstrations.
        """
        config = self.config
        self.sampled_by = self.policy.spec.make_filter()
        self.sampled_by.set_state(self.policy.filter.get_state())
        if self.cloning is None or self.num_updates or not config.bc_pretrain_updates:
            return
        lr = self.scheduled("lr")["lr"] if self.rate is None else self.rate.initial
        with self.algorithm.metrics.timer("learn"):
            loss = self.cloning.pretrain(config.bc_pretrain_updates, config.sgd_minibatch_size, lr, self.rng)
        logger.info("cloned the demonstrations in %s updates, to a loss of %.3g", config.bc_pretrain_updates, loss)

    def learn_on_batch(self, batch: SampleBatch, **settings: Any) -> dict[str, Any]:
        if not self.config.clones:
            return super().learn_on_batch(batch, **settings)
        weight = self.scheduled(WEIGHT)
        # With a limit on costs, settings are those of several objectives.
        given = {POLICY: settings[POLICY] | weight} if POLICY in settings else weight
        return super().learn_on_batch(self.cloning.beside(batch, self.rng), **(settings | given))

    def update(self, batch: SampleBatch, now: int) -> dict[str, Any]:
        """Trains the discriminator on a train batch, then learns from its rewards; see PPOTrainee."""
        config, coefficients = self.config, self.scheduled("imitation_coeff", "task_reward_coeff", at=now)
        refuse_unread(config)
        with self.algorithm.metrics.timer("learn"):
            found = self.reward.add_to(batch, self.rng, *coefficients.values(), filter_=self.sampled_by)
            lambda_ = config.lambda_ if config.use_gae else 1.0
            steps = RecomputedAdvantages(batch, self.policy, config.gamma, lambda_, standardize=False).steps
        if self.novelty is None and not config.recompute_advantages:
            return super().update(steps, now) | found
        for name in (sb.ADVANTAGES, sb.VALUE_TARGETS):
            batch[name] = np.zeros(batch.count, np.float32)
            batch[name][batch[sb.LOSS_MASK]] = steps[name]
        return super().update(batch, now) | found


class GAIL(PPO):
    """Imitation by PPO and a discriminator."""

    config_class = GAILConfig
    trainee_class = GAILTrainee
    takes_tensors = False
    trains_several = False
    samples_sequences = True
    reported_stats = (
        *PPO.reported_stats,
        "imitation_reward_mean", "absorbing_reward", "discriminator_accuracy_expert", "discriminator_accuracy_policy",
        "discriminator_loss", "discriminator_entropy", "gradient_penalty",
    )  # fmt: skip

    def learned_reward(
        self,
        observations: Any,
        actions: Any = None,
        next_observations: Any = None,
        terminateds: np.ndarray | None = None,
    ) -> np.ndarray:
        """What has been learned of steps, float32 [B]; arguments and errors as for LearnedReward.ask."""
        return self.trainee.reward.ask(observations, actions, next_observations, terminateds)

    def training_step(self) -> dict[str, dict[str, float]]:
        self.trainee.begin()
        return super().training_step()

    def make_postprocess(self, policy_id: str) -> Postprocess:
        estimator = super().make_postprocess(policy_id)
        if not self.config.reads_next_observations:
            return estimator
        return dataclasses.replace(estimator, every_final_observation=True)
