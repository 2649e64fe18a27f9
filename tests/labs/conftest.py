"""Stand-ins for Isaac Lab and mjlab, which need a GPU, in the place of their packages."""

import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import pytest

from rllib import simulation_app
from rllib.env.suites.labs import simulation

STAND_IN = Path(__file__).parent / "stand_in"


@pytest.fixture
def labs(monkeypatch, tmp_path):
    """The packages can be imported, in an empty working directory; afterwards nothing of them is left."""
    monkeypatch.syspath_prepend(STAND_IN)
    monkeypatch.chdir(tmp_path)
    # After a failure the process ends at once, as the application would end it with code 0.
    monkeypatch.setattr(simulation_app, "os", SimpleNamespace(_exit=lambda code: None))
    before, registered = set(sys.modules), set(gymnasium.registry)
    yield tmp_path
    simulation.close_all()
    simulation_app.close(0)
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("isaaclab", "isaaclab_tasks", "mjlab", "point_mass"):
            del sys.modules[name]
    for name in set(gymnasium.registry) - registered:
        del gymnasium.registry[name]
