"""The settings of environments and of sampling from them: the sections environment and rollouts."""

import contextlib
import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import numpy as np

from rllib.compat.methods.ray_rllib.settings import connectors_problem
from rllib.config.config_object import ConfigObject, relation
from rllib.config.conflicts import DEFAULT, Mistake, Remedy, asks, conflict, needs
from rllib.config.sections import (
    Checked,
    Keys,
    Merged,
    NotYet,
    OfPolicy,
    Translated,
    above,
    at_least,
    only_with,
    section,
)
from rllib.env.disturbances.settings import OF_OBSERVATIONS, OF_STEPS, DisturbanceSettings, without
from rllib.env.factories.atari import is_atari
from rllib.env.factories.registry import resolve
from rllib.env.factories.simulators import simulated
from rllib.env.factories.wrapped import resolve_wrappers
from rllib.env.spaces.notation import space_from_text
from rllib.evaluation.postprocess.return_scale import ReturnScale
from rllib.sample_batch import Column

# Defaults that are no scalars; every config gets a copy.
_EMPTY: dict = {}
_NO_KEYS: list = []
# Settings that make connectors.
_CONNECTORS = ("env_to_module_connector", "module_to_env_connector")


def _space(given: Any) -> Any:
    """A space whose text is given, as on a command line or in a file; anything else, and other texts, as they are."""
    with contextlib.suppress(ValueError):
        return space_from_text(given) if isinstance(given, str) else given
    return given


def _is_no_text(given: Any) -> bool:
    """Whether this is no text; raises ValueError for one, which is no space as `_space` has left it."""
    return not (isinstance(given, str) and space_from_text(given))


def _asks_for_some(given: dict, keys: Iterable[str]) -> bool:
    return any(asks(given.get(key)) for key in keys)


_SPACE = Translated(_space), Checked(_is_no_text)


class SamplingConfig(ConfigObject):
    """The sections environment and rollouts."""

    @section
    def environment(
        self,
        env: Annotated[Any, "id, class, function of the env_config, or registered name of the environment"] = None,
        *,
        env_config: Annotated[dict, "handed to the environment's constructor", Merged] = _EMPTY,
        simulator: Annotated[
            Literal["envpool"] | None, "suite that simulates an id of gymnasium, where it has it; None: its own package"
        ] = None,
        env_wrappers: Annotated[
            Any,
            "wrappers around each environment, innermost first: gymnasium's or registered names, classes, {name: args}",
        ] = None,
        observation_space: Annotated[
            Any, "gymnasium space of observations, or its text, 'Discrete(2)'; None: the environment's own", *_SPACE
        ] = None,
        ignore_observation_keys: Annotated[
            list[str], "keys of a Dict observation that the policy does not get, such as a text"
        ] = _NO_KEYS,
        critic_observation_keys: Annotated[
            list[str], "keys of a Dict observation that the value reads and the policy does not; absent in deployment"
        ] = _NO_KEYS,
        action_space: Annotated[
            Any, "gymnasium space of actions, or its text, 'Box(-1, 1, (2,))'; None: the environment's own", *_SPACE
        ] = None,
        action_mask_key: Annotated[
            str | None, "key of the mask of legal actions, one number a choice, in Dict observations; None: no masks"
        ] = "action_mask",
        action_mask_from: Annotated[
            Literal["observation", "info", "method"],
            "where the environment gives its mask: in the observation, in the info, or by its method action_masks()",
        ] = "observation",
        clip_actions: Annotated[bool, "clip actions to the bounds of a Box action space"] = False,
        normalize_actions: Annotated[bool, "stretch actions from [-1, 1] to the bounds of a Box action space"] = True,
        clip_rewards: Annotated[
            bool | float | None,
            "True: learn from the rewards' signs; a number: clip them to +- it; None: signs in Atari games alone",
            at_least(0),
        ] = None,
        normalize_returns: Annotated[
            bool, "learn from rewards divided by the standard deviation of their discounted returns"
        ] = False,
        normalized_reward_clip: Annotated[
            float | None,
            "with normalize_returns: clip the divided rewards to +- it; None: leave them",
            above(0),
            only_with("normalize_returns"),
        ] = 10.0,
        time_limit_ends_episode: Annotated[
            bool, "learn from truncated episodes as from terminated ones, without the value of what would have followed"
        ] = False,
        info_columns: Annotated[
            dict, "keys of the environment's info that batches get as columns: name -> {shape, dtype, before_action}"
        ] = _EMPTY,
        env_task_fn: Annotated[
            Callable | None,
            "function of (result, environment, EnvContext) that returns the environment's next task, called for each "
            "environment after every iteration (docs/guide/environments.md)",
        ] = None,
        disturbances: Annotated[
            dict,
            "noise, delays and drawn parameters of the environment in training, for policies that are to act elsewhere "
            "(docs/guide/sim_to_real.md)",
            Merged,
            Keys(DisturbanceSettings),
        ] = _EMPTY,
        disable_env_checking: Annotated[bool, "do not step an environment here before the workers start"] = False,
        render_env: Annotated[bool, "show the first environment of each worker", NotYet()] = False,
    ) -> Self:
        """The environment, and how observations, actions and rewards pass between it and the policy."""

    @section
    def rollouts(
        self,
        *,
        num_rollout_workers: Annotated[int, "processes that sample; 0: this one does", at_least(0)] = 0,
        num_envs_per_worker: Annotated[int, "environments that each of them steps in lockstep", at_least(1)] = 1,
        rollout_fragment_length: Annotated[
            int | Literal["auto"],
            'steps of each environment per sample; "auto": train_batch_size, divided',
            at_least(1),
        ] = 200,
        gym_env_vectorize_mode: Annotated[
            Literal["sync", "async", "vector_entry_point"],
            "a worker's environments: a loop over them, a process for each, or the registered id's own vector version",
        ] = "sync",
        tensor_rollouts: Annotated[
            bool | None,
            "rollouts stay on the device of a vector environment of torch tensors; None: if it is one; False: arrays",
        ] = None,
        sub_environment_timeout_s: Annotated[
            float | None,
            "bound of one step() or reset() of an environment in a separate process (seconds); None: unbounded",
            above(0),
        ] = None,
        batch_mode: Annotated[
            Literal["truncate_episodes", "complete_episodes"], "cut episodes at the fragment's end, or finish them"
        ] = "truncate_episodes",
        observation_filter: Annotated[
            Literal["NoFilter", "MeanStdFilter"],
            "MeanStdFilter: observations are standardised by running statistics",
            OfPolicy,
        ] = "NoFilter",
        observation_clip: Annotated[
            float | None,
            "bound of filtered observations, in standard deviations; None: unbounded",
            above(0),
            only_with("filters_observations", otherwise="observation_filter='NoFilter'"),
            OfPolicy,
        ] = 10.0,
        env_to_module_connector: Annotated[
            Any, "function (env, spaces, device) that makes connectors of observations (rllib.core); None: none"
        ] = None,
        module_to_env_connector: Annotated[
            Any, "the same for actions on their way to the environment; None: none"
        ] = None,
        preprocessor_pref: Annotated[
            Literal["deepmind", "rllib"] | None, 'Atari games as DeepMind\'s agents see them; "rllib", None: unchanged'
        ] = "deepmind",
        sample_timeout_s: Annotated[float, "silence after which a worker is reported (seconds)", above(0)] = 60.0,
    ) -> Self:
        """Sampling: workers, environments, fragments."""

    conflicts = (
        conflict(
            "critic_observation_keys",
            when=lambda config: config.critic_observation_keys and not config.fits_a_value,
            why="this algorithm has no value function, such as PPO's and IMPALA's, to read them",
            remedies=[
                {
                    "critic_observation_keys": DEFAULT,
                    "ignore_observation_keys": lambda config: sorted(
                        {*config.ignore_observation_keys, *config.critic_observation_keys}
                    ),
                },
                {"critic_observation_keys": DEFAULT},
            ],
        ),
        conflict(
            "critic_observation_keys",
            "centralized_critic",
            why="both say what the value reads beyond the policy's observation",
        ),
        *(
            conflict(
                "simulator",
                ("gym_env_vectorize_mode", mode),
                why="it steps all environments of a worker at once by itself",
                remedies=[{"gym_env_vectorize_mode": "sync"}, {"simulator": None}],
            )
            for mode in ("async", "vector_entry_point")
        ),
        conflict(
            "simulator",
            "env_wrappers",
            why="wrappers go around single environments, and there are none",
            remedies=[{"env_wrappers": None}, {"simulator": None}],
        ),
        conflict(
            "env_wrappers",
            ("gym_env_vectorize_mode", "vector_entry_point"),
            why="wrappers go around single environments, and there are none",
            remedies=[{"gym_env_vectorize_mode": "sync"}, {"env_wrappers": None}],
        ),
        conflict(
            "disturbances",
            ("gym_env_vectorize_mode", "vector_entry_point"),
            why="disturbances go around single environments, and there are none",
            remedies=[{"gym_env_vectorize_mode": "sync"}, {"disturbances": DEFAULT}],
        ),
        conflict(
            "disturbances",
            "action_mask_from",
            when=lambda config: (
                config.action_mask_from != "observation" and _asks_for_some(config.disturbances, OF_STEPS)
            ),
            why="a late action may no longer be legal",
            remedies=[lambda config: without(config.disturbances, OF_STEPS)],
        ),
        conflict(
            "disturbances",
            "replay_buffer_config",
            when=lambda config: config.needs_goals and _asks_for_some(config.disturbances, OF_OBSERVATIONS),
            why="rewards of further goals are computed from the goals in observations",
            remedies=[lambda config: without(config.disturbances, OF_OBSERVATIONS)],
        ),
        conflict(
            "disturbances",
            "input_",
            when=lambda config: config.disturbances and config.is_offline,
            why="they disturb steps while they are sampled, but these are recorded",
            remedies=[{"disturbances": DEFAULT}],
            note="evaluation_config={'disturbances': {...}} disturbs evaluation.",
        ),
        needs(
            "disturbances",
            "env",
            why="they go around the environments of training",
            remedies=[{"disturbances": DEFAULT}],
            examples=[{"env": "ENV"}],
        ),
        conflict(
            ("gym_env_vectorize_mode", "vector_entry_point"),
            ("batch_mode", "complete_episodes"),
            why="all environments of a worker are stepped at once, and none of them continues alone",
            remedies=[{"gym_env_vectorize_mode": "sync"}, {"batch_mode": "truncate_episodes"}],
        ),
        needs(
            "sub_environment_timeout_s",
            ("gym_env_vectorize_mode", "async"),
            why="a call can be ended from outside where the environment runs in a separate process",
        ),
        needs(
            "env_task_fn",
            "env",
            why="it sets the tasks of environments",
            remedies=[{"env_task_fn": None}],
            examples=[{"env": "ENV"}],
        ),
        conflict(
            ("action_mask_key", None),
            "action_mask_from",
            when=lambda config: config.action_mask_key is None and config.action_mask_from != "observation",
            why="the mask needs a name",
            remedies=[{"action_mask_key": DEFAULT}, {"action_mask_from": DEFAULT}],
        ),
    )

    @relation("env", "observation_space", "action_space")
    def _check_env(self) -> Mistake | None:
        """There is an environment, or both spaces, unless all samples are recorded."""
        if self.env is not None or self.is_offline or None not in (self.observation_space, self.action_space):
            return None
        return Mistake(
            "there is no environment.",
            ("env", "observation_space", "action_space"),
            examples=({"env": "CartPole-v1"},),
            note=(
                'Or name it in .build(env="CartPole-v1"); or give both observation_space and action_space to act and '
                "learn without one."
            ),
        )

    @relation("env", "simulator")
    def _check_simulator(self) -> Mistake | None:
        """`simulator` simulates an id of gymnasium."""
        try:
            if self.env is not None and self.simulator is not None:
                simulated(resolve(self.env), self.simulator)
        except (ValueError, TypeError) as error:
            return Mistake(str(error), ("env", "simulator"), ({"simulator": None},), advice=None)
        return None

    @relation("env_wrappers")
    def _check_env_wrappers(self) -> Mistake | None:
        """`env_wrappers` are classes or names of wrappers."""
        try:
            resolve_wrappers(self.env_wrappers)
        except (ValueError, TypeError) as error:
            return Mistake(str(error), ("env_wrappers",), ({"env_wrappers": None},), advice=None)
        except ModuleNotFoundError:  # the settings are right; build() says what to install
            pass
        return None

    @relation("ignore_observation_keys", "critic_observation_keys", "action_mask_key")
    def _check_mask_is_kept(self) -> Mistake | None:
        """The policy gets the mask of legal actions, unless `action_mask_key` is None."""
        for name in ("ignore_observation_keys", "critic_observation_keys"):
            if self.action_mask_from == "observation" and self.action_mask_key in self[name]:
                others = [key for key in self[name] if key != self.action_mask_key]
                return Mistake(
                    f"{name}={self[name]} takes the mask of legal actions, {self.action_mask_key!r}, from the policy, "
                    "which then draws illegal actions.",
                    (name, "action_mask_key"),
                    remedies=({name: others}, {"action_mask_key": None}),
                )
        return None

    @relation("env_to_module_connector", "module_to_env_connector")
    def _check_connectors(self) -> Mistake | None:
        """Connectors are given as a function that makes them."""
        for name in _CONNECTORS:
            if problem := connectors_problem(name, self[name]):
                return Mistake(problem, (name,), ({name: None},), advice=None)
        return None

    @relation("env_config")
    def _check_env_config(self) -> Mistake | None:
        """The keys of `env_config` are strings."""
        odd = [key for key in self.env_config if not isinstance(key, str)]
        if not odd:
            return None
        problem = f"env_config must have strings as keys, but has {odd[0]!r}."
        return Mistake(problem, ("env_config",), ({"env_config": {}},), examples=({"env_config": {"size": 5}},))

    @relation("info_columns")
    def _check_info_columns(self) -> Mistake | None:
        """Each of `info_columns` has a shape, a dtype, and whether it is known before the action."""
        try:
            self.get_info_columns()
        except (TypeError, ValueError) as error:
            return Mistake(
                f"info_columns={self.info_columns!r:.80} must give each key's shape (default []), dtype (float32) and "
                f"whether it is known before_action (False): {str(error).removesuffix('.')}.",
                ("info_columns",),
                ({"info_columns": {}},),
                examples=({"info_columns": {"cost": {}, "goal": {"shape": [3], "dtype": "int64"}}},),
            )
        return None

    @property
    def needs_goals(self) -> bool:
        """Whether the environments have to be ones with goals (env/spaces/goals.py)."""
        return False

    @property
    def is_atari(self) -> bool:
        """Whether the environment is a game of the Arcade Learning Environment, by an id of gymnasium's registry."""
        return self.env is not None and self.simulator is None and is_atari(resolve(self.env))

    def get_info_columns(self) -> tuple[Column, ...]:
        """The columns that `info_columns` describes.

        Raises:
            TypeError, ValueError: if one of them is no column.
        """
        columns = [Column(name, **given) for name, given in self.info_columns.items()]
        return tuple(replace(each, shape=tuple(each.shape), dtype=np.dtype(each.dtype).name) for each in columns)

    def without_info_column(self, name: str) -> Remedy:
        """Settings with which a column of infos is no longer read."""
        others = {column: of for column, of in self.info_columns.items() if column != name}
        return {"info_columns": others} if name in self.info_columns else {}

    @property
    def filters_observations(self) -> bool:
        """Whether observations are normalised, by what is sampled or by recorded data."""
        return self.observation_filter != "NoFilter" or self.normalizes_by_data

    @property
    def keys_of_value(self) -> list[str]:
        """Keys of observations, as policies get them, that the value reads and the policy does not."""
        return ["state"] if self.centralized_critic else self.critic_observation_keys

    @property
    def make_return_scale(self) -> Callable[..., ReturnScale] | None:
        """Makes what counts the discounted returns of a number of environments, `num_envs`; None: nothing does."""
        if not self.normalize_returns:
            return None
        return functools.partial(ReturnScale, self.gamma, self.normalized_reward_clip)
