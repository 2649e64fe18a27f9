"""Logged values: how they are reduced, nested and carried between processes, computed by hand."""

import math
import statistics

import numpy as np
import pytest

from rllib.core import MetricsLogger


def logged(values, **how):
    metrics = MetricsLogger()
    for value in values:
        metrics.log_value("x", value, **how)
    return metrics


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"reduce": "mean"}, 2.0),
        ({"reduce": "mean", "window": 2}, 2.5),
        ({"window": 2}, 2.5),
        ({"reduce": "sum"}, 6.0),
        ({"reduce": "min"}, 1.0),
        ({"reduce": "max"}, 3.0),
        ({"reduce": "item"}, 3.0),
        ({"reduce": "item_series"}, [1.0, 2.0, 3.0]),
        ({"reduce": None, "clear_on_reduce": True}, [1.0, 2.0, 3.0]),
        ({"reduce": "lifetime_sum"}, 6.0),
        ({"reduce": "ema", "ema_coeff": 0.5}, 0.5 * (0.5 * 1 + 0.5 * 2) + 0.5 * 3),
        ({"reduce": "mean", "ema_coeff": 0.5}, 2.25),
        ({}, 0.99 * (0.99 * 1 + 0.01 * 2) + 0.01 * 3),
        ({"reduce": "percentiles", "percentiles": [0, 50, 75]}, {"p0": 1.0, "p50": 2.0, "p75": 2.5}),
    ],
)
def test_a_reduction(how, expected):
    metrics = logged([1.0, 2.0, 3.0], **how)
    assert metrics.peek("x") == pytest.approx(expected)
    assert metrics.reduce() == {"x": pytest.approx(expected)}


def test_which_values_count_in_the_next_result():
    kept = {"window": {"reduce": "sum", "window": 10}, "all": {"reduce": "sum", "clear_on_reduce": False}}
    metrics = MetricsLogger()
    for name, how in {**kept, "sum": {"reduce": "sum"}, "mean": {"reduce": "mean"}}.items():
        metrics.log_value(name, 4, **how)
    metrics.reduce()
    assert metrics.peek("mean") == 4, "of the last result, where nothing was logged since"
    assert set(metrics.reduce()) == {"window", "all"}
    for name in ("window", "all", "sum", "mean"):
        metrics.log_value(name, 1)
    assert metrics.reduce() == {"window": 5, "all": 5, "sum": 1, "mean": 1}


REDUCTIONS = {"sum": sum, "min": min, "max": max, "mean": statistics.fmean}


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("form", ["name", "clear_on_reduce", "window"])
def test_reductions_of_all_times(reduce, form):
    of_all = REDUCTIONS[reduce]
    if (reduce, form) == ("mean", "clear_on_reduce"):
        pytest.skip("it is an exponential mean")
    how = {
        "name": {"reduce": f"lifetime_{reduce}"},
        "clear_on_reduce": {"reduce": reduce, "clear_on_reduce": False},
        "window": {"reduce": reduce, "window": float("inf")},
    }[form]
    worker, driver, values = MetricsLogger(records=True), MetricsLogger(), [4.0, 1.0, 7.0, 5.0, 6.0, 2.0]
    for count, value in enumerate(values, start=1):
        worker.log_value("x", value, **how)
        driver.repeat(worker.pop_calls())
        assert worker.peek("x") == pytest.approx(of_all(values[:count]))
        assert driver.reduce() == {"x": pytest.approx(of_all(values[:count]))}
        state, driver = driver.get_state(), MetricsLogger()
        driver.set_state(state)


def test_nested_keys():
    metrics = MetricsLogger()
    metrics.log_dict({"a": 1, "b": {"c": 2, "d": 3}}, key=("top",), reduce="sum")
    metrics.log_value(("top", "b", "c"), 5)
    assert ("top", "b") in metrics and "top" in metrics and "a" not in metrics
    assert metrics.peek(("top", "b")) == {"c": 7, "d": 3}
    assert metrics.peek("nothing", default=0) == 0
    with pytest.raises(KeyError, match="the keys are: top/a, top/b/c, top/b/d"):
        metrics.peek("nothing")
    assert metrics.reduce("top") == {"a": 1, "b": {"c": 7, "d": 3}}


def test_calls_are_repeated_in_another_process():
    workers = [MetricsLogger(records=True) for _ in range(2)]
    for worker, values in zip(workers, ([1.0], [2.0, 6.0])):
        for value in values:
            worker.log_value("x", value, reduce="mean")
    driver = MetricsLogger()
    for worker in workers:
        driver.repeat(worker.pop_calls(), "env_runners")
    assert driver.reduce() == {"env_runners": {"x": 3.0}}, "a mean of values, not of means"
    assert workers[0].pop_calls() == []


def test_values_of_arrays_and_tensors_are_numbers():
    torch = pytest.importorskip("torch")
    metrics = MetricsLogger()
    metrics.log_value("t", torch.tensor(2.0, requires_grad=True), reduce="sum")
    metrics.log_value("a", np.float32(3.0), reduce="sum")
    assert metrics.reduce() == {"t": 2.0, "a": 3.0}
    assert all(type(value) is float for value in (metrics.peek("t"), metrics.peek("a")))


def test_a_state_brings_the_kept_values_back():
    metrics = logged([1.0, 2.0], window=5)
    metrics.log_value("sum", 3, reduce="lifetime_sum")
    again = MetricsLogger()
    again.set_state(metrics.get_state())
    again.log_value("x", 6.0)
    again.log_value("sum", 1)
    assert again.reduce() == {"x": 3.0, "sum": 4}


def test_throughput_and_time():
    metrics = MetricsLogger()
    metrics.log_value("steps", 10, reduce="sum", with_throughput=True)
    with metrics.log_time("seconds", reduce="sum"):
        pass
    found = metrics.reduce()
    assert found["steps_throughput"] > 0 and found["seconds"] >= 0


def test_set_value_forgets_the_others():
    metrics = logged([1.0, 5.0], reduce="mean", window=10)
    metrics.set_value("x", 2.0)
    assert metrics.peek("x") == 2.0


@pytest.mark.parametrize("how", [{"reduce": "median"}, {"window": 0}, {"window": 1.5}])
def test_what_is_refused(how):
    with pytest.raises(ValueError, match=r"must be"):
        logged([1.0], **how)


def test_values_that_cannot_be_reduced_are_refused():
    with pytest.raises(TypeError, match="must be numbers"):
        logged(["text"], reduce="mean")
    assert logged(["text"], reduce="item").peek("x") == "text"
    assert math.isnan(MetricsLogger().peek("x", default=math.nan))
