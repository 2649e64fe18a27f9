"""The flat vector: every number belongs to exactly one parameter, and all of them are views."""

import numpy as np
import pytest

from rllib.models.dense.batch_renorm import BatchRenorm
from rllib.models.dense.layout import LayersLayout

BOTH, POLICY = {"policy": 3, "value": 1}, {"policy": 3}
LAYOUTS = [
    LayersLayout(4, (), BOTH),
    LayersLayout(4, (8,), BOTH, None),
    LayersLayout(4, (8, 6, 5), BOTH, None),
    LayersLayout(4, (8, 6), BOTH),
    LayersLayout(3, (8, 6), BOTH, None, num_log_std=2),
    LayersLayout(4, (8, 6), POLICY),
    LayersLayout(4, (), POLICY),
    LayersLayout(4, (8, 6), BOTH, None, layer_norm=True),
    LayersLayout(4, (8, 6), POLICY, layer_norm=True),
    LayersLayout(4, (8, 6), BOTH, None, batch_renorm=BatchRenorm()),
    LayersLayout(4, (8,), POLICY, batch_renorm=BatchRenorm()),
    LayersLayout(4, (8, 6), {"policy": 3, "value": 1, "q1": 2, "q2": 2}, None),
    LayersLayout(4, (8, 6), {"policy": 3, "value": 1, "q1": 2, "q2": 2}),
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
    for owner in layout.heads if layout.shared is None else ("shared",):
        before = layout.num_inputs
        for index, width in enumerate(layout.hiddens):
            assert named[f"{owner}.hidden_{index}.weight"].shape == (width, before)
            assert named[f"{owner}.hidden_{index}.bias"].shape == (width,)
            for part in ("weight", "bias") if layout.layer_norm else ():
                assert named[f"{owner}.norm_{index}.{part}"].shape == (width,)
            before = width
    for name, outputs in layout.heads.items():
        assert named[f"{name}.head.weight"].shape == (outputs, before)
    assert ("policy.log_std" in named) == bool(layout.num_log_std)


def test_a_name_that_is_empty_is_left_out():
    layout = LayersLayout(4, (8,), {"": 2}, shared="")
    named = layout.named_parameters(np.zeros(layout.size, np.float32))
    assert list(named) == ["hidden_0.weight", "hidden_0.bias", "head.weight", "head.bias"]
