"""Requests of loops outside, and their episodes: counted where they arrive, and reported with the samples."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

# Waits that are remembered between two reports, and in an iteration.
_REMEMBERED = 1024


@dataclass
class Traffic:
    """Traffic of one environment that drives its own loop, from one report to the next.

    Attributes:
        clients: those that have sent a request so far, and are remembered.
        open_episodes: episodes under way.
        rows_waiting: step requests of episodes without an answer yet; each of them closes a row.
        requests: since the last report.
        episodes_lost: given up since the last report, since their clients were silent.
        act_s: newest waits for actions since the last report (seconds).
        worker_index: index of its worker.
        policy_versions: policy id -> version of the weights that acted last.
    """

    clients: int = 0
    open_episodes: int = 0
    rows_waiting: int = 0
    requests: int = 0
    episodes_lost: int = 0
    act_s: Sequence[float] = field(default_factory=list)
    worker_index: int = 0
    policy_versions: Mapping[str, int] = field(default_factory=dict)

    def then(self, later: "Traffic") -> "Traffic":
        """Both as one report; `later` is of the same environment."""
        return replace(
            later,
            requests=self.requests + later.requests,
            episodes_lost=self.episodes_lost + later.episodes_lost,
            act_s=[*self.act_s, *later.act_s][-_REMEMBERED:],
        )


class TrafficCounter:
    """Counts of a server, taken by the thread of its worker.

    Attributes:
        requests, lost: requests, and episodes given up, so far.
    """

    def __init__(self):
        self.requests = self.lost = 0
        self._taken = (0, 0)
        self._act_s: deque[float] = deque(maxlen=_REMEMBERED)

    def acted(self, seconds: float) -> None:
        """Counts an answer with actions, and the time that its client has waited."""
        self._act_s.append(seconds)

    def take(self, clients: int, open_episodes: int, rows_waiting: int) -> Traffic:
        """The traffic since the last call."""
        (requests, lost), self._taken = self._taken, (self.requests, self.lost)
        act_s, self._act_s = self._act_s, deque(maxlen=_REMEMBERED)
        new = self._taken[0] - requests, self._taken[1] - lost
        return Traffic(clients, open_episodes, rows_waiting, *new, act_s=list(act_s))


class RunTraffic:
    """Traffic of all workers of a run; `statistics` closes an iteration."""

    def __init__(self):
        self._latest: dict[int, Traffic] = {}
        self._episodes_lost = 0
        self.start_iteration()

    def start_iteration(self) -> None:
        """Resets what is counted by iteration."""
        self._requests, self._lag = 0, 0
        self._act_s: deque[float] = deque(maxlen=_REMEMBERED)

    def add(self, report: Traffic, versions: Mapping[str, int]) -> None:
        """Adds a worker's report.

        Args:
            report: its traffic.
            versions: policy id -> version of its newest weights.
        """
        self._latest[report.worker_index] = report
        self._requests += report.requests
        self._episodes_lost += report.episodes_lost
        self._act_s.extend(report.act_s)
        lags = [versions[policy_id] - version for policy_id, version in report.policy_versions.items()]
        self._lag = max([self._lag, *lags])

    def statistics(self, elapsed_s: float) -> dict[str, float]:
        """The entry `external` of a result; empty where all environments are stepped.

        Args:
            elapsed_s: duration of the iteration (seconds).

        Returns:
            `clients`, `open_episodes` and `rows_waiting` at the last report; `episodes_lost` so far; of the iteration
            `requests_per_s`, `act_ms_p50` and `act_ms_p99`, the time from a request for actions to its answer
            (milliseconds; NaN without one), and `weights_lag`, the largest number of updates by which weights that
            acted were behind when their sample arrived.
        """
        if not self._latest:
            return {}
        latest, waits = self._latest.values(), sorted(self._act_s)
        return {
            "clients": sum(each.clients for each in latest),
            "open_episodes": sum(each.open_episodes for each in latest),
            "episodes_lost": self._episodes_lost,
            "requests_per_s": self._requests / elapsed_s if elapsed_s else 0.0,
            "act_ms_p50": 1e3 * _quantile(waits, 0.5),
            "act_ms_p99": 1e3 * _quantile(waits, 0.99),
            "rows_waiting": sum(each.rows_waiting for each in latest),
            "weights_lag": self._lag,
        }


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else math.nan
