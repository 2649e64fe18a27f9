"""Pending requests to a policy server: each is answered once, after all of its step requests."""

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

# Seconds after which a waiting request is answered with 503, so that its client knows that the server is alive.
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
        notify: called with the step request once it was answered, in the thread that answered it.
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
        """Whether the episode ends with this step request."""
        return self.step.is_over


class Batch:
    """The step requests of one request of a client.

    Attributes:
        answer: function of the answered step requests that returns the answer to the request.
        request: the pending request.
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
        client, number: name of the client ("" for a request without a number) and number of the request.
        content: hash of path and body, which are equal if the request is repeated.
        batch: step requests without an answer; None if there are none, or all are answered.
        answer: status and answer; None until they are known.
        replies: (time limit (s), function that sends the answer) of each transmission that waits for the answer.
        last_seen: time of the request's last transmission (s).
        concluded: time at which the step requests were answered (s).
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

    A repeated request with a number gets the answer of the first one. All methods except `num_clients` and
    `expects_clients` are called in the thread of the transport.

    Args:
        max_clients: largest number of clients that are kept.
        forget: function of a client's name, called before it is forgotten; returns False if its data is still needed.
    """

    def __init__(self, max_clients: int, forget: Callable[[str], bool]):
        self._max_clients, self._forget = max_clients, forget
        self._clients: dict[str, PendingRequest] = {}  # ordered by the time at which clients were last seen
        self._waiting: dict[PendingRequest, None] = {}  # requests that have replies
        self._retries_until = 0.0  # time until which clients repeat their expired requests (s)

    @property
    def num_clients(self) -> int:
        """Number of known clients whose requests have numbers."""
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
        """Whether requests are likely to come soon: clients wait, repeat requests, or were active since a time (s).

        A client that has been silent since this time is gone, or in a long step.
        """
        return time.monotonic() <= self._retries_until or any(
            pending.answer is None or max(pending.last_seen, pending.concluded) > since
            for pending in list(self._clients.values())
        )

    def expect_retry(self) -> None:
        """Records that the client was asked to send the request again."""
        self._retries_until = time.monotonic() + _RETRY_S

    def deduplicate(self, request: Numbered, content: int, handle: Callable[[Any], Any], reply: Reply) -> None:
        """Replies to a request; to a repeated one with the answer of the first.

        After LONG_POLL_S without an answer the reply is 503, and the client repeats the request.

        Args:
            request: a request with name and number of a client, or without both.
            content: hash of path and body.
            handle: function of the request, called once; returns the answer, or the Batch that provides it.
            reply: sends status and answer; called once.

        Raises:
            BadRequest: for an invalid number, a number of another request, and too many clients.
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
            self._clients[request.client] = pending  # moved to the end, as the client seen last
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
        """Replies now, or once the answer is known."""
        if pending.answer is None:
            pending.replies.append((time.monotonic() + limit_s, reply))
            self._waiting[pending] = None
            return
        status, answer = pending.answer
        if pending.client and status == 503:  # the client asks again, except after the end of the run
            self._clients.pop(pending.client, None)
        reply(status, answer)

    def accept_answer(self, batch: Batch) -> None:
        """Counts an answered step request of a batch; replies after the last one."""
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
        pending.batch, pending.concluded = None, time.monotonic()  # frees the observations
        replies, pending.replies = pending.replies, []
        self._waiting.pop(pending, None)
        for _, reply in replies:
            self._reply(pending, reply, LONG_POLL_S)

    def expire(self, now: float, withdraw: Callable[[Batch], None]) -> None:
        """Replies 503 to requests whose time limit has passed.

        Args:
            now: the present time (s).
            withdraw: called with the batch of each such request that cannot be repeated, as it has no number.
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
        """Forgets clients that were not seen since this time (s) and do not wait for an answer."""
        idle = list(itertools.takewhile(lambda client: client[1].last_seen < limit, self._clients.items()))
        for name, pending in idle:
            if pending.answer is not None and self._forget(name):
                del self._clients[name]

    def _forget_oldest_client(self) -> None:
        """Forgets the client that was silent for the longest time and does not wait for an answer.

        Raises:
            BadRequest: if all clients wait.
        """
        for name, pending in self._clients.items():
            if pending.answer is not None:
                del self._clients[name]
                self._forget(name)
                return
        raise BadRequest(429, f"there are {len(self._clients)} clients, and max_clients={self._max_clients}")


def refusal(error: Exception) -> tuple[int, dict[str, Any]]:
    """Status and answer of a request that failed with this error."""
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
