"""Sources of a worker's external episodes: loops in its process, or clients of a policy server."""

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
    """Base class of ExternalEnv and PolicyServer: the interface that a worker and its stream use.

    Args:
        action_space, observation_space: spaces of the policy, or dicts agent -> space; the action space comes first,
            as in RLlib.

    Attributes:
        exchange: carries the step requests of the episodes to the worker.
        mask_problem: function that describes what is wrong with the action mask in an agent's observation, or with an
            action logged for it. The worker sets it if a policy reads masks; None: masks are not checked.
        has_several_agents: whether the episodes have several agents.
        publishes_policy: whether the loops act by copies of the policy, which `publish` sends to them.
        patience_s: in complete_episodes mode, longest time that a fragment waits for the end of silent episodes while
            there are other episodes (seconds); None: sample_timeout_s.
        standstill_s: in complete_episodes mode, time that a new episode waits for running episodes that make no steps,
            since the loop of these may itself wait for the new one (seconds).
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
        """Called when a worker opens this source, before the loop is started."""

    def run(self) -> None:
        """The loop over episodes, called in a thread of the worker; it must run as long as the worker's process."""
        raise NotImplementedError(f"{type(self).__name__} must write run(), the loop over its episodes")

    def close(self) -> None:
        """Called when the worker ends; may be overridden to stop what `run` has started."""

    def publish(self, policy: "PublishedPolicy") -> None:
        """Receives the policy that the worker acts by from now on."""

    def is_blocked(self, running: Collection[str], waiting: Collection[str]) -> bool:
        """Whether all loops of running episodes are known to wait until other episodes begin.

        Args:
            running: ids of the running episodes.
            waiting: ids of the episodes that have to wait before they begin.
        """
        if self.exchange.num_waiting():
            return False
        loops = {self._loop_of(episode_id) for episode_id in waiting} - {None}
        return bool(loops) and all(self._loop_of(episode_id) in loops for episode_id in running)

    def _loop_of(self, episode_id: str) -> Hashable:
        """Thread or client that makes the calls of a running episode, one call at a time; None: unknown."""
        return None

    def take_traffic(self) -> Traffic:
        """Counts since the last call, which the worker reports with its samples."""
        return Traffic(open_episodes=len(self._episode_table.running), rows_waiting=self.exchange.num_waiting())

    def describe_silence(self) -> str:
        """Possible reason why no action was requested for a long time, for an error message."""
        return f"Does {type(self).__name__}.run() call get_action?"
