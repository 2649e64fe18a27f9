"""Steps N environments in lockstep with a policy and writes what happens into columns.

A worker is a plain object: it is given its allocator and knows no runtime, so the same code samples in the driver
(`num_rollout_workers=0`) and in an actor.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from rllib import sample_batch as sb
from rllib.env.episodes import EpisodeTracker
from rllib.env.streams.base import StepBuffers
from rllib.evaluation import seeding
from rllib.evaluation.episode_hooks import StreamEpisodes
from rllib.evaluation.episode_ids import EpisodeIds
from rllib.evaluation.lane import Lane
from rllib.evaluation.patience import Patience
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.sampling_worker import SampleReport, SamplingWorker
from rllib.evaluation.settings import RolloutSettings
from rllib.models.acting_buffers import ENVIRONMENTS_ALIKE
from rllib.sample_batch import DEFAULT_POLICY, SampleBatch
from rllib.spans import span, stopwatch


@dataclass
class Gradient:
    """The gradient that a worker computes from a fragment, where workers send gradients instead of samples.

    Attributes:
        flat: float32 [weights], unclipped; [0] where there were no transitions.
        stats: of the loss.
        env_steps: transitions it was computed from.
        policy_version: version of the weights that acted, and at which it was computed.
    """

    flat: np.ndarray
    stats: dict[str, float]
    env_steps: int
    policy_version: int


class RolloutWorker(SamplingWorker[SampleBatch]):
    """N environments, a policy, and the loop between them.

    Args:
        settings: see RolloutSettings.
        worker_index: 0 for the local worker, 1... for the remote ones.
        incarnation: number of the worker's life (seeding.incarnation); gives it fresh random streams.
        allocate: `allocate(shape, dtype)` returns memory for the columns.

    Raises:
        TypeError: for RLlib's arguments (env_creator, config, ...).
        the user's own exception, with a note naming worker and environment, when an environment fails.
    """

    # Kind of the environments' random streams.
    streams: ClassVar[int] = seeding.ENVIRONMENTS

    def __init__(
        self,
        settings: RolloutSettings | None = None,
        worker_index: int = 0,
        incarnation: int = 0,
        allocate: Callable[..., np.ndarray] = np.empty,
        **of_rllib,
    ):
        if settings is None or of_rllib:
            raise TypeError(
                f"RolloutWorker takes RolloutSettings, not {', '.join(of_rllib) or 'nothing'} as in RLlib. Use "
                "RolloutWorker.from_config(config, env=env_creator), whose sample() returns a batch and a report "
                "(docs/guide/own_code.md)"
            )
        super().__init__(settings, worker_index)
        first = max(worker_index - 1, 0) * settings.num_envs
        total = settings.num_envs * max(settings.num_workers, 1)
        # Whether the run's bits do not depend on how environments are shared out among workers.
        is_alike = settings.acts_among_all and total <= ENVIRONMENTS_ALIKE and not self.acts_elsewhere
        if is_alike:
            self.policy.act_among(total, slice(first, first + settings.num_envs))
            if self.policy.filters_observations:
                self.policy.filter.keep_apart(settings.num_envs)
        self._indices = range(first, first + settings.num_envs)
        self.stream = settings.open_stream(self.streams, self._indices, worker_index, incarnation)
        self.policy.observation_space = self.policy_settings.observation_space or self.stream.observation_space
        self.policy.action_space = self.stream.action_space
        self._hooks = StreamEpisodes(self.callbacks, self, first_env=first)
        self.episodes = EpisodeTracker(settings.num_envs)
        self.lane = Lane(
            self.policy,
            self.policy_settings,
            settings,
            given=self.stream.columns,
            action_space=self.stream.action_space,
            rngs=[seeding.generator(settings.seed, seeding.ACTIONS, i, incarnation) for i in self._indices],
            worker_index=worker_index,
            incarnation=incarnation,
            stream=self.stream,
            describe=lambda i: f"environment {i} of rollout worker {worker_index}",
            allocate=allocate,
            by_slot=is_alike,
        )
        if is_alike and self.lane.teacher is not None:
            self.lane.teacher.act_among(total, slice(first, first + settings.num_envs))
        # Where resets are written, and observations before they are filtered.
        self._buffers = self.stream.new_buffers()
        self.recorder = settings.make_recorder and settings.make_recorder(self)

    @classmethod
    def from_config(cls, config, env: Any = None, *, worker_index: int = 0, num_workers: int = 0) -> Self:
        """A worker for a training loop of your own: it samples like the workers of the config's algorithm.

        Its batches have the column eps_id as well. The weights are new ones, drawn by the config's seed.

        Args:
            config: an AlgorithmConfig.
            env: environment, where the config names none.
            worker_index: 0 for the only worker; 1 ... num_workers where there are several, in processes of their own.
                They draw from different random streams of one run.
            num_workers: number of these processes.

        Raises:
            ValueError: with every mistake in the settings, or if the environment has several agents; the environment's
                own exception.
        """
        settings, weights = config.get_rollout_settings(env)
        if settings.agents is not None:
            raise ValueError(
                "RolloutWorker.from_config makes workers for one agent, but this environment has several. Use the "
                "worker of an algorithm: config.build().workers.local_worker().sample() returns their rows by policy."
            )
        first, total = max(worker_index - 1, 0) * settings.num_envs, max(num_workers, 1) * settings.num_envs
        own = settings.only_policy
        own = replace(own, postprocess=EpisodeIds(own.postprocess, first, settings.num_envs, total))
        worker = cls(replace(settings, num_workers=num_workers, policies={DEFAULT_POLICY: own}), worker_index)
        worker.policy.set_weights(weights)
        return worker

    # ------------------------------------------------------------------ weights and state

    @property
    def policy_version(self) -> int:
        """Version of the weights that act."""
        return self.lane.policy_version

    @property
    def lanes(self) -> dict[str, Lane]:
        return {DEFAULT_POLICY: self.lane}

    def get_state(self) -> list[dict]:
        """The action streams and what exploration remembers, one dict an environment, for an exact continuation."""
        return self.lane.get_state()

    def set_state(self, state: list[dict]) -> None:
        """Restores the state that `get_state` returned."""
        self.lane.set_state(state)

    def _drop_episodes(self) -> None:
        self.episodes.reset()
        self._hooks.start_over()
        self.lane.start_over()
        if self.recorder is not None:
            self.recorder.start_over()

    # ------------------------------------------------------------------ sampling

    def compute_gradient(self, **settings) -> tuple[Gradient, SampleReport]:
        """The loss's gradient over one fragment; an empty one where no step of the fragment is a transition.

        Args:
            settings: as for Learner.compute_gradient.
        """
        batch, report = self.sample()
        if not batch.count:
            return Gradient(np.empty(0, np.float32), {}, 0, self.policy_version), report
        with span("gradient"):
            flat, stats = self.lane.compute_gradient(batch, **settings)
        return Gradient(flat, stats, batch.count, self.policy_version), report

    def _collect(self) -> tuple[Fragment, SampleReport]:
        report = SampleReport()
        fragment = self._steps(self.settings.fragment_length, report)
        return self._complete(fragment, report) if self.settings.complete_episodes else fragment, report

    def _steps(self, num_steps: int, report: SampleReport, active: list[bool] | None = None) -> Fragment:
        """The next steps, of the active environments alone where some are not."""
        fragment = self.lane.new_fragment(num_steps)
        if not self.lane.start(fragment):
            self._reset(fragment)
        try:
            env_time, inference_time = self._step_through(fragment, active)
        except BaseException as error:
            # The environments have gone on without the columns: the next sample starts new episodes.
            self.lane.note_rows_without_choice(error)
            self.start_over()
            raise
        report.env_time_s += env_time
        report.inference_time_s += inference_time
        report.rows += num_steps * (self.settings.num_envs if active is None else sum(active))
        self.lane.keep_newest(fragment)
        return fragment

    def _reset(self, fragment: Fragment) -> None:
        """Starts an episode in every environment, and writes the inputs of its first action."""
        self.stream.reset(self._buffers)
        self.lane.refuse_not_finite(self._buffers.observations, 0)
        self.lane.filtered(self._buffers.observations, fragment.observations[0])
        if self.lane.stores_raw:
            fragment.observations[0] = self._buffers.observations
        if fragment.unfiltered is not None:
            fragment.unfiltered[0] = self._buffers.observations
        for column in self.stream.info_columns:
            if column.before_action:
                fragment[column.name][0] = self._buffers.infos[column.name]
        if self.lane.remembers:
            fragment[sb.STATE_IN][0] = 0

    def _step_through(self, fragment: Fragment, active: list[bool] | None) -> tuple[float, float]:
        """The hot loop. Returns the seconds spent in the environments and in the policy."""
        lane, stream, clock = self.lane, self.stream, stopwatch("act", "step")
        to_env, step, vdot = lane.mapper.to_env, stream.step, np.vdot
        filtering, stores_raw = lane.changes_observations, lane.stores_raw
        env_time = inference_time = 0.0
        # As are_finite, in one call: a single NaN or infinity makes NaN of the product with zeros.
        given = self._buffers.observations
        zeros = np.zeros(given.size, given.dtype) if given.dtype.kind == "f" else None
        stored = list(fragment.observations)
        observations = lane.seen_apart(fragment) if stores_raw else stored
        unfiltered = None if fragment.unfiltered is None else list(fragment.unfiltered)
        received = stored[1:] if unfiltered is None else unfiltered[1:]
        if filtering and not stores_raw and unfiltered is None:
            received = itertools.repeat(self._buffers.observations)
        steps = zip(
            range(fragment.num_steps),
            observations,
            observations[1:],
            lane.acting_columns(fragment, active),
            StepBuffers.of_steps(received, fragment.columns, stream.info_columns),
        )
        act = lane.acting(fragment, stored if unfiltered is None else unfiltered, active)
        # Taken apart here: a call by position costs less than one with a tuple of arguments.
        for t, observation, following, (noise, dist_inputs, actions, values, state, next_state), buffers in steps:
            begun = clock()
            act(observation, noise, dist_inputs, actions, values, state, next_state)
            acted = clock()
            if active is not None:
                following[:] = observation
                if stores_raw:
                    buffers[0][:] = stored[t]
                elif unfiltered is not None:
                    buffers[0][:] = unfiltered[t]
            try:
                ended = step(to_env(actions), buffers, active)
            except Exception as error:
                lane.note_not_finite(error, fragment, t)
                raise
            inference_time += acted - begun
            env_time += clock() - acted
            if zeros is not None and vdot(buffers[0], zeros) != 0:
                lane.refuse_not_finite(buffers[0], t + 1, active)
            if filtering:
                lane.filtered(buffers[0], following, active)
            if ended:
                fragment.lives_lost += [(t, i) for i in stream.lives_lost]
                lane.note_ends(fragment, t, ended)
            dropped = stream.reset_rows
            if dropped is not None:
                fragment.mark_invalid(t, dropped)
                if lane.teacher is not None:
                    lane.teacher.episodes_ended(dropped)
                if stream.replaced:
                    fragment.failures += [(t, i) for i in stream.replaced]
                    lane.explorer.episodes_ended(list(stream.replaced))
        lane.end_steps(fragment.num_steps)
        return env_time, inference_time

    def _complete(self, fragment: Fragment, report: SampleReport) -> Fragment:
        """Samples further fragments until every episode that was running at the end of this one has ended."""
        parts = [fragment]
        ended = fragment[sb.TERMINATEDS][-1] | fragment[sb.TRUNCATEDS][-1]
        patience = Patience(self.settings.sample_timeout_s, "batch_mode='complete_episodes'")
        while not ended.all():
            patience.check(~ended, len(parts))
            active = [not over for over in ended.tolist()]
            part = self._steps(1, report, active)
            ended = ended | part[sb.TERMINATEDS][0] | part[sb.TRUNCATEDS][0]
            parts.append(part)
        return self.lane.joined(parts)

    def _finish(self, fragment: Fragment, report: SampleReport) -> None:
        ended = fragment[sb.TERMINATEDS] | fragment[sb.TRUNCATEDS]
        self.episodes.add_fragment(
            fragment[sb.REWARDS],
            ended,
            fragment.valid,
            fragment.failures,
            fragment.lives_lost,
            self._costs_of(fragment),
        )
        if self.recorder is not None:
            self.recorder.note(fragment)
        self.lane.finish(fragment)
        if self.recorder is not None:
            self.recorder.write(fragment)
        self._hooks.postprocess(fragment)
        report.episodes = self.episodes.pop_finished()
        report.num_faulty_episodes = len(fragment.failures)
        report.longest_running = self.episodes.longest_running
        for episode in report.episodes:
            self._hooks.report(episode, episode.env_index)

    def _make_rows(self, fragment: Fragment, report: SampleReport) -> SampleBatch:
        report.env_steps = fragment.num_transitions
        return self.lane.to_batch(fragment, self.settings.complete_episodes or self.stream.has_gaps)

    def _costs_of(self, fragment: Fragment) -> np.ndarray | None:
        """The costs [T, N] of a fragment, 0 in rows that are no steps; None where the environment gives none."""
        if self.settings.cost_column is None:
            return None
        costs = fragment[self.settings.cost_column]
        return costs if fragment.valid is None else np.where(fragment.valid, costs, 0)

    def finish_recording(self) -> None:
        """Writes the recorded steps that wait, and closes their files."""
        if self.recorder is not None:
            self.recorder.close()

    def close(self) -> None:
        try:
            self.finish_recording()
        finally:
            super().close()

    def explored_by(self) -> dict[str, Any]:
        """Present keyword arguments of the action distribution's `noise` (epsilon, ...)."""
        return self.lane.explorer.exploration.numbers(self.lane.timesteps)
