"""Packages whose names are imported on first use: each lists its names, and says of others what they may mean."""

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import rllib

ROOT = Path(rllib.__file__).parent
PACKAGES = [
    ".".join(("rllib", *path.parent.relative_to(ROOT).parts))
    for path in sorted(ROOT.rglob("__init__.py"))
    if "\n_LAZY = " in path.read_text()
]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_lazy_package_has_all_of_its_names_and_suggests_them(package):
    module = importlib.import_module(package)
    names = set(module.__all__)
    assert names <= set(dir(module)) and len(PACKAGES) > 6
    longest = max(module._LAZY, key=len)
    for slip in (longest + "x", longest[:-1]):
        with pytest.raises(
            AttributeError, match=rf"module '{package}' has no attribute '{slip}'. Did you mean .*{longest}"
        ):
            getattr(module, slip)
        with pytest.raises(
            ImportError, match=rf"cannot import name '{slip}' from '{package}'. Did you mean .*{longest}"
        ):
            exec(f"from {package} import {slip}")
    assert getattr(module, longest) is vars(module)[longest]


# Parts of the command, of servers and of pages, whose modules programs do not reach through an attribute.
NOT_FOR_PROGRAMS = {
    *("as_ray", "as_sb3", "benchmark", "cli", "compat", "dashboard", "labs", "remote", "reports", "runs", "web"),
}
OPEN = {
    *("rllib", "runtime.util", "rllib.tune.schedulers", "rllib.tune.search", *PACKAGES),
    *(f"rllib.{path.parent.name}" for path in ROOT.glob("*/__init__.py") if path.parent.name not in NOT_FOR_PROGRAMS),
}
MODULES = [
    (package, module.name)
    for package in sorted(OPEN)
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__)
    if not module.name.startswith("_") and module.name not in NOT_FOR_PROGRAMS
]


@pytest.mark.parametrize("package, name", MODULES)
def test_a_module_of_a_package_is_its_attribute_whatever_has_been_imported(package, name, monkeypatch):
    owner = importlib.import_module(package)
    if callable(vars(owner).get(name)):
        return  # a function of the same name, lazy_names and placement_group
    try:
        module = importlib.import_module(f"{package}.{name}")
    except ImportError as needs:  # an extra that is not installed
        with pytest.raises(type(needs)):
            getattr(owner, name)
        return
    monkeypatch.delattr(owner, name)  # as before its first import
    assert getattr(owner, name) is module


@pytest.mark.parametrize(
    "program",
    [
        "import rllib; rllib.tune.schedulers.ASHAScheduler; rllib.algorithms.ppo.PPOConfig",
        "from rllib import tune; tune.search.optuna.OptunaSearch; tune.registry.register_env; tune.schedulers.pb2.PB2",
        "import rllib; rllib.env.multi_agent_env.MultiAgentEnv; rllib.policy.Policy; rllib.sample_batch.SampleBatch",
        "import runtime; runtime.util.queue.Queue; runtime.util.scheduling_strategies; runtime.exceptions",
        "import rllib; assert not hasattr(rllib, 'as_ray') and not hasattr(rllib, 'no_module')",
    ],
)
def test_a_program_reaches_modules_without_an_import_of_each(program):
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_misspelt_module_is_named():
    with pytest.raises(AttributeError, match=r"no attribute 'worker_sets'. Did you mean worker_set"):
        importlib.import_module("rllib.evaluation").worker_sets  # noqa: B018
