"""Exploration in workers: its base classes, and sampling from the policy's distribution.

A description (`Exploration`), made from exploration_config, is sent to the workers. Each worker makes an `Explorer` of
it, which chooses the actions in place of the policy. All random numbers come from the streams of the environments, so
an environment's actions do not depend on the worker that it is in. Schedules run over the environment steps of the
whole run, step by step.

Names and settings are those of Ray 2.6's exploration classes.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, get_type_hints

import msgspec
import numpy as np
from gymnasium import spaces

from rllib.config.conflicts import Conflict
from rllib.config.nested import NestedSettings
from rllib.config.sections import Range, at_least
from rllib.policy import Policy

# Of settings of explorations.
NOT_NEGATIVE = Range(0, finite=True)


class WorkerPosition(msgspec.Struct, frozen=True):
    """Position of a worker in the run: its index, its environments, and the bounds of their actions.

    Attributes:
        worker_index: 0 for the local worker, 1... for the remote ones.
        num_workers: remote workers of the run.
        num_envs: environments of this worker.
        low, high: bounds of a continuous action in the policy's units; None without bounds.
        shared_rng: a random stream of the whole run; it draws the same numbers in each worker.
    """

    worker_index: int
    num_workers: int
    num_envs: int
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    shared_rng: np.random.Generator | None = None

    @property
    def stride(self) -> int:
        """Number of environment steps of the whole run for one step of this worker."""
        return self.num_envs * max(self.num_workers, 1)


def line_between(start: int, length: int) -> tuple[int, int]:
    """(first, last timestep) of a line of `length` timesteps from `start` on.

    Without a length the line has a single step, which ends at `start`: whole timesteps have one value or the other.
    """
    end = start + length
    return min(start, end - 1), end


class Explorer:
    """Chooses actions for the environments of one worker. The base class samples from the policy's distribution.

    Args:
        exploration: the description.
        policy: the policy that acts.
        rngs: random stream of each environment.
        position: the worker's position.

    Attributes:
        follows_policy: whether actions are drawn from the policy's distribution: their log-probability is known.
    """

    follows_policy: ClassVar[bool] = True

    def __init__(
        self, exploration: "Exploration", policy: Policy, rngs: Sequence[np.random.Generator], position: WorkerPosition
    ):
        self.exploration = exploration.in_worker(position)
        self.policy = policy
        self.rngs = rngs
        self.position = position

    @property
    def gives_values(self) -> bool:
        """Whether `act` can write the values of the observations."""
        return self.policy.gives_values

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        """Draws the noise of the next steps.

        Args:
            num_steps: T, steps of each environment.
            timesteps: number of environment steps of the run so far.
            active: whether each environment makes these steps; None: all do. Nothing is drawn for the others, so an
                environment's actions do not depend on the length of its neighbours' episodes.

        Returns:
            noise [T, N, ...], one row for each call of `act`; zeros where nothing was drawn.
        """
        numbers = self.exploration.numbers(timesteps + self.position.stride * np.arange(num_steps))
        noise = self.policy.distribution.noise
        drawn = {i: noise(self.rngs[i], num_steps, **numbers) for i in self._drawing(active)}
        if len(drawn) == len(self.rngs) == 1:
            return drawn[0][:, None]
        if len(drawn) == len(self.rngs):
            return np.stack(list(drawn.values()), axis=1)
        some = next(iter(drawn.values()))
        noise = np.zeros((num_steps, len(self.rngs), *some.shape[1:]), some.dtype)
        for i, own in drawn.items():
            noise[:, i] = own
        return noise

    def _drawing(self, active: Sequence[bool] | None) -> Sequence[int]:
        """Indices of the environments that make the next steps."""
        return range(len(self.rngs)) if active is None else np.flatnonzero(active).tolist()

    def act(
        self,
        observations: np.ndarray,
        noise: np.ndarray,
        dist_inputs: np.ndarray,
        actions: np.ndarray,
        values: np.ndarray | None = None,
        state: np.ndarray | None = None,
        next_state: np.ndarray | None = None,
    ) -> None:
        """Chooses one action per environment; arguments as for `Policy.act`."""
        self.policy.act(observations, noise, dist_inputs, actions, values, state, next_state)

    def episodes_ended(self, environments: Sequence[int]) -> None:
        """Prepares new episodes, which begin in these environments with the next action."""

    def end(self) -> None:
        """Called after the steps that `begin` has prepared. The policy's weights may change afterwards."""

    def start_over(self) -> None:
        """Prepares new episodes in all environments, after the running ones were dropped."""

    def take_over(self, other: "Explorer", environments: np.ndarray) -> None:
        """Continues with the episodes of another explorer of the policy, whose random streams are these.

        Args:
            other: of the same kind, between two fragments.
            environments: int64, environment of this explorer for each of the other's.
        """

    def get_state(self) -> list[dict[str, Any]]:
        """State of the exploration in each environment, JSON-able."""
        return [{} for _ in self.rngs]

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Restores a state of `get_state`; every environment begins a new episode."""


class Greedy(Explorer):
    """Takes the most probable actions, for explore=False. The environments' random streams advance nevertheless."""

    follows_policy = False

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        return np.zeros_like(super().begin(num_steps, timesteps, active))


class Exploration(msgspec.Struct, frozen=True, dict=True):
    """Base class of the types of exploration_config. Its fields are the settings, declared as those of sections are."""

    # Rules about several of them.
    conflicts: ClassVar[tuple[Conflict, ...]] = ()
    explorer: ClassVar[type[Explorer]] = Explorer
    # Whether workers explore to different degrees for the whole run, as in Ape-X. Without workers the schedule counts.
    differs_by_worker: ClassVar[bool] = False
    # Why a policy with a memory cannot explore by it, a clause; empty: it can. And the settings of `.training` without
    # which it is left out; None: none.
    without_memory: ClassVar[str] = ""
    left_out_by: ClassVar[Mapping[str, Any] | None] = None

    @classmethod
    @functools.cache
    def keys(cls) -> type[NestedSettings]:
        """The settings that exploration_config may have in addition to the type, with their rules."""
        hints = get_type_hints(cls, include_extras=True)
        fields = {field.name: field.default for field in msgspec.structs.fields(cls)}
        declared = {"__annotations__": {name: hints[name] for name in fields}, "conflicts": cls.conflicts, **fields}
        return type(cls.__name__, (NestedSettings,), declared, setting="exploration_config", section="exploration")

    def numbers(self, timesteps) -> dict[str, Any]:
        """Keyword arguments of the distribution's `noise` at these environment steps, a number or an array."""
        return {}

    def numbers_alone(self, timesteps: int) -> dict[str, Any]:
        """`numbers` of a policy that acts without an explorer: in evaluation, in the user's loops, in deployment."""
        return self.numbers(timesteps)

    def for_actions(self, action_space: spaces.Space) -> "Exploration":
        """The exploration that replaces this one for these actions."""
        return self

    def in_worker(self, position: WorkerPosition) -> "Exploration":
        """The exploration that replaces this one in a worker."""
        return self


class RandomStartExplorer(Explorer):
    """Samples from the policy's distribution, after uniformly random actions in the first steps of the run.

    An action that the policy gives before tanh is drawn so that its tanh is uniform.
    """

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        """[T, N, noise + numbers]: noise for the policy, then what random actions are made of, or NaN where it acts."""
        noise = super().begin(num_steps, timesteps, active)
        drawn = np.full((num_steps, len(self.rngs), self._num_drawn), np.nan, np.float32)
        steps = timesteps + self.position.stride * np.arange(num_steps)
        for i in self._drawing(active):
            # Always drawn: the random streams then do not depend on random_timesteps.
            drawn[:, i] = self._uniform(self.rngs[i], num_steps)
        drawn[steps >= self.exploration.random_timesteps] = np.nan
        return np.concatenate([noise, drawn], axis=2)

    @property
    def _num_drawn(self) -> int:
        """Numbers that an action is made of: a score of each choice, or the continuous action itself."""
        choices = self.policy.distribution.choices
        return choices[-1][1] if choices else math.prod(self.policy.action_shape)

    def _uniform(self, rng: np.random.Generator, count: int) -> np.ndarray:
        if self.policy.distribution.choices:
            return rng.random((count, self._num_drawn))
        limit = 1 - np.finfo(np.float32).eps
        return np.arctanh(rng.uniform(-limit, limit, (count, self._num_drawn)))

    def act(self, observations, noise, dist_inputs, actions, values=None, state=None, next_state=None) -> None:
        own, drawn = np.split(noise, [-self._num_drawn], axis=1)
        super().act(observations, np.ascontiguousarray(own), dist_inputs, actions, values, state, next_state)
        at_random = ~np.isnan(drawn[:, 0])
        if at_random.any():
            chosen = drawn[at_random]
            if self.policy.distribution.choices:
                chosen = random_choices(self.policy, observations[at_random], chosen)
            actions.reshape(len(actions), -1)[at_random] = chosen


def random_choices(policy: Policy, observations: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The legal choices with the highest scores: uniformly random ones if the scores are.

    Args:
        policy: of discrete actions.
        observations: stored observations [B, *shape].
        scores: [B, choices of all parts of an action], at least 0.

    Returns:
        [B, parts of an action] int64.
    """
    if policy.is_masked:
        scores = np.where(policy.spec.encoder.mask(observations) != 0, scores, -1)
    return np.stack([scores[:, start:stop].argmax(axis=1) for start, stop in policy.distribution.choices], axis=1)


class StochasticSampling(Exploration):
    """Draws actions from the policy's distribution."""

    random_timesteps: Annotated[
        int,
        "first environment steps of the run with uniformly random actions; only for algorithms that do not need the "
        "probabilities of the actions taken",
        at_least(0),
    ] = 0

    @property
    def explorer(self) -> type[Explorer]:
        return RandomStartExplorer if self.random_timesteps else Explorer


STOCHASTIC_SAMPLING = StochasticSampling()
