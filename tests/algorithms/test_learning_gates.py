"""What the tuned examples reach, five seeds each: the rows of docs/results.md."""

import statistics

import learning_gates
import pytest

import runtime
from rllib.cli.spec import find_file, load_spec, make_spec


@pytest.fixture(autouse=True)
def session():
    yield
    runtime.shutdown()


@pytest.mark.parametrize("name", learning_gates.GATES)
def test_a_gate_has_an_example_that_ends(name):
    gate = learning_gates.GATES[name]
    spec = make_spec(load_spec(find_file(gate.example)), {}, gate.example)
    assert (gate.steps or spec.stop["timesteps_total"]) > 0


def test_a_row_says_pass_or_miss():
    outcomes = [learning_gates.Outcome(final, 50_176, minutes) for final, minutes in ((500, 0.5), (300, 0.6))]
    assert "| 50,176 | 0.55 | 400.0 (300.0) | 430 | **miss** |" in learning_gates.row("A03", outcomes)
    assert "| 50,176 | 0.5 | 500.0 (500.0) | 430 | pass |" in learning_gates.row("A03", outcomes[:1])


@pytest.mark.learning
@pytest.mark.parametrize("name", learning_gates.GATES)
def test_it_is_learned(name):
    gate = learning_gates.GATES[name]
    if gate.example == "dqn/lunarlander":
        pytest.importorskip("Box2D", reason="LunarLander needs the extra box2d")
    finals = [learning_gates.train(name, seed).final for seed in range(1000, 1005)]
    assert statistics.fmean(finals) >= gate.least, finals
