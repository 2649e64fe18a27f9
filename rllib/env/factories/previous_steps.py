"""Adds the last action and its reward to observations, as policies with a memory may want them.

They are parts of the observation, {"observations": ..., "prev_actions": ..., "prev_rewards": ...}, so that all that
carries observations carries them: fragments, final observations, replays, filters and evaluations. A Dict gets two more
keys. Both are zero in the first observation of an episode.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space, iterate

from rllib.env.factories.adapter import ActionRow, Adapter, StepInputs
from rllib.env.streams.rewards import FLOAT32_MAX
from rllib.env.streams.tensors_as_arrays import AsArrays
from rllib.env.streams.vector import autoreset_mode, entry
from rllib.errors import NoActionError
from rllib.models.model_settings import PREVIOUS_STEP, ModelSettings

OBSERVATIONS, ACTIONS, REWARDS = "observations", "prev_actions", "prev_rewards"
# For messages.
SETTINGS = ", ".join(PREVIOUS_STEP)


@dataclass(frozen=True)
class PreviousStep(Adapter):
    """Observations that contain parts of the previous step.

    Attributes:
        action: whether they contain the action: choices one-hot, numbers between finite bounds as -1 ... 1.
        reward: whether they contain the reward, as the environment gave it.
    """

    action: bool = False
    reward: bool = False

    json_name = "told"

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Self | None:
        model = ModelSettings(config["model"])
        action = model.lstm_use_prev_action or bool(model.attention_use_n_prev_actions)
        reward = model.lstm_use_prev_reward or bool(model.attention_use_n_prev_rewards)
        return cls(action, reward) if action or reward else None

    @property
    def setting(self) -> str:
        return f"reading the previous step ({SETTINGS})"

    def remedy(self, config):
        return config.with_defaults(*PREVIOUS_STEP)

    def space(self, observation_space: spaces.Space, action_space: spaces.Space) -> spaces.Dict:
        """The space of the new observations.

        Raises:
            ValueError: if the observation has such keys already.
        """
        added = {}
        if self.action:
            added[ACTIONS] = spaces.Box(-np.inf, np.inf, (spaces.flatdim(action_space),), np.float32)
        if self.reward:
            added[REWARDS] = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        if not isinstance(observation_space, spaces.Dict):
            return spaces.Dict({OBSERVATIONS: observation_space, **added})
        if taken := added.keys() & observation_space.keys():
            raise ValueError(
                f"observations with the keys {sorted(observation_space.keys())} cannot get {sorted(taken)} as well. "
                f"Leave out what asks for the step before ({SETTINGS}), or rename the keys."
            )
        return spaces.Dict({**observation_space.spaces, **added})

    def missing_in(self, space: spaces.Space) -> list[str]:
        """Keys of the parts of the step before that observations of this space do not have."""
        keys = space.spaces if isinstance(space, spaces.Dict) else {}
        return [key for key, wanted in ((ACTIONS, self.action), (REWARDS, self.reward)) if wanted and key not in keys]

    def own_space(self, space):
        own = {key: part for key, part in space.spaces.items() if key not in (ACTIONS, REWARDS)}
        return own[OBSERVATIONS] if list(own) == [OBSERVATIONS] else spaces.Dict(own)

    def wrapped(self, env) -> gymnasium.Env | VectorEnv:
        return _PreviousStepVector(env, self) if isinstance(env, VectorEnv) else _PreviousStepEnv(env, self)

    def row(self, observation, inputs: StepInputs):
        if isinstance(observation, Mapping) and observation.keys() & {ACTIONS, REWARDS}:
            return observation
        action, reward = inputs.prev_action, inputs.prev_reward
        missing = ["prev_action"] if self.action and action is None else []
        missing += ["prev_reward"] if self.reward and reward is None else []
        begins = inputs.state is None or not any(np.any(part) for part in inputs.state)
        if missing and not begins:
            raise NoActionError(
                f"no action can be computed: this policy reads the step before. Give {' and '.join(missing)} with "
                "every observation but the first of an episode.",
                "The first one's state is get_initial_state(); algo.make_player() remembers the action and the state.",
            )
        encoded = inputs.action_row.zeros if action is None else inputs.action_row.of_given(action)
        return self.added_to(observation, encoded, 0.0 if reward is None else _finite(reward))

    def to_json(self) -> dict[str, bool]:
        return asdict(self)

    def added_to(self, observation, action: np.ndarray, reward: float) -> dict:
        """The new observation; the action as `ActionRow.of` gives it."""
        added = dict(observation) if isinstance(observation, Mapping) else {OBSERVATIONS: observation}
        if self.action:
            added[ACTIONS] = action
        if self.reward:
            added[REWARDS] = np.array([reward], np.float32)
        return added


class _PreviousStepEnv(gymnasium.Wrapper):
    """One environment with the new observations."""

    def __init__(self, env: gymnasium.Env, previous: PreviousStep):
        super().__init__(env)
        self._previous = previous
        self._row = ActionRow(env.action_space)
        self.observation_space = previous.space(env.observation_space, env.action_space)

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        return self._previous.added_to(observation, self._row.zeros, 0.0), info

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return self._previous.added_to(observation, self._row.of(action), reward), reward, *rest


class _PreviousStepVector(VectorWrapper):
    """A VectorEnv with the new observations, as arrays."""

    def __init__(self, env: VectorEnv, previous: PreviousStep):
        super().__init__(AsArrays(env, autoreset_mode(env)))
        self._previous = previous
        self._row = ActionRow(env.single_action_space)
        self.single_observation_space = previous.space(env.single_observation_space, env.single_action_space)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._mode = autoreset_mode(env)
        self._actions = np.zeros((env.num_envs, len(self._row.zeros)), np.float32)
        self._rewards = np.zeros((env.num_envs, 1), np.float32)
        # NEXT_STEP: whether the environment's next call resets it.
        self._resets_next = np.zeros(env.num_envs, bool)

    def reset(self, *, seed=None, options=None):
        # gymnasium takes the mask out of the dict.
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool)).copy()
        observations, infos = self.env.reset(seed=seed, options=options)
        self._forget(mask)
        self._resets_next[mask] = False
        return self._with_previous(observations), infos

    def step(self, actions):
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        rows = [self._row.of(action) for action in iterate(self.env.action_space, actions)]
        self._actions, self._rewards = np.stack(rows), np.array(rewards, np.float32)[:, None]
        ended = np.logical_or(terminated, truncated)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._forget(self._resets_next)
            self._resets_next = ended
        elif self._mode is AutoresetMode.SAME_STEP:
            if np.any(infos.get("_final_obs")):
                infos = {**infos, "final_obs": self._finals(infos)}
            self._forget(ended)
        return self._with_previous(observations), rewards, terminated, truncated, infos

    def _with_previous(self, observations) -> dict:
        added = dict(observations) if isinstance(observations, Mapping) else {OBSERVATIONS: observations}
        if self._previous.action:
            added[ACTIONS] = self._actions.copy()
        if self._previous.reward:
            added[REWARDS] = self._rewards.copy()
        return added

    def _finals(self, infos: Mapping) -> np.ndarray:
        finals = np.full(self.num_envs, None, object)
        for index in np.flatnonzero(infos["_final_obs"]):
            last = self._actions[index].copy(), float(self._rewards[index, 0])
            finals[index] = self._previous.added_to(entry(infos["final_obs"], index), *last)
        return finals

    def _forget(self, environments: np.ndarray) -> None:
        self._actions[environments] = 0
        self._rewards[environments] = 0


def _finite(reward) -> float:
    """The reward before a step as a number; raises NoActionError for anything else."""
    try:
        number = float(reward)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= FLOAT32_MAX:
        raise NoActionError(f"no action can be computed: prev_reward must be a finite number, but is {reward!r:.80}")
    return number
