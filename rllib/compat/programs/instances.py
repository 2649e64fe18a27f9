"""Classes of Ray that exist here only as stand-ins, and the objects that `isinstance` accepts as their instances.

A program that tests `isinstance(episode, SingleAgentEpisode)` in a hook would silently take the other branch if the
stand-in of the class had no instances.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any

_EPISODES = (
    ("rllib.evaluation.running_episode", "RunningEpisode"),
    ("rllib.evaluation.running_episode", "AgentEpisode"),
    ("rllib.core.connectors.connector", "ConnectorEpisode"),
)
_RUNNERS = (
    ("rllib.evaluation.hooks.env_runner", "EnvRunnerNames"),
    ("rllib.evaluation.sampling_worker", "SamplingWorker"),
)


def _is_any(value: Any, places: tuple[tuple[str, str], ...]) -> bool:
    """Whether a value is of one of these classes; of a module that is not loaded there are no objects."""
    return any(
        module in sys.modules and isinstance(value, getattr(sys.modules[module], name)) for module, name in places
    )


def _has_several(value: Any) -> bool:
    """Whether an episode, or the episodes of a worker, have several agents."""
    if _is_any(value, _EPISODES):
        return bool(getattr(value, "has_several_agents", False))
    return value.settings.agents is not None


# Name of a class below ray.rllib -> function: whether a value is the counterpart of an object of this class.
_INSTANCES: Mapping[str, Callable[[Any], bool]] = {
    "SingleAgentEpisode": lambda value: _is_any(value, _EPISODES) and not _has_several(value),
    "MultiAgentEpisode": lambda value: _is_any(value, _EPISODES) and _has_several(value),
    "EnvRunner": lambda value: _is_any(value, _RUNNERS),
    "SingleAgentEnvRunner": lambda value: _is_any(value, _RUNNERS) and not _has_several(value),
    "MultiAgentEnvRunner": lambda value: _is_any(value, _RUNNERS) and _has_several(value),
    "EnvRunnerGroup": lambda value: _is_any(value, (("rllib.evaluation.worker_set", "AskedWorkers"),)),
    "LearnerGroup": lambda value: _is_any(value, (("rllib.core.learner.group_names", "LearnerGroupNames"),)),
    "MultiRLModule": lambda value: _is_any(value, (("rllib.core.modules.module_of_policy", "Modules"),)),
    "TorchPolicy": lambda value: _is_any(value, (("rllib.policy", "Policy"),)),
    "TorchPolicyV2": lambda value: _is_any(value, (("rllib.policy", "Policy"),)),
}


def is_instance(path: str, value: Any) -> bool:
    """Whether a value is an object of the class of Ray with this path."""
    asked = _INSTANCES.get(path.rpartition(".")[2]) if path.startswith("ray.rllib.") else None
    return asked is not None and asked(value)
