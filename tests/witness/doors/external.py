"""Scripted episodes as environments that drive their own loops in threads of a worker."""

import threading
from collections import Counter
from contextlib import suppress

from rllib.env.external import ExternalEnv, ExternalMultiAgentEnv
from rllib.env.external.exchange import EpisodeLost, RunEnded
from tests.witness.doors.loops import MOST_PLACES, turns
from tests.witness.doors.scripted import ACTION_SPACE, OBSERVATION_SPACE

# Environments that each worker of this process has made, by the part of the test: one that replaces another plays
# other episodes.
_MADE: Counter[tuple[int, int]] = Counter()


class ExternalSingle(ExternalEnv):
    """Loops with one agent.

    Args:
        config: family, manner, and the number of the part of the test, which gives new episodes.
    """

    def __init__(self, config):
        super().__init__(ACTION_SPACE, OBSERVATION_SPACE)
        self.config = config
        worker = config["part"], config.worker_index
        _MADE[worker] += 1
        self._first_serial = ((config["part"] * 8 + config.worker_index) * 1024 + _MADE[worker]) * MOST_PLACES

    def run(self):
        """Plays until the run ends, or a loop crashes as the script says."""
        crashes, is_over = [], threading.Event()
        threads = [
            threading.Thread(target=self._loop, args=(loop, crashes, is_over), daemon=True)
            for loop in range(self.config["manner"].num_loops)
        ]
        for thread in threads:
            thread.start()
        is_over.wait()
        if crashes:
            raise crashes[0]

    def _loop(self, loop, crashes, is_over):
        manner = self.config["manner"]
        serials = [self._first_serial + loop * manner.num_places + place for place in range(manner.num_places)]
        try:
            with suppress(RunEnded):  # it was replaced, or the run has ended
                while True:
                    with suppress(EpisodeLost):  # where policies have changed: the loop goes on with other episodes
                        for _ in turns([self] * len(serials), self.config["family"], serials, manner):
                            pass
                    serials = [serial + manner.num_loops * manner.num_places for serial in serials]
        except BaseException as error:  # raised by `run`; what pytest.raises misses is no Exception
            crashes.append(error)
        is_over.set()


class ExternalSeveral(ExternalSingle, ExternalMultiAgentEnv):
    """Loops with several agents."""
