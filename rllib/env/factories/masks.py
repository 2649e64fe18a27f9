"""Adds action masks to observations: {"observations": ..., "action_mask": ...}.

Everything that a policy reads is in the stored row of the observation, so that fragments, replays, evaluations and the
final observation of an episode carry a mask without knowing about it. Environments keep it in the info or in a method.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, MultiBinary
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from rllib.config.conflicts import Unfit
from rllib.env.factories.adapter import Adapter, StepInputs
from rllib.env.streams.legacy import LegacyEnvironment
from rllib.env.streams.tensors_as_arrays import AsArrays, arrays_of
from rllib.env.streams.vector import autoreset_mode, entry
from rllib.errors import NoActionError
from rllib.models.distributions.choose import distribution_for
from rllib.models.observations.masks import num_choices

OBSERVATIONS = "observations"
# The method that gives the mask; sb3-contrib's environments have it.
METHOD = "action_masks"


@dataclass(frozen=True)
class ActionMask(Adapter):
    """Observations with a mask of the legal actions.

    Attributes:
        mask_from: "info", the mask is in every info dict, or "method", `action_masks()` of the environment returns it.
        mask_key: key of the mask in the info, and in the new observation.
    """

    mask_from: str
    mask_key: str

    json_name = "augmentation"

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Self | None:
        mask_from = config.get("action_mask_from", "observation")
        return None if mask_from == "observation" else cls(mask_from, config["action_mask_key"])

    @property
    def setting(self) -> str:
        return f"action_mask_from={self.mask_from!r}"

    def remedy(self, config):
        return {"action_mask_from": "observation"}

    def space(self, observation_space, action_space) -> Dict:
        """The space of the new observations.

        Raises:
            ValueError: if the actions have no choices that could be masked.
        """
        count = num_choices(distribution_for(action_space))
        if not count:
            raise ValueError(
                f"{self.setting} is for actions that are choices, but the action space is "
                f"{action_space}. Leave it out of .environment()."
            )
        return Dict({OBSERVATIONS: observation_space, self.mask_key: MultiBinary(count)})

    def own_space(self, space):
        return space[OBSERVATIONS]

    def wrapped(self, env) -> gymnasium.Env | VectorEnv:
        return _MaskedVector(env, self) if isinstance(env, VectorEnv) else _MaskedEnv(env, self)

    def taken_apart(self, observation, action_mask):
        if isinstance(observation, Mapping) and observation.keys() == {OBSERVATIONS, self.mask_key}:
            return observation[OBSERVATIONS], observation[self.mask_key]
        return observation, action_mask

    def mask_in(self, info, where):
        if self.mask_from != "info":
            raise Unfit(
                f"{self.setting} is for environments with one agent.",
                "Where several act, use action_mask_from='info', or a Dict observation with the key 'action_mask'.",
                {"action_mask_from": "info" if self.mask_key in info else "observation"},
            )
        if self.mask_key not in info:
            raise self.no_mask(where, info)
        return info[self.mask_key]

    def row(self, observation, inputs: StepInputs):
        return self.joined(observation, inputs.action_mask)

    def joined(self, observation, action_mask) -> dict:
        """The new observation, of one and its mask; one that has its mask already stays as it is.

        Raises:
            NoActionError: if there is no mask.
        """
        observation, action_mask = self.taken_apart(observation, action_mask)
        if action_mask is None:
            raise NoActionError(
                "no action can be computed: this policy was trained with masks in addition to observations, and needs "
                "action_mask with each.",
                f"Give action_mask=info[{self.mask_key!r}], or what env.{METHOD}() returns.",
            )
        return self.added_to(observation, np.asarray(action_mask))

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    def added_to(self, observation, action_mask) -> dict:
        """The new observation."""
        return {OBSERVATIONS: observation, self.mask_key: action_mask}

    def no_mask(self, where: str, info: Mapping) -> ValueError:
        """The error for an info without a mask."""
        return ValueError(
            f"action_mask_from='info' needs a mask in every info, but the info of {where} has {sorted(info)} and no "
            f"{self.mask_key!r}. Use .environment(action_mask_key=...) for a mask of another name."
        )


class _MaskedEnv(gymnasium.Wrapper):
    """One environment with the new observations."""

    def __init__(self, env: gymnasium.Env, adapter: ActionMask):
        super().__init__(LegacyEnvironment(env))  # the old API is recognized by its results alone
        self._adapter = adapter
        self.observation_space = adapter.space(env.observation_space, env.action_space)
        self._masks = None if adapter.mask_from == "info" else _method_of(env)

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        return self._with_mask(observation, info, "reset()"), info

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._with_mask(observation, info, "step()"), reward, terminated, truncated, info

    def _with_mask(self, observation, info: Mapping, where: str) -> dict:
        key = self._adapter.mask_key
        if self._masks is None and key not in info:
            raise self._adapter.no_mask(where, info)
        return self._adapter.added_to(observation, info[key] if self._masks is None else self._masks())


class _MaskedVector(VectorWrapper):
    """A VectorEnv with the new observations, as arrays; gymnasium's wrappers support only some autoreset modes."""

    def __init__(self, env: VectorEnv, adapter: ActionMask):
        super().__init__(AsArrays(env, autoreset_mode(env)))
        self._adapter = adapter
        self.single_observation_space = adapter.space(env.single_observation_space, env.single_action_space)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._masks = None if adapter.mask_from == "info" else _method_of(env)
        self._same_step = autoreset_mode(env) is AutoresetMode.SAME_STEP
        if self._same_step and self._masks:
            raise ValueError(
                "action_mask_from='method' does not get the masks of final observations where a vector environment "
                "resets within the step (AutoresetMode.SAME_STEP). Use the mode NEXT_STEP, or masks in the info."
            )
        # The masks of all environments: a reset of some returns the infos of these alone.
        self._newest = np.ones((env.num_envs, self.single_observation_space[adapter.mask_key].n), np.int8)

    def reset(self, *, seed=None, options=None):
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._with_mask(observations, infos, "reset()"), infos

    def step(self, actions):
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        if self._same_step and np.any(infos.get("_final_obs")):
            infos = {**infos, "final_obs": self._finals(infos)}
        return self._with_mask(observations, infos, "step()"), rewards, terminated, truncated, infos

    def _with_mask(self, observations, infos: Mapping, where: str) -> dict:
        key = self._adapter.mask_key
        if self._masks is not None:
            self._newest = np.array(arrays_of(self._masks()), np.int8)
        elif key not in infos:
            raise self._adapter.no_mask(where, infos)
        else:
            given = infos.get(f"_{key}", np.ones(self.num_envs, bool))
            self._newest[given] = np.stack(list(infos[key]))[given]
        return self._adapter.added_to(observations, self._newest.copy())

    def _finals(self, infos: Mapping) -> np.ndarray:
        """The final observations with their masks; None where no episode ended."""
        key = self._adapter.mask_key
        if key not in infos.get("final_info", {}):
            raise self._adapter.no_mask("the final step()", infos.get("final_info", {}))
        finals = np.full(self.num_envs, None, object)
        for index in np.flatnonzero(infos["_final_obs"]):
            finals[index] = self._adapter.added_to(entry(infos["final_obs"], index), infos["final_info"][key][index])
        return finals


def _method_of(env) -> Callable[[], np.ndarray]:
    """Finds the method that returns the newest mask of an environment, or the masks of a vector environment."""
    if isinstance(env, gymnasium.Env) and env.has_wrapper_attr(METHOD):
        return env.get_wrapper_attr(METHOD)
    if callable(found := getattr(env.unwrapped, METHOD, None)):
        return found
    if callable(call := getattr(env.unwrapped, "call", None)):
        return lambda: np.stack(call(METHOD))
    raise ValueError(
        f"action_mask_from='method' needs an environment with a method {METHOD}(), but {type(env.unwrapped).__name__} "
        "has none. Masks in the info are found by .environment(action_mask_from='info')."
    )
