"""The place where loops outside of a worker hand over what has happened in their episodes, and wait for actions."""

import queue
import threading
from collections.abc import Mapping
from typing import Any

from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.env.multi_agent.stream import AgentStep
from rllib.errors import RLlibError


class EpisodeLost(RLlibError):
    """An episode of an external environment that cannot go on: its worker or its run was restored or has started over.

    A loop goes on with `start_episode`.
    """


class RunEnded(RLlibError):
    """The run that an external environment samples for has ended."""


class Turn:
    """A part of an episode: the outcome of the newest actions, and the observations to act on next.

    Args:
        episode_id: of the episode.
        step: its newest observations, and the rewards since the last turn; `is_over` says that it has ended.
        logged: actions that somebody else has chosen, by agent; None: the policy is asked.
        trains: whether its steps become rows.
        is_first: whether it is the episode's first turn.
        is_void: whether nobody knows what has followed the last actions: the episode is given up.

    Attributes:
        actions: agent -> action, once the turn was answered.
        is_answered: whether it was answered, or has failed.
        is_withdrawn: whether its loop waits no longer, so that it has not happened.
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
        # Held until the turn was answered: a lock is the cheapest thing that a thread can wait for with a limit.
        self._done = threading.Lock()
        self._done.acquire()
        self._claimed = threading.Lock()

    def claim(self) -> bool:
        """Takes the turn for good: the worker, to answer it, or its loop, to withdraw it. The second gets False."""
        return self._claimed.acquire(blocking=False)

    def answer(self, actions: Mapping[AgentID, Any]) -> None:
        """Gives the actions to the loop that waits."""
        self.actions, self.is_answered = actions, True
        self._done.release()

    def fail(self, error: BaseException) -> None:
        """Raises this error in the loop that waits."""
        self._error, self.is_answered = error, True
        self._done.release()

    def wait(self, timeout_s: float) -> bool:
        """Waits for the answer; False if there is none in time.

        Raises:
            the error of `fail`.
        """
        if not self._done.acquire(timeout=timeout_s):
            return False
        if self._error is not None:
            raise self._error
        return True


class Exchange:
    """Turns of all episodes of one external environment, from any number of threads to one worker.

    Attributes:
        error: of every turn, once there is nobody who answers; before, None.
    """

    def __init__(self):
        self._turns: queue.SimpleQueue[Turn | None] = queue.SimpleQueue()
        self.error: BaseException | None = None

    def hand_over(self, turn: Turn) -> None:
        """Hands a turn over to the worker.

        Raises:
            RunEnded: if there will be no answer.
        """
        self._turns.put(turn)
        if self.error is not None:
            self._fail_all()

    def take(self, timeout_s: float) -> list[Turn]:
        """All turns that wait; waits for the first.

        Returns:
            the turns in the order in which they came; [] if there is none in time, or `wake` was called.
        """
        turns, timeout = [], timeout_s
        try:
            while True:
                turn = self._turns.get(timeout=timeout) if timeout else self._turns.get_nowait()
                if turn is not None:
                    turns.append(turn)
                timeout = 0.0
        except queue.Empty:
            pass
        return turns

    def num_waiting(self) -> int:
        """Approximate number of turns that nobody has taken yet."""
        return self._turns.qsize()

    def wake(self) -> None:
        """Ends the present `take`."""
        self._turns.put(None)

    def end(self, error: BaseException) -> None:
        """Answers all turns that wait, and those to come, with this error."""
        self.error = error
        self._fail_all()

    def _fail_all(self) -> None:
        for turn in self.take(0.0):
            turn.fail(self.error)
