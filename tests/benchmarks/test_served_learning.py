"""Policies that learn from users over HTTP come as far as in one process, and inverted rewards do not mislead them."""

import pytest
import served_learning as bench


@pytest.mark.learning
@pytest.mark.parametrize("name", ["bandit", "cartpole"])
def test_served_learning_is_within_5_percent_of_training_in_process(name):
    steps = bench.STEPS[name]
    alone = bench.in_process(name, steps, seed=0)
    over_http, stats, said = bench.served(name, steps, 0, *bench.OPTIONS[name])
    assert over_http >= 0.95 * alone, (alone, over_http, said)
    assert stats["promoted"] >= 2


@pytest.mark.learning
def test_inverted_rewards_do_not_get_past_the_canary():
    steps = bench.STEPS["bandit"]
    reached, stats, said = bench.served(
        "bandit", steps, 0, *bench.OPTIONS["bandit"], inverted=(steps // 2, steps // 2 + 1200)
    )
    assert any("Learning pauses" in line for line in said), said
    assert stats["rows"]["quarantined"] >= 1200 and not stats["paused"]
    assert reached >= 0.8
