"""Spaces as text: what is read, and what is refused without being run."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rllib.client import _space_text
from rllib.env.spaces.notation import space_from_text

SPACES = [
    Box(-np.inf, np.inf, (4,)),
    Box(0, 255, (8, 8, 3), np.uint8),
    Box(np.array([-1.5, 0], np.float32), np.array([2.25, np.inf], np.float32)),
    Box(-1, 1, ()),
    Discrete(2),
    Discrete(5, start=-2),
    MultiDiscrete([3, 2]),
    MultiBinary(4),
    MultiBinary([2, 3]),
    Dict({"seen": Box(0, 1, (2,), np.float64), "left": Tuple([Discrete(2), Discrete(3)])}),
    gymnasium.make("CartPole-v1").observation_space,
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_client_s_text_is_the_space(space):
    assert space_from_text(_space_text(space)) == space


@pytest.mark.parametrize(
    "text, space",
    [
        ("Box(-inf, inf, (4,))", Box(-np.inf, np.inf, (4,))),
        (" Box( low=0, high=1, shape=3 ) ", Box(0, 1, (3,))),
        ("Box(-inf, inf, (2,), float32)", Box(-np.inf, np.inf, (2,))),
        ("Box(0, 255, (2,), 'uint8')", Box(0, 255, (2,), np.uint8)),
        ("Dict(a=Discrete(2), b=Box(0, 1.5e0, [1]))", Dict(a=Discrete(2), b=Box(0, 1.5, (1,)))),
        ("Tuple(Discrete(2), Discrete(3),)", Tuple([Discrete(2), Discrete(3)])),
    ],
)
def test_other_spellings(text, space):
    assert space_from_text(text) == space


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "cut off"),
        ("Discrete", "where '\\(' must be|is missing"),
        ("Discrete(2", "is missing"),
        ("Discrete(2) + 1", "behind it"),
        ("Discrete(-1)", "Discrete|positive"),
        ("Discrete(two=2)", "two"),
        ("Discrete(n=2, 3)", "behind one with a name"),
        ("3", "it is no space"),
        ("Box(0, 1, (99999, 99999))", "no shape of a Box"),
        ("Box(0, 1, (-1,))", "no shape of a Box"),
        ("Box(0, 1, (2,), object)", "neither a space nor a dtype"),
        ("MultiBinary(10000000000)", "no size of a MultiBinary"),
        ("Tuple([" + "Box(0, 1, (900000,)), " * 40 + "])", "more than"),
        ("Tuple(" * 60 + ")" * 60, "more than 32 levels"),
        ("__import__('os').system('touch run')", "neither a space nor a dtype"),
        ("Box((lambda: 1)(), 1, (2,))", "neither a space nor a dtype"),
        ("x" * (1 << 21), "is a text such as"),
    ],
)
def test_anything_else_is_refused(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        space_from_text(text)
    assert not list(tmp_path.iterdir())
