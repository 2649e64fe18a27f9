"""Actions for observations as an environment gives them, outside of training."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rllib.algorithms.algorithm_config import AlgorithmConfig
from rllib.env.actions import action_mapper
from rllib.env.augmented import METHOD, OBSERVATIONS, Augmentation
from rllib.env.observations import observation_column
from rllib.env.previous_steps import ACTIONS, REWARDS, ActionRow, PreviousStep
from rllib.env.spaces import mismatch
from rllib.models.distributions import Distribution
from rllib.policy import Policy


class Inference:
    """From observations to actions, both in the environment's own units.

    Args:
        observation_space, action_space: of the environment.
        config: how actions are mapped to the space.
        rng: draws the actions that are sampled.
        distribution: of the policies' actions.
        augmentation: what is added to the environment's own observations; None: nothing.
        told: what observations tell of the step before; None: nothing.

    Attributes:
        rng: the same.
    """

    def __init__(
        self,
        observation_space,
        action_space,
        config: AlgorithmConfig,
        rng: np.random.Generator,
        distribution: Distribution,
        augmentation: Augmentation | None = None,
        told: PreviousStep | None = None,
    ):
        self.rng = rng
        self._augmentation = augmentation
        self._told = told
        self._action_row = told and ActionRow(action_space)
        self._space = observation_space
        self._ignored = set(config.ignore_observation_keys)
        self._column = observation_column(observation_space)
        mapping = config.normalize_actions, config.clip_actions
        self._to_env = action_mapper(action_space, distribution, *mapping).to_env

    def compute_actions(
        self,
        policy: Policy,
        observations: Sequence,
        states: Sequence | None,
        explore: bool,
        fetches: dict | None,
        action_masks: Sequence | None = None,
        prev_actions: Sequence | None = None,
        prev_rewards: Sequence | None = None,
    ) -> tuple[np.ndarray, list[list[np.ndarray]]]:
        """One action for each observation.

        Args:
            policy: acts.
            observations: N of them.
            states: of a policy with a memory, the state before each observation, in the form of
                `Policy.get_initial_state`.
            explore: sample the actions.
            fetches: as for `Policy.compute_actions`.
            action_masks: a mask for each observation, where the environment does not give them in its observations.
            prev_actions, prev_rewards: the action before each observation, as the environment took it, and its reward,
                where the policy reads them; None where an episode begins.

        Returns:
            N actions, and the state after each observation.

        Raises:
            ValueError: for an observation that is not in the space, a state that does not fit the policy, or a mask
                that is missing or leaves no legal action.
        """
        given = (
            observations,
            *(_or_none(each, observations) for each in (states, prev_actions, prev_rewards, action_masks)),
        )
        rows = np.stack([self._row(*each) for each in zip(*given, strict=True)])
        memory = _memory(policy, states, len(rows))
        actions = self._to_env(policy.compute_actions(rows, explore, self.rng, state=memory, fetches=fetches))
        return actions, _states(policy, memory, len(rows))

    def _row(self, observation, state, prev_action, prev_reward, action_mask) -> np.ndarray:
        """The observation as batches store it."""
        if self._ignored and isinstance(observation, Mapping):
            observation = {key: value for key, value in observation.items() if key not in self._ignored}
        observation = self._with_previous(observation, state, prev_action, prev_reward)
        observation = self._with_mask(observation, action_mask)
        if problem := mismatch(self._space, observation):
            if isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], dict):
                problem = "this is the pair (observation, info) that reset() returns; give its first part alone"
            raise ValueError(f"no action can be computed: {problem}")
        return self._column.row(observation)

    def _with_previous(self, observation, state, action, reward):
        """The observation with what the policy reads of the step before."""
        told, row = self._told, self._action_row
        if told is None or (isinstance(observation, Mapping) and observation.keys() & {ACTIONS, REWARDS}):
            return observation
        missing = ["prev_action"] if told.action and action is None else []
        missing += ["prev_reward"] if told.reward and reward is None else []
        begins = state is None or not any(np.any(part) for part in state)
        if missing and not begins:
            raise ValueError(
                f"no action can be computed: this policy reads the step before. Give {' and '.join(missing)} with "
                "every observation but the first of an episode, whose state is get_initial_state(). algo.make_player() "
                "remembers the action and the state."
            )
        action = row.zeros if action is None else row.of(action)
        return told.added_to(observation, action, 0.0 if reward is None else reward)

    def _with_mask(self, observation, action_mask):
        """The observation as the policy's environments give it."""
        added = self._augmentation
        if added is None:
            if action_mask is not None:
                raise ValueError(
                    f"action_mask={action_mask!r:.80} has no use here: this policy takes masks as a part of the "
                    "observation alone. Leave it out, or use .environment(action_mask_from='info')."
                )
            return observation
        if isinstance(observation, Mapping) and observation.keys() == {OBSERVATIONS, added.mask_key}:
            return observation
        if action_mask is None:
            raise ValueError(
                "no action can be computed: this policy was trained with masks beside its observations. Give "
                f"action_mask=info[{added.mask_key!r}], or what env.{METHOD}() returns."
            )
        return added.added_to(observation, np.asarray(action_mask))


def _or_none(values: Sequence | None, observations: Sequence) -> Sequence:
    return [None] * len(observations) if values is None else values


def _memory(policy: Policy, states: Sequence | None, count: int) -> np.ndarray | None:
    """The states before `count` observations in one array [count, size]; None for a policy without a memory."""
    shapes = [part.shape for part in policy.get_initial_state()]
    if states is None and not shapes:
        return None
    fit = isinstance(states, Sequence) and len(states) == count
    if fit and all(isinstance(each, list | tuple) and [np.shape(part) for part in each] == shapes for each in states):
        return np.array([np.concatenate(each, axis=None) for each in states], np.float32) if shapes else None
    if not shapes:
        raise ValueError(f"this policy has no memory, so its state is [], but got {states!r:.80}; explore is a keyword")
    raise ValueError(
        f"this policy has a memory: each observation needs a state, a list with {_described(shapes)}, "
        f"but got {states!r:.80}. Give state=algo.get_policy().get_initial_state() with the first observation of an "
        "episode, and then the state that the previous call returned."
    )


def _states(policy: Policy, memory: np.ndarray | None, count: int) -> list[list[np.ndarray]]:
    """The states [count, size] in the form of `Policy.get_initial_state`."""
    if memory is None:
        return [[] for _ in range(count)]
    shapes = policy.spec.state_shapes
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    return [[part.reshape(shape) for part, shape in zip(np.split(row, ends), shapes)] for row in memory]


def _described(shapes: Sequence[tuple[int, ...]]) -> str:
    listed = [str(list(shape)) for shape in shapes]
    return f"an array of shape {listed[0]}" if len(listed) == 1 else f"arrays of shapes {', '.join(listed)}"
