"""Calls the user's hooks of environments and episodes, and collects the metrics that they report."""

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rllib import sample_batch as sb
from rllib.env.episodes import Episode
from rllib.env.factories.registry import EnvContext
from rllib.evaluation.callbacks import DefaultCallbacks, hears, remembers_episodes
from rllib.evaluation.hooks.base_env import BaseEnv
from rllib.evaluation.hooks.env_runner import EnvRunnerNames
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.running_episode import AGENT, AgentSlot, RunningEpisode
from rllib.evaluation.worker import Worker
from rllib.sample_batch import DEFAULT_POLICY, SampleBatch

EPISODE_HOOKS = (
    "on_episode_created",
    "on_episode_start",
    "on_episode_step",
    "on_episode_end",
    "on_postprocess_trajectory",
)

# Rows of an agent in a fragment: its slot, its columns [R, ...], and which of their rows are transitions.
Part = tuple[AgentSlot, Mapping[str, np.ndarray], Any]


class EpisodeHooks:
    """The events of a worker's environments and episodes as calls of the user's callbacks.

    Args:
        callbacks: the user's object.
        worker: argument of the hooks.
        in_evaluation: value of in_evaluation in the EnvContext.

    Attributes:
        follows_episodes: whether any hook of episodes is defined. If not, steps are not watched and cost nothing.
        remembers: whether hooks read all steps of an episode.
    """

    def __init__(self, callbacks: DefaultCallbacks, worker: Worker, *, in_evaluation: bool = False):
        self._callbacks, self._worker, self._in_evaluation = callbacks, worker, in_evaluation
        self._arguments = {"worker": worker, "base_env": BaseEnv(worker.stream), "policies": worker.policy_map}
        self._hears_steps = hears(callbacks, "on_episode_step")
        self.hears_parts = hears(callbacks, "on_postprocess_trajectory")
        self.follows_episodes = any(hears(callbacks, hook) for hook in EPISODE_HOOKS)
        self.remembers = remembers_episodes(callbacks)
        self.start_over()

    def start_over(self) -> None:
        """Forgets the episodes that were not reported, and their rows."""
        self._finished: list[tuple[RunningEpisode, Episode]] = []
        self._parts: list[tuple[RunningEpisode, list[tuple[AgentSlot, int]]]] = []

    # ------------------------------------------------------------------ environments

    def report_environments(self, observer: Any) -> None:
        """Reports the environments that there are; the stream tells the observer of later ones, if a hook wants it."""
        created = hears(self._callbacks, "on_environment_created")
        if not (self.follows_episodes or created or hears(self._callbacks, "on_sub_environment_created")):
            return
        if created:
            env, context, runner = self._arguments["base_env"], self._context(0), EnvRunnerNames(self._worker)
            self._callbacks.on_environment_created(env_runner=runner, env=env, env_context=context)
        for index, env in enumerate(self._worker.stream.environments):
            self.environment_made(index, env)
        self._worker.stream.watch(observer)

    def environment_made(self, index: int, env) -> None:
        """Calls `on_sub_environment_created` for a new environment."""
        context = self._context(index)
        self._callbacks.on_sub_environment_created(worker=self._worker, sub_environment=env, env_context=context)

    def _context(self, index: int) -> EnvContext:
        """The EnvContext that the environment with this index was made with."""
        settings, worker = self._worker.settings, self._worker
        position = worker.worker_index, index, settings.num_workers, worker.stream.num_envs
        return EnvContext(settings.env_config, *position, in_evaluation=self._in_evaluation)

    # ------------------------------------------------------------------ episodes

    def created(self, episode: RunningEpisode) -> None:
        """Calls `on_episode_created`: the environment is about to be reset."""
        self._callbacks.on_episode_created(**self._arguments, env_index=episode.env_id, episode=episode)

    def started(self, episode: RunningEpisode) -> None:
        """Calls `on_episode_start`: the environment has been reset, and the episode knows the results."""
        self._callbacks.on_episode_start(**self._arguments, episode=episode, env_index=episode.env_id)

    def stepped(self, episode: RunningEpisode) -> None:
        """Calls `on_episode_step`: the episode knows the step, and agents that have appeared have their slots."""
        if self._hears_steps:
            self._callbacks.on_episode_step(**self._arguments, episode=episode, env_index=episode.env_id)

    def ended(self, episode: RunningEpisode, result: Episode | None = None) -> None:
        """Calls `on_episode_end`; a reset, if there is one, follows.

        Args:
            episode: that is over.
            result: the finished episode that `report` writes metrics into; None: the caller does.
        """
        self._note_part(episode)
        if result is not None:
            self._finished.append((episode, result))
        self._callbacks.on_episode_end(**self._arguments, episode=episode, env_index=episode.env_id)

    def failed(self, episode: RunningEpisode) -> None:
        """Keeps the rows of a void episode, which are learned from."""
        self._note_part(episode)

    def report(self) -> None:
        """Copies the metrics that hooks have reported into the episodes that have ended since the last call."""
        finished, self._finished = self._finished, []
        for episode, result in finished:
            add_metrics(episode, result)

    # ------------------------------------------------------------------ parts of episodes in full fragments

    def _note_part(self, episode: RunningEpisode) -> None:
        if self.hears_parts:
            counts = [(slot, slot.num_rows - slot.first_row) for slot in episode.slots.values()]
            part = [(slot, count) for slot, count in counts if count and slot.lane.records]
            if part:
                self._parts.append((episode, part))

    def postprocess(self, fragments: Mapping[str, Fragment], running: Iterable[RunningEpisode]) -> None:
        """Calls `on_postprocess_trajectory` for each agent's part of an episode in full fragments.

        Args:
            fragments: policy id -> its packed fragment, which gets the changes that the hook makes to the batches.
            running: episodes that are cut by the fragment's end.
        """
        if not self.hears_parts:
            return
        for episode in running:
            self._note_part(episode)
        noted, self._parts = self._parts, []
        rows_before: Counter[tuple[str, int]] = Counter()
        known = self._worker.settings.policies
        for episode, counts in noted:
            parts = []
            for slot, count in counts:
                fragment, key = fragments[slot.policy_id], (slot.policy_id, slot.index)
                first = rows_before[key] + (0 if fragment.starts is None else int(fragment.starts[slot.index]))
                rows_before[key] += count
                if slot.policy_id in known:  # else it was removed, and nothing learns from its rows
                    columns = {name: column[:, slot.index] for name, column in fragment.columns.items()}
                    parts.append((slot, columns, slice(first, first + count)))
            self.postprocess_parts(episode, parts)

    def postprocess_parts(self, episode: RunningEpisode, parts: Sequence[Part]) -> None:
        """Calls `on_postprocess_trajectory` for agents of an episode; their columns get the changes to the batches."""
        policies, settings = self._worker.policy_map, self._worker.settings.policies
        original_batches = {}
        for slot, columns, rows in parts:
            computed = {column.name for column in settings[slot.policy_id].postprocess.columns}
            given = {name: column[rows].copy() for name, column in columns.items() if name not in computed}
            original_batches[slot.agent] = slot.policy_id, policies[slot.policy_id], SampleBatch(given)
        for slot, columns, rows in parts:
            batch = SampleBatch({name: column[rows] for name, column in columns.items()})
            self._callbacks.on_postprocess_trajectory(
                worker=self._worker,
                episode=episode,
                agent_id=slot.agent,
                policy_id=slot.policy_id,
                policies=policies,
                postprocessed_batch=batch,
                original_batches=original_batches,
            )
            for name, column in columns.items():
                column[rows] = batch[name]


class StreamEpisodes:
    """The episodes of environments with one agent, which their stream reports by index (EpisodeObserver), for hooks.

    Args:
        callbacks, worker, in_evaluation: as for EpisodeHooks; the worker's stream is watched if a hook needs that.
        first_env: index in the run of the worker's first environment.
        wants: (environment, length of the episode that it has just ended, or 0) -> whether hooks get the next episode.
    """

    def __init__(
        self,
        callbacks: DefaultCallbacks,
        worker: Worker,
        *,
        in_evaluation: bool = False,
        first_env: int = 0,
        wants: Callable[[int, int], bool] = lambda index, length: True,
    ):
        self._hooks = hooks = EpisodeHooks(callbacks, worker, in_evaluation=in_evaluation)
        self._worker, self._first_env, self._wants = worker, first_env, wants
        self.follows_episodes, self.environment_made = hooks.follows_episodes, hooks.environment_made
        self._numbers = [itertools.count() for _ in range(worker.stream.num_envs)]
        self.start_over()
        hooks.report_environments(self)

    def start_over(self) -> None:
        """Forgets the running episodes, and the finished ones that were not reported."""
        count = self._worker.stream.num_envs
        self._running: list[RunningEpisode | None] = [None] * count
        self._finished: list[deque[RunningEpisode]] = [deque() for _ in range(count)]
        self._just_ended = [0] * count  # length of the episode that an environment has ended, until the next is created

    def _new_episode(self, index: int) -> RunningEpisode:
        number = next(self._numbers[index])
        return RunningEpisode(self._worker, index, number, self._first_env, remembers=self._hooks.remembers)

    # ------------------------------------------------------------------ called by the stream

    def created(self, index: int) -> None:
        """Creates the episode of an environment that is about to be reset."""
        self._running[index] = None
        length, self._just_ended[index] = self._just_ended[index], 0
        if self.follows_episodes and self._wants(index, length):
            self._running[index] = self._new_episode(index)
            self._hooks.created(self._running[index])

    def started(self, index: int, observation, info: dict) -> None:
        """Passes on the result of an environment's reset."""
        episode = self._running[index]
        if episode is not None:
            episode.begin_alone(observation, info)
            self._hooks.started(episode)

    def stepped(self, index: int, action, result: tuple) -> None:
        """Passes on the result of an environment's step."""
        episode = self._running[index]
        if episode is not None:
            episode.stepped_alone(action, result)
            self._hooks.stepped(episode)

    def ended(self, index: int) -> None:
        """Ends the episode of an environment, before its next one begins."""
        episode, self._running[index] = self._running[index], None
        if episode is not None:
            episode.ended()
            episode.game_goes_on = index in self._worker.stream.lives_lost
            # A worker whose stream has gaps knows of the end before the next episode is created.
            if not (episode.game_goes_on or self._worker.stream.has_gaps):
                self._just_ended[index] = episode.length
            self._finished[index].append(episode)
            self._hooks.ended(episode)

    def failed(self, index: int) -> None:
        """Drops the episode of an environment that has raised."""
        episode, self._running[index] = self._running[index], None
        if episode is not None:
            episode.is_faulty = True
        for life in itertools.takewhile(lambda life: life.game_goes_on, reversed(self._finished[index])):
            life.is_faulty = True

    # ------------------------------------------------------------------ called by the worker

    def postprocess(self, fragment: Fragment) -> None:
        """Calls `on_postprocess_trajectory` for each part of an episode in a full fragment.

        Args:
            fragment: gets the changes that the hook makes to the batches.
        """
        if not self._hooks.hears_parts:
            return
        ended = fragment[sb.TERMINATEDS] | fragment[sb.TRUNCATEDS]
        for index in range(fragment.num_envs):
            ends = int(ended[:, index].sum()) - sum(i == index for _, i in fragment.cuts)
            # Lives of the running game may have ended in earlier fragments.
            finished = list(self._finished[index])
            episodes = iter([*finished[len(finished) - ends :], self._running[index]])
            start = 0
            for t in range(fragment.num_steps):
                if ended[t, index] or t == fragment.num_steps - 1:
                    # Steps of a void episode are learned from, but the episode is gone.
                    is_void = (t, index) in fragment.cuts
                    episode = self._new_episode(index) if is_void else next(episodes)
                    self._postprocess(fragment, index, slice(start, t + 1), episode)
                    start = t + 1

    def _postprocess(self, fragment: Fragment, index: int, steps: slice, episode: RunningEpisode | None) -> None:
        rows = slice(None) if fragment.valid is None else fragment.valid[steps, index]
        if episode is None or (fragment.valid is not None and not rows.any()):
            return
        columns = {name: column[: fragment.num_steps][steps, index] for name, column in fragment.columns.items()}
        slot = AgentSlot(AGENT, DEFAULT_POLICY, None, index)
        self._hooks.postprocess_parts(episode, [(slot, columns, rows)])

    def report(self, episode: Episode, index: int) -> None:
        """Copies the metrics that hooks have reported into a finished episode.

        Args:
            episode: the environment's oldest episode that was not reported before.
            index: index of the environment.
        """
        goes_on = self.follows_episodes
        while goes_on:
            running = self._finished[index].popleft()
            goes_on = running.game_goes_on
            if not running.is_faulty:
                add_metrics(running, episode)


def add_metrics(running: RunningEpisode, episode: Episode) -> None:
    """Adds what hooks have put into a running episode to the finished one, of which it is the whole or a life."""
    for name, value in running.custom_metrics.items():
        earlier = episode.custom_metrics.get(name)
        episode.custom_metrics[name] = _plain(value) if earlier is None else _numbers(earlier) + _numbers(value)
    for name, values in running.hist_data.items():
        episode.hist_data.setdefault(name, []).extend(_numbers(values))
    episode.media.update(running.media)


def _plain(value) -> float | list[float]:
    """The value as a float or a list of floats, for results and checkpoints."""
    return float(value) if np.ndim(value) == 0 else _numbers(value)


def _numbers(values) -> list[float]:
    return np.ravel(np.asarray(values, np.float64)).tolist()
