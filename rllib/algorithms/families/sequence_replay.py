"""Replay of sequences, for policies with a memory: R2D2's (Kapturowski et al., ICLR 2019), and that of actor-critics.

A row of the replay is a sequence of an episode's steps (evaluation/postprocess/sequences.py). Its memory begins with
zeros, or with the state that the worker had there (`zero_init_states=False`), and may be brought up to date by the
steps before, `replay_burn_in` of them, without a gradient.
"""

from typing import Annotated, ClassVar, Self

import numpy as np

from rllib import sample_batch as sb
from rllib.algorithms.families.off_policy import OffPolicyConfig
from rllib.config.conflicts import conflict
from rllib.config.sections import OfPolicy, section
from rllib.evaluation.postprocess.sequences import BOOTSTRAP_AT, BURN_IN
from rllib.learners.updates.sequences import BOOTSTRAP_IN
from rllib.models.model_settings import ModelSettings
from rllib.sample_batch import SampleBatch

# Share of the largest TD error in a sequence's priority; the rest is the mean's (eta in the paper).
LARGEST_SHARE = 0.9


class SequenceReplayConfig(OffPolicyConfig):
    """Settings of replayed sequences."""

    without_memory: ClassVar[str] = ""

    @section
    def training(
        self,
        *,
        zero_init_states: Annotated[
            bool, "sequences begin with a memory of zeros; False: with the state that acted there", OfPolicy
        ] = True,
    ) -> Self: ...

    @property
    def replays_sequences(self) -> bool:
        return True

    @property
    def steps_per_row(self) -> int:
        if not self.replays_sequences:
            return super().steps_per_row
        given = self.model.get("max_seq_len")
        return given if type(given) is int and given > 0 else ModelSettings.max_seq_len

    conflicts = (
        conflict(
            "replay_buffer_config",
            when=lambda config: config.replays_sequences and config.needs_goals,
            why="hindsight replay is for single rows, and networks with a memory have sequences",
            remedies=[{"replay_buffer_config": {"type": "ReplayBuffer"}}],
        ),
        conflict(
            "replay_buffer_config",
            when=lambda config: config.replays_sequences and config.replay_settings().frame_stack_axis is not None,
            why="frame_stack_axis is for single rows; with a memory, observations need no stacks of frames",
            remedies=[{"replay_buffer_config": {"frame_stack_axis": None}}],
        ),
    )


def stored_states(batch: SampleBatch, state_size: int) -> np.ndarray:
    """States [S, state_size] before sampled sequences: zeros, where the replay keeps none."""
    return batch.get(sb.STATE_IN, np.zeros((len(batch[sb.SEQ_LENS]), state_size), np.float32))


def steps_of_sequences(batch: SampleBatch, state_size: int) -> SampleBatch:
    """The steps of sampled sequences, one after the other and without padding (learners/updates/sequences.py).

    Args:
        batch: rows of the replay, with weights.
        state_size: of the policy.
    """
    observations, burn_in, seq_lens = batch[sb.OBS], batch[BURN_IN], batch[sb.SEQ_LENS]
    place, ends = np.arange(observations.shape[1]), (burn_in + seq_lens)[:, None]
    # Behind the learned steps, the observation that followed the last.
    is_seen = place <= ends
    is_learned = (place >= burn_in[:, None]) & (place < ends)
    columns = {
        name: _with_one_more(batch[name])[is_seen] for name in (sb.ACTIONS, sb.REWARDS, sb.DISCOUNTS, BOOTSTRAP_AT)
    }
    columns[BOOTSTRAP_IN] = columns.pop(BOOTSTRAP_AT) - np.broadcast_to(place, is_seen.shape)[is_seen]
    lengths = ends[:, 0] + 1
    columns |= {
        sb.OBS: observations[is_seen],
        sb.LOSS_MASK: is_learned[is_seen],
        sb.WEIGHTS: np.repeat(batch[sb.WEIGHTS], lengths),
        sb.SEQ_LENS: lengths,
        sb.STATE_IN: stored_states(batch, state_size),
    }
    return SampleBatch(columns, policy_version=batch.policy_version)


def _with_one_more(column: np.ndarray) -> np.ndarray:
    """A column [S, L, ...] of steps with zeros in one more place, [S, L + 1, ...]."""
    return np.concatenate([column, np.zeros_like(column[:, :1])], axis=1)


def sequence_errors(errors: np.ndarray, seq_lens: np.ndarray) -> np.ndarray:
    """Numbers [S] that the priorities of sequences are made of, from the absolute TD errors [B] of their steps."""
    starts = np.cumsum(seq_lens) - seq_lens
    means = np.add.reduceat(errors, starts) / seq_lens
    return LARGEST_SHARE * np.maximum.reduceat(errors, starts) + (1 - LARGEST_SHARE) * means
