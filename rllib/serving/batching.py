"""Requests that have arrived together are answered by one forward pass."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rllib.serving.counts import Counts
from rllib.serving.loaded_policy import LoadedPolicy
from rllib.serving.messages import BadRequest, Question
from rllib.serving.model import Model, act

Receive = Callable[[], Awaitable[dict[str, Any]]]


class Waiting:
    """A question in the queue.

    Args:
        question: the observations, and states where there are any.
        receive: of its request, which says whether the client has gone.
        answer: receives (actions, states, policy version), None if the client has gone, or a BadRequest.
    """

    __slots__ = ("answer", "count", "question", "receive")

    def __init__(self, question: Question, receive: Receive, answer: asyncio.Future):
        self.question, self.receive, self.answer = question, receive, answer
        self.count = len(question.observations)


class Batcher:
    """The bounded queue of questions, and what empties it.

    A batch is what has arrived when the event loop comes round to it: while one is computed, the next one gathers. The
    queue is only touched in the event loop; at most one batch is being computed, in the loop itself where the policy is
    quick, else in a thread.

    Args:
        model: has the policy that acts.
        counts: of the server.
        max_batch, max_wait_s, max_queue: as for ServingSettings; in seconds.
    """

    def __init__(self, model: Model, counts: Counts, max_batch: int, max_wait_s: float, max_queue: int):
        self._model, self._counts = model, counts
        self._max_batch, self._max_wait_s, self._max_queue = max_batch, max_wait_s, max_queue
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Waiting] = deque()
        self._length = 0  # observations in the queue
        self._is_computing = False
        self._timer: asyncio.Handle | None = None
        self._thread = None if model.is_quick else ThreadPoolExecutor(1, "forward pass")

    def ask(self, question: Question, receive: Receive) -> asyncio.Future:
        """Puts a question into the queue.

        Returns:
            a future of what `Waiting.answer` says.

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
        self._counts.set("queue_length", self._length)
        self._schedule()
        return waiting.answer

    def _schedule(self) -> None:
        """Sees to it that the queue is emptied: now where a batch is full, else when its time is up."""
        if self._is_computing or not self._queue:
            return
        if self._timer is None:
            wait = self._max_wait_s if self._length < self._max_batch else 0.0
            self._timer = self._loop.call_later(wait, self._run) if wait else self._loop.call_soon(self._run)
        elif self._max_wait_s and self._length >= self._max_batch:
            self._timer.cancel()
            self._timer = self._loop.call_soon(self._run)

    def _run(self) -> None:
        """One batch."""
        self._timer = None
        batch = list(self._taken())
        self._counts.set("queue_length", self._length)
        if not batch:
            return self._schedule()
        self._is_computing = True
        policy = self._model.policy
        if self._thread is None:
            return self._finish(batch, _answers(policy, batch), policy.policy_version)
        computing = self._loop.run_in_executor(self._thread, _answers, policy, batch)
        computing.add_done_callback(lambda done: self._finish(batch, done.result(), policy.policy_version))

    def _taken(self) -> Iterator[Waiting]:
        """Takes the next batch out of the queue, without the questions of clients that have gone."""
        room = self._max_batch
        while self._queue and (self._queue[0].count <= room or room == self._max_batch):
            waiting = self._queue.popleft()
            self._length -= waiting.count
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

    The next message would be that it has. One step of `receive` shows whether it is there already; a coroutine that
    waits is closed again.
    """
    waiting = receive().__await__()
    try:
        next(waiting)
    except StopIteration as arrived:
        return arrived.value["type"] == "http.disconnect"
    waiting.close()
    return False


def _answers(policy: LoadedPolicy, batch: Sequence[Waiting]) -> list:
    """For each of the batch (actions, states) or an exception; nothing is raised, or the queue would stand still."""
    answers: list = [None] * len(batch)
    for explore in (False, True):
        chosen = [index for index, waiting in enumerate(batch) if waiting.question.explore == explore]
        found = _found(policy, [batch[index].question for index in chosen], explore) if chosen else []
        for index, answer in zip(chosen, found, strict=True):
            answers[index] = answer
    return answers


def _found(policy: LoadedPolicy, questions: Sequence[Question], explore: bool) -> list:
    """For each of them (actions, states) or an exception."""
    try:
        return list(_of_each(act(policy, _joined(questions, explore)), questions))
    except Exception:  # of one of them; which one shows when each is asked alone
        return [_alone(policy, question) for question in questions]


def _joined(questions: Sequence[Question], explore: bool) -> Question:
    """All of them as one; a part that some have not is None for these."""
    if len(questions) == 1:
        return questions[0]
    lists = []
    for name in ("states", "masks", "prev_actions", "prev_rewards"):
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
    """(actions, states) of a question by a separate pass, or the exception."""
    try:
        return act(policy, question)
    except ValueError as error:
        return BadRequest(422, _message(policy, question, error))
    except Exception as error:
        return error


def _message(policy: LoadedPolicy, question: Question, error: ValueError) -> str:
    """What is wrong, and with which of several observations."""
    first, last = 0, len(question.observations)  # the first wrong one lies between
    while last - first > 1:
        middle = (first + last) // 2
        try:
            act(policy, question.part(first, middle))
            first = middle
        except ValueError as own:
            last, error = middle, own
    if len(question.observations) == 1:
        return str(error)
    try:
        act(policy, question.part(first, last))
    except ValueError as own:
        error = own
    return f"observation {first} of {len(question.observations)}: {error}"
