"""Queue of requests between external episode loops and the rollout worker (flat combining)."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.env.multi_agent.stream import AgentStep
from rllib.errors import RLlibError

# A step request waits for requests of other loops until none has come for this time (seconds).
_QUIET_S = 0.0005
# Interval of checks whether another thread has finished its round of answers, after the time-out (seconds).
_LOOK_S = 0.01


class EpisodeLost(RLlibError):
    """An episode of an external environment cannot continue: its worker or its run was restored or has started over.

    The loop must begin a new one with `start_episode`.
    """


class AgentRefused(RLlibError, ValueError):
    """An agent has no policy, since the user's mapping raises for its name. Its episode is void."""


class RunEnded(RLlibError):
    """The run that an external environment samples for has ended."""


class StepRequest:
    """A part of an episode: the outcome of the newest actions, and the observations to act on next.

    Args:
        episode_id: id of the episode.
        step: the newest observations, and the rewards since the last step request; `is_over`: the episode has ended.
        logged: agent -> action that the policy has not chosen; None: the policy chooses the actions.
        trains: whether the episode's steps become rows.
        is_first: whether it is the episode's first step request.
        is_void: whether the episode is given up, so that the outcome of the last actions is unknown.

    Attributes:
        actions: agent -> action, once the step request was answered.
        acted: the action that a client has chosen by its copy of the policy (samples.py: Acted); None: the policy
            chooses it.
        is_answered: whether the step request was answered, or has failed.
        is_withdrawn: whether its loop no longer waits; a withdrawn request is skipped.
    """

    __slots__ = (
        "_claimed",
        "_done",
        "_error",
        "actions",
        "episode_id",
        "is_answered",
        "is_first",
        "is_void",
        "is_withdrawn",
        "logged",
        "step",
        "trains",
    )

    acted: Any = None
    # Number of requests, from this one on, that a worker may accept together, as their outcomes are known (samples.py:
    # Replay.run).
    run_length = 0

    def __init__(
        self,
        episode_id: str,
        step: AgentStep,
        logged: Mapping[AgentID, Any] | None = None,
        trains: bool = True,
        is_first: bool = False,
        is_void: bool = False,
    ):
        self.episode_id, self.step, self.logged = episode_id, step, logged
        self.trains, self.is_first, self.is_void = trains, is_first, is_void
        self.is_answered = self.is_withdrawn = False
        self.actions: Mapping[AgentID, Any] | None = None
        self._error: BaseException | None = None
        # Held until the request is answered: a lock is the cheapest object that a thread can wait for with a time-out.
        self._done = threading.Lock()
        self._done.acquire()
        self._claimed = threading.Lock()

    def claim(self) -> bool:
        """Claims the request, to answer it (worker) or to withdraw it (loop). Returns False if already claimed."""
        return self._claimed.acquire(blocking=False)

    def put_back(self) -> None:
        """Releases the claim: the worker answers the request later, and until then its loop may withdraw it."""
        self._claimed.release()

    def following(self) -> "StepRequest | None":
        """The episode's next step request after this answered or failed one; None if it has not come yet."""
        return None

    def answer(self, actions: Mapping[AgentID, Any]) -> None:
        """Returns the actions to the waiting loop."""
        self.actions, self.is_answered = actions, True
        self._done.release()

    def fail(self, error: BaseException) -> None:
        """Raises this error in the waiting loop."""
        self._error, self.is_answered = error, True
        self._done.release()

    def wait(self, timeout_s: float) -> bool:
        """Waits for the answer; returns False if there is none in time.

        Raises:
            the error that was passed to `fail`.
        """
        if not self._done.acquire(timeout=timeout_s):
            return False
        if self._error is not None:
            raise self._error
        return True


class Exchange:
    """Step requests of all episodes of one external environment, from any number of threads to one worker.

    While the worker samples, a thread that submits step requests answers them itself, with those of all others (flat
    combining: Hendler, Incze, Shavit and Tzafrir, 2010): a request then costs no switch to the worker's thread and
    back. One thread at a time answers. The worker's own thread answers the requests that other threads leave.

    Attributes:
        error: error of every further step request, once no worker answers; None before.
    """

    def __init__(self):
        self.error: BaseException | None = None
        self._requests: deque[StepRequest] = deque()
        self._left: deque[StepRequest] = deque()  # left to the worker's thread
        self._worker: int | None = None  # identity of that thread
        self._answering = threading.Lock()  # held by the thread that answers
        self._answer: Callable[[list[StepRequest]], bool] | None = None  # the worker's function, while it samples
        self._failure: BaseException | None = None  # exception that `_answer` raised
        # Rounds of answers: their number, the time of the last one, and the number of step requests expected next.
        self._num_rounds, self._newest, self._expected = 0, 0.0, 1
        self._bell = threading.Lock()  # released to wake the worker's thread
        self._bell.acquire()
        self._is_watched = self._is_woken = False

    # ------------------------------------------------------------------ called by loops

    def submit(self, request: StepRequest) -> None:
        """Submits a step request to the worker; it fails with `error` if no worker answers any more."""
        self._requests.append(request)
        if self.error is not None:
            self._fail_all()

    def submit_to_worker(self, request: StepRequest) -> None:
        """Submits a step request that the worker's own thread answers, as many follow it; errors as for `submit`."""
        self._left.append(request)
        self._ring()
        if self.error is not None:
            self._fail_all()

    def answer_waiting(self) -> None:
        """Answers all waiting step requests in this thread, while the worker samples and no other thread answers."""
        while self._requests and self._answer_once():
            pass

    def take_part(self) -> None:
        """Called after `submit` by one of several threads; the last one of a round answers all step requests.

        The round is complete with as many requests as the previous round answered. If a thread takes longer, the
        worker's thread answers the requests of the others.
        """
        if self._answer is None:
            return
        if len(self._requests) >= self._expected and self._answer_once() and not self._requests:
            return
        if not self._is_watched:
            self._is_watched = True
            self._ring()

    # ------------------------------------------------------------------ called by the worker

    def serve(self, answer: Callable[[list[StepRequest]], bool], timeout_s: float) -> bool:
        """Has step requests answered until `answer` returns True.

        Args:
            answer: function of the waiting requests, in the order in which they came; returns whether to stop. It is
                called in this thread or in threads that submit step requests, by one thread at a time.
            timeout_s: longest time without step requests (seconds).

        Returns:
            whether `answer` returned True; False if no step requests came in time, or `wake` was called.

        Raises:
            the exception of `answer`.
        """
        self._worker = threading.get_ident()
        self._newest, self._failure, self._answer = time.monotonic(), None, answer
        try:
            self._answer_once()
            while self._answer is not None and not self._is_woken:
                if self._left:
                    self._answer_once(waits=True)
                    continue
                if self._requests:
                    self._answer_stragglers()
                    continue
                self._is_watched = False
                if self._requests:  # submitted before the line above
                    continue
                left_s = self._newest + timeout_s - time.monotonic()
                if left_s <= 0 and not self._answering.locked():
                    break
                self._bell.acquire(timeout=max(left_s, _LOOK_S))
        finally:
            with self._answering:
                is_enough, self._answer = self._answer is None, None
            self._is_woken = False
        if self._failure is not None:
            raise self._failure
        return is_enough

    def arrived(self) -> list[StepRequest]:
        """Takes the step requests that have come since `answer` was called; for use within `answer`."""
        return self._drained()

    def num_waiting(self) -> int:
        """Approximate number of step requests that no thread has taken yet."""
        return len(self._requests) + len(self._left)

    def wake(self) -> None:
        """Ends the present call of `serve`, or the next."""
        self._is_woken = True
        self._ring()

    def end(self, error: BaseException) -> None:
        """Fails all waiting and all further step requests with this error."""
        self.error = error
        self._fail_all()

    # ------------------------------------------------------------------ rounds

    def _answer_once(self, waits: bool = False) -> bool:
        """Answers the waiting step requests.

        Args:
            waits: whether to wait while another thread answers.

        Returns:
            whether the worker samples, and no other thread was answering.
        """
        if not self._answering.acquire(blocking=waits):
            return False
        try:
            if self._answer is None:
                return False
            requests = self._drained()
            try:
                is_enough = bool(requests) and self._answer(requests)
            except BaseException as error:  # raised in the worker's thread
                self._failure, is_enough = error, True
            if requests:
                self._expected = max(sum([request.is_answered for request in requests]), 1)
                self._num_rounds, self._newest = self._num_rounds + 1, time.monotonic()
            if is_enough:
                self._answer = None
                self._ring()
        finally:
            self._answering.release()
        return True

    def _answer_stragglers(self) -> None:
        """Answers the waiting step requests if no further one comes for _QUIET_S."""
        count, rounds = len(self._requests), self._num_rounds
        time.sleep(_QUIET_S)
        if (count, rounds) == (len(self._requests), self._num_rounds):
            self._answer_once()

    def _drained(self) -> list[StepRequest]:
        """Takes the step requests that this thread may answer."""
        requests = _all_of(self._requests)
        if self._left and threading.get_ident() == self._worker:
            requests += _all_of(self._left)
        return requests

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # already released
            self._bell.release()

    def _fail_all(self) -> None:
        while requests := _all_of(self._requests) + _all_of(self._left):
            fail_all(requests, lambda request: self.error)


def _all_of(requests: deque[StepRequest]) -> list[StepRequest]:
    taken = []
    try:
        while True:
            taken.append(requests.popleft())
    except IndexError:
        return taken


def fail_all(requests: Iterable[StepRequest], error_of: Callable[[StepRequest], BaseException]) -> None:
    """Raises errors in the loops that wait for these step requests or for requests that follow them."""
    for request in requests:
        following: StepRequest | None = request
        while following is not None:
            if not following.is_answered:
                following.fail(error_of(following))
            following = following.following()
