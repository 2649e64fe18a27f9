"""GAIL on SAC: the discriminator-actor-critic (DAC, Kostrikov et al., arXiv:1809.02925).

Steps of the policy are kept in a replay, and rows that are drawn for an update get the reward of the newest
discriminator, which learns from the same rows before: a fraction of GAIL's steps in the environment. Departures from
the paper: SAC in place of TD3, and those of rllib/imitation/discriminator.py.

The absorbing state has no rows in the replay. A terminated row is worth its reward and gamma r_a / (1 - gamma), the
value of a state that gives r_a for ever (losses/discriminator.py), which is what the paper's rows lead to.
"""

from typing import Any, ClassVar, Self

from rllib.algorithms.families.demonstrated import DemonstratedConfig, demonstrations, learned_reward, refuse_unread
from rllib.algorithms.sac import SAC, SACConfig, SACTrainee
from rllib.config.conflicts import conflict
from rllib.config.sections import section
from rllib.imitation.learned_reward import LearnedReward
from rllib.sample_batch import SampleBatch

_PLAIN_REPLAY = {"replay_buffer_config": {"type": "ReplayBuffer", "storage": "memory"}}


class GAILSACConfig(DemonstratedConfig, SACConfig):
    """Settings of GAIL on SAC: a SACConfig whose reward is learned from demonstrations."""

    without_memory: ClassVar[str] = "a discriminator reads single steps, not those of sequences"
    learns_from_data: ClassVar[bool] = False
    mixes_data: ClassVar[bool] = False

    @section
    def training(
        self,
        *,
        # Of each update.
        discriminator_updates=1,
        reward_normalize=False,
        reward_clip=None,
    ) -> Self: ...

    refuses: ClassVar[dict[str, str]] = {
        "reward_normalize": "rows of a replay stand in no order of episodes, of which sums could be taken",
        "generator_buffer": "the policy's side is rows of the replay",
        "scale_rewards": "it divides by statistics of the environment's rewards, which learned ones replace",
    }
    conflicts = (
        conflict(
            ("observation_filter", "MeanStdFilter"),
            "demonstrations",
            when=lambda config: config.observation_filter != "NoFilter",
            why="rows of a replay were filtered by statistics of many moments, and demonstrated ones by none",
            remedies=[{"observation_filter": "NoFilter"}],
            note="The discriminator has its own statistics.",
        ),
        conflict(
            "n_step",
            when=lambda config: config.n_step > 1,
            why="a discriminator scores single steps, but a row of n steps has the first alone",
            remedies=[{"n_step": 1}],
        ),
        conflict(
            "replay_buffer_config",
            when=lambda config: config.needs_goals,
            why="hindsight's rows have goals that no demonstration pursues, and rewards of the environment",
            remedies=[_PLAIN_REPLAY],
        ),
        conflict(
            "replay_buffer_config",
            when=lambda config: config.keeps_rows_on_gpu,
            why="rewards are learned next to this process's memory, but storage='gpu' keeps the rows on a GPU",
            remedies=[_PLAIN_REPLAY],
        ),
    )


class GAILSACTrainee(SACTrainee):
    """A policy that learns by SAC from a reward that is learned from demonstrations.

    Attributes:
        reward: replaces the rewards of rows of the replay (rllib/imitation/learned_reward.py).
    """

    reward: LearnedReward

    def prepare(self) -> None:
        super().prepare()
        self.reward = learned_reward(self, demonstrations(self.algorithm))

    def learn_from(self, batch: SampleBatch, **rates: float) -> dict[str, Any]:
        refuse_unread(self.config)
        coefficients = self.scheduled("imitation_coeff", "task_reward_coeff")
        with self.algorithm.metrics.timer("learn"):
            found = self.reward.add_to_rows(batch, self.rng, *coefficients.values())
        return super().learn_from(batch, **rates) | found


class GAILSAC(SAC):
    """Imitation by SAC and a discriminator."""

    config_class = GAILSACConfig
    trainee_class: ClassVar[type[GAILSACTrainee]] = GAILSACTrainee
    trains_several = False
    reported_stats = (*SAC.reported_stats, *LearnedReward.stats)

    def learned_reward(
        self, observations: Any, actions: Any = None, next_observations: Any = None, terminateds: Any = None
    ) -> Any:
        """What has been learned of steps, float32 [B]; arguments and errors as for LearnedReward.ask."""
        return self.trainee.reward.ask(observations, actions, next_observations, terminateds)
