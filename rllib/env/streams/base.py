"""The one interface through which rollout workers step environments."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import numpy as np

from rllib.env.spaces.observations import observation_column
from rllib.env.streams.rewards import write_rewards
from rllib.errors import InfoColumnError
from rllib.sample_batch import OBS, REWARDS, TERMINATEDS, TRUNCATEDS, Column, table_of

logger = logging.getLogger("rllib.env")

# An environment that fails more often than this, without a step in between, is not replaced again.
MAX_FAILURES_IN_A_ROW = 3


class EpisodeObserver(Protocol):
    """An observer of a stream: receives the events of each environment, by its index.

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
        """Environment `index` has been stepped; `result` is the tuple that step() returned."""

    def ended(self, index: int) -> None:
        """Its episode is over; a reset, if there is one, follows this call."""

    def failed(self, index: int) -> None:
        """The environment raised; its episode is discarded."""


class StepBuffers(NamedTuple):
    """Arrays that one step of a stream's N environments is written to. For `step`, a tuple in this order is enough.

    Attributes:
        observations: [N, *observation_shape], what the next action is chosen from.
        rewards: [N] float32.
        terminated, truncated: [N] bool; both may be true.
        infos: name -> [N, *shape] for each of the stream's info columns.
    """

    observations: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    infos: Mapping[str, np.ndarray] = {}

    @staticmethod
    def of_steps(observations, columns: Mapping[str, np.ndarray], infos: Sequence[Column] = ()) -> Iterator[tuple]:
        """The buffers of T steps, views of columns. They are plain tuples, for speed.

        Args:
            observations: T arrays.
            columns: name -> [T, N, ...]; those `before_action` have one more row, and their first row is left out.
            infos: the stream's info columns.
        """
        of_infos = repeat({})
        if infos:
            names = [column.name for column in infos]
            of_infos = (dict(zip(names, views)) for views in zip(*(columns[i.name][i.before_action :] for i in infos)))
        return zip(observations, columns[REWARDS], columns[TERMINATEDS], columns[TRUNCATEDS], of_infos)


class EnvironmentStream(ABC):
    """N environments stepped in lockstep, each starting a new episode when one has ended.

    Args:
        num_envs, observation_space, action_space: N, and the spaces of a single environment.
        worker: owner of the environments, for messages, such as "rollout worker 2".
        warns: whether warnings that are the same in every worker are logged.
        checked_steps: number of results of each environment that are checked against its spaces.
        remake: makes the environment with a given index again; one that raises in step() or reset() is then closed and
            replaced. None: its errors are raised.
        info_columns: keys of the info dicts that are written as columns. Those `before_action` come with the
            observation, from reset() as well as from step(); the others with the reward.

    Attributes:
        observation_shape, observation_dtype: shape and dtype of one stored observation (see
            `observations.ObservationColumn`).
        reset_rows: [N] bool, rows of the last step that are no transitions and have to be dropped, or None where all
            are transitions. Their reward is 0 and their flags are False.
        has_gaps: whether there are such rows even if no environment fails.
        resets_ended: whether an ended episode is followed by a reset within the step. If False, the
            environment waits for `restart`, and the observation that the step wrote is the final one.
        wants_next: function of the index of an environment whose episode has just ended: whether it is reset, where
            `resets_ended`. None: always. Streams over a VectorEnv do not ask.
        lives_lost: environments whose episode ended in the last step with the loss of a life while the game continues,
            by `info["life_lost"]` of that step; mostly empty. Statistics are of whole games.
        replaced: environments that raised in the last step and were replaced; mostly []. Their episodes are void, the
            step is no transition (it is in reset_rows), and its observation is the first of a new episode.
        device: device of the tensors that the environment has handed over at its reset; None where these were no
            tensors.
    """

    has_gaps: bool = False
    resets_ended: bool = True
    wants_next: Callable[[int], bool] | None = None
    reset_rows: np.ndarray | None = None
    device: str | None = None
    lives_lost: Sequence[int] = ()
    replaced: Sequence[int] = ()
    _observer: "EpisodeObserver | None" = None

    def __init__(
        self,
        num_envs: int,
        observation_space,
        action_space,
        *,
        worker: str = "rollout worker 0",
        warns: bool = True,
        checked_steps: int = 1,
        remake: Callable[[int], Any] | None = None,
        info_columns: Sequence[Column] = (),
    ):
        self.num_envs = num_envs
        # Whether environments can be stepped and reset without the others; those of a VectorEnv cannot.
        self.steps_apart = True
        self.info_columns = tuple(info_columns)
        self._worker, self._warns = worker, warns
        self._checked_steps, self._remake = checked_steps, remake
        self._clock = 0  # steps of the stream so far
        self.observation_space = observation_space
        self.action_space = action_space
        self.column = observation_column(observation_space)
        self.observation_shape = self.column.shape
        self.observation_dtype = self.column.dtype

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that a step writes."""
        return table_of(
            Column(OBS, self.observation_shape, str(self.observation_dtype), before_action=True),
            Column(REWARDS),
            Column(TERMINATEDS, (), "bool"),
            Column(TRUNCATEDS, (), "bool"),
            *self.info_columns,
        )

    def new_buffers(self) -> StepBuffers:
        """Buffers for one step, all zeros."""
        made = {column.name: np.zeros((self.num_envs, *column.shape), column.dtype) for column in self.columns}
        return StepBuffers(*(made.pop(name) for name in (OBS, REWARDS, TERMINATEDS, TRUNCATEDS)), made)

    @property
    @abstractmethod
    def environments(self) -> list:
        """The environments themselves, without gymnasium's outermost standard wrappers."""

    def watch(self, observer: "EpisodeObserver") -> None:
        """Reports every episode that begins from now on to the observer; each step then costs one more call."""
        self._observer = observer

    @abstractmethod
    def reset(self, buffers: StepBuffers) -> None:
        """Starts an episode in every environment and writes the inputs of the first actions.

        The first call seeds each environment; later calls continue the environments' own generators.

        Args:
            buffers: receives the observations, and the info columns that are `before_action`.
        """

    @abstractmethod
    def reseed(self, seeds: list[int]) -> None:
        """Sets the seeds of the next reset, one int per environment."""

    @abstractmethod
    def step(self, actions, buffers: StepBuffers, active=None) -> list[tuple[int, np.ndarray]]:
        """One step of every environment; an ended episode is followed by the reset of its environment.

        Args:
            actions: [N, ...] in the action space of the environment; for Tuple and Dict a tuple or dict of such arrays.
            buffers: receives the results; after the end of an episode, the observation is the first of the new one
                (with next-step vector environments, one step later).
            active: [N] bools; only these environments are stepped, the others are left as they are, with reward 0
                and False flags. None steps all. Streams over a VectorEnv accept only None.

        Returns:
            (index, true final observation [*observation_shape]) of each episode that ended in this step; mostly [].

        Raises:
            ValueError: if an environment gives an infinite reward or nan, or an info dict lacks an info column.
            Exception: whatever the environment raises, with a note that says where and when.
        """

    @abstractmethod
    def restart(self, index: int, seed: int, observations: np.ndarray) -> None:
        """Starts an episode on this seed in one environment; the others are left as they are.

        Args:
            index: which environment.
            seed: for its reset; the episode does not depend on earlier ones.
            observations: [N, *observation_shape], row `index` receives the first observation.

        Raises:
            ValueError: if the environments can only be reset together.
        """

    def _write_infos(self, infos: Sequence[dict | None], out: Mapping[str, np.ndarray], before_action: bool) -> None:
        """Writes the info columns of one kind from the infos of the N environments; None becomes zeros.

        Raises:
            InfoColumnError: (a ValueError) if an info lacks the key, or its value does not fit the column.
        """
        for column in self.info_columns:
            if column.before_action is not before_action:
                continue
            for index, info in enumerate(infos):
                try:
                    out[column.name][index] = 0 if info is None else info[column.name]
                except (KeyError, TypeError, ValueError):
                    given = f"has {info[column.name]!r:.80}" if column.name in info else f"has only {sorted(info)}"
                    source = "reset() and step()" if before_action else "step()"
                    raise InfoColumnError(
                        f"the column {column.name!r} is read from infos, with shape {column.shape} and dtype "
                        f"{column.dtype}, but the info of environment {index} {given}; {source} must give it every "
                        "time",
                        column.name,
                    ) from None

    def _write_rewards(self, given, out: np.ndarray, first_index: int = 0) -> None:
        try:
            write_rewards(given, out, first_index)
        except ValueError as error:
            error.add_note(f"in {self._worker}, at step {self._clock} of its environments")
            raise

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


def log_exit(error: SystemExit, place: str, where: str) -> None:
    """Logs a SystemExit: Python ends the process, which may be the user's program, without a message."""
    logger.error(
        "%s called sys.exit(%r) %s, which ends this process; raise another exception for an error",
        place,
        error.code,
        where,
        exc_info=error,
    )
