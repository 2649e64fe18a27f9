"""Requests to a policy server that are under way, the turns of which each is made, and their answers, given once."""

import itertools
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from rllib.env.external.exchange import AgentRefused, EpisodeLost, RunEnded, Turn
from rllib.env.external.source import ACTION_TIMEOUT_S
from rllib.env.policy_server.forms import Numbered
from rllib.env.policy_server.samples import Replay
from rllib.web.bodies import BadRequest

logger = logging.getLogger(__name__)

# Seconds after which a request that waits is answered with 503, so that its client knows that the server lives.
HOLD_S = 15.0
# A client with a request that was put off asks again within this time (seconds).
_COME_AGAIN_S = 1.0
_NOT_NOW = "the algorithm does not sample at the moment; ask again"
_NOT_FOR_LONG = f"the algorithm has not sampled for {ACTION_TIMEOUT_S:g} s: is train() running?"

# A turn that fails with one of these ends its episode.
ENDS_EPISODE = EpisodeLost, AgentRefused
# Called with status and answer of a request.
Reply = Callable[[int, Any], None]


class AskedTurn(Turn):
    """A turn of a request.

    Args:
        tell: called with it once it was answered, in the thread that has answered it.
    """

    __slots__ = ("_tell", "error", "turns")

    def __init__(self, tell: Callable[["AskedTurn"], None], *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._tell, self.error = tell, None
        self.turns: Turns | None = None

    def answer(self, actions: Mapping) -> None:
        self.actions, self.is_answered = actions, True
        self._tell(self)

    def fail(self, error: BaseException) -> None:
        self.error, self.is_answered = error, True
        self._tell(self)

    @property
    def ends(self) -> bool:
        """Whether the episode ends with it."""
        return self.step.is_over


class Turns:
    """The turns of a request.

    Attributes:
        answer: function of them, once all are answered, which gives the answer to the request.
        asked: the request.
    """

    __slots__ = ("answer", "asked", "num_open", "turns")

    def __init__(self, turns: "list[AskedTurn] | list[Replay]", answer: Callable[[list], dict[str, Any]]):
        self.turns, self.answer, self.num_open = turns, answer, len(turns)
        self.asked: Asked | None = None
        for turn in turns:
            turn.turns = self


class Asked:
    """A request that was taken in.

    Attributes:
        client, number: of it; "" for a request without a number.
        content: hash of its path and body, which are the same where it is repeated.
        turns: that are to be answered; None where there are none, or all are answered.
        answer: status and answer, once they are there.
        replies: what waits for the answer, each with the time until which it may wait (s).
        heard: when it was asked last (s).
        concluded: when the turns were answered (s).
    """

    __slots__ = ("answer", "client", "concluded", "content", "heard", "number", "replies", "turns")

    def __init__(self, client: str, number: int, content: int):
        self.client, self.number, self.content = client, number, content
        self.turns: Turns | None = None
        self.answer: tuple[int, Any] | None = None
        self.replies: list[tuple[float, Reply]] = []
        self.heard, self.concluded = time.monotonic(), 0.0


class PendingRequests:
    """The newest request of each client, and requests without a number while they wait for their answers.

    A request with a number that is repeated gets the answer of the first time. All methods but `num_clients` and
    `expects_clients` are called in the thread of the transport.

    Args:
        max_clients: most clients that are remembered.
        forget: called with the name of a client that is forgotten; returns whether nothing else needs it any more.
    """

    def __init__(self, max_clients: int, forget: Callable[[str], bool]):
        self._max_clients, self._forget = max_clients, forget
        self._clients: dict[str, Asked] = {}  # those that were heard of last are the last
        self._waiting: dict[Asked, None] = {}  # requests that have replies
        self._come_again_until = 0.0  # until then clients ask again whose requests were put off (s)

    @property
    def num_clients(self) -> int:
        """Number of clients, of those whose requests have numbers, that have asked and are remembered."""
        return len(self._clients)

    @property
    def longest_look_s(self) -> float:
        """Longest interval between calls of `put_off` (seconds)."""
        return HOLD_S / 4

    def waits(self, client: str) -> bool:
        """Whether the newest request of a client is not answered."""
        asked = self._clients.get(client)
        return asked is not None and asked.answer is None

    def expects_clients(self, since: float) -> bool:
        """Whether clients are likely to ask soon: they wait, or were put off, heard of or answered since a time (s).

        One that was silent before is gone, or in a long step.
        """
        return time.monotonic() <= self._come_again_until or any(
            asked.answer is None or max(asked.heard, asked.concluded) > since for asked in list(self._clients.values())
        )

    def come_again(self) -> None:
        """Notes that a client was told to ask again."""
        self._come_again_until = time.monotonic() + _COME_AGAIN_S

    def once(self, request: Numbered, content: int, handle: Callable[[Any], Any], reply: Reply) -> None:
        """Replies with the answer to a request; for one that is repeated, with that of the first time.

        A reply that waits for HOLD_S is 503, and the client asks again.

        Args:
            request: of a client, or without a name and a number.
            content: hash of its path and body.
            handle: function of the request, called once; gives the answer, or the turns that give it.
            reply: called once.

        Raises:
            BadRequest: for a number that is none or was used for another request, and for one client too many.
        """
        if not request.client:
            asked = Asked("", 0, content)
            self._take_in(asked, request, handle)
            self._reply(asked, reply, ACTION_TIMEOUT_S)
            return
        if request.seq < 1:
            raise BadRequest(422, "a request with a client needs seq, its number, which counts from 1")
        asked = self._clients.pop(request.client, None)
        if asked is not None:
            self._clients[request.client] = asked  # behind those that were heard of earlier
            asked.heard = time.monotonic()
            name = f"client {request.client:.40}"
            if request.seq < asked.number:
                raise BadRequest(409, f"{name} has sent number {asked.number} already, and now {request.seq}")
            if request.seq == asked.number and content != asked.content:
                raise BadRequest(
                    409, f"{name} has sent another request with number {request.seq}; only the same may be sent again"
                )
        elif len(self._clients) >= self._max_clients:
            self._forget_a_client()
        if asked is None or request.seq != asked.number:
            asked = self._clients[request.client] = Asked(request.client, request.seq, content)
            self._take_in(asked, request, handle)
        self._reply(asked, reply, HOLD_S)

    def _take_in(self, asked: Asked, request: Numbered, handle: Callable[[Any], Any]) -> None:
        try:
            answer = handle(request)
        except Exception as error:
            asked.answer = refusal(error)
            return
        if not isinstance(answer, Turns):
            asked.answer = 200, answer
            return
        answer.asked, asked.turns = asked, answer
        if not answer.num_open:  # the run has ended
            self._conclude(answer)

    def _reply(self, asked: Asked, reply: Reply, limit_s: float) -> None:
        """Replies, now or when the answer is there."""
        if asked.answer is None:
            asked.replies.append((time.monotonic() + limit_s, reply))
            self._waiting[asked] = None
            return
        status, answer = asked.answer
        if asked.client and status == 503:  # it asks anew; after the run has ended, never
            self._clients.pop(asked.client, None)
        reply(status, answer)

    def take_answer(self, turns: Turns) -> None:
        """Takes note that one more turn of a request is answered; replies after the last."""
        turns.num_open -= 1
        if not turns.num_open and turns.asked is not None:
            self._conclude(turns)

    def _conclude(self, turns: Turns) -> None:
        """Answers the request whose turns are all answered."""
        asked = turns.asked
        try:
            asked.answer = 200, turns.answer(turns.turns)
        except Exception as error:
            asked.answer = refusal(error)
        asked.turns, asked.concluded = None, time.monotonic()  # without the observations
        replies, asked.replies = asked.replies, []
        self._waiting.pop(asked, None)
        for _, reply in replies:
            self._reply(asked, reply, HOLD_S)

    def put_off(self, now: float, withdraw: Callable[[Turns], None]) -> None:
        """Replies 503 to requests that have waited for too long at a time (s).

        Args:
            now: the time.
            withdraw: called with the turns of each that cannot be asked for again.
        """
        for asked in [each for each in self._waiting if each.replies[0][0] <= now]:
            late = [reply for until, reply in asked.replies if until <= now]
            asked.replies = asked.replies[len(late) :]
            if not asked.replies:
                del self._waiting[asked]
                if not asked.client:
                    withdraw(asked.turns)
            self._come_again_until = now + _COME_AGAIN_S
            for reply in late:
                reply(503, {"error": _NOT_NOW if asked.client else _NOT_FOR_LONG})

    def forget_silent_clients(self, limit: float) -> None:
        """Forgets clients that were not heard of since this time (s) and wait for nothing."""
        silent = list(itertools.takewhile(lambda client: client[1].heard < limit, self._clients.items()))
        for name, asked in silent:
            if asked.answer is not None and self._forget(name):
                del self._clients[name]

    def _forget_a_client(self) -> None:
        """Forgets the client that was heard of first and waits for nothing.

        Raises:
            BadRequest: if all wait.
        """
        for name, asked in self._clients.items():
            if asked.answer is not None:
                del self._clients[name]
                self._forget(name)
                return
        raise BadRequest(429, f"there are {len(self._clients)} clients, and max_clients={self._max_clients}")


def refusal(error: Exception) -> tuple[int, dict[str, Any]]:
    """Status and answer of a request that was not answered, because of this error."""
    if isinstance(error, BadRequest):
        return error.status, {"error": error.message}
    if isinstance(error, AgentRefused):
        return 400, {"error": str(error)}
    if isinstance(error, EpisodeLost):
        return 409, {"error": str(error), "lost": True}
    if isinstance(error, RunEnded):
        return 503, {"error": str(error), "ended": True}
    logger.error("a request failed", exc_info=error)
    return 500, {"error": "the server failed; its log says more"}
