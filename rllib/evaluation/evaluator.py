"""Whole episodes with a fixed policy: what it is worth, in environments that training never saw."""

import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Self

import gymnasium
import numpy as np

from rllib.env.actions import ActionMapper
from rllib.env.episodes import Episode
from rllib.env.spaces import mismatch
from rllib.env.stream import EnvironmentStream
from rllib.evaluation import seeding
from rllib.evaluation.callbacks import DefaultCallbacks
from rllib.evaluation.episode_hooks import EpisodeHooks
from rllib.evaluation.settings import RolloutSettings
from rllib.evaluation.worker import Worker
from rllib.policy import Policy

logger = logging.getLogger(__name__)

_TOGETHER = 8


@dataclass(frozen=True)
class Duration:
    """How long an evaluation goes on. Every episode that has begun by then is played to its end.

    Args:
        amount: at least 1; seconds may be any positive number.
        unit: "episodes", "timesteps" (of all environments together) or "seconds".
    """

    amount: float
    unit: Literal["episodes", "timesteps", "seconds"] = "episodes"

    def split(self, parts: int) -> list[Self]:
        """The shares of workers, or of environments, that play at the same time."""
        if self.unit == "seconds":
            return [self] * parts
        share, left_over = divmod(self.amount, parts)
        return [replace(self, amount=share + (part < left_over)) for part in range(parts)]


class Budget:
    """What is left of an evaluation's duration, by environment.

    Args:
        duration: of all of them together.
        num_envs: how many there are.

    Attributes:
        playing: [N] bool, the environments whose present episode counts.
    """

    def __init__(self, duration: Duration, num_envs: int):
        self._unit = duration.unit
        self._ends_at = time.monotonic() + duration.amount
        self._left = np.array([share.amount for share in duration.split(num_envs)])
        self.playing = self._left > 0

    def spend(self, env: int, length: int) -> None:
        """Accounts for an episode that has ended after so many steps."""
        self.playing[env] = self.goes_on(env, length)
        self._left[env] -= length if self._unit == "timesteps" else 1

    def goes_on(self, env: int, length: int) -> bool:
        """Whether another episode counts after one of this length; with 0, whether the present one does."""
        if self._unit == "seconds":
            return bool(self.playing[env]) and time.monotonic() < self._ends_at
        spent = length if self._unit == "timesteps" else min(length, 1)
        return bool(self.playing[env]) and self._left[env] > spent


def play_episodes(
    policy: Policy,
    settings: RolloutSettings,
    duration: Duration,
    round_index: int,
    *,
    worker_index: int = 0,
    explore: bool = False,
    callbacks: DefaultCallbacks | None = None,
) -> list[Episode]:
    """Plays episodes and returns them, statistics of the raw rewards.

    Every environment plays its share of them to the end: taking the first ones to finish among all would favour short
    episodes.

    Args:
        policy: acts; its observation filter is applied, never updated.
        settings: which environments.
        duration: how long.
        round_index: which evaluation of the run this is; each has seeds of its own.
        worker_index: which evaluation worker this is.
        explore: sample the actions instead of taking the most likely ones.
        callbacks: the user's; None makes new ones.

    Raises:
        ValueError: if the duration is not positive, or an observation is not finite or not in its Discrete space.
    """
    if duration.amount <= 0:
        raise ValueError(f"an evaluation lasts at least one of its {duration.unit}, but {duration.amount} were given")
    # One environment is played as eight, which act together; a number that was chosen is kept, since a VectorEnv may
    # have no other.
    num_envs = settings.num_envs
    if num_envs == 1:
        num_envs = _TOGETHER if duration.unit == "seconds" else min(int(duration.amount), _TOGETHER)
    first = worker_index * num_envs
    indices = range(first, first + num_envs)
    rng = seeding.generator(settings.seed, seeding.EVALUATION_ACTIONS, worker_index, round_index)
    with (
        Patience(settings.sample_timeout_s, "the evaluation") as patience,
        # Training environments may be stepped in this process, too, and evaluation must not change what they draw.
        seeding.keeping_process_state(),
        contextlib.closing(
            settings.open_stream(seeding.EVALUATION_ENVIRONMENTS, indices, worker_index, round_index)
        ) as stream,
    ):
        budget, check = Budget(duration, num_envs), _SpaceCheck(stream, worker_index)
        worker = Worker(settings, worker_index, policy, stream)
        hooks = EpisodeHooks(callbacks or settings.callbacks(), worker, in_evaluation=True, wants=budget.goes_on)
        episodes = _play(stream, policy, settings, budget, rng if explore else None, patience, check)
        for episode in episodes:
            hooks.report(episode, episode.env_index)
        return episodes


class Patience:
    """Says what a loop over environments waits for, each time that it has gone on for too long.

    As a context manager it also says where this thread is when it has not got from one round to the next for so long.

    Args:
        timeout_s: seconds between two warnings.
        what: who waits, the beginning of the sentences.
    """

    def __init__(self, timeout_s: float, what: str):
        self._timeout_s = timeout_s
        self._what = what
        self._started = self._told = self._round = time.monotonic()
        self._done = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(
            target=self._watch, args=(threading.get_ident(),), name="rllib-patience", daemon=True
        ).start()
        return self

    def __exit__(self, *_) -> None:
        self._done.set()

    def check(self, waiting: np.ndarray, steps: int) -> None:
        """To be called in every round.

        Args:
            waiting: [N] bool, the environments whose episodes have not ended.
            steps: rounds so far.
        """
        now = self._round = time.monotonic()
        if now - self._told < self._timeout_s:
            return
        self._told = now
        logger.warning(
            "%s waits for the end of episodes in environments %s, for %.0f s and %d steps now; an environment in which "
            "the policy may never reach an end needs a time limit (max_episode_steps, or gymnasium.wrappers.TimeLimit)",
            self._what,
            np.flatnonzero(waiting)[:8].tolist(),
            now - self._started,
            steps,
        )

    def _watch(self, thread: int) -> None:
        """Runs beside the loop, whose thread is given."""
        due = self._round + self._timeout_s
        while not self._done.wait(max(due - time.monotonic(), 0)):
            stalled_s = time.monotonic() - self._round
            if stalled_s < self._timeout_s:
                due = self._round + self._timeout_s
                continue
            due += self._timeout_s
            logger.warning(
                "%s has waited %.3g s for one step of its environments; does one hang? (sample_timeout_s=%g) "
                "It is at\n%s",
                self._what,
                stalled_s,
                self._timeout_s,
                "".join(traceback.format_stack(sys._current_frames()[thread])[-3:]).rstrip(),
            )


class _SpaceCheck:
    """Holds every observation that the policy is shown against its space.

    One that is not finite, or no number of a Discrete space, is an error: the policy's answer would mean nothing. One
    beyond the bounds of a Box is told once, as training goes on with such as well.

    Args:
        stream: whose observations.
        worker_index: for messages.
    """

    def __init__(self, stream: EnvironmentStream, worker_index: int):
        self._space = space = stream.observation_space
        if stream.column.shape != (space.shape or ()):
            self._space = space = gymnasium.spaces.flatten_space(space)
        self._worker_index = worker_index
        self._is_float = stream.observation_dtype.kind == "f"
        self._is_box = isinstance(space, gymnasium.spaces.Box)
        if self._is_box:
            self._low, self._high = (bound.astype(stream.observation_dtype) for bound in (space.low, space.high))
        else:
            self._low, self._high = space.start, space.start + space.n - 1
        # Pixels cannot leave their bounds.
        self._has_told = stream.observation_dtype == np.uint8 and (self._low == 0).all() and (self._high == 255).all()

    def __call__(self, observations: np.ndarray, steps: int) -> None:
        """Checks observations [N, *shape] as stored.

        Args:
            observations: see above.
            steps: how many were made before.

        Raises:
            ValueError: naming the environment and the step.
        """
        if self._is_float and not np.isfinite(observations.sum(dtype=np.float64)):
            raise ValueError(self._problem(observations, ~np.isfinite(observations), steps))
        if self._has_told:
            return
        outside = (observations < self._low) | (observations > self._high)
        if not outside.any():
            return
        problem = self._problem(observations, outside, steps)
        if not self._is_box:
            raise ValueError(problem)
        self._has_told = True
        logger.warning("%s; the evaluation goes on, and tells no more of these", problem)

    def _problem(self, observations: np.ndarray, is_bad: np.ndarray, steps: int) -> str:
        index = int(np.argwhere(is_bad)[0][0])
        row = observations[index]
        problem = mismatch(self._space, row) or f"observation {row.tolist()} is not finite"
        return f"environment {index} of evaluation worker {self._worker_index}: the {problem}, after {steps} steps"


def _play(
    stream: EnvironmentStream,
    policy: Policy,
    settings: RolloutSettings,
    budget: Budget,
    rng: np.random.Generator | None,
    patience: Patience,
    check: Callable[[np.ndarray, int], None],
) -> list[Episode]:
    num_envs = stream.num_envs
    observations = np.empty((num_envs, *stream.observation_shape), stream.observation_dtype)
    rewards = np.empty(num_envs, np.float32)
    terminated, truncated = np.empty(num_envs, bool), np.empty(num_envs, bool)
    returns, lengths = np.zeros(num_envs), np.zeros(num_envs, int)
    to_env = ActionMapper(stream.action_space, settings.normalize_actions, settings.clip_actions).to_env
    finished: list[Episode] = []
    stream.reset(observations)
    steps = 0
    while budget.playing.any():
        check(observations, steps)
        steps += 1
        patience.check(budget.playing, steps)
        seen = policy.filter(observations, update=False) if policy.filters_observations else observations
        actions = policy.compute_actions(seen, explore=rng is not None, rng=rng, filtered=True)
        ended = stream.step(to_env(actions), observations, rewards, terminated, truncated)
        returns += rewards
        lengths += 1 if stream.reset_rows is None else ~stream.reset_rows
        for i, _ in ended:
            if budget.playing[i]:
                finished.append(Episode(float(returns[i]), int(lengths[i]), i))
                budget.spend(i, int(lengths[i]))
            returns[i], lengths[i] = 0.0, 0
        for i in stream.replaced:
            returns[i], lengths[i] = 0.0, 0
    return finished
