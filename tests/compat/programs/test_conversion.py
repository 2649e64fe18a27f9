"""Rewriting imports: the program's meaning stays, and names that are not here are listed."""

import textwrap

import pytest

from rllib.compat.programs.conversion import convert, difference


def converted(program: str) -> str:
    return convert(textwrap.dedent(program)).source.strip()


def expected(program: str) -> str:
    return textwrap.dedent(program).strip()


@pytest.mark.parametrize(
    ("program", "ours"),
    [
        ("from ray.rllib.algorithms.ppo import PPOConfig", "from rllib.algorithms.ppo import PPOConfig"),
        ("from ray.rllib.agents.ppo import PPOTrainer", "from rllib.algorithms.ppo import PPO as PPOTrainer"),
        ("from ray import air, tune", "from rllib import tune as air\nfrom rllib import tune"),
        ("from ray.tune import run as r", "from rllib.tune import run as r"),
        ("import ray.rllib.agents.ppo as ppo\nppo.PPOTrainer()", "from rllib.algorithms import ppo\nppo.PPO()"),
        ("import ray.tune as tune\ntune.run(f)", "from rllib import tune\ntune.run(f)"),
        ("import os, ray\nray.init()", "import os\nimport runtime\nruntime.init()"),
        ("import ray as r\nr.get(x)", "import runtime as r\nr.get(x)"),
        ("import numpy", "import numpy"),
    ],
)
def test_imports(program, ours):
    assert converted(program) == ours


def test_names_behind_dots_get_imports_of_their_own():
    assert converted(
        """
        '''What it does.'''
        from __future__ import annotations
        import ray
        import ray.rllib.agents.ppo

        ray.init()
        é = ray.tune.run("PPO"); trainer = ray.rllib.agents.ppo.PPOTrainer(config=ray.rllib.agents.ppo.DEFAULT_CONFIG)
        """
    ) == expected(
        """
        '''What it does.'''
        from __future__ import annotations
        from rllib import tune
        from rllib.algorithms.ppo import PPO
        from rllib.compat.programs.default_configs import PPO as DEFAULT_CONFIG
        import runtime

        runtime.init()
        é = tune.run("PPO"); trainer = PPO(config=DEFAULT_CONFIG)
        """
    )


def test_imports_inside_functions_stay_there():
    assert converted(
        """
        def train():
            from ray.rllib.algorithms.ppo import (
                PPO,
                PPOConfig,
            )
            import ray
            return ray.get(PPO)
        """
    ) == expected(
        """
        def train():
            from rllib.algorithms.ppo import PPO, PPOConfig
            import runtime
            return runtime.get(PPO)
        """
    )


def test_names_that_are_not_here_keep_their_import_and_are_listed():
    program = (
        "from ray.rllib.algorithms.ppo import PPO\nfrom ray.tune.search.ax import AxSearch\nimport ray\nray.data\n"
    )
    found = convert(program)
    assert "from ray.tune.search.ax import AxSearch" in found.source
    assert [(line, name) for line, name, _ in found.missing] == [(2, "ray.tune.search.ax.AxSearch"), (4, "ray.data")]
    assert "OptunaSearch" in found.missing[0].reason


def test_the_difference_is_a_unified_diff():
    assert difference("import ray\n", "import runtime\n", "a.py").startswith("--- a.py\n+++ a.py\n@@")
    assert difference("x\n", "x\n", "a.py") == ""


def test_what_is_no_python_is_refused():
    with pytest.raises(SyntaxError):
        convert("import ray from")
