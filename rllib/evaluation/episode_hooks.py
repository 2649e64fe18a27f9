"""Calls the user's hooks of single episodes, and collects the metrics that they report."""

import itertools
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from rllib import sample_batch as sb
from rllib.env.episodes import Episode
from rllib.env.factories.registry import EnvContext
from rllib.evaluation.callbacks import DefaultCallbacks, hears, remembers_episodes
from rllib.evaluation.hooks.running_episode import AGENT, BaseEnv, RememberedEpisode, RunningEpisode
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.worker import Worker
from rllib.sample_batch import DEFAULT_POLICY, SampleBatch

EPISODE_HOOKS = (
    "on_episode_created",
    "on_episode_start",
    "on_episode_step",
    "on_episode_end",
    "on_postprocess_trajectory",
)


class EnvironmentHooks:
    """Base of observers that call the user's callbacks for the environments of a worker.

    Args:
        callbacks: the user's object.
        worker: argument of the hooks.
        in_evaluation: value of in_evaluation in the EnvContext.

    Attributes:
        follows_episodes: whether any hook of episodes is defined. If not, steps are not watched and cost nothing.
    """

    def __init__(self, callbacks: DefaultCallbacks, worker: Worker, in_evaluation: bool = False):
        self._callbacks, self._worker, self._in_evaluation = callbacks, worker, in_evaluation
        self._arguments = {"worker": worker, "base_env": BaseEnv(worker.stream), "policies": worker.policy_map}
        self._hears_steps = hears(callbacks, "on_episode_step")
        self._hears_parts = hears(callbacks, "on_postprocess_trajectory")
        self.follows_episodes = any(hears(callbacks, hook) for hook in EPISODE_HOOKS)

    def report_environments(self) -> bool:
        """Reports the environments that there are; returns whether later ones have to be reported as well."""
        created = hears(self._callbacks, "on_environment_created")
        if not (self.follows_episodes or created or hears(self._callbacks, "on_sub_environment_created")):
            return False
        if created:
            self._all_made()
        for index, env in enumerate(self._worker.stream.environments):
            self.environment_made(index, env)
        return True

    def environment_made(self, index: int, env) -> None:
        """Calls `on_sub_environment_created` for a new environment."""
        context = self._context(index)
        self._callbacks.on_sub_environment_created(worker=self._worker, sub_environment=env, env_context=context)

    def _all_made(self) -> None:
        """Calls `on_environment_created`, once for all environments of the worker."""
        env, context = self._arguments["base_env"], self._context(0)
        self._callbacks.on_environment_created(env_runner=self._worker, env=env, env_context=context)

    def _context(self, index: int) -> EnvContext:
        """The EnvContext that the environment with this index was made with."""
        settings, worker = self._worker.settings, self._worker
        place = worker.worker_index, index, settings.num_workers, worker.stream.num_envs
        return EnvContext(settings.env_config, *place, in_evaluation=self._in_evaluation)


class EpisodeHooks(EnvironmentHooks):
    """An observer of a stream's episodes that calls the user's callbacks.

    Args:
        callbacks: the user's object.
        worker: argument of the hooks; its stream is watched if a hook needs that.
        in_evaluation: value of in_evaluation in the EnvContext.
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
        super().__init__(callbacks, worker, in_evaluation)
        self._wants, self._first_env = wants, first_env
        self._episode_class = RememberedEpisode if remembers_episodes(callbacks) else RunningEpisode
        self._numbers = [itertools.count() for _ in range(worker.stream.num_envs)]
        self.start_over()
        if self.report_environments():
            worker.stream.watch(self)

    def start_over(self) -> None:
        """Forgets the running episodes, and the finished ones that were not reported."""
        count = self._worker.stream.num_envs
        self._running: list[RunningEpisode | None] = [None] * count
        self._finished: list[deque[RunningEpisode]] = [deque() for _ in range(count)]
        self._just_ended = [0] * count  # length of the episode that an environment has ended, until the next is created

    def _new_episode(self, index: int) -> RunningEpisode:
        number = (self._first_env + index) << 32 | next(self._numbers[index])
        return self._episode_class(self._worker, index, number)

    # ------------------------------------------------------------------ called by the stream

    def created(self, index: int) -> None:
        """Creates the episode of an environment that is about to be reset."""
        self._running[index] = None
        length, self._just_ended[index] = self._just_ended[index], 0
        if not self.follows_episodes or not self._wants(index, length):
            return
        episode = self._running[index] = self._new_episode(index)
        self._callbacks.on_episode_created(**self._arguments, env_index=index, episode=episode)

    def started(self, index: int, observation, info: dict) -> None:
        """Passes on the result of an environment's reset."""
        episode = self._running[index]
        if episode is not None:
            episode.begin(observation, info)
            self._callbacks.on_episode_start(**self._arguments, episode=episode, env_index=index)

    def stepped(self, index: int, action, result: tuple) -> None:
        """Passes on the result of an environment's step."""
        episode = self._running[index]
        if episode is not None:
            episode.stepped(action, result)
            if self._hears_steps:
                self._callbacks.on_episode_step(**self._arguments, episode=episode, env_index=index)

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
            self._callbacks.on_episode_end(**self._arguments, episode=episode, env_index=index)

    def failed(self, index: int) -> None:
        """Drops the episode of an environment that has raised."""
        episode, self._running[index] = self._running[index], None
        if episode is not None:
            episode.is_faulty = True
        for life in itertools.takewhile(lambda life: life.game_goes_on, reversed(self._finished[index])):
            life.is_faulty = True

    # ------------------------------------------------------------------ called by the worker

    def postprocess(self, fragment: Fragment, computed: Sequence[str]) -> None:
        """Calls `on_postprocess_trajectory` for each part of an episode in a full fragment.

        Args:
            fragment: gets the changes that the hook makes to the batches.
            computed: names of the columns that the algorithm has computed from the others.
        """
        if not self._hears_parts:
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
                    self._postprocess(fragment, computed, index, slice(start, t + 1), episode)
                    start = t + 1

    def _postprocess(self, fragment: Fragment, computed, index: int, steps: slice, episode) -> None:
        valid = slice(None) if fragment.valid is None else fragment.valid[steps, index]
        columns = {name: column[: fragment.num_steps][steps, index] for name, column in fragment.columns.items()}
        batch = SampleBatch({name: column[valid] for name, column in columns.items()})
        if not batch.count or episode is None:
            return
        original = SampleBatch({name: column.copy() for name, column in batch.items() if name not in computed})
        self._callbacks.on_postprocess_trajectory(
            worker=self._worker,
            episode=episode,
            agent_id=AGENT,
            policy_id=DEFAULT_POLICY,
            policies=self._worker.policy_map,
            postprocessed_batch=batch,
            original_batches={AGENT: (DEFAULT_POLICY, self._worker.policy, original)},
        )
        for name, column in columns.items():
            column[valid] = batch[name]

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
            if running.is_faulty:
                continue
            add_metrics(running, episode)


def add_metrics(running, episode: Episode) -> None:
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
