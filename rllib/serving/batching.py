"""Batches requests that arrive together, and answers them by one forward pass."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rllib.errors import NoActionError
from rllib.serving.counts import Counts
from rllib.serving.loaded_policy import LoadedPolicy
from rllib.serving.messages import Question
from rllib.serving.model import Served, act
from rllib.web.bodies import BadRequest

Receive = Callable[[], Awaitable[dict[str, Any]]]


class Waiting:
    """A question in the queue.

    Args:
        question: observations, with states for a policy with a memory.
        receive: ASGI function of its request, which shows whether the client has hung up.
        answer: future of (actions, states, policy version), of None if the client has hung up, or a BadRequest.
    """

    __slots__ = ("answer", "count", "question", "receive")

    def __init__(self, question: Question, receive: Receive, answer: asyncio.Future):
        self.question, self.receive, self.answer = question, receive, answer
        self.count = len(question.observations)


class Batcher:
    """A bounded queue of questions that is emptied in batches.

    A batch consists of the questions that have arrived when the event loop comes to it; the next one gathers while it
    is computed. Only the event loop uses the queue. At most one batch is computed at a time: in the loop itself for a
    quick policy, else in a thread.

    Args:
        served: the policy that acts.
        counts: counts of the server.
        max_batch, max_wait_s, max_queue: as for ServingSettings; in seconds.
    """

    def __init__(self, served: Served, counts: Counts, max_batch: int, max_wait_s: float, max_queue: int):
        self._served, self._counts = served, counts
        self._max_batch, self._max_wait_s, self._max_queue = max_batch, max_wait_s, max_queue
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Waiting] = deque()
        self._length = 0  # observations in the queue
        self._is_computing = False
        self._timer: asyncio.Handle | None = None
        self._thread = None if served.is_quick else ThreadPoolExecutor(1, "forward pass")

    def ask(self, question: Question, receive: Receive) -> asyncio.Future:
        """Puts a question into the queue.

        Returns:
            the future `Waiting.answer`.

        Raises:
            BadRequest: if the queue is full.
        """
        waiting = Waiting(question, receive, self._loop.create_future())
        if self._length + waiting.count > self._max_queue:
            if waiting.count > self._max_queue:
                raise BadRequest(413, f"{waiting.count} observations are too many: the queue holds {self._max_queue}")
            raise BadRequest(503, f"{self._length} observations are waiting already; try again")
        self._queue.append(waiting)
        self._length += waiting.count
        self._counts.add("queue_length", waiting.count)
        self._schedule()
        return waiting.answer

    def _schedule(self) -> None:
        """Schedules the next batch: at once if it is full, else when its waiting time is over."""
        if self._is_computing or not self._queue:
            return
        if self._timer is None:
            wait = self._max_wait_s if self._length < self._max_batch else 0.0
            self._timer = self._loop.call_later(wait, self._run) if wait else self._loop.call_soon(self._run)
        elif self._max_wait_s and self._length >= self._max_batch:
            self._timer.cancel()
            self._timer = self._loop.call_soon(self._run)

    def _run(self) -> None:
        """Computes one batch."""
        self._timer = None
        batch = list(self._taken())
        if not batch:
            return self._schedule()
        self._is_computing = True
        policy = self._served.policy
        if self._thread is None:
            return self._finish(batch, _answers(policy, batch), policy.policy_version)
        computing = self._loop.run_in_executor(self._thread, _answers, policy, batch)
        computing.add_done_callback(lambda done: self._finish(batch, done.result(), policy.policy_version))

    def _taken(self) -> Iterator[Waiting]:
        """Takes the next batch out of the queue, without the questions of clients that have hung up."""
        room = self._max_batch
        while self._queue and (self._queue[0].count <= room or room == self._max_batch):
            waiting = self._queue.popleft()
            self._length -= waiting.count
            self._counts.add("queue_length", -waiting.count)
            if has_gone(waiting.receive):
                self._counts.add("dropped")
                waiting.answer.set_result(None)
            else:
                room -= waiting.count
                yield waiting

    def _finish(self, batch: Sequence[Waiting], answers: Sequence, version: int) -> None:
        self._is_computing = False
        self._counts.computed(sum(waiting.count for waiting in batch))
        for waiting, answer in zip(batch, answers, strict=True):
            if waiting.answer.cancelled():
                continue
            if isinstance(answer, BaseException):
                waiting.answer.set_exception(answer)
            else:
                waiting.answer.set_result((*answer, version))
        self._schedule()


def has_gone(receive: Receive) -> bool:
    """Whether the client of a request whose body has been read has hung up.

    The next message of ASGI would say so. One step of `receive` shows whether it has arrived; a coroutine that waits
    is closed again.
    """
    waiting = receive().__await__()
    try:
        next(waiting)
    except StopIteration as arrived:
        return arrived.value["type"] == "http.disconnect"
    waiting.close()
    return False


def _answers(policy: LoadedPolicy, batch: Sequence[Waiting]) -> list:
    """(actions, states) or an exception for each question; nothing is raised, since that would stop the queue."""
    answers: list = [None] * len(batch)
    for explore in (False, True):
        chosen = [index for index, waiting in enumerate(batch) if waiting.question.explore == explore]
        found = _found(policy, [batch[index].question for index in chosen], explore) if chosen else []
        for index, answer in zip(chosen, found, strict=True):
            answers[index] = answer
    return answers


def _found(policy: LoadedPolicy, questions: Sequence[Question], explore: bool) -> list:
    """(actions, states) or an exception for each question."""
    try:
        return list(_of_each(act(policy, _joined(questions, explore)), questions))
    except Exception:  # separate passes show which question raised it
        return [_alone(policy, question) for question in questions]


def _joined(questions: Sequence[Question], explore: bool) -> Question:
    """Joins questions; a part that only some of them have is None for the others."""
    if len(questions) == 1:
        return questions[0]
    lists = []
    for name in Question.LISTS:
        given = [getattr(question, name) for question in questions]
        if all(each is None for each in given):
            lists.append(None)
        else:
            pairs = zip(questions, given)
            lists.append([item for one, each in pairs for item in each or [None] * len(one.observations)])
    return Question([row for question in questions for row in question.observations], explore, *lists)


def _of_each(answer: tuple, questions: Sequence[Question]) -> Iterator[tuple]:
    actions, states = answer
    first = 0
    for question in questions:
        last = first + len(question.observations)
        yield actions[first:last], states and states[first:last]
        first = last


def _alone(policy: LoadedPolicy, question: Question):
    """(actions, states) or an exception for a question, by a separate pass."""
    try:
        return act(policy, question)
    except ValueError as error:
        return BadRequest(422, _message(policy, question, error))
    except Exception as error:
        return error


def _message(policy: LoadedPolicy, question: Question, error: ValueError) -> str:
    """Error message of a question, with the index of the wrong one of several observations."""
    first, last = 0, len(question.observations)  # the first wrong one lies between
    while last - first > 1:
        middle = (first + last) // 2
        try:
            act(policy, question.part(first, middle))
            first = middle
        except ValueError as own:
            last, error = middle, own
    if len(question.observations) == 1:
        return _said(error)
    try:
        act(policy, question.part(first, last))
    except ValueError as own:
        error = own
    return f"observation {first} of {len(question.observations)}: {_said(error)}"


def _said(error: ValueError) -> str:
    """The error for clients, which may be in any language: without advice for Python."""
    return error.problem if isinstance(error, NoActionError) else str(error)
