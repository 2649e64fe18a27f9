"""Fast, correct reinforcement learning on a ZeroMQ actor runtime."""

import os

from rllib import algorithms, moved
from rllib.algorithms.base.registry import ALGORITHMS, absent
from rllib.compat.names.elsewhere import OF_STABLE_BASELINES
from rllib.lazy_names import lazy_names

moved.install()

# OpenMP's threads wait at a barrier by spinning, for milliseconds by default. Next to busy processes the
# thread that is waited for may not run meanwhile, and an update takes tens of times as long. Read by torch's loading.
if not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
    os.environ["GOMP_SPINCOUNT"] = "2000"

# Where a process leaves SIGTERM alone, pygame's SDL takes it, as an event "quit" that no environment reads: a process
# that draws would not end by it. Read when pygame begins; workers and processes of environments inherit it.
os.environ.setdefault("SDL_NO_SIGNAL_HANDLERS", "1")

__version__ = "0.1.0"

# Loaded on first use, so that `import rllib` stays quick and never brings in torch.
_LAZY = {
    **algorithms._LAZY,
    "DefaultCallbacks": "rllib.evaluation.callbacks",
    "MultiAgentBatch": "rllib.sample_batch",
    "MultiAgentEnv": "rllib.env.multi_agent.multi_agent_env",
    "ExternalEnv": "rllib.env.external.external_env",
    "ExternalMultiAgentEnv": "rllib.env.external.external_env",
    "PolicyServerInput": "rllib.env.policy_server.policy_server_input",
    "ModelCatalog": "rllib.models.catalog.model_catalog",
    "Policy": "rllib.policy",
    "PolicyClient": "rllib.client",
    "PolicySpec": "rllib.policies",
    "Postprocessing": "rllib.sample_batch",
    "RolloutWorker": "rllib.evaluation.rollout_worker",
    "SampleBatch": "rllib.sample_batch",
    "check_env": "rllib.env.checkup.check_env",
    "compute_advantages": "rllib.evaluation.postprocess.of_episodes",
    "concat_samples": "rllib.sample_batch",
    "evaluate_policy": "rllib.acting.evaluate_policy",
    "import_ray": "rllib.compat.files",
    "import_sb3": "rllib.compat.files",
    "load_policy": "rllib.serving.loaded_policy",
    "load_reward": "rllib.serving.loaded_reward",
    "make_learner": "rllib.learners.learner",
    "make_multi_agent": "rllib.env.multi_agent.copies",
    "make_multi_callbacks": "rllib.evaluation.callbacks",
    "make_vec_env": "rllib.env.vec_env.make",
    "register_action_dist": "rllib.models.distributions.names",
    "register_env": "rllib.env.factories.registry",
    "register_model": "rllib.models.distributions.names",
    "register_wrapper": "rllib.env.factories.wrapped",
}

__all__ = list(_LAZY)

# Names of Ray and Stable-Baselines3 that are not here -> advice.
_ELSEWHERE = {
    **dict.fromkeys(("VectorEnv", "BaseEnv"), "environments that are vectors derive from gymnasium.vector.VectorEnv"),
    **dict.fromkeys(
        ("ModelV2", "TFModelV2", "TorchModelV2"),
        "networks of your own are torch modules, model={'custom_model': Module} (docs/guide/networks.md)",
    ),
    **{
        name: f"use `from rllib.core import {name}`"
        for name in ("RLModule", "TorchRLModule", "RLModuleSpec", "DefaultModelConfig", "ConnectorV2", "MetricsLogger")
    },
    "MultiRLModule": "rllib.core.MultiRLModuleSpec gives each policy its module",
    **dict.fromkeys(
        ("Learner", "LearnerGroup"), "a loss is changed by rllib.core.TorchLearner (docs/guide/networks.md)"
    ),
    "RLlibCallback": "callbacks derive from rllib.DefaultCallbacks (docs/guide/own_code.md)",
    **OF_STABLE_BASELINES,
    "Trainer": "the base of all algorithms is called Algorithm here",
}


def _present(name: str) -> str:
    """The name today of a name before Ray 2.0: PPO of PPOTrainer."""
    return name.removesuffix("Trainer") if name.removesuffix("Trainer") in ALGORITHMS else name


def _absent(name: str) -> str | None:
    """Advice for a name of Ray or Stable-Baselines3 that is not here; None for other names."""
    for ending in ("Config", "Trainer"):
        if instead := absent(name.removesuffix(ending)):
            return instead
    return _ELSEWHERE.get(name)


__getattr__, __dir__ = lazy_names(globals(), _LAZY, _absent, _present)
