"""Reports loops over environments that take too long, and ends a process whose environment hangs."""

import logging
import os
import sys
import threading
import time
import traceback
from typing import Self

import numpy as np

logger = logging.getLogger(__name__)

# An environment that hangs is reported after sample_timeout_s, and its process ended after this many times as long.
PATIENCE = 10
# How such a process ends, so that the driver knows why.
EXIT_HANGS = 75


class Patience:
    """Logs what a loop over environments is waiting for, once every `timeout_s`.

    As a context manager it also watches single rounds, from another thread: one that takes longer than `timeout_s` is
    reported once, with the line at which it is.

    Args:
        timeout_s: time between two warnings (seconds).
        what: the subject of the messages.
        ends_process: end this process when one round takes PATIENCE times `timeout_s`, so that it is replaced.
    """

    def __init__(self, timeout_s: float, what: str, *, ends_process: bool = False):
        self._timeout_s = timeout_s
        self._what = what
        self._ends_process = ends_process
        self._started = self._warned = self._round = time.monotonic()
        self._done = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, args=(threading.get_ident(),), name="rllib-patience", daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self._done.set()

    def check(self, waiting: np.ndarray, steps: int) -> None:
        """Must be called in every round.

        Args:
            waiting: bool [N], the environments whose episodes have not ended; none: nothing waits for an end.
            steps: number of rounds so far.
        """
        now = self._round = time.monotonic()
        if now - self._warned < self._timeout_s or not waiting.any():
            return
        self._warned = now
        logger.warning(
            "%s waits for the end of episodes in environments %s, for %.0f s and %d steps now; an environment in which "
            "the policy may never reach an end needs a time limit (max_episode_steps, or gymnasium.wrappers.TimeLimit)",
            self._what,
            np.flatnonzero(waiting)[:8].tolist(),
            now - self._started,
            steps,
        )

    def _watch(self, thread: int) -> None:
        """Watches the loop, which runs in the thread with this number."""
        due, reported = self._round + self._timeout_s, None
        while not self._done.wait(max(due - time.monotonic(), 0)):
            stalled_s = time.monotonic() - self._round
            if stalled_s < self._timeout_s:
                due = self._round + self._timeout_s
                continue
            due += self._timeout_s
            if reported != self._round:  # once for each round
                reported = self._round
                logger.warning(
                    "%s has waited %.3g s for one step of its environments; does one hang? (sample_timeout_s=%g) "
                    "It is at\n%s",
                    self._what,
                    stalled_s,
                    self._timeout_s,
                    "".join(traceback.format_stack(sys._current_frames()[thread])[-3:]).rstrip(),
                )
            if self._ends_process and stalled_s >= PATIENCE * self._timeout_s:
                logger.error("%s ends its process after %.3g s in one step", self._what, stalled_s)
                os._exit(EXIT_HANGS)  # the thread that hangs may never get to an exception
