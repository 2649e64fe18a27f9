"""Schedulers against trials with known curves: they promote and stop exactly those that the papers' rules say."""

import json
import statistics

import pytest

from rllib.tune.schedulers import create_scheduler
from rllib.tune.schedulers.base import FIFOScheduler
from tests.tune.simulator import ERROR, PAUSED, TERMINATED, SimTrial, Simulator

NAN = float("nan")


def _make(name, **kwargs):
    scheduler = create_scheduler(name, **kwargs)
    scheduler.set_search_properties("score", "max")
    return scheduler


def _by_quality(config, iteration):
    return config["q"]


def _configs(qualities):
    return [{"q": q} for q in qualities]


def _after_json(name, scheduler, **kwargs):
    other = _make(name, **kwargs)
    other.set_state(json.loads(json.dumps(scheduler.get_state(), allow_nan=False)))
    return other


def test_fifo_runs_everything_in_order():
    simulator = Simulator(_make("fifo"), _configs([1, 2, 3]), _by_quality, slots=1, max_iterations=4)
    simulator.run(rounds=4)
    assert simulator.iterations() == [4, 0, 0]
    assert simulator.run().iterations() == [4, 4, 4]


# ---------------------------------------------------------------------- ASHA


def _paper_asha(qualities, eta, milestones, max_t):
    """Where each trial ends when they run in turns, best-first counting by hand: the best floor(n / eta), or one."""
    rungs, ended, t = {m: [] for m in milestones}, {}, 0
    while len(ended) < len(qualities):
        t += 1
        for index, quality in enumerate(qualities):
            if index in ended:
                continue
            if t >= max_t:
                ended[index] = t
            elif t in rungs:
                rungs[t].append(quality)
                rank = sum(other > quality for other in rungs[t])
                if rank >= max(len(rungs[t]) // eta, 1):
                    ended[index] = t
    return [ended[index] for index in range(len(qualities))]


@pytest.mark.parametrize("order", [list(range(27)), list(range(27))[::-1], [7 * i % 27 for i in range(27)]])
def test_asha_stops_those_that_the_paper_stops(order):
    simulator = Simulator(_make("asha", max_t=27, reduction_factor=3), _configs(order), _by_quality).run()
    assert simulator.iterations() == _paper_asha(order, 3, [1, 3, 9], 27)
    assert simulator.trials[order.index(26)].iteration == 27  # the best always reaches the end


def test_asha_keeps_the_best_of_every_eta_one_after_another():
    # One at a time, from the best down: the first goes to the end, and among n the best n // 4 go on.
    simulator = Simulator(_make("asha", max_t=16), _configs(range(16)[::-1]), _by_quality, slots=1).run()
    assert simulator.iterations() == [16] + [1] * 15


def test_asha_rungs_and_brackets():
    scheduler = _make("asha", max_t=100, grace_period=2, reduction_factor=3, brackets=3)
    assert [[t for t, _ in bracket] for bracket in scheduler.brackets] == [[2, 6, 18, 54], [6, 18, 54], [18, 54]]
    simulator = Simulator(scheduler, _configs(range(40)), _by_quality)
    # Private: brackets show only in decisions much later
    sizes = [list(scheduler._bracket_of.values()).count(s) for s in range(3)]
    assert sum(sizes) == 40 and sizes == sorted(sizes, reverse=True)
    assert simulator.run().trials[39].status == TERMINATED


def test_asha_has_no_rung_behind_a_whole_number():
    scheduler = _make("asha", max_t=200, grace_period=100, reduction_factor=1.1)
    assert [t for t, _ in scheduler.brackets[0]][:3] == [100, 110, 121]


def test_asha_counts_the_best_without_a_rounding_error():
    scheduler = _make("asha", max_t=10, reduction_factor=2.2)  # 33 / 2.2 is 14.999999999999998 in floating point
    decisions = []
    for index, quality in enumerate([*range(18), *range(19, 33), 18]):  # the last is the 15th
        trial = SimTrial(f"t{index}", {})
        scheduler.on_trial_add(None, trial)
        decisions.append(scheduler.on_trial_result(None, trial, {"training_iteration": 1, "score": quality}))
    assert decisions[-1] == "CONTINUE"


def test_asha_minimises_too():
    scheduler = create_scheduler("asha", max_t=9, reduction_factor=3, metric="score", mode="min")
    simulator = Simulator(scheduler, _configs(range(9)), _by_quality).run()
    assert simulator.iterations() == _paper_asha([-q for q in range(9)], 3, [1, 3], 9)


# ---------------------------------------------------------------------- HyperBand


def test_hyperband_brackets_are_those_of_the_paper():
    scheduler = _make("hyperband")
    assert [scheduler.size(s) for s in (4, 3, 2, 1, 0)] == [81, 34, 15, 8, 5]


def test_hyperband_promotes_those_that_the_paper_promotes():
    # R = 9, eta = 3: bracket 2 has 9 trials (9 -> 3 -> 1), bracket 1 has 5 (5 -> 1), bracket 0 has 3 (to the end).
    qualities = [3, 8, 1, 9, 5, 7, 2, 4, 6, 1, 5, 3, 2, 4, 9, 8, 7]
    simulator = Simulator(_make("hyperband", max_t=9), _configs(qualities), _by_quality).run()
    first = {9: 9, 8: 3, 7: 3}
    assert simulator.iterations()[:9] == [first.get(q, 1) for q in qualities[:9]]
    assert simulator.iterations()[9:14] == [3, 9, 3, 3, 3]
    assert simulator.iterations()[14:] == [9, 9, 9]


def test_hyperband_with_one_place_pauses_and_gives_the_same_result():
    qualities = [3, 8, 1, 9, 5, 7, 2, 4, 6, 1, 5, 3, 2, 4, 9, 8, 7]
    together = Simulator(_make("hyperband", max_t=9), _configs(qualities), _by_quality).run()
    alone = Simulator(_make("hyperband", max_t=9), _configs(qualities), _by_quality, slots=1).run(rounds=3)
    assert [trial.status for trial in alone.trials[:3]] == [PAUSED] * 3
    assert alone.run().iterations() == together.iterations()


@pytest.mark.parametrize(("max_t", "eta", "s", "milestone"), [(729, 3, 5, 3), (36, 1.2, 2, 25), (10**4, 10, 3, 10)])
def test_hyperband_halves_at_whole_numbers(max_t, eta, s, milestone):
    scheduler = _make("hyperband", max_t=max_t, reduction_factor=eta)
    before = sum(scheduler.size(larger) for larger in range(s + 1, scheduler.s_max + 1))
    trials = [SimTrial(f"t{index}", {}) for index in range(before + 1)]
    for trial in trials:
        scheduler.on_trial_add(None, trial)
    decisions = [
        scheduler.on_trial_result(None, trials[-1], {"training_iteration": time, "score": 1.0})
        for time in (milestone - 1, milestone)
    ]
    assert decisions == ["CONTINUE", "PAUSE"]


def test_hyperband_halves_a_bracket_that_nobody_fills():
    simulator = Simulator(_make("hyperband", max_t=9), _configs([1, 2, 3, 4]), _by_quality).run()
    assert simulator.iterations() == [1, 1, 1, 9]
    assert {trial.status for trial in simulator.trials} == {TERMINATED}


def test_hyperband_does_not_wait_for_failed_trials():
    simulator = Simulator(_make("hyperband", max_t=9), _configs(range(9)), _by_quality)
    simulator.failing = {"t002", "t008"}
    simulator.run()
    assert simulator.iterations() == [1, 1, 0, 1, 1, 3, 3, 9, 0]
    assert [trial.status for trial in simulator.trials].count(ERROR) == 2


# ---------------------------------------------------------------------- median stopping


def test_median_stopping_is_viziers_rule():
    def curve(config, t):
        return config["q"] * t - 20 * (t > 4) * (config["q"] == 3)

    qualities = [5, 4, 2, 6, 3, 1]
    scheduler = _make("median_stopping", time_attr="training_iteration", grace_period=3, min_samples_required=2)
    simulator = Simulator(scheduler, _configs(qualities), curve, max_iterations=10).run()

    reported, ended = {q: [] for q in qualities}, {}
    for t in range(1, 11):
        for q in qualities:
            if q in ended:
                continue
            reported[q].append(curve({"q": q}, t))
            if t == 10:
                ended[q] = t
                continue
            means = [
                statistics.mean(values[:t]) for other, values in reported.items() if other != q and len(values) >= t
            ]
            if t >= 3 and len(means) >= 2 and max(reported[q]) < statistics.median(means):
                ended[q] = t
    assert simulator.iterations() == [ended[q] for q in qualities]
    assert 3 <= ended[1] < 10 and ended[6] == 10


def test_median_stopping_may_pause_instead():
    scheduler = _make(
        "median_stopping",
        time_attr="training_iteration",
        grace_period=2,
        min_samples_required=1,
        hard_stop=False,
        min_time_slice=3,
    )
    simulator = Simulator(scheduler, _configs([5, 1, 9]), _by_quality, slots=1, max_iterations=6).run()
    assert simulator.iterations() == [6, 6, 6]


@pytest.mark.parametrize("through_json", [False, True])
def test_median_stopping_sees_completed_trials(through_json):
    """Good trials that end early, at their only or second result, are the median for a bad one that goes on."""

    def complete(name, results):
        trial = SimTrial(name, {})
        for result in results[:-1]:
            assert scheduler.on_trial_result(None, trial, result) == "CONTINUE"
        scheduler.on_trial_complete(None, trial, results[-1])

    settings = {"time_attr": "training_iteration", "grace_period": 2, "min_samples_required": 2}
    scheduler = _make("median_stopping", **settings)
    complete("a", [{"training_iteration": 1, "score": 9}])
    complete("b", [{"training_iteration": 1, "score": 7}, {"training_iteration": 2, "score": 9}])
    if through_json:
        scheduler = _after_json("median_stopping", scheduler, **settings)
    good, bad = SimTrial("good", {}), SimTrial("bad", {})
    assert scheduler.on_trial_result(None, good, {"training_iteration": 5, "score": 8.6}) == "CONTINUE"
    assert scheduler.on_trial_result(None, bad, {"training_iteration": 5, "score": 8.4}) == "STOP"
    # What the rule itself has stopped has not completed, and does not lower the median later on.
    scheduler.on_trial_complete(None, bad, {"training_iteration": 5, "score": 8.4})
    assert scheduler.on_trial_result(None, good, {"training_iteration": 6, "score": 8.0}) == "CONTINUE"
    late = SimTrial("late", {})
    assert scheduler.on_trial_result(None, late, {"training_iteration": 7, "score": 8.45}) == "STOP"


# ---------------------------------------------------------------------- no number yet

LATE = {
    "asha": {"max_t": 9, "reduction_factor": 3},
    "hyperband": {"max_t": 9},
    "median_stopping": {"time_attr": "training_iteration", "grace_period": 1, "min_samples_required": 1},
}


def _from_a_time_on(config, iteration):
    return config["q"] if iteration >= config["first"] else NAN


@pytest.mark.parametrize("slots", [1, 9])
@pytest.mark.parametrize("first", [2, 4, 8])
@pytest.mark.parametrize("name", LATE)
def test_a_trial_waits_for_its_first_number(name, first, slots):
    """As of a return before the first episode ends; the late one is the best all the same."""
    configs = [{"q": q, "first": first if q == 9 else 1} for q in (4, 9, 1, 2, 3, 5)]
    simulator = Simulator(_make(name, **LATE[name]), configs, _from_a_time_on, slots=slots, max_iterations=9).run()
    assert simulator.iterations()[1] == 9
    assert {trial.status for trial in simulator.trials} == {TERMINATED}
    if slots == 9:
        assert min(simulator.iterations()) < 9, "others are ended by their numbers"


@pytest.mark.parametrize("stop_last", [True, False])
@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_a_trial_that_never_has_a_number_ends_at_the_longest_time(name, stop_last):
    scheduler = _make(name, **LATE[name], stop_last_trials=stop_last)
    configs = [{"q": q, "first": 99 if q == 0 else 1} for q in (1, 0, 2)]
    simulator = Simulator(scheduler, configs, _from_a_time_on, max_iterations=12).run()
    assert simulator.iterations()[1:] == ([9, 9] if stop_last else [12, 12])


@pytest.mark.parametrize("name", LATE)
def test_infinities_are_numbers_and_survive_in_the_state(name):
    whole = Simulator(_make(name, **LATE[name]), _configs([1, float("inf"), 2, float("-inf")]), _by_quality,
                      max_iterations=9)  # fmt: skip
    first = Simulator(_make(name, **LATE[name]), _configs([1, float("inf"), 2, float("-inf")]), _by_quality,
                      max_iterations=9)  # fmt: skip
    first.run(rounds=1)
    first.scheduler = _after_json(name, first.scheduler, **LATE[name])
    assert first.run().iterations() == whole.run().iterations()
    assert whole.iterations()[3] < 9 == whole.iterations()[1]


# ---------------------------------------------------------------------- what all share


@pytest.mark.parametrize(
    "name, kwargs",
    [
        ("asha", {"max_t": 27, "reduction_factor": 3, "brackets": 2}),
        ("hyperband", {"max_t": 9}),
        ("median_stopping", {"time_attr": "training_iteration", "grace_period": 3}),
    ],
)
def test_state_survives(name, kwargs):
    qualities = [5 * i % 17 for i in range(17)]
    whole = Simulator(_make(name, **kwargs), _configs(qualities), _by_quality, slots=4, max_iterations=30).run()
    for rounds in (1, 5, 20):
        first = Simulator(_make(name, **kwargs), _configs(qualities), _by_quality, slots=4, max_iterations=30)
        first.run(rounds=rounds)
        first.scheduler = _after_json(name, first.scheduler, **kwargs)
        assert first.run().iterations() == whole.iterations(), rounds


@pytest.mark.parametrize("name", ["asha", "hyperband", "median_stopping"])
def test_a_missing_metric_says_what_there_is(name):
    scheduler = create_scheduler(name, metric="scor", mode="max")
    simulator = Simulator(scheduler, _configs([1]), _by_quality)
    with pytest.raises(
        ValueError, match=r"no (metric 'scor'|metric 'time_total_s').*They have: score, training_iteration"
    ):
        simulator.run(rounds=1)


def test_nested_metrics():
    scheduler = create_scheduler("asha", metric="env/score", mode="max")
    assert (
        scheduler.on_trial_result(
            None, Simulator(scheduler, [{}]).trials[0], {"training_iteration": 1, "env": {"score": 2}}
        )
        == "CONTINUE"
    )


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: create_scheduler("ashaa"), "Did you mean asha"),
        (lambda: create_scheduler("bohb"), "no maintained library"),
        (lambda: create_scheduler(3), "name or a TrialScheduler"),
        (lambda: create_scheduler("asha").set_search_properties("score", None), "mode is missing"),
        (lambda: create_scheduler("asha").set_search_properties(None, None), "metric and mode is missing"),
        (lambda: create_scheduler("asha", metric="a").set_search_properties("b", "max"), "Give it once"),
        (lambda: create_scheduler("asha", mode="maximum"), "'max' or 'min'"),
        (lambda: create_scheduler("asha", max_t=1, grace_period=5), "max_t must be >= grace_period"),
        (lambda: create_scheduler("asha", reduction_factor=1), "reduction_factor must be > 1"),
        (lambda: create_scheduler("hyperband", max_t=0), "max_t must be >= 1"),
        (lambda: create_scheduler("hyperband", max_t="81"), "max_t must be a number >= 1, but got '81'"),
        (lambda: create_scheduler("asha", max_t=None), "max_t must be a number >= grace_period=1"),
        (lambda: create_scheduler("asha", brackets=1.5), "brackets must be a whole number >= 1"),
        (lambda: create_scheduler("median_stopping", grace_period="60"), "grace_period must be a number, but got"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_fifo_needs_no_metric():
    assert FIFOScheduler().set_search_properties(None, None)
