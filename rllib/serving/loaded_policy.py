"""A policy from a checkpoint that acts in the environment's own units, without the algorithm that trained it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rllib.acting.inference import Acting, ActingSettings, Inference
from rllib.env.factories.adapters import adapters_of
from rllib.env.factories.masks import ActionMask
from rllib.env.factories.previous_steps import PreviousStep
from rllib.env.multi_agent.agent_parts import AgentParts
from rllib.models.observations.masks import num_choices
from rllib.policy import Policy
from rllib.remote.download import local_checkpoint
from rllib.sample_batch import DEFAULT_POLICY
from rllib.storage.checkpoint import (
    CheckpointError,
    UserCode,
    checkpoint_at,
    naming_damage,
    read_checkpoint,
    read_manifest,
)

_DESCRIPTION, _WEIGHTS = "policy.json", "weights.safetensors"


def load_policy(
    path: str | os.PathLike, policy_id: str | None = None, *, load_user_code: bool = False
) -> "LoadedPolicy":
    """A trained policy, ready to act: no algorithm is built, no environment made, no process started.

    Args:
        path: a checkpoint, an export by `export_policy_model`, or the directory of a run or trial, whose newest
            checkpoint is taken; or the URL of one, such as s3://BUCKET/RUN or hf://ORG/NAME.
        policy_id: id of the policy, where the checkpoint holds several.
        load_user_code: import or unpickle a network or an action distribution of yours. That runs code: only for
            checkpoints whose origin you trust.

    Raises:
        CheckpointError: (a ValueError) if there is no checkpoint, it is damaged, of something else or of a newer
            format, has no such policy, or holds code of yours that is not loaded.
        StorageError: if a URL cannot be read.
    """
    path = checkpoint_at(local_checkpoint(path))
    with naming_damage(path):
        directory = _directory_of(path, policy_id)
        name = directory + _DESCRIPTION
        description = read_checkpoint(path, only=name, load_user_code=load_user_code)[name]
        files = read_checkpoint(path, only=(directory + _WEIGHTS, "algorithm.json", "config.json"))
        policy = Policy.from_files(description, files[directory + _WEIGHTS], path)
        description = _completed(description, files, path)
        policy_id = directory.removeprefix("policies/").rstrip("/") or DEFAULT_POLICY
        return LoadedPolicy(policy, description, path, policy_id)


class LoadedPolicy(Acting):
    """A policy that takes observations as the environment gives them, and gives actions as it takes them.

    `compute_single_action`, `compute_actions` and `make_player` are the same methods as an algorithm's. Made by
    `load_policy`. Calls from several threads must not overlap.

    Args:
        policy: acts.
        description: the items of policy.json.
        checkpoint: where it was read.
        policy_id: its id there.

    Attributes:
        checkpoint, policy_id: the same.
        policy: takes and gives what batches store (rllib.Policy).
        observation_space: space of the observations that it takes, without keys that it ignores.
        action_space: space of the environment.
        policy_version: number of updates that had been applied to its weights.
        metadata: algorithm, env (its name, or None), num_updates and num_env_steps_sampled of the run.
    """

    def __init__(self, policy: Policy, description: Mapping[str, Any], checkpoint: Path, policy_id: str):
        self.checkpoint, self.policy, self.policy_id = checkpoint, policy, policy_id
        self.policies = {policy_id: policy}
        self.metadata: dict[str, Any] = dict(description["trained"])
        self.policy_version: int = self.metadata["num_updates"]
        self.action_space = description["action_space"]
        settings = self._acting_settings = ActingSettings.from_json(description)
        self._exploration: dict[str, float] = description["exploration"]
        self._inference = Inference(
            description["observation_space"], self.action_space, settings, np.random.default_rng(), policy.distribution
        )
        # The default id means this policy, whichever it is.
        self._inferences = {policy_id: self._inference, DEFAULT_POLICY: self._inference}
        self.observation_space = self._inference.given_space

    def __repr__(self) -> str:
        return f"<LoadedPolicy {self.policy_id!r} of {self.of}, version {self.policy_version}, from {self.checkpoint}>"

    @property
    def of(self) -> str:
        """The algorithm and its environment, in words; clients have none."""
        algorithm, env = self.metadata["algorithm"], self.metadata["env"]
        return str(algorithm) if env is None else f"{algorithm} on {env}"

    def _network(self, policy_id: str = DEFAULT_POLICY) -> Policy:
        """The policy itself; it is the default as well."""
        return self.policy if policy_id == DEFAULT_POLICY else super()._network(policy_id)

    def get_initial_state(self) -> list[np.ndarray]:
        """The memory's state before an episode; [] without a memory."""
        return self.policy.get_initial_state()

    def seed(self, seed: int | None) -> None:
        """Restarts the random numbers that sampled actions are drawn with."""
        self._inference.rng = np.random.default_rng(seed)

    @property
    def reads_mask(self) -> bool:
        """Whether a mask has to come with each observation."""
        return self._inference.settings.adapter(ActionMask) is not None

    def open_mask(self) -> np.ndarray:
        """A mask that allows every action, int8 [choices]."""
        return np.ones(num_choices(self.policy.distribution), np.int8)

    @property
    def previous_step(self) -> PreviousStep | None:
        """The parts of the previous step that the policy reads; None if it reads none."""
        return self._inference.settings.adapter(PreviousStep)

    @property
    def agent_parts(self) -> AgentParts | None:
        """The parts that were added to agents' observations in training; None where there are none."""
        return self._inference.settings.adapter(AgentParts)

    @property
    def agent_ids(self) -> tuple[str, ...]:
        """Names of the agents, one of which the policy reads with each observation; empty if it reads none."""
        return self.agent_parts.agents if self.agent_parts else ()

    def _explored_by(self, policy_id: str = DEFAULT_POLICY) -> dict[str, Any]:
        """Settings of the exploration when the checkpoint was written."""
        return self._exploration


def policy_ids(path: str | os.PathLike) -> list[str]:
    """Ids of the policies in a checkpoint, those that are written by hand left out.

    Raises:
        CheckpointError: if there is no checkpoint at the path, or it has none.
    """
    return sorted(_id_of(directory) for directory in _directories(Path(path)))


def _directories(path: Path) -> set[str]:
    """Directories of the policies' files in a checkpoint: "policies/ID/", or "" for one that is alone."""
    files = read_manifest(path)["files"]
    found = {name.removesuffix(_DESCRIPTION) for name in files if Path(name).name == _DESCRIPTION}
    if not found:
        raise CheckpointError(f"{path} is a checkpoint, but not one of a policy")
    return found


def _id_of(directory: str) -> str:
    return directory.split("/")[1] if directory else DEFAULT_POLICY


def _directory_of(path: Path, policy_id: str | None) -> str:
    """Directory of a policy's files in a checkpoint."""
    found = _directories(path)
    if found == {""} and policy_id in (None, DEFAULT_POLICY):
        return ""
    wanted = f"policies/{policy_id or (DEFAULT_POLICY if len(found) > 1 else _id_of(min(found)))}/"
    if wanted not in found:
        ids = ", ".join(sorted(map(_id_of, found)))
        raise CheckpointError(f"the checkpoint {path} has no policy {policy_id or DEFAULT_POLICY!r}; it has {ids}")
    return wanted


def _completed(description: Mapping, files: Mapping, path: Path) -> dict[str, Any]:
    """The items of policy.json, with the items that earlier versions wrote into other files."""
    if "observation_space" not in description or "action_space" not in description:
        raise CheckpointError(
            f"the checkpoint {path} does not say what the spaces are. Write it again: "
            "Algorithm.from_checkpoint(path).save(new_path)."
        )
    if "trained" in description:
        return dict(description)
    if "config.json" not in files:
        raise CheckpointError(
            f"{path} holds a policy that an earlier version has exported, without what happens to its observations. "
            "Export it again: Algorithm.from_checkpoint(path).export_policy_model(new_path)."
        )
    return {**_earlier_settings(files["config.json"]), **_earlier_run(files), **description}


def _earlier_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The items of ActingSettings, from the config of the algorithm."""
    return ActingSettings(adapters=adapters_of(config), explore=config["explore"]).to_json()


def _earlier_run(files: Mapping[str, Mapping]) -> dict[str, Any]:
    """The items "trained" and "exploration"; how much was explored is not known, so nothing is added."""
    env, algorithm = files["config.json"].get("env"), files["algorithm.json"]
    counters = algorithm["metrics"]["counters"]
    trained = {
        "algorithm": algorithm["algorithm"],
        "env": env.reference if isinstance(env, UserCode) else env,
        **{name: counters.get(name, 0) for name in ("num_updates", "num_env_steps_sampled")},
    }
    return {"trained": trained, "exploration": {}}
