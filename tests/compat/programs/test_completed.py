"""`as_completed` and `map_unordered`, as Ray documents them."""

import time

import pytest

import runtime
from rllib.compat.programs.completed import as_completed, map_unordered


@runtime.remote(num_cpus=0)
def slept(seconds):
    time.sleep(seconds)
    return seconds


@pytest.fixture(scope="module", autouse=True)
def session():
    with runtime.init(num_cpus=2):
        yield
    runtime.shutdown()


@pytest.mark.parametrize("words", [{}, {"chunk_size": 1}, {"chunk_size": 2, "timeout": 0.01, "fetch_local": True}])
def test_values_come_as_they_are_done(words):
    times = [0.9, 0.0, 0.5]
    assert list(as_completed([slept.remote(each) for each in times], **words)) == sorted(times)
    assert list(map_unordered(slept, iter(times), **words)) == sorted(times)
    assert list(as_completed([])) == list(map_unordered(slept, [])) == []


def test_references_if_they_are_asked_for():
    refs = [slept.remote(0) for _ in range(3)]
    assert set(as_completed(refs, yield_obj_refs=True)) == set(refs)
    assert runtime.get(list(map_unordered(slept, [0, 0], yield_obj_refs=True))) == [0, 0]


def test_no_more_tasks_than_allowed_are_pending():
    drawn = []

    def items():
        for item in range(20):
            drawn.append(item)
            yield 0

    found = map_unordered(slept, items(), backpressure_size=3, chunk_size=1)
    for count, _ in enumerate(found, start=1):
        assert len(drawn) <= 3 + count
    assert count == len(drawn) == 20


@pytest.mark.parametrize("words", [{"chunk_size": 0}, {"backpressure_size": 5}])
def test_wrong_sizes_are_refused(words):
    with pytest.raises(ValueError, match="must be"):
        map_unordered(slept, [1], **words)
