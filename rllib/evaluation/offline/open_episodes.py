"""The recorded steps of running episodes, until they are written."""

import itertools
import math
import secrets
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rllib import sample_batch as sb
from rllib.offline.records import T
from rllib.sample_batch import SampleBatch


@dataclass
class _Episode:
    """A running episode, or one that has ended and waits to be written.

    Attributes:
        number: its id in the files; None before its first step.
        steps: number of its steps so far.
        parts: those that wait, by consecutive parts of columns [steps, ...].
        bytes_waiting: of these.
        began: when the first of them came (s).
    """

    number: int | None = None
    steps: int = 0
    parts: list[dict[str, np.ndarray]] = field(default_factory=list)
    bytes_waiting: int = 0
    began: float = 0.0


class OpenEpisodes:
    """Hands the steps of episodes over to a writer, those of an episode in the order of time.

    Args:
        writer: has `write(batch)`, and may have `close()`.
        whole_episodes: an episode is written when it is over, its steps together; else whenever `settle` is called.
        num_slots: number of environments, whose indices are the keys: the lower 32 bits of the ids of environment i of
            N are i, i + N, ...; 0: ids are consecutive, whatever the keys.

    Attributes:
        most_bytes, most_seconds: of a running episode that wait in memory; beyond, they are written.
        policy_version: version of the policy that acts, for the batches.
    """

    most_bytes = most_seconds = math.inf
    policy_version = 0

    def __init__(self, writer: Any, whole_episodes: bool, num_slots: int = 0):
        self._writer, self._whole_episodes = writer, whole_episodes
        # Ids differ from those of other workers and runs, whose files may lie in the same directory.
        first = secrets.randbits(30) << 32
        slots = [itertools.count(first + i, num_slots) for i in range(num_slots)]
        consecutive = itertools.count(first)
        self._numbers_of = slots.__getitem__ if slots else lambda key: consecutive
        self._open: dict[Hashable, _Episode] = {}

    def add(self, key: Hashable, columns: Mapping[str, np.ndarray]) -> None:
        """Adds the next steps [n, ...] of the running episode of this key, which begins with its first ones."""
        count = len(next(iter(columns.values())))
        if not count:
            return
        episode = self._open.setdefault(key, _Episode())
        if episode.number is None:
            episode.number = next(self._numbers_of(key))
        part = {
            **columns,
            sb.EPS_ID: np.full(count, episode.number, np.int64),
            T: np.arange(episode.steps, episode.steps + count),
        }
        episode.steps += count
        if not episode.parts:
            episode.bytes_waiting, episode.began = 0, time.monotonic()
        episode.parts.append(part)
        episode.bytes_waiting += sum(column.nbytes for column in part.values())

    def settle(self, key: Hashable) -> None:
        """Writes what waits of this key, if episodes are written in parts, or the running one waits for long."""
        episode = self._open.get(key)
        if episode is not None and (not self._whole_episodes or self._waits_for_long(episode)):
            self._flush(episode)
            if episode.number is None:
                del self._open[key]

    def end(self, key: Hashable) -> None:
        """Ends the running episode of this key; of none, it does nothing."""
        episode = self._open.get(key)
        if episode is None:
            return
        if self._whole_episodes:
            self._flush(self._open.pop(key))
        else:
            episode.number, episode.steps = None, 0

    def end_all(self) -> None:
        """Ends all running episodes."""
        for key in list(self._open):
            self.end(key)
            self.settle(key)

    def close(self) -> None:
        """Writes the running episodes as far as they have come, and closes the files."""
        self.end_all()
        if hasattr(self._writer, "close"):
            self._writer.close()

    def _waits_for_long(self, episode: _Episode) -> bool:
        age = time.monotonic() - episode.began
        return bool(episode.parts) and (episode.bytes_waiting >= self.most_bytes or age >= self.most_seconds)

    def _flush(self, episode: _Episode) -> None:
        parts, episode.parts = episode.parts, []
        if parts:
            joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            self._writer.write(SampleBatch(joined, policy_version=self.policy_version))
