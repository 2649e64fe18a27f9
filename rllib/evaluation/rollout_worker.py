"""Steps N environments in lockstep with a policy and writes what happens into columns.

A worker is a plain object: it is given its allocator and knows no runtime, so the same code samples in the driver
(`num_rollout_workers=0`) and in an actor.
"""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from rllib import sample_batch as sb
from rllib.env.episodes import Episode, EpisodeTracker
from rllib.env.spaces.actions import action_mapper
from rllib.env.streams.base import Row
from rllib.evaluation import seeding
from rllib.evaluation.episode_hooks import EpisodeHooks
from rllib.evaluation.episode_ids import EpisodeIds
from rllib.evaluation.patience import Patience
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.settings import RolloutSettings
from rllib.evaluation.worker import Worker
from rllib.exploration.explorers import Greedy, WorkerSlot
from rllib.models.acting_buffers import ENVIRONMENTS_ALIKE
from rllib.models.observations.masks import no_choice
from rllib.policy import Snapshot
from rllib.sample_batch import DEFAULT_POLICY, Column, SampleBatch, table_of
from rllib.spans import span, stopwatch


@dataclass
class SampleReport:
    """Statistics that a worker sends with its batch, in the same message.

    Attributes:
        episodes: those that ended in this fragment.
        num_faulty_episodes: those in which an environment failed and was replaced.
        longest_running: steps of the longest episode still going on.
        env_steps: transitions of the fragment, which move the run's clock; rows where there is no environment.
        rows: steps of the fragment that was asked for, with those that are no transitions.
        env_time_s, inference_time_s: seconds spent in the environments and in the policy.
        filter_deltas: policy id -> observation statistics since the last report, to be merged by the driver; empty
            without a filter.
        return_deltas: those of discounted returns; empty where rewards are not scaled by them.
    """

    episodes: Sequence[Episode] = field(default_factory=list)
    num_faulty_episodes: int = 0
    longest_running: int = 0
    env_steps: int = 0
    rows: int = 0
    env_time_s: float = 0.0
    inference_time_s: float = 0.0
    filter_deltas: dict[str, Any] = field(default_factory=dict)
    return_deltas: dict[str, Any] = field(default_factory=dict)


@dataclass
class Gradient:
    """The gradient that a worker computes from a fragment, where workers send gradients instead of samples.

    Attributes:
        flat: float32 [weights], unclipped.
        stats: of the loss.
        env_steps: transitions it was computed from.
        policy_version: of the weights that acted, and at which it was computed.
    """

    flat: np.ndarray
    stats: dict[str, float]
    env_steps: int
    policy_version: int


class RolloutWorker(Worker):
    """N environments, a policy, and the loop between them.

    Args:
        settings: see RolloutSettings.
        worker_index: 0 for the local worker, 1... for the remote ones.
        incarnation: number of the worker's life (seeding.incarnation); gives it fresh random streams.
        allocate: `allocate(shape, dtype)` returns memory for the columns.

    Raises:
        the user's own exception, with a note naming worker and environment, when an environment fails.
    """

    def __init__(
        self,
        settings: RolloutSettings,
        worker_index: int = 0,
        incarnation: int = 0,
        allocate: Callable[..., np.ndarray] = np.empty,
    ):
        super().__init__(settings, worker_index)
        self.policy_version = 0
        self._allocate = allocate
        # Sequences are copied out of the fragment, which then needs no memory that others can see.
        self._remembers = self.policy.state_size > 0
        self._makes_sequences = settings.sequences or self._remembers
        self._allocate_fragment = np.empty if self._makes_sequences else allocate
        first = max(worker_index - 1, 0) * settings.num_envs
        total = settings.num_envs * max(settings.num_workers, 1)
        # Whether the run's bits do not depend on how environments are shared out among workers.
        self._is_alike = settings.acts_among_all and total <= ENVIRONMENTS_ALIKE and not self.acts_elsewhere
        if self._is_alike:
            self.policy.act_among(total, slice(first, first + settings.num_envs))
            if self.policy.filters_observations:
                self.policy.filter.keep_apart(settings.num_envs)
        self._indices = range(first, first + settings.num_envs)
        self._rngs = [seeding.generator(settings.seed, seeding.ACTIONS, i, incarnation) for i in self._indices]
        self.stream = settings.open_stream(seeding.ENVIRONMENTS, self._indices, worker_index, incarnation)
        self.policy.observation_space = self.stream.observation_space
        self.policy.action_space = self.stream.action_space
        self._hooks = EpisodeHooks(self.callbacks, self)
        self.episodes = EpisodeTracker(settings.num_envs)
        mapping = settings.normalize_actions, settings.clip_actions
        self._mapper = action_mapper(self.stream.action_space, self.policy.distribution, *mapping)
        self._explorer = self._make_explorer(incarnation)
        # Environment steps of the whole run before the next step here, as far as this worker knows.
        self._timesteps = 0
        self._filters = self.policy.filters_observations
        # Whether fragments hold observations as the environments give them, and the postprocess filters its rows.
        postprocess = self.policy_settings.postprocess
        self._stores_raw = self._filters and getattr(postprocess, "stores_raw_observations", False)
        self._columns = self._column_table()
        self._before_action = [column.name for column in self._columns if column.before_action]
        self._gives_values = self._explorer.gives_values and any(c.name == sb.VF_PREDS for c in self._columns)
        make_learner = self.policy_settings.learner
        self._learner = make_learner and make_learner(self.policy)
        self._every_final_observation = getattr(postprocess, "every_final_observation", False)
        # Makes rows of the fragments, where the algorithm does that differently.
        self._make_rows = getattr(postprocess, "make_rows", lambda stream, rngs: None)
        self._rows = self._make_rows(self.stream, self._rngs)
        self._return_scale = settings.make_return_scale and settings.make_return_scale(num_envs=settings.num_envs)
        # What the next actions are chosen from, by column: where the next fragment starts. None: with a reset.
        self._newest: dict[str, np.ndarray] | None = None
        # Where the network's outputs go that no column keeps.
        self._scratch = np.empty((settings.num_envs, self.policy.num_dist_inputs), np.float32)
        # Where resets are written, and observations before they are filtered.
        self._row = self.stream.new_row()

    @classmethod
    def from_config(cls, config, env: Any = None, *, worker_index: int = 0, num_workers: int = 0) -> Self:
        """A worker for a training loop of your own: it samples as those of the config's algorithm do.

        Its batches have the column eps_id as well. The weights are new ones, drawn by the config's seed.

        Args:
            config: an AlgorithmConfig.
            env: environment, where the config names none.
            worker_index: 0 for the only worker; 1 ... num_workers where there are several, in processes of their own.
                They draw from different random streams of one run.
            num_workers: number of these processes.

        Raises:
            ValueError: with every mistake in the settings; the environment's own exception.
        """
        settings, weights = config.get_rollout_settings(env)
        first, total = max(worker_index - 1, 0) * settings.num_envs, max(num_workers, 1) * settings.num_envs
        own = settings.only_policy
        own = replace(own, postprocess=EpisodeIds(own.postprocess, first, settings.num_envs, total))
        worker = cls(replace(settings, num_workers=num_workers, policies={DEFAULT_POLICY: own}), worker_index)
        worker.policy.set_weights(weights)
        return worker

    def _make_explorer(self, incarnation: int):
        settings = self.settings
        low, high = self._mapper.policy_bounds or (None, None)
        shared_rng = seeding.generator(settings.seed, seeding.WEIGHT_NOISE, incarnation=incarnation)
        slot = WorkerSlot(self.worker_index, settings.num_workers, settings.num_envs, low, high, shared_rng)
        exploration = self.policy_settings.exploration
        kind = exploration.explorer if self.policy_settings.explore else Greedy
        return kind(exploration, self.policy, self._rngs, slot)

    def _column_table(self) -> tuple[Column, ...]:
        """The columns of a fragment: those of the environments, of the policy and of the algorithm."""
        observed, *given = self.stream.columns
        if self._filters and not self._stores_raw:
            observed = replace(observed, dtype="float32")
        return table_of(observed, *given, *self.policy.columns, *self.policy_settings.postprocess.columns)

    # ------------------------------------------------------------------ weights and state

    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Uses this policy from now on."""
        super().load_snapshot(snapshot)
        self.policy_version, self._timesteps = snapshot.version, snapshot.timesteps
        if snapshot.return_state is not None:
            self._return_scale.set_state(snapshot.return_state)

    def take_in(self, report: SampleReport) -> None:
        """Merges what a worker's observation filter and return scale have counted, as a driver does with every report.

        For loops of your own; with one worker it is its own report.
        """
        if DEFAULT_POLICY in report.filter_deltas:
            self.policy.filter.merge(report.filter_deltas[DEFAULT_POLICY])
        if DEFAULT_POLICY in report.return_deltas:
            self._return_scale.merge(report.return_deltas[DEFAULT_POLICY])

    def get_state(self) -> list[dict]:
        """The action streams and what exploration remembers, one dict an environment, for an exact continuation."""
        return [
            {"rng": rng.bit_generator.state, "exploration": explored}
            for rng, explored in zip(self._rngs, self._explorer.get_state(), strict=True)
        ]

    def set_state(self, state: list[dict]) -> None:
        """Restores the state that `get_state` returned."""
        for rng, saved in zip(self._rngs, state, strict=True):
            rng.bit_generator.state = saved["rng"]
        self._explorer.set_state([saved["exploration"] for saved in state])

    def start_over(self, incarnation: int | None = None) -> None:
        """Drops the running episodes; the next sample starts new ones.

        Args:
            incarnation: seeds the environments and the process's global generators anew; by default they go on.
        """
        self._newest = None
        self.episodes.reset()
        self._hooks.start_over()
        self._explorer.start_over()
        self._rows = self._make_rows(self.stream, self._rngs)
        if self._return_scale:
            self._return_scale.start_over()
        if hasattr(self.policy_settings.postprocess, "start_over"):
            self.policy_settings.postprocess.start_over()
        if incarnation is not None:
            self.stream.reseed(self.settings.seeds(seeding.ENVIRONMENTS, self._indices, incarnation))
            self.settings.seed_process(seeding.ENVIRONMENTS, self.worker_index, incarnation)

    # ------------------------------------------------------------------ sampling

    def sample(self) -> tuple[SampleBatch, SampleReport]:
        """One fragment of every environment, as rows, and its report.

        Returns:
            fragment_length * num_envs rows in truncate_episodes mode; in complete_episodes mode at least as many, each
            episode whole.
        """
        report = SampleReport()
        fragment = self._collect(self.settings.fragment_length, report)
        if self.settings.complete_episodes:
            fragment = self._complete(fragment, report)
        started = time.perf_counter()
        with span("finish"):
            self._finish(fragment)
        report.inference_time_s += time.perf_counter() - started
        with span("make rows"):
            batch = self._to_batch(fragment)
        report.env_steps = fragment.num_transitions
        report.rows = self.settings.fragment_length * self.settings.num_envs
        report.episodes = self.episodes.pop_finished()
        report.num_faulty_episodes = len(fragment.failures)
        report.longest_running = self.episodes.longest_running
        if (seen := self.policy.filter.pop_delta()) is not None:
            report.filter_deltas = {DEFAULT_POLICY: seen}
        if self._return_scale:
            report.return_deltas = {DEFAULT_POLICY: self._return_scale.pop_delta()}
        for episode in report.episodes:
            self._hooks.report(episode, episode.env_index)
        self.callbacks.on_sample_end(worker=self, samples=batch)
        return batch, report

    def _to_batch(self, fragment: Fragment) -> SampleBatch:
        has_gaps = self.settings.complete_episodes or self.stream.has_gaps
        if self._rows is not None:
            return self._rows.of(fragment, self.policy, self.policy_version, has_gaps)
        if self._makes_sequences:
            return fragment.to_sequences(
                self.policy_version,
                self._allocate,
                bootstraps=self.settings.sequences,
                max_seq_len=self.policy.spec.max_seq_len,
            )
        return fragment.to_batch(self.policy_version, has_gaps)

    def compute_gradient(self, **settings) -> tuple[Gradient, SampleReport]:
        """The loss's gradient over one fragment.

        Args:
            settings: as for Learner.compute_gradient.
        """
        batch, report = self.sample()
        with span("gradient"):
            flat, stats = self._learner.compute_gradient(batch, **settings)
        return Gradient(flat, stats, batch.count, self.policy_version), report

    def _collect(self, num_steps: int, report: SampleReport, active: list[bool] | None = None) -> Fragment:
        fragment = Fragment(self._columns, num_steps, self.settings.num_envs, self._allocate_fragment)
        fragment.has_values = self._gives_values
        fragment.by_environment = self._is_alike
        self._start(fragment)
        try:
            env_time, inference_time = self._step_through(fragment, active)
        except BaseException as error:
            # The environments have gone on without the columns: the next sample starts new episodes.
            self._note_rows_without_choice(error)
            self.start_over()
            raise
        report.env_time_s += env_time
        report.inference_time_s += inference_time
        # Copies: views would keep the whole fragment's memory from being used again.
        self._newest = {name: fragment[name][-1].copy() for name in self._before_action}
        return fragment

    def _start(self, fragment: Fragment) -> None:
        """Writes what the first actions of a fragment are chosen from."""
        if self._newest is not None:
            for name, values in self._newest.items():
                fragment[name][0] = values
            return
        self.stream.reset(self._row)
        self._filtered(self._row.observations, fragment.observations[0])
        if self._stores_raw:
            fragment.observations[0] = self._row.observations
        for column in self.stream.info_columns:
            if column.before_action:
                fragment[column.name][0] = self._row.infos[column.name]
        if self._remembers:
            fragment[sb.STATE_IN][0] = 0

    def _step_through(self, fragment: Fragment, active: list[bool] | None) -> tuple[float, float]:
        """The hot loop. Returns the seconds spent in the environments and in the policy."""
        step, to_env, clock = self.stream.step, self._mapper.to_env, stopwatch("act", "step")
        act = self._explorer.act
        filtering, has_inputs = self._filters, sb.ACTION_DIST_INPUTS in fragment.columns
        env_time = inference_time = 0.0
        stored = list(fragment.observations)
        observations = self._filtered_apart(fragment) if self._stores_raw else stored
        received = itertools.repeat(self._row.observations) if filtering and not self._stores_raw else stored[1:]
        states = fragment[sb.STATE_IN] if self._remembers else itertools.repeat(None)
        steps = zip(
            range(fragment.num_steps),
            observations,
            observations[1:],
            self._explorer.begin(fragment.num_steps, self._timesteps, active),
            fragment[sb.ACTION_DIST_INPUTS] if has_inputs else itertools.repeat(self._scratch),
            fragment[sb.ACTIONS],
            fragment[sb.VF_PREDS] if fragment.has_values else itertools.repeat(None),
            states,
            states[1:] if self._remembers else states,
            Row.of_steps(received, fragment.columns, self.stream.info_columns),
        )
        for t, observation, following, noise, dist_inputs, actions, values, state, next_state, row in steps:
            begun = clock()
            act(observation, noise, dist_inputs, actions, values, state, next_state)
            acted = clock()
            if active is not None:
                following[:] = observation
                if self._stores_raw:
                    row[0][:] = stored[t]
            ended = step(to_env(actions), row, active)
            inference_time += acted - begun
            env_time += clock() - acted
            if filtering:
                self._filtered(row[0], following, active)
            if ended:
                self._note_ends(fragment, t, ended)
            dropped = self.stream.reset_rows
            if dropped is not None:
                fragment.mark_invalid(t, dropped)
                if self.stream.replaced:
                    fragment.failures += [(t, i) for i in self.stream.replaced]
                    self._explorer.episodes_ended(list(self.stream.replaced))
        self._timesteps += fragment.num_steps * self._explorer.slot.stride
        self._explorer.end()
        return env_time, inference_time

    def _filtered_apart(self, fragment: Fragment) -> list[np.ndarray]:
        """Memory for what the policy sees where a fragment holds raw observations; the first is there already."""
        seen = np.empty(fragment.observations.shape, np.float32)
        self.policy.filter(fragment.observations[0], out=seen[0])
        return list(seen)

    def _filtered(self, raw: np.ndarray, out: np.ndarray, active: list[bool] | None = None) -> None:
        """Writes what is stored of raw observations; of the active environments alone, where some are not."""
        if not self._filters:
            out[:] = raw
        elif active is None:
            self.policy.filter(raw, out=out, update=True)
        else:
            out[active] = self.policy.filter(raw[active], update=True, environments=np.flatnonzero(active))

    def _note_ends(self, fragment: Fragment, t: int, ended: list[tuple[int, np.ndarray]]) -> None:
        truncated = fragment[sb.TRUNCATEDS][t]
        terminated = fragment[sb.TERMINATEDS][t]
        self._explorer.episodes_ended([i for i, _ in ended])
        fragment.lives_lost += [(t, i) for i in self.stream.lives_lost]
        for i, final in ended:
            if self._every_final_observation or (truncated[i] and not terminated[i]):
                if self._filters and not self._stores_raw:
                    final = self.policy.filter(np.asarray(final)[None], environments=np.array([i]))[0]
                fragment.add_final(t, i, final)
        if self._remembers:
            fragment.forget(t, [i for i, _ in ended])

    def _complete(self, fragment: Fragment, report: SampleReport) -> Fragment:
        """Goes on until the episode that each environment was in at the end of the fragment is over."""
        parts = [fragment]
        ended = fragment[sb.TERMINATEDS][-1] | fragment[sb.TRUNCATEDS][-1]
        patience = Patience(self.settings.sample_timeout_s, "batch_mode='complete_episodes'")
        while not ended.all():
            patience.check(~ended, len(parts))
            active = [not over for over in ended.tolist()]
            part = self._collect(1, report, active)
            ended = ended | part[sb.TERMINATEDS][0] | part[sb.TRUNCATEDS][0]
            parts.append(part)
        return Fragment.join(parts, self._columns, self._allocate_fragment)

    def _finish(self, fragment: Fragment) -> None:
        """Computes for the whole fragment at once: statistics, log-probabilities, the postprocess."""
        ended = fragment[sb.TERMINATEDS] | fragment[sb.TRUNCATEDS]
        self.episodes.add_fragment(fragment[sb.REWARDS], ended, fragment.valid, fragment.failures, fragment.lives_lost)
        if self.policy.is_masked:
            self._check_masks(fragment)
        fragment.cut_at_failures()
        rewards, clip = fragment[sb.REWARDS], self.settings.clip_rewards
        if self._return_scale:
            self._return_scale.apply(rewards, fragment[sb.TERMINATEDS] | fragment[sb.TRUNCATEDS], fragment.valid)
        if clip is True:  # the sign alone (DQN, Nature 2015)
            np.sign(rewards, out=rewards)
        elif clip:
            np.clip(rewards, -clip, clip, out=rewards)
        self._check_finite(fragment)
        if sb.ACTION_LOGP in fragment.columns:
            dist_inputs, actions = fragment[sb.ACTION_DIST_INPUTS], fragment[sb.ACTIONS]
            rows = fragment.num_steps * fragment.num_envs
            fragment[sb.ACTION_LOGP].reshape(rows)[:] = self.policy.log_prob(
                dist_inputs.reshape(rows, -1), actions.reshape(rows, *actions.shape[2:])
            )
        self.policy_settings.postprocess(fragment, self.policy)
        self._hooks.postprocess(fragment, [column.name for column in self.policy_settings.postprocess.columns])

    def _check_masks(self, fragment: Fragment) -> None:
        """Raises an error for a transition whose observation had no legal action."""
        seen = fragment.observations[: fragment.num_steps]
        without = self.policy.without_choice(seen.reshape(-1, seen.shape[-1])).reshape(seen.shape[:2])
        if fragment.valid is not None:
            without &= fragment.valid
        if without.any():
            t, i = np.argwhere(without)[0]
            raise ValueError(
                f"environment {i} of rollout worker {self.worker_index} had no legal action at step {t} of the "
                f"fragment: {no_choice(self.policy.spec.encoder.mask(seen[t, i][None])[0])}"
            )

    def _note_rows_without_choice(self, error: BaseException) -> None:
        """Adds to an error of the environments which of them had no legal action when they were stepped last."""
        rows = self.policy.acted_without_choice() if self.policy.is_masked else ()
        for i in rows:
            error.add_note(f"environment {i} of rollout worker {self.worker_index} had no legal action at that step")

    def _check_finite(self, fragment: Fragment) -> None:
        """Raises an error for a NaN or an infinity here, near its cause."""
        for name in (sb.OBS, sb.ACTION_DIST_INPUTS, sb.VF_PREDS):
            if name not in fragment.columns or (name == sb.VF_PREDS and not fragment.has_values):
                continue
            column = fragment[name]
            if column.dtype.kind != "f" or math.isfinite(float(column.sum(dtype=np.float64))):
                continue
            network = f"{self.policy.spec.network_name} overflowed: scale the observations, or lower the learning rate"
            cause = "the environment gave it" if name == sb.OBS else network
            t, i = np.argwhere(~np.isfinite(column).reshape(*column.shape[:2], -1).all(-1))[0]
            raise ValueError(
                f"{name} of environment {i} of rollout worker {self.worker_index} is not finite at step {t} of the "
                f"fragment: {column[t, i]}; {cause}"
            )

    def explored_by(self) -> dict[str, Any]:
        """Present keyword arguments of the action distribution's `noise` (epsilon, ...)."""
        return self._explorer.exploration.numbers(self._timesteps)
