"""Attributes and methods of an algorithm by Stable-Baselines3's names."""

import contextlib
import logging
import math
import os
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from rllib.acting.inference import under_plain_names
from rllib.callbacks.base import callbacks_of
from rllib.callbacks.learning import Learning
from rllib.callbacks.logger import Logger
from rllib.callbacks.shown import ProgressBarCallback, TableCallback
from rllib.compat.methods.stable_baselines3.checkpoints import (
    checkpoint_named,
    log_directory,
    saved_settings,
    saved_timesteps,
    without_environment,
)
from rllib.compat.methods.stable_baselines3.construction import (
    Words,
    changes_from_words,
    differs,
    shares_of_run,
    steps_of_unknown_length,
)
from rllib.compat.methods.stable_baselines3.directories import directory_of_learning, numbered_name
from rllib.compat.names.stable_baselines3.rules import check_flags, count, number
from rllib.env.vec_env.dummy_vec_env import DummyVecEnv
from rllib.notices import log_once, log_unused_arguments
from rllib.policy import Policy
from rllib.sample_batch import DEFAULT_POLICY

# The name of the parameters of a single policy.
_ONLY = "policy"

logger = logging.getLogger(__name__)


@under_plain_names
class StableBaselinesNames:
    """Stable-Baselines3's names of attributes and methods, where they differ from this library's names.

    Attributes:
        verbose: 1: `learn` prints tables of results; set by the constructor of that name.
    """

    config: Any
    directory: Any
    policies: dict[str, Policy]
    timesteps: int
    _parts: contextlib.ExitStack
    verbose: int = 0
    # Arguments of a constructor in Stable-Baselines3's form.
    _words: Words | None = None
    # Words of `load`, or of attributes that were set, whose values are shares of the next `learn`.
    _shares: Mapping[str, Any] = MappingProxyType({})
    # While `learn` runs.
    _learning: Learning | None = None
    # Environment steps before the newest `learn` that has reset their number.
    _first_timestep: int = 0
    _logger: Logger | None = None
    _vec_env: DummyVecEnv | None = None
    # Directory of tensorboard_log of the run whose checkpoint was loaded.
    _loaded_from: Path | None = None
    _reporting: Any
    goal: Mapping[str, float]
    iteration: int
    seed: int
    get_default_config: Any
    from_checkpoint: Any
    get_weights: Any
    set_weights: Any
    get_state: Any
    set_state: Any

    @abstractmethod
    def _frozen(self, config: Any) -> Any:
        """A validated, frozen config of the algorithm's own class."""

    @abstractmethod
    def _begin(self, config: Any) -> None:
        """Makes all that a run has, by a frozen config."""

    @abstractmethod
    def stop(self) -> None:
        """Ends the workers and all other processes of the run."""

    @abstractmethod
    def _new_environment(self) -> Any:
        """A new environment with its own observations; None if the algorithm has none."""

    @abstractmethod
    def _network(self, policy_id: str = DEFAULT_POLICY) -> Policy:
        """The present policy of this id, which has a network."""

    def _config_of_words(self, policy: Any, env: Any, words: Mapping[str, Any]) -> Any:
        """The config for a constructor call in Stable-Baselines3's form: the name of a policy, and words."""
        self.verbose = int(words.get("verbose", 0))
        self._words = Words(policy, env, words)
        return self._words.config(self.get_default_config())

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        env: Any = None,
        device: str = "auto",
        custom_objects: Mapping[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **words: Any,
    ) -> Self:
        """`from_checkpoint`, by the name and the arguments of Stable-Baselines3.

        If a checkpoint cannot name the environment, as with a function or an existing environment object, the algorithm
        is built without one: it acts, and trains if it is loaded with `env`.

        Args:
            path: the path that `save` was given, with or without the ending .zip, or the directory of a run. With the
                constructor's tensorboard_log, further training writes to a new directory there; with
                learn(reset_num_timesteps=False) to the directory of the saved run.
            env: an environment in any form that the constructor takes, instead of the saved one.
            device: "cuda": learn on a GPU; "cpu": without one; "auto": as saved.
            custom_objects: further settings, as in `words`.
            print_system_info, force_reset: True and False have no effect, and a warning says so: the manifest names the
                versions, and episodes start again.
            words: settings to change, by Stable-Baselines3's names. Other settings stay as saved: n_steps is the number
                of steps of each environment, so with another number of environments batches have other sizes.
                Functions of the remaining share, "lin_NUMBER" and exploration_fraction cover the steps of the next
                `learn`; with n_timesteps, the first n_timesteps steps of the model.

        Raises:
            CheckpointError: as `from_checkpoint`; for a file of Stable-Baselines3, with how to import it.
            TypeError: for a word that is no setting.
        """
        log_unused_arguments(
            "load", "the checkpoint's manifest.json names the versions", print_system_info=print_system_info
        )
        log_unused_arguments("load", "episodes always start again", force_reset=not force_reset)
        path = checkpoint_named(path)
        words = {**(custom_objects or {}), **words}
        shares = shares_of_run(words)
        steps = steps_of_unknown_length(saved_timesteps(path)) if shares else None
        changes = changes_from_words(cls.get_default_config(), env, device, words, saved_settings(path), steps)
        if env is None:
            changes |= without_environment(path)
        saved, place = log_directory(path)
        algorithm = cls.from_checkpoint(path, {**place, **changes})
        algorithm._loaded_from, algorithm._shares = saved, shares
        return algorithm

    def learn(
        self,
        total_timesteps: float,
        callback: Any = None,
        log_interval: int | None = 1,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Trains until this number of further environment steps has been sampled, rounded up to whole training steps.

        Args:
            total_timesteps: number of steps, like 1e5; steps sampled before this call do not count.
            callback: a function of (locals, globals) that returns False to end the training, an object derived from
                rllib.callbacks.BaseCallback, or a list of these. They are called after each iteration
                (docs/start/from_sb3.md).
            log_interval: iterations from one printed table to the next, with `verbose=1` of the constructor; None: no
                tables.
            tb_log_name: with the constructor's tensorboard_log, files go to its directory tb_log_name_1, then _2 and so
                on; None: the name of the algorithm. Without tensorboard_log it has no effect, and a warning says so.
            reset_num_timesteps: whether `num_timesteps` starts at 0, in another directory of tensorboard_log. False:
                both continue, also after `load`. The clock of schedules, `timesteps`, always continues.
            progress_bar: whether to show steps, speed and mean return on the terminal, or in the notebook.

        Returns:
            the algorithm itself, as in Stable-Baselines3.

        Raises:
            ValueError: if the number of steps is not positive and finite.
            TypeError: if a callback is no function and no BaseCallback.
        """
        if not number().holds(total_timesteps) or total_timesteps <= 0:
            raise ValueError(f"total_timesteps={total_timesteps!r} must be a positive number of environment steps")
        check_flags(reset_num_timesteps=reset_num_timesteps, progress_bar=progress_bar)
        count(1, none=", or None: no table").check("log_interval", log_interval)
        callbacks = [*callbacks_of(callback), *([ProgressBarCallback()] if progress_bar else [])]
        if self.verbose and log_interval is not None:
            callbacks.append(TableCallback(log_interval))
        first = self.timesteps
        if reset_num_timesteps:
            self._first_timestep = first
        if self._words is not None and not first:
            self._take_length(total_timesteps)
        elif self._shares:
            self._take_shares(range(self._first_timestep, first + math.ceil(total_timesteps)))
        self._shares = {}
        variables = {
            "total_timesteps": self.num_timesteps + total_timesteps,
            "log_interval": log_interval,
            "tb_log_name": tb_log_name or "run",
            "callback": callback,
            "reset_num_timesteps": reset_num_timesteps,
            "progress_bar": progress_bar,
        }
        self._choose_directory(tb_log_name, reset_num_timesteps)
        self._learning, goal = Learning(self, callbacks, self._steps_since_reset, variables), self.goal
        self.goal = {"timesteps": first + total_timesteps, **goal}
        try:
            self._learning.run(lambda: self.timesteps - first >= total_timesteps)
        finally:
            self._learning, self.goal = None, goal
        return self

    def _take_length(self, total_timesteps: float) -> None:
        """Builds the algorithm again if its constructor's words are shares of a run, whose length is now known."""
        config = self._words.config_of_length(self.get_default_config(), total_timesteps, self.seed)
        if not differs(config, self.config):
            return
        weights, rows = self.get_weights(), self._rows_of_replays()
        self._begin_again(config)
        self._parts.callback(self._close_vec_env)
        self.set_weights(weights)
        self._take_rows_of_replays(rows)

    def _take_shares(self, steps: range) -> None:
        """Builds the algorithm again, with its state, if words that were set later are shares of these steps."""
        saved = {name: self.config[name] for name in self.config}
        changes = changes_from_words(self.get_default_config(), None, "auto", self._shares, saved, steps)
        if any(saved[name] != value for name, value in changes.items()):
            self._build_with(changes)

    def _build_with(self, changes: Mapping[str, Any]) -> None:
        """Builds the algorithm again with changed settings; its state and the rows of its replay are kept."""
        state, rows = self.get_state(), self._rows_of_replays()
        changed = self.config.copy(copy_frozen=False).update_from_dict(dict(changes))
        state["config.json"] = changed.to_dict()
        self._begin_again(changed)
        self._parts.callback(self._close_vec_env)
        self.set_state(state)
        self._take_rows_of_replays(rows)

    def _begin_again(self, config) -> None:
        """Stops the algorithm and builds it with another config; a program's attributes (`model.mine = 3`) stay."""
        config = self._frozen(config)  # raises for an invalid config before the algorithm is stopped
        kept, before = self._taken_along(), dict(self.__dict__)
        self.stop()
        self.__dict__.clear()
        self.__dict__.update(kept)
        self._begin(config)
        for name, value in before.items():
            if not name.startswith("_"):
                self.__dict__.setdefault(name, value)

    def _taken_along(self) -> dict[str, Any]:
        """Removes attributes that users may hold from this algorithm, and returns them for its replacement."""
        names = ("verbose", "_vec_env", "_logger", "_loaded_from")
        return {name: self.__dict__.pop(name) for name in names if name in self.__dict__}

    def _rows_of_replays(self) -> dict[str, dict[str, np.ndarray]]:
        """Policy id -> rows of its replay, for `_take_rows_of_replays`; {} without replays."""
        return {}

    def _take_rows_of_replays(self, rows: dict[str, dict[str, np.ndarray]]) -> None:
        """Replaces the rows of replays by rows that `_rows_of_replays` returned."""

    @property
    def num_timesteps(self) -> int:
        """Number of environment steps since the run began, or since the last `learn` with reset_num_timesteps.

        During a callback of `learn`, it is the number up to the step of that call.
        """
        step = None if self._learning is None else self._learning.step
        return self._steps_since_reset() if step is None else step

    def _steps_of_iteration(self) -> list[dict[str, Any]]:
        """Variables of each step of the newest iteration, for callbacks; [] if they are not kept."""
        return []

    def _steps_since_reset(self) -> int:
        return self.timesteps - self._first_timestep

    @property
    def n_envs(self) -> int:
        """Number of training environments of all workers together."""
        return max(self.config.num_rollout_workers, 1) * self.config.num_envs_per_worker

    @property
    def device(self) -> str:
        """Device of the learner: "cuda" or "cpu"."""
        return "cuda" if self.config.num_gpus else "cpu"

    @property
    def logger(self) -> Logger:
        """Logger that adds values to the next result of `learn`: `algo.logger.record("mine/value", 1.0)`."""
        if self._logger is None:
            self._logger = Logger(self.directory)
        return self._logger

    def get_env(self) -> Any:
        """Makes as many environments as training has, of the same kind, for a user's own loop.

        Workers have their own environments, so stepping these does not affect the training.

        Returns:
            a DummyVecEnv, the same object each time; None without an environment.

        Raises:
            ValueError: if the environments are vectors themselves, or have several agents.
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

    def _choose_directory(self, tb_log_name: str | None, starts_again: bool) -> None:
        """Sets the directory of tensorboard_log that a call of `learn` writes to."""
        if not self.config.tensorboard_groups or self.config.log_dir is None:
            if tb_log_name is not None:
                log_once(
                    "tb_log_name",
                    f"tb_log_name={tb_log_name!r} has no effect: it names a directory in tensorboard_log, which "
                    "the constructor was not given. Use PPO('MlpPolicy', env, tensorboard_log='runs').",
                    logging.WARNING,
                )
            return
        chosen = directory_of_learning(
            self.directory,
            tb_log_name or numbered_name(self.directory) or type(self).__name__,
            is_open=self._reporting.is_open,
            starts_again=starts_again,
            loaded_from=self._loaded_from,
            iteration=self.iteration,
        )
        if chosen != self.directory:
            self.directory = chosen
            self.config = self.config.copy(copy_frozen=False).reporting(log_dir=str(chosen)).freeze()

    def get_vec_normalize_env(self) -> None:
        """Returns None: filters of observations and rewards are parts of the algorithm, and are saved with it."""

    def get_parameters(self) -> dict[str, dict[str, np.ndarray]]:
        """{"policy": name -> copy of a parameter}; with several policies, their ids are the keys."""
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

        The state of the optimizer does not change; `restore` continues from a checkpoint with its whole state. With the
        path of a checkpoint, observation filters also get its statistics.

        Args:
            load_path_or_dict: the dict that `get_parameters` returned, or the path of a checkpoint.
            exact_match: whether exactly the parameters of each named network must be given; otherwise the known ones
                are set. Layers of a checkpoint's policy without a value, such as a distilled or cloned one, are used
                for the policy's layers, and a warning names unknown parameters of a checkpoint.
            device: without effect; a warning says so if it is given.

        Raises:
            ValueError: for an unknown policy, before any is changed; for parameters that the network does not have.
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
                parameters = _in_towers_of(own, parameters)
                if name in found and (unknown := sorted(parameters.keys() - own.keys())):
                    logger.warning(
                        "set_parameters(%r) leaves out %s, which the network of policy %r does not have: it has %s",
                        load_path_or_dict,
                        ", ".join(unknown),
                        name,
                        ", ".join(own),
                    )
                parameters = {**own, **{key: value for key, value in parameters.items() if key in own}}
            try:
                policy.set_weights(parameters)
            except ValueError as error:
                if exact_match and name in found:
                    error.add_note("exact_match=False sets those that are known, as of a policy without a value.")
                raise
            if name in found:
                policy.filter.set_state(found[name].filter.get_state())


def _in_towers_of(own: Mapping[str, np.ndarray], given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The parameters under the names of a network in which policy and value have separate layers.

    The layers of a network without a value are "shared" by its only head.

    Args:
        own: parameters of that network.
        given: parameters of the network without a value.
    """
    has_value = any(name.startswith("value.") for name in given)
    renamed = {name: name.replace("shared.", "policy.", 1) for name in given if name.startswith("shared.")}
    if has_value or not renamed or any(name in own for name in renamed):
        return dict(given)
    return {renamed.get(name, name): value for name, value in given.items()}
