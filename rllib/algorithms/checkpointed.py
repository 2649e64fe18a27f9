"""What a checkpoint of an algorithm holds, and how one goes on from there."""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from rllib.algorithms.algorithm_config import AlgorithmConfig
from rllib.algorithms.evaluations import Evaluations
from rllib.algorithms.inference import Inference
from rllib.algorithms.registry import ALGORITHMS, get_algorithm_class
from rllib.checkpoint import CheckpointError, UserCode, read_checkpoint, write_checkpoint
from rllib.encoding import import_path, importable_path
from rllib.env.registry import is_environment_class, register_typed_function
from rllib.evaluation import seeding
from rllib.evaluation.worker_set import WorkerSet
from rllib.learners.learner import Learner
from rllib.metrics import DEFAULT_POLICY, Metrics
from rllib.models.catalog import PolicySpec
from rllib.policy import Policy


class Checkpointed(ABC):
    """The part of an algorithm that saves and restores it; what is saved, are the attributes below."""

    config: AlgorithmConfig
    seed: int
    policy: Policy
    learner: Learner
    metrics: Metrics
    workers: WorkerSet
    _evaluations: Evaluations
    _inference: Inference
    _learner_rng: np.random.Generator
    # How often it has gone on from a checkpoint: environments get fresh seeds each time.
    _restores: int = 0
    _default_directory: Path
    _stopped: bool

    @abstractmethod
    def get_policy(self, policy_id: str = DEFAULT_POLICY) -> Policy:
        """The policy that is trained."""

    def algorithm_state(self) -> dict[str, Any]:
        """JSON-able state of the algorithm itself (coefficients that adapt, ...), for checkpoints."""
        return {}

    def set_algorithm_state(self, state: dict[str, Any]) -> None:
        """Takes `algorithm_state` back."""

    def save(self, checkpoint_dir: str | Path | None = None) -> Path:
        """Writes a checkpoint directory: JSON and safetensors, all that is needed to act or to go on exactly.

        Args:
            checkpoint_dir: the directory to write; an existing checkpoint there is replaced in one step. By default
                results/ALGORITHM_DATE/checkpoint_ITERATION, with the date at which this algorithm was built.

        Returns:
            its path.
        """
        if checkpoint_dir is None:
            checkpoint_dir = self._default_directory / f"checkpoint_{self.metrics.iteration:06d}"
        return write_checkpoint(checkpoint_dir, self.get_state())

    def export_policy_model(self, export_dir: str | Path, policy_id: str = DEFAULT_POLICY) -> Path:
        """Writes the policy alone, as read_checkpoint reads it: policy.json says what to build, and the spaces;
        weights.safetensors is what Policy.set_state takes.

        Returns:
            the directory.
        """
        state = self.get_policy(policy_id).get_state()
        return write_checkpoint(export_dir, {"policy.json": self._policy_file(), "weights.safetensors": state})

    def get_state(self) -> dict[str, Any]:
        """The files of a checkpoint: name -> dict of plain values, or of arrays."""
        return {
            "algorithm.json": {
                "algorithm": type(self).__name__,
                "class": type(self),
                "seed": self.seed,
                "metrics": self.metrics.get_state(),
                "state": self.algorithm_state(),
                "evaluations": self._evaluations.count,
                "restores": self._restores,
            },
            "config.json": self.config.to_dict(),
            "rng.json": {
                "learner": self._learner_rng.bit_generator.state,
                "inference": self._inference.rng.bit_generator.state,
                # Those of workers that have been stopped are gone; whoever goes on from there draws new actions.
                "workers": [] if self._stopped else self.workers.foreach_worker(_worker_state),
            },
            f"policies/{DEFAULT_POLICY}/policy.json": self._policy_file(),
            f"policies/{DEFAULT_POLICY}/weights.safetensors": self.policy.get_state(),
            "learner.safetensors": self.learner.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes over `get_state`; spaces and network must be the same.

        Environments cannot be saved: they start new episodes, with seeds that the run has not used.

        Raises:
            ValueError: if the network differs.
        """
        algorithm, rng = state["algorithm.json"], state["rng.json"]
        saved_spec = PolicySpec.from_json(state[f"policies/{DEFAULT_POLICY}/policy.json"]["spec"]).to_json()
        own_spec = self.policy.spec.to_json()
        if saved_spec != own_spec:
            differing = [name for name in own_spec if own_spec[name] != saved_spec.get(name)]
            raise ValueError(
                f"the checkpoint's policy differs from this one in {', '.join(differing)}: "
                f"{[saved_spec.get(name) for name in differing]} there, {[own_spec[name] for name in differing]} here. "
                "Use Algorithm.from_checkpoint, or the same settings."
            )
        self.policy.set_state(state[f"policies/{DEFAULT_POLICY}/weights.safetensors"])
        self.learner.set_state(state["learner.safetensors"])
        self.metrics.set_state(algorithm["metrics"])
        self.set_algorithm_state(algorithm["state"])
        self._evaluations.count = algorithm["evaluations"]
        self._restores = algorithm["restores"] + 1
        self._learner_rng.bit_generator.state = rng["learner"]
        self._inference.rng.bit_generator.state = rng["inference"]
        self.workers.restores = self._restores
        self.workers.foreach_worker(_restore_worker, json.dumps(rng["workers"]), self._restores)
        self.workers.fleet.forget()  # what is under way was asked for by other weights

    def restore(self, checkpoint_path: str | Path) -> None:
        """Goes on from a checkpoint of the same algorithm, spaces and network.

        Raises:
            ValueError: if it is not a whole checkpoint, or of something else.
        """
        state = read_checkpoint(checkpoint_path)
        name = state["algorithm.json"]["algorithm"]
        if name != type(self).__name__:
            raise ValueError(
                f"the checkpoint {checkpoint_path} is of {name}, but this algorithm is {type(self).__name__}; use "
                f"Algorithm.from_checkpoint, or build a {name}Config"
            )
        self.set_state(state)

    def _policy_file(self) -> dict[str, Any]:
        """What acting needs beside the weights."""
        return {
            "spec": self.policy.spec.to_json(),
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "normalize_actions": self.config.normalize_actions,
            "clip_actions": self.config.clip_actions,
        }

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint_path: str | os.PathLike,
        overrides: dict[str, Any] | None = None,
        *,
        load_user_code: bool = False,
    ) -> Self:
        """Builds the algorithm of a checkpoint and goes on from there; the directory is all it needs.

        Without `load_user_code` a checkpoint runs nothing but this library and its environment's class, which is
        imported. An environment's name that was given to `register_env` must be registered.

        Args:
            checkpoint_path: what `save` returned, or a checkpoint of a trial.
            overrides: settings to change, such as {"num_rollout_workers": 0} to only act or evaluate.
            load_user_code: also import the functions and other classes that the settings name, and unpickle those that
                have no name. That runs code: only for checkpoints whose origin you trust.

        Raises:
            CheckpointError: (a ValueError) if it is missing, cut off, of something else, of an algorithm that is not
                of this class, or holds code of yours that is not loaded.
        """
        state = read_checkpoint(checkpoint_path, load_user_code=load_user_code)
        saved = state["algorithm.json"]
        algorithm_class = cls._saved_class(saved["algorithm"], saved["class"])
        if not issubclass(algorithm_class, cls):
            name = algorithm_class.__name__
            raise CheckpointError(
                f"the checkpoint {os.fspath(checkpoint_path)} is of {name}, not of {cls.__name__}. Use "
                f"{name}.from_checkpoint(path), or Algorithm.from_checkpoint(path) for any algorithm."
            )
        config = algorithm_class.config_class.from_dict(state["config.json"]).debugging(seed=saved["seed"])
        config.update_from_dict(overrides or {})
        if load_user_code and isinstance(config.env, str):
            register_typed_function(config.env)
        elif isinstance(config.env, UserCode):
            config.environment(environment_class(config.env))
        _refuse_unloaded(config, checkpoint_path)
        algorithm = algorithm_class(config)
        try:
            algorithm.set_state(state)
        except BaseException:
            algorithm.stop()
            raise
        return algorithm

    @classmethod
    def _saved_class(cls, name: str, saved: type | UserCode) -> type[Self]:
        """The class of a checkpoint's algorithm: loaded already, one of this library, or this one of the user's."""
        if not isinstance(saved, UserCode):
            return saved
        if saved.reference == f"{ALGORITHMS.get(name)}:{name}":
            return get_algorithm_class(name)
        if saved.reference == importable_path(cls) or name == cls.__name__:
            return cls
        raise CheckpointError(
            f"the checkpoint is of {name}, an algorithm of your own ({saved.reference}). Use "
            f"{name}.from_checkpoint(path), or from_checkpoint(path, load_user_code=True) if you trust its origin."
        )


def environment_class(code: UserCode) -> type | UserCode:
    """The class that the reference names, if it is one of environments; else the reference, as it is."""
    if ":" not in code.reference:
        return code  # the place of something pickled
    found = import_path(code.reference)
    return found if is_environment_class(found) else code


def _refuse_unloaded(config: AlgorithmConfig, path: str | os.PathLike) -> None:
    code = [
        f"{place} ({reference if ':' in reference else 'pickled'})"
        for name, value in config.items()
        for place, reference in _unloaded(name, value)
    ]
    if code:
        raise CheckpointError(
            f"the checkpoint {os.fspath(path)} holds code of yours, which runs only when you ask for it: "
            f"{', '.join(code)}. Use from_checkpoint(path, load_user_code=True) if you trust where it comes from, or "
            "give these settings yourself: from_checkpoint(path, overrides={...})."
        )


def _unloaded(place: str, value) -> Iterator[tuple[str, str]]:
    """(place, reference) of each UserCode within a setting."""
    if isinstance(value, UserCode):
        yield place, value.reference
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _unloaded(f"{place}[{key!r}]", item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _unloaded(f"{place}[{index}]", item)


def _worker_state(worker) -> list[dict]:
    return worker.get_state()


def _restore_worker(worker, states: str, restores: int) -> None:
    """Each worker picks its own from the states of all, where there are as many environments as there were."""
    worker.start_over(incarnation=seeding.incarnation(restores))
    saved = json.loads(states)
    own = saved[max(worker.worker_index - 1, 0)] if len(saved) == max(worker.settings.num_workers, 1) else []
    if len(own) == worker.settings.num_envs:
        worker.set_state(own)
