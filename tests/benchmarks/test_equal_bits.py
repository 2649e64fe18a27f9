"""The comparison of bits sees what differs, and its cases are those of a run."""

import pytest
from equal_bits import cases, differences, numbers_of, run_case

GIVEN = {"iteration 1": {"episode_reward_mean": "1.0", "timesteps_total": "64.0"}, "weights 1": {"p": "ab"}}


@pytest.mark.parametrize(
    ("part", "key"), [("iteration 1", "episode_reward_mean"), ("iteration 1", "timesteps_total"), ("weights 1", "p")]
)
def test_what_differs_is_named(part, key):
    other = {**GIVEN, part: {**GIVEN[part], key: "7.0"}}
    found, alone = differences(other, GIVEN)
    assert len(found) == 1 and part in found[0] and f"{key} 7.0 | {GIVEN[part][key]}" in found[0]
    assert not alone and differences(GIVEN, GIVEN) == ([], set())


def test_keys_of_one_checkout_and_errors_are_told_apart():
    more = {**GIVEN, "weights 1": {"p": "ab", "q": "cd"}}
    assert differences(more, GIVEN) == ([], {"q"})
    found, _ = differences({"error": "ValueError: x"}, GIVEN)
    assert "ValueError: x" in found[0]


def test_numbers_that_depend_on_the_clock_are_left_out():
    result = {"timers": {"a": 1}, "time_total_s": 3.0, "pid": 7, "info": {"kl": 0.5, "x_throughput": 9.0, "n": [1, 2]}}
    assert dict(numbers_of(result)) == {"info/kl": "0.5", "info/n/0": "1.0", "info/n/1": "2.0"}


def test_a_case_gives_the_same_twice_and_its_restored_run_goes_on_alike():
    make = cases()["PPO numpy two agents"]
    given = run_case(make)
    assert differences(given, run_case(make)) == ([], set())
    assert given["weights 1"] != given["weights 2"]
    assert given["restored weights"] == given["weights 3"]
