"""rware by name: its agents train, with the same bits for any division among workers."""

import numpy as np
import pytest
from suite_rows import weights_after

from rllib.env import resolve
from rllib.env.factories.registry import EnvContext

pytestmark = [pytest.mark.extras("rware"), pytest.mark.timeout(1200)]


def test_a_division_among_workers_gives_the_same_bits():
    np.testing.assert_array_equal(
        *(weights_after("rware:rware-tiny-2ag-v2", *each, agents=True) for each in ((1, 4), (2, 2)))
    )


def test_an_unknown_id_gets_the_nearest_one():
    with pytest.raises(ValueError, match=r"there is no environment 'rware:rware-tini-2ag-v2'. Did you mean"):
        resolve("rware:rware-tini-2ag-v2").make(EnvContext())
