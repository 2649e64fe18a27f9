"""Interface of adapters, which change an environment's observations for the policy."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from rllib.env.agents import is_external
from rllib.env.factories.registry import EnvContext, EnvFactory, WrappingFactory
from rllib.env.spaces.supported import mismatch, stored, too_large
from rllib.env.streams.legacy import as_gymnasium
from rllib.errors import NoActionError
from rllib.models.observations.flat_spaces import flat_leaves


class ActionRow:
    """Actions of a space as rows of numbers.

    Args:
        space: space of a single action.
    """

    def __init__(self, space: spaces.Space):
        self._space = space
        self.zeros = np.zeros(spaces.flatdim(space), np.float32)
        self._scale, self._shift = np.ones_like(self.zeros), np.zeros_like(self.zeros)
        for leaf in flat_leaves(space):
            if isinstance(leaf.space, spaces.Box):
                low, high = (np.ravel(bound).astype(np.float64) for bound in (leaf.space.low, leaf.space.high))
                bounded = np.isfinite(low) & np.isfinite(high) & (high > low)
                with np.errstate(divide="ignore", invalid="ignore"):
                    self._scale[leaf.start : leaf.stop] = np.where(bounded, 2 / (high - low), 1)
                    self._shift[leaf.start : leaf.stop] = np.where(bounded, (low + high) / (low - high), 0)

    def of_given(self, action) -> np.ndarray:
        """`of`, for an action that a user or a client gives: in any form that loses nothing, also beyond bounds.

        Raises:
            NoActionError: if it is not in the space.
        """
        name = "prev_action"
        problem = mismatch(self._space, action, name, bounded=False) or too_large(self._space, action, name)
        if problem:
            raise NoActionError(f"no action can be computed: {problem}")
        return self.of(stored(self._space, action))

    def of(self, action) -> np.ndarray:
        """float32 [numbers]: choices one-hot, numbers between finite bounds as -1 ... 1."""
        return spaces.flatten(self._space, action).astype(np.float32) * self._scale + self._shift


@dataclass(frozen=True, slots=True)
class StepInputs:
    """Inputs of one step of acting, in addition to the observation; None: not given.

    Attributes:
        action_row: encodes actions of the environment.
        policy_space: space of the observations that the policy reads, outside of training.
        state: the policy's memory before the step.
        prev_action: the last action, as the environment took it.
        prev_reward: the reward of the last action.
        action_mask: the legal actions.
        agent_id: id of the agent that acts, where there are several.
    """

    action_row: ActionRow
    policy_space: spaces.Space | None = None
    state: Sequence[np.ndarray] | None = None
    prev_action: Any = None
    prev_reward: float | None = None
    action_mask: Any = None
    agent_id: Hashable = None


class Adapter(ABC):
    """Changes an environment's observations into the form that a policy reads.

    Environments are wrapped in adapters, by `wrap`; outside of training, `row` does to one observation what the wrapper
    does. A policy has a tuple of adapters, innermost first. They are in its checkpoints: subclasses are frozen
    dataclasses whose fields JSON can hold.

    Attributes:
        json_name: the adapter's name in checkpoints.
        adds_to_steps: whether environments have to be wrapped; False: their observations stay as they are.
    """

    json_name: ClassVar[str]
    adds_to_steps: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def of_config(cls, config: Mapping[str, Any]) -> Self | None:
        """The adapter that the settings of an algorithm ask for, if they do."""

    @property
    @abstractmethod
    def setting(self) -> str:
        """The setting that asks for the adapter, for messages."""

    def remedy(self, config) -> dict[str, Any]:
        """Settings with which a config that asks for the adapter does not."""
        return {}

    @abstractmethod
    def space(self, observation_space: spaces.Space, action_space: spaces.Space) -> spaces.Space:
        """The space of the new observations.

        Raises:
            ValueError: if these spaces cannot be adapted.
        """

    def refuse_agents(self, spaces: Sequence[spaces.Space], env_name: str) -> None:
        """Raises a ValueError if no agent's observations of these spaces are changed as the setting says.

        Args:
            spaces: spaces of the observations of all agents.
            env_name: name of the environment.
        """

    def own_space(self, space):
        """The environment's own observation space, from one that `space` returned, as far as that is known."""
        return space

    def wrap(self, factory: EnvFactory) -> EnvFactory:
        """A factory of the same environments, with the new observations."""
        return AdaptedFactory(factory, self)

    @abstractmethod
    def wrapped(self, env) -> gymnasium.Env | VectorEnv:
        """The environment with the new observations.

        Raises:
            ValueError: if it cannot have them.
        """

    def taken_apart(self, observation, action_mask) -> tuple[Any, Any]:
        """Observation and mask of what may be a new observation already."""
        return observation, action_mask

    def mask_in(self, info: Mapping, where: str) -> Any:
        """The mask of legal actions in an agent's info; None where the adapter adds none to observations.

        Raises:
            ValueError: if it is missing, or masks are not in infos.
        """
        return None

    def lacks(self, observation: Any) -> bool:
        """Whether an observation of the environment lacks what the value alone reads, so that it cannot be known."""
        return False

    @abstractmethod
    def row(self, observation, inputs: StepInputs) -> Any:
        """The new observation for one of the environment's own, while acting outside of training.

        Raises:
            ValueError: if inputs are missing.
        """

    @abstractmethod
    def to_json(self) -> Any:
        """JSON-able data; `from_json` reads it."""

    @classmethod
    def from_json(cls, data) -> Self:
        """The adapter from the data of `to_json`."""
        return cls(**data)


@dataclass(frozen=True)
class AdaptedFactory(WrappingFactory):
    """A factory that makes another factory's environments with adapted observations.

    Attributes:
        adapter: changes the observations.
    """

    adapter: Adapter

    def make(self, context: EnvContext) -> gymnasium.Env | VectorEnv:
        """One new environment.

        Raises:
            ValueError: if its observations cannot be adapted.
            TypeError: if it is no environment with one agent.
        """
        return self.adapted(self.factory.make(context))

    def adapted(self, env) -> gymnasium.Env | VectorEnv:
        """An environment that the other factory has made, with adapted observations; errors as for `make`."""
        env = as_gymnasium(env)
        if is_external(env) and not self.adapter.adds_to_steps:
            return self.adapter.wrapped(env)
        if not isinstance(env, gymnasium.Env | VectorEnv):
            raise ValueError(
                f"{self.adapter.setting} is for environments that the library steps, but {self.name} is "
                f"{type(env).__name__}. Leave the setting out, and change the observations in the environment itself."
            )
        return self.adapter.wrapped(env)
