"""VMAS by name: its agents train, with the same bits for the same division among workers.

Its physics computes all environments of a worker at once, whose number decides how some numbers are rounded.
"""

import numpy as np
import pytest
from suite_rows import weights_after

from rllib.env import resolve
from rllib.env.factories.registry import EnvContext

pytestmark = [pytest.mark.extras("vmas"), pytest.mark.timeout(1200)]


def test_a_run_is_repeated_to_the_bit():
    np.testing.assert_array_equal(*(weights_after("vmas:balance", 1, 4, agents=True) for _ in range(2)))


def test_an_unknown_id_gets_the_nearest_one():
    with pytest.raises(ValueError, match=r"there is no environment 'vmas:balanc'. Did you mean"):
        resolve("vmas:balanc").make(EnvContext())


def test_agents_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"'vmas:simple_tag' have different spaces.*all agents are alike"):
        resolve("vmas:simple_tag").make(EnvContext())


def test_an_option_of_no_scenario_is_refused():
    with pytest.raises(ValueError, match=r"'n_agentz'.*does not fit 'vmas:balance'"):
        resolve("vmas:balance").make(EnvContext({"n_agentz": 3}))
