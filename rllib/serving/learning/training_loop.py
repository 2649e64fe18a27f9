"""Training loop of online learning: selects the episodes to learn from, offers candidates, promotes or drops them.

A pure state machine: packets, times and the trainer's progress go in, episodes and verdicts come out.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

from rllib.serving.learning.canary import Trial, Verdict
from rllib.serving.learning.decisions import Episode, Ledger
from rllib.serving.learning.packets import Decision, Gap, Reward
from rllib.serving.learning.settings import LearningSettings
from rllib.serving.learning.vetting import Vetting
from rllib.serving.learning.welch import Sample

# Largest number of steps that wait for the trainer; beyond it, the oldest episodes are left out.
MOST_WAITING_STEPS = 100_000


class TrainingLoop:
    """Decides on episodes and candidates.

    Args:
        settings: settings of the learner.
        served: version of the served policy.
        history: earlier returns of the served policy.

    Attributes:
        ledger: the open decisions.
        vetting: the episodes that are held back.
        served: version of the served policy.
        trial: trial of the present candidate; None: there is no candidate.
        verdict: verdict on the present candidate; None until there is one.
        num_learned, num_left_out: number of steps that the trainer has got, and that were left out as it was too slow.
        num_promoted, num_dropped: numbers of candidates.
        newest: (candidate's mean, served policy's mean, outcome) of the last trial; None before its end.
    """

    def __init__(self, settings: LearningSettings, served: int, history: Iterable[float] = ()):
        self._settings, self.served = settings, served
        self.ledger = Ledger(
            settings.reward_timeout_s, settings.max_episode_steps, settings.reward_limit, settings.whole_from
        )
        self.vetting = Vetting(settings.block_episodes, history)
        self.trial: Trial | None = None
        self.verdict: Verdict | None = None
        self._waiting: deque[Episode] = deque()
        self._waiting_steps = 0
        self._since_offer = 0
        self.num_learned = self.num_left_out = self.num_promoted = self.num_dropped = 0
        self.newest: tuple[float, float, str] | None = None
        self._was_paused = False
        self._events: deque[str] = deque(maxlen=100)

    # ------------------------------------------------------------------ from the clients

    def decide(self, decision: Decision) -> None:
        """Records a decision."""
        self.ledger.decide(decision)
        self._advance()

    def lose(self, gap: Gap) -> None:
        """Records a gap: a decision that was served, but did not reach the learner."""
        self.ledger.lose(gap)
        self._advance()

    def reward(self, given: Reward, now: float) -> tuple[int, str]:
        """Records a reward; arguments, result and errors as for Ledger.reward."""
        answer = self.ledger.reward(given, now)
        self._advance()
        return answer

    def expire(self, now: float) -> None:
        """Cuts or ends episodes whose time limits have passed; see Ledger.expire."""
        self.ledger.expire(now)
        self._advance()

    def resume(self) -> None:
        """Resumes learning: the present returns are the new baseline."""
        self.vetting.resume()
        self._was_paused = False
        self._events.append("Learning continues: the next returns are taken as the usual ones")

    def _advance(self) -> None:
        for episode in self.ledger.take():
            self.vetting.add(episode, episode.versions == {self.served})
        for episode in self.vetting.take():
            self._compare(episode)
            self._queue(episode)
        if self.vetting.is_paused != self._was_paused:
            self._was_paused = self.vetting.is_paused
            self._events.append(
                f"Learning pauses: of the served policy, {self.vetting.why}. Its rows are left out"
                if self._was_paused
                else "Learning continues: the returns of the served policy are as before"
            )

    def _compare(self, episode: Episode) -> None:
        trial = self.trial
        if trial is None or self.verdict is not None or not episode.is_whole or episode.begun_at < trial.begun_at:
            return
        if episode.versions in ({self.served}, {trial.version}):
            self.verdict = trial.add(episode.total, episode.versions == {trial.version})

    def _queue(self, episode: Episode) -> None:
        if not episode.steps:
            return
        self._waiting.append(episode)
        self._waiting_steps += len(episode.steps)
        while self._waiting_steps > MOST_WAITING_STEPS:
            left_out = len(self._waiting.popleft().steps)
            self._waiting_steps -= left_out
            self.num_left_out += left_out

    # ------------------------------------------------------------------ for the trainer

    def next_episode(self) -> Episode | None:
        """The next episode to learn from; None if there is none."""
        if not self._waiting:
            return None
        episode = self._waiting.popleft()
        self._waiting_steps -= len(episode.steps)
        self.num_learned += len(episode.steps)
        self._since_offer += len(episode.steps)
        return episode

    @property
    def wants_candidate(self) -> bool:
        """Whether a candidate is to be offered; its margin needs a history of at least two returns."""
        is_due = self._since_offer >= self._settings.offer_every
        return is_due and self.trial is None and not self.vetting.is_paused and len(self.vetting.history) > 1

    def offered(self, version: int, now: float) -> None:
        """Begins the trial of a candidate, which is served from now on."""
        settings, history = self._settings, self.vetting.history
        self.trial = Trial(version, settings.trial_episodes, settings.margin, now, history, settings.canary_share)
        self.verdict = None
        share = self._settings.canary_share
        self._events.append(f"Candidate version {version} acts in {share:.0%} of the episodes")

    def promoted(self) -> None:
        """Makes the candidate the served policy."""
        self._end_trial("promoted")
        self.served = self.trial.version
        self.vetting.change(self.trial.candidate_returns)
        self.num_promoted += 1
        self.trial = self.verdict = None

    def dropped(self) -> None:
        """Ends the trial; the served policy stays."""
        outcome = "dropped as worse" if self.verdict is Verdict.WORSE else "dropped"
        if self.trial.is_one_sided:
            outcome += ", since nearly all episodes were of one policy (clients with few episode ids)"
        self._end_trial(outcome)
        self.num_dropped += 1
        self.trial = self.verdict = None

    def _end_trial(self, outcome: str) -> None:
        trial = self.trial
        self._since_offer = 0
        self.newest = _mean(trial.candidate_returns), _mean(trial.served_returns), outcome
        self._events.append(
            f"Candidate version {trial.version} is {outcome}: its mean return is {_told(trial.candidate)}, that of the "
            f"served version {self.served} {_told(trial.served)}"
            + ("; the learner returns to it" if self.verdict is Verdict.WORSE else "")
        )

    # ------------------------------------------------------------------ reports

    def events(self) -> list[str]:
        """Returns the events since the last call, a sentence each."""
        events = list(self._events)
        self._events.clear()
        return events

    def stats(self) -> dict[str, Any]:
        """Statistics, as GET /stats answers them."""
        trial, history = self.trial, self.vetting.history
        served = {"version": self.served, "episodes": len(history), "mean_return": _mean(history)}
        candidate = trial and {
            "version": trial.version,
            "episodes": trial.candidate.count,
            "mean_return": _mean(trial.candidate_returns),
            "served_episodes": trial.served.count,
            "served_mean_return": _mean(trial.served_returns),
        }
        names = "candidate_mean_return", "served_mean_return", "outcome"
        return {
            "paused": self.vetting.is_paused,
            "why_paused": self.vetting.why if self.vetting.is_paused else None,
            "served": served,
            "candidate": candidate,
            "last_trial": self.newest and dict(zip(names, self.newest)),
            "promoted": self.num_promoted,
            "dropped": self.num_dropped,
            "rows": {
                "learned": self.num_learned,
                "waiting": self._waiting_steps,
                "held": self.vetting.num_held,
                "quarantined": self.vetting.num_quarantined,
                "left_out": self.num_left_out,
            },
            "decisions": {"open": self.ledger.num_open, **self.ledger.counts},
        }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _told(sample: Sample) -> str:
    return f"{sample.mean:.4g} in {sample.count} episodes" if sample.count else "unknown, without an episode"
