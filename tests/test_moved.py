"""Earlier names of modules: all of them import, and a checkpoint that was saved under them is read."""

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from rllib import Algorithm
from rllib.algorithms.base.from_checkpoint import saved_class
from rllib.models.user.user_model import UserModelSpec
from rllib.moved import MOVED, present_name
from rllib.policy import Policy
from rllib.storage.encoding import UserCode, import_path

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
    "rllib.algorithms.tqc",
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


def test_an_earlier_checkpoint_keeps_the_cell_that_policy_and_value_shared():
    """Its weights are those of the file, and the state is of one LSTM; the actions are those of the policy alone."""
    saved = load_file(CHECKPOINT / "policies" / "default_policy" / "weights.safetensors")
    policy = Policy.from_checkpoint(CHECKPOINT)["default_policy"]
    with Algorithm.from_checkpoint(CHECKPOINT) as algo:
        assert sum(array.size for array in saved.values()) == algo.policy.weights.size
        np.testing.assert_array_equal(algo.policy.weights, policy.weights)
        assert sorted(np.concatenate([array.ravel() for array in saved.values()])) == sorted(algo.policy.weights)
        state = algo.get_policy().get_initial_state()
        assert [part.shape for part in state] == [(4,), (4,)]
        memory = np.zeros((1, 8), np.float32)
        for step in range(6):
            observation, expected = np.int64(step % 2), {}
            action, state, fetches = algo.compute_single_action(observation, state, explore=False)
            assert action == policy.choose(np.array([observation]), False, state=memory, fetches=expected)[0]
            np.testing.assert_array_equal(np.concatenate(state), memory[0])
            np.testing.assert_array_equal(fetches["vf_preds"], expected["vf_preds"][0])
        algo.train()
        assert [part.shape for part in algo.get_policy().get_initial_state()] == [(4,), (4,)]


@pytest.mark.parametrize("module", ["rllib.models.own_model", "rllib.models.user.own_model"])
def test_the_spec_of_a_custom_model_has_its_earlier_name_in_checkpoints(module):
    assert import_path(f"{module}:OwnModelSpec") is UserModelSpec


@pytest.mark.parametrize("reference", ["rllib.algorithms.rainbow:Rainbow", "rllib.algorithms.apex_dqn:ApexDQN"])
def test_the_class_of_a_checkpoint_may_have_an_earlier_name(reference):
    name = reference.partition(":")[2]
    state = {"algorithm.json": {"algorithm": name, "class": UserCode(reference)}}
    assert saved_class(state, "x", base=Algorithm).__name__ == name
