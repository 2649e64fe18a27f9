"""Calls the user's hooks of single episodes, and collects the metrics that they report."""

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rllib import sample_batch as sb
from rllib.env.episodes import Episode
from rllib.env.factories.registry import EnvContext
from rllib.env.spaces.actions import zero_action
from rllib.env.streams.base import EnvironmentStream
from rllib.evaluation.callbacks import DefaultCallbacks, hears
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.worker import Worker
from rllib.sample_batch import DEFAULT_POLICY, SampleBatch

AGENT = "agent0"
EPISODE_HOOKS = (
    "on_episode_created",
    "on_episode_start",
    "on_episode_step",
    "on_episode_end",
    "on_postprocess_trajectory",
)


class RunningEpisode:
    """The running episode that hooks get, from its reset on. The agent id of the `..._for` methods is optional.

    Attributes:
        episode_id: index of the environment in the run << 32 | number of the episode in it, from 0.
        env_id: index of the environment within the worker.
        worker: the worker that has the environment.
        length: steps so far.
        total_reward: sum of the raw rewards so far.
        user_data: a dict for the user's hooks.
        custom_metrics: name -> number; the results have name_mean, name_min and name_max.
        hist_data: name -> list of numbers; joined over episodes they are in the results' `hist_stats`.
        media: name -> any object; listed in the results' `episode_media`.
        is_faulty: whether the environment raised, so that the episode is void.
        game_goes_on: whether the episode has ended with a life of a game whose next life is the next episode.
    """

    def __init__(self, worker: Worker, env_id: int, episode_id: int):
        self.episode_id = episode_id
        self.env_id = env_id
        self.worker = worker
        self.length = 0
        self.total_reward = 0.0
        self.user_data: dict[str, Any] = {}
        self.custom_metrics: dict[str, float] = {}
        self.hist_data: dict[str, list[float]] = {}
        self.media: dict[str, Any] = {}
        self.is_faulty = False
        self.game_goes_on = False
        # (action, result of step()) of the newest step and of the one before it; zeros if there is none.
        nothing = zero_action(worker.stream.action_space), (None, 0.0, False, False, None)
        self._newest, self._before = nothing, nothing
        self._is_over = False

    def started(self, observation, info: dict) -> None:
        """Records the result of reset()."""
        self._newest = self._newest[0], (observation, 0.0, False, False, info)

    def stepped(self, action, result: tuple) -> None:
        """Records the result of step(action). It is evaluated on demand only, since this is called in every step."""
        self.length += 1
        self.total_reward += float(result[1])
        self._before, self._newest = self._newest, (action, result)

    def ended(self) -> None:
        """Records the end of the episode; if the environment has not reported it, a time limit has ended it."""
        self._is_over = True

    def last_observation_for(self, agent_id=AGENT):
        """The newest observation, as returned by the environment."""
        return self._newest[1][0]

    last_raw_obs_for = last_observation_for

    def last_info_for(self, agent_id=AGENT) -> dict | None:
        """The info of the newest observation."""
        return self._newest[1][4]

    def last_action_for(self, agent_id=AGENT):
        """The newest action, in the environment's units; zeros before the first step."""
        return self._newest[0]

    def prev_action_for(self, agent_id=AGENT):
        """The action before that; zeros where there is none."""
        return self._before[0]

    def last_reward_for(self, agent_id=AGENT) -> float:
        """The newest reward; 0 before the first step."""
        return float(self._newest[1][1])

    def prev_reward_for(self, agent_id=AGENT) -> float:
        """The reward before that; 0 where there is none."""
        return float(self._before[1][1])

    def last_terminated_for(self, agent_id=AGENT) -> bool:
        """Whether the newest step terminated the episode."""
        return bool(self._newest[1][2])

    def last_truncated_for(self, agent_id=AGENT) -> bool:
        """Whether the newest step truncated the episode; a time limit is known from `on_episode_end` on."""
        return bool(self._newest[1][3]) or (self._is_over and not self.last_terminated_for())

    def policy_for(self, agent_id=AGENT) -> str:
        """Name of the policy that acts."""
        return DEFAULT_POLICY

    def get_agents(self) -> list[str]:
        """The only agent."""
        return [AGENT]

    @property
    def agent_rewards(self) -> dict[tuple[str, str], float]:
        """The total reward by (agent, policy)."""
        return {(AGENT, DEFAULT_POLICY): self.total_reward}


class BaseEnv:
    """The environments of a worker, with the interface of RLlib's BaseEnv."""

    def __init__(self, stream: EnvironmentStream):
        self._stream = stream
        self.num_envs = stream.num_envs
        self.observation_space, self.action_space = stream.observation_space, stream.action_space

    @property
    def envs(self) -> list:
        """The environments, without gymnasium's outermost standard wrappers."""
        return self._stream.environments

    def get_sub_environments(self, as_dict: bool = False) -> list | dict:
        """`envs`, or index -> environment."""
        return dict(enumerate(self.envs)) if as_dict else self.envs

    get_unwrapped = get_sub_environments

    @property
    def vector_env(self) -> "BaseEnv":
        """This object, which has `envs`."""
        return self

    def try_render(self, env_id: int = 0):
        """Result of the environment's render()."""
        return self.envs[env_id].render()


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
        if not (self.follows_episodes or hears(self._callbacks, "on_sub_environment_created")):
            return False
        for index, env in enumerate(self._worker.stream.environments):
            self.environment_made(index, env)
        return True

    def environment_made(self, index: int, env) -> None:
        """Calls `on_sub_environment_created` for a new environment."""
        settings, count = self._worker.settings, self._worker.stream.num_envs
        context = EnvContext(
            settings.env_config,
            self._worker.worker_index,
            index,
            settings.num_workers,
            count,
            in_evaluation=self._in_evaluation,
        )
        self._callbacks.on_sub_environment_created(worker=self._worker, sub_environment=env, env_context=context)


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
        return RunningEpisode(self._worker, index, (self._first_env + index) << 32 | next(self._numbers[index]))

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
            episode.started(observation, info)
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
