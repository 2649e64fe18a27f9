"""The learner's side of the sockets to the processes that answer requests."""

import contextlib
import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from rllib.serving.learning.packets import MOST_BYTES, Answer, Ask, Decision, Gap, Reward, decode_of_worker, encode
from rllib.serving.learning.training_loop import TrainingLoop

logger = logging.getLogger("rllib.serving")
# Seconds between checks for expired decisions and episodes.
_EXPIRE_S = 1.0
_Question = tuple[socket.socket, Reward | Ask]


class Dispatcher:
    """A thread that accepts packets and answers them.

    A decision is sent before its action is answered, and thus before any client can report its reward. But decision and
    reward may come through different sockets: rewards are processed after all sockets were read once more.

    Args:
        channels: the sockets.
        training_loop: processes the packets, under `lock`.
        stats: function that returns further statistics.

    Attributes:
        lock: held by a thread that uses the training loop.
        news: set when packets were accepted.
    """

    def __init__(
        self, channels: Sequence[socket.socket], training_loop: TrainingLoop, stats: Callable[[], dict[str, Any]]
    ):
        self._channels, self._training_loop, self._stats = channels, training_loop, stats
        self.lock, self.news = threading.Lock(), threading.Event()
        self._selector = selectors.DefaultSelector()
        for channel in channels:
            self._selector.register(channel, selectors.EVENT_READ)
        self._expired_at = 0.0
        # Rewards and questions to answer after all sockets were read once more.
        self._later: list[_Question] = []

    def start(self) -> None:
        """Starts the thread, which lives as long as the process."""
        threading.Thread(target=self._run, name="dispatcher", daemon=True).start()

    def _run(self) -> None:
        try:
            while True:
                self._selector.select(0 if self._later else _EXPIRE_S)
                self.step(time.monotonic())
        except BaseException:
            logger.exception("the learner ends, since it cannot read what has been served")
            os._exit(1)  # the supervisor starts another one

    def step(self, now: float) -> None:
        """Processes the packets that have arrived.

        Args:
            now: time on the machine's monotonic clock (seconds).
        """
        others, self._later = self._later, []
        decisions, found = self._read()
        others += found
        if others:
            more, self._later = self._read()
            decisions += more
        with self.lock:
            for packet in sorted(decisions, key=attrgetter("at")):
                take = self._training_loop.lose if isinstance(packet, Gap) else self._training_loop.decide
                take(packet)
            answers = [(channel, self._answer(packet, now)) for channel, packet in others]
            if now - self._expired_at >= _EXPIRE_S:
                self._expired_at = now
                self._training_loop.expire(now)
        for channel, answer in answers:
            with contextlib.suppress(OSError):  # the process does not read; its client gets 503
                channel.send(encode(answer))
        self.news.set()

    def _read(self) -> tuple[list[Decision | Gap], list[_Question]]:
        decisions: list[Decision | Gap] = []
        others: list[_Question] = []
        for channel in self._channels:
            while (packet := _received(channel)) is not None:
                try:
                    message = decode_of_worker(packet)
                except msgspec.DecodeError:  # of a process of another version
                    continue
                if isinstance(message, Decision | Gap):
                    decisions.append(message)
                else:
                    others.append((channel, message))
        return decisions, others

    def _answer(self, packet: Reward | Ask, now: float) -> Answer:
        if isinstance(packet, Reward):
            return Answer(packet.request, *self._training_loop.reward(packet, now))
        if packet.resume:
            self._training_loop.resume()
        return Answer(packet.request, 200, {**self._training_loop.stats(), **self._stats()})


def _received(channel: socket.socket) -> bytes | None:
    """The next packet of a socket; None if there is none."""
    try:
        return channel.recv(2 * MOST_BYTES) or None
    except BlockingIOError:
        return None
