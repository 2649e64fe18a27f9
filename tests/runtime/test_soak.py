"""The chaos of `make soak` for a minute."""

import pytest
import soak


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_nothing_is_lost_doubled_or_left_in_a_minute(fresh, tmp_path):
    fresh(num_cpus=soak.CPUS, object_store_memory=2**29)
    _, problems = soak.soak(0, 60, tmp_path)
    assert not problems
