"""The lane of a hand-written policy."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rllib.env.multi_agent.adapt import own_observation
from rllib.evaluation.multi_agent.agent_lane import AgentLane, set_states, states_of
from rllib.hand_written import choose


class HandWrittenLane(AgentLane):
    """The lane of a hand-written policy, which is a function of the agents' raw observations.

    Args:
        chooser: has `compute_actions(observations, state_batches=None, **kwargs)`, which returns the actions, or
            (actions, states, fetches).
        policy_id: id of the policy, for error messages.
        num_slots: S.
        describe: function of a slot that returns its description for error messages.
        rngs: random stream of each slot, for a chooser whose method has the argument `rngs`.
    """

    def __init__(
        self,
        chooser,
        policy_id: str,
        num_slots: int,
        *,
        describe: Callable[[int], str],
        rngs: Sequence[np.random.Generator],
    ):
        super().__init__(num_slots)
        self.chooser, self._policy_id, self._describe = chooser, policy_id, describe
        self._rngs, self._takes_rngs = rngs, _names(chooser.compute_actions, "rngs")
        self._observations: list[Any] = []
        self._states: dict[int, Sequence] = {}

    def begin_episode(self, slot):
        self._states.pop(slot, None)

    def receive(self):
        self._observations = list(map(own_observation, self._pop_seen()))

    def act(self, step=0):
        """Asks the policy for the actions of the slots that act.

        Raises:
            ValueError: if the policy does not return one action for each observation.
            the policy's own exception, with a note naming the policy and the agents.
        """
        try:
            actions = self._chosen()
        except Exception as error:
            slots = "; ".join(map(self._describe, self.acting[:4])) + ("; ..." if len(self.acting) > 4 else "")
            error.add_note(f"{self._name} was asked for {len(self.acting)} actions, of {slots}")
            raise
        self.env_actions = dict(zip(self.acting, actions))

    @property
    def _name(self) -> str:
        return f"{type(self.chooser).__name__} {self._policy_id!r}"

    def _chosen(self) -> Sequence:
        """Returns the policy's actions, and stores the states that the policy returned with them."""
        count = len(self.acting)
        before = [self._states.get(slot) for slot in self.acting]
        more = {"rngs": [self._rngs[slot] for slot in self.acting]} if self._takes_rngs else {}
        answer, following = choose(self.chooser, self._observations, before, **more)
        num_given = len(answer) if hasattr(answer, "__len__") else None
        if num_given != count:
            given = f"{answer!r:.60}" if num_given is None else f"{num_given} actions"
            raise ValueError(
                f"{self._name} gave {given} for {count} observations; compute_actions returns one action for each of "
                "them, in their order"
            )
        self._states.update((slot, state) for slot, state in zip(self.acting, following) if state)
        return answer

    def widen(self, other, slots):
        self._states = {int(slots[slot]): state for slot, state in other._states.items()}

    def get_state(self):
        return states_of(self._rngs)

    def set_state(self, state):
        set_states(self._rngs, state)

    def start_over(self):
        super().start_over()
        self._states = {}


def _names(function: Callable, argument: str) -> bool:
    """Whether a function has an argument of this name."""
    try:
        return argument in inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins without a signature
        return False
