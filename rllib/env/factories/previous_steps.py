"""Observations that tell the action before and its reward, as policies with a memory may want them.

They are parts of the observation, {"observations": ..., "prev_actions": ..., "prev_rewards": ...}, so that all that
carries observations carries them: fragments, final observations, replays, filters and evaluations. A Dict gets two more
keys. Both are zero in the first observation of an episode.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space, iterate

from rllib.env.factories.registry import EnvContext, WrappingFactory
from rllib.env.streams.vector import autoreset_mode
from rllib.models.model_settings import PREVIOUS_STEP, check_model
from rllib.models.observations.flat_spaces import flat_leaves

OBSERVATIONS, ACTIONS, REWARDS = "observations", "prev_actions", "prev_rewards"
# For messages.
SETTINGS = ", ".join(PREVIOUS_STEP)


@dataclass(frozen=True)
class PreviousStep:
    """Which parts of the previous step an observation contains.

    Attributes:
        action: whether the action is: choices one-hot, numbers between finite bounds as -1 ... 1.
        reward: whether the reward is, as the environment gave it.
    """

    action: bool = False
    reward: bool = False

    @classmethod
    def of_model(cls, model: Mapping) -> "PreviousStep | None":
        """What the setting `model` asks for; None: nothing."""
        model = check_model(model)
        action = model["lstm_use_prev_action"] or bool(model["attention_use_n_prev_actions"])
        reward = model["lstm_use_prev_reward"] or bool(model["attention_use_n_prev_rewards"])
        return cls(action, reward) if action or reward else None

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
                f"observations with the keys {sorted(observation_space.keys())} cannot get {sorted(taken)} beside. "
                f"Leave out what asks for the step before ({SETTINGS}), or rename the keys."
            )
        return spaces.Dict({**observation_space.spaces, **added})

    def own_space(self, space: spaces.Dict) -> spaces.Space:
        """The environment's own space, of what `space` made of it."""
        own = {key: part for key, part in space.spaces.items() if key not in (ACTIONS, REWARDS)}
        return own[OBSERVATIONS] if list(own) == [OBSERVATIONS] else spaces.Dict(own)

    def added_to(self, observation, action: np.ndarray, reward: float) -> dict:
        """The new observation; the action as `ActionRow.of` gives it."""
        told = dict(observation) if isinstance(observation, Mapping) else {OBSERVATIONS: observation}
        if self.action:
            told[ACTIONS] = action
        if self.reward:
            told[REWARDS] = np.array([reward], np.float32)
        return told


class ActionRow:
    """Actions of a space as rows of numbers.

    Args:
        space: of a single action.
    """

    def __init__(self, space: spaces.Space):
        self._space = space
        self.zeros = np.zeros(spaces.flatdim(space), np.float32)
        self._scale, self._shift = np.ones_like(self.zeros), np.zeros_like(self.zeros)
        for leaf in flat_leaves(space):
            if isinstance(leaf.space, spaces.Box):
                low, high = (np.ravel(bound).astype(np.float64) for bound in (leaf.space.low, leaf.space.high))
                bounded = np.isfinite(low) & np.isfinite(high) & (high > low)
                with np.errstate(invalid="ignore"):
                    self._scale[leaf.start : leaf.stop] = np.where(bounded, 2 / (high - low), 1)
                    self._shift[leaf.start : leaf.stop] = np.where(bounded, (low + high) / (low - high), 0)

    def of(self, action) -> np.ndarray:
        """float32 [numbers]: choices one-hot, numbers between finite bounds as -1 ... 1."""
        return spaces.flatten(self._space, action).astype(np.float32) * self._scale + self._shift


@dataclass(frozen=True)
class PreviousStepFactory(WrappingFactory):
    """A factory that makes another factory's environments, whose observations tell of the step before.

    Attributes:
        told: the parts of the previous step.
    """

    told: PreviousStep

    def make(self, context: EnvContext) -> gymnasium.Env | VectorEnv:
        """One new environment.

        Raises:
            ValueError: if it is neither gymnasium's Env nor VectorEnv, or its observations have the new keys already.
        """
        env = self.factory.make(context)
        if isinstance(env, VectorEnv):
            return _TellingVector(env, self.told)
        if not isinstance(env, gymnasium.Env):
            raise ValueError(
                f"settings that tell the step before ({SETTINGS}) need an environment that is a gymnasium.Env, but "
                f"{self.name} is {type(env).__name__}. Let it tell these in its own observations."
            )
        return _TellingEnv(env, self.told)


class _TellingEnv(gymnasium.Wrapper):
    """One environment with the new observations."""

    def __init__(self, env: gymnasium.Env, told: PreviousStep):
        super().__init__(env)
        self._told = told
        self._row = ActionRow(env.action_space)
        self.observation_space = told.space(env.observation_space, env.action_space)

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        return self._told.added_to(observation, self._row.zeros, 0.0), info

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return self._told.added_to(observation, self._row.of(action), reward), reward, *rest


class _TellingVector(VectorWrapper):
    """A VectorEnv with the new observations."""

    def __init__(self, env: VectorEnv, told: PreviousStep):
        super().__init__(env)
        self._told = told
        self._row = ActionRow(env.single_action_space)
        self.single_observation_space = told.space(env.single_observation_space, env.single_action_space)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._mode = autoreset_mode(env)
        self._actions = np.zeros((env.num_envs, len(self._row.zeros)), np.float32)
        self._rewards = np.zeros((env.num_envs, 1), np.float32)
        # NEXT_STEP: whose next call resets them.
        self._resets_next = np.zeros(env.num_envs, bool)

    def reset(self, *, seed=None, options=None):
        # gymnasium takes the mask out of the dict.
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool)).copy()
        observations, infos = self.env.reset(seed=seed, options=options)
        self._forget(mask)
        self._resets_next[mask] = False
        return self._telling(observations), infos

    def step(self, actions):
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        rows = [self._row.of(action) for action in iterate(self.env.action_space, actions)]
        self._actions, self._rewards = np.stack(rows), np.array(rewards, np.float32)[:, None]
        ended = np.logical_or(terminated, truncated)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._forget(self._resets_next)
            self._resets_next = ended
        elif self._mode is AutoresetMode.SAME_STEP:
            if "final_obs" in infos:
                infos = {**infos, "final_obs": self._finals(infos)}
            self._forget(ended)
        return self._telling(observations), rewards, terminated, truncated, infos

    def _telling(self, observations) -> dict:
        told = dict(observations) if isinstance(observations, Mapping) else {OBSERVATIONS: observations}
        if self._told.action:
            told[ACTIONS] = self._actions.copy()
        if self._told.reward:
            told[REWARDS] = self._rewards.copy()
        return told

    def _finals(self, infos: Mapping) -> np.ndarray:
        finals = np.full(self.num_envs, None, object)
        for index in np.flatnonzero(infos["_final_obs"]):
            last = self._actions[index].copy(), float(self._rewards[index, 0])
            finals[index] = self._told.added_to(infos["final_obs"][index], *last)
        return finals

    def _forget(self, environments: np.ndarray) -> None:
        self._actions[environments] = 0
        self._rewards[environments] = 0
