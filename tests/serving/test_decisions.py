"""Open decisions and their rewards: which episodes they make, what is refused, what is bounded."""

import numpy as np
import pytest

from rllib.serving.learning import decisions
from rllib.serving.learning.decisions import Ledger
from rllib.serving.learning.packets import Decision, Gap, Reward


def decide(ledger, action_id, episode_id=None, at=0.0, version=1, size=1):
    ledger.decide(Decision(action_id, episode_id, at, version, f"o{action_id}".encode() * size, b"a"))


def reward(ledger, action_id, number=1.0, now=1.0, **more):
    return ledger.reward(Reward(0, action_id, number, **more), now)


def rows(episode):
    return [(step.action_id, step.reward) for step in episode.steps]


@pytest.fixture
def ledger():
    return Ledger(timeout_s=100.0, max_steps=5)


def test_a_lone_decision_is_an_episode_of_one_step(ledger):
    decide(ledger, "x")
    assert reward(ledger, "x", 2.0) == (200, "")
    (episode,) = ledger.take()
    assert rows(episode) == [("x", 2.0)] and episode.terminated and episode.is_whole and episode.total == 2.0
    assert ledger.take() == [] and ledger.num_open == 0


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_decisions_and_rewards_of_an_episode_come_in_any_order(ledger, order):
    for index in order:
        decide(ledger, str(index), "e", at=float(index), version=1 + (index == 2))
    reward(ledger, "2", 4.0, terminated=True)
    assert ledger.take() == []  # two rewards are missing
    reward(ledger, "0", 1.0)
    reward(ledger, "1", 2.0)
    (episode,) = ledger.take()
    assert rows(episode) == [("0", 1.0), ("1", 2.0), ("2", 4.0)]
    assert (episode.total, episode.versions, episode.terminated) == (7.0, {1, 2}, True)


def test_a_truncated_episode_goes_on_in_value(ledger):
    decide(ledger, "0", "e")
    reward(ledger, "0", truncated=True, next_observation=b"last")
    (episode,) = ledger.take()
    assert (episode.final, episode.terminated, episode.is_whole) == (b"last", False, True)


def test_an_id_may_be_used_for_the_next_episode_while_rewards_are_missing(ledger):
    for index in range(3):
        decide(ledger, str(index), "e", at=float(index))
    reward(ledger, "1", 2.0, terminated=True)  # so the third is of the next episode
    reward(ledger, "0", 1.0)
    reward(ledger, "2", 3.0, terminated=True)
    first, second = ledger.take()
    assert rows(first) == [("0", 1.0), ("1", 2.0)] and rows(second) == [("2", 3.0)]


def test_what_is_refused(ledger):
    decide(ledger, "x")
    decide(ledger, "0", "e")
    assert reward(ledger, "unknown")[0] == 404
    assert reward(ledger, "x", terminated=False) == (422, decisions._problem(Reward(0, "x", 1, False), None))
    assert "next_observation" in reward(ledger, "0", truncated=True)[1]
    assert "either" in reward(ledger, "0", terminated=True, truncated=True, next_observation=b"o")[1]
    assert ledger.num_open == 2  # a refused reward may be repeated
    assert reward(ledger, "x") == (200, "")
    status, why = reward(ledger, "x")
    assert status == 409 and "has its reward already" in why
    assert len(ledger.take()) == 1


def test_rewards_are_clipped():
    ledger = Ledger(100.0, 5, reward_limit=1.0)
    for action_id, number in (("a", 1e9), ("b", -3.0), ("c", 0.5)):
        decide(ledger, action_id)
        reward(ledger, action_id, number)
    assert [episode.total for episode in ledger.take()] == [1.0, -1.0, 0.5]
    assert ledger.counts["clipped"] == 2


def test_a_decision_without_a_reward_cuts_its_episode(ledger):
    for index in range(4):
        decide(ledger, str(index), "e", at=float(index))
    for action_id in "013":
        reward(ledger, action_id, 1.0)
    ledger.expire(101.0)
    assert ledger.take() == []
    ledger.expire(102.5)
    before, behind = *ledger.take(), None
    assert rows(before) == [("0", 1.0), ("1", 1.0)]
    assert (before.final, before.terminated, before.is_whole) == (b"o2", False, False)
    assert behind is None and ledger.counts["expired"] == 1
    status, why = reward(ledger, "2")
    assert status == 409 and "for too long" in why
    decide(ledger, "4", "e", at=103.0)
    reward(ledger, "4", 1.0, 104.0, terminated=True)
    (rest,) = ledger.take()
    assert rows(rest) == [("3", 1.0), ("4", 1.0)] and not rest.is_whole and rest.terminated


def test_a_silent_episode_ends_where_it_stands(ledger):
    decide(ledger, "0", "e")
    decide(ledger, "1", "e", at=1.0)
    reward(ledger, "0", 1.0)
    reward(ledger, "1", 2.0, now=5.0)
    ledger.expire(104.0)
    assert ledger.take() == []
    ledger.expire(106.0)
    (episode,) = ledger.take()
    # What followed the second is not known: its reward counts, and there is no row of it.
    assert rows(episode) == [("0", 1.0)] and episode.final == b"o1" and episode.total == 3.0 and episode.is_whole


def test_a_repeated_request_is_one_decision_with_the_newest_answer(ledger):
    decide(ledger, "0", "e", at=0.0)
    ledger.decide(Decision("0", "e", 1.0, 2, b"o0", b"b"))
    decide(ledger, "1", "e", at=2.0)
    reward(ledger, "0")
    decide(ledger, "0", "e", at=3.0)  # it has its reward
    reward(ledger, "1", terminated=True)
    (episode,) = ledger.take()
    assert rows(episode) == [("0", 1.0), ("1", 1.0)] and episode.is_whole and episode.versions == {1, 2}
    assert episode.steps[0].action == b"b" and ledger.counts["decisions"] == 2


def test_long_episodes_are_cut_at_the_next_decision(ledger):
    for index in range(7):
        decide(ledger, str(index), "e", at=float(index))
        reward(ledger, str(index), 1.0)
    (first,) = ledger.take()
    assert len(first.steps) == 5 and first.final == b"o5" and not first.terminated and first.is_whole


def test_a_missing_decision_cuts_its_episode(ledger):
    for index in (0, 1, 3):
        decide(ledger, str(index), "e", at=float(index))
        reward(ledger, str(index), 1.0)
    ledger.lose(Gap("e", 2.0))
    reward(ledger, "3", 1.0)
    (before,) = ledger.take()
    # The observation behind the second is not known: it is not that of the decision after the gap.
    assert rows(before) == [("0", 1.0)] and before.final == b"o1" and not before.is_whole
    decide(ledger, "4", "e", at=4.0)
    reward(ledger, "4", 1.0, terminated=True)
    (behind,) = ledger.take()
    assert rows(behind) == [("3", 1.0), ("4", 1.0)] and not behind.is_whole


def test_an_episode_whose_beginning_is_missing_is_not_compared(ledger):
    ledger.lose(Gap("e", 0.0))
    decide(ledger, "1", "e", at=1.0)
    reward(ledger, "1", terminated=True)
    decide(ledger, "2", "e", at=2.0)
    reward(ledger, "2", terminated=True)
    assert [episode.is_whole for episode in ledger.take()] == [False, True]


@pytest.mark.parametrize(("at", "episode_id", "is_whole"), [(49.0, "e", False), (50.0, "e", True), (49.0, None, True)])
def test_an_episode_that_may_have_begun_with_an_earlier_server_is_not_compared(at, episode_id, is_whole):
    ledger = Ledger(timeout_s=100.0, max_steps=5, whole_from=50.0)
    decide(ledger, "0", episode_id, at=at)
    reward(ledger, "0", terminated=True)
    (episode,) = ledger.take()
    assert rows(episode) == [("0", 1.0)] and episode.is_whole == is_whole


def test_memory_is_bounded(ledger, monkeypatch):
    monkeypatch.setattr(decisions, "MOST_OPEN_BYTES", 10_000)
    for index in range(100):
        decide(ledger, str(index), f"e{index % 30}", at=float(index))
    assert ledger.num_open < 10 and ledger.counts["given_up"] == 100 - ledger.num_open
    status, why = reward(ledger, "0")
    assert status == 409 and "too many decisions" in why
    assert reward(ledger, "99") == (200, "")


def test_observations_that_come_with_rewards_count(ledger, monkeypatch):
    monkeypatch.setattr(decisions, "MOST_OPEN_BYTES", 20_000)
    for index in range(8):
        decide(ledger, str(index), f"e{index}", at=float(index))
        reward(ledger, str(index), next_observation=bytes(5_000))
    ledger.expire(1e9)
    assert sum(len(each.steps) for each in ledger.take()) <= 4


def test_random_streams_lose_nothing_and_count_nothing_twice():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        ledger, now, ids, sent, seen = Ledger(20.0, 6), 0.0, [], [], []
        for number in range(400):
            now += rng.exponential()
            if ids and rng.random() < 0.1:  # a repeated request, however late
                decide(ledger, *sent[rng.integers(len(sent))], at=now)
            elif rng.random() < 0.5 or not ids:
                ids.append(str(number))
                sent.append((ids[-1], rng.choice([None, "a", "b", "c"])))
                decide(ledger, *sent[-1], at=now - rng.uniform(0, 2))
            else:
                end = {0: {"terminated": True}, 1: {"truncated": True, "next_observation": b"f"}}
                reward(ledger, str(rng.choice(ids)), 1.0, now, **end.get(int(rng.integers(8)), {}))
            if rng.random() < 0.1:
                ledger.expire(now)
            seen += ledger.take()
        ledger.expire(now + 50)
        ledger.expire(now + 100)
        seen += ledger.take()
        assert ledger.num_open == 0 and not ledger._open and not ledger._current and not ledger._bytes, seed
        counted = [step.action_id for episode in seen for step in episode.steps]
        assert len(counted) == len(set(counted)), seed
        assert sum(episode.total for episode in seen) == ledger.counts["rewards"], seed
