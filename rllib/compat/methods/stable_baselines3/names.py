"""Attributes and methods of an algorithm by Stable-Baselines3's names."""

import contextlib
import logging
import os
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rllib.acting.inference import under_plain_names
from rllib.callbacks.learning import Learning
from rllib.callbacks.logger import Logger
from rllib.compat.methods.stable_baselines3.construction import Words, next_directory, numbered_name
from rllib.env.vec_env.dummy_vec_env import DummyVecEnv
from rllib.notices import log_once, log_unused_arguments
from rllib.policy import Policy
from rllib.runs.run_log import hand_over
from rllib.sample_batch import DEFAULT_POLICY

# The name of the only policy's parameters.
_ONLY = "policy"


@under_plain_names
class StableBaselinesNames:
    """The attributes and methods that programs for Stable-Baselines3 use, in addition to those that have the same names
    anyway.

    Attributes:
        verbose: 1: `learn` prints tables of results; set by the constructor of that name.
    """

    config: Any
    directory: Any
    policies: dict[str, Policy]
    timesteps: int
    _parts: contextlib.ExitStack
    verbose: int = 0
    # Arguments of a constructor in that library's form.
    _words: Words | None = None
    # While `learn` runs.
    _learning: Learning | None = None
    # Environment steps before the newest `learn` that has reset their number.
    _first_timestep: int = 0
    _logger: Logger | None = None
    _vec_env: DummyVecEnv | None = None
    # Directory of tensorboard_log of the run whose checkpoint was loaded.
    _loaded_from: Path | None = None
    _reporting: Any
    iteration: int

    @abstractmethod
    def _new_environment(self) -> Any:
        """A new environment with its own observations; None if the algorithm has none."""

    @abstractmethod
    def _network(self, policy_id: str = DEFAULT_POLICY) -> Policy:
        """The present policy of this id, which has a network."""

    @property
    def num_timesteps(self) -> int:
        """Number of environment steps since the beginning, or since the newest `learn` with reset_num_timesteps.

        While a callback of `learn` is called, it is the number up to the step that the call is for.
        """
        step = None if self._learning is None else self._learning.step
        return self._steps_since_reset() if step is None else step

    def _steps_since_reset(self) -> int:
        return self.timesteps - self._first_timestep

    @property
    def n_envs(self) -> int:
        """Number of environments that are sampled from, of all workers together."""
        return max(self.config.num_rollout_workers, 1) * self.config.num_envs_per_worker

    @property
    def device(self) -> str:
        """Device of the learner: "cuda" or "cpu"."""
        return "cuda" if self.config.num_gpus else "cpu"

    @property
    def logger(self) -> Logger:
        """Takes values into the next result of `learn`: `algo.logger.record("mine/value", 1.0)`."""
        if self._logger is None:
            self._logger = Logger(self.directory)
        return self._logger

    def get_env(self) -> Any:
        """Makes environments like those that are trained in, as many, for a loop of one's own.

        Workers have environments of their own, so stepping these changes nothing of the training.

        Returns:
            a DummyVecEnv, the same one each time; None without an environment.

        Raises:
            ValueError: if they are vectors themselves, or several agents act in them.
        """
        if self._vec_env is None and self.config.env is not None:
            if getattr(self, "agents", None) is not None:
                raise ValueError("several agents act in this environment. Use algo.make_player().")
            self._vec_env = DummyVecEnv([self._new_environment] * self.n_envs)
            self._parts.callback(self._close_vec_env)
        return self._vec_env

    def _close_vec_env(self) -> None:
        if self._vec_env is not None:
            self._vec_env.close()

    def _choose_directory(self, tb_log_name: str | None, reset_num_timesteps: bool) -> None:
        """Chooses the directory of tensorboard_log that a call of `learn` writes into.

        A call that does not reset the number of steps continues in the directory of the run, or of the run that was
        loaded, unless results that are newer than the checkpoint would be lost there.
        """
        if not self.config.tensorboard_groups or self.config.log_dir is None:
            if tb_log_name is not None:
                log_once(
                    "tb_log_name",
                    f"tb_log_name={tb_log_name!r} has no effect: it names a directory in tensorboard_log, which "
                    "the constructor was not given. Use PPO('MlpPolicy', env, tensorboard_log='runs').",
                    logging.WARNING,
                )
            return
        present = self.directory
        name = tb_log_name or numbered_name(present) or type(self).__name__
        is_open, same_name = self._reporting.is_open, name == numbered_name(present)
        if same_name and (not is_open or not reset_num_timesteps):
            saved = None if is_open or reset_num_timesteps else self._loaded_from
            chosen = present if saved is None or not hand_over(saved, self.iteration) else saved
        else:
            chosen = Path(next_directory(present.parent, name))
        if chosen != present:
            self.directory = chosen
            self.config = self.config.copy(copy_frozen=False).reporting(log_dir=str(chosen)).freeze()

    def _taken_along(self) -> dict[str, Any]:
        """Takes the attributes that users may hold out of this algorithm, for one that is built in its place."""
        names = ("verbose", "_vec_env", "_logger")
        return {name: self.__dict__.pop(name) for name in names if name in self.__dict__}

    def get_vec_normalize_env(self) -> None:
        """None: filters of observations and rewards belong to the algorithm, and are saved with it."""

    def get_parameters(self) -> dict[str, dict[str, np.ndarray]]:
        """Copies of the network's parameters by name, under "policy"; of several policies under their ids."""
        return {
            _ONLY if policy_id == DEFAULT_POLICY else policy_id: {
                name: value.copy() for name, value in policy.parameters().items()
            }
            for policy_id, policy in self.policies.items()
        }

    def set_parameters(
        self,
        load_path_or_dict: str | os.PathLike | Mapping[str, Mapping[str, Any]],
        exact_match: bool = True,
        device: str = "auto",
    ) -> None:
        """Sets the parameters of networks; workers get them with their next request.

        The state of the optimizer stays as it is. `restore` continues from a checkpoint with all of its state. With the
        path of a checkpoint observation filters get its statistics as well.

        Args:
            load_path_or_dict: what `get_parameters` returned, or the path of a checkpoint.
            exact_match: all parameters of each network that is named have to be given, and no others; otherwise those
                that are known are set.
            device: without effect; a warning says so where it is given.

        Raises:
            ValueError: if there is no policy of a name, before any is changed; for other parameters than its network's.
        """
        reason = "parameters are on the CPU, and go to a learner's GPU with its next update"
        log_unused_arguments("set_parameters", reason, device=device != "auto" and device)
        if isinstance(load_path_or_dict, str | os.PathLike):
            found = Policy.from_checkpoint(load_path_or_dict)
            found = found if isinstance(found, dict) else {DEFAULT_POLICY: found}
            given: Mapping[str, Mapping[str, Any]] = {name: policy.parameters() for name, policy in found.items()}
        else:
            found, given = {}, load_path_or_dict
            if not isinstance(given, Mapping) or not given or not all(isinstance(x, Mapping) for x in given.values()):
                raise ValueError(
                    f"load_path_or_dict={given!r:.80} must be the path of a checkpoint, or a dict of parameters by "
                    f"network, as get_parameters() returns it: its keys here are {', '.join(self.get_parameters())}."
                )
        ids = {name: DEFAULT_POLICY if name == _ONLY and _ONLY not in self.policies else name for name in given}
        policies = {name: self._network(policy_id) for name, policy_id in ids.items()}
        for name, policy in found.items():
            if policy.spec.observation_filter != (own := policies[name].spec.observation_filter):
                raise ValueError(
                    f"the checkpoint's policy {name!r} has observation_filter={policy.spec.observation_filter!r}, but "
                    f"this algorithm's has {own!r}, so its weights would read other numbers. Use "
                    f".rollouts(observation_filter={policy.spec.observation_filter!r})."
                )
        for name, policy in policies.items():
            parameters = {key: np.asarray(value, np.float32) for key, value in given[name].items()}
            if not exact_match:
                own = policy.parameters()
                parameters = {**own, **{key: value for key, value in parameters.items() if key in own}}
            policy.set_weights(parameters)
            if name in found:
                policy.filter.set_state(found[name].filter.get_state())
