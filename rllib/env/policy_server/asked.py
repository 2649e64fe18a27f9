"""Requests to a policy server that are under way, and the turns of which each is made."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from rllib.env.external.exchange import Turn
from rllib.env.policy_server.samples import Replay

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
