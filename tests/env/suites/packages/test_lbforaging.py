"""lbforaging by name: its agents train, with the same bits for any division among workers."""

import numpy as np
import pytest
from suite_rows import weights_after

from rllib.env import resolve
from rllib.env.factories.registry import EnvContext

pytestmark = [pytest.mark.extras("lbforaging"), pytest.mark.timeout(1200)]


def test_a_division_among_workers_gives_the_same_bits():
    np.testing.assert_array_equal(
        *(weights_after("lbforaging:Foraging-8x8-2p-3f-v3", *each, agents=True) for each in ((1, 4), (2, 2)))
    )


def test_an_unknown_id_gets_the_nearest_one():
    with pytest.raises(ValueError, match=r"there is no environment 'lbforaging:Foraging-8x8-2p-3g-v3'. Did you mean"):
        resolve("lbforaging:Foraging-8x8-2p-3g-v3").make(EnvContext())


def test_its_time_limit_truncates():
    env = resolve("lbforaging:Foraging-8x8-2p-3f-v3").make(EnvContext({"max_episode_steps": 3}))
    env.reset(seed=0)
    flags = [env.step({"agent_0": 0, "agent_1": 0})[2:4] for _ in range(3)]
    assert [(ended["__all__"], cut["__all__"]) for ended, cut in flags] == [
        (False, False),
        (False, False),
        (False, True),
    ]


def test_an_argument_of_no_class_is_refused():
    with pytest.raises(ValueError, match=r"env_config has 'sigt'.*Did you mean 'sight'"):
        resolve("lbforaging:Foraging-8x8-2p-3f-v3").make(EnvContext({"sigt": 3}))
