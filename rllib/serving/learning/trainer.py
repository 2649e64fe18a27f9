"""The algorithm of a checkpoint, which learns from episodes that served policies have acted in.

The episodes come from an environment that drives its own loop (env/external): they are submitted step by step, with
logged actions, so that rows, filters, n-step returns and counts are made as in training. An algorithm that has learned
from recorded steps continues with recorded and served steps, half of each batch each.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.config import alone
from rllib.algorithms.base.from_checkpoint import read_state, saved_class, settings_of_world
from rllib.algorithms.base.recorded.settings import SAMPLER
from rllib.algorithms.families.off_policy import OffPolicy
from rllib.env.external.checks import AGENT
from rllib.env.external.exchange import StepRequest
from rllib.env.external.external_env import ExternalEnv
from rllib.env.factories.registry import EnvContext, EnvFactory
from rllib.env.multi_agent.agent_spaces import ALL
from rllib.env.multi_agent.stream import AgentStep
from rllib.models.observations.flat_spaces import parts
from rllib.offline.dataset import Dataset
from rllib.sample_batch import DEFAULT_POLICY
from rllib.serving.learning.decisions import Episode
from rllib.serving.learning.packets import MOST_BYTES, array_of
from rllib.storage.checkpoint import CheckpointError, UserCode, write_checkpoint

if TYPE_CHECKING:
    from rllib.serving.loaded_policy import LoadedPolicy

# Settings that belong to the checkpoint's run and do not apply to learning from served episodes; the values used here.
_REPLACED: dict[str, Any] = {
    "env_wrappers": None, "num_envs_per_worker": 1, "evaluation_interval": None, "evaluation_videos": 0,
    "log_dir": None, "store_buffer_in_checkpoints": False, "batch_mode": "truncate_episodes", "profile": False,
    "gym_env_vectorize_mode": "sync", "clip_rewards": False, "output": None, "num_cpus_per_learner": "auto",
    "offline_evaluation_interval": None, "off_policy_estimation_methods": {}, "dataset_num_iters_per_learner": None,
}  # fmt: skip
# Settings of the run's environment.
_OF_WORLD = ("env", "env_config", "env_wrappers", "observation_space", "action_space", "listen")
# Share of served steps in each batch, where the others are recorded.
_SERVED_SHARE = 0.5


class ServedEpisodes(ExternalEnv):
    """The environment of served episodes, which the trainer submits when they are over."""

    def __init__(self, action_space: Space, observation_space: Space):
        super().__init__(action_space, observation_space)
        self._is_closed = threading.Event()
        self._number = 0

    def run(self) -> None:
        """Waits until the environment is closed: the trainer submits the step requests."""
        self._is_closed.wait()

    def close(self) -> None:
        self._is_closed.set()

    def requests(self, episode: Episode) -> Iterator[StepRequest]:
        """Yields the step requests of an episode; each except the first closes the row of a step."""
        self._number += 1
        final = episode.steps[-1].observation if episode.final is None else episode.final
        following = [step.observation for step in episode.steps[1:]] + [final]
        yield self._request(episode.steps[0].observation, {}, None, episode.steps[0].action, is_first=True)
        for index, step in enumerate(episode.steps):
            is_last = index == len(episode.steps) - 1
            end = (episode.terminated, not episode.terminated) if is_last else None
            action = None if is_last else episode.steps[index + 1].action
            yield self._request(following[index], {AGENT: step.reward}, end, action)

    def _request(self, observation: bytes, rewards, end, action: bytes | None, is_first: bool = False) -> StepRequest:
        terminated, truncated = end or (False, False)
        observations = {AGENT: array_of(self.observation_space, observation)}
        flags = {ALL: terminated}, {ALL: truncated}
        step = AgentStep(observations, rewards, *flags, {}, end is not None, end is not None)
        logged = None if action is None else {AGENT: array_of(self.action_space, action)}
        return StepRequest(str(self._number), step, logged, is_first=is_first)


@dataclass(frozen=True)
class ServedEpisodesFactory(EnvFactory):
    """Makes the environment of served episodes.

    Attributes:
        name: name of the environment that the policy was trained in.
        action_space, observation_space: spaces of the policy.
    """

    name: str
    action_space: Space
    observation_space: Space

    def make(self, context: EnvContext) -> ServedEpisodes:
        return ServedEpisodes(self.action_space, self.observation_space)


class Trainer:
    """An off-policy algorithm that continues from a checkpoint with served episodes.

    Args:
        policy: loaded from the checkpoint.
        overrides: settings of the algorithm to change.
        load_user_code: as for Algorithm.from_checkpoint.

    Attributes:
        algorithm: the algorithm.

    Raises:
        CheckpointError: if the checkpoint cannot be loaded, or its algorithm cannot learn from served episodes.
        ValueError: for an override that is no setting, or has no effect here.
        FileNotFoundError: if the recorded steps that the algorithm has learned from are no longer there.
    """

    def __init__(self, policy: "LoadedPolicy", overrides: dict[str, Any], load_user_code: bool = False):
        refuse(policy)
        path = policy.checkpoint
        self._load_user_code = load_user_code
        state = read_state(path, load_user_code)
        self._original = state["config.json"]
        _refuse_class(saved_class(state, path, Algorithm), path)
        if unread := [name for name in _OF_WORLD if name in overrides]:
            raise ValueError(
                f"--set {unread[0]}=... would have no effect: clients act in their own environments, in the spaces of "
                "the policy. Leave it out."
            )
        factory = ServedEpisodesFactory(str(policy.metadata["env"]), policy.action_space, policy.observation_space)
        names = self._original.keys()
        own = {**_REPLACED, **alone(self._original)}
        replaced = {name: value for name, value in own.items() if name in names and name not in overrides}
        sources = {"input_": _with_served_steps(overrides.get("input_", self._original.get("input_", SAMPLER)))}
        self._kept = {"env": None, **replaced, **sources}.keys()
        changes = {**replaced, **overrides, **sources, "env": factory}
        try:
            self.algorithm = Algorithm.from_checkpoint(path, changes, load_user_code=load_user_code)
        except TypeError as error:
            raise ValueError(f"--set: {error}" if overrides else str(error)) from error
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{path} has learned from recorded steps, and continues with these and served ones, but {error} Give "
                "their place: --set input_=PATH."
            ) from error
        self._kept |= set(settings_of_world(type(self.algorithm.config)))
        self._fragment = self.algorithm.config.get_rollout_fragment_length()
        self._handed = self.algorithm.timesteps

    @property
    def _env(self) -> ServedEpisodes:
        return self.algorithm.workers.local_worker().stream.environments[0]

    @property
    def version(self) -> int:
        """Version of the weights."""
        return self.algorithm.metrics.num_updates(DEFAULT_POLICY)

    def params(self) -> dict[str, Any]:
        """The algorithm and its settings, as written to params.json."""
        own = {name: self._original[name] for name in ("env", "seed") if name in self._original}
        return {**self.algorithm.config.to_dict(), "env": None, **own, "algorithm": type(self.algorithm).__name__}

    def learn(self, episode: Episode) -> None:
        """Submits an episode of at least one step, and makes the training steps that are due."""
        env = self._env
        for request in env.requests(episode):
            env.exchange.submit(request)
            self._handed += not request.is_first
            # Only for whole fragments: otherwise the worker would wait for the missing steps.
            while self._handed - self.algorithm.timesteps >= self._fragment:
                self.algorithm.training_step()

    def save(self, path: Path) -> None:
        """Writes a checkpoint with the settings of the original one."""
        state, algorithm = self.algorithm.get_state(), self.algorithm
        own = {name: self._original[name] for name in self._kept if name in self._original}
        if own["env"] is None or _has_code(own):
            # Code that was not loaded cannot be written: the spaces take the environment's place.
            own |= {"env": None, "env_wrappers": None, "observation_space": algorithm.observation_space}
            own["action_space"] = algorithm.action_space
        state["config.json"] = {**state["config.json"], **own}
        write_checkpoint(path, state)

    def go_back(self, path: Path) -> None:
        """Restores weights, optimizer and target networks of a checkpoint; replay and clocks stay."""
        state = read_state(path, self._load_user_code)
        state["algorithm.json"] = {
            **state["algorithm.json"],
            "metrics": self.algorithm.metrics.get_state(),
            "state": self.algorithm.numbers(),
        }
        self._env.exchange.arrived()  # drops the step requests of a fragment that is not full
        self.algorithm.set_state(state)
        self._handed = self.algorithm.timesteps

    def stop(self) -> None:
        """Ends the algorithm."""
        self.algorithm.stop()


def _refuse_class(algorithm: type, path: Path) -> None:
    """Raises a CheckpointError for an algorithm that cannot learn from served episodes."""
    name = algorithm.__name__
    if issubclass(algorithm, OffPolicy) and algorithm.is_synchronous:
        return
    if algorithm.config_class.needs_data:
        raise CheckpointError(
            f"{path} is of {name}, which imitates recorded actions and has no values of actions that rewards could "
            "improve. Learn from the same data with IQL, AWAC, CQL or TD3BC, or with DQN and conservative_weight=1.0: "
            "--learn continues from their checkpoints."
        )
    raise CheckpointError(
        f"{path} is of {name}, which learns from its own newest actions or in several processes. --learn is for DQN, "
        "Rainbow, SAC, TQC, CrossQ, TD3 and DDPG, and for IQL, AWAC, CQL, TD3BC and ReBRAC."
    )


def _with_served_steps(source: Any) -> Any:
    """Adds served steps, which come from the sampler, to the sources in the setting `input_`; returns the new value.

    Args:
        source: the run's value of `input_`.
    """
    if isinstance(source, str) and source == SAMPLER:
        return source
    shares = source if isinstance(source, Mapping) else None
    if shares is not None and all(isinstance(share, int | float) for share in shares.values()):
        if SAMPLER in shares:
            return source
        return {SAMPLER: _SERVED_SHARE, **{each: share * (1 - _SERVED_SHARE) for each, share in shares.items()}}
    if isinstance(source, list | tuple):
        return {SAMPLER: _SERVED_SHARE, tuple(source): 1 - _SERVED_SHARE}
    if not isinstance(source, str | os.PathLike | Dataset):
        source = Dataset.from_columns(source)
    return {SAMPLER: _SERVED_SHARE, source: 1 - _SERVED_SHARE}


def _has_code(value) -> bool:
    """Whether settings contain user code that was not loaded."""
    if isinstance(value, dict | list | tuple):
        return any(map(_has_code, value.values() if isinstance(value, dict) else value))
    return isinstance(value, UserCode)


def refuse(policy: "LoadedPolicy") -> None:
    """Raises a CheckpointError for a policy whose decisions cannot be learned from as single rows."""
    where = f"--learn cannot learn for the policy of {policy.checkpoint}"
    if policy.policy.state_size:
        raise CheckpointError(f"{where}: it has a memory, and a replay keeps single rows. Use a policy without one.")
    for space, kind in ((policy.observation_space, "observations"), (policy.action_space, "actions")):
        if parts(space) is not None:
            raise CheckpointError(f"{where}: its {kind} must be one array each, but are {space}")
        size = space.dtype.itemsize * int(np.prod(space.shape))
        if size > MOST_BYTES // 2:
            raise CheckpointError(f"{where}: its {kind} may have {MOST_BYTES // 2} bytes, but have {size}")
    if policy.reads_mask or policy.previous_step is not None:
        raise CheckpointError(f"{where}: it reads a mask or the previous step in addition to the observation")
    if policy.agent_parts is not None:
        raise CheckpointError(f"{where}: it was one of several agents' (agent_id_in_observation, centralized_critic)")
