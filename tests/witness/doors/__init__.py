"""Doors: ways by which the same scripted episodes come to an algorithm.

A door is a context manager `door(config, family, case)`: it sets up the config's environment, and while it is entered,
all that is outside of the algorithm (clients, servers) runs. `DOORS` has them by name.
"""

from contextlib import contextmanager

from tests.witness.doors.scripted import Several, Single


@contextmanager
def single(config, family, case):
    """A gymnasium environment."""
    config.environment(Single, env_config={"family": family})
    yield


@contextmanager
def several(config, family, case):
    """A MultiAgentEnv whose agents have one policy."""
    config.environment(Several, env_config={"family": family})
    config.multi_agent(policies={"p"}, policy_mapping_fn=lambda *_, **__: "p")
    yield


# Number of agents of each door's scripts; 1: one agent, who acts in every step.
AGENTS = {"single": 1, "several": 3}
DOORS = {"single": single, "several": several}
