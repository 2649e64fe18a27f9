"""A reward that is learned from demonstrations: it goes into the batches of a policy in training, and can be asked."""

import logging
from collections.abc import Collection
from typing import Any

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
from rllib.models.observations.filters import Filter, NoFilter
from rllib.models.observations.flat_spaces import flat_leaves, is_under
from rllib.offline.dataset import Dataset
from rllib.policy import Policy
from rllib.sample_batch import SampleBatch

# Beyond this accuracy on both sides, in this number of train batches in a row, the reward no longer guides the policy.
_WON, _BATCHES = 0.98, 20
_UNFILTERED = NoFilter()

logger = logging.getLogger(__name__)


class LearnedReward:
    """What a discriminator says of steps, and the rewards of batches by it.

    Args:
        settings: settings of the discriminator.
        policy: that learns, or has learned.
        demonstrations: the expert's steps; None: nothing is learned, it is asked alone.
        conversions: conversions of actions, as the policy's workers make them.
        rng: draws the initial weights.
        observation_keys: of Dict observations, the parts that are read; empty: all.
        action_mask_key: key of the mask in Dict observations, which is not read.
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
        demonstrations: Dataset | None,
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
        self._parts_read = tuple(observation_keys)
        if observation_keys and action_mask_key:
            self._parts_read += (action_mask_key,)
        self._mapper = action_mapper(
            policy.action_space, policy.distribution, conversions.normalize_actions, conversions.clip_actions
        )
        # The default network of the spaces, which reads images as vectors.
        spec = policy_spec(
            policy.observation_space, policy.action_space, {"conv_filters": []}, action_mask_key=action_mask_key
        )
        columns = None
        if observation_keys:
            columns = _columns_of(policy.observation_space, observation_keys, action_mask_key)
        reader = RowReader(spec, settings.parts, columns)
        self._expert = None if demonstrations is None else self._expert_steps(demonstrations)
        self.discriminator = Discriminator(settings, reader, self._expert, rng, device)
        self._won = 0

    def _expert_steps(self, demonstrations: Dataset) -> Steps:
        # A shaped logit has the probability of the action.
        stored = self._stored(demonstrations, ACTION in self._settings.parts or self._settings.is_shaped)
        terminated, is_read = demonstrations.columns[sb.TERMINATEDS], np.ones(len(demonstrations), bool)
        if NEXT_OBSERVATION in self._settings.inputs:
            is_read = demonstrations.has_next
        elif self._settings.is_shaped:  # of a terminated step the shaping takes nothing of what followed
            is_read = demonstrations.is_transition
        if not is_read.any():
            raise Unfit(
                f"{demonstrations.source} has {len(demonstrations):,} steps, but of none of them it is known what "
                "followed, which the discriminator reads (next_obs).",
                "Give new_obs, or use .training(discriminator_inputs=['obs', 'actions']).",
                {"discriminator_inputs": [OBSERVATION, ACTION]},
            )
        left_out_ends = int((terminated & ~is_read).sum())
        if left_out_ends:
            logger.warning(
                "%s: what was seen after termination is not known (%s of %s episodes), so that the discriminator, "
                "which reads it (next_obs), is not shown their last steps. Give new_obs.",
                demonstrations.source, f"{left_out_ends:,}", f"{demonstrations.num_episodes:,}",
            )  # fmt: skip
        self._expert_actions = stored[is_read]
        observations, following = demonstrations.columns[sb.OBS], demonstrations.columns[sb.NEXT_OBS]
        unknown = ~demonstrations.has_next & is_read
        if unknown.any():
            # A penalty reads rows between this one and others: one of the expert's observations, and not zeros.
            following = following.copy()
            following[unknown] = observations[unknown]
        return Steps(
            observations[is_read],
            self._played(self._expert_actions),
            following[is_read],
            terminated[is_read],
            left_out_ends=left_out_ends,
        )

    def _stored(self, steps: Dataset, reads_actions: bool) -> np.ndarray:
        """Actions in the policy's units, [rows, *action]; zeros where they are not read."""
        if reads_actions:
            return recorded.actions(steps, self._policy, self._conversions)
        return np.zeros((len(steps), *self._policy.action_shape), self._policy.action_dtype)

    def _played(self, actions: np.ndarray) -> np.ndarray:
        """Actions of the policy as the environment took them, in the policy's units.

        A Gaussian's draws may lie beyond the bounds, where no expert's do, and would be told apart by that alone.
        """
        return self._policy.distribution.unit.read(self._mapper.clipped(actions))

    def add_to(
        self,
        batch: SampleBatch,
        rng: np.random.Generator,
        imitation: float,
        task: float,
        filter_: Filter = _UNFILTERED,
    ) -> dict[str, float]:
        """Trains the discriminator on a train batch, then replaces its rewards; env_rewards has the environment's.

        The reward of a terminated step includes the value of the absorbing state (losses/discriminator.py).

        Args:
            batch: rows ordered by environment, each step followed by a row with the next observation (loss_mask False
                if that is no step); where next observations are read, terminated episodes have their final one, too.
            rng: draws rows.
            imitation, task: factors of the learned reward, and of the environment's.
            filter_: of the batch's observations, in the state in which it filtered them. The discriminator reads them
                as they were before, as demonstrated ones are.

        Returns:
            `stats` by name.
        """
        steps = np.flatnonzero(batch[sb.LOSS_MASK])
        own = self._steps(batch, steps, filter_)
        goes_on = np.zeros(len(steps), bool)
        goes_on[:-1] = (np.diff(steps) == 1) & ~(own.terminated | batch[sb.TRUNCATEDS][steps])[:-1]
        batch[sb.ENV_REWARDS] = batch[sb.REWARDS]
        learned, found = self._learn(own, batch[sb.REWARDS][steps], goes_on, rng, imitation, task)
        batch[sb.REWARDS] = np.zeros(batch.count, np.float32)
        batch[sb.REWARDS][steps] = learned
        return found

    def add_to_rows(
        self, batch: SampleBatch, rng: np.random.Generator, imitation: float, task: float
    ) -> dict[str, float]:
        """`add_to` for rows of a replay, each of one step with what followed; a discount of 0 says a termination."""
        own = Steps(batch[sb.OBS], self._played(batch[sb.ACTIONS]), batch[sb.NEXT_OBS], batch[sb.DISCOUNTS] == 0, None)
        batch[sb.ENV_REWARDS] = batch[sb.REWARDS]
        alone = np.zeros(batch.count, bool)
        batch[sb.REWARDS], found = self._learn(own, batch[sb.REWARDS], alone, rng, imitation, task)
        return found

    def _learn(
        self, own: Steps, rewards: np.ndarray, goes_on: np.ndarray, rng: np.random.Generator, *factors: float
    ) -> tuple[np.ndarray, dict[str, float]]:
        """Trains the discriminator on the policy's steps. Returns their rewards, float32 [B], and statistics."""
        settings, (imitation, task) = self._settings, factors
        found = self.discriminator.learn(own, self._expert_log_probs(), rng)
        self._tell_who_has_won(found)
        learned, absorbed, mean = self.discriminator.rewards(own, goes_on)
        learned = imitation * learned + task * rewards
        if settings.absorbing:
            learned += own.terminated * absorbing_bonus(imitation * absorbed, settings.gamma)
        return learned.astype(np.float32), {**found, "imitation_reward_mean": mean, "absorbing_reward": absorbed}

    def _steps(self, batch: SampleBatch, steps: np.ndarray, filter_: Filter = _UNFILTERED) -> Steps:
        # Where next observations are not read, the row behind a terminated step may be of the next episode.
        return Steps(
            # (The first row of each environment is of the batch before, whose statistics differ by a batch's rows.)
            filter_.undone(batch[sb.OBS][steps]),
            self._played(batch[sb.ACTIONS][steps]),
            filter_.undone(batch[sb.OBS][steps + 1]),
            batch[sb.TERMINATEDS][steps],
            batch[sb.ACTION_LOGP][steps] if self._settings.is_shaped else None,
        )

    def _expert_log_probs(self) -> np.ndarray | None:
        if not self._settings.is_shaped:
            return None
        seen = self._policy.filter(self._expert.observations)
        return self._policy.log_prob(self._policy.dist_inputs(seen), self._expert_actions)

    def _tell_who_has_won(self, stats: dict[str, float]) -> None:
        accuracies = stats["discriminator_accuracy_expert"], stats["discriminator_accuracy_policy"]
        self._won = self._won + 1 if min(accuracies) > _WON else 0
        if self._won == _BATCHES:
            logger.warning(
                "the discriminator has won: in %s train batches it has told %.1f %% of the rows apart, and its reward "
                "says little more. Use fewer discriminator_updates, a larger gradient_penalty, or leave out inputs "
                "that give one side away.", _BATCHES, 100 * min(accuracies),
            )  # fmt: skip

    def ask(
        self,
        observations: Any,
        actions: Any = None,
        next_observations: Any = None,
        terminateds: np.ndarray | None = None,
    ) -> np.ndarray:
        """What has been learned of steps: AIRL's g, else the reward of `reward_form` before it is divided.

        Args:
            observations, actions: [B, ...] each as the environment gives and takes them; of Dict and Tuple spaces dicts
                and tuples of such arrays. Of Dict observations the keys that are read suffice
                (`discriminator_observation_keys`). Actions are needed where `discriminator_inputs` has "actions".
            next_observations: the observations after the actions, where it has "next_obs".
            terminateds: bool [B], where it has "terminated"; None: no step ends an episode.

        Returns:
            float32 [B].

        Raises:
            ValueError: for actions or next observations that are missing, and for values that are not of the spaces.
        """
        given = {ACTION: ("actions", actions), NEXT_OBSERVATION: ("next_observations", next_observations)}
        for part, (name, values) in given.items():
            if values is None and part in self._settings.inputs:
                raise ValueError(f"the discriminator reads {part!r} (discriminator_inputs): give {name}, too")
        reads_actions = ACTION in self._settings.inputs
        columns = {sb.OBS: observations}
        more = {sb.ACTIONS: actions, sb.NEXT_OBS: next_observations, sb.TERMINATEDS: terminateds}
        columns |= {name: column for name, column in more.items() if column is not None}
        steps = Dataset.from_columns(
            columns,
            source="the steps",
            check=False,
            reads_actions=reads_actions,
            parts_read=self._parts_read,
            observation_space=self._policy.observation_space,
            action_space=self._policy.action_space,
        )
        played = self._played(self._stored(steps, reads_actions))
        return self.discriminator.learned_reward(
            Steps(steps.columns[sb.OBS], played, steps.columns[sb.NEXT_OBS], steps.columns[sb.TERMINATEDS])
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
