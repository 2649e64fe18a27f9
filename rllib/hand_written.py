"""Policies that are written by hand: they act instead of a network, and never learn.

    .multi_agent(policies={"main": None, "random": PolicySpec(RandomPolicy)}, ...)

They get the agents' observations as the environment gave them, neither flat nor filtered.
"""

import copy
import inspect
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from rllib.env.spaces.legal import MASK_KEY, count_choices, legal_action


class HandWrittenPolicy(ABC):
    """Base class of policies that are written by hand; a subclass defines `compute_actions`.

    Args:
        observation_space, action_space: spaces of one of its agents, as the environment has them; None: not known.
        config: settings of the policy. `seed` and `worker_index` determine `rng`; without a seed it is a fresh one.

    Attributes:
        rng: for its own draws.
    """

    def __init__(
        self,
        observation_space: Space | None = None,
        action_space: Space | None = None,
        config: Mapping[str, Any] | None = None,
    ):
        self.observation_space, self.action_space, self.config = observation_space, action_space, dict(config or {})
        key = (self.config.get("worker_index") or 0,)
        self.rng = np.random.default_rng(np.random.SeedSequence(self.config.get("seed"), spawn_key=key))

    @abstractmethod
    def compute_actions(self, observations: Sequence, state_batches: Sequence[np.ndarray] | None = None, **kwargs):
        """Chooses an action for each observation.

        Args:
            observations: N, each as the environment gave it.
            state_batches: arrays [N, ...], one for each part of `get_initial_state`, as they were returned for the
                same agent's observation before; None for a policy without a state.
            kwargs: what may come later. A method with the argument `rngs=None` gets N random generators from workers,
                each that of its agent's place in its environment: what is drawn from them is determined by the run's
                seed, and does not depend on how environments are shared out among workers, as draws from `rng` do.

        Returns:
            N actions, or a tuple of them, the next states as in `state_batches`, and a dict.
        """

    def get_initial_state(self) -> list[np.ndarray]:
        """Parts of the state before an agent's first action in an episode; empty for a policy without one."""
        return []


def choose(
    chooser: Any, observations: Sequence, states: Sequence | None = None, **more: Any
) -> tuple[Sequence, list[list]]:
    """Actions of a policy that is written by hand, and the states after them.

    Args:
        chooser: has `compute_actions`, and `get_initial_state` if it has a state.
        observations: N, as the environment gave them.
        states: of each, a list with the parts of `get_initial_state`; None: initial ones.
        more: further arguments of `compute_actions`.

    Returns:
        N actions, and N states: [] for a policy without one.
    """
    count, initial = len(observations), getattr(chooser, "get_initial_state", list)
    before = [state or initial() for state in states or [None] * count]
    batches = [np.stack(parts) for parts in zip(*before)] or None
    answer = chooser.compute_actions(observations, state_batches=batches, **more)
    following: Sequence = ()
    if isinstance(answer, tuple) and len(answer) == 3 and isinstance(answer[2], Mapping):
        answer, following, _ = answer
    return answer, [list(parts) for parts in zip(*following)] if following else [[] for _ in range(count)]


class RandomPolicy(HandWrittenPolicy):
    """A policy whose actions are drawn uniformly, among the legal ones where an observation has a mask.

    In a worker each agent has its own random stream, which the run's seed determines.

    A mask is the entry `action_mask` of a Dict observation, or the one that `action_mask_key` in its settings names,
    which a run sets to its own: a number for each choice of the action, part by part.

    Raises:
        ValueError: if there is no action space, or a mask for actions without choices.
    """

    def __init__(self, observation_space=None, action_space=None, config=None):
        super().__init__(observation_space, action_space, config)
        if action_space is None:
            raise ValueError("RandomPolicy needs an action space to draw from: RandomPolicy(None, Discrete(2))")
        self._mask_key = self.config.get("action_mask_key", MASK_KEY)
        is_masked = isinstance(observation_space, spaces.Dict) and self._mask_key in observation_space.spaces
        if is_masked and not count_choices(action_space):
            raise ValueError(
                f"the observations have an {self._mask_key}, but the actions {action_space} have no choices that it "
                "could allow. Use a HandWrittenPolicy of your own."
            )
        self._space = copy.deepcopy(action_space)  # sampling changes a space, and the given one is others' too

    def compute_actions(self, observations, state_batches=None, *, rngs=None, **kwargs):
        own = itertools.repeat(self.rng)
        return [self._action(observation, rng) for observation, rng in zip(observations, rngs or own)]

    def _action(self, observation, rng: np.random.Generator):
        mask = observation.get(self._mask_key) if isinstance(observation, Mapping) else None
        if isinstance(self._space, spaces.Discrete):
            choice = rng.integers(self._space.n) if mask is None else _legal(mask, rng)
            return int(self._space.start) + int(choice)
        if mask is None or not isinstance(self._space, spaces.MultiDiscrete):
            self._space.seed(int(rng.integers(2**31)))
            return legal_action(self._space, mask)
        starts = np.cumsum(self._space.nvec.ravel())[:-1]
        choices = [_legal(part, rng) for part in np.split(np.asarray(mask).ravel(), starts)]
        return self._space.start + np.array(choices, self._space.dtype).reshape(self._space.shape)


def _legal(mask, rng: np.random.Generator) -> int:
    """One of the choices that the mask allows; the first where it allows none, as an agent has to act."""
    legal = np.flatnonzero(mask)
    return int(legal[rng.integers(len(legal))]) if len(legal) else 0


class HeuristicPolicy(HandWrittenPolicy):
    """A policy whose actions a function chooses.

        PolicySpec(HeuristicPolicy(lambda observation: int(observation[2] > 0)))

    Args:
        function: function(observation) -> action, or function(observation, rng) -> action, with the random generator of
            the agent in a worker, else of the policy. Each worker has a copy of it.
        observation_space, action_space, config: as for HandWrittenPolicy.

    Raises:
        TypeError: if it is no such function.
    """

    def __init__(self, function: Callable[..., Any], observation_space=None, action_space=None, config=None):
        super().__init__(observation_space, action_space, config)
        if not callable(function):
            raise TypeError(f"HeuristicPolicy needs a function(observation) -> action, but got {function!r}")
        self.function = function
        self._takes_rng = _accepts(function, 2)
        if not self._takes_rng and not _accepts(function, 1):
            raise TypeError(
                f"HeuristicPolicy calls its function with (observation) or with (observation, rng), and {function!r} "
                "takes neither"
            )

    def compute_actions(self, observations, state_batches=None, *, rngs=None, **kwargs):
        if not self._takes_rng:
            return [self.function(observation) for observation in observations]
        own = itertools.repeat(self.rng)
        return [self.function(observation, rng) for observation, rng in zip(observations, rngs or own)]


def _accepts(function: Callable, count: int) -> bool:
    """Whether a function can be called with this number of arguments by position."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # builtins without a signature
        return count == 1
    return True
