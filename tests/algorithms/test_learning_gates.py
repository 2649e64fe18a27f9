"""What the tuned examples reach: the rows of docs/project/results.md."""

import learning_gates
import pytest

from rllib.cli.spec import find_file, load_spec, make_spec


@pytest.mark.parametrize("name", learning_gates.GATES)
def test_a_gate_has_an_example_that_ends(name):
    gate = learning_gates.GATES[name]
    spec = make_spec(load_spec(find_file(gate.example)), {}, gate.example)
    assert (gate.steps or spec.stop["timesteps_total"]) > 0


def outcomes(*finals):
    return [learning_gates.Outcome(3000 + i, final, 50_176, 0.5 + i / 10, 30.0) for i, final in enumerate(finals)]


def test_a_row_says_pass_or_miss():
    row = learning_gates.row("A07", outcomes(500, 300))
    assert "| 3000-3001 | 50,176 | 0.55 | 400.0 (300.0) | 460 | **miss** |" in row
    assert "| 3000-3000 | 50,176 | 0.5 | 500.0 (500.0) | 460 | pass |" in learning_gates.row("A07", outcomes(500))


def test_one_bad_seed_can_be_too_bad():
    assert "| 494.9 (399.0) | 475 (400) | **miss** |" in learning_gates.row("A03", outcomes(*[505.6] * 9, 399))
    assert "| 490.1 (401.0) | 475 (400) | pass |" in learning_gates.row("A03", outcomes(*[500] * 9, 401))


def test_a_control_must_not_learn():
    assert "| < 150 | pass |" in learning_gates.row("A50-control", outcomes(40, 60))
    assert "| < 150 | **miss** |" in learning_gates.row("A50-control", outcomes(100, 200))
    assert "| 6.9 to 7.1 | pass |" in learning_gates.row("MA5-VDN", outcomes(7, 7))
    assert "| 6.9 to 7.1 | **miss** |" in learning_gates.row("MA5-VDN", outcomes(7, 8))


# Parts of the names of examples -> the package that their tasks need.
NEEDS = {
    **dict.fromkeys(("doorkey", "minigrid"), "minigrid"),
    "dm_": "shimmy",
    "gymnax": "gymnax",
    "lunarlander": "Box2D",
    "pistonball": "pymunk",
    **dict.fromkeys(("swimmer", "halfcheetah", "hopper", "walker2d", "inverted"), "mujoco"),
}


def gates():
    for name, gate in learning_gates.GATES.items():
        if gate.teacher:  # the checkpoint of a run that has to be trained first
            continue
        task = f"{gate.example} {gate.changes.get('env', '')}"
        needed = [package for part, package in NEEDS.items() if part in task]
        yield pytest.param(name, marks=[pytest.mark.extras(*needed)] if needed else [])


@pytest.mark.learning
@pytest.mark.parametrize("name", list(gates()))
def test_it_is_learned(name):
    gate = learning_gates.GATES[name]
    finals = [learning_gates.train(name, seed).final for seed in range(3000, 3000 + gate.seeds)]
    assert gate.passes(finals), finals
