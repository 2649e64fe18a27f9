"""The sockets between the processes that answer and the learner: order, full buffers, a learner that is not there."""

import asyncio

import pytest

from rllib.serving.counts import Counts
from rllib.serving.learner_channel import LearnerChannel
from rllib.serving.learning.dispatcher import Dispatcher
from rllib.serving.learning.packets import (
    Ask,
    Decision,
    Gap,
    Reward,
    decode_answer,
    decode_of_worker,
    encode,
    socket_pair,
)
from rllib.serving.learning.settings import LearningSettings
from rllib.serving.learning.training_loop import TrainingLoop
from rllib.web.bodies import BadRequest


@pytest.fixture
def pairs():
    pairs = [socket_pair() for _ in range(2)]
    yield pairs
    for pair in pairs:
        for each in pair:
            each.close()


@pytest.fixture
def dispatcher(pairs):
    training_loop = TrainingLoop(LearningSettings(directory=""), served=0)
    return Dispatcher([pair[0] for pair in pairs], training_loop, lambda: {"learner": {}})


def decision(action_id, episode_id=None, at=0.0):
    return Decision(action_id, episode_id, at, 0, b"o", b"a")


def answers(channel) -> list[tuple[int, int]]:
    found = []
    while True:
        try:
            answer = decode_answer(channel.recv(1 << 16))
        except BlockingIOError:
            return found
        found.append((answer.request, answer.status))


def test_a_reward_finds_the_decision_of_another_process(pairs, dispatcher):
    (_, first), (_, second) = pairs
    first.send(encode(Reward(1, "x", 1.0)))  # of a decision that the other process has sent before
    second.send(encode(decision("x")))
    first.send(encode(Reward(2, "unknown", 1.0)))
    second.send(encode(Ask(3)))
    dispatcher.step(1.0)
    assert answers(first) == [(1, 200), (2, 404)] and answers(second) == [(3, 200)]


def test_a_decision_that_arrives_while_the_sockets_are_read(pairs, dispatcher, monkeypatch):
    (_, first), (_, second) = pairs
    read = dispatcher._read

    def reading():
        found = read()
        monkeypatch.setattr(dispatcher, "_read", read)
        # Behind the first look at the sockets: a decision, and its reward by the other process.
        second.send(encode(decision("y")))
        first.send(encode(Reward(2, "y", 1.0)))
        return found

    first.send(encode(Reward(1, "unknown", 1.0)))
    monkeypatch.setattr(dispatcher, "_read", reading)
    dispatcher.step(1.0)
    dispatcher.step(1.0)
    assert answers(first) == [(1, 404), (2, 200)]


def test_packets_that_are_none_are_left_out(pairs, dispatcher):
    _, channel = pairs[0]
    for junk in (b"\x80\x04.", b"{}", b"\xff" * 1000, encode(["decision", 1])):
        channel.send(junk)
    channel.send(encode(Ask(1)))
    dispatcher.step(1.0)
    assert answers(channel) == [(1, 200)]


def test_what_the_learner_has_missed_is_reported_when_it_is_back(pairs):
    async def run():
        counts = Counts(Counts.new(2).descriptor, 2, 0)
        channel = LearnerChannel(pairs[0][1], counts)
        assert not channel.record(decision("0", "e", at=1.0)) and not channel.record(decision("1"))
        with pytest.raises(BadRequest, match="the learner is not running"):
            await channel.reward(action_id="0", reward=1.0)
        counts.set("learner_running", 1)
        assert channel.record(decision("2", "e", at=2.0))
        packets = [decode_of_worker(pairs[0][0].recv(1 << 16)) for _ in range(2)]
        assert packets == [Gap("e", 1.0), decision("2", "e", at=2.0)]
        assert (counts.of_all("decisions"), counts.of_all("decisions_unrecorded")) == (1, 2)

        number = 0
        while channel.record(decision(str(number), "full")):  # nobody reads
            number += 1
            assert number < 1_000_000
        with pytest.raises(BadRequest, match="busy"):
            await channel.reward(action_id="0", reward=1.0)

    asyncio.run(run())


def test_episodes_that_an_earlier_learner_has_begun_are_not_whole(pairs, dispatcher):
    """Their returns would be compared with those of whole episodes."""

    async def run():
        counts = Counts(Counts.new(2).descriptor, 2, 0)
        counts.set("learner_running", 1)
        counts.add("learner_starts")
        channel = LearnerChannel(pairs[0][1], counts)
        for number, episode in enumerate(("a", "b", "a", "over")):
            assert channel.record(decision(str(number), episode, at=float(number)))
        while pairs[0][0].recv(1 << 16) != encode(decision("3", "over", at=3.0)):  # by the learner that dies
            pass
        counts.add("learner_starts")
        for number, episode in enumerate(("b", "new", "a", "new"), 4):
            assert channel.record(decision(str(number), episode, at=float(number)))
        dispatcher.step(8.0)
        ledger = dispatcher._training_loop.ledger
        for action_id, is_last in (("4", True), ("5", False), ("6", True), ("7", True)):
            assert ledger.reward(Reward(1, action_id, 1.0, is_last), now=9.0) == (200, "")
        whole = {tuple(step.action_id for step in each.steps): each.is_whole for each in ledger.take()}
        assert whole == {("4",): False, ("6",): False, ("5", "7"): True}
        ledger.expire(10_000.0)
        assert not ledger.take() and not ledger._open

    asyncio.run(run())


def test_a_question_ends_when_the_learner_does(pairs):
    async def run():
        counts = Counts(Counts.new(2).descriptor, 2, 0)
        counts.set("learner_running", 1)
        channel = LearnerChannel(pairs[0][1], counts)
        asking = asyncio.create_task(channel.stats())
        await asyncio.sleep(0)
        counts.set("learner_running", 0)
        with pytest.raises(BadRequest, match="the learner is not running"):
            await asking

    asyncio.run(run())
