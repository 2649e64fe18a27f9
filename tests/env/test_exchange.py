"""The exchange: turns are answered in the threads that hand them over, each once, by one thread at a time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rllib.env.external.exchange import Exchange, RunEnded, StepRequest

LONG_S = 60.0


class Serving:
    """Has turns answered by `answer` until `end`, in a thread that stands for the worker's."""

    def __init__(self, exchange, answer):
        self._exchange, self._answer, self._ends = exchange, answer, False
        self._pool = ThreadPoolExecutor(1)
        self.served = self._pool.submit(exchange.serve, self._take, LONG_S)

    def _take(self, turns):
        self._answer(turns)
        return self._ends

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._ends = True
        ask(self._exchange)
        assert self.served.result(LONG_S)
        self._pool.shutdown()


def ask(exchange, name="e"):
    turn = StepRequest(name, None)
    exchange.submit(turn)
    exchange.take_part()
    assert turn.wait(LONG_S)
    return turn.actions


def answer_all(turns):
    for turn in turns:
        turn.answer({"agent0": turn.episode_id})


def test_many_threads_get_their_own_answers_one_round_at_a_time():
    exchange, answering, count = Exchange(), threading.Lock(), []

    def answer(turns):
        assert answering.acquire(blocking=False)
        count.append(len(turns))
        answer_all(turns)
        answering.release()

    def play(loop):
        return all(ask(exchange, f"{loop}/{step}") == {"agent0": f"{loop}/{step}"} for step in range(200))

    with Serving(exchange, answer), ThreadPoolExecutor(8) as loops:
        assert all(loops.map(play, range(8)))
    assert sum(count) == 8 * 200 + 1


def test_a_lone_turn_is_answered_in_its_own_thread():
    exchange, threads = Exchange(), []

    def answer(turns):
        threads.append(threading.get_ident())
        answer_all(turns)

    with Serving(exchange, answer):
        for _ in range(20):  # some perhaps by the worker's thread: when it begins, or if this one is held up
            ask(exchange)
    assert threading.get_ident() in threads


def test_a_thread_that_takes_longer_holds_nobody_up():
    exchange = Exchange()
    first = [StepRequest(name, None) for name in "ab"]
    for turn in first:
        exchange.submit(turn)
    with Serving(exchange, answer_all):
        assert all(turn.wait(LONG_S) for turn in first)
        for name in "aaaa":  # b does not come back
            assert ask(exchange, name) == {"agent0": name}


def test_turns_wait_while_the_worker_does_not_sample():
    exchange = Exchange()
    turn = StepRequest("e", None)
    exchange.submit(turn)
    exchange.take_part()
    exchange.answer_waiting()
    assert not turn.is_answered
    assert exchange.serve(lambda turns: answer_all(turns) or True, LONG_S) and turn.wait(0.0)


def test_an_exception_is_raised_in_the_workers_thread():
    exchange = Exchange()
    turn = StepRequest("e", None)

    def fail(turns):
        raise KeyError(turns[0].episode_id)

    with ThreadPoolExecutor(1) as worker:
        served = worker.submit(exchange.serve, fail, LONG_S)
        exchange.submit(turn)
        exchange.take_part()
        with pytest.raises(KeyError, match="'e'"):
            served.result(LONG_S)
    assert not turn.is_answered
    exchange.submit(turn)  # the worker goes on
    assert exchange.serve(lambda turns: answer_all(turns) or True, LONG_S)


def test_silence_and_waking_end_the_service():
    exchange = Exchange()
    assert not exchange.serve(answer_all, 0.01)
    exchange.wake()
    assert not exchange.serve(answer_all, LONG_S)


def test_turns_that_are_left_to_the_worker_are_answered_in_its_thread():
    exchange, answered_in = Exchange(), {}

    def answer(turns):
        for turn in turns:
            answered_in[turn.episode_id] = threading.get_ident()
        answer_all(turns)

    with Serving(exchange, answer) as serving:
        left = StepRequest("left", None)
        ask(exchange, "before")
        exchange.submit_to_worker(left)
        exchange.answer_waiting()
        assert left.wait(LONG_S) and ask(exchange, "after")
        worker = next(thread.ident for thread in serving._pool._threads)
    assert answered_in["left"] == worker


def test_a_round_takes_in_what_arrives_meanwhile():
    exchange, rounds = Exchange(), []
    late = StepRequest("late", None)

    def answer(turns):
        if turns[0].episode_id == "early":
            exchange.submit(late)
            turns = turns + exchange.arrived()
            rounds.append([turn.episode_id for turn in turns])
        answer_all(turns)

    with Serving(exchange, answer):
        ask(exchange, "early")
        assert late.wait(LONG_S)
    assert rounds == [["early", "late"]]


def test_what_follows_a_turn_fails_with_it():
    class Chained(StepRequest):
        def following(self):
            return followers.pop() if followers else None

    exchange, last = Exchange(), StepRequest("last", None)
    followers = [last]
    exchange.submit_to_worker(Chained("first", None))
    exchange.end(RunEnded("over"))
    with pytest.raises(RunEnded):
        last.wait(LONG_S)
