"""Scripted episodes that policy clients play, each in a thread of the test."""

import contextlib
import threading
from dataclasses import dataclass, field

from rllib.client import EpisodeLost, PolicyClient, RunEnded
from tests.witness.doors.loops import MOST_PLACES, Manner, turns
from tests.witness.doors.scripted import ScriptedCrashError
from tests.witness.script import Family

# Clients of a server and lives of each, for their serials.
_MOST_CLIENTS, _MOST_LIVES = 8, 64


@dataclass
class Clients:
    """Clients of the servers of a run.

    A client dies where its script says so, with its connection and without a word, and another comes in its place. The
    first of each server begins; each of the others arrives when the one before has played some steps.

    Args:
        family, manner: of the episodes; `manner.num_loops` clients have a server.
        part: number of the part of the test, which gives new episodes.
        settings: of the PolicyClients.
    """

    family: Family
    manner: Manner
    part: int
    settings: dict
    errors: list[Exception] = field(default_factory=list)

    @contextlib.contextmanager
    def playing(self, urls):
        """Has them play until the run ends, which is before this ends.

        Raises:
            AssertionError: if one of them has met an error, or goes on.
        """
        threads = []
        for server, url in enumerate(urls):
            before = threading.Event()
            before.set()
            for client in range(self.manner.num_loops):
                arrived = threading.Event()
                first = ((self.part * 4 + server) * _MOST_CLIENTS + client) * _MOST_LIVES
                threads.append(threading.Thread(target=self._live, args=(url, first, before, arrived), daemon=True))
                before = arrived
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not self.errors, self.errors

    def _live(self, url, first, before, arrived):
        try:
            before.wait()
            for life in range(_MOST_LIVES):
                with contextlib.suppress(ScriptedCrashError, EpisodeLost):
                    self._play(url, (first + life) * MOST_PLACES, arrived)
        except RunEnded:
            pass
        except Exception as error:
            self.errors.append(error)
        arrived.set()

    def _play(self, url, first_serial, arrived):
        client = PolicyClient(url, **self.settings)
        try:
            count = self.manner.num_places
            serials = range(first_serial, first_serial + count)
            for step, _ in enumerate(turns([client] * count, self.family, serials, self.manner)):
                if step == 5:
                    arrived.set()
        finally:
            client._connection.close()  # without the steps that it has kept
