"""What a process records of itself."""

import os
import threading
import time

import pytest

from rllib import spans
from rllib.spans import IDLE, read_lanes


@pytest.fixture
def recorded(tmp_path):
    """The directory of a recording of this process."""
    spans.start(tmp_path, "driver")
    yield tmp_path
    spans.stop()


def only_lane(directory):
    spans.flush()
    (lane,) = read_lanes(directory)
    return lane


def test_nothing_is_recorded_without_a_start(tmp_path):
    with spans.span("sample"), spans.call("update"):
        pass
    spans.start(None, "driver")
    assert not spans.is_recording() and spans.stopwatch("act", "step") is time.perf_counter
    spans.flush()
    spans.stop()
    assert read_lanes(tmp_path) == []


def test_processes_that_do_not_see_the_directory_go_on_without(tmp_path):
    spans.start(tmp_path / "on another machine", "rollout worker 1", serves=True)
    assert not spans.is_recording()


def test_spans_have_the_path_of_those_around_them(recorded):
    before = time.perf_counter()
    with spans.span("sample"):
        with spans.span("join"):
            time.sleep(0.002)
        with pytest.raises(KeyError), spans.span("join"):
            raise KeyError
    with spans.span("learn"):
        pass
    lane = only_lane(recorded)
    assert [path for path, _, _ in lane.spans] == ["sample/join", "sample/join", "sample", "learn"]
    (_, begin, end), _, (_, outer_begin, outer_end), (_, last_begin, _) = lane.spans
    assert before <= outer_begin <= begin <= end - 0.002 <= outer_end <= last_begin
    assert lane.seconds["sample/join"] == pytest.approx(sum(end - begin for _, begin, end in lane.spans[:2]))
    assert (lane.name, lane.pid) == ("driver", os.getpid()) and lane.lasted >= outer_end - outer_begin
    assert lane.epoch + begin == pytest.approx(time.time(), abs=5)


def test_a_stopwatch_makes_spans_of_a_hot_loop(recorded):
    with spans.span("sample"):
        clock = spans.stopwatch("act", "step")
        readings = [clock() for _ in range(6)]
        clock()  # of a round that does not come to its end
    lane = only_lane(recorded)
    rounds = [readings[:3], readings[3:]]
    expected = [span for a, b, c in rounds for span in (("sample/act", a, b), ("sample/step", b, c))]
    assert [span for span in lane.spans if span[0] != "sample"] == expected
    assert lane.seconds["sample/act"] == pytest.approx(sum(b - a for a, b, _ in rounds))


def test_an_actor_is_idle_between_calls(tmp_path):
    spans.start(tmp_path, "worker 1", serves=True)
    try:
        for _ in range(2):
            time.sleep(0.002)
            with spans.call("sample"), spans.call("inner"):
                pass
        (lane,) = read_lanes(tmp_path)  # written at the end of a call
        assert [path for path, _, _ in lane.spans] == [IDLE, "sample/inner", "sample"] * 2
        assert lane.seconds[IDLE] >= 0.004
    finally:
        spans.stop()


def test_the_sums_go_on_when_there_is_no_room_for_spans(recorded, monkeypatch):
    spans.stop()
    monkeypatch.setattr(spans, "MOST_SPANS", 10)
    spans.start(recorded, "full")
    clock = spans.stopwatch("step")
    for _ in range(40):
        clock()
    spans.flush()
    for _ in range(20):
        with spans.span("sample"):
            pass
    spans.flush()
    lane = read_lanes(recorded)[-1]
    kinds = [path for path, _, _ in lane.spans]
    assert kinds.count("step") == 5 and kinds.count("sample") == 5
    steps = [end - begin for path, begin, end in lane.spans if path == "step"]
    assert lane.seconds["step"] > sum(steps)


def test_other_threads_and_forked_children_are_not_recorded(recorded):
    def work():
        with spans.span("elsewhere"):
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if not (child := os.fork()):
        os._exit(spans.is_recording())
    assert os.waitpid(child, 0)[1] == 0
    assert only_lane(recorded).spans == []


def test_a_file_that_ends_in_the_middle_is_read_as_far_as_it_goes(recorded):
    with spans.span("sample"):
        pass
    lane = only_lane(recorded)
    (file,) = recorded.iterdir()
    with open(file, "ab") as out:
        out.write(b'{"spans": [["le')
    (again,) = read_lanes(recorded)
    assert again.spans == lane.spans
    (recorded / f"empty{spans.SUFFIX}").touch()
    assert len(read_lanes(recorded)) == 1


def test_lanes_come_in_the_order_of_their_numbers(tmp_path):
    for name in ("worker 10", "worker 2", "driver"):
        spans.start(tmp_path, name)
        spans.stop()
    assert [lane.name for lane in read_lanes(tmp_path)] == ["driver", "worker 2", "worker 10"]
