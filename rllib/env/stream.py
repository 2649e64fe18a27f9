"""The one interface through which rollout workers step environments."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from rllib.env.observations import observation_column

logger = logging.getLogger("rllib.env")

# An environment that fails so often, without a step in between, fails for a reason that a new one does not mend.
MAX_FAILURES_IN_A_ROW = 3


class EpisodeObserver(Protocol):
    """Receives what happens to each environment, by its index.

    Attributes:
        follows_episodes: False if steps need not be reported.
    """

    follows_episodes: bool

    def environment_made(self, index: int, env) -> None:
        """A new environment has taken the place of one that failed."""

    def created(self, index: int) -> None:
        """It is about to be reset."""

    def started(self, index: int, observation, info: dict) -> None:
        """It has been reset."""

    def stepped(self, index: int, action, result: tuple) -> None:
        """It has been stepped; `result` is what step() gave."""

    def ended(self, index: int) -> None:
        """Its episode is over; if it is reset, then after this."""

    def failed(self, index: int) -> None:
        """It has raised, and its episode is void."""


class EnvironmentStream(ABC):
    """N environments stepped in lockstep, each starting a new episode when one has ended.

    Attributes:
        num_envs: N.
        observation_space, action_space: of a single environment.
        observation_shape, observation_dtype: of one stored observation (see `observations.ObservationColumn`).
        reset_rows: [N] bool, rows of the last step that are no transitions and have to be dropped, or None where all
            are transitions. Their reward is 0 and their flags are False.
        has_gaps: whether there are such rows even where no environment fails.
        resets_ended: whether an ended episode is followed by a reset within the step. Where it is False, the
            environment has to wait for `restart`, and what the step wrote as its observation is the final one.
        replaced: environments that raised in the last step and were replaced; mostly []. Their episodes are void, the
            step is no transition (it is in reset_rows), and its observation is the first of a new episode.
    """

    num_envs: int
    has_gaps: bool = False
    resets_ended: bool = True
    reset_rows: np.ndarray | None = None
    replaced: Sequence[int] = ()
    _observer: "EpisodeObserver | None" = None

    def __init__(self, num_envs: int, observation_space, action_space):
        self.num_envs = num_envs
        self.observation_space = observation_space
        self.action_space = action_space
        self.column = observation_column(observation_space)
        self.observation_shape = self.column.shape
        self.observation_dtype = self.column.dtype

    @property
    @abstractmethod
    def environments(self) -> list:
        """The environments themselves, without gymnasium's outermost standard wrappers."""

    def watch(self, observer: "EpisodeObserver") -> None:
        """Has every episode that begins from now on reported; each step then costs a call more."""
        self._observer = observer

    @abstractmethod
    def reset(self, observations: np.ndarray) -> None:
        """Starts an episode in every environment and writes the first observations.

        The first call seeds each environment; later calls continue the environments' own generators.

        Args:
            observations: [N, *observation_shape], written in place.
        """

    @abstractmethod
    def reseed(self, seeds: list[int]) -> None:
        """Gives the next reset new seeds, one int per environment."""

    @abstractmethod
    def step(self, actions, observations, rewards, terminated, truncated, active=None) -> list[tuple[int, np.ndarray]]:
        """One step of every environment; an ended episode is followed by the reset of its environment.

        Args:
            actions: [N, ...] in the action space of the environment.
            observations: [N, *observation_shape], receives what the next action is chosen from: after the end of an
                episode the first observation of the new one (with next-step vector environments, a row later).
            rewards: [N] float32, receives the rewards.
            terminated, truncated: [N] bool, receive the flags; both may be true.
            active: [N] bools; only these environments are stepped, the others are left as they are, with reward 0
                and False flags. None steps all. Streams over a VectorEnv refuse anything else.

        Returns:
            (index, true final observation [*observation_shape]) of each episode that ended in this step; mostly [].

        Raises:
            ValueError: if an environment gives an infinite reward or nan.
            Exception: whatever the environment raises, with a note that says where and when.
        """

    @abstractmethod
    def restart(self, index: int, seed: int, observations: np.ndarray) -> None:
        """Starts an episode on this seed in one environment; the others are left as they are.

        Args:
            index: which environment.
            seed: for its reset; what it plays depends on nothing that it played before.
            observations: [N, *observation_shape], row `index` receives the first observation.

        Raises:
            ValueError: if the environments can only be reset together.
        """

    @abstractmethod
    def close(self) -> None:
        """Closes every environment, those after one that fails to close as well. May be called twice."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def successor_seed(seed: int, count: int) -> int:
    """The seed of the environment that takes the place of one with this seed, after `count` replacements."""
    return int(np.random.SeedSequence([seed, count]).generate_state(1)[0])


def tell_exit(error: SystemExit, place: str, where: str) -> None:
    """Python ends a process after SystemExit without a word, and this process may be the user's program."""
    logger.error(
        "%s called sys.exit(%r) %s, which ends this process; raise another exception for an error",
        place,
        error.code,
        where,
        exc_info=error,
    )
