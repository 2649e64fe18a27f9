"""Programs for Ray, run by `python -m rllib.as_ray` and with `import rllib.as_ray`, in processes of their own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def check(outcome):
    code, out, err = outcome
    assert code == 0, err
    return out


def test_imports_of_all_eras_give_our_objects(run_program):
    check(
        run_program(
            """
            import gym, gymnasium
            import ray, runtime, rllib
            import ray.rllib.agents.ppo as ppo
            from gym.spaces import Discrete
            from ray import air, tune
            from ray.rllib.algorithms import ppo as later
            from ray.rllib.algorithms.callbacks import DefaultCallbacks
            from ray.rllib.utils.framework import try_import_tf, try_import_torch
            from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS
            from ray.tune.registry import get_trainable_cls, register_env
            from ray.util.placement_group import placement_group
            import ray.util.placement_group as same

            assert gym.Env is gymnasium.Env and Discrete is gymnasium.spaces.Discrete
            assert ray.get is runtime.get and ray.util.ActorPool is runtime.util.ActorPool
            assert callable(ray.util.placement_group) and callable(placement_group)
            assert ppo.PPOTrainer is later.PPO is rllib.PPO is get_trainable_cls("PPO")
            assert ray.rllib.agents.ppo.PPOTrainer is rllib.PPO
            assert tune.run is rllib.tune.run and air.RunConfig is tune.RunConfig
            assert ray.exceptions.RayTaskError is runtime.exceptions.RayTaskError
            assert try_import_tf() == (None, None, None) and try_import_torch()[1].Linear
            assert ray.__version__ == "2.60.0" and ENV_RUNNER_RESULTS == "env_runners"
            config = ppo.DEFAULT_CONFIG.copy()
            config["num_workers"] = 0
            config["model"]["fcnet_hiddens"] = [8]
            assert config["lr"] == rllib.PPOConfig().lr and ppo.DEFAULT_CONFIG == {}
            assert rllib.PPOConfig.from_dict(config).model["fcnet_hiddens"] == [8]
            """
        )
    )


def test_modules_are_taken_from_their_packages(run_program):
    check(
        run_program(
            """
            import pickle
            import ray
            import rllib
            import ray.rllib.algorithms.ppo.ppo as by_import
            import ray.tune.search.optuna.optuna_search
            from rllib import tune
            from ray.rllib.agents.dqn import dqn
            from ray.rllib.algorithms.ppo import ppo
            from ray.rllib.core import columns
            from ray.rllib.offline import json_reader
            from ray.tune.schedulers import async_hyperband, pbt
            from ray.tune.search import grid_search, variant_generator
            from ray.tune.utils import util
            from ray.util.multiprocessing import TimeoutError

            assert ppo.PPOConfig is by_import.PPOConfig is rllib.PPOConfig and dqn.DQNTrainer is rllib.DQN
            assert ppo.DEFAULT_CONFIG["lr"] == rllib.PPOConfig().lr and columns.Columns.OBS == "obs"
            assert json_reader.JsonReader is rllib.offline.JsonReader
            assert (pbt.PopulationBasedTraining, async_hyperband.ASHAScheduler) == (
                tune.schedulers.PopulationBasedTraining, tune.schedulers.ASHAScheduler
            )
            assert grid_search is variant_generator.grid_search is tune.grid_search
            assert ray.tune.search.optuna.optuna_search.OptunaSearch is tune.search.OptunaSearch
            assert pickle.loads(pickle.dumps(ppo)).PPO is rllib.PPO and issubclass(TimeoutError, Exception)

            @ray.remote
            def task():
                return ppo.PPOConfig().lr

            ray.init(num_cpus=1)
            assert ray.get(task.remote()) == rllib.PPOConfig().lr
            for use in (lambda: pbt.nothing, lambda: pbt(), lambda: util.nothing, lambda: pbt == 3):
                try:
                    use()
                except ImportError as error:
                    assert str(error).startswith("program.py:33: ray.tune."), error
                else:
                    raise AssertionError(use)
            """
        )
    )


def test_a_name_that_is_not_here_raises_where_it_is_used(run_program):
    code, out, err = run_program(
        """
        import pickle
        from typing import Optional
        import ray.data
        from ray.rllib.env.env_runner import EnvRunner
        from ray.tune.search.hyperopt import HyperOptSearch


        class MyRunner(EnvRunner):
            def sample(self, given: Optional[EnvRunner] = None) -> EnvRunner | None:
                pass


        assert not isinstance(3, EnvRunner) and not issubclass(int, EnvRunner)
        assert repr(pickle.loads(pickle.dumps(EnvRunner))) == repr(EnvRunner)
        for use in (MyRunner, EnvRunner, lambda: EnvRunner.sample, lambda: ray.data.from_items([1])):
            try:
                use()
            except ImportError as error:
                print(error)
            else:
                raise AssertionError(use)
        HyperOptSearch()
        """
    )
    lines = out.splitlines()
    assert lines[0].startswith("program.py:18: ray.rllib.env.env_runner.EnvRunner is not here: "), out
    assert len(lines) == 4 and "ray.data.from_items is not here: there are no data sets" in lines[3]
    assert code == 1
    assert err.splitlines()[-1] == (
        "rllib.compat.programs.absent.NotServedError: program.py:23: ray.tune.search.hyperopt.HyperOptSearch is not "
        "here: use tune.search.OptunaSearch, whose samplers are TPE, GP, CMA-ES and QMC."
    )


def test_workers_know_ray_too(run_program):
    out = check(
        run_program(
            """
            import ray
            from envs_of_mine import Mine

            @ray.remote
            def task():
                import ray.tune
                from ray.rllib.algorithms.ppo import PPO
                return ray.tune.run.__name__, PPO.__name__, Mine().name()

            @ray.remote
            class Actor:
                def nested(self):
                    return ray.get(task.remote())

            ray.init(num_cpus=2)
            print(ray.get(Actor.remote().nested.remote()))
            """,
            files={
                "envs_of_mine.py": """
            import ray
            from ray.rllib.env.multi_agent_env import MultiAgentEnv

            class Mine(MultiAgentEnv):
                def name(self):
                    return f"{MultiAgentEnv.__module__} {ray.get.__name__}"
            """
            },
        )
    )
    assert out.strip() == "('run', 'PPO', 'rllib.env.multi_agent.multi_agent_env get')"


RAY = {
    "ray/__init__.py": "MARK = 'installed'\nimport ray\nassert ray.MARK\n",
    "ray/util.py": "import ray\nMARK = ray.MARK\n",
}


def test_it_goes_before_an_installed_ray_which_our_engine_finds(run_program):
    check(
        run_program(
            """
            import ray, sys
            assert not hasattr(type(ray), "MARK") and "runtime" in ray.get.__module__

            try:
                import runtime.engines.ray.connection  # needs more of Ray than the stand-in has
            except ImportError:
                pass
            assert sys.modules["ray"].MARK == "installed"

            import ray as again
            import ray.util
            from ray import tune
            from ray.rllib.algorithms.ppo import PPO
            import rllib
            assert again is ray and tune.run is rllib.tune.run
            assert PPO is rllib.PPO and ray.util.ActorPool
            of_ray = {"__name__": "ray.something"}
            exec("import ray.util; mark = ray.util.MARK", of_ray)
            assert of_ray["mark"] == "installed"
            """,
            files=RAY,
        )
    )


def test_it_comes_too_late_after_ray_itself(run_program):
    code, _, err = run_program("import ray\nimport rllib.as_ray\n", command=("program.py",), files=RAY)
    assert code == 1
    assert "`import rllib.as_ray` must come before `import ray`" in err


def test_a_first_line_does_the_same(run_program):
    out = check(run_program("import rllib.as_ray\nimport ray\nprint(ray.put.__module__)\n", command=("program.py",)))
    assert out.strip() == "runtime.api"


EXAMPLES = "sources/rllib/examples/envs"


def test_examples_of_ray_are_read_from_the_folder_that_the_program_lies_in(run_program):
    out = check(
        run_program(
            "",
            command=("-m", "rllib.as_ray", f"{EXAMPLES}/start.py"),
            files={
                f"{EXAMPLES}/start.py": """
            import ray
            from ray.rllib.examples.envs.classes.corridor import Corridor
            from ray.rllib.examples.envs.classes import LENGTH

            @ray.remote
            def play():
                return Corridor().length

            print(ray.get(play.remote()), LENGTH, Corridor.__module__)
            """,
                f"{EXAMPLES}/classes/__init__.py": "LENGTH = 5\n",
                f"{EXAMPLES}/classes/corridor.py": """
            from ray.rllib.env.multi_agent_env import MultiAgentEnv
            from . import LENGTH

            class Corridor:
                length = LENGTH
            """,
            },
        )
    )
    assert out.strip() == "5 5 ray.rllib.examples.envs.classes.corridor"


def test_examples_of_earlier_rays_are_read_from_the_sources_that_are_named(run_program, monkeypatch):
    monkeypatch.setenv("RLLIB_RAY_SOURCES", "sources")
    out = check(
        run_program(
            """
            import os
            os.environ["RLLIB_RAY_SOURCES"] = os.path.abspath("sources")
            import ray
            from ray.rllib.examples.env.corridor import Corridor
            from ray.rllib.examples.env import corridor
            from ray.rllib.examples.models.own import Own

            @ray.remote
            def play():
                return Corridor().length

            print(ray.get(play.remote()), Own.width, corridor.Corridor is Corridor)
            """,
            files={
                "sources/rllib/examples/env/corridor.py": "import ray\nclass Corridor:\n    length = 5\n",
                "sources/rllib/examples/models/own.py": "class Own:\n    width = 3\n",
            },
        )
    )
    assert out.strip() == "5 3 True"


def test_a_program_runs_as_it_would_by_itself(run_program):
    program = """
        import sys
        import neighbour
        assert __name__ == "__main__" and __file__ == "program.py" and sys.argv == ["program.py", "--a", "b"]
        raise SystemExit(neighbour.CODE)
        """
    assert run_program(program, "--a", "b", files={"neighbour.py": "CODE = 7\n"})[0] == 7


def test_the_command_line_says_how_it_is_used(run_program):
    code, _, err = run_program("", command=("-m", "rllib.as_ray"))
    assert code == 2 and err.startswith("usage:")
    code, _, err = run_program("", command=("-m", "rllib.as_ray", "none.py"))
    assert code == 1 and "none.py cannot be read: No such file or directory" in err


def test_importing_rllib_does_not_bring_the_hook():
    code = "import sys, rllib, rllib.tune; assert not [name for name in sys.modules if 'compat.programs' in name]"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT)
