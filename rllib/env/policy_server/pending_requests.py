"""Pending requests to a policy server: each is answered once, when its step requests are."""

import itertools
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from rllib.env.external.exchange import AgentRefused, EpisodeLost, RunEnded, StepRequest
from rllib.env.external.source import ACTION_TIMEOUT_S
from rllib.env.policy_server.forms import Numbered
from rllib.env.policy_server.samples import Replay
from rllib.web.bodies import BadRequest

logger = logging.getLogger(__name__)

# Seconds after which a request that waits is answered with 503, so that its client knows that the server lives.
LONG_POLL_S = 15.0
# A client whose request was answered with 503 asks again within this time (seconds).
_RETRY_S = 1.0
_NOT_NOW = "the algorithm does not sample at the moment; ask again"
_NOT_FOR_LONG = f"the algorithm has not sampled for {ACTION_TIMEOUT_S:g} s: is train() running?"

# A step request that fails with one of these ends its episode.
ENDS_EPISODE = EpisodeLost, AgentRefused
# Called with status and answer of a request.
Reply = Callable[[int, Any], None]


class ClientStepRequest(StepRequest):
    """A step request of a client.

    Args:
        notify: called with it once it was answered, in the thread that has answered it.
    """

    __slots__ = ("_notify", "batch", "error")

    def __init__(self, notify: Callable[["ClientStepRequest"], None], *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._notify, self.error = notify, None
        self.batch: Batch | None = None

    def answer(self, actions: Mapping) -> None:
        self.actions, self.is_answered = actions, True
        self._notify(self)

    def fail(self, error: BaseException) -> None:
        self.error, self.is_answered = error, True
        self._notify(self)

    @property
    def ends(self) -> bool:
        """Whether the episode ends with it."""
        return self.step.is_over


class Batch:
    """The step requests of one request of a client.

    Attributes:
        answer: function of them, once all are answered, which gives the answer to the request.
        request: that it belongs to.
    """

    __slots__ = ("answer", "num_open", "request", "step_requests")

    def __init__(
        self, step_requests: "list[ClientStepRequest] | list[Replay]", answer: Callable[[list], dict[str, Any]]
    ):
        self.step_requests, self.answer, self.num_open = step_requests, answer, len(step_requests)
        self.request: PendingRequest | None = None
        for step_request in step_requests:
            step_request.batch = self


class PendingRequest:
    """A request that was accepted.

    Attributes:
        client, number: of it; "" for a request without a number.
        content: hash of its path and body, which are the same where it is repeated.
        batch: its step requests that are to be answered; None where there are none, or all are answered.
        answer: status and answer, once they are there.
        replies: what waits for the answer, each with the time until which it may wait (s).
        last_seen: when it was sent last (s).
        concluded: when the step requests were answered (s).
    """

    __slots__ = ("answer", "batch", "client", "concluded", "content", "last_seen", "number", "replies")

    def __init__(self, client: str, number: int, content: int):
        self.client, self.number, self.content = client, number, content
        self.batch: Batch | None = None
        self.answer: tuple[int, Any] | None = None
        self.replies: list[tuple[float, Reply]] = []
        self.last_seen, self.concluded = time.monotonic(), 0.0


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
        self._clients: dict[str, PendingRequest] = {}  # those that were seen last are the last
        self._waiting: dict[PendingRequest, None] = {}  # requests that have replies
        self._retries_until = 0.0  # until then clients ask again whose requests have expired (s)

    @property
    def num_clients(self) -> int:
        """Number of clients, of those whose requests have numbers, that have asked and are remembered."""
        return len(self._clients)

    @property
    def longest_reap_interval_s(self) -> float:
        """Longest interval between calls of `expire` (seconds)."""
        return LONG_POLL_S / 4

    def is_waiting(self, client: str) -> bool:
        """Whether the newest request of a client is not answered."""
        pending = self._clients.get(client)
        return pending is not None and pending.answer is None

    def expects_clients(self, since: float) -> bool:
        """Whether clients are likely to ask soon: they wait, repeat, or were seen or answered since a time (s).

        One that was silent before is gone, or in a long step.
        """
        return time.monotonic() <= self._retries_until or any(
            pending.answer is None or max(pending.last_seen, pending.concluded) > since
            for pending in list(self._clients.values())
        )

    def expect_retry(self) -> None:
        """Notes that a client was told to ask again."""
        self._retries_until = time.monotonic() + _RETRY_S

    def deduplicate(self, request: Numbered, content: int, handle: Callable[[Any], Any], reply: Reply) -> None:
        """Replies to a request; to one that is repeated, with the answer of the first time.

        A reply that waits for LONG_POLL_S is 503, and the client asks again.

        Args:
            request: of a client, or without a name and a number.
            content: hash of its path and body.
            handle: function of the request, called once; gives the answer, or the step requests that give it.
            reply: called once.

        Raises:
            BadRequest: for a number that is none or was used for another request, and for one client too many.
        """
        if not request.client:
            pending = PendingRequest("", 0, content)
            self._accept(pending, request, handle)
            self._reply(pending, reply, ACTION_TIMEOUT_S)
            return
        if request.seq < 1:
            raise BadRequest(422, "a request with a client needs seq, its number, which counts from 1")
        pending = self._clients.pop(request.client, None)
        if pending is not None:
            self._clients[request.client] = pending  # behind those that were seen earlier
            pending.last_seen = time.monotonic()
            if request.seq < pending.number:
                raise BadRequest(
                    409, f"client {request.client:.40} has sent number {pending.number} already, and now {request.seq}"
                )
            if request.seq == pending.number and content != pending.content:
                raise BadRequest(
                    409,
                    f"client {request.client:.40} has sent another request with number {request.seq}; only the same "
                    "may be sent again",
                )
        elif len(self._clients) >= self._max_clients:
            self._forget_oldest_client()
        if pending is None or request.seq != pending.number:
            pending = self._clients[request.client] = PendingRequest(request.client, request.seq, content)
            self._accept(pending, request, handle)
        self._reply(pending, reply, LONG_POLL_S)

    def _accept(self, pending: PendingRequest, request: Numbered, handle: Callable[[Any], Any]) -> None:
        try:
            answer = handle(request)
        except Exception as error:
            pending.answer = refusal(error)
            return
        if not isinstance(answer, Batch):
            pending.answer = 200, answer
            return
        answer.request, pending.batch = pending, answer
        if not answer.num_open:  # the run has ended
            self._conclude(answer)

    def _reply(self, pending: PendingRequest, reply: Reply, limit_s: float) -> None:
        """Replies, now or when the answer is there."""
        if pending.answer is None:
            pending.replies.append((time.monotonic() + limit_s, reply))
            self._waiting[pending] = None
            return
        status, answer = pending.answer
        if pending.client and status == 503:  # the client asks again, except after the end of the run
            self._clients.pop(pending.client, None)
        reply(status, answer)

    def accept_answer(self, batch: Batch) -> None:
        """Notes that one more step request of a request is answered; replies after the last."""
        batch.num_open -= 1
        if not batch.num_open and batch.request is not None:
            self._conclude(batch)

    def _conclude(self, batch: Batch) -> None:
        """Answers the request whose step requests are all answered."""
        pending = batch.request
        try:
            pending.answer = 200, batch.answer(batch.step_requests)
        except Exception as error:
            pending.answer = refusal(error)
        pending.batch, pending.concluded = None, time.monotonic()  # without the observations
        replies, pending.replies = pending.replies, []
        self._waiting.pop(pending, None)
        for _, reply in replies:
            self._reply(pending, reply, LONG_POLL_S)

    def expire(self, now: float, withdraw: Callable[[Batch], None]) -> None:
        """Replies 503 to requests that have waited for too long at a time (s).

        Args:
            now: the time.
            withdraw: called with the step requests of each that cannot be asked for again.
        """
        for pending in [each for each in self._waiting if each.replies[0][0] <= now]:
            late = [reply for until, reply in pending.replies if until <= now]
            pending.replies = pending.replies[len(late) :]
            if not pending.replies:
                del self._waiting[pending]
                if not pending.client:
                    withdraw(pending.batch)
            self._retries_until = now + _RETRY_S
            for reply in late:
                reply(503, {"error": _NOT_NOW if pending.client else _NOT_FOR_LONG})

    def forget_idle_clients(self, limit: float) -> None:
        """Forgets clients that were not seen since this time (s) and wait for nothing."""
        idle = list(itertools.takewhile(lambda client: client[1].last_seen < limit, self._clients.items()))
        for name, pending in idle:
            if pending.answer is not None and self._forget(name):
                del self._clients[name]

    def _forget_oldest_client(self) -> None:
        """Forgets the client that was last seen the longest ago and waits for nothing.

        Raises:
            BadRequest: if all wait.
        """
        for name, pending in self._clients.items():
            if pending.answer is not None:
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
