"""A person who plays agents of an episode, by numbers typed in the terminal."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import click
import numpy as np
from gymnasium import Space, spaces

from rllib.cli.failures import Mistake
from rllib.env.spaces.legal import legal_values

NAME = "human"


class Human:
    """A person who is asked for the action of each agent in turn.

    Args:
        space_of: gives the action space of an agent.
        mask_key: key of the mask of legal actions in Dict observations; None: there are no masks.
        shows_observations: print the agent's observation, where nothing is drawn.
    """

    def __init__(self, space_of: Callable[[Any], Space], mask_key: str | None, shows_observations: bool):
        self._space_of, self._mask_key, self._shows = space_of, mask_key, shows_observations

    def reset(self) -> None:
        """Begins a new episode."""

    def policy_for(self, agent: Any) -> str:
        """Name of a person in tables."""
        return NAME

    def act(
        self,
        observations: Mapping[Any, Any],
        rewards: Mapping[Any, float] | None = None,
        action_masks: Mapping[Any, Any] | None = None,
    ) -> dict[Any, Any]:
        """The actions that are typed for these agents.

        Raises:
            Mistake: if the input ends, or actions of this kind cannot be typed.
        """
        masks = action_masks or {}
        return {agent: self._asked(agent, observation, masks.get(agent)) for agent, observation in observations.items()}

    def _asked(self, agent: Any, observation: Any, mask: Any) -> Any:
        if self._shows:
            click.echo(f"{agent} observes {observation}")
        space = self._space_of(agent)
        if mask is None and isinstance(observation, Mapping):
            mask = observation.get(self._mask_key)
        choices = _described(agent, space, mask)
        while True:
            click.echo(f"{agent}, {choices}: ", nl=False)
            line = sys.stdin.readline()
            if not line:
                raise Mistake(f"the input has ended, and {agent} has not acted")
            try:
                return _action(line, space, mask)
            except ValueError as error:
                click.echo(error)


def _described(agent: Any, space: Space, mask: np.ndarray | None) -> str:
    """The rule for actions of a space."""
    legal = legal_values(space, mask)
    if legal is not None:
        words = [f"one of {', '.join(map(str, values))}" for values in legal]
        return words[0] if len(words) == 1 else f"{len(words)} numbers: {'; '.join(words)}"
    if isinstance(space, spaces.Discrete):
        return f"a number from {space.start} to {space.start + space.n - 1}"
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box):
        count = int(np.prod(space.shape))
        return f"{count} numbers of {space}" if count > 1 else f"a number of {space}"
    raise Mistake(
        f"agent {agent!r} acts in {space}, and actions can be typed for Discrete, MultiDiscrete, MultiBinary and Box "
        "spaces alone"
    )


def _action(line: str, space: Space, mask: np.ndarray | None) -> Any:
    """The action of a typed line.

    Raises:
        ValueError: with the rule that it breaks.
    """
    action = _read(line, space)
    values, legal = np.ravel(action), legal_values(space, mask)
    for value, allowed in zip(values, legal or ()):
        if value not in allowed:
            raise ValueError(f"{value} is not legal now" + (f" in {line.strip()!r}" if len(values) > 1 else ""))
    return action


def _read(line: str, space: Space) -> Any:
    words = line.replace(",", " ").split()
    if isinstance(space, spaces.Discrete):
        if len(words) != 1 or not words[0].lstrip("-").isdecimal() or int(words[0]) not in space:
            raise ValueError(f"{line.strip()!r} is no number from {space.start} to {space.start + space.n - 1}")
        return int(words[0])
    count = int(np.prod(space.shape))
    try:
        values = [float(word) for word in words]
    except ValueError:
        raise ValueError(f"{line.strip()!r} has something other than numbers") from None
    if len(values) != count:
        raise ValueError(f"an action has {count} numbers, but {len(values)} were given")
    action = np.array(values, space.dtype).reshape(space.shape)
    if not space.contains(action) or not np.allclose(action.ravel(), values):
        raise ValueError(f"{line.strip()!r} is not in {space}")
    return action
