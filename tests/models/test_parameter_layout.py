"""The flat vector: every number belongs to exactly one parameter, and all of them are views."""

import numpy as np
import pytest

from rllib.models.layout import ParameterLayout

LAYOUTS = [
    ParameterLayout(4, (), 2, 1),
    ParameterLayout(4, (8,), 2, 2),
    ParameterLayout(4, (8, 6, 5), 3, 2),
    ParameterLayout(4, (8, 6), 3, 1),
    ParameterLayout(3, (8, 6), 2, 2, num_log_std=2),
    ParameterLayout(4, (8, 6), 3, 1, num_values=0),
    ParameterLayout(4, (), 3, 1, num_values=0),
    ParameterLayout(4, (8, 6), 3, 2, layer_norm=True),
    ParameterLayout(4, (8, 6), 3, 1, num_values=0, layer_norm=True),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_parameters_tile_the_vector(layout):
    flat = np.zeros(layout.size, np.float32)
    for parameter in layout.named_parameters(flat).values():
        parameter += 1
    assert np.array_equal(flat, np.ones(layout.size))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_shapes_are_those_of_torch_linear(layout):
    named = layout.named_parameters(np.zeros(layout.size, np.float32))
    owners = ("policy", "value") if layout.num_towers == 2 else ("shared",)
    for owner in owners:
        before = layout.num_inputs
        for index, width in enumerate(layout.hiddens):
            assert named[f"{owner}.hidden_{index}.weight"].shape == (width, before)
            assert named[f"{owner}.hidden_{index}.bias"].shape == (width,)
            for part in ("weight", "bias") if layout.layer_norm else ():
                assert named[f"{owner}.norm_{index}.{part}"].shape == (width,)
            before = width
    assert named["policy.head.bias"].shape == (layout.num_outputs,)
    assert ("value.head.bias" in named) == bool(layout.num_values)
    assert ("policy.log_std" in named) == bool(layout.num_log_std)


def test_finds_the_parameters_that_hold_a_number():
    layout = LAYOUTS[1]
    bad = np.zeros(layout.size, bool)
    layout.named_parameters(bad)["value.hidden_0.weight"][3, 2] = True
    assert layout.names_where(bad) == ["value.hidden_0.weight"]
