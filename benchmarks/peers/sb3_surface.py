"""Writes the public names of Stable-Baselines3 into tests/docs/sb3_names.json, which docs/start/from_sb3.md is made of.

It runs in that library's own environment (benchmarks/peers/setup sb3), and imports nothing of this one:

    python benchmarks/peers/sb3_surface.py
"""

import ast
import importlib
import inspect
import json
from pathlib import Path

import gymnasium
import stable_baselines3
import torch
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common import callbacks, env_util, evaluation
from stable_baselines3.common.vec_env import DummyVecEnv

FILE = Path(__file__).parents[2] / "tests/docs/sb3_names.json"
ALGORITHMS = {PPO: "CartPole-v1", A2C: "CartPole-v1", DQN: "CartPole-v1", SAC: "Pendulum-v1", TD3: "Pendulum-v1",
              DDPG: "Pendulum-v1"}  # fmt: skip
METHODS = ("learn", "predict", "save", "load", "set_parameters", "get_parameters")
# Modules whose names programs import.
MODULES = (
    "", "common.atari_wrappers", "common.base_class", "common.buffers", "common.distributions", "common.env_checker",
    "common.env_util", "common.evaluation", "common.logger", "common.monitor", "common.noise", "common.policies",
    "common.preprocessing", "common.results_plotter", "common.running_mean_std", "common.torch_layers", "common.utils",
    "common.vec_env", "common.callbacks",
)  # fmt: skip


def parameters(function) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls", "args", "kwargs")]


def attributes(kind: type, env: str) -> list[str]:
    """Public attributes of a model that has learned a little."""
    model = kind("MlpPolicy", env, device="cpu", **({"n_steps": 8} if kind in (PPO, A2C) else {"learning_starts": 4}))
    model.learn(8)
    return sorted(name for name in dir(model) if not name.startswith("_"))


def attributes_of_policy(kind: type, env: str) -> list[str]:
    """Public attributes of a model's policy, without those of each torch module."""
    policy = kind("MlpPolicy", env, device="cpu").policy
    return sorted(name for name in dir(policy) if not name.startswith("_") and name not in dir(torch.nn.Module()))


def arguments_of(module: str) -> dict[str, list[str]]:
    """Arguments of the public functions and classes of a module; of no module that needs extras."""
    try:
        made = importlib.import_module(f"stable_baselines3.{module}".rstrip("."))
    except ImportError:
        return {}
    return {name: parameters(getattr(made, name)) for name in names_of(module) if callable(getattr(made, name, None))}


def names_of(module: str) -> list[str]:
    """Public classes and functions of a module, from its source, since some modules need extras."""
    path = Path(stable_baselines3.__file__).parent.joinpath(*module.split("."))
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    listed = [node.value for node in assigned if ast.unparse(node.targets[0]) == "__all__"]
    if listed:
        return sorted(ast.literal_eval(listed[0]))
    return sorted(
        node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name[0] != "_"
    )


def surface() -> dict:
    kinds = {name: getattr(callbacks, name) for name in names_of("common.callbacks")}
    return {
        "version": stable_baselines3.__version__,
        "constructors": {kind.__name__: parameters(kind.__init__) for kind in ALGORITHMS},
        "attributes": {kind.__name__: attributes(kind, env) for kind, env in ALGORITHMS.items()},
        "arguments": {name: parameters(getattr(PPO, name)) for name in METHODS}
        | {each.__name__: parameters(each) for each in (evaluation.evaluate_policy, env_util.make_vec_env)},
        "callbacks": {name: parameters(kind.__init__) for name, kind in kinds.items()},
        "callback methods": [
            name for name in dir(callbacks.ConvertCallback(None)) if name[:2] != "__" and name != "_abc_impl"
        ],
        "vector environments": [
            name for name in dir(DummyVecEnv([lambda: gymnasium.make("CartPole-v1")])) if not name.startswith("_")
        ],
        "policies": {kind.__name__: attributes_of_policy(kind, env) for kind, env in ALGORITHMS.items()},
        "arguments of modules": {module: found for module in MODULES if (found := arguments_of(module))},
        "modules": {module or "stable_baselines3": names_of(module) for module in MODULES},
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(surface(), indent=1) + "\n")
