"""The policy mapping of a league: who plays in an episode, and in which seat."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.storage.by_arguments import ByArguments

# An episode's id holds the index of its environment above these bits, and its number in that environment in them.
_NUMBER_BITS = 32


@dataclass(frozen=True)
class Pairing(ByArguments):
    """A policy mapping by which one policy has one seat of an episode, and an opponent that is drawn has all others.

    In a share of the episodes the opponent is the policy itself.

    It is a function of the episode's id alone: the seat changes with each episode of an environment, and the opponent
    is drawn from a random stream of the episode. So it does not matter which worker plays the episode. Without
    opponents the policy plays against itself.

    Attributes:
        main: id of the policy.
        opponents: ids.
        probabilities: of the opponents; they sum to 1.
        agents: in the order of their seats. Empty: not known yet, and all agents of an episode have the same policy.
        seed: of the streams.
        self_play: probability of the policy itself as the opponent; the others share the rest.
    """

    main: str
    opponents: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    agents: tuple[AgentID, ...] = ()
    seed: int = 0
    self_play: float = 0.0

    def __call__(self, agent_id: AgentID, episode, worker=None, **kwargs) -> str:
        """Id of an agent's policy in an episode.

        Raises:
            ValueError: for an agent that has no seat.
        """
        if not self.opponents:
            return self.main
        episode_id = int(episode.episode_id)
        if self.seat_of_main(episode_id) == self._seat(agent_id):
            return self.main
        return self.opponent(episode_id)

    def seat_of_main(self, episode_id: int) -> int:
        """Position in `agents` of the agent that the policy acts for."""
        environment, number = divmod(episode_id, 1 << _NUMBER_BITS)
        return (environment + number) % max(len(self.agents), 2)

    def opponent(self, episode_id: int) -> str:
        """The opponent that is drawn for an episode."""
        stream = np.random.SeedSequence(self.seed, spawn_key=(episode_id,))
        drawn = np.random.default_rng(stream).random()
        if drawn < self.self_play:
            return self.main
        return self.opponents[bisect_right(self._bounds, (drawn - self.self_play) / (1.0 - self.self_play))]

    @cached_property
    def _bounds(self) -> list[float]:
        """Upper bounds of the opponents' shares of [0, 1); the last one is 1 whatever the rounding."""
        bounds = np.cumsum(self.probabilities)
        return (bounds / bounds[-1]).tolist()

    def _seat(self, agent_id: AgentID) -> int:
        if not self.agents:
            return 0
        try:
            return self.agents.index(agent_id)
        except ValueError:
            raise ValueError(
                f"agent {agent_id!r} has no seat in the league: there are {', '.join(map(repr, self.agents))}. Use "
                "League(agents=[...]) with all agents of the environment."
            ) from None
