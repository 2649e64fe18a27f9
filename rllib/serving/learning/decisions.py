"""Open decisions, their rewards, and the episodes that they complete. No clock, socket or file in here."""

import bisect
import itertools
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from rllib.serving.learning.packets import Decision, Gap, Reward

# Open decisions take at most this many bytes; beyond it, the episode that began first is given up.
MOST_OPEN_BYTES = 256 << 20
# Bytes of the objects of a decision, in addition to its observations and its action.
_BYTES_OF_A_STEP = 1000
# Number of settled action ids that are kept, to distinguish a repeated reward from one with an unknown id.
_REMEMBERED = 100_000


@dataclass(slots=True, eq=False)
class Step:
    """A decision and its outcome.

    Attributes:
        at: time of the decision (seconds).
        reward: reward of the action; None until the client reports it.
        following: bytes of the next observation; None unless the client has given it.
    """

    action_id: str
    at: float
    version: int
    observation: bytes
    action: bytes
    reward: float | None = None
    following: bytes | None = None


@dataclass
class Episode:
    """An episode that is over, or a part of one.

    Attributes:
        steps: the steps, each with its reward.
        final: observation after the last step; None where it is unknown and not needed, as the episode has terminated.
        terminated: whether the episode has terminated; otherwise the return is bootstrapped at the final observation.
        is_whole: whether the episode's return may be compared with others, since it is complete.
        begun_at: time of the first decision (seconds).
        total: sum of all rewards.
        versions: versions of the policies that have acted in the episode.
    """

    steps: list[Step]
    final: bytes | None
    terminated: bool
    is_whole: bool
    begun_at: float
    total: float
    versions: frozenset[int]


@dataclass(eq=False)
class _Open:
    """An episode under way; `ending` is (terminated, final observation) once its end was reported."""

    episode_id: str | None
    steps: list[Step] = field(default_factory=list)
    ending: tuple[bool, bytes | None] | None = None
    is_whole: bool = True
    touched_at: float = 0.0
    num_waiting: int = 0

    @property
    def size_bytes(self) -> int:
        return sum(map(_size, self.steps))


class Ledger:
    """Collects decisions and rewards, and returns the episodes that they complete.

    An episode is complete when its end was reported and no reward is missing. A decision whose reward does not come in
    time cuts its episode: the steps before it are learned from, bootstrapped with the value of the decision's
    observation, and the steps after it form another episode, which is not compared. An episode without new decisions
    for the same time ends at its last step.

    Invariant: `_by_action` has exactly the steps without a reward of the episodes in `_open`.

    Args:
        timeout_s: longest time until a reward, or until the next decision of an episode (seconds).
        max_steps: number of decisions after which an episode is cut; further decisions start another episode.
        reward_limit: rewards are clipped to [-limit, limit]; None: they are not clipped.
        whole_from: time (seconds) before which the first decision with an episode id may belong to an episode that
            began with an earlier server; such an episode is not compared. A decision without an episode id is always a
            whole episode.

    Attributes:
        counts: numbers of decisions, rewards, clipped rewards, expired decisions, decisions given up for lack of memory
            (given_up), and refused late_rewards.
    """

    def __init__(self, timeout_s: float, max_steps: int, reward_limit: float | None = None, whole_from: float = 0.0):
        self._timeout_s, self._max_steps, self._limit = timeout_s, max_steps, reward_limit
        self._whole_from = whole_from
        self._open: OrderedDict[int, _Open] = OrderedDict()
        self._numbers = itertools.count()
        # Episode id -> number of the episode that its next decision belongs to.
        self._current: dict[str, int] = {}
        self._by_action: dict[str, tuple[int, Step]] = {}
        self._settled: OrderedDict[str, str] = OrderedDict()
        self._complete: list[Episode] = []
        self._bytes = 0
        names = "decisions", "rewards", "clipped", "expired", "given_up", "late_rewards"
        self.counts = dict.fromkeys(names, 0)

    @property
    def num_open(self) -> int:
        """Number of decisions without a reward."""
        return len(self._by_action)

    def take(self) -> list[Episode]:
        """Returns the episodes completed since the last call."""
        complete, self._complete = self._complete, []
        return complete

    # ------------------------------------------------------------------ decisions and rewards

    def decide(self, decision: Decision) -> None:
        """Adds a decision. The decisions of an episode may come in any order, and are sorted by their times.

        A repeated decision replaces action and version, since the client did not get the first answer.
        """
        if (known := self._by_action.get(decision.action_id)) is not None:
            known[1].action, known[1].version = decision.action, decision.version
            return
        if decision.action_id in self._settled:
            return
        number = self._number_for(decision)
        episode = self._open[number]
        step = Step(decision.action_id, decision.at, decision.version, decision.observation, decision.action)
        bisect.insort(episode.steps, step, key=attrgetter("at"))
        episode.num_waiting += 1
        episode.touched_at = max(episode.touched_at, decision.at)
        self._by_action[decision.action_id] = number, step
        self._bytes += _size(step)
        self.counts["decisions"] += 1
        while self._bytes > MOST_OPEN_BYTES:
            self._give_up()

    def _number_for(self, decision: Decision) -> int:
        number = None if decision.episode_id is None else self._current.get(decision.episode_id)
        if number is not None:
            episode = self._open[number]
            if episode.ending is None and len(episode.steps) < self._max_steps:
                return number
            if episode.ending is None:
                self._end(number, False, decision.observation)
        number = next(self._numbers)
        is_whole = decision.episode_id is None or decision.at >= self._whole_from
        self._open[number] = _Open(decision.episode_id, is_whole=is_whole)
        if decision.episode_id is not None:
            self._current[decision.episode_id] = number
        return number

    def lose(self, gap: Gap) -> None:
        """Cuts an episode at a missing decision."""
        number = self._current.get(gap.episode_id)
        if number is not None:
            episode = self._open[number]
            episode.is_whole = False
            before = [step for step in episode.steps if step.at < gap.at]
            if not before:
                return
            self._split_after(number, before[-1], is_whole=False)
            self._end(number, False, None)
        if gap.episode_id not in self._current:  # the next decision is not the beginning of the episode
            number = self._current[gap.episode_id] = next(self._numbers)
            self._open[number] = _Open(gap.episode_id, is_whole=False, touched_at=gap.at)

    def reward(self, given: Reward, now: float) -> tuple[int, str]:
        """Takes a reward.

        Returns:
            (200, ""), or a status of HTTP with the reason why it is refused: 404 for an id that is not open, 409 for a
            second reward, 422 for an end that cannot be.
        """
        if (known := self._by_action.get(given.action_id)) is None:
            return self._unknown(given.action_id)
        number, step = known
        episode = self._open[number]
        if problem := _problem(given, episode.episode_id):
            return 422, problem
        reward = given.reward
        if self._limit is not None and abs(reward) > self._limit:
            self.counts["clipped"] += 1
            reward = min(max(reward, -self._limit), self._limit)
        step.reward, step.following = reward, given.next_observation
        self._bytes += len(step.following or b"")
        self._settle(step, "has its reward already")
        episode.num_waiting -= 1
        episode.touched_at = max(episode.touched_at, now)
        self.counts["rewards"] += 1
        terminated = (
            episode.episode_id is None and not given.truncated if given.terminated is None else given.terminated
        )
        if terminated or given.truncated:
            self._split_after(number, step)
            self._end(number, terminated, given.next_observation)
        elif episode.ending is not None:
            self._complete_if_rewarded(number)
        return 200, ""

    def _unknown(self, action_id: str) -> tuple[int, str]:
        if (why := self._settled.get(action_id)) is not None:
            self.counts["late_rewards"] += why != "has its reward already"
            return 409, f"the action {action_id:.60} {why}; each action gets one reward"
        return 404, (
            f"there is no open action {action_id:.60}: an id is good until its reward, for --reward-timeout seconds, "
            "and until the learner restarts"
        )

    def _settle(self, step: Step, why: str) -> None:
        del self._by_action[step.action_id]
        self._settled[step.action_id] = why
        if len(self._settled) > _REMEMBERED:
            self._settled.popitem(last=False)

    # ------------------------------------------------------------------ ends

    def _split_after(self, number: int, step: Step, is_whole: bool = True) -> int | None:
        """Moves the steps after this one to another episode, with the same id and end.

        Returns:
            number of the other episode; None if there is no later step, or the other episode is complete.
        """
        episode = self._open[number]
        index = episode.steps.index(step) + 1
        later = episode.steps[index:]
        if not later:
            return None
        del episode.steps[index:]
        waiting = [each for each in later if each.reward is None]
        other = next(self._numbers)
        self._open[other] = _Open(episode.episode_id, later, episode.ending, is_whole, later[-1].at, len(waiting))
        episode.num_waiting -= len(waiting)
        episode.ending = None
        for each in waiting:
            self._by_action[each.action_id] = other, each
        if self._current.get(episode.episode_id) == number:
            self._current[episode.episode_id] = other
        if self._open[other].ending is not None:
            self._complete_if_rewarded(other)
        return other if other in self._open else None

    def _end(self, number: int, terminated: bool, final: bytes | None) -> None:
        episode = self._open[number]
        episode.ending = terminated, final
        if self._current.get(episode.episode_id) == number:
            del self._current[episode.episode_id]
        self._complete_if_rewarded(number)

    def _complete_if_rewarded(self, number: int) -> None:
        episode = self._open[number]
        if episode.num_waiting:
            return
        del self._open[number]
        self._bytes -= episode.size_bytes
        terminated, final = episode.ending
        steps = episode.steps
        if not steps:
            return
        total, begun_at = sum(step.reward for step in steps), steps[0].at
        versions = frozenset(step.version for step in steps)
        if not terminated and final is None:
            # The outcome of the last step is unknown, so it gives no row; its reward counts in the total.
            final, steps = (
                steps[-1].following or steps[-1].observation,
                (steps if steps[-1].following is not None else steps[:-1]),
            )
        self._complete.append(Episode(steps, final, terminated, episode.is_whole, begun_at, total, versions))

    # ------------------------------------------------------------------ time and memory

    def expire(self, now: float) -> None:
        """Cuts episodes at decisions whose rewards are overdue, and ends episodes without decisions for too long."""
        before = now - self._timeout_s
        for number in list(self._open):
            self._cut_at_missing(number, before)
        for number, episode in list(self._open.items()):
            if episode.ending is None and not episode.num_waiting and episode.touched_at < before:
                self._end(number, False, None)

    def _cut_at_missing(self, number: int | None, before: float) -> None:
        """Cuts an episode at each decision whose reward has not come in time."""
        while number is not None:
            episode = self._open[number]
            late = next((step for step in episode.steps if step.reward is None and step.at < before), None)
            if late is None:
                return
            self._settle(late, "has waited for its reward for too long")
            self.counts["expired"] += 1
            episode.num_waiting -= 1
            behind = self._split_after(number, late, is_whole=False)
            self._bytes -= _size(episode.steps.pop())
            episode.is_whole = False
            self._end(number, False, late.observation)
            number = behind

    def _give_up(self) -> None:
        """Drops the episode that began first."""
        number, episode = self._open.popitem(last=False)
        for step in _waiting(episode):
            self._settle(step, "was given up, since too many decisions wait")
            self.counts["given_up"] += 1
        if self._current.get(episode.episode_id) == number:
            del self._current[episode.episode_id]
        self._bytes -= episode.size_bytes
        if episode.episode_id is not None:
            self.lose(Gap(episode.episode_id, episode.touched_at))


def _waiting(episode: _Open) -> Iterator[Step]:
    return (step for step in episode.steps if step.reward is None)


def _size(step: Step) -> int:
    return _BYTES_OF_A_STEP + len(step.observation) + len(step.action) + len(step.following or b"")


def _problem(given: Reward, episode_id: str | None) -> str | None:
    """Reason why the end reported with a reward is invalid; None if it is valid."""
    if given.truncated and given.terminated:
        return "an episode is either terminated or truncated: give one of them"
    if given.truncated and given.next_observation is None:
        return "truncated needs the next_observation, since the episode's return is bootstrapped with its value"
    if episode_id is None and given.terminated is False and not given.truncated:
        return (
            "an action that was asked for without an episode_id is an episode of one step: leave out terminated, or "
            "give an episode_id with each request of the episode"
        )
    return None
