"""Loops over environments that go on for too long, or get stuck, say so."""

import logging
import os
import sys
import threading
import time
import traceback
from typing import Self

import numpy as np

logger = logging.getLogger(__name__)

# What hangs is reported after sample_timeout_s, and given up after this many times as long.
PATIENCE = 10


class Patience:
    """Says what a loop over environments waits for, each time that it has gone on for too long.

    As a context manager it also says where this thread is when it has not got from one round to the next for so long.

    Args:
        timeout_s: seconds between two warnings.
        what: who waits, the beginning of the sentences.
        ends_process: end this process where one round takes PATIENCE times as long, so that the process that
            started it can replace it.
    """

    def __init__(self, timeout_s: float, what: str, *, ends_process: bool = False):
        self._timeout_s = timeout_s
        self._what = what
        self._ends_process = ends_process
        self._started = self._told = self._round = time.monotonic()
        self._done = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, args=(threading.get_ident(),), name="rllib-patience", daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self._done.set()

    def check(self, waiting: np.ndarray, steps: int) -> None:
        """To be called in every round.

        Args:
            waiting: [N] bool, the environments whose episodes have not ended.
            steps: rounds so far.
        """
        now = self._round = time.monotonic()
        if now - self._told < self._timeout_s:
            return
        self._told = now
        logger.warning(
            "%s waits for the end of episodes in environments %s, for %.0f s and %d steps now; an environment in which "
            "the policy may never reach an end needs a time limit (max_episode_steps, or gymnasium.wrappers.TimeLimit)",
            self._what,
            np.flatnonzero(waiting)[:8].tolist(),
            now - self._started,
            steps,
        )

    def _watch(self, thread: int) -> None:
        """Runs beside the loop, whose thread is given."""
        due = self._round + self._timeout_s
        while not self._done.wait(max(due - time.monotonic(), 0)):
            stalled_s = time.monotonic() - self._round
            if stalled_s < self._timeout_s:
                due = self._round + self._timeout_s
                continue
            due += self._timeout_s
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
                os._exit(1)  # the thread that hangs may never get to an exception
