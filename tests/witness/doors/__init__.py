"""Doors: ways by which the same scripted episodes come to an algorithm.

A door is a context manager `door(config, family, case)`: it sets up the config's environment, and while it is entered,
all that is outside of the algorithm (clients, servers) runs. `DOORS` has them by name.
"""

from contextlib import contextmanager

from tests.witness.doors import agents, pettingzoo, tensors, vector
from tests.witness.doors.scripted import Single, set_environment
from tests.witness.script import PARALLEL, TOGETHER, TURNS, TURNS_SEEN


@contextmanager
def single(config, family, case):
    """A gymnasium environment."""
    set_environment(config, Single, family, case)
    yield


DOORS = {
    "single": single,
    "processes": vector.processes,
    "legacy": vector.legacy,
    "vector-next": vector.next_step,
    "vector-same": vector.same_step,
    "vector-disabled": vector.disabled,
    "tensors-next": tensors.next_step,
    "tensors-same": tensors.same_step,
    "tensors-disabled": tensors.disabled,
    "several": agents.several,
    "parallel": agents.several,
    "turns": agents.several,
    "groups": agents.groups,
    "dense": agents.dense,
    "pettingzoo-parallel": pettingzoo.parallel,
    "pettingzoo-turns": pettingzoo.turns,
}
# Number of agents of the scripts of doors with several; the others have one, who acts in every step.
AGENTS = {
    "several": 3,
    "parallel": 3,
    "turns": 3,
    "dense": 3,
    "pettingzoo-parallel": 3,
    "pettingzoo-turns": 3,
}
# Kinds of the scripts of doors with several agents, where they are not MIXED.
KINDS = {
    "parallel": PARALLEL,
    "turns": TURNS,
    "dense": TOGETHER,
    "pettingzoo-parallel": PARALLEL,
    "pettingzoo-turns": TURNS_SEEN,
}
