"""Where the external episodes of a worker come from: loops in its process, or clients of a policy server."""

from collections.abc import Callable, Collection, Hashable
from typing import TYPE_CHECKING

from rllib.env.external.checks import Spaces
from rllib.env.external.episodes import EpisodeTable
from rllib.env.external.exchange import Exchange
from rllib.env.traffic import Traffic

if TYPE_CHECKING:
    from rllib.env.policy_server.weights import PublishedPolicy

# Seconds that a loop waits for an action.
ACTION_TIMEOUT_S = 300.0


class EpisodeSource:
    """Base class of ExternalEnv and PolicyServer: what a worker and its stream need of them.

    Args:
        action_space, observation_space: of the policy, or dicts by agent, in RLlib's order.

    Attributes:
        exchange: carries the step requests of its episodes to the worker.
        mask_problem: says what is wrong with the action mask of an agent's observation, or with an action logged for
            it. The worker sets it where a policy reads masks; None: there are no masks.
        has_several_agents: whether its episodes have several agents.
        publishes_policy: whether its loops act by copies of the policy, which `publish` gives them.
        patience_s: longest time that whole episodes of others wait for the end of a silent one (seconds); None: any.
        standstill_s: an episode that could begin waits this long for running ones that do not go on: their loop may
            wait for it in turn (seconds).
    """

    has_several_agents = False
    publishes_policy = False
    patience_s: float | None = None
    standstill_s = 0.05

    def __init__(self, action_space: Spaces, observation_space: Spaces):
        self.action_space, self.observation_space = action_space, observation_space
        self.exchange = Exchange()
        self.mask_problem: Callable[..., str | None] | None = None
        self._episode_table = EpisodeTable()

    def open(self) -> None:
        """Called when a worker begins with this source, before its loop is started."""

    def run(self) -> None:
        """The loop over episodes, called in a thread of the worker; it goes on as long as the worker lives."""
        raise NotImplementedError(f"{type(self).__name__} must write run(), the loop over its episodes")

    def close(self) -> None:
        """Called when the worker ends; may be overridden to stop what `run` has started."""

    def publish(self, policy: "PublishedPolicy") -> None:
        """Receives the policy that its worker acts by from now on."""

    def is_blocked(self, running: Collection[str], waiting: Collection[str]) -> bool:
        """Whether all loops of running episodes are known to wait for the beginning of others.

        Args:
            running: ids of the episodes that act.
            waiting: ids of those that have to wait before they begin.
        """
        if self.exchange.num_waiting():
            return False
        loops = {self._loop_of(episode_id) for episode_id in waiting} - {None}
        return bool(loops) and all(self._loop_of(episode_id) in loops for episode_id in running)

    def _loop_of(self, episode_id: str) -> Hashable:
        """Thread or client that makes the calls of a running episode, one at a time; None: it is not known."""
        return None

    def take_traffic(self) -> Traffic:
        """Counts since the last call, which the worker reports with its samples."""
        return Traffic(open_episodes=len(self._episode_table.running), rows_waiting=self.exchange.num_waiting())

    def describe_silence(self) -> str:
        """Possible reason why nobody has asked for an action for long, for a message."""
        return f"Does {type(self).__name__}.run() call get_action?"
