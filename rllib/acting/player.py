"""A trained policy that acts in episodes, for deployment: it keeps its state between steps."""

from collections.abc import Hashable, Sequence
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from rllib.policy import Policy
from rllib.sample_batch import DEFAULT_POLICY


class Acts(Protocol):
    """An algorithm, or a loaded policy, as a player uses it."""

    def get_policy(self, policy_id: str = ...) -> Policy: ...

    def compute_actions(self, observations: Any, state: Any = ..., **how: Any) -> Any: ...


class Player:
    """Plays one episode, or several side by side, with an algorithm's present policy; `Algorithm.make_player` makes it.

    It keeps the state of a policy with a memory and, for policies that read them, the action before and its reward:

        player, (observation, _), reward = algo.make_player(), env.reset(), None
        while not over:
            observation, reward, terminated, truncated, _ = env.step(player.act(observation, reward))
            over = terminated or truncated
        player.reset()

    Args:
        algo: an algorithm or loaded policy, which acts.
        num_episodes: number of episodes side by side; None: one, whose observations and actions come alone.
        explore: sample the actions.
        policy_id: id of the policy.
        agent_id: the agent that acts, for a policy that reads it; None: there is one.

    Attributes:
        policy_id: the same.
    """

    def __init__(
        self,
        algo: Acts,
        num_episodes: int | None = None,
        *,
        explore: bool = False,
        policy_id: str = DEFAULT_POLICY,
        agent_id: Hashable = None,
    ):
        if num_episodes is not None and num_episodes < 1:
            raise ValueError(f"num_episodes={num_episodes} must be at least 1, or None for one episode alone")
        self._algo, self._num_episodes, self.policy_id = algo, num_episodes, policy_id
        self._how: dict[str, Any] = {"explore": explore, "policy_id": policy_id, "full_fetch": True}
        self._policy = algo.get_policy(policy_id)
        count = num_episodes or 1
        if agent_id is not None:
            self._how["agent_ids"] = [agent_id] * count
        self._states: list[list[np.ndarray]] = [[]] * count
        self._prev_actions: list = [None] * count
        self.reset()

    def reset(self, index: int | None = None) -> None:
        """Begins a new episode: in all of them, or in that with this index.

        Raises:
            ValueError: if there is no episode with that index.
        """
        count = len(self._states)
        is_index = isinstance(index, Integral) and not isinstance(index, bool) and 0 <= index < count
        if index is not None and not is_index:
            raise ValueError(f"index={index!r} must be one of the {count} episodes, 0 to {count - 1}, or None for all")
        for each in range(count) if index is None else [index]:
            self._states[each], self._prev_actions[each] = self._policy.get_initial_state(), None

    def act(self, observation, reward=None, action_mask=None):
        """The action for the newest observation, in the environment's units; with `num_episodes`, one for each.

        Args:
            observation: as the environment gives it; with `num_episodes`, a sequence of them.
            reward: that came with it, for policies that read the last reward; None in the first step of an episode.
            action_mask: of the legal actions, where the environment gives masks in the info or by a method.

        Raises:
            ValueError: for an observation that is not in the space, a number of them that differs from `num_episodes`,
                or a missing reward or mask.
        """
        alone = self._num_episodes is None
        observations = [observation] if alone else observation
        if len(observations) != len(self._states):
            raise ValueError(
                f"this player plays {len(self._states)} episodes, but got {len(observations)} observations"
            )
        # The reward that an episode ended with does not belong to the next one.
        rewards = _each(reward, alone)
        if rewards is not None:
            rewards = [
                None if before is None else each for before, each in zip(self._prev_actions, rewards, strict=True)
            ]
        actions, self._states, _ = self._algo.compute_actions(
            observations,
            self._states,
            prev_action=self._prev_actions,
            prev_reward=rewards,
            action_masks=_each(action_mask, alone),
            **self._how,
        )
        self._prev_actions = list(actions)
        return actions[0] if alone else actions


def _each(given, alone: bool) -> Sequence | None:
    return [given] if alone and given is not None else given
