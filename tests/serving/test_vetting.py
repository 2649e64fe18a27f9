"""Rewards that turn for a while: nothing of the period is learned from, and no candidate is promoted by it."""

import numpy as np
import pytest

from rllib.serving.learning import vetting
from rllib.serving.learning.canary import Verdict
from rllib.serving.learning.decisions import Episode, Step
from rllib.serving.learning.packets import Decision, Reward
from rllib.serving.learning.settings import LearningSettings
from rllib.serving.learning.training_loop import TrainingLoop
from rllib.serving.learning.vetting import Vetting


def episode(total, steps=1):
    made = [Step("id", 0.0, 1, b"", b"", total / steps) for _ in range(steps)]
    return Episode(made, None, True, True, 0.0, total, frozenset([1]))


def feed(vetter, totals):
    """The returns that are released meanwhile."""
    released = []
    for total in totals:
        vetter.add(episode(total), True)
        released += [each.total for each in vetter.take()]
    return released


USUAL = [9.0, 11.0] * 5


def test_a_block_is_released_when_the_one_after_it_has_passed():
    vetter = Vetting(10)
    assert feed(vetter, USUAL) == []
    assert feed(vetter, USUAL[:9]) == [] and feed(vetter, USUAL[9:]) == USUAL


def test_an_inverted_period_stays_in_quarantine_with_its_borders():
    vetter = Vetting(10)
    feed(vetter, USUAL * 6)
    assert not vetter.is_paused
    turned = feed(vetter, [-each for each in USUAL * 3])
    assert turned == [] and vetter.is_paused and "-10, but has been 10" in vetter.why
    assert feed(vetter, USUAL) == [] and not vetter.is_paused  # the first that passes
    assert vetter.num_quarantined == 10 + 30 + 10
    assert feed(vetter, USUAL) == [] and feed(vetter, USUAL) == USUAL


def test_turning_in_the_middle_of_a_block():
    vetter = Vetting(10)
    feed(vetter, USUAL * 6)
    released = feed(vetter, USUAL[:6] + [-each for each in USUAL * 3] + USUAL * 5)
    assert min(released) > 0


def test_a_slight_change_and_chance_are_no_alarm():
    rng = np.random.default_rng(1)
    vetter, pauses = Vetting(20), 0
    for _ in range(300):
        feed(vetter, rng.normal(10.0, 5.0, 20))
        pauses += vetter.is_paused
    assert pauses <= 1
    vetter = Vetting(10)
    feed(vetter, [10.0] * 60 + [9.9] * 30)  # without variance any change is significant, but this one is small
    assert not vetter.is_paused


def test_the_first_episodes_of_a_promoted_policy_may_be_the_short_ones():
    vetter = Vetting(10)
    feed(vetter, USUAL * 6)
    vetter.change([20.0, 200.0, 40.0, 60.0])
    feed(vetter, [190.0, 195.0] * 25)
    assert not vetter.is_paused
    feed(vetter, [-190.0, -195.0] * 5)
    assert vetter.is_paused


def test_a_promoted_policy_is_watched_from_its_first_block():
    vetter = Vetting(10)
    feed(vetter, USUAL * 6)
    vetter.change([20.0, 25.0, 30.0, 22.0])
    assert feed(vetter, [-each for each in (20.0, 25.0) * 10]) == [] and vetter.is_paused


def test_resume_takes_the_new_level():
    vetter = Vetting(10)
    feed(vetter, USUAL * 6 + [30.0, 31.0] * 10)
    assert vetter.is_paused
    vetter.resume()
    assert feed(vetter, [30.0, 31.0] * 15) and not vetter.is_paused


def test_without_episodes_of_the_served_policy_nothing_is_vouched_for(monkeypatch):
    monkeypatch.setattr(vetting, "MOST_STEPS", 100)
    vetter = Vetting(10)
    for _ in range(11):
        vetter.add(episode(1.0, steps=10), False)
    assert vetter.is_paused and vetter.take() == [] and vetter.num_quarantined == 110


# ---------------------------------------------------------------------- a bandit in logical time

ARMS = (0.2, 0.5, 0.8)  # probabilities of the reward 1
PER_SECOND = 20


class Bandit:
    """A training loop whose learner estimates the reward of each arm, and whose users come 20 times a second.

    A version acts by the arm that was best when it was made, and in a tenth of the cases by chance.
    """

    def __init__(self, served_arm, poison=(), seed=0):
        settings = LearningSettings(directory="", offer_every=200)
        self.rng = np.random.default_rng(seed)
        self.training_loop, self.arms, self.poison = TrainingLoop(settings, 0), {0: served_arm}, poison
        self.sums, self.counts, self.now, self.served_arms = np.zeros(3), np.zeros(3), 0.0, [served_arm]

    def run(self, seconds):
        for _ in range(seconds * PER_SECOND):
            self.now += 1 / PER_SECOND
            self._ask(str(self.now))
            self._learn()

    def _ask(self, action_id):
        training_loop = self.training_loop
        version = (
            training_loop.trial.version if training_loop.trial and self.rng.random() < 0.1 else training_loop.served
        )
        arm = self.arms[version] if self.rng.random() < 0.9 else int(self.rng.integers(3))
        reward = float(self.rng.random() < ARMS[arm])
        if any(begin <= self.now < end for begin, end in self.poison):
            reward = -reward
        training_loop.decide(Decision(action_id, None, self.now, version, b"", bytes([arm])))
        assert training_loop.reward(Reward(0, action_id, reward), self.now) == (200, "")

    def _learn(self):
        training_loop = self.training_loop
        while (episode := training_loop.next_episode()) is not None:
            for step in episode.steps:
                arm = step.action[0]
                # The newest hundred or so count, as in a replay of bounded size.
                self.sums[arm] = 0.99 * self.sums[arm] + step.reward
                self.counts[arm] = 0.99 * self.counts[arm] + 1
        if training_loop.verdict is Verdict.PROMOTE:
            training_loop.promoted()
            self.served_arms.append(self.arms[training_loop.served])
        elif training_loop.verdict is Verdict.DROP:
            training_loop.dropped()
        elif training_loop.wants_candidate:
            version = len(self.arms)
            self.arms[version] = int(np.argmax(self.sums / np.maximum(self.counts, 1)))
            training_loop.offered(version, self.now)


@pytest.mark.parametrize("seed", range(3))
def test_a_bandit_finds_the_best_arm(seed):
    bandit = Bandit(served_arm=0, seed=seed)
    bandit.run(300)
    assert bandit.arms[bandit.training_loop.served] == 2 and not bandit.training_loop.vetting.num_quarantined


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("begin", [90, 137.3])
def test_a_minute_of_inverted_rewards_does_not_get_past_the_canary(seed, begin):
    bandit = Bandit(served_arm=1, poison=[(begin, begin + 60)], seed=seed)
    bandit.run(400)
    best = [ARMS[arm] for arm in bandit.served_arms]
    assert best == sorted(best) and best[-1] == 0.8  # never a worse one, and it goes on learning afterwards
    assert bandit.training_loop.vetting.num_quarantined >= 60 * PER_SECOND
    assert any("Learning pauses" in each for each in bandit.training_loop.events())
    assert (bandit.sums >= 0).all()


def test_without_the_vetting_it_would(monkeypatch):
    monkeypatch.setattr(vetting, "ALARM_P", -1.0)
    bandit = Bandit(served_arm=2, poison=[(90, 150)])
    bandit.run(151)
    assert ARMS[bandit.arms[bandit.training_loop.served]] < 0.8
