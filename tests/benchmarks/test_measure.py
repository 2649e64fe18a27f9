"""What programs that measure take on their command lines."""

import argparse

import pytest
from measure import above_0, at_least_1


@pytest.mark.parametrize("kind, wrong", [(at_least_1, "0 -1 1.5 x"), (above_0, "0 -1 nan inf x")])
def test_a_number_that_measures_nothing_is_refused_with_the_rule(kind, wrong):
    assert kind("2") == 2
    for text in wrong.split():
        with pytest.raises(argparse.ArgumentTypeError, match=f"{text} must be .* (>= 1|> 0)"):
            kind(text)
