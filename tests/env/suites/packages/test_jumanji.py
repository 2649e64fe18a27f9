"""jumanji by name: one of its environments is played."""

import numpy as np
import pytest
from suite_rows import random_rows

from rllib.env import make_stream, resolve

pytestmark = [pytest.mark.extras("jumanji"), pytest.mark.timeout(1200)]


def test_it_is_played_and_equal_seeds_give_equal_bits():
    rows, again = (random_rows("jumanji:Game2048-v1", steps=40) for _ in range(2))
    for one, other in zip(rows[:2], again[:2]):
        assert np.isfinite(one).all()
        np.testing.assert_array_equal(one, other)


def test_an_unknown_id_gets_the_nearest_one():
    with pytest.raises(ValueError, match=r"there is no environment 'jumanji:Game204-v1'. Did you mean"):
        make_stream(resolve("jumanji:Game204-v1"), num_envs=1, seeds=[0])


def test_numbers_before_the_first_and_after_the_last_step_lie_in_the_space():
    """Spaces of Jumanji leave out TSP's position before the first city, and Snake's count at its time limit."""
    _, _, ends = random_rows("jumanji:Snake-v1", steps=40, env_config={"time_limit": 5})
    assert len(ends) >= 3 * 8
    assert random_rows("jumanji:TSP-v1", steps=40)[2]
