"""The settings of environments and of sampling from them: the sections environment and rollouts."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import numpy as np

from rllib.algorithms.base.ray_rllib.settings import connectors_problem
from rllib.config.config_object import ConfigObject, relation
from rllib.config.sections import Merged, NotYet, above, at_least, only_with, section
from rllib.config.setting_types import shortened
from rllib.env.factories.atari import is_atari
from rllib.env.factories.registry import resolve
from rllib.env.factories.wrapped import resolve_wrappers
from rllib.evaluation.postprocess.return_scale import ReturnScale
from rllib.sample_batch import Column

# Defaults that are no scalars; every config gets a copy.
_EMPTY: dict = {}
_NO_KEYS: list = []
# Settings that make connectors.
_CONNECTORS = ("env_to_module_connector", "module_to_env_connector")


class SamplingConfig(ConfigObject):
    """The sections environment and rollouts."""

    @section
    def environment(
        self,
        env: Annotated[Any, "id, class, function of the env_config, or registered name of the environment"] = None,
        *,
        env_config: Annotated[dict, "handed to the environment's constructor", Merged] = _EMPTY,
        env_wrappers: Annotated[
            Any,
            "wrappers around each environment, innermost first: gymnasium's or registered names, classes, {name: args}",
        ] = None,
        observation_space: Annotated[Any, "gymnasium space of observations; None: the environment's own"] = None,
        ignore_observation_keys: Annotated[
            list[str], "keys of a Dict observation that the policy does not get, such as a text"
        ] = _NO_KEYS,
        critic_observation_keys: Annotated[
            list[str], "keys of a Dict observation that the value reads and the policy does not; absent in deployment"
        ] = _NO_KEYS,
        action_space: Annotated[Any, "gymnasium space of actions; None: the environment's own"] = None,
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
            Literal["NoFilter", "MeanStdFilter"], "MeanStdFilter: observations are standardised by running statistics"
        ] = "NoFilter",
        observation_clip: Annotated[
            float | None,
            "bound of filtered observations, in standard deviations; None: unbounded",
            above(0),
            only_with("filters_observations", otherwise="observation_filter='NoFilter'"),
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

    @relation("env", "observation_space", "action_space")
    def _check_env(self):
        if self.env is None and not self.is_offline and None in (self.observation_space, self.action_space):
            return (
                'there is no environment. Use .environment("CartPole-v1") or .build(env="CartPole-v1"), or give both '
                "observation_space and action_space to act and learn without one."
            )

    @relation("critic_observation_keys", "centralized_critic")
    def _check_critic_keys(self):
        if not self.critic_observation_keys:
            return None
        given = f"critic_observation_keys={self.critic_observation_keys}"
        if not self.fits_a_value:
            return (
                f"{given} is for algorithms with a value beside the policy, such as PPO and IMPALA, and there is "
                "none here. Leave it out, or ignore the keys: .environment(ignore_observation_keys=[...])."
            )
        if self.centralized_critic:
            return (
                f"{given} and centralized_critic={self.centralized_critic!r} both say what the value reads beyond the "
                "policy's observation. Use one of them."
            )

    @relation("env_wrappers", "gym_env_vectorize_mode")
    def _check_env_wrappers(self):
        try:
            wrappers = resolve_wrappers(self.env_wrappers)
        except (ValueError, TypeError) as error:
            return str(error)
        except ModuleNotFoundError:  # the settings are right; build() says what to install
            return None
        if wrappers and self.gym_env_vectorize_mode == "vector_entry_point":
            return (
                f"env_wrappers={shortened(self.env_wrappers)} go around single environments, but with gym_env_vectorize"
                '_mode="vector_entry_point" there are none. Use .rollouts(gym_env_vectorize_mode="sync").'
            )

    @relation("gym_env_vectorize_mode", "batch_mode")
    def _check_vectorize_mode(self):
        if self.gym_env_vectorize_mode == "vector_entry_point" and self.batch_mode == "complete_episodes":
            return (
                f"gym_env_vectorize_mode={self.gym_env_vectorize_mode!r} steps all environments of a worker at once, "
                'but batch_mode="complete_episodes" lets some go on alone. '
                'Use .rollouts(gym_env_vectorize_mode="sync"), or batch_mode="truncate_episodes".'
            )

    @relation("sub_environment_timeout_s", "gym_env_vectorize_mode")
    def _check_sub_environment_timeout(self):
        if self.sub_environment_timeout_s is not None and self.gym_env_vectorize_mode != "async":
            return (
                f"sub_environment_timeout_s={self.sub_environment_timeout_s:g} bounds the calls of environments that "
                f"can be ended from outside, but with gym_env_vectorize_mode={self.gym_env_vectorize_mode!r} they run "
                'in their worker\'s process. Use .rollouts(gym_env_vectorize_mode="async").'
            )

    @relation("env_to_module_connector", "module_to_env_connector")
    def _check_connectors(self):
        problems = (connectors_problem(name, self[name]) for name in _CONNECTORS)
        return next(filter(None, problems), None)

    @relation("env_task_fn", "env")
    def _check_task_fn(self):
        if self.env_task_fn is not None and self.env is None:
            return "env_task_fn sets the tasks of environments, but env=None. Give .environment(env), or leave it out."

    @relation("env_config")
    def _check_env_config(self):
        odd = [key for key in self.env_config if not isinstance(key, str)]
        if odd:
            return (
                f"env_config must have strings as keys, but has {odd[0]!r}. Use .environment(env_config={{'size': 5}})."
            )

    @relation("info_columns")
    def _check_info_columns(self):
        try:
            self.get_info_columns()
        except (TypeError, ValueError) as error:
            return (
                f"info_columns={self.info_columns!r:.80} must give each key's shape (default []), dtype (float32) and "
                f"whether it is known before_action (False): {error}. "
                "Use .environment(info_columns={'cost': {}, 'goal': {'shape': [3], 'dtype': 'int64'}})."
            )

    @relation("action_mask_key", "action_mask_from")
    def _check_mask(self):
        if self.action_mask_key is None and self.action_mask_from != "observation":
            return (
                f"action_mask_from={self.action_mask_from!r} needs a name for the mask, but action_mask_key=None. "
                'Use .environment(action_mask_key="action_mask").'
            )

    @property
    def needs_goals(self) -> bool:
        """Whether the environments have to be ones with goals (env/spaces/goals.py)."""
        return False

    @property
    def is_atari(self) -> bool:
        """Whether the environment is a game of the Arcade Learning Environment, by an id of gymnasium's registry."""
        return self.env is not None and is_atari(resolve(self.env))

    def get_info_columns(self) -> tuple[Column, ...]:
        """The columns that `info_columns` describes.

        Raises:
            TypeError, ValueError: if one of them is no column.
        """
        columns = [Column(name, **given) for name, given in self.info_columns.items()]
        return tuple(replace(each, shape=tuple(each.shape), dtype=np.dtype(each.dtype).name) for each in columns)

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
