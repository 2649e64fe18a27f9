"""Writes the steps of a rollout worker to files while it samples."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib import sample_batch as sb
from rllib.config.io_context import IOContext
from rllib.evaluation.external.worker import ExternalWorker
from rllib.evaluation.offline.external_recorder import EpisodeRecorder
from rllib.evaluation.offline.open_episodes import OpenEpisodes
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.rollout_worker import RolloutWorker
from rllib.exploration.explorers import StochasticSampling
from rllib.models.observations.flat_spaces import action_form, parts, values_of_leaves
from rllib.models.observations.masks import parts_of_mask
from rllib.offline.writing.metadata import ENVIRONMENT, HAS_NEXT, NORMALIZED
from rllib.offline.writing.rolling import MAX_FILE_SECONDS, MAX_FILE_SIZE, PACKED, RollingWriter


@dataclass(frozen=True, kw_only=True)
class Output:
    """Settings of the files that the workers of a run write; called with a worker, it makes its recorder.

    Attributes:
        directory: directory of the files.
        format_: one of step_formats.OF_RUNS.
        metadata: facts about the steps.
        run_id: in the names of the files.
        max_file_size, max_rows_per_file, max_file_seconds, packed: as for RollingWriter.
        whole_episodes: an episode is written when it is over, its steps together; else each fragment, environment by
            environment.
        make_writer: makes the user's own writer, an object with `write(batch)`, of an IOContext; None: there is none.
        log_dir, config: for the IOContext.
    """

    directory: str
    format_: str
    metadata: Mapping[str, Any]
    run_id: str
    max_file_size: int = MAX_FILE_SIZE
    max_rows_per_file: int | None = None
    max_file_seconds: float = MAX_FILE_SECONDS
    packed: tuple[str, ...] = PACKED
    whole_episodes: bool = True
    make_writer: Callable[[IOContext], Any] | None = None
    log_dir: str | None = None
    config: Any = None

    def __call__(self, worker: RolloutWorker | ExternalWorker) -> "StepRecorder | EpisodeRecorder":
        writer, units = self._writer(worker), self.metadata["actions"]
        recorder: StepRecorder | EpisodeRecorder
        if isinstance(worker, ExternalWorker):
            env = worker.stream.environments[0]
            recorder = EpisodeRecorder(env.observation_space, env.action_space, writer, units, self.whole_episodes)
        else:
            recorder = StepRecorder(worker, writer, units, self.whole_episodes)
        if self.make_writer is None:  # episodes continue in the next file
            recorder.episodes.most_bytes, recorder.episodes.most_seconds = self.max_file_size, self.max_file_seconds
        return recorder

    def _writer(self, worker: RolloutWorker | ExternalWorker) -> Any:
        if self.make_writer is not None:
            context = IOContext(self.log_dir, self.config, worker.worker_index, worker)
            writer = self.make_writer(context)
            if not callable(getattr(writer, "write", None)):
                raise TypeError(
                    f"the function of output returned {writer!r:.60}, but it is to return a writer with write(batch)"
                )
            return writer
        return RollingWriter(
            self.directory,
            self.format_,
            {**self.metadata, **({} if isinstance(worker, ExternalWorker) else _units_of_densities(worker))},
            worker_index=worker.worker_index,
            run_id=self.run_id,
            max_file_size=self.max_file_size,
            max_rows_per_file=self.max_rows_per_file,
            max_file_seconds=self.max_file_seconds,
            packed=self.packed,
        )


def _units_of_densities(worker: RolloutWorker) -> dict[str, str]:
    """The entry of the metadata for densities of actions, which are in units of the policy; {} for choices."""
    space, lane = worker.stream.action_space, worker.lane
    if not isinstance(space, spaces.Box) and parts(space) is None:
        return {}
    is_normalized = lane.settings.normalize_actions or lane.policy.distribution.spans_bounds
    return {"densities": NORMALIZED if is_normalized else ENVIRONMENT}


class StepRecorder:
    """Hands over the steps of a worker's fragments to a writer, in the order of time by environment.

    They have observations before the filter, the environment's own rewards and flags, true final observations, and
    log-probabilities of the actions where these were drawn from the policy's distribution.

    Args:
        worker: samples.
        writer: has `write(batch)`, and may have `close()`.
        units: units of the actions of a Box, ENVIRONMENT or NORMALIZED.
        whole_episodes: see Output.

    Attributes:
        episodes: the running ones.
    """

    def __init__(self, worker: RolloutWorker, writer: Any, units: str = ENVIRONMENT, whole_episodes: bool = True):
        self._lane, self._stream = worker.lane, worker.stream
        self._units = units
        self.episodes = OpenEpisodes(writer, whole_episodes, self._stream.num_envs)
        self._noted: tuple[np.ndarray, ...] | None = None

    def note(self, fragment: Fragment) -> None:
        """Copies rewards and flags, which the algorithm may change."""
        self._noted = tuple(fragment[name].copy() for name in (sb.REWARDS, sb.TERMINATEDS, sb.TRUNCATEDS))

    def write(self, fragment: Fragment) -> None:
        """Writes the steps of a finished fragment.

        Raises:
            OSError: if they cannot be written; the message names the file.
        """
        by_environment = {
            name: np.ascontiguousarray(np.swapaxes(column, 0, 1)) for name, column in self._columns(fragment).items()
        }
        self.episodes.policy_version = self._lane.policy_version
        valid = np.ones((fragment.num_steps, fragment.num_envs), bool) if fragment.valid is None else fragment.valid
        for i in range(fragment.num_envs):
            self._add_environment(i, {name: column[i] for name, column in by_environment.items()}, valid[:, i])

    def start_over(self) -> None:
        """Ends the running episodes, which were dropped: their last steps have no flag."""
        self.episodes.end_all()

    def close(self) -> None:
        """Writes the running episodes as far as they have come, and closes the files."""
        self.episodes.close()

    def _add_environment(self, i: int, columns: Mapping[str, np.ndarray], valid: np.ndarray) -> None:
        """Adds the steps [T, ...] of environment i; rows that are no transitions end an episode."""
        start = 0
        for t in np.flatnonzero(columns[sb.TERMINATEDS] | columns[sb.TRUNCATEDS] | ~valid).tolist():
            self._add(i, columns, start, t + 1 if valid[t] else t)
            self.episodes.end(i)
            start = t + 1
        self._add(i, columns, start, len(valid))
        self.episodes.settle(i)

    def _add(self, i: int, columns: Mapping[str, np.ndarray], start: int, stop: int) -> None:
        if start < stop:
            self.episodes.add(i, {name: column[start:stop] for name, column in columns.items()})

    # ------------------------------------------------------------------ columns

    def _columns(self, fragment: Fragment) -> dict[str, np.ndarray]:
        """The columns of all steps, [T, N, ...]."""
        seen = fragment.observations if fragment.unfiltered is None else fragment.unfiltered
        following = seen[1:].copy()
        for t, i, final in fragment.ends:
            following[t, i] = final
        rewards, terminateds, truncateds = self._noted
        for t, i in fragment.cuts:
            truncateds[t, i] = True
        columns = {
            sb.OBS: seen[:-1],
            sb.NEXT_OBS: following,
            sb.ACTIONS: self._actions(fragment),
            sb.REWARDS: rewards,
            sb.TERMINATEDS: terminateds,
            sb.TRUNCATEDS: truncateds,
            HAS_NEXT: np.ones(truncateds.shape, bool),  # a reader cannot tell a final observation like a reset's
        }
        if sb.ACTION_DIST_INPUTS in fragment.columns:
            columns[sb.ACTION_DIST_INPUTS] = fragment[sb.ACTION_DIST_INPUTS]
        if (log_probs := self._log_probs(fragment)) is not None:
            columns[sb.ACTION_LOGP] = log_probs
        for column in self._stream.info_columns:
            columns[column.name] = fragment[column.name][: fragment.num_steps]
        return columns

    def _actions(self, fragment: Fragment) -> np.ndarray:
        """Actions [T, N, ...] in the units of the files."""
        shape = fragment.num_steps, fragment.num_envs
        actions, space = fragment[sb.ACTIONS], self._stream.action_space
        rows = actions.reshape(-1, *actions.shape[2:])
        if self._units == NORMALIZED and isinstance(space, spaces.Box):
            taken = self._lane.policy.distribution.unit.read(self._lane.mapper.clipped(rows))
        elif parts(space) is None:
            taken = np.asarray(self._lane.mapper.to_env(rows))
        else:
            leaves = values_of_leaves(space, self._lane.mapper.to_env(rows))
            flat = [np.asarray(leaf).reshape(len(rows), -1) for leaf in leaves]
            taken = np.concatenate(flat, 1).astype(action_form(space)[1])
        return taken.reshape(*shape, *taken.shape[1:])

    def _log_probs(self, fragment: Fragment) -> np.ndarray | None:
        """Log-probabilities [T, N] of the actions when they were drawn; None where they are not known.

        They are of actions as they are written: within the bounds, where the environment's are clipped. Those of
        squashed actions refer to [-1, 1]. The first steps of a run may be random, whatever the policy would do there.
        """
        lane, teacher = self._lane, self._lane.own.teacher
        if not (lane.own.explore and lane.explorer.follows_policy):
            return None
        if teacher is not None and not teacher.beta.is_zero:  # files of a run have the same columns
            return None
        has_them = sb.ACTION_LOGP in fragment.columns
        log_probs = self._of_clipped(fragment) if has_them else self._of_squashed(fragment)
        exploration = lane.explorer.exploration
        if log_probs is None or not isinstance(exploration, StochasticSampling):
            return log_probs
        steps = lane.timesteps - lane.explorer.position.stride * np.arange(fragment.num_steps, 0, -1)
        count = int((steps < exploration.random_timesteps).sum())
        if count:
            log_probs = log_probs.copy()
            log_probs[:count] = self._of_random(fragment.observations[:count])
        return log_probs

    def _of_squashed(self, fragment: Fragment) -> np.ndarray | None:
        """Log-densities [T, N] in [-1, 1], by the weights that acted: off-policy algorithms do not need them.

        None where they depend on more than the observation.
        """
        lane, policy = self._lane, self._lane.policy
        log_prob_of = policy.distribution.log_prob_of
        if log_prob_of is None or lane.stores_raw or policy.state_size or policy.is_noisy:
            return None
        has_own_noise = policy.spec.architecture.state_dependent_noise
        if has_own_noise or not isinstance(lane.explorer.exploration, StochasticSampling):
            return None
        actions = fragment[sb.ACTIONS]
        seen = fragment.observations[:-1].reshape(-1, *fragment.observations.shape[2:])
        inputs = policy.dist_inputs(seen)
        taken = lane.mapper.clipped(actions.reshape(len(inputs), *policy.action_shape))
        return log_prob_of(inputs, taken.reshape(len(inputs), -1)).reshape(fragment.num_steps, fragment.num_envs)

    def _of_random(self, observations: np.ndarray) -> np.ndarray | float:
        """Log-probabilities [T, N] of uniformly random actions (RandomStartExplorer), by stored observations."""
        policy = self._lane.policy
        if not policy.distribution.choices:
            return -math.log(2) * math.prod(policy.action_shape)
        if not policy.is_masked:
            return -sum(math.log(stop - start) for start, stop in policy.distribution.choices)
        shape = observations.shape[:2]
        legal = policy.spec.encoder.mask(observations.reshape(-1, *observations.shape[2:])) != 0
        counts = [legal[:, columns].sum(-1) for columns, _ in parts_of_mask(policy.distribution)]
        return -np.log(np.maximum(counts, 1)).sum(0).reshape(shape)  # none is legal where no step follows

    def _of_clipped(self, fragment: Fragment) -> np.ndarray:
        """The log-probabilities [T, N] of a fragment, computed again where actions were clipped."""
        log_probs, actions = fragment[sb.ACTION_LOGP], fragment[sb.ACTIONS]
        rows = actions.reshape(log_probs.size, *actions.shape[2:])
        taken = self._lane.mapper.clipped(rows)
        changed = np.flatnonzero((taken != rows).reshape(len(rows), -1).any(1))
        if not changed.size:
            return log_probs
        inputs = fragment[sb.ACTION_DIST_INPUTS].reshape(len(rows), -1)
        log_probs = log_probs.copy()
        log_probs.reshape(-1)[changed] = self._lane.policy.log_prob(inputs[changed], taken[changed])
        return log_probs
