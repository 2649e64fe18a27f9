"""A fleet: actors that are made by one recipe, asked all at once or each at its own pace, and replaced when they fail.

    fleet = Fleet(lambda index, incarnation: Worker.remote(index), range(4), kind="worker")
    fleet.ask_all(lambda worker, index: worker.step.remote())       # {0: answer, 1: answer, ...}
    fleet.ask_most(lambda worker, index: worker.step.remote(), lambda members: members - 1)  # the first three answers
    fleet.keep_in_flight(lambda worker, index: worker.step.remote(), 2)
    fleet.take(timeout_s=1.0)                                       # [Answer(index, value, ...), ...], as they come

An actor fails when its process dies, when it leaves a request unanswered for too long, or when its code raises. What
follows is decided by FaultTolerance: it is replaced, left out, or its failure is raised.
"""

from __future__ import annotations

import functools
import logging
import math
import re
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..api import get, kill, wait
from ..errors import (
    ActorDiedError,
    ActorError,
    ActorUnavailableError,
    GetTimeoutError,
    NodeDiedError,
    ObjectLostError,
    TaskError,
)
from ..remote.actors import ActorHandle
from ..remote.refs import ObjectRef
from ..session import before_shutdown, engine
from .closing import Closable, close_and_kill

if TYPE_CHECKING:
    from ..engines.arrivals import Arrivals

logger = logging.getLogger(__name__)

DEATHS = (ActorError, ObjectLostError)  # an answer can be lost with the node that has it
FAILURES = (*DEATHS, TaskError)
# A new actor rarely mends what made its predecessor hang: of several silences in a row, one is tolerated.
MAX_CONSECUTIVE_SILENCES = 1
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
# Of warnings alike within this time (seconds), this number is logged, and the others are counted.
_ALIKE_WITHIN_S, _MOST_ALIKE = 60.0, 10
# How long errors of the other actors that were asked the same are waited for, once one is raised (seconds).
_ALIKE_S = 1.0

Request = Callable[[ActorHandle, int], ObjectRef]


class SilentActorError(ActorUnavailableError):
    """The actor lives, but has not answered for too long."""


@dataclass(frozen=True)
class FaultTolerance:
    """Reaction to an actor that dies or falls silent (a death), or whose code raises (an exception).

    | restart | ignore | after a death | after an exception                   |
    |---------|--------|---------------|--------------------------------------|
    | None    | False  | replaced      | raised: a bug that would come back   |
    | True    | any    | replaced      | replaced                             |
    | False   | False  | raised        | raised                               |
    | else    | True   | left out      | left out                             |

    Args:
        restart: replace an actor that has failed; see the table.
        ignore: continue with the remaining actors; see the table.
        max_restarts: number of restarts of all actors together, over the whole life of the fleet.
        delay_s: pause before an actor that failed twice in a row is replaced (seconds).
        max_consecutive_failures: tolerated failures of one actor and its successors without a useful answer in between.
        silence_s: a request that has not been answered for this long is reported, after 1, 2, 4, 8 ... times as long
            again (seconds).
        patience: after this many times `silence_s` the actor counts as dead; math.inf never gives it up.
        names: field -> what the setting is called where the user sets it, for messages.
    """

    restart: bool | None = None
    ignore: bool = False
    max_restarts: int = 1000
    delay_s: float = 1.0
    max_consecutive_failures: int = 3
    silence_s: float = 60.0
    patience: float = 10
    names: Mapping[str, str] = field(default_factory=dict, compare=False)

    def replaces(self, failure: Exception) -> bool:
        """Whether an actor that failed in this way gets a successor."""
        if self.restart is None:
            return not self.ignore and not isinstance(failure, TaskError)
        return self.restart

    def name(self, setting: str) -> str:
        """The user's name of a setting."""
        return self.names.get(setting, setting)


@dataclass(eq=False)
class Member:
    """An actor and the requests that it has not answered; it answers them in order.

    Attributes:
        handle: handle of the actor.
        incarnation: number of actors that it has replaced.
        pending: (tag, reference) of each request that was sent and whose answer has not been taken, the oldest first.
        since: when the oldest of them became the oldest, of time.monotonic().
        reports: number of times that its silence at this request has been reported.
        closable: of an actor that closes what it holds before it ends; None for others.
        note_oldest: called with the reference of each request that becomes the oldest.
    """

    handle: ActorHandle
    incarnation: int = 0
    pending: deque[tuple[Any, ObjectRef]] = field(default_factory=deque)
    since: float = 0.0
    reports: int = 0
    closable: Closable | None = None
    note_oldest: Callable[[ObjectRef], None] = lambda ref: None

    def send(self, ref: ObjectRef, tag: Any = None) -> None:
        """Adds a request to the pending ones.

        Args:
            ref: reference of the answer.
            tag: any value; it comes back with the answer, or in `pending` if the actor is lost.
        """
        self.pending.append((tag, ref))
        if len(self.pending) == 1:
            self._begin_oldest()

    def pop(self) -> None:
        """Removes the oldest request; time counts for the next one from now on."""
        self.pending.popleft()
        if self.pending:
            self._begin_oldest()

    def _begin_oldest(self) -> None:
        self.since, self.reports = time.monotonic(), 0
        self.note_oldest(self.pending[0][1])


class Oldest:
    """The oldest request of each actor of a fleet that has one: a wait for them costs what arrives, not what waits.

    Attributes:
        index_of: reference of an answer -> index of the actor that it is asked of.
        arrived: references of those that are answered, and have not been taken.
    """

    def __init__(self):
        self.index_of: dict[ObjectRef, int] = {}
        self.arrived: deque[ObjectRef] = deque()
        self._arrivals: Arrivals | None = None  # made with the first request: a fleet of none needs no session

    def add(self, index: int, ref: ObjectRef) -> None:
        """Adds a request that has become the oldest of its actor."""
        if self._arrivals is None:
            self._arrivals = engine().arrivals()
        self.index_of[ref] = index
        self._arrivals.add(ref)

    def discard(self, member: Member) -> None:
        """Takes out the request of an actor that is not waited for any more."""
        if member.pending:
            ref = member.pending[0][1]
            self.index_of.pop(ref, None)
            self._arrivals.discard(ref)

    def wait(self, timeout_s: float) -> None:
        """Adds to `arrived` what has arrived; waits for the first one if nothing has."""
        self.arrived.extend(self._arrivals.take(0.0 if self.arrived else timeout_s))


class Answer(NamedTuple):
    """The answer to one request.

    Attributes:
        index, incarnation: index and incarnation of the actor that gave it.
        value: what the request returned.
        tag: of the request, as given to `Member.send`.
    """

    index: int
    value: Any
    tag: Any
    incarnation: int


class CountedWarnings:
    """Warnings about the actors of a fleet: of many alike the first ones are logged, then the number of the others.

    Args:
        logger: logs them.
        kind: what an actor is called.
    """

    def __init__(self, logger: logging.Logger, kind: str):
        self._logger, self._kind = logger, kind
        self._counts: dict[str, tuple[float, int]] = {}  # what happens -> since when, and how often

    def warn(self, what: str, message: str, *arguments) -> None:
        """Logs a message, or counts it among those that say the same of others: `what`, such as "are replaced"."""
        self.flush()
        since, count = self._counts.get(what, (time.monotonic(), 0))
        self._counts[what] = since, count + 1
        if count < _MOST_ALIKE:
            self._logger.warning(message, *arguments)

    def flush(self, at_end: bool = False) -> None:
        """Logs the numbers whose time is over."""
        now = time.monotonic()
        for what, (since, count) in list(self._counts.items()):
            if at_end or now - since >= _ALIKE_WITHIN_S:
                del self._counts[what]
                if count > _MOST_ALIKE:
                    more = count - _MOST_ALIKE
                    self._logger.warning("%d more %ss %s, within %.0f s", more, self._kind, what, now - since)


class Fleet:
    """N actors under supervision.

    Args:
        start: (index, incarnation) -> handle of a new actor; the incarnation counts the actors that it replaces.
        indices: of the actors; there are as many.
        kind: what an actor is called in messages, followed by its index.
        tolerance: what happens to actors that fail.
        hint: ends the messages about an actor that does not answer: what may be the reason.
        ready: handle -> reference; a request to each actor at the start, whose answer is waited for without a limit.
        about: index -> description of an actor, after its index, in messages about its silence; "": none.
        explained: (index, failure) -> the failure to handle and raise, which may say more than the runtime's.
        on_lost: called with (index, member) when a failed actor is replaced or left out; the requests that it had
            pending are lost.
        close_s: longest time (seconds) in which actors, of a class derived from `ClosingActor`, may close what they
            hold, before they are killed; None: they hold nothing. An actor that is silent is killed at once.

    Attributes:
        members: index -> the actor that is there now, in the order of the indices.
        num_restarts: number of actors that were replaced so far.

    Raises:
        what `start` raises, or a failure at the start that is not tolerated. No actor is left running then.
    """

    def __init__(
        self,
        start: Callable[[int, int], ActorHandle],
        indices: Iterable[int],
        *,
        kind: str = "actor",
        tolerance: FaultTolerance | None = None,
        hint: str = "",
        ready: Callable[[ActorHandle], ObjectRef] | None = None,
        about: Callable[[int], str] = lambda index: "",
        explained: Callable[[int, Exception], Exception] = lambda index, failure: failure,
        on_lost: Callable[[int, Member], None] | None = None,
        close_s: float | None = None,
        logger: logging.Logger = logger,
    ):
        self.tolerance = tolerance or FaultTolerance()
        self.members: dict[int, Member] = {}
        self.num_restarts = 0
        self._start, self._kind, self._on_lost, self._logger = start, kind, on_lost, logger
        self._about, self._explained, self._close_s = about, explained, close_s
        self._hint = f"; {hint}" if hint else ""
        self._warnings = CountedWarnings(logger, kind)
        self._failures_in_a_row: Counter[int] = Counter()
        self._due: dict[int, tuple[float, int]] = {}  # index -> when it may be replaced, and the new incarnation
        self._replaced: list[int] = []
        self._oldest = Oldest()
        self._count = 0  # pending requests of each, as `keep_in_flight` was asked for
        self._short: set[int] = set()  # indices of those that may have fewer
        self._look_at = -math.inf  # time.monotonic() at which the silence of a member may have to be reported
        self._details_shown: set[str] = set()  # of failures, without numbers
        if close_s is not None:
            _fleets_that_close.add(self)
        try:
            for index in indices:
                self.members[index] = self._started(index, 0)
            if ready is not None and self.members:
                self.begin(lambda actor, index: ready(actor), patience=math.inf)()
        except BaseException:
            self.stop()
            raise

    def _started(self, index: int, incarnation: int) -> Member:
        handle = self._start(index, incarnation)
        self._short.add(index)
        closable = None if self._close_s is None else Closable(handle)
        return Member(handle, incarnation, closable=closable, note_oldest=functools.partial(self._oldest.add, index))

    # ------------------------------------------------------------------ all at once

    def ask_all(self, request: Request, indices: Iterable[int] | None = None, *, is_work: bool = True) -> dict:
        """Sends a request to each actor, then collects the answers; see `begin`."""
        return self.begin(request, indices, is_work=is_work)()

    def begin(
        self,
        request: Request,
        indices: Iterable[int] | None = None,
        *,
        is_work: bool = True,
        patience: float | None = None,
    ) -> Callable[[], dict[int, Any]]:
        """Sends a request to each actor now.

        Args:
            request: (actor, index) -> reference of the answer; called again for the successor of one that fails.
            indices: which actors; by default all, including ones about to be replaced.
            is_work: whether this is the actors' actual work. If not, an answer does not show that they can
                do it, and an exception is raised whatever the tolerance says.
            patience: instead of the tolerance's.

        Returns:
            a function that waits for the answers: index -> value, in the order of the indices, without the actors that
            were left out.

        Raises:
            ActorDiedError: if no actor is left.
        """
        self._warnings.flush()
        while self._due:
            self._await_replacement(math.inf)
        self._refuse_empty()
        since = time.monotonic()
        asked = {
            index: (member := self.members[index], request(member.handle, index), since)
            for index in (self.members if indices is None else indices)
        }
        return functools.partial(self._collect, asked, request, is_work, patience or self.tolerance.patience)

    def _refuse_empty(self) -> None:
        if not self.members:
            raise ActorDiedError(
                f"no {self._kind} is left; with {self.tolerance.name('restart')}=True they are replaced"
            )

    def _collect(self, asked, request, is_work, patience):
        answers, waiting = {}, dict(asked)
        try:
            self._take_answers(answers, waiting, request, is_work, patience)
        except Exception as failure:
            self._see_alike([ref for _, ref, _ in waiting.values()], failure)
            raise
        return answers

    def _take_answers(self, answers, waiting, request, is_work, patience):
        """Moves each answer from those that are waited for to `answers`."""
        tolerated = FAILURES if is_work else DEATHS
        for index in list(waiting):
            member, ref, since = waiting.pop(index)
            while member is not None:
                try:
                    answers[index] = self._get(index, ref, patience, since)
                except tolerated as failure:
                    if self.members.get(index) is member:
                        self._lose(index, failure)
                else:
                    if is_work:
                        self._failures_in_a_row.pop(index, None)
                    break
                while index in self._due:
                    self._await_replacement(math.inf)
                member, since = self.members.get(index), time.monotonic()
                ref = member and request(member.handle, index)

    def _see_alike(self, refs: list[ObjectRef], failure: Exception) -> None:
        """Gets the errors of the others, which are dropped if they say what is raised, and logged otherwise."""
        ends = time.monotonic() + _ALIKE_S
        said = _NUMBER.sub("", str(failure))
        for ref in refs:
            try:
                get(ref, timeout=max(ends - time.monotonic(), 0.0))
            except Exception as other:
                is_late = isinstance(other, GetTimeoutError) and not isinstance(other, TaskError)
                if not is_late and _NUMBER.sub("", str(other)) != said:
                    self._logger.error("another %s has failed as well: %s", self._kind, other)

    def _get(self, index: int, ref: ObjectRef, patience: float, since: float):
        """The answer to a request of this time, waited for until the next multiple of `silence_s`.

        Several that are silent together are so from the same time on: they do not count one after the other.
        """
        silence_s, times = self.tolerance.silence_s, 0
        while True:
            times = max(times, int((time.monotonic() - since) / silence_s)) + 1
            try:
                return get(ref, timeout=max(0.0, since + min(times, patience) * silence_s - time.monotonic()))
            except GetTimeoutError as error:
                if isinstance(error, TaskError):
                    raise  # the user's own
            if death := self._report_silence(index, times, patience):
                raise death

    # ------------------------------------------------------------------ each at its own pace

    @property
    def num_in_flight(self) -> int:
        """Number of requests whose answers have not been taken."""
        return sum(len(member.pending) for member in self.members.values())

    def keep_in_flight(self, request: Request, count: int) -> None:
        """Brings every member to `count` pending requests.

        With two, an actor has its next request at hand when it has answered one. An actor whose answers are not taken
        stops after `count` of them.

        Args:
            request: (actor, index) -> reference of the answer.
            count: pending requests of each member.
        """
        self._replace_due()
        if count != self._count:
            self._count = count
            self._short.update(self.members)
        for index in sorted(self._short & self.members.keys()):
            member = self.members[index]
            while len(member.pending) < count:
                member.send(request(member.handle, index))
        self._short.clear()

    def ask_most(self, request: Request, enough: Callable[[int], int], tag: Any = None) -> list[Answer]:
        """Sends a request to each member that has none pending, and waits until enough members have answered.

        The others' answers are taken by a later call, which does not ask those members before they have answered.
        Answers to earlier requests that are there when the call begins are taken first, and do not count. A member that
        fails does not count either; its successor is asked as soon as it is there.

        Args:
            request: (actor, index) -> reference of the answer.
            enough: number of members -> how many of them have to answer.
            tag: of the requests of this call, see `Member.send`.

        Returns:
            all answers, in the order of the indices, those to earlier requests first.

        Raises:
            as `take`; ActorDiedError: if no actor is left.
        """
        answers = self.take(0.0)
        seen: Mapping[int, Member] = {}
        asked: set[Member] = set()
        num_answers = 0
        while True:
            self._replace_due()
            if not self._due:
                self._refuse_empty()
            if seen is not self.members:  # at first, and after a replacement: an answer costs no look at all members
                seen = self.members
                for index, member in seen.items():
                    if member not in asked and not member.pending:
                        member.send(request(member.handle, index), tag)
                    asked.add(member)
            if num_answers >= max(1, enough(len(self.members))):
                return sorted(answers, key=lambda answer: answer.index)
            taken = self.take(self.tolerance.silence_s)
            num_answers += len(taken)
            answers += taken

    def take(self, timeout_s: float) -> list[Answer]:
        """The answers that are there; waits for the first one.

        The pending requests of an actor that dies are lost. Silence is reported, then counts as death. Neither holds up
        the other actors.

        Args:
            timeout_s: longest wait (seconds). Deaths and replacements end it as well, so that new actors can be asked.

        Raises:
            what a request raised, or ActorDiedError or SilentActorError, where it is not tolerated.
        """
        self._replace_due()
        if not self._oldest.index_of:
            self._await_replacement(timeout_s)
            return []
        limits = [timeout_s, self.tolerance.silence_s, *(due - time.monotonic() for due, _ in self._due.values())]
        answers, arrived = [], self._oldest.arrived
        self._oldest.wait(max(0.0, min(limits)))
        while arrived:  # what follows one that raises is taken the next time
            ref = arrived[0]
            index = self._oldest.index_of.get(ref)
            if index is None:  # its actor is lost
                arrived.popleft()
                continue
            member = self.members[index]
            try:
                value = get(ref)
            except FAILURES as failure:
                arrived.popleft()
                self._lose(index, failure)
                continue
            arrived.popleft()
            del self._oldest.index_of[ref]
            tag, _ = member.pending[0]
            member.pop()
            self._short.add(index)
            self._failures_in_a_row.pop(index, None)
            answers.append(Answer(index, value, tag, member.incarnation))
        if time.monotonic() >= self._look_at:
            self._check_silence()
        return answers

    def forget(self) -> None:
        """Drops all requests in flight; their answers will not be taken."""
        for member in self.members.values():
            self._oldest.discard(member)
            member.pending.clear()
        self._short.update(self.members)

    def _check_silence(self) -> None:
        now, silence_s = time.monotonic(), self.tolerance.silence_s
        self._warnings.flush()
        self._look_at = now + silence_s  # for members that are asked from now on
        for index, member in list(self.members.items()):
            if not member.pending:
                continue
            due = member.since + silence_s * (member.reports + 1)
            # One may have answered between two looks.
            if due <= now and not wait([member.pending[0][1]], timeout=0.0)[0]:
                member.reports += 1
                due += silence_s
                if death := self._report_silence(index, member.reports, self.tolerance.patience):
                    self._lose(index, death)
            self._look_at = min(self._look_at, due)

    # ------------------------------------------------------------------ failures

    def _report_silence(self, index: int, times: int, patience: float) -> SilentActorError | None:
        """Logs that a request is unanswered after `times` * silence_s; the actor's death, if that is enough."""
        about = self._about(index)
        tolerance, name = self.tolerance, f"{self._kind} {index}" + (f" ({about})" if about else "")
        if times >= patience:
            setting = f"{tolerance.name('silence_s')}={tolerance.silence_s:g} s"
            return SilentActorError(f"{name} did not answer within {patience:g} x {setting}{self._hint}")
        if times & (times - 1) == 0:
            silent_s = times * tolerance.silence_s
            what = f"have not answered for {silent_s:.3g} s"
            self._warnings.warn(what, "%s has not answered for %.3g s%s", name, silent_s, self._hint)
        return None

    def _lose(self, index: int, failure: Exception) -> None:
        """Ends an actor that has failed, and replaces it, at once or later, if the tolerance allows."""
        member = self.members.pop(index)
        self._oldest.discard(member)
        # One whose code has raised can close what it holds; one that is silent would not.
        self._end({index: member}, closes=isinstance(failure, TaskError))
        is_replaced = self._is_replaced_after(index, self._explained(index, failure))
        if self._on_lost is not None:
            self._on_lost(index, member)
        if is_replaced:
            delay_s = self.tolerance.delay_s if self._failures_in_a_row[index] > 1 else 0.0
            self._due[index] = time.monotonic() + delay_s, member.incarnation + 1
            self._replace_due()

    def _is_replaced_after(self, index: int, failure: Exception) -> bool:
        """Whether the actor is replaced; if not, it is left out. Raises the failure, with the reason, if neither."""
        tolerance, name = self.tolerance, f"{self._kind} {index}"
        if not tolerance.replaces(failure):
            if not tolerance.ignore:
                raise failure
            if not self.members:
                failure.add_note(f"{name} was the last one that worked; {tolerance.name('restart')}=True replaces them")
                raise failure
            self._warnings.warn("are left out", "%s is left out from now on: %s", name, failure)
            return False
        self._failures_in_a_row[index] += 1
        in_a_row, limit = self._failures_in_a_row[index], tolerance.max_consecutive_failures
        if isinstance(failure, SilentActorError):
            limit = min(limit, MAX_CONSECUTIVE_SILENCES)
        if self.num_restarts >= tolerance.max_restarts or in_a_row > limit:
            failure.add_note(
                f"{name} is not started again: {self.num_restarts} restarts in this run "
                f"({tolerance.name('max_restarts')}={tolerance.max_restarts}), {in_a_row} failures in a row without a "
                f"useful answer ({tolerance.name('max_consecutive_failures')}={tolerance.max_consecutive_failures})"
            )
            raise failure
        self.num_restarts += 1
        self._warnings.warn("are replaced", "%s is replaced: %s", name, self._described(failure))
        return True

    def _described(self, failure: Exception) -> str:
        """The failure in words; what stands below its first line only if that is new."""
        first, _, details = str(failure).partition("\n")
        alike = _NUMBER.sub("", details)
        if alike and alike in self._details_shown:
            return f"{first.rstrip('.')}, as before"
        self._details_shown.add(alike)
        return str(failure)

    def _replace_due(self) -> None:
        for index, (due, incarnation) in list(self._due.items()):
            if due <= time.monotonic():
                del self._due[index]
                member = self._started(index, incarnation)
                self.members = dict(sorted({**self.members, index: member}.items()))
                self._replaced.append(index)

    def _await_replacement(self, timeout_s: float) -> None:
        """Waits until the next replacement is due, and makes it."""
        if self._due:
            first = min(due for due, _ in self._due.values())
            time.sleep(min(timeout_s, max(0.0, first - time.monotonic())))
            self._replace_due()

    def pop_replaced(self) -> list[int]:
        """Indices of the actors that were replaced since the last call."""
        replaced, self._replaced = self._replaced, []
        return replaced

    def stop(self) -> None:
        """Ends all actors at once; what they were asked is not answered. Those that hold something close it first."""
        self._due.clear()
        try:
            self._end(self.members, closes=True)
        except NodeDiedError:  # and all actors with it
            pass
        finally:
            self._warnings.flush(at_end=True)
            self.forget()
            self.members.clear()

    def _end(self, members: Mapping[int, Member], closes: bool) -> None:
        if closes and self._close_s is not None:
            actors = {f"{self._kind} {index}": member.closable for index, member in members.items()}
            close_and_kill(actors, self._close_s, self._logger)
        else:
            for member in members.values():
                kill(member.handle)


# Their actors are closed at the end of a program that does not stop them.
_fleets_that_close: weakref.WeakSet[Fleet] = weakref.WeakSet()


@before_shutdown
def _stop_fleets() -> None:
    for fleet in list(_fleets_that_close):
        fleet.stop()
