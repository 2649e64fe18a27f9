"""Clients of a policy server: their episodes, quotas, and the times at which they were last seen."""

import time
from collections import Counter
from collections.abc import Iterable

from rllib.env.policy_server.forms import MOST_EPISODES
from rllib.web.bodies import BadRequest


class Clients:
    """Episodes whose end is not accepted yet, by client, and the times at which the clients were last seen.

    For clients without a name, "", the time is kept for each episode.

    Args:
        most_episodes: largest number of episodes of a client; clients without a name share one quota.
    """

    def __init__(self, most_episodes: int):
        self._most_episodes = most_episodes
        self._client_of: dict[str, str] = {}  # episode id -> name of its client
        self._num_open: Counter[str] = Counter()
        self._last_seen: dict[tuple[str, str], float] = {}  # `_clock_key` -> time of the last request (s)

    def check_room(self, client: str, num_more: int) -> None:
        """Refuses further episodes beyond the quota of a client, or of all clients together."""
        count = self._num_open[client]
        if count + num_more > self._most_episodes:
            raise BadRequest(
                429,
                f"client {client:.40} has {count:,} episodes under way, and "
                f"max_episodes_per_client={self._most_episodes}: end one before the next begins",
            )
        if len(self._client_of) + num_more > MOST_EPISODES:
            raise BadRequest(429, f"{MOST_EPISODES:,} episodes are under way, the most of a server: end one first")

    def add(self, client: str, episode_id: str) -> None:
        """Adds an episode that a client has just begun."""
        self._client_of[episode_id] = client
        self._num_open[client] += 1
        self._last_seen[_clock_key(client, episode_id)] = time.monotonic()

    def release(self, episode_id: str) -> None:
        """Frees a finished episode's slot in the quota of its client."""
        client = self._client_of.pop(episode_id, None)
        if client is not None:
            self._num_open[client] -= 1
            if not self._num_open[client]:
                del self._num_open[client]
            if not client or client not in self._num_open:
                self._last_seen.pop(_clock_key(client, episode_id), None)

    def client_of(self, episode_id: str) -> str:
        """Name of the client of an episode; "" for a client without a name, and for an unknown episode."""
        return self._client_of.get(episode_id, "")

    def touch(self, client: str, episode_ids: Iterable[str] = ("",)) -> None:
        """Records the time at which a client was seen; a client without a name is known by these episodes alone."""
        now = time.monotonic()
        for key in [(client, "")] if client else [("", episode_id) for episode_id in episode_ids]:
            if key in self._last_seen:  # it has episodes
                self._last_seen[key] = now

    def is_idle(self, episode_id: str, limit: float) -> bool:
        """Whether the client of an episode was not seen since this time (s)."""
        return self._last_seen.get(_clock_key(self.client_of(episode_id), episode_id), limit) < limit


def _clock_key(client: str, episode_id: str) -> tuple[str, str]:
    """Key of the clock of an episode: its client's, or, for a client without a name, the episode's own."""
    return client, "" if client else episode_id
