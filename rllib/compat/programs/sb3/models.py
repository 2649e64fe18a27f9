"""Stable-Baselines3's models: this library's algorithms with its constructors, attributes and files.

A model samples from the vector environment that it is given, in this process, and `get_env()` is that object: a
program that reads it, changes it or saves it has the environments of the training. With the further argument
`num_rollout_workers=4` other processes act as well, in their own environments.
"""

import logging
import math
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium
import numpy as np
import torch

import rllib
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.compat.files import import_sb3
from rllib.compat.files.sb3.written import own_space
from rllib.compat.methods.stable_baselines3.checkpoints import (
    checkpoint_named,
    log_directory,
    saved_settings,
    saved_timesteps,
    spaces_alone,
    without_environment,
)
from rllib.compat.methods.stable_baselines3.construction import (
    Words,
    changes_from_words,
    shares_of_run,
    steps_of_unknown_length,
)
from rllib.compat.methods.stable_baselines3.recurrent import WITHOUT_MEMORY
from rllib.compat.names.stable_baselines3.algorithms import attribute_of, words_of_algorithm
from rllib.compat.names.stable_baselines3.words import name_of
from rllib.compat.programs.sb3.environments import as_trained_in
from rllib.compat.programs.sb3.extractors import without_own_extractor
from rllib.compat.programs.sb3.files import checkpoint_in, file_named, write_zip
from rllib.compat.programs.sb3.logger import EventsOfRun, HumanOutputFormat, Logger, TensorBoardOutputFormat
from rllib.compat.programs.sb3.policy import ModelPolicy
from rllib.compat.programs.sb3.replay import ReplayView
from rllib.compat.programs.sb3.tables import ON_POLICY, Tables, empty_buffer
from rllib.compat.programs.sb3.tools import FloatSchedule, as_train_freq
from rllib.compat.programs.sb3.user_code import user_code_is_loaded
from rllib.env.spaces.batches import rows_of
from rllib.env.vec_env.given_vector import InPlace, NotInFiles
from rllib.env.vec_env.vec_normalize import VecNormalize, unwrap_vec_normalize
from rllib.models.model_settings import MODEL_DEFAULTS
from rllib.sample_batch import DEFAULT_POLICY
from rllib.storage.checkpoint import read_checkpoint
from rllib.storage.local_path import local_path

logger = logging.getLogger(__name__)

# Words in the order of the constructors; further ones are given by name.
_ORDER = {
    "PPO": ("learning_rate", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "clip_range"),
    "A2C": ("learning_rate", "n_steps", "gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm"),
    "TRPO": ("learning_rate", "n_steps", "batch_size", "gamma"),
    "ARS": ("n_delta", "n_top", "learning_rate", "delta_std", "zero_policy", "alive_bonus_offset"),
    **dict.fromkeys(
        ("DQN", "QRDQN", "SAC", "TD3", "DDPG", "TQC", "CrossQ"),
        ("learning_rate", "buffer_size", "learning_starts", "batch_size"),
    ),
}  # fmt: skip
# Steps of a round between two looks of callbacks, of algorithms that learn after a few steps.
_STEPS_BETWEEN = 100
# Attributes that a model takes along when it is built again.
_KEPT = ("_place", "start_time", "_words_given", "_total_timesteps", "_num_timesteps_at_start")
# Keywords that are given to the constructor alone, or are attributes of the algorithm itself.
_SET_ONCE = frozenset(
    {"policy", "policy_kwargs", "seed", "verbose", "device", "tensorboard_log", "n_envs", "n_timesteps"}
)
# Keywords that are functions of the remaining share of a run as attributes.
_FUNCTIONS = ("clip_range", "clip_range_vf")
# Rounds, or episodes, from one table to the next.
_USUAL_INTERVALS = {"PPO": 1, "TRPO": 1, "ARS": 1, "A2C": 100}


@dataclass(frozen=True)
class ModelWords(Words):
    """Arguments of a model's constructor.

    Attributes:
        further: settings of this library that the words become besides.
    """

    further: Mapping[str, Any]

    def config(self, config: Any) -> Any:
        return self._with_further(super().config(config))

    def config_of_length(self, config: Any, total_timesteps: float, seed: int) -> Any:
        return self._with_further(super().config_of_length(config, total_timesteps, seed))

    def _with_further(self, config: Any) -> Any:
        if "model" in self.further:  # which replaces the network that the words become
            usual = {**MODEL_DEFAULTS, **type(config)().model}
            config.update_from_dict({"model": {key: usual[key] for key in config.model if key in usual}})
        return config.update_from_dict(dict(self.further))


class BaseAlgorithm:
    """What all models have, in addition to the methods of an algorithm of this library.

    Args:
        policy: name of a policy, such as "MlpPolicy", or a class of that name.
        env: an id, an environment or a vector environment.
        positional: words in Stable-Baselines3's order.
        words: its keywords.

    Attributes:
        words_of: name of the algorithm whose words these are.
        start_time: start time of the newest `learn` (nanoseconds).
    """

    words_of: ClassVar[str]
    policy_aliases: ClassVar[dict[str, str]] = {name: name for name in ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")}
    start_time: int = 0
    _total_timesteps: int = 0
    _num_timesteps_at_start: int = 0
    _place: InPlace | None = None
    _words_given: dict[str, Any] | None = None
    _masks: ClassVar[bool] = False

    def __init__(self, policy: Any = None, env: Any = None, *positional: Any, **words: Any):
        config = words.pop("config", policy)  # of this library's form
        if isinstance(config, AlgorithmConfig | dict) or (config is None and not words and not positional):
            super().__init__(config, env)
            self._note_place()
            return
        words |= dict(zip(_ORDER.get(self.words_of, ()), positional))
        if len(positional) > len(_ORDER.get(self.words_of, ())):
            raise TypeError(f"{type(self).__name__}: give the further arguments by their names")
        policy = policy if isinstance(policy, str) else policy and name_of(policy)
        policy = self._known_policy(policy)
        self.verbose = int(words.get("verbose", 0))
        self._words = self._words_of(policy, env, words)
        self._words_given = dict(words)
        config = self._words.config(self.get_default_config())
        super().__init__(config)
        self._note_place()

    def _known_policy(self, policy: str | None) -> str | None:
        return policy

    @classmethod
    def _words_of(cls, policy: str | None, env: Any, words: dict[str, Any]) -> ModelWords:
        """The words with what a model adds to them."""
        words, model = without_own_extractor(cls.words_of, policy or "", words)
        further: dict[str, Any] = {} if model is None else {"model": model}
        if cls.words_of not in ("PPO", "TRPO", "ARS"):
            further |= {"min_sample_timesteps_per_iteration": _STEPS_BETWEEN, "min_time_s_per_iteration": 0}
        window = words.get("stats_window_size", 100)
        if isinstance(env, InPlace):
            return ModelWords(policy, env, words, further)
        trained = None if env is None else as_trained_in(env)
        if trained is not None and cls.words_of != "ARS" and not words.get("num_rollout_workers"):
            trained = InPlace(trained, words.get("seed") is not None, cls._masks, window)
        elif cls._masks and trained is not None:
            further["action_mask_from"] = "method"
        return ModelWords(policy, trained, words, further)

    def _note_place(self) -> None:
        self._place = self.config.env if isinstance(self.config.env, InPlace) else None

    # ------------------------------------------------------------------ environments

    def get_env(self) -> Any:
        """The vector environment that is trained in; with rollout workers one like theirs. None without one."""
        return super().get_env() if self._place is None else self._place.venv

    @property
    def env(self) -> Any:
        """As `get_env`; another one is set as by `set_env`."""
        return self.get_env()

    @env.setter
    def env(self, env: Any) -> None:
        self.set_env(env)

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Trains in another environment from now on, with as many and with the same spaces.

        Args:
            env: in any form that the constructor takes.
            force_reset: without effect: episodes begin there in any case.

        Raises:
            ValueError: for other spaces or another number of environments.
        """
        venv = as_trained_in(env)
        if venv.num_envs != self.n_envs:
            raise ValueError(
                f"the model samples from {self.n_envs} environments, and the other one has {venv.num_envs}. Give as "
                f"many, or use {type(self).__name__}.load(path, env=env)."
            )
        if self._place is None:
            self._build_with_environment(venv)
            return
        for name in ("observation_space", "action_space"):
            own, other = getattr(self._place.venv, name), getattr(venv, name)
            if own != other:
                raise ValueError(f"the {name} of the model's environment is {own}, and the other one has {other}")
        self._place.venv = venv
        self._begin_episodes()

    def _build_with_environment(self, env: Any) -> None:
        """Builds the model again, with an environment; its state stays."""
        self._build_again(self._place_for(env, {}), {}, observation_space=None, action_space=None)

    def _build_again(self, place: Any, words: Mapping[str, Any], **settings: Any) -> None:
        """Builds the model again; its state and the rows of its replay stay.

        Args:
            place: the environment; None: the present one.
            words: keywords of the constructor that have other values.
            settings: further settings to change.
        """
        saved = {name: self.config[name] for name in self.config}
        steps = steps_of_unknown_length(self.timesteps)
        changes = changes_from_words(type(self).get_default_config(), place, "auto", dict(words), saved, steps)
        self._build_with({**settings, **changes})
        self._note_place()

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or "config" not in self.__dict__ or name not in self._words_to_set():
            super().__setattr__(name, value)
        elif self._learning is not None:
            raise AttributeError(
                f"{name} cannot be set while learn runs. Set model.{name} between two calls of learn, or give the "
                f"constructor a schedule where it takes one, {name}=lambda remaining: ..."
            )
        elif value != self._word(name) or shares_of_run({name: value}):
            words, given = self._words, {**(self._words_given or {}), name: value}
            others = {word: share for word, share in self._shares.items() if word != name}
            self._build_again(None, {name: value})
            self._words_given, self._shares = given, {**others, **shares_of_run({name: value})}
            self._words = None if words is None else replace(words, given={**words.given, name: value})

    @classmethod
    def _words_to_set(cls) -> frozenset[str]:
        """Keywords of the constructor that a program may set as attributes between two calls of `learn`."""
        return frozenset(words_of_algorithm(cls.words_of)) - _SET_ONCE

    def _begin_episodes(self) -> None:
        """Lets the environments begin episodes: a program may have stepped them in the meantime."""
        if self._place is not None and self.config.env is not None:
            self._restores += 1
            self.workers.set_state(self.workers.get_state(), self._restores)

    def get_vec_normalize_env(self) -> VecNormalize | None:
        """The VecNormalize around the environment; None without one."""
        return unwrap_vec_normalize(self.get_env())

    # ------------------------------------------------------------------ learning

    def learn(
        self,
        total_timesteps: float,
        callback: Any = None,
        log_interval: Any = "usual",
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        **further: Any,
    ) -> Self:
        """Trains, as `Algorithm.learn`; see there.

        Args:
            total_timesteps, callback, reset_num_timesteps, progress_bar: as there.
            log_interval: rounds from one table to the next, of algorithms with a replay episodes; None: no tables;
                "usual": 1, of A2C 100, and 4 episodes.
            tb_log_name: name of a directory in the constructor's tensorboard_log.
            further: use_masking=True of MaskablePPO.
        """
        if further.pop("use_masking", True) is not True or further:
            named = ", ".join(further) or "use_masking=False"
            raise ValueError(f"learn({named}) is not available: PPO learns without masks")
        if reset_num_timesteps or self._place is None:
            self._begin_episodes()
        if reset_num_timesteps and self._place is not None:
            self._place.episodes.clear()
            self._place.successes.clear()
        self.start_time = time.time_ns()
        self._num_timesteps_at_start = 0 if reset_num_timesteps else self.num_timesteps
        if isinstance(total_timesteps, int | float) and math.isfinite(total_timesteps):  # else learn refuses it
            self._total_timesteps = self._num_timesteps_at_start + int(total_timesteps)
        self._warn_of_ended_schedule()
        if not self.config.tensorboard_groups or self.config.log_dir is None:
            tb_log_name = None  # as there: without tensorboard_log there is no directory to name
        log_interval = _USUAL_INTERVALS.get(self.words_of, 4) if log_interval == "usual" else log_interval
        if self._place is not None:
            self._place.steps = [] if callback is not None else None
        self._open_outputs()
        given = [] if callback is None else callback if isinstance(callback, list | tuple) else [callback]
        try:
            super().learn(
                total_timesteps,
                [*given, *([] if log_interval is None else [Tables(log_interval)])],
                log_interval=None,  # this class has its own tables
                tb_log_name=tb_log_name,
                reset_num_timesteps=reset_num_timesteps,
                progress_bar=progress_bar,
            )
        finally:
            if self._place is not None:
                self._place.steps = None
        return self

    def _open_outputs(self) -> None:
        """Opens the outputs of a logger that no program has set."""
        outputs = self.logger.output_formats
        if self.verbose and not outputs:
            outputs.append(HumanOutputFormat(sys.stdout))
        if self.tensorboard_log and not any(isinstance(each, TensorBoardOutputFormat) for each in outputs):
            outputs.append(EventsOfRun(self))

    def _taken_along(self) -> dict[str, Any]:
        kept = {name: self.__dict__[name] for name in _KEPT if name in self.__dict__}
        return {**super()._taken_along(), **kept}

    def _steps_of_iteration(self) -> list[dict[str, Any]]:
        if self._place is None or self._place.steps is None:
            return []
        steps, self._place.steps = self._place.steps, []
        space, venv = self.action_space, self._place.venv
        is_box = isinstance(space, gymnasium.spaces.Box)
        for step in steps:
            actions = step["actions"]
            step["clipped_actions"] = np.clip(actions, space.low, space.high) if is_box else actions
            step["env"] = venv
        return steps

    def _warn_of_ended_schedule(self) -> None:
        """Warns where a further `learn` would change nothing, since the learning rate has come to 0."""
        steps = self.metrics.timesteps
        schedule = self.config.get_schedule("lr") if "lr" in self.config.settings else None
        if schedule is not None and schedule(steps) == 0 < schedule(0):
            logger.warning(
                "learning_rate has come to 0 after %s steps, and this learn would change nothing: schedules continue "
                "where the learn before has ended. Give the first learn all steps, or set model.learning_rate before "
                "this one, which begins there.",
                f"{steps:,}",
            )

    @property
    def steps_of_round(self) -> int:
        """Environment steps of a round of an algorithm that learns from whole rounds; 0 for others."""
        return self.config.train_batch_size if self.words_of in ON_POLICY else 0

    @property
    def logger(self) -> Logger:
        """Takes values by name; `set_logger` puts another one in its place."""
        if self._logger is None:
            self._logger = Logger(None if self.config.log_dir is None else str(self.directory), [])
        return self._logger

    def set_logger(self, logger: Logger) -> None:
        """Gives tables and recorded values to another logger, such as `configure("logs", ["csv"])` makes."""
        if not isinstance(logger, Logger):
            raise TypeError(
                f"logger={logger!r:.60} must be a Logger, as stable_baselines3.common.logger.configure makes it"
            )
        self._logger = logger

    # ------------------------------------------------------------------ attributes

    @property
    def policy(self) -> ModelPolicy:
        """The policy, by the methods of Stable-Baselines3's."""
        return ModelPolicy(self, super().policy)

    @property
    def device(self) -> torch.device:
        """Device of the learner."""
        return torch.device(super().device)

    @property
    def policy_class(self) -> type:
        """Class of the policy."""
        return ModelPolicy

    @property
    def ep_info_buffer(self) -> Any:
        """Return "r", length "l" and seconds "t" of the newest episodes (deque of dicts)."""
        if self._place is not None:
            return self._place.episodes
        window = self.config.metrics_num_episodes_for_smoothing
        buffer = empty_buffer(window)
        buffer.extend(
            {"r": float(each.episode_reward), "l": each.episode_length, "t": 0.0} for each in self._episodes()
        )
        return buffer

    def _episodes(self) -> Iterable[Any]:
        return ()

    @property
    def ep_success_buffer(self) -> Any:
        """Whether the newest episodes were successful, as infos say it (deque)."""
        return (
            empty_buffer(self.config.metrics_num_episodes_for_smoothing)
            if self._place is None
            else self._place.successes
        )

    @property
    def replay_buffer(self) -> ReplayView | None:
        """The replay, by the names of Stable-Baselines3's; None for an algorithm without one."""
        if not hasattr(type(self), "replays"):
            return None
        return ReplayView(self.replays[DEFAULT_POLICY], self._word("buffer_size"), self.n_envs, self.config)

    @property
    def action_noise(self) -> Any:
        """The noise that was given to the constructor; None without one."""
        return self._given_word("action_noise")

    @property
    def actor(self) -> Any:
        """The actor of SAC, TQC, CrossQ, TD3 and DDPG: it is called with observations, as `policy.actor`."""
        return self.policy.actor

    @property
    def n_updates(self) -> int:
        """Number of updates, as Stable-Baselines3 counts them: epochs of PPO, gradient steps of others."""
        if self.words_of == "PPO":
            return self.num_updates * int(self.config.num_sgd_iter)
        return self.num_updates

    @property
    def _n_updates(self) -> int:
        return self.n_updates

    @property
    def _current_progress_remaining(self) -> float:
        """Share of the newest `learn` that remains, from 1 to 0."""
        return 1.0 - self.num_timesteps / self._total_timesteps if self._total_timesteps else 1.0

    @property
    def _episode_num(self) -> int:
        """Number of episodes so far."""
        return self.metrics.episodes_total

    @property
    def _last_obs(self) -> Any:
        """Newest observations of the environments, [n_envs, ...]; None before there are any."""
        return None if self._place is None else self._place.last_observations

    @property
    def deviation(self) -> float | None:
        """Mean deviation of continuous actions, where it is a parameter of the policy; None elsewhere."""
        parameters = super().policy.parameters()
        log_std = parameters.get("policy.log_std", parameters.get("log_std"))
        return float(np.exp(log_std).mean()) if log_std is not None and self.words_of in ON_POLICY else None

    @property
    def exploration_rate(self) -> float:
        """Share of random actions of DQN."""
        return float(self._explored_by().get("epsilon", 0.0))

    @property
    def exploration_schedule(self) -> Callable[[float], float]:
        """Share of random actions of DQN by the remaining share of a run."""
        initial, final, share = (self._word(f"exploration_{name}") for name in ("initial_eps", "final_eps", "fraction"))
        return lambda remaining: (
            final if 1 - remaining > share else initial + (1 - remaining) * (final - initial) / share
        )

    @property
    def lr_schedule(self) -> Callable[[float], float]:
        """Learning rate by the remaining share of a run."""
        given = self.learning_rate
        return given if callable(given) else lambda remaining: float(given)

    @property
    def tensorboard_log(self) -> str | None:
        """Directory of the runs' directories, as it was given to the constructor."""
        return str(Path(self.directory).parent) if self.config.tensorboard_groups and self.config.log_dir else None

    @property
    def policy_kwargs(self) -> dict[str, Any]:
        """Keywords of the network, as they were given to the constructor."""
        return dict(self._given_word("policy_kwargs") or {})

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seeds the environments and Python's, numpy's and torch's global generators.

        The model's own generators keep the seed of the constructor.
        """
        if seed is not None:
            set_random_seed(seed)
            if self._place is not None:
                self._place.venv.seed(seed)

    def _given_word(self, word: str) -> Any:
        return None if self._words_given is None else self._words_given.get(word)

    def _word(self, word: str) -> Any:
        """The present value of a constructor's keyword."""
        value = self._given_word(word)
        if value is None:
            value = attribute_of(self.words_of, word, self.config)
        if word == "train_freq":
            return as_train_freq(value)
        if word in _FUNCTIONS and isinstance(value, list) and len(value) == 1:  # a schedule of one value
            value = value[0][1]
        is_function = word in _FUNCTIONS and (callable(value) or isinstance(value, float | int))
        return FloatSchedule(value) if is_function else value

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and "config" in self.__dict__ and name in words_of_algorithm(self.words_of):
            return self._word(name)
        return super().__getattr__(name)

    def train(self, gradient_steps: int | None = None, batch_size: int | None = None):
        """As `Algorithm.train`; updates alone, without samples, are refused."""
        if gradient_steps is not None or batch_size is not None:
            raise TypeError(
                "train(gradient_steps, batch_size) is not available: train() is one iteration, which samples and "
                "updates. Use algo.learn_on_batch(batch), or offline_data(input_=...) for recorded steps "
                "(docs/guide/offline.md)"
            )
        return super().train()

    # ------------------------------------------------------------------ acting

    def predict(self, observation, state=None, episode_start=None, deterministic=False, action_masks=None):
        """As `Algorithm.predict`; actions of several observations, and of one, are arrays.

        Those of TD3 and DDPG are without noise, whatever `deterministic` is, as in Stable-Baselines3.
        """
        deterministic = deterministic or self.words_of in ("TD3", "DDPG")
        actions, state = super().predict(observation, state, episode_start, deterministic, action_masks)
        if not isinstance(actions, list | tuple | dict):
            actions = np.asarray(actions)
        return actions, state

    # ------------------------------------------------------------------ files

    def set_parameters(self, load_path_or_dict: Any, exact_match: bool = True, device: Any = "auto") -> None:
        """As `Algorithm.set_parameters`, which reads all files that `load` reads.

        Args:
            load_path_or_dict: what `get_parameters` returned, a path as for `load`, or an open binary file.
            exact_match, device: as there.
        """
        given = load_path_or_dict
        if hasattr(given, "read") or (isinstance(given, str | os.PathLike) and file_named(given) is not None):
            with type(self).load(given) as other:
                given = other.get_parameters()
        super().set_parameters(given, exact_match, device)

    def save(
        self, path: Any = None, exclude: Iterable[str] | None = None, include: Iterable[str] | None = None
    ) -> Path | None:
        """Writes a zip: this library's checkpoint, and what Stable-Baselines3 reads where it has the model.

        Args:
            path: path of the file, to which .zip is added if it has no ending, or an open binary file; None: a
                checkpoint in a directory, as `Algorithm.save` writes it.
            exclude: attributes that Stable-Baselines3's part is to be without.
            include: attributes that it has again though they are excluded.
        """
        if path is None:
            return super().save()
        left_out = set(exclude or ()) - set(include or ())
        return write_zip(self, type(self).__name__, path, left_out)

    @classmethod
    def load(
        cls,
        path: Any,
        env: Any = None,
        device: str = "auto",
        custom_objects: Mapping[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **words: Any,
    ) -> Self:
        """A model from a file that `save` wrote, of this library or of Stable-Baselines3, or from a checkpoint.

        Nothing in a file of Stable-Baselines3 is unpickled, and optimizers are reset (docs/start/from_sb3.md).

        Args:
            path: path of the zip, with its ending or without, or of a directory; or an open binary file.
            env: in any form that the constructor takes; None: the model acts, until `set_env` or `load` gives one.
            device: "cuda": learn on a GPU; "cpu": without one; "auto": as saved.
            custom_objects: settings instead of those that were saved.
            print_system_info: print versions.
            force_reset: without effect: episodes begin in any case.
            words: keywords of the constructor to change.

        Raises:
            FileNotFoundError: if there is nothing.
            CheckpointError, DamagedFileError: (ValueErrors) if it is no such file.
        """
        if print_system_info:
            get_system_info()
        words = {**(custom_objects or {}), **words}
        file = path if hasattr(path, "read") else file_named(path)
        if file is None:
            if not local_path(path).exists() and not local_path(path).with_suffix("").exists():
                raise FileNotFoundError(f"there is no model at {path}, with the ending .zip or without")
            return cls._from_directory(local_path(path), env, device, words)
        with checkpoint_in(file) as checkpoint:
            if checkpoint is not None:
                return cls._from_directory(checkpoint, env, device, words)
            if hasattr(file, "read"):
                raise ValueError("an open file of Stable-Baselines3 is not read: give its path")
            return cls._from_foreign(Path(file), env, device, words)

    @classmethod
    def _from_directory(cls, path: Path, env: Any, device: str, words: dict[str, Any]) -> Self:
        place = cls._place_for(env, words)
        given = {**words, "load_user_code": True} if user_code_is_loaded(path) else words
        loaded = given.pop("load_user_code", False)
        model = cls._loaded(path, place, device, given, loaded)
        description = read_checkpoint(checkpoint_named(path), only=("algorithm.json",))["algorithm.json"]
        model.verbose = int(words.get("verbose", description.get("verbose", 0)))
        model._note_place()
        return model

    def get_state(self) -> dict[str, Any]:
        """As `Algorithm.get_state`, with the constructor's `verbose`."""
        state = super().get_state()
        state["algorithm.json"]["verbose"] = self.verbose
        return state

    @classmethod
    def _loaded(cls, path: Path, env: Any, device: str, words: dict[str, Any], load_user_code: bool) -> Self:
        path = checkpoint_named(path)
        config = cls.get_default_config() if hasattr(cls, "config_class") else AlgorithmConfig()
        saved = saved_settings(path)
        shares = shares_of_run(words)
        steps = steps_of_unknown_length(saved_timesteps(path)) if shares else None
        changes = changes_from_words(config, env, device, words, saved, steps)
        if env is None and isinstance(saved.get("env"), NotInFiles):
            changes |= spaces_alone(path)
        elif env is None:
            changes |= without_environment(path)
        before, place = log_directory(path)
        model = cls.from_checkpoint(path, {**place, **changes}, load_user_code=load_user_code)
        model._loaded_from, model._shares, model._words_given = before, shares, dict(shares) or None
        return model

    @classmethod
    def _place_for(cls, env: Any, words: Mapping[str, Any]) -> Any:
        if env is None:
            return None
        trained = as_trained_in(env)
        if getattr(cls, "words_of", "") == "ARS" or words.get("num_rollout_workers"):
            return trained
        return InPlace(trained, False, cls._masks)

    @classmethod
    def _from_foreign(cls, path: Path, env: Any, device: str, words: dict[str, Any]) -> Self:
        with tempfile.TemporaryDirectory(prefix="rllib-") as directory:
            place = Path(directory, "model")
            try:
                import_sb3(path, place, algorithm=cls)
            except ValueError:
                if env is None or place.exists():
                    raise
                given = cls._place_for(env, words)  # for spaces that the file does not say in words
                settings = given.settings() if isinstance(given, InPlace) else {}
                import_sb3(path, place, env=given, config=settings, algorithm=cls)
            return cls._from_directory(place, env, device, words)


def set_random_seed(seed: int, using_cuda: bool = False) -> None:
    """Seeds the global generators of Python, numpy and torch.

    Args:
        seed: as above.
        using_cuda: let CUDA choose operations that give equal results.
    """
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if using_cuda:
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False


def get_system_info(print_info: bool = True) -> tuple[dict[str, str], str]:
    """Versions of what a model depends on, by name and as a text."""
    versions = {
        "OS": platform.platform(),
        "Python": platform.python_version(),
        "rllib": rllib.__version__,
        "PyTorch": torch.__version__,
        "GPU Enabled": str(torch.cuda.is_available()),
        "Numpy": np.__version__,
        "Gymnasium": gymnasium.__version__,
    }
    text = "".join(f"- {name}: {value}\n" for name, value in versions.items())
    if print_info:
        print(text)
    return versions, text


class OnPolicyAlgorithm(BaseAlgorithm):
    """Models that learn from whole rounds."""


class OffPolicyAlgorithm(BaseAlgorithm):
    """Models with a replay."""


class PPO(OnPolicyAlgorithm, rllib.PPO):
    """PPO."""

    words_of = "PPO"


class A2C(OnPolicyAlgorithm, rllib.A2C):
    """A2C."""

    words_of = "A2C"


class TRPO(OnPolicyAlgorithm, rllib.TRPO):
    """TRPO of sb3-contrib."""

    words_of = "TRPO"


class MaskablePPO(PPO):
    """PPO whose environments say which actions are legal, by a method action_masks()."""

    _masks = True

    def _known_policy(self, policy: str | None) -> str | None:
        return policy and policy.removeprefix("Maskable")

    def predict(self, observation, state=None, episode_start=None, deterministic=False, action_masks=None):
        """As `Algorithm.predict`; without masks all actions are legal."""
        if action_masks is None:
            space = self.observation_space[self.config.action_mask_key]
            several = rows_of(own_space(self), observation)
            action_masks = np.ones(space.shape if several is None else (len(several), *space.shape), bool)
        return super().predict(observation, state, episode_start, deterministic, action_masks)


class RecurrentPPO(PPO):
    """PPO with a memory."""

    policy_aliases: ClassVar[dict[str, str]] = {name: name for name in WITHOUT_MEMORY}

    def _known_policy(self, policy: str | None) -> str | None:
        if policy is not None and policy not in WITHOUT_MEMORY:
            raise ValueError(
                f"policy={policy!r} has no memory. Give RecurrentPPO one of {', '.join(WITHOUT_MEMORY)}, or use PPO."
            )
        return policy


class DQN(OffPolicyAlgorithm, rllib.DQN):
    """DQN."""

    words_of = "DQN"

    @property
    def q_net(self) -> Any:
        """The network: called with observations [B, ...] it returns the values [B, A] of all actions."""
        return self.policy.q_net


class QRDQN(OffPolicyAlgorithm, rllib.DQN):
    """QR-DQN of sb3-contrib."""

    words_of = "QRDQN"


class SAC(OffPolicyAlgorithm, rllib.SAC):
    """SAC."""

    words_of = "SAC"


class TD3(OffPolicyAlgorithm, rllib.TD3):
    """TD3."""

    words_of = "TD3"


class DDPG(OffPolicyAlgorithm, rllib.DDPG):
    """DDPG."""

    words_of = "DDPG"


class TQC(OffPolicyAlgorithm, rllib.TQC):
    """TQC of sb3-contrib."""

    words_of = "TQC"


class CrossQ(OffPolicyAlgorithm, rllib.CrossQ):
    """CrossQ of sb3-contrib."""

    words_of = "CrossQ"


class ARS(BaseAlgorithm, rllib.ARS):
    """ARS of sb3-contrib."""

    words_of = "ARS"
