"""The seats of an external episode."""

from collections.abc import Mapping

from rllib.env.external.exchange import AgentRefused
from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.env.multi_agent.stream import AgentStep
from rllib.evaluation.multi_agent.episode import Seat
from rllib.evaluation.multi_agent.seats import EnvironmentSeats


class ExternalSeats(EnvironmentSeats):
    """The seats of an episode whose loop is outside of the worker: it may wait for any time between two turns.

    Attributes:
        trains: whether the episode's steps become rows.
        given: the actions that the episode's loop has got with its newest turn.
        drops_next: whether the rows that are open are to be dropped when they close, and the chain of rows cut there.
    """

    trains = True
    drops_next = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.given: Mapping = {}

    def begin(self, trains: bool, rewards: Mapping[AgentID, float]) -> None:
        """Starts the episode; its rewards so far belong to no row.

        Raises:
            AgentRefused: if an agent has no policy. The episode is to be made void.
        """
        self.trains, self.drops_next, self.given = trains, False, {}
        self.start()
        self._add_rewards(rewards)

    def acted(self, given: Mapping, drops: bool) -> None:
        """Opens the rows of the agents that have just acted.

        Args:
            given: their actions.
            drops: whether the rows are dropped.
        """
        self.given, self.drops_next = given, drops
        for seat in self._acting:
            seat.is_open, seat.reward = True, 0.0

    def follow(self, step: AgentStep) -> bool:
        """Takes in what has followed the newest actions; returns whether the episode is over.

        Raises:
            AgentRefused: if a new agent has no policy; nothing was taken in then. The episode is to be made void.
        """
        if not step.is_over:
            self._find_policies(step.observations)
        return self.take_in(self.given, step)

    def _take_seats(self, observations: Mapping) -> None:
        self._find_policies(observations)
        super()._take_seats(observations)

    def _find_policies(self, observations: Mapping) -> None:
        """Asks the mapping for the policies of new agents: their names come from outside, and it may know them not."""
        if observations.keys() <= self.episode.seats.keys():
            return
        for agent in observations:
            try:
                self.episode.policy_for(agent)
            except Exception as error:
                raise AgentRefused(f"the run has no policy for agent {agent!r:.80}: {error!r:.200}") from error

    def void(self) -> None:
        """Drops the episode: nobody knows what has followed its newest actions."""
        self.drops_next = True
        self._void()

    @property
    def acting(self) -> list[Seat]:
        """Seats of the agents that act next."""
        return self._acting

    def _close(self, seat: Seat, terminated: bool = False, truncated: bool = False) -> None:
        if self.trains and not self.drops_next:
            super()._close(seat, terminated, truncated)
            return
        if self.trains and seat.lane.records:
            self._drop(seat)
        seat.is_open = False

    def _close_last(self, seat: Seat, observations: Mapping, terminated: bool, truncated: bool) -> None:
        if self.trains and not self.drops_next:
            super()._close_last(seat, observations, terminated, truncated)
        else:
            self._close(seat)
