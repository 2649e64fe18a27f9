"""Zips as Stable-Baselines3 writes them, put together without it: for networks whose real zips would be large."""

import io
import itertools
import json
import zipfile
from pathlib import Path

import numpy as np
import torch

DATA = Path(__file__).parents[2] / "data" / "sb3"
PICKLED = {":serialized:": "gASVAAAAAAAAAA=="}
SETTINGS = {
    "PPO": {"n_steps": 32, "batch_size": 16, "n_epochs": 2, "gae_lambda": 0.95, "gamma": 0.9},
    "A2C": {"n_steps": 8, "gae_lambda": 1.0},
    "DQN": {"batch_size": 32, "exploration_final_eps": 0.05},
    "SAC": {"batch_size": 32, "tau": 0.005},
    "TQC": {"batch_size": 32, "top_quantiles_to_drop_per_net": 2},
}
MODULES = {
    **dict.fromkeys(("PPO", "A2C"), "stable_baselines3.common.policies"),
    "DQN": "stable_baselines3.dqn.policies",
    "SAC": "stable_baselines3.sac.policies",
    "TQC": "sb3_contrib.tqc.policies",
}


def box(shape: tuple[int, ...], low: float, high: float, dtype: str = "float32") -> dict:
    kind = {":type:": "<class 'gymnasium.spaces.box.Box'>", **PICKLED}
    bounds = {"low": "[...]", "high": "[...]", "low_repr": str(low), "high_repr": str(high)}
    return {**kind, "_shape": list(shape), "dtype": dtype, **bounds}


def discrete(n: int) -> dict:
    return {
        ":type:": "<class 'gymnasium.spaces.discrete.Discrete'>",
        **PICKLED,
        "n": str(n),
        "start": "0",
        "_shape": [],
    }


def saved(tensors) -> bytes:
    file = io.BytesIO()
    torch.save(tensors, file)
    return file.getvalue()


def write_zip(path: Path, algorithm: str, observation_space: dict, action_space: dict, parameters, **more) -> Path:
    """Writes a model's zip.

    Args:
        path: of the zip.
        algorithm: a key of SETTINGS.
        observation_space, action_space: made by `box` or `discrete`.
        parameters: name -> tensor or array.
        more: further items of `data`; `variables` are the tensors of pytorch_variables.pth.
    """
    variables = more.pop("variables", {})
    data = {
        "policy_class": {":type:": "<class 'abc.ABCMeta'>", **PICKLED, "__module__": MODULES[algorithm]},
        "observation_space": observation_space,
        "action_space": action_space,
        "policy_kwargs": {},
        "num_timesteps": 1234,
        "n_envs": 1,
        **SETTINGS[algorithm],
        **more,
    }
    tensors = {name: torch.as_tensor(np.asarray(value)) for name, value in parameters.items()}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps(data))
        archive.writestr("policy.pth", saved(tensors))
        archive.writestr("pytorch_variables.pth", saved(variables))
        archive.writestr("_stable_baselines3_version", "2.9.2")
    return path


def changed(source: Path, target: Path, **data) -> Path:
    """Copies a zip with other items of `data`."""
    with zipfile.ZipFile(source) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    entries["data"] = json.dumps({**json.loads(entries["data"]), **data}).encode()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return target


def layers(rng: np.random.Generator, prefix: str, *widths: int) -> dict[str, np.ndarray]:
    """Parameters of a Sequential with an activation behind each layer."""
    found = {}
    for index, (before, width) in enumerate(itertools.pairwise(widths)):
        found |= linear(rng, f"{prefix}.{2 * index}", before, width)
    return found


def linear(rng: np.random.Generator, name: str, before: int, width: int) -> dict[str, np.ndarray]:
    weight = rng.normal(size=(width, before)) / before**0.5
    return {f"{name}.weight": weight.astype(np.float32), f"{name}.bias": rng.normal(size=width).astype(np.float32)}
