"""Earlier names of modules: all of them import, and a checkpoint that was saved under them is read."""

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rllib import Algorithm
from rllib.algorithms.base.from_checkpoint import saved_class
from rllib.moved import MOVED, present_name
from rllib.storage.encoding import UserCode

CHECKPOINT = Path(__file__).parent / "checkpoints" / "format_1_earlier_names"
# Of RLlib, and of README, docs and tuned examples before the folders. Those that have not moved are among them.
PROMISED = [
    "rllib.algorithms.actor_critic",
    "rllib.algorithms.algorithm",
    "rllib.algorithms.algorithm_config",
    "rllib.algorithms.apex_ddpg",
    "rllib.algorithms.apex_dqn",
    "rllib.algorithms.callbacks",
    "rllib.algorithms.dqn",
    "rllib.algorithms.ppo",
    "rllib.algorithms.rainbow",
    "rllib.algorithms.registry",
    "rllib.algorithms.sections",
    "rllib.checkpoint",
    "rllib.env.masked_tasks",
    "rllib.env.memory_tasks",
    "rllib.env.minigrid",
    "rllib.env.multi_agent_env",
    "rllib.env.registry",
    "rllib.env.sparse_tasks",
    "rllib.env.tensor_adapters",
    "rllib.env.torch_cartpole",
    "rllib.env.torch_pendulum",
    "rllib.env.torch_vector_env",
    "rllib.env.vectorized",
    "rllib.env.wrappers",
    "rllib.env.wrappers.group_agents_wrapper",
    "rllib.env.wrappers.open_spiel",
    "rllib.env.wrappers.pettingzoo_env",
    "rllib.evaluation.advantages",
    "rllib.evaluation.rollout_worker",
    "rllib.evaluation.worker_set",
    "rllib.learners.learner",
    "rllib.learners.objective",
    "rllib.learners.optimizers",
    "rllib.losses.ppo",
    "rllib.models.catalog",
    "rllib.models.custom",
    "rllib.models.torch_distribution",
    "rllib.models.torch_model_v2",
    "rllib.policy",
    "rllib.replay.replay_buffer",
    "rllib.sample_batch",
    "rllib.serving.export",
    "rllib.tune.analysis",
    "rllib.tune.domains",
    "rllib.tune.schedulers",
    "rllib.tune.searchers",
    "rllib.tune.stoppers",
    "rllib.tune.trainable",
]


@pytest.mark.parametrize("name", [*PROMISED, "rllib.tune.searchers.optuna_search"])
def test_a_promised_name_is_the_module_of_today(name):
    module = importlib.import_module(name)
    assert module is sys.modules[present_name(name)]
    assert module.__name__ == module.__spec__.name == present_name(name)


@pytest.mark.parametrize("earlier", MOVED)
def test_no_module_has_an_earlier_name_now(earlier):
    path = Path(__file__).parents[1] / earlier.replace(".", "/")
    assert not path.with_suffix(".py").exists() and not (path / "__init__.py").exists()
    assert importlib.import_module(MOVED[earlier]).__name__ == MOVED[earlier]


def test_an_earlier_name_is_imported_first_in_a_fresh_process():
    code = "import rllib.env.memory_tasks as a, rllib.env.tasks.memory as b; print(a is b)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True\n"


def test_a_name_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"rllib\.env\.no_tasks"):
        importlib.import_module("rllib.env.no_tasks")


def test_a_checkpoint_with_earlier_names_acts_and_goes_on():
    with Algorithm.from_checkpoint(CHECKPOINT) as algo:
        action, _, _ = algo.compute_single_action(np.int64(1), state=algo.get_policy().get_initial_state())
        assert action in (0, 1)
        assert algo.train()["training_iteration"] == 2


@pytest.mark.parametrize("reference", ["rllib.algorithms.rainbow:Rainbow", "rllib.algorithms.apex_dqn:ApexDQN"])
def test_the_class_of_a_checkpoint_may_have_an_earlier_name(reference):
    name = reference.partition(":")[2]
    state = {"algorithm.json": {"algorithm": name, "class": UserCode(reference)}}
    assert saved_class(state, "x", base=Algorithm).__name__ == name
