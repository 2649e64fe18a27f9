"""The keys of `replay_buffer_config`."""

from typing import Annotated, ClassVar, Literal

from rllib.config.conflicts import DEFAULT, conflict
from rllib.config.nested import NestedSettings
from rllib.config.sections import Checked, Range, Translated, at_least, between
from rllib.replay.disk import MEMORY, can_store
from rllib.replay.gpu import GPU

# Names of Ray's buffers, and one of Stable-Baselines3's.
_WITH_PRIORITIES = (
    *("MultiAgentPrioritizedReplayBuffer", "PrioritizedReplayBuffer"),
    "PrioritizedEpisodeReplayBuffer",
)
_UNIFORM = ("ReplayBuffer", "MultiAgentReplayBuffer", "EpisodeReplayBuffer")
# Rows have further goals (evaluation/postprocess/hindsight.py); the second name is Stable-Baselines3's.
_HINDSIGHT = ("HindsightReplayBuffer", "HerReplayBuffer")
TYPES = (*_WITH_PRIORITIES, *_UNIFORM, *_HINDSIGHT)
_NOT_NEGATIVE = Range(0, finite=True)


class ReplaySettings(NestedSettings, setting="replay_buffer_config"):
    """The keys of `replay_buffer_config`: what describes a replay of single rows."""

    other_names: ClassVar = {  # of Ray 2.10 and later
        "alpha": "prioritized_replay_alpha",
        "beta": "prioritized_replay_beta",
        "eps": "prioritized_replay_eps",
    }

    type: Annotated[
        Literal[TYPES],
        "which rows are drawn: by their priorities, uniformly, or with further goals",
        Translated(lambda kind: kind.__name__ if isinstance(kind, type) else kind),
    ] = "MultiAgentPrioritizedReplayBuffer"
    capacity: Annotated[int, "rows", at_least(1)] = 50_000
    prioritized_replay_alpha: Annotated[float, "exponent of priorities; 0: uniform", _NOT_NEGATIVE] = 0.6
    prioritized_replay_beta: Annotated[
        float | list, "exponent of importance weights, or a schedule of it", between(0, 1)
    ] = 0.4
    prioritized_replay_eps: Annotated[float, "added to absolute TD errors", _NOT_NEGATIVE] = 1e-6
    replay_sequence_length: Annotated[Literal[1], "steps of a row; n_step sums up rewards of several"] = 1
    worker_side_prioritization: Annotated[
        Literal[False], "the replay gives new rows the largest priority so far; workers of Ape-X compute them"
    ] = False
    frame_stack_axis: Annotated[
        Literal[0, -1] | None,
        "axis of the frames in an observation, each of which is then stored once; None: observations are stored whole",
    ] = None
    storage: Annotated[
        str,
        "where the rows are",
        Checked(
            can_store,
            "'memory', 'gpu', 'disk' (a temporary directory that is on a disk), or an existing directory that can be "
            "written to",
        ),
    ] = MEMORY
    n_sampled_goal: Annotated[int, "further goals of each step, with hindsight", at_least(1)] = 4
    goal_selection_strategy: Annotated[
        Literal["future", "final", "episode"], "where they are achieved, with hindsight"
    ] = "future"

    conflicts = tuple(
        conflict(
            key,
            "type",
            when=lambda replay, key=key: key in replay.changes() and not replay.has_goals,
            why="it is for hindsight replay",
            remedies=[{key: DEFAULT}, {"type": _HINDSIGHT[0]}],
        )
        for key in ("n_sampled_goal", "goal_selection_strategy")
    )

    @property
    def has_priorities(self) -> bool:
        """Whether rows are drawn by their priorities."""
        return self.type in _WITH_PRIORITIES

    @property
    def has_goals(self) -> bool:
        """Whether rows are relabelled with goals that episodes achieved."""
        return self.type in _HINDSIGHT


class SequenceReplaySettings(ReplaySettings):
    """Keys of replays whose rows are single steps, or sequences where networks have a memory."""

    capacity: Annotated[int, "steps", at_least(1)] = 1_000_000
    storage_unit: Annotated[Literal["timesteps"], "what capacity counts"] = "timesteps"
    replay_sequence_length: Annotated[
        Literal[1, -1], "steps of a row; -1, with a memory alone: replay_burn_in + model['max_seq_len']"
    ] = 1
    replay_burn_in: Annotated[int, "steps before a sequence that bring a memory up to date", at_least(0)] = 0


class R2D2ReplaySettings(SequenceReplaySettings):
    """Keys of R2D2's replay, whose rows are sequences."""

    type = "MultiAgentReplayBuffer"
    capacity: Annotated[int, "sequences", at_least(1)] = 100_000
    storage_unit: Annotated[Literal["sequences"], "what capacity counts"] = "sequences"
    replay_sequence_length: Annotated[Literal[-1], "steps of a row: replay_burn_in + model['max_seq_len']"] = -1


class ShardedReplaySettings(ReplaySettings):
    """Keys of Ape-X's replay, which is shared out to processes."""

    capacity: Annotated[int, "rows of all shards", at_least(1)] = 2_000_000
    worker_side_prioritization: Annotated[bool, "workers compute the priorities of new rows"] = True
    no_local_replay_buffer: Annotated[Literal[True], "of Ray's configs: rows are in the shards alone"] = True
    replay_buffer_shards_colocated_with_driver: Annotated[
        Literal[True], "of Ray's configs: where shards are is not chosen"
    ] = True


class AggregatedRowsSettings(NestedSettings, setting="replay_buffer_config"):
    """Keys of the store that DAgger draws from."""

    capacity: Annotated[int, "labelled steps; the oldest make room for new ones", at_least(1)] = 1_000_000
    storage: Annotated[
        str,
        "where the rows are",
        Checked(
            lambda storage: storage != GPU and can_store(storage),
            "'memory', 'disk' (a temporary directory that is on a disk), or an existing directory that can be "
            "written to",
        ),
    ] = MEMORY
