"""The reward of a policy in training that is learned from demonstrations: it goes into train batches."""

import logging
from collections.abc import Collection

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Dict

from rllib import sample_batch as sb
from rllib.config.conflicts import Unfit
from rllib.env.spaces.actions import action_mapper
from rllib.evaluation.offline import rows as recorded
from rllib.imitation.settings import ACTION, NEXT_OBSERVATION, OBSERVATION, STATS, DiscriminatorSettings
from rllib.imitation.steps import Steps
from rllib.losses.discriminator import absorbing_bonus
from rllib.models.catalog.catalog import policy_spec
from rllib.models.observations.flat_spaces import flat_leaves, is_under
from rllib.offline.dataset import Dataset
from rllib.policy import Policy
from rllib.sample_batch import SampleBatch

# Beyond this accuracy on both sides, in so many train batches in a row, the policy has nothing left to follow.
_WON, _BATCHES = 0.98, 20

logger = logging.getLogger(__name__)


class LearnedReward:
    """Replaces the rewards of train batches by those of a discriminator, which learns from each batch before.

    Args:
        settings: of the discriminator.
        policy: that learns.
        demonstrations: the expert's steps.
        conversions: of actions, as the policy's workers make them.
        rng: draws the initial weights.
        observation_keys: of Dict observations, the parts that are read; empty: all.
        action_mask_key: of the mask in Dict observations, which is not read.
        device: "cpu" or "cuda".

    Attributes:
        discriminator: the networks, with the state for checkpoints.

    Raises:
        Unfit: (a ValueError) if no demonstrated step can be read, or none of the keys is there.
    """

    stats = (*STATS, "imitation_reward_mean", "absorbing_reward")

    def __init__(
        self,
        settings: DiscriminatorSettings,
        policy: Policy,
        demonstrations: Dataset,
        conversions: recorded.Conversions,
        rng: np.random.Generator,
        *,
        observation_keys: Collection[str] = (),
        action_mask_key: str | None = None,
        device: str = "cpu",
    ):
        # They need torch, which takes a second to import.
        from rllib.imitation.discriminator import Discriminator
        from rllib.imitation.rows import RowReader

        self._settings, self._policy, self._conversions = settings, policy, conversions
        space = demonstrations.action_space
        self._mapper = action_mapper(
            space, policy.distribution, conversions.normalize_actions, conversions.clip_actions
        )
        # The default network of the spaces, which reads images as vectors.
        spec = policy_spec(
            policy.observation_space, policy.action_space, {"conv_filters": []}, action_mask_key=action_mask_key
        )
        columns = None
        if observation_keys:
            columns = _columns_of(policy.observation_space, observation_keys, action_mask_key)
        reader = RowReader(spec, settings.parts, columns)
        stored = recorded.actions(demonstrations, policy, conversions)
        is_read = np.ones(len(demonstrations), bool)
        if NEXT_OBSERVATION in settings.parts:
            is_read = demonstrations.has_next
        if not is_read.any():
            raise Unfit(
                f"{demonstrations.source} has {len(demonstrations):,} steps, but of none of them it is known what "
                "followed, which the discriminator reads (next_obs).",
                "Give new_obs, or use .training(discriminator_inputs=['obs', 'actions']).",
                {"discriminator_inputs": [OBSERVATION, ACTION]},
            )
        self._expert_actions = stored[is_read]
        self._expert = Steps(
            demonstrations.columns[sb.OBS][is_read],
            self._played(self._expert_actions),
            demonstrations.columns[sb.NEXT_OBS][is_read],
            demonstrations.columns[sb.TERMINATEDS][is_read],
        )
        ends = int(self._expert.terminated.sum())
        self.discriminator = Discriminator(settings, reader, self._expert, ends, rng, device)
        self._won = 0

    def _played(self, actions: np.ndarray) -> np.ndarray:
        """Actions of the policy as the environment took them, in the policy's units.

        A Gaussian's draws may lie beyond the bounds, where no expert's do, and would be told apart by that alone.
        """
        return self._policy.distribution.unit.read(self._mapper.clipped(actions))

    def add_to(self, batch: SampleBatch, rng: np.random.Generator, imitation: float, task: float) -> dict[str, float]:
        """Trains the discriminator on a train batch, then replaces its rewards; env_rewards has the environment's.

        The reward of a terminated step includes the value of the absorbing state (losses/discriminator.py).

        Args:
            batch: rows ordered by environment, each step followed by a row with the next observation (loss_mask False
                if that is no step); where next observations are read, terminated episodes have their final one, too.
            rng: draws rows.
            imitation, task: factors of the learned reward, and of the environment's.

        Returns:
            `stats` by name.
        """
        settings, steps = self._settings, np.flatnonzero(batch[sb.LOSS_MASK])
        own = self._steps(batch, steps)
        found = self.discriminator.learn(own, self._expert_log_probs(), rng)
        self._tell_who_has_won(found)
        goes_on = np.zeros(len(steps), bool)
        goes_on[:-1] = (np.diff(steps) == 1) & ~(own.terminated | batch[sb.TRUNCATEDS][steps])[:-1]
        rewards, absorbed, mean = self.discriminator.rewards(own, goes_on)
        learned = imitation * rewards + task * batch[sb.REWARDS][steps]
        if settings.absorbing:
            learned += own.terminated * absorbing_bonus(imitation * absorbed, settings.gamma)
        batch[sb.ENV_REWARDS] = batch[sb.REWARDS]
        batch[sb.REWARDS] = np.zeros(batch.count, np.float32)
        batch[sb.REWARDS][steps] = learned
        return {**found, "imitation_reward_mean": mean, "absorbing_reward": absorbed}

    def _steps(self, batch: SampleBatch, steps: np.ndarray) -> Steps:
        # Where next observations are not read, the row behind a terminated step may be of the next episode.
        return Steps(
            batch[sb.OBS][steps],
            self._played(batch[sb.ACTIONS][steps]),
            batch[sb.OBS][steps + 1],
            batch[sb.TERMINATEDS][steps],
            batch[sb.ACTION_LOGP][steps] if self._settings.is_shaped else None,
        )

    def _expert_log_probs(self) -> np.ndarray | None:
        if not self._settings.is_shaped:
            return None
        return self._policy.log_prob(self._policy.dist_inputs(self._expert.observations), self._expert_actions)

    def _tell_who_has_won(self, stats: dict[str, float]) -> None:
        accuracies = stats["discriminator_accuracy_expert"], stats["discriminator_accuracy_policy"]
        self._won = self._won + 1 if min(accuracies) > _WON else 0
        if self._won == _BATCHES:
            logger.warning(
                "the discriminator has won: in %s train batches it has told %.1f %% of the rows apart, and its reward "
                "says little more. Use fewer discriminator_updates, a larger gradient_penalty, or leave out inputs "
                "that give one side away.", _BATCHES, 100 * min(accuracies),
            )  # fmt: skip

    def of(self, steps: Dataset) -> np.ndarray:
        """What has been learned of steps, [rows] float32: AIRL's g, else the reward before it is scaled."""
        actions = self._played(recorded.actions(steps, self._policy, self._conversions))
        columns = steps.columns
        return self.discriminator.learned_reward(
            Steps(columns[sb.OBS], actions, columns[sb.NEXT_OBS], columns[sb.TERMINATEDS])
        )


def _columns_of(space: Space, keys: Collection[str], action_mask_key: str | None) -> np.ndarray:
    """Columns of encoded observations of a Dict space, which have no mask, that belong to these keys.

    Raises:
        Unfit: if there are none.
    """
    read = space
    if isinstance(space, Dict):
        read = Dict([(key, part) for key, part in space.spaces.items() if key != action_mask_key])
    found = [np.arange(leaf.start, leaf.stop) for leaf in flat_leaves(read) if is_under(leaf, keys)]
    if not found:
        raise Unfit(
            f"discriminator_observation_keys={list(keys)} must be keys of Dict observations, but these are {space}.",
            "Leave discriminator_observation_keys out.",
            {"discriminator_observation_keys": []},
        )
    return np.concatenate(found)
