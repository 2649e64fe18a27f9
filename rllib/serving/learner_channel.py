"""The channel from a process that answers requests to the learner."""

import asyncio
import secrets
import socket

import msgspec

from rllib.serving.counts import Counts
from rllib.serving.learning.packets import Answer, Ask, Decision, Gap, Reward, decode_answer, encode
from rllib.web.bodies import BadRequest

# Seconds that an answer of the learner may take.
ANSWER_S = 30.0
# Between looks whether the learner has ended.
_LOOK_S = 0.25
_MOST_GAPS = 10_000
_NOT_THERE = "the learner is not running, so it takes no rewards; actions are answered. Try again in a while"


class LearnerChannel:
    """Sends decisions and rewards to the learner, and waits for its answers.

    Args:
        channel: the socket.
        counts: counts of the server.
    """

    def __init__(self, channel: socket.socket, counts: Counts):
        self._channel, self._counts = channel, counts
        # Random, since answers to a process that has ended may come to the one in its place.
        self._number = secrets.randbits(48)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        # Episodes with a decision that could not be sent, and its time; the learner hears of it when it can.
        self._gaps: dict[str, float] = {}
        # Episodes of the newest decisions that were sent, and the time of each one's last.
        self._sent: dict[str, float] = {}
        self._num_starts = counts.of_all("learner_starts")
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(channel.fileno(), self._read)

    @property
    def is_there(self) -> bool:
        """Whether the learner runs."""
        return self._counts.of_all("learner_running") > 0

    def record(self, decision: Decision) -> bool:
        """Sends a decision; whether it was sent, so that a reward may come for it."""
        if self.is_there:
            self._notice_another()
        is_sent = self.is_there and self._send_gaps() and self._send(decision)
        self._counts.add("decisions" if is_sent else "decisions_unrecorded")
        if decision.episode_id is not None:
            newest = self._sent if is_sent else self._gaps
            newest.pop(decision.episode_id, None)  # so that it is the last one
            newest[decision.episode_id] = decision.at
            if len(newest) > _MOST_GAPS:
                del newest[next(iter(newest))]
        return is_sent

    def _notice_another(self) -> None:
        """After a learner has taken the place of another: it does not have the beginnings of the running episodes."""
        num_starts = self._counts.of_all("learner_starts")
        if num_starts != self._num_starts:
            self._num_starts = num_starts
            self._gaps, self._sent = {**self._sent, **self._gaps}, {}

    def _send_gaps(self) -> bool:
        """Reports the missing decisions; whether all could be sent."""
        while self._gaps:
            episode_id, at = next(iter(self._gaps.items()))
            if not self._send(Gap(episode_id, at)):
                return False
            del self._gaps[episode_id]
        return True

    async def reward(self, **given) -> Answer:
        """Sends a reward: the fields of `Reward`.

        Raises:
            BadRequest: 503 if the learner does not answer.
        """
        return await self._asked(Reward(self._next(), **given))

    async def stats(self, resume: bool = False) -> Answer:
        """Asks for the statistics; errors as for `reward`, `resume` as for `Ask`."""
        return await self._asked(Ask(self._next(), resume))

    def _next(self) -> int:
        self._number += 1
        return self._number

    async def _asked(self, packet: Reward | Ask) -> Answer:
        if not self.is_there:
            raise BadRequest(503, _NOT_THERE)
        started = self._counts.of_all("learner_starts")
        waiting = self._waiting[packet.request] = self._loop.create_future()
        try:
            if not self._send(packet):
                raise BadRequest(503, "the learner is busy; try again")
            deadline = self._loop.time() + ANSWER_S
            while self._loop.time() < deadline:
                done, _ = await asyncio.wait([waiting], timeout=_LOOK_S)
                if done:
                    return waiting.result()
                if not self.is_there or self._counts.of_all("learner_starts") != started:
                    raise BadRequest(503, _NOT_THERE)
            raise BadRequest(503, f"the learner has not answered for {ANSWER_S:g} s")
        finally:
            del self._waiting[packet.request]

    def _send(self, packet: Decision | Gap | Reward | Ask) -> bool:
        try:
            self._channel.send(encode(packet))
        except OSError:  # the buffer is full
            return False
        return True

    def _read(self) -> None:
        while True:
            try:
                answer = decode_answer(self._channel.recv(1 << 20))
            except (BlockingIOError, msgspec.DecodeError):
                return
            waiting = self._waiting.get(answer.request)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
